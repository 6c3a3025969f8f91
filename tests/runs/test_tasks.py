"""The states of a round, in memory or in a file."""

import pytest

from fedtailor.runs.tasks import Spool


@pytest.mark.parametrize("held", [1, 2**25])
def test_states_come_back_as_they_were(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spool, "HELD", held)
    spool = Spool()
    spool[3], spool[1], spool[2] = b"three", b"", None
    assert spool[3] == b"three"
    spool[3], spool[5] = b"3", b"five"  # after a read, and again
    assert dict(spool) == {3: b"3", 1: b"", 2: None, 5: b"five"}
    assert spool.pop(5) == b"five"
    assert spool.pop(5, None) is None
    assert (len(spool), 3 in spool, 5 in spool) == (3, True, False)
