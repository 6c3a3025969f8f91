"""What is evaluated, when, and that shortcuts of evaluation change no count."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fedtailor
from fedtailor.engines import Inline
from fedtailor.messages.trees import unpack
from fedtailor.methods import Client, Method, Payload, Server, find
from fedtailor.runs import Callback, Resources
from tests.support.problem import W, near, play, targets

SETTINGS: dict[str, Any] = {
    "rounds": 4,
    "data": {"clients": 8, "samples": 400},
    "training": {"epochs": 1},
    "participation": {"clients": 2},
    "engine": {"kind": "inline"},
}


def of(method: Method, **more: Any) -> fedtailor.Experiment:
    return fedtailor.experiment({**SETTINGS, **more}).model_copy(update={"method": method})


class OneByOne(find("fedavg")):  # type: ignore[misc]
    """FedAvg whose receive might do anything, so that nobody may be evaluated together."""

    name = ""

    def receive(self, client: Client, payload: Payload) -> None:
        super().receive(client, payload)


class Counting(Inline):
    """Counts the tasks of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: dict[str, int] = {}

    def run(self, tasks: Any) -> Any:
        def counted() -> Any:
            for task in tasks:
                self.kinds[task.kind] = self.kinds.get(task.kind, 0) + 1
                yield task

        return super().run(counted())


def test_clients_that_share_a_model_are_tested_together_with_the_same_counts(tmp_path: Path) -> None:
    together, alone = Counting(), Counting()
    with (
        fedtailor.run(of(find("fedavg")()), folder=tmp_path / "1", resources=Resources(engine=together)) as one,
        fedtailor.run(of(OneByOne()), folder=tmp_path / "2", resources=Resources(engine=alone)) as other,
    ):
        for round in range(1, 5):
            for a, b in zip(one.scores("received", round), other.scores("received", round), strict=True):
                assert (a["client"], a["correct"], a["samples"]) == (b["client"], b["correct"], b["samples"])
                assert a["loss"] / a["samples"] == pytest.approx(b["loss"] / b["samples"], abs=1e-6)
    assert "preview" not in together.kinds
    assert alone.kinds["preview"] == 4 * 6


def test_a_global_model_is_not_tested_again_when_it_is_received(tmp_path: Path) -> None:
    """Initial model, then once after each of the four rounds: five evaluations of one task each."""
    engine = Counting()
    fedtailor.run(of(find("fedavg")()), folder=tmp_path / "run", resources=Resources(engine=engine)).close()
    assert engine.kinds == {"fit": 8, "score": 5, "final": 8}


def test_a_client_that_never_trained_holds_what_it_would_receive_and_is_counted(tmp_path: Path) -> None:
    with fedtailor.run(of(find("fedper")()), folder=tmp_path / "run") as run:
        trained: set[int] = set()
        for round in run.rounds():
            trained |= set(round["cohort"])
            held = next(row for row in run.metrics("held") if row["round"] == round["round"])
            assert held["untrained"] == 8 - len(trained)
            assert held["clients"] == 8
        assert len(run.scores("final")) == 8


def test_held_is_remembered_between_the_rounds_of_a_client(tmp_path: Path) -> None:
    """The measure of a round is over every client's last held model, not over the cohort's."""
    with fedtailor.run(of(find("local")()), folder=tmp_path / "run") as run:
        last: dict[int, float] = {}
        for row in run.rounds():
            last |= {s["client"]: s["accuracy"] for s in run.scores("held", row["round"])}
            received = {s["client"]: s["accuracy"] for s in run.scores("received", row["round"])}
            expected = [last.get(client, received[client]) for client in range(8)]
            held = next(m for m in run.metrics("held") if m["round"] == row["round"])
            assert held["accuracy"] == pytest.approx(sum(expected) / 8)


@pytest.mark.parametrize(("every", "rounds"), [(1, [1, 2, 3, 4]), (3, [3, 4]), (0, [])])
def test_evaluation_happens_in_every_nth_round_and_in_the_last(every: int, rounds: list[int], tmp_path: Path) -> None:
    settings = {"evaluation": {"every": every, "final": False}}
    with fedtailor.run(of(find("fedavg")(), **settings), folder=tmp_path / "run") as run:
        assert sorted({row["round"] for row in run.metrics()}) == rounds


@pytest.mark.parametrize("policy", ["averaged", "local", "reset"])
def test_running_statistics_travel_stay_or_start_afresh(policy: str, tmp_path: Path) -> None:
    model = {"name": "resnet18-bn", "arguments": {"width": 2}, "running_statistics": policy}
    settings = {"model": model, "data": {"clients": 2, "samples": 100}, "rounds": 2, "participation": {"ratio": 1.0}}
    with fedtailor.run(of(find("fedavg")(), **settings), folder=tmp_path / "run") as run:
        server = unpack(run._store.state("server", "model") or b"")["value"]
        clients = [run._store.state("client", client) for client in (0, 1)]
    moved = [
        name for name in server if name.endswith("running_mean") and not torch.equal(server[name], server[name] * 0)
    ]
    kept = [unpack(state)["private"] for state in clients if state is not None]
    if policy == "averaged":
        assert moved
        assert kept == []
    elif policy == "local":
        assert not any("running" in name for name in server)
        assert len(kept) == 2
        assert all("running" in name or "tracked" in name for name in kept[0])
        assert any(not torch.equal(kept[0][name], kept[1][name]) for name in kept[0])
    else:
        assert not any("running" in name for name in server)
        assert kept == []


def test_an_exported_model_is_the_one_that_was_measured(tmp_path: Path) -> None:
    """The accuracy of an exported client model on its test set is the recorded final accuracy."""
    with fedtailor.run(of(find("fedper")()), folder=tmp_path / "run") as run:
        federation = run.federation()
        recorded = {score["client"]: score["correct"] for score in run.scores("final")}
    fedtailor.export_client(tmp_path / "run", 5, tmp_path / "model")
    model = fedtailor.load_model(tmp_path / "model")
    mine = federation.test[5]
    truth = [federation.samples.classes[label] for label in federation.samples.y[mine]]
    said = model.predict(federation.samples.x[mine])
    assert sum(a == b for a, b in zip(said, truth, strict=True)) == recorded[5]


def test_an_exported_global_model_is_the_servers(tmp_path: Path) -> None:
    with fedtailor.run(of(find("fedavg")()), folder=tmp_path / "run") as run:
        federation = run.federation()
        recorded = sum(score["correct"] for score in run.scores("global"))
    model = fedtailor.load_model(fedtailor.export_global(tmp_path / "run", tmp_path / "model"))
    rows = federation.test.indices
    right = model.outputs(federation.samples.x[rows]).argmax(1).numpy() == federation.samples.y[rows]
    assert int(right.sum()) == recorded


def test_a_method_without_a_global_model_says_so(tmp_path: Path) -> None:
    fedtailor.run(of(find("fedper")()), folder=tmp_path / "run").close()
    with pytest.raises(fedtailor.UserError, match="export them with --client"):
        fedtailor.export_global(tmp_path / "run", tmp_path / "model")


def test_a_round_without_replies_changes_nothing_and_the_run_continues(tmp_path: Path) -> None:
    settings = {"participation": {"clients": 1, "dropout": 0.99}, "rounds": 3}
    with fedtailor.run(of(find("fedavg")(), **settings), folder=tmp_path / "run") as run:
        assert run.finished
        assert len(run.events()) == 3
        assert len({row["pooled_loss"] for row in run.metrics("global")}) == 1


def test_an_error_in_every_client_ends_the_run_with_the_traceback_of_its_author(tmp_path: Path) -> None:
    class Wrong(find("fedavg")):  # type: ignore[misc]
        name = ""

        def fit(self, client: Client) -> None:
            raise ArithmeticError("my mistake")

    with pytest.raises(
        fedtailor.UserError, match="every client failed in round 1: ArithmeticError: my mistake"
    ) as caught:
        fedtailor.run(of(Wrong()), folder=tmp_path / "run")
    assert "raise ArithmeticError" in caught.value.details  # type: ignore[attr-defined]


def test_a_reply_that_lacks_a_tensor_is_left_out(tmp_path: Path) -> None:
    class Sparse(find("fedavg")):  # type: ignore[misc]
        name = ""

        def upload(self, client: Client) -> Payload:
            reply = super().upload(client)
            if client.id == 0:
                reply.groups["model"].popitem()
            return reply

    settings = {"participation": {"ratio": 1.0}, "rounds": 2}
    with fedtailor.run(of(Sparse(), **settings), folder=tmp_path / "run") as run:
        assert {(e["client"], e["detail"].startswith("the model lacks")) for e in run.events()} == {(0, True)}


def test_a_run_warns_of_settings_and_networks_that_switch_its_method_off(tmp_path: Path) -> None:
    class Heard(Callback):
        def __init__(self) -> None:
            self.said: list[str] = []

        def warning(self, sentence: str) -> None:
            self.said.append(sentence)

    callbacks = Heard()
    fedtailor.run(of(find("fedprox")(mu=0.0), rounds=1), folder=tmp_path / "1", callbacks=callbacks).close()
    fedtailor.run(of(find("fedbn")(), rounds=1), folder=tmp_path / "2", callbacks=callbacks).close()
    fedtailor.run(of(find("fedprox")(mu=0.1), rounds=1), folder=tmp_path / "3", callbacks=callbacks).close()
    assert [sentence.partition(":")[0] for sentence in callbacks.said] == ["fedprox", "fedbn"]


class Dated(find("fedavg")):  # type: ignore[misc]
    """A client's model is the number of the round in which it trains, plus that of the server in thousandths."""

    name = ""

    def prepare(self, server: Server, cohort: Any) -> Any:
        return {client: Payload({"model": {W: torch.tensor([[server.round / 1000]])}}) for client in cohort}

    def fit(self, client: Client) -> None:
        client.load({W: client.weights()[W] + client.round})


def test_the_final_pass_is_the_round_after_the_last(tmp_path: Path) -> None:
    """Two rounds: clients hold 2.002, after the final pass 3.003; targets are 0 and 4."""
    played = play(tmp_path / "run", Dated(), targets([0.0], [4.0]), rounds=2)
    assert [played.loss("held", k, 2) for k in (0, 1)] == near(2.002**2 / 2, 1.998**2 / 2)
    assert [played.loss("final", k, 2) for k in (0, 1)] == near(3.003**2 / 2, 0.997**2 / 2)
    assert [played.personal(k, W) for k in (0, 1)] == near(3.003, 3.003)
