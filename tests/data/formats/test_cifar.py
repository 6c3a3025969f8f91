"""Damaged CIFAR archives: one sentence, whatever byte is wrong."""

import io
import pickle
import random
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fedtailor.data.formats.opcodes import read_plain_pickle
from fedtailor.data.sources import read
from fedtailor.errors import UserError


def batch(**changes: object) -> bytes:
    value = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2], b"filenames": [b"a", b"b"]}
    return pickle.dumps({**value, **{key.encode(): item for key, item in changes.items()}}, protocol=2)


def archive(folder: Path, content: bytes) -> None:
    (folder / "cifar10").mkdir()
    with tarfile.open(folder / "cifar10" / "cifar-10-python.tar.gz", "w:gz") as made:
        for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    "content",
    [
        batch()[:50],
        b"\x80\x02}q\x00(U\x04dataq\x01NU\x06labelsq\x02]q\x03u",
        b"\x80\x02a.",  # appends to nothing
        b"\x80\x02h\x05.",  # a value that was never stored
        b"\x80\x02K\x01K\x02a.",  # appends to a number
        b"\x80\x02}]K\x01s.",  # a list as a key
        batch(labels=3),
        batch(labels=[[1], [2]]),
        batch(labels=["a", "b"]),
        batch(labels=[1, 2**70]),
        batch(labels=None),
        batch(data=[1, 2]),
    ],
)
def test_a_damaged_batch_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    archive(tmp_path, content)
    with pytest.raises(UserError, match=r"cifar-10-python.tar.gz is damaged or not the CIFAR archive") as caught:
        read("cifar10", tmp_path)
    assert "\n" not in str(caught.value)


def test_flipped_bytes_give_a_value_or_a_value_error() -> None:
    good, stream = bytearray(batch()), random.Random(0)
    for _ in range(3000):
        damaged = bytearray(good)
        for _ in range(stream.randint(1, 4)):
            damaged[stream.randrange(300)] = stream.randrange(256)
        try:
            read_plain_pickle(bytes(damaged))
        except ValueError:
            continue
