"""The compact coding of colour images."""

import numpy as np
import pytest

from fedtailor.data.formats.deltas import undelta


def coded(images: np.ndarray) -> np.ndarray:
    """(N, H, W, 3) RGB -> planes G, R-G, B-G, differenced along columns and rows; the reverse of ``undelta``."""
    red, green, blue = images.transpose(3, 0, 1, 2)
    planes = np.stack([green, red - green, blue - green])
    for axis in (2, 3):
        planes = np.diff(planes, axis=axis, prepend=np.uint8(0))
    return planes.astype(np.uint8)


def test_a_pixel_by_hand() -> None:
    """G = 10, R - G = 250, which is -6 modulo 256, B - G = 5: RGB (4, 10, 15)."""
    planes = np.array([10, 250, 5], dtype=np.uint8).reshape(3, 1, 1, 1)
    assert undelta(planes).tolist() == [[[[4, 10, 15]]]]


def test_neighbours_are_differences_along_rows_and_columns() -> None:
    """Differences 1, 2 / 3, 4 in green, nothing else: sums 1, 3 / 4, 10 in all three colours."""
    planes = np.zeros((3, 1, 2, 2), dtype=np.uint8)
    planes[0, 0] = [[1, 2], [3, 4]]
    assert undelta(planes)[0, :, :, 1].tolist() == [[1, 3], [4, 10]]
    assert undelta(planes)[0, :, :, 0].tolist() == undelta(planes)[0, :, :, 2].tolist() == [[1, 3], [4, 10]]


def test_any_image_comes_back_exactly() -> None:
    images = np.random.RandomState(0).randint(0, 256, (4, 5, 6, 3)).astype(np.uint8)
    found = undelta(coded(images))
    assert np.array_equal(found, images)
    assert found.flags.c_contiguous


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((3, 1, 1, 1)), np.zeros((4, 1, 1, 1), dtype=np.uint8), np.zeros((3, 1, 1), dtype=np.uint8)],
    ids=["floats", "four planes", "no images"],
)
def test_what_is_no_coded_image_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="3 planes of uint8"):
        undelta(wrong)
