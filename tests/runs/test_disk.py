"""What a run will store, derived by hand, and a disk that cannot hold it."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fedtailor
from fedtailor.runs import Resources, experiment
from fedtailor.runs import disk as house
from fedtailor.runs.assembly import assemble, job_of
from fedtailor.runs.disk import least_bytes

SMALL: dict[str, Any] = {
    "rounds": 1,
    "data": {"clients": 4, "samples": 120},
    "engine": {"kind": "inline"},
    "model": {"name": "linear"},
}
LINEAR = 4 * (64 * 10 + 10)  # float32 weights and biases of 64 pixels and 10 digits


class Usage(NamedTuple):
    """A disk."""

    total: int
    used: int
    free: int


def least(**changes: Any) -> int:
    settings = experiment({**SMALL, **changes})
    return least_bytes(assemble(settings, job_of(settings, Resources())))


def test_hand_least_bytes() -> None:
    assert least(method="fedavg") == LINEAR + 4 * LINEAR  # the server's, and one for each client to deploy
    assert least(method="fedavg", evaluation={"keep_models": 0}) == LINEAR
    assert least(method="fedavg", evaluation={"final": False}) == LINEAR
    assert least(method="local", evaluation={"final": False}) == 4 * LINEAR  # all is private
    one = {"participation": {"clients": 1}, "evaluation": {"final": False}}
    assert least(method="local", **one) == LINEAR  # one client takes part in one round


def test_a_disk_that_cannot_hold_it_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house.shutil, "disk_usage", lambda _: Usage(10**6, 10**6 - LINEAR, LINEAR))
    with pytest.raises(fedtailor.UserError, match="needs at least"):
        fedtailor.run(SMALL, folder=tmp_path / "one")
    with pytest.raises(fedtailor.UserError, match="needs at least"):
        fedtailor.compare(SMALL, methods=["local", "fedavg"], folder=tmp_path / "two")
    assert list(tmp_path.iterdir()) == []


def test_after_the_first_round_the_states_of_all_clients_are_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    class Listens(fedtailor.Callback):
        """Keeps warnings."""

        def warning(self, sentence: str) -> None:
            told.append(sentence)

    settings = {**SMALL, "method": "ditto", "participation": {"clients": 1}, "evaluation": {"final": False}}
    fedtailor.run(settings, folder=tmp_path / "roomy", callbacks=Listens()).close()
    assert told == []
    monkeypatch.setattr(house, "free_bytes", lambda _: 2 * LINEAR)  # enough for the server, not for three more clients
    fedtailor.run(settings, folder=tmp_path / "narrow", callbacks=Listens()).close()
    assert len(told) == 1
    assert "the states of all 4 clients" in told[0]
