"""How the C library gives memory to the coordinator; workers get the same by their environment."""

import ctypes
from contextlib import suppress

# Of glibc's mallopt: the names of two thresholds, and their values in bytes.
_TRIM, _MMAP = -1, -3
_KEPT, _LARGEST = 2**28, 2**25


def keep_memory() -> None:
    """Let blocks of up to 32 MB stay with this process when they are freed.

    By default a model of megabytes is given back to the system and fetched again, page by page, for every client.
    Without glibc nothing changes.
    """
    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP, _LARGEST)
        library.mallopt(_TRIM, _KEPT)
