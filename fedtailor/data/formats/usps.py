"""USPS digits: the text files zip.train and zip.test, or the compact file."""

import numpy as np

from fedtailor.data.files import SourceFiles, open_maybe_gz
from fedtailor.data.samples import Samples, train_and_test, with_statistics

from .idx import DIGITS

EXPECTED = "the USPS digits (label and 256 grey values per line)"


def usps(files: SourceFiles) -> Samples:
    compact = files.find("usps.npz")
    if compact and not files.find("zip.train.gz", "zip.train"):
        keys = ("x_train", "y_train", "x_test", "y_test")
        x_train, y_train, x_test, y_test = files.arrays(compact, "the compact USPS file", *keys)
        return with_statistics(train_and_test((x_train, y_train), (x_test, y_test), DIGITS))
    return with_statistics(train_and_test(_text(files, "zip.train"), _text(files, "zip.test"), DIGITS))


def _text(files: SourceFiles, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Grey values -1 (paper) .. 1 (ink) become 0..255, so steps of 1/1000 are rounded to 8 bits."""
    path = files.need(f"{name}.gz", name)
    with files.reading(path, EXPECTED), open_maybe_gz(path) as file:
        table = np.loadtxt(file, dtype=np.float64, ndmin=2)
        if table.shape[1:] != (257,) or not len(table):
            raise ValueError(f"it is a table of {table.shape[0]} x {table.shape[-1]} numbers")
        labels, grey = table[:, 0], table[:, 1:]
        if not np.isin(labels, np.arange(10)).all() or np.abs(grey).max() > 1:
            raise ValueError("labels must be 0..9 and grey values -1..1")
        pixels = np.floor((grey + 1) / 2 * 255 + 0.5).astype(np.uint8)
    return pixels.reshape(-1, 16, 16, 1), labels.astype(np.int64)
