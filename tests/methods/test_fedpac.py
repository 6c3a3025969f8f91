"""Hand-derived values, identities and mechanisms of FedPAC."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedtailor.data import Federation, Samples, Shares
from fedtailor.learning import TrainingSettings
from fedtailor.methods import Memory, Method, Moment, Payload, Replies, Server
from fedtailor.methods.fedpac import _centroids, combinations
from fedtailor.methods.simplex import smallest
from fedtailor.models import Inputs, Network
from fedtailor.seeding import torch_stream
from tests.support.problem import BODY, HEAD, PRODUCT, Played, ends, everything, make, near, play


def lines(*clients: tuple[list[float], list[float]]) -> Federation:
    """A regression with inputs and targets for each client, which are also its test data."""
    x = np.array([x for xs, _ in clients for x in xs], dtype=np.float32)[:, None]
    y = np.array([y for _, ys in clients for y in ys], dtype=np.float32)[:, None]
    count = len(x)
    samples = Samples(
        x=np.concatenate([x, x]), y=np.concatenate([y, y]), classes=(), official_test=np.zeros(2 * count, dtype=bool)
    )
    offsets = np.cumsum([0, *(len(xs) for xs, _ in clients)]).astype(np.int64)
    first = np.arange(count, dtype=np.int64)
    nobody = Shares(np.zeros(0, dtype=np.int64), np.zeros(len(clients) + 1, dtype=np.int64))
    return Federation(samples, Shares(first, offsets), nobody, Shares(first + count, offsets))


TWO_LINES = (([1.0, 3.0], [0.0, 0.0]), ([0.0, 0.0, 3.0], [0.0, 0.0, 9.0]))


def test_hand_fedpac(tmp_path: Path) -> None:
    """f = h b x, lr 1/10, lam 1, one class. Client 0: x = 1, 3, y = 0: E x = 2, E x^2 = 5, E xy = 0.
    Client 1: x = 0, 0, 3, y = 0, 0, 9: E x = 1, E x^2 = 3, E xy = 9. Weights by data size 2/5, 3/5.
    The gradients are h b^2 Exx - b Exy for h and h^2 b Exx - h Exy (+ 2 (b Exx - c Ex) with a centroid c) for b.

    Round 1 from b = 1, h = 2, no centroid yet: h = 2 - 1 = 1 and 2 + 0.3 = 2.3; b = 1 - 0.5 = 0.5 and
    1 + 0.483 = 1.483; body 0.2 + 0.8898 = 1.0898. Features of the received body: H = 2, 1 and
    V = (5 - 4)/2 = 1/2, (3 - 1)/3 = 2/3, so D between the two is 1. Client 0 minimises
    1/2 a^2 + (1 + 2/3)(1 - a)^2: a = 10/13, head (10 * 1 + 3 * 2.3)/13 = 1.3; client 1 minimises
    2/3 a^2 + (1 + 1/2)(1 - a)^2: a = 9/13, head (4 * 1 + 9 * 2.3)/13 = 1.9.
    Centroid: (2 * 2 * 0.5 + 3 * 1 * 1.483)/5 = 1.2898.
    Round 2: h = 1.3 - 0.77198163 = 0.52801837, 1.9 + 0.30385150 = 2.20385150; b = 1.0898 - 0.15192038 - 1.0898
    + 0.51592 = 0.36400003, 1.0898 + 0.39555138 - 0.65388 + 0.25796 = 1.08941138; body 0.79924684.
    H and V have grown by b and b^2, so the weights are the same: heads 0.91474909, 1.68821054;
    centroid (4 * 0.36400003 + 3 * 1.08941138)/5 = 0.94484685.
    """
    settings = {"federation": lines(*TWO_LINES), "model": PRODUCT, "lr": 0.1}
    one = play(tmp_path / "1", make("fedpac"), rounds=1, **settings)  # type: ignore[arg-type]
    two = play(tmp_path / "2", make("fedpac"), **settings)  # type: ignore[arg-type]
    assert [one.server(BODY), one.server(HEAD)] == near(1.0898, 1.78)
    assert own_heads(one) == near(1.3, 1.9)
    assert float(one.loop.server.state["prototypes"]["means"]) == pytest.approx(1.2898, abs=1e-6)
    assert two.server(BODY) == pytest.approx(0.79924684, abs=1e-6)
    assert own_heads(two) == near(0.91474909, 1.68821054)
    assert float(two.loop.server.state["prototypes"]["means"]) == pytest.approx(0.94484685, abs=1e-6)
    # received in round 2: f = 1.3 * 1.0898 x on x = 1, 3 with targets 0
    assert two.loss("received", 0, 2) == pytest.approx((1.3 * 1.0898) ** 2 * 5 / 2, abs=1e-5)
    assert two.store.state_keys("client") == []


def own_heads(played: Played) -> list[float]:
    return [float(played.loop.server.memory.peek(client)["head"][HEAD]) for client in (0, 1)]


def pac_ends(folder: Path, method: Method, **more: Any) -> list[float]:
    return ends(play(folder, method, lines(*TWO_LINES), PRODUCT, lr=0.1, epochs=2, rounds=3, **more))


def test_fedpac_without_alignment_and_with_own_heads_is_fedrep(tmp_path: Path) -> None:
    fedrep = play(tmp_path / "1", make("fedrep", head_epochs=1), lines(*TWO_LINES), PRODUCT, lr=0.1)
    fedpac = play(tmp_path / "2", make("fedpac", lam=0.0, heads="own"), lines(*TWO_LINES), PRODUCT, lr=0.1)
    assert fedpac.server(BODY) == fedrep.server(BODY)
    assert own_heads(fedpac) == [fedrep.private(0, HEAD), fedrep.private(1, HEAD)]
    for client, name in itertools.product((0, 1), (BODY, HEAD)):
        assert fedpac.personal(client, name) == fedrep.personal(client, name)
    for more in ({"lam": 0.5, "heads": "own"}, {"lam": 0.0, "heads": "optimal"}):
        other = play(tmp_path / str(more), make("fedpac", **more), lines(*TWO_LINES), PRODUCT, lr=0.1)
        assert other.server(BODY) != fedrep.server(BODY)


def test_fedpac_without_alignment_and_with_mean_heads_is_fedrep_that_shares_its_head(tmp_path: Path) -> None:
    shared = pac_ends(tmp_path / "1", everything("fedrep", head_epochs=1))
    assert pac_ends(tmp_path / "2", make("fedpac", lam=0.0, heads="mean")) == shared
    assert pac_ends(tmp_path / "3", make("fedpac", lam=0.0)) != shared
    assert pac_ends(tmp_path / "4", make("fedpac", heads="mean")) != shared


def test_fedpac_serves_clients_by_their_place_in_the_cohort_not_by_their_id() -> None:
    """A library indexes heads by client id, and sizes its programme by who did not drop out."""
    method = make("fedpac")
    network = Network(nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)), ("1",), Inputs((1,), 1))
    server = Server(
        network,
        (5,) * 10,
        TrainingSettings(),
        Moment(0, round=1, rounds=3),
        network.part("all"),
        Memory(lambda _: None, set()),
    )

    def reply(head: float, joint: float, variance: float) -> Payload:
        groups = {
            "model": {BODY: torch.ones(1, 1), HEAD: torch.tensor([[head]])},
            "prototypes": {"means": torch.ones(1, 1), "counts": torch.tensor([5])},
            "statistics": {"H": torch.tensor([[joint]])},
        }
        return Payload(groups, {"samples": 5, "variance": variance})

    failed = {2: "dropped out"}
    method.finish(server, Replies({9: reply(2.3, 1.0, 2 / 3), 4: reply(1.0, 2.0, 1 / 2)}, failed))
    assert list(server.memory) == [4, 9]
    payloads = method.prepare(server, [2, 4, 9])
    assert isinstance(payloads, dict)
    # 4 and 9 as clients 0 and 1 of the derivation by hand; client 2 gets the mean of the last heads
    assert [float(payloads[client]["model"][HEAD]) for client in (2, 4, 9)] == near(1.65, 1.3, 1.9)


def test_centroids_are_weighted_by_class_counts_and_kept_for_classes_nobody_has_now() -> None:
    def reply(means: list[float], counts: list[int]) -> dict[str, Tensor]:
        return {"means": torch.tensor(means)[:, None], "counts": torch.tensor(counts)}

    first = _centroids([reply([1.0, 7.0, 0.0], [1, 2, 0]), reply([5.0, 0.0, 0.0], [3, 0, 0])], None)
    assert first["means"].flatten().tolist() == [4.0, 7.0, 0.0]
    assert first["counts"].tolist() == [4, 2, 0]  # the third class is unknown and aligns nothing
    second = _centroids([reply([0.0, 0.0, 3.0], [0, 0, 1])], first)
    assert second["means"].flatten().tolist() == [4.0, 7.0, 3.0]


def test_head_weights_are_those_of_the_matrices_written_out() -> None:
    """D_i as traces of d x d matrices, the way the paper writes them."""
    stream = torch_stream("heads")
    joint = torch.randn(5, 3, 4, generator=stream, dtype=torch.float64)  # (clients, classes, features)
    variances = torch.rand(5, generator=stream, dtype=torch.float64)
    found = combinations(joint, variances)
    for i in range(5):
        gaps = joint[i] - joint
        form = torch.diag(variances)
        for j, k in itertools.product(range(5), repeat=2):
            form[j, k] += sum(torch.trace(torch.outer(gaps[j, c], gaps[k, c])) for c in range(3))
        torch.testing.assert_close(found[i], smallest(form), rtol=0, atol=1e-9)
    assert not torch.allclose(found, found[0].expand(5, 5), atol=1e-3)
