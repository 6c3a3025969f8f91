"""A method that asks, decides, remembers and keeps objects in its state: the whole contract, exactly."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import fedtailor
from fedtailor.engines import Inline, Processes
from fedtailor.messages.trees import unpack
from fedtailor.runs import Callback, Interrupted, Resources, RoundReport
from tests.support.busy import Busy
from tests.support.fingerprint import assert_same, fingerprint

SETTINGS: dict[str, Any] = {
    "rounds": 6,
    "data": {"clients": 6, "samples": 300},
    "training": {"lr": 0.05, "epochs": 1},
    "participation": {"ratio": 0.5, "dropout": 0.2},
    "method": {"name": "tests.support.busy:Busy"},
    "engine": {"kind": "inline"},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("busy") / "run"
    fedtailor.run(SETTINGS, folder=folder).close()
    return folder


class StopAt(Callback):
    """Presses Ctrl-C during a round."""

    def __init__(self, round: int) -> None:
        self.round = round

    def round_done(self, report: RoundReport) -> None:
        if report.round == self.round:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("round", [1, 3, 5])
def test_interrupted_and_resumed_is_the_same_to_the_bit(round: int, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fedtailor.run(SETTINGS, folder=tmp_path / "run", callbacks=StopAt(round))
    with fedtailor.Run(tmp_path / "run") as run:
        assert run.rounds_done == round
        assert not run.finished
    fedtailor.resume(tmp_path / "run").close()
    assert_same(whole, tmp_path / "run")


def test_worker_processes_give_the_same_to_the_bit(whole: Path, tmp_path: Path) -> None:
    with Resources(engine=Processes(2)) as resources:
        fedtailor.run(SETTINGS, folder=tmp_path / "run", resources=resources).close()
    assert_same(whole, tmp_path / "run")


def test_decisions_are_recorded_with_their_rewards(whole: Path) -> None:
    with fedtailor.Run(whole) as run:
        decisions = run.decisions()
    assert [decision["round"] for decision in decisions] == [1, 2, 3, 4, 5, 6]
    assert all(decision["reward"] < 0 and decision["name"] == "amount" for decision in decisions)
    assert all(0 < float(decision["action"]) < 1 for decision in decisions)


def test_a_script_can_decide_instead_of_the_agent(whole: Path, tmp_path: Path) -> None:
    deciders = {"amount": lambda server, question: torch.tensor([0.0])}
    with fedtailor.run(SETTINGS, folder=tmp_path / "run", deciders=deciders) as run:
        assert {float(decision["action"]) for decision in run.decisions()} == {0.0}
    assert fingerprint(whole)["state"] != fingerprint(tmp_path / "run")["state"]


def test_evaluation_and_the_final_pass_leave_no_trace_in_any_state(whole: Path, tmp_path: Path) -> None:
    """Without evaluation and final pass the states are the same: looking changes nothing."""
    blind = {**SETTINGS, "evaluation": {"every": 0, "final": False}}
    fedtailor.run(blind, folder=tmp_path / "run").close()
    assert fingerprint(whole)["state"] == fingerprint(tmp_path / "run")["state"]
    assert fingerprint(tmp_path / "run")["metrics"] == []


def test_memory_is_kept_per_client_and_counts_real_rounds_only(whole: Path) -> None:
    rows = {row["key"]: unpack(row["data"]) for row in fingerprint(whole)["state"] if row["scope"] == "memory"}
    asked = {int(client): row["asked"] for client, row in rows.items()}
    chosen = [c for row in fingerprint(whole)["rounds"] for c in json.loads(row["cohort"])]
    assert asked == {client: chosen.count(client) for client in sorted(set(chosen))}


def test_a_client_that_dropped_out_is_as_it_was_before_the_round(whole: Path) -> None:
    """Every accepted round visits a client twice (asked before and after); a round it dropped out of, never."""
    prints = fingerprint(whole)
    dropped = {(e["round"], e["client"]) for e in prints["events"]}
    chosen = [(row["round"], client) for row in prints["rounds"] for client in json.loads(row["cohort"])]
    states = {int(r["key"]): unpack(r["data"])["state"] for r in prints["state"] if r["scope"] == "client"}
    assert dropped
    for client, state in states.items():
        accepted = sum(1 for round, c in chosen if c == client and (round, c) not in dropped)
        assert state["visits"] == 2 * accepted
        assert state["optimiser"].state["count"] == accepted


def test_the_order_of_execution_changes_nothing_in_the_whole_contract(whole: Path, tmp_path: Path) -> None:
    class Backwards(Inline):
        def run(self, tasks: Any) -> Any:
            return reversed(list(super().run(reversed(list(tasks)))))

    fedtailor.run(SETTINGS, folder=tmp_path / "run", resources=Resources(engine=Backwards())).close()
    assert_same(whole, tmp_path / "run")


def test_settings_of_a_method_of_ones_own_are_checked() -> None:
    with pytest.raises(fedtailor.UserError, match=r"method\.strength = -1"):
        fedtailor.experiment({**SETTINGS, "method": {"name": "tests.support.busy:Busy", "strength": -1}})
    assert Busy().strength == 0.5
