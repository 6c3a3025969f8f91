"""Shakespeare's plays: the text that each role speaks, cut into windows whose next character is the label."""

import numpy as np

from fedtailor.data.files import SourceFiles
from fedtailor.data.samples import Samples

NAMES = {"\n": "newline", " ": "space"}  # of characters that do not show


def shakespeare(files: SourceFiles, window: int = 80, stride: int = 20, min_characters: int = 2000) -> Samples:
    """Windows of ``window`` characters, one every ``stride`` characters, of roles with enough text.

    A role's speeches follow one another with a line break between them. Token ids are the places of the characters in
    the sorted alphabet of the whole file, from 1; a sample's time is its place in the role's text.
    """
    path = files.need("input.txt")
    with files.reading(path, "plays of blocks that begin with 'SPEAKER:'"):
        text = path.read_text(encoding="utf-8")
        spoken = _speeches(text)
        needed = max(min_characters, window + 1)
        roles = {role: speech for role, speech in sorted(spoken.items()) if len(speech) >= needed}
        if not roles:
            longest = max((len(speech) for speech in spoken.values()), default=0)
            raise ValueError(f"no role speaks {needed} characters, the longest {longest}")
    alphabet = sorted(set(text))
    token = {character: place for place, character in enumerate(alphabet, start=1)}
    inputs, labels, times, groups = [], [], [], []
    for group, speech in enumerate(roles.values()):
        tokens = np.array([token[character] for character in speech], np.int32)
        begin = np.arange(0, len(tokens) - window, stride)
        inputs.append(np.lib.stride_tricks.sliding_window_view(tokens, window)[begin])
        labels.append(tokens[begin + window] - 1)
        times.append(np.stack([begin, begin + window], 1))  # the label is the last moment
        groups.append(np.full(len(begin), group))
    y = np.concatenate(labels).astype(np.int64)
    return Samples(
        x=np.concatenate(inputs),
        y=y,
        classes=tuple(NAMES.get(character, character) for character in alphabet),
        official_test=np.zeros(len(y), bool),
        groups=np.concatenate(groups).astype(np.int64),
        group_names=tuple(roles),
        vocabulary=len(alphabet) + 1,
        times=np.concatenate(times).astype(np.int64),
    )


def _speeches(text: str) -> dict[str, str]:
    """The whole text of every role."""
    spoken: dict[str, list[str]] = {}
    for number, block in enumerate(text.split("\n\n"), start=1):
        if not block.strip():
            continue
        speaker, colon, speech = block.strip("\n").partition(":\n")
        if not colon or "\n" in speaker:
            if block.rstrip().endswith(":") and "\n" not in block.strip():
                continue  # a role that says nothing
            raise ValueError(f"block {number} does not begin with 'SPEAKER:'")
        spoken.setdefault(speaker, []).append(speech)
    return {role: "\n".join(speeches) for role, speeches in spoken.items()}
