"""Sources made of JPEG photos, which need Pillow: Tiny ImageNet, and the photos behind MNIST-M."""

import io
from pathlib import PurePosixPath

import numpy as np

from fedtailor.data.files import SourceFiles, members
from fedtailor.data.samples import Samples, train_and_test, with_statistics
from fedtailor.errors import UserError

from .deltas import undelta
from .idx import DIGITS, images_and_labels

TINY = 64
CROP = 160
TINY_STATISTICS = ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821))


def tiny_imagenet(files: SourceFiles) -> Samples:
    """200 classes at 64x64; the validation images are the test split, as the test images have no labels."""
    path = files.find("tiny-imagenet-200.zip", "tiny-imagenet-200")
    if path is None:
        raise files.missing("tiny-imagenet-200.zip")
    with files.reading(path, "the Tiny ImageNet archive"):
        texts = {
            PurePosixPath(name).name: content.decode()
            for name, content in members(path, lambda name: name.endswith(".txt") and "boxes" not in name)
        }
        numbers = {wnid: i for i, wnid in enumerate(sorted(texts["wnids.txt"].split()))}
        words = dict(line.split("\t", 1) for line in texts["words.txt"].splitlines())
        answers = dict(line.split("\t")[:2] for line in texts["val_annotations.txt"].splitlines())
        x: dict[str, list[np.ndarray]] = {"train": [], "val": []}
        y: dict[str, list[int]] = {"train": [], "val": []}
        for name, content in members(path, _labelled_photo):
            place = PurePosixPath(name)
            part = "val" if place.parts[-3] == "val" else "train"
            x[part].append(_decode(content, "tiny-imagenet"))
            y[part].append(numbers[answers[place.name] if part == "val" else place.parts[-3]])
        train, val = ((np.stack(x[part]), np.array(y[part])) for part in ("train", "val"))
    names = tuple(words[wnid].split(",")[0] for wnid in numbers)
    return train_and_test(train, val, names, *TINY_STATISTICS)


def mnist_m(files: SourceFiles, mnist: SourceFiles) -> Samples:
    """MNIST digits blended with photos, |photo patch - digit| per channel (Ganin and Lempitsky, 2015).

    Generated from MNIST and the 200 training photos of BSDS500, in the order of MNIST; it is not the
    file that the authors published.
    """
    return with_statistics(blended_digits(files, mnist))


def blended_digits(files: SourceFiles, mnist: SourceFiles) -> Samples:
    """MNIST-M without the statistics, for a source that is made from it."""
    photos = _bsds500(files)
    train, test = ((_blend(x[..., 0], photos, seed), y) for seed, (x, y) in enumerate(images_and_labels(mnist)))
    return train_and_test(train, test, DIGITS)


def _blend(digits: np.ndarray, photos: np.ndarray, seed: int) -> np.ndarray:
    """(N, 28, 28) uint8 -> (N, 28, 28, 3) uint8.

    The stream is fixed and independent of the experiment's seed, so the data set is always the same.
    """
    stream = np.random.RandomState(seed)
    count, places, reach = len(digits), photos.shape[1] - 27, np.arange(28)
    photo = stream.randint(len(photos), size=count)
    top, left = stream.randint(places, size=count), stream.randint(places, size=count)
    blended = np.empty((count, 28, 28, 3), np.uint8)
    for start in range(0, count, 4096):
        part = slice(start, start + 4096)
        rows, columns = (top[part, None] + reach)[:, :, None], (left[part, None] + reach)[:, None, :]
        patches = photos[photo[part, None, None], rows, columns].astype(np.int16)
        blended[part] = np.abs(patches - digits[part, :, :, None])
    return blended


def _bsds500(files: SourceFiles) -> np.ndarray:
    """(200, 160, 160, 3): the central part of every training photo, ordered by file name."""
    compact = files.find("bsds500_train_crops.npz")
    if compact:
        return undelta(*files.arrays(compact, "the compact file of BSDS500 photos", "photos_delta"))
    path = files.find("BSR_bsds500.tgz", "BSR")
    if path is None:
        raise files.missing("BSR_bsds500.tgz")
    with files.reading(path, "the BSDS500 archive"):
        found = {
            PurePosixPath(name).name: _decode(content, "mnist-m")
            for name, content in members(path, lambda name: "images/train/" in name and name.endswith(".jpg"))
        }
        return np.stack([_centre(found[name]) for name in sorted(found)])
    raise AssertionError("unreachable")


def _centre(photo: np.ndarray) -> np.ndarray:
    top, left = (photo.shape[0] - CROP) // 2, (photo.shape[1] - CROP) // 2
    return photo[top : top + CROP, left : left + CROP]


def _labelled_photo(name: str) -> bool:
    return name.lower().endswith(".jpeg") and ("/train/" in name or "/val/" in name)


def _decode(content: bytes, source: str) -> np.ndarray:
    try:
        from PIL import Image
    except ImportError as problem:
        raise UserError(f"source {source!r} is made of JPEG files: install the Python package 'pillow'") from problem
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))
