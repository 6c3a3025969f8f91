"""AG News: comma-separated texts, turned into hashed tokens."""

import io
import re
from pathlib import Path
from zlib import crc32

import numpy as np

from fedtailor.data.files import SourceFiles, open_maybe_gz
from fedtailor.data.samples import Samples, train_and_test

TOPICS = ("World", "Sports", "Business", "Sci/Tech")
VOCABULARY = 32768
TOKENS = 64
WORD = re.compile(r"[^\W_]+")


def ag_news(files: SourceFiles) -> Samples:
    train = files.need("train.csv", "train.csv.gz", "train_subset.csv.gz")
    test = files.need("test.csv", "test.csv.gz")
    return train_and_test(_texts(files, train), _texts(files, test), TOPICS, vocabulary=VOCABULARY)


def hashed_tokens(texts: list[str]) -> np.ndarray:
    """int32 (texts, 64): a number 1..32767 for each of the first 64 words, then zeros.

    A word's number is computed from its letters alone, so clients need not agree on a vocabulary.
    """
    tokens = np.zeros((len(texts), TOKENS), np.int32)
    known: dict[str, int] = {}
    for row, text in enumerate(texts):
        words = WORD.findall(text.lower())[:TOKENS]
        for word in words:
            if word not in known:
                known[word] = crc32(word.encode()) % (VOCABULARY - 1) + 1
        tokens[row, : len(words)] = [known[word] for word in words]
    return tokens


def _texts(files: SourceFiles, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows are class 1..4, title, description; in the compact file the two texts are one."""
    import csv

    labels: list[int] = []
    texts: list[str] = []
    with files.reading(path, "AG News rows of class, title and description"):
        with open_maybe_gz(path) as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
            for row in csv.reader(text, strict=True):
                if len(row) not in (2, 3) or row[0] not in ("1", "2", "3", "4"):
                    raise ValueError(f"row {len(labels) + 1} has {len(row)} columns or no class 1..4")
                labels.append(int(row[0]) - 1)
                texts.append(" ".join(row[1:]))
        if not labels:
            raise ValueError("it is empty")
    return hashed_tokens(texts), np.array(labels, np.int64)
