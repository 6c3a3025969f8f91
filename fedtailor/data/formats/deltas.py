"""The compact coding of colour images: planes G, R-G, B-G, differenced along rows and columns, modulo 256."""

import numpy as np


def undelta(coded: np.ndarray) -> np.ndarray:
    """(3, N, H, W) coded -> (N, H, W, 3) RGB, exactly."""
    if coded.dtype != np.uint8 or coded.ndim != 4 or len(coded) != 3:
        raise ValueError(f"expected 3 planes of uint8 images, found {coded.dtype} {coded.shape}")
    planes = np.cumsum(np.cumsum(coded, 3, dtype=np.uint8), 2, dtype=np.uint8)
    planes[1:] += planes[0]
    return np.ascontiguousarray(planes[[1, 0, 2]].transpose(1, 2, 3, 0))
