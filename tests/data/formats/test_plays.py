"""Plays as windows of text: who says what, and what comes next."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedtailor.data import DataSettings, Samples, build
from fedtailor.data.sources import read
from fedtailor.errors import UserError

TEXT = "ANNA:\nabcabc\n\nBERT:\nba\n\nANNA:\ncab\n\nCARL:\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare" / "input.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path


def spoken(samples: Samples, row: int) -> tuple[str, str]:
    """The characters of a window, and the next one."""
    window = "".join(samples.classes[token - 1].replace("newline", "\n") for token in samples.x[row])
    return window, samples.classes[samples.y[row]].replace("newline", "\n")


def test_windows_are_those_of_a_role_s_whole_text(place: Path) -> None:
    """Anna says "abcabc" and "cab": "abcabc\\ncab" has windows of four at 0, 3 and none at 6 without a next one."""
    samples = read("shakespeare", place, window=4, stride=3, min_characters=5)
    assert samples.group_names == ("ANNA",)
    assert [spoken(samples, row) for row in range(len(samples))] == [("abca", "b"), ("abc\n", "c")]
    assert samples.times is not None
    assert samples.times.tolist() == [[0, 4], [3, 7]]
    assert samples.vocabulary == len(set(TEXT)) + 1
    assert samples.x.min() >= 1, "0 is padding"


def test_roles_with_little_text_are_left_out(place: Path) -> None:
    assert read("shakespeare", place, window=1, stride=1, min_characters=1).group_names == ("ANNA", "BERT")
    with pytest.raises(UserError, match="no role speaks 100 characters, the longest 10"):
        read("shakespeare", place, min_characters=100)


def test_a_text_without_speakers_is_one_sentence(place: Path) -> None:
    (place / "shakespeare" / "input.txt").write_text("once upon a time\nthere was", encoding="utf-8")
    with pytest.raises(UserError, match=r"input\.txt is damaged or not plays.*block 1"):
        read("shakespeare", place)


@pytest.mark.skipif(
    not (Path(os.environ.get("FEDTAILOR_DATA", "/nonexistent")) / "shakespeare").is_dir(),
    reason="FEDTAILOR_DATA has no shakespeare",
)
def test_every_role_is_tested_on_later_text_than_it_is_trained_on() -> None:
    settings = DataSettings.model_validate(
        {
            "source": "shakespeare",
            "partition": "given",
            "shakespeare": {"min_characters": 10_000},
            "split": {"train": 0.7, "val": 0.1, "test": 0.2},
        }
    )
    federation = build(settings, 0)
    assert federation.clients == 36
    times = federation.samples.times
    assert times is not None
    for client in range(federation.clients):
        train, val, test = (times[part[client]] for part in (federation.train, federation.val, federation.test))
        assert train[:, 1].max() < val[:, 0].min()
        assert val[:, 1].max() < test[:, 0].min()
        assert len(np.unique(federation.samples.groups[federation.train[client]])) == 1
