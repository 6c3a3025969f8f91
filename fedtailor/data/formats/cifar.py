"""CIFAR-10 and CIFAR-100: the binary archives, the Python ones (without unpickling) or the compact files."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath

import numpy as np

from fedtailor.data.files import SourceFiles, members
from fedtailor.data.samples import Samples, train_and_test

from .deltas import undelta
from .opcodes import read_plain_pickle

Labelled = tuple[np.ndarray, np.ndarray]
PIXELS = 3 * 32 * 32
TEN = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# fmt: off
HUNDRED = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl",
    "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair",
    "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin",
    "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp",
    "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck",
    "pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road",
    "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider",
    "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television",
    "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf",
    "woman", "worm",
)
# fmt: on
TEN_STATISTICS = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
HUNDRED_STATISTICS = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))


def cifar10(files: SourceFiles) -> Samples:
    batches = [f"data_batch_{i}" for i in range(1, 6)]
    binary = files.find("cifar-10-binary.tar.gz", "cifar-10-batches-bin")
    python = files.find("cifar-10-python.tar.gz", "cifar-10-batches-py")
    if binary:
        parts = _binary(files, binary, [f"{name}.bin" for name in batches], "test_batch.bin", 1, 10)
    elif python:
        parts = _python(files, python, batches, "test_batch", b"labels", 10)
    elif files.find("data_batch_1.npz"):
        compact = [_compact_batch(files, f"{name}.npz") for name in [*batches, "test_batch"]]
        parts = _join(compact[:-1]), compact[-1]
    else:
        raise files.missing("cifar-10-binary.tar.gz")
    return train_and_test(*parts, TEN, *TEN_STATISTICS)


def cifar100(files: SourceFiles) -> Samples:
    binary = files.find("cifar-100-binary.tar.gz", "cifar-100-binary")
    python = files.find("cifar-100-python.tar.gz", "cifar-100-python")
    compact = files.find("cifar100_subset.npz")
    if binary:
        parts = _binary(files, binary, ["train.bin"], "test.bin", 2, 100)
    elif python:
        parts = _python(files, python, ["train"], "test", b"fine_labels", 100)
    elif compact:
        keys = ("x_train_delta", "y_train", "x_test_delta", "y_test")
        x, y, x_test, y_test = files.arrays(compact, "the compact CIFAR-100 subset", *keys)
        parts = (undelta(x), y), (undelta(x_test), y_test)
    else:
        raise files.missing("cifar-100-binary.tar.gz")
    return train_and_test(*parts, HUNDRED, *HUNDRED_STATISTICS)


def _compact_batch(files: SourceFiles, name: str) -> Labelled:
    path = files.need(name)
    coded, y = files.arrays(path, "a compact CIFAR-10 batch", "x_delta", "y")
    return undelta(coded), y


def _binary(
    files: SourceFiles, path: Path, train: list[str], test: str, label_bytes: int, classes: int
) -> tuple[Labelled, Labelled]:
    """Records of the label (for CIFAR-100 the coarse, then the fine one) and 3072 bytes of planes R, G, B."""

    def parse(content: bytes) -> Labelled:
        width = label_bytes + PIXELS
        if not content or len(content) % width:
            raise ValueError(f"{len(content)} bytes are not a whole number of records of {width} bytes")
        records = np.frombuffer(content, np.uint8).reshape(-1, width)
        return _checked(records[:, label_bytes:], records[:, label_bytes - 1], classes)

    return _batches(files, path, train, test, parse)


def _python(
    files: SourceFiles, path: Path, train: list[str], test: str, key: bytes, classes: int
) -> tuple[Labelled, Labelled]:
    def parse(content: bytes) -> Labelled:
        batch = read_plain_pickle(content)
        if not isinstance(batch, dict) or not isinstance(batch.get(b"data"), np.ndarray):
            raise ValueError("it holds no dictionary with the images")
        try:
            labels = np.array(batch[key], np.int64)
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"it holds no list of labels ({type(error).__name__})") from error
        return _checked(batch[b"data"], labels, classes)

    return _batches(files, path, train, test, parse)


def _batches(
    files: SourceFiles, path: Path, train: list[str], test: str, parse: Callable[[bytes], Labelled]
) -> tuple[Labelled, Labelled]:
    found = {}
    with files.reading(path, f"the CIFAR archive with {', '.join([*train, test])}"):
        for name, content in members(path, lambda name: PurePosixPath(name).name in [*train, test]):
            found[PurePosixPath(name).name] = parse(content)
        missing = [name for name in [*train, test] if name not in found]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
    return _join([found[name] for name in train]), found[test]


def _checked(planes: np.ndarray, labels: np.ndarray, classes: int) -> Labelled:
    if labels.ndim != 1:
        raise ValueError("its labels are not a list of numbers")
    if planes.dtype != np.uint8 or planes.shape != (len(labels), PIXELS):
        raise ValueError(f"expected {len(labels)} images of {PIXELS} bytes, found {planes.shape}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"a label is not in 0..{classes - 1}")
    images = planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels.astype(np.int64)


def _join(parts: list[Labelled]) -> Labelled:
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
