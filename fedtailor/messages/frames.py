"""Messages as bytes: a JSON header and byte strings. No torch, so that small programs start at once.

Nothing is pickled. What arrives may come from anyone: bytes that are no message are a ValueError.
"""

import json
import socket
from collections.abc import Sequence
from typing import Any

Message = tuple[dict[str, Any], list[bytes]]  # a header for JSON, and the byte strings it counts

LARGEST = 2**31  # bytes of a message


class Closed(Exception):
    """The other side is gone."""


def encode(header: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """A message as one byte string."""
    return b"".join([_head(header, blobs), *blobs])


def decode(data: bytes) -> Message:
    """A message from the bytes of ``encode``."""
    at = 8 + int.from_bytes(data[:8], "big")
    if at > len(data):
        raise ValueError("the header is cut off")
    header = json.loads(data[8:at])
    sizes = _sizes(header)
    if at + sum(sizes) != len(data):
        raise ValueError(f"{len(data)} bytes where {at + sum(sizes)} were announced")
    blobs = []
    for size in sizes:
        blobs.append(data[at : at + size])
        at += size
    return header, blobs


def send(connection: socket.socket, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
    try:
        connection.sendall(_head(header, blobs))
        for blob in blobs:
            connection.sendall(blob)
    except OSError as error:
        raise Closed from error


def receive(connection: socket.socket) -> Message:
    header = json.loads(_exactly(connection, int.from_bytes(_exactly(connection, 8), "big")))
    return header, [_exactly(connection, size) for size in _sizes(header)]


def _head(header: dict[str, Any], blobs: Sequence[bytes]) -> bytes:
    text = json.dumps({**header, "sizes": [len(blob) for blob in blobs]}).encode()
    return len(text).to_bytes(8, "big") + text


def _sizes(header: Any) -> list[int]:
    sizes = header.pop("sizes", None) if isinstance(header, dict) else None
    if not isinstance(sizes, list) or not all(type(size) is int and 0 <= size <= LARGEST for size in sizes):
        raise ValueError("the header does not say how many bytes follow")
    return sizes


def _exactly(connection: socket.socket, size: int) -> bytes:
    if size > LARGEST:
        raise ValueError(f"a message of {size} bytes is announced; the limit is {LARGEST}")
    data = bytearray(size)
    view = memoryview(data)
    while len(view):
        try:
            count = connection.recv_into(view)
        except OSError as error:
            raise Closed from error
        if count == 0:
            raise Closed
        view = view[count:]
    return bytes(data)
