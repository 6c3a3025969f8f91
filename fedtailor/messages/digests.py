"""Digests of bytes."""

from hashlib import blake2b


def digest(data: bytes) -> str:
    """Return a digest of 32 hexadecimal digits; equal digests mean equal bytes."""
    return blake2b(data, digest_size=16).hexdigest()
