"""Omniglot: the authors' two archives of PNG files, or the compact file."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from fedtailor.data.files import SourceFiles, members
from fedtailor.data.samples import Samples, with_statistics

SIDE = 105
SMALL = 35


def omniglot(files: SourceFiles) -> Samples:
    """Drawings at 35x35 (0 = paper, 255 = ink); the label is the alphabet, the group is the drawer.

    There is no test split: Omniglot's two parts have different alphabets, so the second cannot test
    the first.
    """
    archives = [files.find(f"images_{part}.zip", f"images_{part}") for part in ("background", "evaluation")]
    compact = files.find("omniglot.npz")
    names: Sequence[str] | np.ndarray
    if any(archives) or not compact:
        for path, part in zip(archives, ("background", "evaluation"), strict=True):
            if path is None:
                raise files.missing(f"images_{part}.zip")
        ink, alphabet, drawer, names = _drawings(files, [path for path in archives if path])
    else:
        packed, alphabet, drawer, names = files.arrays(
            compact, "the compact Omniglot file", "x_packed", "alphabet", "drawer", "alphabet_names"
        )
        ink = _shrink(packed)
    samples = Samples(
        x=ink[..., None],
        y=alphabet.astype(np.int64),
        classes=tuple(str(name) for name in names),
        official_test=np.zeros(len(ink), bool),
        groups=drawer.astype(np.int64) - 1,
        group_names=tuple(f"drawer {number:02}" for number in range(1, int(drawer.max()) + 1)),
    )
    return with_statistics(samples)


def _drawings(files: SourceFiles, archives: list[Path]) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Files are named <archive>/<alphabet>/<character>/<number>_<drawer>.png."""
    rows: list[np.ndarray] = []
    alphabets: list[str] = []
    drawers: list[int] = []
    for path in archives:
        with files.reading(path, "an Omniglot archive of 105x105 PNG files"):
            before = len(rows)
            for name, content in members(path, lambda name: name.endswith(".png")):
                place = PurePosixPath(name)
                rows.append(_one_bit_png(content))
                alphabets.append(place.parts[-3])
                drawers.append(int(place.stem.split("_")[1]))
            if len(rows) == before or min(drawers) < 1:
                raise ValueError("it has no drawings")
    # in order of appearance, so that the numbers are those of the compact file
    names = list(dict.fromkeys(alphabets))
    number = {name: i for i, name in enumerate(names)}
    packed = 255 - np.stack(rows)  # the files store 1 for paper
    return _shrink(packed), np.array([number[name] for name in alphabets]), np.array(drawers), names


def _shrink(packed: np.ndarray) -> np.ndarray:
    """(N, 105, 14) bits of ink -> (N, 35, 35) uint8: the mean of 3x3 pixels."""
    small = np.empty((len(packed), SMALL, SMALL), np.uint8)
    for start in range(0, len(packed), 2048):
        bits = np.unpackbits(packed[start : start + 2048], axis=2)[:, :, :SIDE]
        inked = bits.reshape(-1, SMALL, 3, SMALL, 3).sum((2, 4), dtype=np.uint16)
        small[start : start + 2048] = (inked * 255 + 4) // 9
    return small


def _one_bit_png(content: bytes) -> np.ndarray:
    """(105, 14) packed bits of a black and white PNG of 105x105 pixels."""
    import struct
    import zlib

    if content[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("a file in it is not a PNG")
    width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", content[16:29])
    if (width, height, depth, colour, interlace) != (SIDE, SIDE, 1, 0, 0):
        raise ValueError(f"a PNG in it is {width}x{height} with {depth} bits and not 105x105 with 1 bit")
    packed, position = b"", 8
    while position < len(content):
        length, kind = struct.unpack(">I4s", content[position : position + 8])
        if kind == b"IDAT":
            packed += content[position + 8 : position + 8 + length]
        position += 12 + length
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(SIDE, -1)
    return _unfilter(lines[:, 0], lines[:, 1:])


def _unfilter(filters: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Undo the PNG line filters; pixels smaller than a byte count as one byte."""
    if not filters.any():
        return lines
    out = np.zeros((len(lines) + 1, lines.shape[1] + 1), np.int64)  # with a row and column of zeros
    for row, (kind, line) in enumerate(zip(filters.tolist(), lines.tolist(), strict=True), start=1):
        for column, value in enumerate(line, start=1):
            left, up = int(out[row, column - 1]), int(out[row - 1, column])
            corner = int(out[row - 1, column - 1])
            nearest = min((left, up, corner), key=lambda near: abs(left + up - corner - near))
            predicted = (0, left, up, (left + up) // 2, nearest)[kind]
            out[row, column] = (value + predicted) % 256
    return out[1:, 1:].astype(np.uint8)
