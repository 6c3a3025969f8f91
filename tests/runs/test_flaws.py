"""A round that would leave a useless server is undone; a run in which nobody trains any more ends with one sentence."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import fedtailor
from fedtailor.errors import UserError
from fedtailor.messages.trees import unpack
from fedtailor.methods import Client, Payload, Replies, Server
from fedtailor.methods.fedavg import FedAvg
from fedtailor.methods.fedfomo import FedFomo
from fedtailor.runs import Callback, RoundReport
from fedtailor.runs.defence import Defence
from fedtailor.runs.flaws import flaw_of
from fedtailor.runs.store import Store

HERE = "tests.runs.test_flaws"


class Poisoned(FedAvg):
    """The server's model becomes infinite in these rounds."""

    name: ClassVar = ""
    rounds: tuple[int, ...] = ()

    def finish(self, server: Server, replies: Replies) -> None:
        super().finish(server, replies)
        if server.round in self.rounds:
            server.weights = {name: tensor * float("inf") for name, tensor in server.weights.items()}


class Failing(FedAvg):
    """An error in ``finish`` in round 2."""

    name: ClassVar = ""

    def finish(self, server: Server, replies: Replies) -> None:
        if server.round == 2:
            raise KeyError("\x1b[2J a key")
        super().finish(server, replies)


class Shouting(FedAvg):
    """In round 2 client 0 sends values that are finite and far too large."""

    name: ClassVar = ""

    def upload(self, client: Client) -> Payload:
        sent = super().upload(client)
        if client.id == 0 and client.round == 2:
            sent.groups["model"] = {name: torch.full_like(tensor, 1e17) for name, tensor in sent["model"].items()}
        return sent


class Diverging(FedAvg):
    """From round 2 on no training gives finite weights."""

    name: ClassVar = ""

    def fit(self, client: Client) -> None:
        super().fit(client)
        if client.round > 1:
            client.load({name: tensor * float("nan") for name, tensor in client.weights().items()})


class Stop(Callback):
    """Ends the run after a round, as a crash would."""

    def __init__(self, round: int):
        self.round = round

    def round_done(self, report: RoundReport) -> None:
        if report.round == self.round:
            raise KeyboardInterrupt


def settings(method: str, rounds: int = 4, **more: Any) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "method": {"name": f"{HERE}:{method}", **more.pop("fields", {})},
        "data": {"source": "digits", "clients": 3, "samples": 120},
        "training": {"epochs": 1},
        "evaluation": {"every": 0, "final": False},
        "engine": {"kind": "inline"},
        **more,
    }


def stored(folder: Path) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    with Store(folder) as store:
        states = {key: store.state("server", key) or b"" for key in store.state_keys("server")}
        return states, store.rows("SELECT round, client, detail FROM events ORDER BY id")


def test_a_round_whose_model_is_not_finite_is_undone_and_recorded(tmp_path: Path) -> None:
    fedtailor.run(settings("Poisoned", fields={"rounds": [2]}), folder=tmp_path / "run").close()
    absent = [[2, client] for client in range(3)]
    plain = settings("Poisoned", participation={"absent": absent})
    fedtailor.run(plain, folder=tmp_path / "absent").close()
    states, events = stored(tmp_path / "run")
    assert states == stored(tmp_path / "absent")[0]
    assert [(event["round"], event["client"]) for event in events] == [(2, 0), (2, 1), (2, 2)]
    assert all("undone: the server's model" in event["detail"] for event in events)


def test_a_run_resumes_exactly_after_an_undone_round(tmp_path: Path) -> None:
    fields = {"fields": {"rounds": [1, 3]}}
    fedtailor.run(settings("Poisoned", **fields), folder=tmp_path / "whole").close()
    for round in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            fedtailor.run(settings("Poisoned", **fields), folder=tmp_path / f"cut-{round}", callbacks=Stop(round))
        fedtailor.resume(tmp_path / f"cut-{round}").close()
        assert stored(tmp_path / f"cut-{round}") == stored(tmp_path / "whole")


def test_three_useless_rounds_in_a_row_end_the_run(tmp_path: Path) -> None:
    made = settings("Poisoned", rounds=9, fields={"rounds": list(range(2, 10))})
    with pytest.raises(UserError, match="no client has trained a usable model in 3 rounds"):
        fedtailor.run(made, folder=tmp_path / "run")
    with fedtailor.Run(tmp_path / "run") as run:
        assert (run.rounds_done, run.finished) == (4, False)
    weights = unpack(stored(tmp_path / "run")[0]["model"])["value"]
    assert all(tensor.isfinite().all() for tensor in weights.values())
    with pytest.raises(UserError, match="no client has trained"):
        fedtailor.resume(tmp_path / "run")


def test_an_error_in_finish_undoes_the_round_and_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Failing.finish failed in round 2, which was undone \(KeyError") as failed:
        fedtailor.run(settings("Failing"), folder=tmp_path / "run")
    assert str(failed.value).isprintable()
    assert "Traceback" in failed.value.details  # type: ignore[attr-defined]
    with fedtailor.Run(tmp_path / "run") as run:
        assert (run.rounds_done, run.finished) == (1, False)


def test_when_a_finite_model_ruins_every_training_the_server_goes_back(tmp_path: Path) -> None:
    fedtailor.run(settings("Shouting", rounds=5), folder=tmp_path / "run").close()
    states, events = stored(tmp_path / "run")
    assert {event["round"] for event in events} == {3}, "rounds 4 and 5 train from the model before round 2"
    weights = unpack(states["model"])["value"]
    assert max(float(tensor.abs().max()) for tensor in weights.values()) < 100


def test_trainings_that_diverge_end_a_run_and_do_not_finish_it(tmp_path: Path) -> None:
    made = settings("Diverging", rounds=8)
    with pytest.raises(UserError, match=r"not finite after training .*lower training.lr"):
        fedtailor.run(made, folder=tmp_path / "run")


@pytest.mark.parametrize("value", [float("nan"), 1e38])
def test_rows_of_the_server_s_memory_are_looked_at_too(value: float) -> None:
    class Row:
        state: ClassVar[dict[str, Any]] = {"model": {"w": torch.ones(2)}}
        names = ("anna", "bert")

        class memory:
            loaded: ClassVar[dict[int, Any]] = {1: {"heads": [torch.full((2,), value)]}}

    assert "the server's row of bert heads is" in (flaw_of(Row()) or "")  # type: ignore[arg-type]
    Row.memory.loaded = {}
    assert flaw_of(Row()) is None  # type: ignore[arg-type]


def test_what_a_schema_cannot_say_is_checked_by_the_method(tmp_path: Path) -> None:
    class Lost(FedFomo):
        name: ClassVar = ""

        def upload(self, client: Client) -> Payload:
            sent = super().upload(client)
            return Payload(sent.groups, {**sent.numbers, "peers": [77], "weights": [1.0]}) if client.id == 1 else sent

    made = fedtailor.experiment(settings("Poisoned", rounds=2)).model_copy(update={"method": Lost()})
    fedtailor.run(made, folder=tmp_path / "run").close()
    assert [(e["client"], e["detail"]) for e in stored(tmp_path / "run")[1]] == [
        (1, "peers are not ids of clients")
    ] * 2


def test_a_run_that_an_attack_ruined_finishes_and_says_so(tmp_path: Path) -> None:
    made = settings("Poisoned", rounds=4, fields={"rounds": [2, 3, 4]}, attack={"kind": "scale", "factor": 1.0})
    with fedtailor.run(made, folder=tmp_path / "run") as run:
        assert run.finished
        assert any(text.startswith("the attack ruined the model") for text in run.summary().warnings)
    brief = settings("Poisoned", rounds=4, fields={"rounds": [2, 3]}, attack={"kind": "scale", "factor": 1.0})
    with fedtailor.run(brief, folder=tmp_path / "brief") as run:
        assert not any("ruined" in text for text in run.warnings)


class NoModel(FedAvg):
    """Some clients have nothing to deploy."""

    name: ClassVar = ""
    without: tuple[int, ...] = ()

    def personal(self, client: Client) -> None:
        if client.id in self.without:
            raise ValueError("nothing to deploy")


@pytest.mark.parametrize(
    ("without", "warning"),
    [
        ([0, 1, 2], "every client failed in the final pass: the run has no model to deploy"),
        ([1], "1 of 3 clients failed in the final pass and are not in its numbers"),
        ([], None),
    ],
)
def test_a_final_pass_names_the_clients_that_failed(without: list[int], warning: str | None, tmp_path: Path) -> None:
    made = settings("NoModel", rounds=1, fields={"without": without}, evaluation={"every": 0, "final": True})
    with fedtailor.run(made, folder=tmp_path / "run") as run:
        found = [text for text in run.summary().warnings if "final pass" in text]
    assert [text.partition(" (first reason: ValueError: nothing to deploy)")[0] for text in found] == (
        [] if warning is None else [warning]
    )


class Forgetful(FedAvg):
    """The last client gets no model once the rounds are over."""

    name: ClassVar = ""

    def prepare(self, server: Server, cohort: Sequence[int]) -> dict[int, Payload]:
        sent = super().prepare(server, cohort)
        return {k: payload for k, payload in sent.items() if not (server.greedy and k == 2)}


def test_a_final_pass_names_the_clients_without_a_model(tmp_path: Path) -> None:
    made = settings("Forgetful", rounds=1, evaluation={"every": 0, "final": True})
    with fedtailor.run(made, folder=tmp_path / "run") as run:
        (found,) = [text for text in run.summary().warnings if "final pass" in text]
    assert found.startswith("1 of 3 clients failed in the final pass")
    assert "the method sent it no model" in found


def test_an_error_in_the_defence_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("no row")

    monkeypatch.setattr(Defence, "filter", broken)
    with pytest.raises(UserError, match=r"cannot be clipped or compared.*undone \(IndexError: no row\)"):
        fedtailor.run(settings("Poisoned", aggregation={"clip": 3.0}), folder=tmp_path / "run")
    with fedtailor.Run(tmp_path / "run") as run:
        assert run.rounds_done == 0
