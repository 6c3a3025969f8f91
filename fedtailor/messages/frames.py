"""Messages as bytes: a JSON header and byte strings. This module imports no torch, so small programs start fast.

A frame is the length of the header (8 bytes), the header with the sizes of the byte strings, and the byte strings.
Nothing is pickled. Messages may come from anyone, so bytes that are not a message raise a ValueError, and sizes are
checked before anything is allocated.
"""

import json
import socket
from collections.abc import Sequence
from typing import Any

Message = tuple[dict[str, Any], list[bytes]]  # the header, which JSON can hold, and the byte strings

MAX_BYTES = 2**31  # of one byte string
MAX_HEADER = 2**26  # bytes of a header, whose objects need many times as much memory


class Closed(Exception):
    """The other side has closed the connection."""


def encode(header: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """Encode a message as one byte string."""
    return b"".join([_head(header, blobs), *blobs])


def decode(data: bytes, most: int = MAX_HEADER) -> Message:
    """Decode the bytes of `encode`; raise a ValueError for other bytes and for a header over ``most`` bytes."""
    size = int.from_bytes(data[:8], "big")
    if size > min(most, len(data) - 8):
        raise ValueError(f"the message announces a header of {size} bytes; it has {len(data)}, the limit is {most}")
    at = 8 + size
    header = _parsed(data[8:at])
    sizes = _sizes(header)
    if at + sum(sizes) != len(data):
        raise ValueError(f"{len(data)} bytes where the header announces {at + sum(sizes)}")
    blobs = []
    for size in sizes:
        blobs.append(data[at : at + size])
        at += size
    return header, blobs


def send(connection: socket.socket, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
    """Send a message over a socket; raise `Closed` if the other side is gone."""
    try:
        connection.sendall(_head(header, blobs))
        for blob in blobs:
            connection.sendall(blob)
    except OSError as error:
        raise Closed from error


def receive(connection: socket.socket) -> Message:
    """Receive a message from a socket; raise `Closed` if the other side is gone, a ValueError for a wrong message."""
    header = _parsed(_exactly(connection, int.from_bytes(_exactly(connection, 8), "big"), MAX_HEADER))
    return header, [_exactly(connection, size) for size in _sizes(header)]


def _head(header: dict[str, Any], blobs: Sequence[bytes]) -> bytes:
    text = json.dumps({**header, "sizes": [len(blob) for blob in blobs]}).encode()
    return len(text).to_bytes(8, "big") + text


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the header is nested too deeply") from None


def _sizes(header: Any) -> list[int]:
    sizes = header.pop("sizes", None) if isinstance(header, dict) else None
    if not isinstance(sizes, list) or not all(type(size) is int and 0 <= size <= MAX_BYTES for size in sizes):
        raise ValueError("the header does not give the sizes of the byte strings")
    return sizes


def _exactly(connection: socket.socket, size: int, most: int = MAX_BYTES) -> bytes:
    if size > most:
        raise ValueError(f"the message announces {size} bytes; the limit is {most}")
    parts: list[bytes] = []
    left = size
    while left:
        try:
            part = connection.recv(left, socket.MSG_WAITALL)  # mostly the whole, without another copy
        except OSError as error:
            raise Closed from error
        if not part:
            raise Closed
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
