"""Readers of a user's own files: arrays (``.npz``), tables (``.csv``) and images in folders of classes."""

from .arrays import read_npz, table_of_arrays
from .cells import Cells, read_csv, typed
from .images import IMAGES, read_images
from .table import PARTS, Roles, Table, joined

__all__ = [
    "IMAGES",
    "PARTS",
    "Cells",
    "Roles",
    "Table",
    "joined",
    "read_csv",
    "read_images",
    "read_npz",
    "table_of_arrays",
    "typed",
]
