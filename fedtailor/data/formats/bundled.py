"""The digits that come with scikit-learn: a gzipped table with the 64 pixels of an image and its class in a row."""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

FILE = "datasets/data/digits.csv.gz"


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images of 8x8 pixels with values 0 to 16, and classes.  # (samples, 8, 8), (samples,)

    The file is read without scikit-learn, whose import takes as long as several rounds.
    """
    package = find_spec("sklearn")
    file = None if package is None or package.origin is None else Path(package.origin).parent / FILE
    if file is None or not file.is_file():  # says what is missing, or knows where the file is now
        from sklearn.datasets import load_digits

        bundled = load_digits()
        return bundled.images, bundled.target
    with gzip.open(file, "rt", encoding="ascii") as lines:
        table = np.loadtxt(lines, delimiter=",")
    return table[:, :-1].reshape(-1, 8, 8), table[:, -1]
