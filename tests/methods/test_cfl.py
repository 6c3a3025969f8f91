"""Hand-derived values, identities and mechanisms of clustered federated learning."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.methods import Payload, Replies
from fedtailor.methods.cfl import Split
from tests.support.peers import digits, personal, scalar, scores, server_of
from tests.support.problem import HERE, W, make, play, targets


def test_hand_cfl(tmp_path: Path) -> None:
    """Round 1 from 1: updates -1/2 and 3/2, their mean by size 1 is not below eps1 = 0.9; w = 2.

    Round 2: updates -1 and 1, mean 1/2 < 0.9 and 1 > eps2 = 0.5: split, cosine -1; the clusters are 1 and 3.
    Final: 1/2 and 7/2.
    """
    method = make("cfl", eps1=0.9, eps2=0.5)
    one = play(tmp_path / "1", method, targets(*HERE), rounds=1)
    two = play(tmp_path / "2", method, targets(*HERE), rounds=2)
    assert [float(model[W]) for model in one.loop.server.state["clusters"].models] == pytest.approx([2.0], abs=1e-6)
    assert one.loop.server.state["clusters"].splits == []
    server = two.loop.server
    assert [float(model[W]) for model in server.state["clusters"].models] == pytest.approx([1.0, 3.0], abs=1e-6)
    assert server.state["clusters"].member == {0: 0, 1: 1}
    (split,) = server.state["clusters"].splits
    assert split == Split(2, 0, [[0], [1]], absent=[], similarity=pytest.approx(-1))
    assert server.state["clusters"].longest == pytest.approx(1.0, abs=1e-6)
    assert personal(two) == pytest.approx([0.5, 3.5], abs=1e-6)
    assert two.loss("cluster/1", 0, 2) == pytest.approx(3.0**2 / 2, abs=1e-6)
    assert two.store.state_keys("client") == []


def test_cfl_before_any_split_is_fedavg_to_the_bit(tmp_path: Path) -> None:
    with digits(make("fedavg"), tmp_path / "1") as fedavg, digits(make("cfl", eps1=0.0), tmp_path / "2") as never:
        for model in ("held", "final"):
            assert scores(fedavg, model) == scores(never, model)
        assert scores(fedavg, "global") == scores(never, "cluster/0")
    splits = make("cfl", eps1=1e6, eps2=0.0, quorum=0.1)
    with digits(splits, tmp_path / "3") as run, fedtailor.Run(tmp_path / "1") as fedavg:
        assert scores(run, "final") != scores(fedavg, "final")
    assert make("cfl", eps1=0.0).inert()


@pytest.mark.parametrize("settings", [{"eps1": 0.9, "eps2": 0.5}, {"eps1": 0.6, "eps2": 0.2, "relative": True}])
@pytest.mark.parametrize("linkage", ["complete", "single"])
def test_cfl_splits_planted_groups_exactly(settings: dict[str, Any], linkage: str, tmp_path: Path) -> None:
    here = targets([0.0], [4.0], [0.1], [4.1], [3.9], [-0.1])
    played = play(tmp_path / "run", make("cfl", linkage=linkage, **settings), here, rounds=12)
    splits = played.loop.server.state["clusters"].splits
    assert [split.groups for split in splits][:1] == [[[0, 2, 5], [1, 3, 4]]]
    clusters = [float(model[W]) for model in played.loop.server.state["clusters"].models]
    if len(splits) == 1:
        assert clusters == pytest.approx([0.0, 4.0], abs=0.01)


def test_cfl_does_not_split_what_belongs_together(tmp_path: Path) -> None:
    """All targets 2: the updates shrink together, so when the mean is small none is large."""
    played = play(tmp_path / "run", make("cfl", eps1=0.9, eps2=0.9), targets([2.0], [2.0], [2.0]), rounds=4)
    assert played.loop.server.state["clusters"].splits == []
    strict = play(tmp_path / "strict", make("cfl", eps1=0.9, eps2=0.5, gamma=1.0), targets(*HERE), rounds=4)
    assert strict.loop.server.state["clusters"].splits == []  # sqrt((1 + 1) / 2) = 1 is not more than gamma = 1


def test_cfl_relative_bounds_do_not_depend_on_the_scale(tmp_path: Path) -> None:
    """Targets a hundred times as far from the start split in the same round by relative bounds only."""
    near, far = targets([0.0], [3.0]), targets([-99.0], [201.0])  # 1 - 1, 1 + 2 and 1 - 100, 1 + 200
    splits = {}
    for relative in (False, True):
        for name, here in (("near", near), ("far", far)):
            method = make("cfl", eps1=0.4, eps2=0.6, relative=relative)
            played = play(tmp_path / f"{name}{relative}", method, here, rounds=4)
            splits[name, relative] = [split.round for split in played.loop.server.state["clusters"].splits]
    assert splits["near", True] == splits["far", True] != []
    assert splits["near", False] != splits["far", False]


def angles(*degrees: float) -> Any:
    points = np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], 1)
    return points @ points.T


def test_cfl_bipartition_takes_distances_not_observations() -> None:
    """Single linkage is the bipartition of smallest largest similarity across; complete linkage is scipy's own
    on the distances, and both give two groups even when all are alike.
    """
    complete: Any = make("cfl")
    single: Any = make("cfl", linkage="single")
    chain = angles(0, 40, 80, 120, 175)  # gaps 40, 40, 40, 55
    assert single._bipartition(chain) == [[0, 1, 2, 3], [4]]
    assert complete._bipartition(chain) == [[0, 1], [2, 3, 4]]
    draw = np.random.RandomState(0)
    for _ in range(20):
        similar = angles(*draw.uniform(0, 360, 6))
        across = {}
        for size in (1, 2, 3):
            for some in itertools.combinations(range(6), size):
                rest = [k for k in range(6) if k not in some]
                across[some] = similar[np.ix_(some, rest)].max()
        one, other = single._bipartition(similar)
        assert similar[np.ix_(one, other)].max() == pytest.approx(min(across.values()))
    alike = np.ones((4, 4))
    assert [len(side) > 0 for side in complete._bipartition(alike)] == [True, True]


def test_cfl_absent_members_choose_their_cluster_by_training_loss(tmp_path: Path) -> None:
    """Client 2 was absent when its cluster split: it receives both models, trains the better one and joins."""
    method: Any = make("cfl", eps1=10.0, eps2=0.1, quorum=0.6)
    server = server_of(method, targets([0.0], [4.0], [4.0]), {})

    def reply(value: float, **more: float) -> Payload:
        return Payload({"model": scalar(value)}, {"samples": 1, **more})

    strict: Any = make("cfl", eps1=10.0, eps2=0.1)
    waiting = server_of(strict, targets([0.0], [4.0], [4.0]), {})
    strict.finish(waiting, Replies({0: reply(0.5), 1: reply(2.5)}, {2: "dropped out"}))
    assert waiting.state["clusters"].splits == []  # quorum = 1: not all have answered

    method.finish(server, Replies({0: reply(0.5), 1: reply(2.5)}, {2: "dropped out"}))
    assert server.state["clusters"].member == {0: 0, 1: 1}
    assert server.state["clusters"].splits[0].absent == [2]
    payloads = method.prepare(server, [0, 2])
    assert set(payloads[0].groups) == {"model"}
    assert set(payloads[2].groups) == {"cluster/0", "cluster/1"}
    method.finish(server, Replies({2: reply(3.0, cluster=1)}, {}))
    assert server.state["clusters"].member == {0: 0, 1: 1, 2: 1}
    assert float(server.state["clusters"].models[1][W]) == 3.0
    with digits(make("cfl", eps1=1e6, eps2=0.0, quorum=0.3), tmp_path / "run", rounds=6) as run:
        clusters = run.server_state()["clusters"]
        splits, member = clusters["splits"], clusters["member"]
        assert any(split["absent"] for split in splits)
        assert len(member) > len(splits[0]["groups"][0]) + len(splits[0]["groups"][1])
