"""What a node's owner permits is checked by the node, from what the coordinator sends."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.flower.coordinator.serving import serve_on
from fedtailor.flower.node.node import Node
from fedtailor.flower.node.policy import FILE, Policy, Spent
from fedtailor.messages.frames import decode, encode
from fedtailor.runs.accounting import combined_epsilon, gaussian_epsilon
from tests.support.federation import Wire, events, nodes_of, settings, write_data

SCALE: dict[str, Any] = {"data": {"clients": 3, "samples": 120}, "evaluation": {"every": 0, "final": False}}
PRIVATE = {"level": "client", "noise": 2.0}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(settings(**SCALE), tmp_path_factory.mktemp("policy"))


def refusals(files: Path, folder: Path, policy: Policy, method: str, **more: Any) -> list[tuple[int, str]]:
    """Run a federation in which client 1 has a policy; the rounds in which it refused, and why."""
    there = nodes_of(files, folder, 3, partial(Node, policy=policy))
    serve_on(Wire(there), settings(method, **{**SCALE, **more}), folder / "run").close()
    found = events(folder / "run")
    assert {event["client"] for event in found} <= {1}, found
    return [(event["round"], event["detail"]) for event in found]


@pytest.mark.parametrize(
    ("policy", "method", "reason"),
    [
        (Policy(frozenset({"fedrep"})), "fedavg", "its node refused: its owner permits only fedrep, not fedavg"),
        (Policy(peers=False), "fedfomo", "which may show its models to other clients"),
        (Policy(smallest_cohort=4), "fedavg", "cohorts of 4 clients or more, not of 3"),
        (Policy(largest_epsilon=8.0), "fedavg", "this run has no differential privacy"),
    ],
)
def test_a_refusal_is_recorded_and_the_others_continue(
    policy: Policy, method: str, reason: str, files: Path, tmp_path: Path
) -> None:
    found = refusals(files, tmp_path, policy, method, rounds=2)
    assert {round for round, _ in found} == {1, 2}, "the node refuses every round, and keeps running"
    assert all(reason in detail for _, detail in found)


@pytest.mark.parametrize("policy", [Policy(frozenset({"fedavg"})), Policy(peers=False), Policy(smallest_cohort=3)])
def test_what_the_owner_permits_is_done(policy: Policy, files: Path, tmp_path: Path) -> None:
    assert refusals(files, tmp_path, policy, "fedavg", rounds=1) == []


def test_a_node_counts_its_own_epsilon_and_stops_at_the_limit(files: Path, tmp_path: Path) -> None:
    """The limit lies between two and three sums with noise 2: the third round is refused, and stays refused later."""
    pytest.importorskip("opacus")
    two, three = (gaussian_epsilon(2.0, 1.0, n, 1e-5) for n in (2, 3))
    policy = Policy(largest_epsilon=(two + three) / 2)
    found = refusals(files, tmp_path, policy, "fedavg", rounds=4, privacy=PRIVATE, participation={"ratio": 1.0})
    assert [round for round, _ in found] == [3, 4]
    assert f"client-level one {three:.3g}" in found[0][1]
    assert Spent(tmp_path / "state-1" / FILE).rows == [("client", 2.0, 1.0, 2)]
    (tmp_path / "run").rename(tmp_path / "before")
    again = refusals(files, tmp_path, policy, "fedavg", rounds=1, privacy=PRIVATE)
    assert [round for round, _ in again] == [1], "another run uses the same data"


def test_record_level_privacy_is_counted_in_steps_that_the_node_did(files: Path, tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    training = {"epochs": 3, "dp_sgd": {"noise": 4.0}}
    assert refusals(files, tmp_path, Policy(largest_epsilon=50.0), "fedavg", rounds=1, training=training) == []
    ((level, noise, _, steps),) = Spent(tmp_path / "state-1" / FILE).rows
    assert (level, noise) == ("record", 4.0)
    assert steps >= 3
    assert steps % 3 == 0
    (tmp_path / "run").rename(tmp_path / "before")
    found = refusals(files, tmp_path, Policy(largest_epsilon=0.01), "fedavg", rounds=1, training=training)
    assert "record-level" in found[0][1]


@pytest.mark.parametrize("noise", [0.0, -1.0, float("nan"), float("inf")])
def test_noise_that_is_none_gives_no_privacy(noise: float) -> None:
    assert combined_epsilon([(noise, 1.0, 1)]) == float("inf")


def test_the_digest_of_the_data_is_keyed_and_lasts(files: Path, tmp_path: Path) -> None:
    def digest(folder: str, client: int = 0) -> str:
        node = Node("a", str(files / f"client-{client}.npz"), tmp_path / folder)
        data = {"settings": {}, "seed": 0, "validation": False}
        header, _ = decode(node.answer(encode({"kind": "hello", "data": data})))
        assert node._federation is not None
        assert header["entry"]["digest"] != node._federation[1].digest(), "who guesses the data can confirm the guess"
        return str(header["entry"]["digest"])

    assert digest("one") == digest("one"), "a node that restarts is recognised"
    assert digest("one") != digest("two"), "the key is the node's own"
    assert digest("one") != digest("one", client=1), "other data are noticed"
    assert os.stat(tmp_path / "one" / "secret").st_mode & 0o777 == 0o600


def test_a_dry_run_lists_what_would_leave_and_writes_nothing(files: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from fedtailor.cli.app import app

    options = ["--coordinator", "c:1", "--data", str(files / "client-0.npz"), "--state", str(tmp_path / "state")]
    done = CliRunner().invoke(app, ["join", *options, "--dry-run", "--methods", "fedavg,fedrep"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith("nothing was sent")
    assert sum(line.startswith("every round of ") for line in lines) == 2
    assert any(line.startswith("every round of fedavg: model (") and "samples" in line for line in lines)
    assert not (tmp_path / "state").exists()
