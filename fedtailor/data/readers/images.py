"""Images in folders of classes, which need Pillow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtailor.errors import UserError

from .table import HINT, PARTS, Table, checked

IMAGES = (".png", ".jpg", ".jpeg")
GREY, COLOUR = ("1", "L", "LA"), ("RGB", "RGBA", "P")  # the modes of Pillow that hold 8 bits per channel


def read_images(places: Sequence[tuple[Path, str]]) -> list[Table]:
    """Read folders of classes, each with its part: one table per folder, with the same size, channels and classes."""
    files = [[(kind.name, file) for kind in _folders(place) for file in _images(kind)] for place, _ in places]
    classes = sorted({name for found in files for name, _ in found})
    opened = [[(open_image(file), file) for _, file in found] for found in files]
    everything = [image for images in opened for image in images]
    channels = "L" if all(image.mode in GREY for image, _ in everything) else "RGB"
    tables = []
    for (place, part), found, images in zip(places, files, opened, strict=True):
        if not found:
            raise UserError(f"{place} holds no images in folders of classes: {HINT}")
        _check_sizes(everything[0], images)
        tables.append(
            checked(
                Table(
                    str(place),
                    x=np.stack([pixels(image, channels) for image, _ in images]),
                    y=np.array([classes.index(name) for name, _ in found], np.int64),
                    part=np.full(len(found), PARTS.index(part), np.int8),
                    classes=tuple(classes),
                )
            )
        )
    return tables


def has_images(place: Path) -> bool:
    """Whether images are directly in a folder."""
    return any(file.suffix.lower() in IMAGES for file in place.iterdir())


def _folders(place: Path) -> list[Path]:
    return sorted(entry for entry in place.iterdir() if entry.is_dir() and entry.name[0] not in "._")


def _images(place: Path) -> list[Path]:
    files = sorted(entry for entry in place.iterdir() if entry.name[0] != ".")
    odd = next((file for file in files if file.suffix.lower() not in IMAGES), None)
    if odd is not None:
        raise UserError(f"{odd} is not a PNG or JPEG image: convert it or move it out of the folder of a class")
    return files


def pixels(image: Any, channels: str) -> np.ndarray:
    """The pixels of an image in Pillow's mode ``L`` or ``RGB``.  # uint8 (height, width, channels)"""
    found = np.asarray(image.convert(channels))
    return found[..., None] if channels == "L" else found


def open_image(file: Path) -> Any:
    """Read an image with Pillow; anything that is wrong with it is one sentence."""
    try:
        from PIL import Image
    except ImportError:
        raise UserError("images need the Python package pillow: pip install 'fedtailor[images]'") from None
    try:
        with Image.open(file) as image:
            image.load()
            if image.mode not in (*GREY, *COLOUR):
                raise UserError(f"{file} has pixels of mode {image.mode!r}: convert it to 8-bit grey or colour")
            return image.copy()
    except UserError:
        raise
    except Exception as problem:  # a file of unknown origin may raise anything
        detail = " ".join(str(problem).split()) or type(problem).__name__
        raise UserError(f"{file} cannot be read ({detail}): replace or remove it") from None


def _check_sizes(first: tuple[Any, Path], images: Sequence[tuple[Any, Path]]) -> None:
    size, file = first[0].size, first[1]
    for image, other in images:
        if image.size != size:
            raise UserError(
                f"{other} has {image.size[0]}x{image.size[1]} pixels but {file} has {size[0]}x{size[1]}: "
                f"resize all images to one size"
            )
