"""A file of devices that is not what it should be gives one sentence."""

from pathlib import Path

import pytest

from fedtailor.devices import Devices, virtual_clock
from fedtailor.devices.profiles import Csv
from fedtailor.errors import UserError

BAD = {
    "empty": ("", "(none)|no rows"),
    "header only": ("client,speed\n", "no rows"),
    "unknown column": ("client,speeed\n0,1\n", "speeed"),
    "column twice": ("speed,speed\n1,2\n", "each once"),
    "client missing": ("client,speed\n0,1\n1,1\n", "no row for client 2"),
    "client too large": ("client,speed\n0,1\n1,1\n2,1\n3,1\n", "0 to 2"),
    "no speed": ("speed\n0\n", "above 0"),
    "certain failure": ("failure\n1\n", "failure below 1"),
    "not a number": ("speed\nfast\n", "line 2: speed = 'fast'"),
    "too few cells": ("client,speed\n0\n", "line 2 has 1 cells"),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(UserError, match=said) as error:
        virtual_clock(Devices(profiles=Csv(file=tmp_path / "d.csv")), (1, 1, 1), 0)
    assert str(tmp_path / "d.csv") in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        virtual_clock(Devices(profiles=Csv(file=tmp_path / "none.csv")), (1,), 0)
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        virtual_clock(Devices(profiles=Csv(file=tmp_path / "b.csv")), (1,), 0)
