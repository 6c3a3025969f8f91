"""Hand-derived values, identities and mechanisms of IFCA."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fedtailor
from fedtailor.errors import UserError
from fedtailor.learning import TrainingSettings
from fedtailor.learning.tensors import inputs_of
from fedtailor.methods import Memory, Moment, Server, find
from fedtailor.models import ModelSettings, build
from tests.support.peers import digits, personal, scalar, scores, server_of, state
from tests.support.problem import HERE, W, make, play, targets


class Planted(find("ifca")):  # type: ignore[misc]
    """IFCA whose second cluster starts at 3."""

    def start_server(self, server: Server) -> None:
        super().start_server(server)
        server.state["clusters"][1] = scalar(3.0)


def test_hand_ifca(tmp_path: Path) -> None:
    """Clusters 1 and 3. Client 0 (target 0) is nearer to 1, client 1 (target 4) to 3.

    Round 1: 1 -> 1/2 and 3 -> 7/2; round 2: 1/4 and 15/4; the final pass: 1/8 and 31/8.
    """
    played = play(tmp_path / "run", Planted(), targets(*HERE))
    clusters = [float(model[W]) for model in played.loop.server.state["clusters"]]
    assert clusters == pytest.approx([0.25, 3.75], abs=1e-6)
    assert played.loop.server.state["chosen"] == {0: 0, 1: 1}
    assert [state(played, 0), state(played, 1)] == [{"cluster": 0}, {"cluster": 1}]
    assert personal(played) == pytest.approx([0.125, 3.875], abs=1e-6)
    assert played.loss("received", 1, 2) == pytest.approx(0.5**2 / 2, abs=1e-6)
    assert played.loss("cluster/0", 1, 2) == pytest.approx(3.75**2 / 2, abs=1e-6)
    row = played.store.rows("SELECT bytes_down, bytes_up FROM rounds")[0]
    assert row == {"bytes_down": 2 * 2 * 4, "bytes_up": 2 * (4 + 2 * 8)}  # two models down, one and two numbers up


def test_ifca_with_one_cluster_is_fedavg_to_the_bit(tmp_path: Path) -> None:
    with digits(make("fedavg"), tmp_path / "1") as fedavg, digits(make("ifca", k=1), tmp_path / "2") as one:
        for model in ("held", "final"):
            assert scores(fedavg, model) == scores(one, model)
        assert scores(fedavg, "global") == scores(one, "cluster/0")
    with digits(make("ifca", k=2), tmp_path / "3") as two, fedtailor.Run(tmp_path / "1") as fedavg:
        assert scores(two, "final") != scores(fedavg, "final")
    assert make("ifca", k=1).inert()


def test_ifca_recovers_two_planted_clusters(tmp_path: Path) -> None:
    """Cluster 0 starts at 1, cluster 1 somewhere in (-1, 1): targets near -5 fit it better, those near 5 the first."""
    here = targets([5.0], [-5.0], [5.5, 5.5], [-5.5], [4.5])
    played = play(tmp_path / "run", make("ifca"), here, rounds=12)
    assert played.loop.server.state["chosen"] == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    clusters = [float(model[W]) for model in played.loop.server.state["clusters"]]
    assert clusters == pytest.approx([(5 + 2 * 5.5 + 4.5) / 4, -5.25], abs=0.01)
    assert set(played.loop.method.models(played.loop.server)) == {"cluster/0", "cluster/1"}


def test_ifca_clusters_start_apart_and_the_first_from_the_initial_model() -> None:
    method = make("ifca", k=3)
    server = server_of(method, targets(*HERE), {}, model="mlp")
    first, second, third = server.state["clusters"]
    assert all(torch.equal(first[name], server.initial[name]) for name in first)
    assert not any(torch.equal(second[name], third[name]) or torch.equal(first[name], second[name]) for name in first)
    again = server_of(method, targets(*HERE), {}, model="mlp").state["clusters"][1]
    assert all(torch.equal(second[name], again[name]) for name in second)


class Bare(nn.Module):
    """A module without layers that torch could initialise again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = _Scale()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


class _Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def test_ifca_refuses_clusters_that_would_start_equal() -> None:
    network = build(
        ModelSettings(name="tests.methods.test_ifca:Bare", head=("layer",)), inputs_of(targets([0.0]).samples), 0
    )
    memory = Memory(lambda client: None, set())
    server = Server(network, (1,), TrainingSettings(), Moment(0), frozenset(network.names), memory)
    with pytest.raises(UserError, match="reset_parameters"):
        make("ifca").start_server(server)


def test_ifca_leaves_a_cluster_that_nobody_chose(tmp_path: Path) -> None:
    played = play(tmp_path / "run", Planted(), targets([0.0], [0.5]))
    assert float(played.loop.server.state["clusters"][1][W]) == 3.0
