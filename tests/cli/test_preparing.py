"""Commands before a run."""

from pathlib import Path

from fedtailor.data import SOURCES


def test_the_doctor_says_whether_fedtailor_works_here(call, tmp_path: Path) -> None:
    done = call("doctor", "--data-dir", tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "FedTailor works here." in done.out
    (tmp_path / "mnist").mkdir()
    for file in SOURCES["mnist"].canonical:
        (tmp_path / "mnist" / file.name).write_bytes(b"garbage")
    done = call("doctor", "--data-dir", tmp_path, "--json")
    assert done.code == 1
    assert done.document["works"] is False
