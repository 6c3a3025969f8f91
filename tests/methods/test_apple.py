"""Hand-derived values, identities and mechanisms of APPLE."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import fedtailor
from fedtailor.learning.tensors import inputs_of, tensors
from fedtailor.messages.payload import Payload, Rejected
from fedtailor.messages.trees import plain, unpack
from fedtailor.methods import Client, find
from fedtailor.models import Inputs, ModelSettings, build
from tests.support.peers import digits, kept, personal, scores, state
from tests.support.problem import HERE, make, play, targets


def test_hand_apple(tmp_path: Path) -> None:
    """p0 = (1/4, 3/4), mu = 1, relation_lr = 1/10, L = all rounds, so lambda = 1 and 1/2 (cosine and linear alike).

    Round 1: cores 1, personal 1. Client 0: g = 1, core 1 - 1/2 1/4 = 0.875, p = (0.15, 0.65).
    Client 1: g = -3, core 1 + 1/2 3/4 3 = 2.125, p = (0.55, 1.05).
    Round 2, client 0: personal 0.15 0.875 + 0.65 2.125 = 1.5125 = g; core 0.875 - 1/2 0.15 g = 0.7615625;
    dp = (0.875 g + (0.15 - 0.25)/2, 2.125 g + (0.65 - 0.75)/2) = (1.2734375, 3.1640625), p = (0.02265625, 0.33359375).
    Client 1: personal 0.55 0.875 + 1.05 2.125 = 2.7125, g = -1.2875; core 2.125 + 1/2 1.05 1.2875 = 2.8009375;
    dp = (0.875 g + 0.3/2, 2.125 g + 0.3/2) = (-0.9765625, -2.5859375), p = (0.64765625, 1.30859375).
    """
    for schedule in ("cosine", "linear"):
        method = make("apple", mu=1.0, relation_lr=0.1, L=1.0, schedule=schedule)
        played = play(tmp_path / schedule, method, targets(*HERE))
        assert played.loss("received", 0, 2) == pytest.approx(1.5125**2 / 2, abs=1e-6)
        assert played.loss("received", 1, 2) == pytest.approx(1.2875**2 / 2, abs=1e-6)
        assert [kept(played, 0), kept(played, 1)] == pytest.approx([0.7615625, 2.8009375], abs=1e-6)
        assert state(played, 0)["relations"]["relation"].tolist() == pytest.approx([0.02265625, 0.33359375], abs=1e-6)
        assert state(played, 1)["relations"]["relation"].tolist() == pytest.approx([0.64765625, 1.30859375], abs=1e-6)
        # held: the core model as just trained, the other's as downloaded
        held = 0.02265625 * 0.7615625 + 0.33359375 * 2.125
        assert played.loss("held", 0, 2) == pytest.approx(held**2 / 2, abs=1e-6)
        assert state(played, 0)["relations"]["peers"] == {}


def test_apple_pull_of_the_relation_falls_to_zero() -> None:
    for schedule, middle in (("cosine", (1 + math.cos(0.25 * math.pi)) / 2), ("linear", 0.75)):
        method: Any = make("apple", schedule=schedule, L=0.4)

        class At:
            rounds = 10

            def __init__(self, round: int) -> None:
                self.round = round

        values = [method._lambda(At(round)) for round in (1, 2, 5, 9, 11)]
        assert values == pytest.approx([1.0, middle, 0.0, 0.0, 0.0])


class Alone(find("apple")):  # type: ignore[misc]
    """APPLE that starts with all weight on itself."""

    def _first_relation(self, client: Client, shares: Tensor) -> Tensor:
        return torch.eye(len(shares))[client.id]


def test_apple_on_itself_without_relation_learning_is_local_only(tmp_path: Path) -> None:
    with (
        digits(make("local"), tmp_path / "local") as local,
        digits(Alone(relation_lr=0.0), tmp_path / "alone") as alone,
        digits(Alone(relation_lr=0.01), tmp_path / "learns") as learns,
    ):
        for model in ("held", "final"):
            assert scores(local, model) == scores(alone, model) != scores(learns, model)


def test_apple_with_one_client_is_local_only(tmp_path: Path) -> None:
    local = play(tmp_path / "1", make("local"), targets([4.0]), rounds=3)
    apple = play(tmp_path / "2", make("apple", relation_lr=0.0), targets([4.0]), rounds=3)
    assert personal(apple) == personal(local)


@pytest.mark.parametrize("model", ["mlp", "digits-cnn"])
def test_apple_gradients_are_those_of_the_mixture(model: str, tmp_path: Path) -> None:
    """One full-batch step of a real network against autograd through sum_j p_j w_j."""
    apple = make("apple", mu=0.0, relation_lr=0.2)
    training = {"lr": 0.1, "batch_size": 1000, "epochs": 1}
    more = {"model": {"name": model}, "training": training, "participation": {}}
    digits(apple, tmp_path / "one", rounds=1, **more).close()
    with digits(apple, tmp_path / "two", rounds=2, **more) as run, fedtailor.Run(tmp_path / "one") as first:
        before, after = (plain(unpack(r._store.state("client", 2)))["state"]["relations"] for r in (first, run))
        cores = [unpack(first._store.state("memory", j))["model"] for j in range(6)]
        federation = run.federation()
        module = build(run.experiment.model, inputs_of(federation.samples), 0).module
        x, y = tensors(federation.samples, federation.train[2], "cpu")
    p = before["relation"].clone().requires_grad_()
    own = {n: t.clone().requires_grad_() for n, t in cores[2].items()}
    cores[2] = own
    mixture = {n: sum(p[j] * cores[j][n] for j in range(6)) for n in own}
    nn.functional.cross_entropy(torch.func.functional_call(module, mixture, (x,)), y).backward()
    torch.testing.assert_close(after["relation"], (p - 0.2 * p.grad).detach())
    for name, core in own.items():
        torch.testing.assert_close(after["core"][name], (core - 0.1 * core.grad).detach())


def test_a_peer_that_is_no_whole_number_is_refused_by_the_schema() -> None:
    network = build(ModelSettings(name="linear"), Inputs((3,), 2), 0)
    schema = make("apple").reply_schema(network, frozenset(network.names))
    reply = Payload({"model": network.weights()}, {"samples": 1, "peers": [2]})
    schema.check(reply)
    with pytest.raises(Rejected, match="peers"):
        schema.check(Payload(reply.groups, {"samples": 1, "peers": [0.5]}))


class Products(TorchDispatchMode):
    """Counts the entries of the matrices that are multiplied by vectors."""

    entries = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket is torch.ops.aten.mv:
            self.entries += args[0].numel()
        return function(*args, **(kwargs or {}))


def test_the_arithmetic_that_apple_declares_is_that_which_it_does(tmp_path: Path) -> None:
    """Two products with all models in every step; a client also mixes when it receives."""
    with Products() as counted:
        run = digits(
            make("apple"), tmp_path / "run", rounds=2, participation={}, evaluation={"every": 0, "final": False}
        )
    with run:
        size = build(run.experiment.model, inputs_of(run.federation().samples), 0).size
        steps = {r: run._store.rows(f"SELECT SUM(steps) AS n FROM tasks WHERE round = {r}")[0]["n"] for r in (1, 2)}
    first = 2 * (2 * steps[1] + 6)  # only its own and the initial model are known
    second = 6 * (2 * steps[2] + 6)
    assert counted.entries == size * (first + second)
    own = steps[2]  # p_ii g
    assert make("apple").arithmetic(steps[2], clients=6) == 6 * 2 * steps[2] + own


def test_apple_downloads_m_core_models_and_keeps_the_others(tmp_path: Path) -> None:
    """Four clients, M = 1: in rounds 2, 3 and 4 a client downloads each of the three others once."""
    here = targets([0.0], [1.0], [2.0], [3.0])
    seen: dict[int, set[int]] = {}
    for rounds in (2, 3, 4):
        played = play(tmp_path / str(rounds), make("apple", M=1, relation_lr=0.01), here, rounds=rounds)
        row = played.store.rows("SELECT bytes_down FROM rounds")[rounds - 1]
        assert row["bytes_down"] == 4 * (4 + 4 * 8)  # a core model of one float, four sizes
        seen[rounds] = set(state(played, 0)["relations"]["peers"])
    assert [len(seen[rounds]) for rounds in (2, 3, 4)] == [1, 2, 3]
    assert seen[2] < seen[3] < seen[4] == {1, 2, 3}


def test_apple_learning_the_relation_changes_the_model(tmp_path: Path) -> None:
    fixed = play(tmp_path / "1", make("apple", relation_lr=0.0), targets(*HERE), rounds=3)
    learnt = play(tmp_path / "2", make("apple", relation_lr=0.1), targets(*HERE), rounds=3)
    assert personal(fixed) != pytest.approx(personal(learnt), abs=1e-3)
    assert make("apple", relation_lr=0.0).inert()
