"""IDX files (MNIST and Fashion-MNIST), packed with gzip or not."""

from pathlib import Path

import numpy as np

from fedtailor.data.files import SourceFiles, open_maybe_gz
from fedtailor.data.samples import Samples, train_and_test
from fedtailor.errors import UserError

LABELS = "train-labels-idx1-ubyte"
DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)


def mnist(files: SourceFiles) -> Samples:
    _not_the_other(files, "Fashion-MNIST", (29515, "25c81989df183df01b3e8a0aad5dffbe"))
    train, test = images_and_labels(files)
    return train_and_test(train, test, DIGITS, mean=(0.1307,), std=(0.3081,))


def fashion_mnist(files: SourceFiles) -> Samples:
    _not_the_other(files, "MNIST", (28881, "d53e105ee54ea40749a09fcbcd1e9432"))
    train, test = images_and_labels(files)
    return train_and_test(train, test, CLOTHES, mean=(0.2860,), std=(0.3530,))


def images_and_labels(files: SourceFiles) -> list[tuple[np.ndarray, np.ndarray]]:
    """[(x, y) for training, (x, y) for testing], x (N, 28, 28, 1) uint8."""
    parts = []
    for part in ("train", "t10k"):
        x, _ = _read(files, f"{part}-images-idx3-ubyte", 3)
        y, path = _read(files, f"{part}-labels-idx1-ubyte", 1)
        with files.reading(path, f"the labels of {len(x)} images"):
            if len(y) != len(x) or y.max(initial=0) > 9:
                raise ValueError(f"it has {len(y)} labels up to {y.max(initial=0)}")
        parts.append((x[..., None], y))
    return parts


def _read(files: SourceFiles, name: str, dimensions: int) -> tuple[np.ndarray, Path]:
    """The uint8 array in an IDX file: 0, 0, 8, number of dimensions, the sizes (big-endian), the bytes."""
    path = files.need(f"{name}.gz", name, name.replace("-idx", ".idx"))
    with files.reading(path, f"an IDX file with {dimensions} dimensions"):
        with open_maybe_gz(path) as file:
            content = file.read()
        if content[:4] != bytes((0, 0, 8, dimensions)):
            raise ValueError(f"it begins with {content[:4].hex(' ') or 'nothing'}")
        start = 4 + 4 * dimensions
        shape = np.frombuffer(content[4:start], ">u4").astype(np.int64)
        if len(shape) != dimensions or len(content) != start + shape.prod():
            raise ValueError(f"it holds {len(content)} bytes, which does not fit its shape {shape.tolist()}")
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape), path
    raise AssertionError("unreachable")


def _not_the_other(files: SourceFiles, other: str, label_file: tuple[int, str]) -> None:
    """MNIST and Fashion-MNIST use the same file names, so a mix-up would go unnoticed."""
    from hashlib import md5

    path = files.find(f"{LABELS}.gz")
    if path is None or path.stat().st_size != label_file[0]:
        return
    if md5(path.read_bytes(), usedforsecurity=False).hexdigest() == label_file[1]:
        raise UserError(
            f"{path} belongs to {other}, not to {files.source}: put each into a folder of its own "
            f"or run 'fedtailor data get {files.source}'"
        )
