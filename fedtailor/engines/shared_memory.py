"""A federation's data in shared memory, and the messages and jobs of worker processes.

A worker process gets the open file of the memory over its socket and maps it, so the data exist once on the machine.
"""

import mmap
import os
import socket
import tempfile
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from fedtailor.data import Federation
from fedtailor.engines.base import Job
from fedtailor.engines.codec import job_blobs, job_from, job_header
from fedtailor.messages.frames import Closed, Message, receive, send

ALIGNMENT = 64  # bytes, for vector loads


class SharedFederation:
    """A federation's arrays in memory that several processes map; the system frees it after the last of them.

    Parameters
    ----------
    federation : Federation
        The data to copy.
    """

    def __init__(self, federation: Federation):
        arrays = {name: np.ascontiguousarray(array) for name, array in federation.arrays().items()}
        self.outline = {"outline": federation.outline(), "arrays": {}}
        size = 0
        for name, array in arrays.items():
            entry = {"at": size, "shape": list(array.shape), "dtype": array.dtype.str}
            self.outline["arrays"][name] = entry
            size += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        self.file = anonymous_file(max(size, 1))
        with mmap.mmap(self.file, max(size, 1)) as memory:
            for name, array in arrays.items():
                at = self.outline["arrays"][name]["at"]
                np.ndarray(array.shape, array.dtype, memory, at)[...] = array

    def close(self) -> None:
        """Close this process's file; processes that mapped it keep the data."""
        os.close(self.file)

    @staticmethod
    def attach(file: int, outline: dict[str, Any]) -> Federation:
        """Map the memory of an open file and return the federation in it; the file is closed."""
        memory = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
        os.close(file)
        arrays = {
            name: np.ndarray(tuple(entry["shape"]), np.dtype(entry["dtype"]), memory, entry["at"])
            for name, entry in outline["arrays"].items()
        }
        return Federation.from_arrays(arrays, outline["outline"])


class Channel:
    """Sends messages to another process and receives its messages.

    Headers travel over a socket and byte strings in shared memory, of which each process writes one and reads the
    other: a socket holds so little that a process with a model to send would wait for the reader. A message must be
    received before the next one is sent, which the answers of a worker ensure.

    Parameters
    ----------
    connection : socket.socket
        The socket.
    written, read : int
        The open files of the memory that this process writes, and of that which it reads.
    """

    def __init__(self, connection: socket.socket, written: int, read: int) -> None:
        self.connection = connection
        self._files = written, read
        self._maps: dict[int, mmap.mmap] = {}

    def send(self, header: dict[str, Any], blobs: Sequence[bytes]) -> None:
        """Send a message; raise `Closed` if the other side is gone."""
        memory, at = self._memory(self._files[0], sum(map(len, blobs))), 0
        for blob in blobs:
            memory[at : at + len(blob)] = blob
            at += len(blob)
        send(self.connection, {**header, "lengths": [len(blob) for blob in blobs]})

    def receive(self) -> Message:
        """Receive a message of `send`; raise `Closed` if the other side is gone."""
        return self.complete(*receive(self.connection))

    def complete(self, header: dict[str, Any], blobs: list[bytes]) -> Message:
        """The message that begins with this header: its byte strings are copied from the memory."""
        lengths = header.pop("lengths", None)
        if lengths is None:
            return header, blobs
        memory, ends = self._memory(self._files[1], sum(lengths)), [*accumulate(lengths)]
        return header, [memory[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    def close(self) -> None:
        """Close the socket, the files and the memory."""
        self.connection.close()
        for memory in self._maps.values():
            memory.close()
        for file in self._files:
            os.close(file)

    def _memory(self, file: int, size: int) -> mmap.mmap:
        """The memory of a file, which grows if the message needs more."""
        if file not in self._maps or len(self._maps[file]) < size:
            if os.fstat(file).st_size < max(size, 1):
                os.ftruncate(file, max(size, 1))
            if file in self._maps:
                self._maps[file].close()
            self._maps[file] = mmap.mmap(file, 0)
        return self._maps[file]


def send_job(connection: socket.socket, job: Job, shared: SharedFederation | None) -> None:
    """Send a job to a worker process; without ``shared`` the worker keeps the federation of its previous job."""
    send(connection, job_header(job, None if shared is None else shared.outline), job_blobs(job))
    if shared is not None:
        try:
            socket.send_fds(connection, [b"f"], [shared.file])
        except OSError as error:
            raise Closed from error


def receive_job(
    connection: socket.socket, header: dict[str, Any], blobs: list[bytes], previous: Federation | None
) -> Job:
    """Return the job of a message, with the federation that follows it, or with the previous one if none does."""
    federation = previous
    if header["federation"] is not None:
        _, files, _, _ = socket.recv_fds(connection, 1, 1)
        federation = SharedFederation.attach(files[0], header["federation"])
    assert federation is not None, "the first job comes with a federation"
    return job_from(header, federation, blobs)


def anonymous_file(size: int = 0) -> int:
    """Create a file without a name: it always disappears with the processes."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("fedtailor")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, size)
    return file
