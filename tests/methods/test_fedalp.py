"""Hand-derived values, identities, mechanism and circumstances of fedalp.

f(x) = h b x at x = 1 with body b = 1 and head h = 2 at the start; client 0 has one sample with target 0, client 1
three with target 4. A full-batch step with learning rate 1/10 and residual r = h b - a moves (b, h) by
-r (h, b) / 10.
"""

import json
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor, nn

import fedtailor
from fedtailor.data import DataSettings, build
from fedtailor.data.statistics import label_counts
from fedtailor.engines import Job, Task
from fedtailor.engines.worker import Worker
from fedtailor.learning import TrainingSettings
from fedtailor.learning.tensors import inputs_of
from fedtailor.methods import Client, Memory, Moment, Payload, Replies, Server, find
from fedtailor.methods.clustering import cut, ward
from fedtailor.methods.fedalp import FedALP
from fedtailor.models import ModelSettings
from fedtailor.models import build as build_network
from fedtailor.runs import Callback, Interrupted, RoundReport
from fedtailor.runs.exporting.finding import RunModels
from fedtailor.runs.store import Store
from fedtailor.weights import Weights, mean
from tests.support.problem import Played, play, targets

HERE = ([0.0], [4.0, 4.0, 4.0])
BODY, HEAD = "0.weight", "1.weight"
PRODUCT: dict[str, Any] = {"model": "tests.support.problem:Product", "lr": 0.1}


def scalars(weights: Mapping[str, Tensor]) -> list[float]:
    return [float(weights[BODY]), float(weights[HEAD])]


def group_models(played: Played) -> list[list[float]]:
    return [scalars(model) for model in played.loop.server.state["groups"].models]


def stepped(w: Sequence[float], target: float) -> list[float]:
    """The change of (b, h) in one step of a client."""
    b, h = w
    return [-0.1 * (h * b - target) * h, -0.1 * (h * b - target) * b]


def digits(folder: Path, method: Mapping[str, Any], **more: Any) -> fedtailor.Run:
    settings = {
        "rounds": 6,
        "method": dict(method),
        "data": {"source": "digits", "clients": 8, "samples": 400, "partition": {"kind": "dirichlet", "alpha": 0.3}},
        "model": {"name": "mlp", "arguments": {"hidden": [16]}},
        "training": {"lr": 0.05, "momentum": 0.5, "batch_size": 16, "epochs": 1},
        "engine": {"kind": "inline"},
        **more,
    }
    return fedtailor.run(settings, folder=folder)


def largest_gap(one: Weights, other: Weights) -> float:
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


def test_hand_fedalp(tmp_path: Path) -> None:
    """beta = 1/2, two groups, T_pre = 1.

    Round 1 from (1, 2): residuals 2 and -2, dw_0 = (-0.4, -0.2), dw_1 = (0.4, 0.2); rho_01 = -1, each client is a
    group. w_g = (1, 2) + (dw_0 + 3 dw_1) / 4 = (1.2, 2.1). |D| = (0.4, 0.2) in both: Psi = (1/2, 1/4).
    Round 2: w_m = w_g, so W = (1.2, 2.1), residuals 2.52 and -1.48: dw_0 = (-0.5292, -0.3024),
    dw_1 = (0.3108, 0.1776); w_0 = (0.6708, 1.7976), w_1 = (1.5108, 2.2776), w_g = (1.3008, 2.1576).
    Round 3: W_0 = (0.9858, 2.0676), W_1 = (1.4058, 2.1876); their steps are added to w_m and to w_g.
    """
    method = FedALP(beta=0.5, groups=2, warmup=0.34)
    two = play(tmp_path / "2", method, targets(*HERE), rounds=2, **PRODUCT)
    three = play(tmp_path / "3", method, targets(*HERE), rounds=3, **PRODUCT)
    state = two.loop.server.state
    assert state["groups"].member == {0: 0, 1: 1}
    assert state["clustering"].round == 1
    assert state["clustering"].similarity.tolist() == [pytest.approx([1, -1]), pytest.approx([-1, 1])]
    assert state["clustering"].psi.tolist() == [pytest.approx([0.5, 0.25], abs=1e-6)] * 2
    assert group_models(two) == [pytest.approx([0.6708, 1.7976], abs=1e-6), pytest.approx([1.5108, 2.2776], abs=1e-6)]
    assert scalars(two.loop.server.weights) == pytest.approx([1.3008, 2.1576], abs=1e-6)
    # what the clients receive in round 3
    w = {0: [0.9858, 2.0676], 1: [1.4058, 2.1876]}
    assert three.loss("received", 0, 3) == pytest.approx((w[0][0] * w[0][1]) ** 2 / 2, abs=1e-5)
    assert three.loss("received", 1, 3) == pytest.approx((w[1][0] * w[1][1] - 4) ** 2 / 2, abs=1e-5)
    models = two.loop.method.models(two.loop.server)
    assert {name: scalars(model) for name, model in models.items()} == {
        "global": pytest.approx([1.3008, 2.1576], abs=1e-6),
        "group/0": pytest.approx(w[0], abs=1e-6),
        "group/1": pytest.approx(w[1], abs=1e-6),
    }
    steps = [stepped(w[0], 0.0), stepped(w[1], 4.0)]
    assert group_models(three) == [
        pytest.approx([0.6708 + steps[0][0], 1.7976 + steps[0][1]], abs=1e-5),
        pytest.approx([1.5108 + steps[1][0], 2.2776 + steps[1][1]], abs=1e-5),
    ]
    moved = [g + a / 4 + 3 * b / 4 for g, a, b in zip([1.3008, 2.1576], *steps, strict=True)]
    assert scalars(three.loop.server.weights) == pytest.approx(moved, abs=1e-5)
    assert two.store.state_keys("client") == []


# Groups


def formed(
    method: FedALP, updates: Sequence[Weights], sizes: Sequence[int], model: str = "tests.support.problem:Product"
) -> Server:
    """A server whose groups come from these updates."""
    federation = targets(*([0.0] * size for size in sizes))
    network = build_network(ModelSettings(name=model), inputs_of(federation.samples), 0)
    memory = Memory(lambda client: None, set())
    server = Server(network, tuple(sizes), TrainingSettings(), Moment(0, 0, 1, 2), method.shared(network), memory)
    method.start_server(server)
    steps = method.finish(server, Replies({k: uploaded(server, u, sizes[k]) for k, u in enumerate(updates)}, {}))
    assert next(steps).payloads == {}  # nobody is absent
    with pytest.raises(StopIteration):
        steps.send(Replies({}, {}))
    return server


def uploaded(server: Server, update: Weights, samples: int) -> Payload:
    return Payload({"model": {n: t + update[n] for n, t in server.weights.items()}}, {"samples": samples})


def change(body: float, head: float) -> Weights:
    return {BODY: torch.tensor([[body]]), HEAD: torch.tensor([[head]])}


def test_psi_and_the_groups_by_hand() -> None:
    """Clients 0 (one sample, (4, 0)) and 2 (three, (4, 4)) have cosine 0.71, client 1 with (-6, -8) is away from both.

    D_0 = (4, 0) / 4 + 3 (4, 4) / 4 = (4, 3), D_1 = (-6, -8): Psi = beta (1, 3/4) and beta (3/4, 1).
    """
    server = formed(FedALP(beta=0.8, groups=2), [change(4, 0), change(-6, -8), change(4, 4)], [1, 2, 3])
    assert server.state["groups"].member == {0: 0, 2: 0, 1: 1}
    assert server.state["clustering"].psi.tolist() == [pytest.approx([0.8, 0.6]), pytest.approx([0.6, 0.8])]
    assert server.state["clustering"].layers == ["0", "1"]
    assert [scalars(update) for update in server.state["clustering"].updates] == [[4, 3], [-6, -8]]
    # all group models start as the global one: (1, 2) + ((4, 0) + 2 (-6, -8) + 3 (4, 4)) / 6
    assert [scalars(model) for model in server.state["groups"].models] == [
        pytest.approx([1 + 4 / 6, 2 - 4 / 6], abs=1e-6)
    ] * 2


class Biased(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(1, 1), nn.Linear(1, 1, bias=False))


def test_a_layer_is_its_weight_and_its_bias_together() -> None:
    """|D| = sqrt(3^2 + 4^2) = 5 in the first layer, 10 in the second."""
    update = {"0.weight": torch.tensor([[3.0]]), "0.bias": torch.tensor([4.0]), HEAD: torch.tensor([[10.0]])}
    server = formed(FedALP(beta=1.0, groups=1), [update], [1], model="tests.methods.test_fedalp:Biased")
    assert server.state["clustering"].layers == ["0", "1"]
    assert server.state["clustering"].psi.tolist() == [pytest.approx([0.5, 1.0])]


def test_a_group_that_has_not_changed_has_no_weight() -> None:
    server = formed(FedALP(beta=1.0, groups=2), [change(0, 0), change(1, 2)], [1, 1])
    assert server.state["clustering"].psi.tolist() == [[0.0, 0.0], pytest.approx([0.5, 1.0])]


@pytest.mark.parametrize(
    ("warmup", "rounds", "wanted"),
    [(0.5, 40, 20), (0.4, 5, 2), (0.5, 5, 3), (0.7, 10, 7), (0.01, 10, 1), (0.99, 10, 9), (1, 10, 10), (0.5, 1, 1)],
)
def test_t_pre_is_a_share_of_the_rounds(warmup: float, rounds: int, wanted: int) -> None:
    assert FedALP(warmup=warmup).t_pre(rounds) == wanted


# Identities


@pytest.mark.parametrize(
    "participation", [{}, {"ratio": 0.5, "dropout": 0.2}], ids=["everybody", "half of them, and drop-outs"]
)
@pytest.mark.parametrize(
    "model",
    [
        {"name": "mlp", "arguments": {"hidden": [16]}},
        {"name": "tests.support.problem:Normalised", "running_statistics": "averaged"},
    ],
    ids=["mlp", "normalised"],
)
@pytest.mark.parametrize("method", [{"beta": 0}, {"groups": 1, "beta": 1}], ids=["beta=0", "groups=1"])
def test_without_personalisation_the_global_model_is_that_of_fedavg(
    method: dict[str, Any], model: dict[str, Any], participation: dict[str, Any], tmp_path: Path
) -> None:
    more = {"model": model, "participation": participation}
    with (
        digits(tmp_path / "1", {"name": "fedalp", "warmup": 0.3, **method}, **more) as one,
        digits(tmp_path / "2", {"name": "fedavg"}, **more) as other,
    ):
        assert largest_gap(one.server_state()["model"], other.server_state()["model"]) < 1e-5
        assert one.server_state()["groups"]["member"]


def test_with_everybody_the_global_model_is_the_mean_of_the_group_models(tmp_path: Path) -> None:
    """Line 11 of Alg. 1: w_g = sum_m (sum_{k in G_m} gamma_k) w_m."""
    with digits(tmp_path / "run", {"name": "fedalp", "groups": 3, "warmup": 0.3}) as run:
        state, sizes = run.server_state(), run.federation().train.sizes
    shares = [sum(int(sizes[k]) for k, group in state["groups"]["member"].items() if group == m) for m in range(3)]
    assert largest_gap(mean(state["groups"]["models"], shares), state["model"]) < 1e-5
    assert largest_gap(state["groups"]["models"][0], state["model"]) > 1e-2


def test_warmup_of_one_is_fedavg_to_the_bit(tmp_path: Path) -> None:
    with (
        digits(tmp_path / "1", {"name": "fedalp", "warmup": 1}) as one,
        digits(tmp_path / "2", {"name": "fedavg"}) as other,
    ):
        assert largest_gap(one.server_state()["model"], other.server_state()["model"]) == 0
        assert one.server_state()["groups"]["member"] == {}


def test_settings_that_switch_it_off_are_said() -> None:
    fedalp = find("fedalp")
    assert [bool(fedalp(**s).inert()) for s in ({}, {"beta": 0}, {"warmup": 1}, {"groups": 1})] == [False] + [True] * 3


def test_beta_of_one_makes_a_layer_of_every_group_its_own(tmp_path: Path) -> None:
    """That layer of W is the group's to the bit, whatever the global model is; the others take something of it."""
    with digits(tmp_path / "run", {"name": "fedalp", "beta": 1, "groups": 3}) as run:
        state = run.server_state()
        with RunModels(run.folder) as found:
            models = {name: one.weights for name, one in found.server().items()}
    assert state["clustering"]["psi"].max(1).values.tolist() == [1.0] * 3
    for m, psi in enumerate(state["clustering"]["psi"].tolist()):
        for layer, share in zip(state["clustering"]["layers"], psi, strict=True):
            w, w_m, w_g = (
                source[f"{layer}.weight"]
                for source in (models[f"group/{m}"], state["groups"]["models"][m], state["model"])
            )
            assert torch.equal(w, w_m) == (share == 1.0)
            assert torch.allclose(w, share * w_m + (1 - share) * w_g, atol=1e-6)


# Mechanism

ONE_LABEL: dict[str, Any] = {
    "rounds": 10,
    "data": {"source": "digits", "clients": 20, "partition": {"kind": "one-label", "train": 40, "test": 20}},
    "training": {"lr": 0.05, "batch_size": 10, "epochs": 2},
    "evaluation": {"every": 5, "final": False},
}


def test_clients_with_one_label_each_are_grouped_by_it_and_served_better(tmp_path: Path) -> None:
    """The paper's setting A in small: groups recover the digits, local accuracy rises above the global model's."""
    with digits(tmp_path / "1", {"name": "fedalp"}, **ONE_LABEL) as run:
        labels = label_counts(run.federation()).argmax(1)
        groups = run.server_state()["groups"]["member"]
        assert adjusted_rand_score(labels[list(groups)], list(groups.values())) == 1.0
        assert run.server_state()["clustering"]["chosen"] == "by silhouette"
        local, general = run.last()["received"].pooled, run.last()["global"].pooled
    with digits(tmp_path / "2", {"name": "fedavg"}, **ONE_LABEL) as run:
        plain = run.last()["received"].pooled
    assert local > 1.2 * plain
    assert local > 1.2 * general


def test_the_more_beta_the_more_personal(tmp_path: Path) -> None:
    received = []
    for beta in (0.0, 0.1, 0.6):
        with digits(tmp_path / str(beta), {"name": "fedalp", "beta": beta}, **ONE_LABEL) as run:
            received.append(run.last()["received"].loss)
    assert received == sorted(received, reverse=True)
    assert received[0] > 2 * received[-1]


# Circumstances


def test_in_round_t_pre_everybody_is_asked_and_only_the_cohort_counts(tmp_path: Path) -> None:
    more = {"participation": {"ratio": 0.25}, "rounds": 4}
    with (
        digits(tmp_path / "1", {"name": "fedalp"}, **more) as one,
        digits(tmp_path / "2", {"name": "fedavg"}, **more) as other,
    ):
        state = one.server_state()
        assert state["clustering"]["round"] == 2
        assert state["clustering"]["clients"] == list(range(8)) == sorted(state["groups"]["member"])
        for round in (1, 2):
            assert one.scores("global", round) == other.scores("global", round)
        trained = {round: [t["client"] for t in one.tasks() if t["round"] == round and t["steps"]] for round in (2, 3)}
        assert trained[2] == list(range(8))
        assert len(trained[3]) == 2
        first, second, *_ = (row["bytes_up"] for row in one.rounds())
        assert second == 4 * first


def test_absent_clients_probe_from_the_model_of_the_round_not_from_the_new_one() -> None:
    """Their updates must be comparable with the cohort's, which started from the model before the round."""
    network = build_network(ModelSettings(name="tests.support.problem:Product"), inputs_of(targets(*HERE).samples), 0)
    method, memory = FedALP(groups=2), Memory(lambda client: None, set())
    server = Server(network, (1, 3), TrainingSettings(), Moment(0, 0, 1, 2), method.shared(network), memory)
    method.start_server(server)
    before = scalars(server.weights)
    asked = next(method.finish(server, Replies({0: uploaded(server, change(1.0, -1.0), 1)}, {})))
    assert scalars(server.weights) != before
    assert scalars(asked.payloads[1]["model"]) == before
    assert list(asked.payloads) == [1]


def test_a_client_that_is_only_asked_stays_as_it_was() -> None:
    """Even if its running statistics are its own, which training would move."""
    federation = build(DataSettings.model_validate({"clients": 4, "samples": 200}), 0)
    model = ModelSettings(name="tests.support.problem:Normalised", running_statistics="local")
    worker = Worker(Job(FedALP(), model, TrainingSettings(lr=0.05), 0, federation))
    payload = Payload({"model": {n: t for n, t in worker.initial.items() if n in worker.shared}}).pack()
    moment = Moment(0, 0, 1, 4)
    state = worker.execute(Task("fit", 0, moment, 1, payload)).state
    asked = worker.execute(Task("ask", 0, moment, 1, payload, state, question="probe"))
    assert asked.failure is None
    assert asked.state == state
    assert asked.reply is not None
    assert largest_gap(Payload.unpack(asked.reply)["model"], Payload.unpack(payload)["model"]) > 1e-3


def test_a_group_without_a_client_in_the_cohort_stays_as_it_is(tmp_path: Path) -> None:
    """One of the two clients trains in round 2: the model of the other's group is still w_g of round 1."""
    method = FedALP(groups=2)
    one = play(tmp_path / "1", method, targets(*HERE), rounds=1, participation={"clients": 1}, **PRODUCT)
    two = play(tmp_path / "2", method, targets(*HERE), rounds=2, participation={"clients": 1}, **PRODUCT)
    (last,) = two.store.rows("SELECT cohort FROM rounds WHERE round = 2")
    (present,) = json.loads(last["cohort"])
    before, groups = scalars(one.loop.server.weights), two.loop.server.state["groups"].member
    absent = 1 - present
    assert group_models(two)[groups[absent]] == before
    assert group_models(two)[groups[present]] != before
    # the only client of the round is the group's and the cohort's: both models make the same step
    assert group_models(two)[groups[present]] == pytest.approx(scalars(two.loop.server.weights), abs=1e-6)


class Late(FedALP):
    """Client 2 cannot be reached before round 3."""

    name = ""

    def receive(self, client: Client, payload: Payload) -> None:
        if client.id == 2 and client.round < 3:
            raise RuntimeError("not there yet")
        super().receive(client, payload)


def test_who_comes_later_receives_the_global_model_and_joins_the_nearest_group(tmp_path: Path) -> None:
    federation = targets([0.0], [4.0, 4.0, 4.0], [0.0, 0.0])
    method = Late(groups=2, warmup=0.25, beta=1.0)
    before = play(tmp_path / "2", method, federation, rounds=2, **PRODUCT)
    first = play(tmp_path / "3", method, federation, rounds=3, **PRODUCT)
    after = play(tmp_path / "4", method, federation, rounds=4, **PRODUCT)
    assert before.loop.server.state["groups"].member == {0: 0, 1: 1}
    w_g = scalars(before.loop.server.weights)
    assert first.loss("received", 2, 3) == pytest.approx((w_g[0] * w_g[1]) ** 2 / 2, abs=1e-6)
    assert after.loop.server.state["groups"].member == {0: 0, 1: 1, 2: 0}
    joined = after.loop.server.state["groups"].joined
    assert [(event.round, event.client, event.group) for event in joined] == [(3, 2, 0)]
    # client 2's first change counts for the global model, which client 0 alone would not move so
    alone = play(tmp_path / "alone", method, targets([0.0], [4.0, 4.0, 4.0]), rounds=3, **PRODUCT)
    assert group_models(first) == [pytest.approx(w, abs=1e-6) for w in group_models(alone)]
    assert scalars(first.loop.server.weights) != pytest.approx(scalars(alone.loop.server.weights), abs=1e-3)
    w_0 = group_models(first)[0][0]  # beta = 1: the body is the group's own
    assert after.loss("received", 2, 4) == after.loss("received", 0, 4)
    assert float(after.loop.server.state["clustering"].psi[0, 0]) == 1.0
    assert after.loss("received", 0, 4) < first.loss("received", 0, 3)
    assert w_0 < w_g[0]


def test_if_nobody_answers_in_round_t_pre_the_next_round_forms_the_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def everybody(experiment: object, cohort: Iterable[int], moment: Moment) -> list[int]:
        return list(cohort) if moment.round == 1 else []

    monkeypatch.setattr("fedtailor.runs.cohort.drop_outs", everybody)
    played = play(tmp_path / "run", FedALP(groups=2, warmup=0.1), targets(*HERE), rounds=4, **PRODUCT)
    assert played.loop.server.state["clustering"].round == 2


def test_a_single_client_and_more_groups_than_clients(tmp_path: Path) -> None:
    for groups in (5, "auto"):
        alone = play(tmp_path / f"1-{groups}", FedALP(groups=groups), targets([4.0]), rounds=3, **PRODUCT)
        assert alone.loop.server.state["groups"].member == {0: 0}
    both = play(tmp_path / "2", FedALP(groups=5), targets(*HERE), rounds=3, **PRODUCT)
    assert both.loop.server.state["groups"].member == {0: 0, 1: 1}


class Counted(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1, affine=False))


def test_running_statistics_are_averaged_and_fused_with_their_layer_but_weigh_nothing() -> None:
    """From a variance of 1 in w_m and clients that end at 0.5 and 0.25 (with weights 1 and 3): 0.3125.

    Added up like weights, from W with a variance of 3, it would be 1 + 0.3125 - 3 < 0.
    """
    method = FedALP(beta=1.0, groups=1)
    variance, counter = "1.running_var", "1.num_batches_tracked"
    update = {BODY: torch.tensor([[2.0]]), variance: torch.tensor([7.0]), counter: torch.tensor(4)}
    still = {"1.running_mean": torch.zeros(1)}
    server = formed(method, [{**update, **still}], [1], model="tests.methods.test_fedalp:Counted")
    assert server.state["clustering"].psi.tolist() == [[1.0, 0.0]]
    server.state["clustering"].psi = torch.tensor([[1.0, 0.5]])
    server.state["groups"].models[0] = {**server.weights, variance: torch.tensor([1.0]), counter: torch.tensor(10)}
    server.weights = {**server.weights, variance: torch.tensor([5.0]), counter: torch.tensor(3)}
    sent = method.prepare(server, [0])[0]["model"]
    assert float(sent[variance]) == 3.0
    assert (int(sent[counter]), sent[counter].dtype) == (6, torch.int64)  # 6.5 to the even neighbour
    replies = {
        k: Payload({"model": {**sent, variance: torch.tensor([end]), counter: torch.tensor(8)}}, {"samples": samples})
        for k, (end, samples) in enumerate([(0.5, 1), (0.25, 3)])
    }
    server.state["groups"].member = {0: 0, 1: 0}
    list(method.finish(server, Replies(replies, {})))
    for model in (server.weights, server.state["groups"].models[0]):
        assert float(model[variance]) == 0.3125
        assert int(model[counter]) == 8
        assert list(model) == list(sent)


# Storing


class StopAt(Callback):
    """Presses Ctrl-C during a round."""

    def __init__(self, round: int) -> None:
        self.round = round

    def round_done(self, report: RoundReport) -> None:
        if report.round == self.round:
            os.kill(os.getpid(), signal.SIGINT)


EXACT: dict[str, Any] = {
    "rounds": 6,
    "method": {"name": "fedalp", "warmup": 0.5},
    "data": {"source": "digits", "clients": 8, "samples": 300, "partition": {"kind": "dirichlet", "alpha": 0.3}},
    "training": {"lr": 0.05, "momentum": 0.5, "batch_size": 16, "epochs": 1},
    "participation": {"ratio": 0.5, "dropout": 0.3},
    "engine": {"kind": "inline"},
}


def everything(folder: Path) -> dict[str, Any]:
    with Store(folder) as store:
        return {
            "state": store.rows("SELECT scope, key, data FROM state ORDER BY scope, key"),
            "metrics": store.rows("SELECT * FROM metrics ORDER BY episode, round, model"),
            "bytes": store.rows("SELECT round, bytes_up, bytes_down FROM rounds ORDER BY round"),
        }


@pytest.mark.parametrize("round", [2, 3, 5])
def test_interrupted_around_the_clustering_and_resumed_is_the_same_to_the_bit(round: int, tmp_path: Path) -> None:
    fedtailor.run(EXACT, folder=tmp_path / "whole").close()
    with pytest.raises(Interrupted):
        fedtailor.run(EXACT, folder=tmp_path / "run", callbacks=StopAt(round))
    with fedtailor.Run(tmp_path / "run") as run:
        assert bool(run.server_state()["groups"]["member"]) == (round >= 3)
    fedtailor.resume(tmp_path / "run").close()
    assert everything(tmp_path / "run") == everything(tmp_path / "whole")


def test_looking_forms_no_groups_and_trains_nobody(tmp_path: Path) -> None:
    """Evaluation previews what clients would receive; with it switched off the same comes out."""
    ends = []
    for every in (0, 1):
        settings = {**EXACT, "evaluation": {"every": every, "final": bool(every)}}
        fedtailor.run(settings, folder=tmp_path / str(every)).close()
        ends.append(everything(tmp_path / str(every))["state"])
    assert ends[0] == ends[1]


def test_a_group_model_can_be_exported(tmp_path: Path) -> None:
    with digits(tmp_path / "run", {"name": "fedalp", "groups": 2}) as run:
        fedtailor.export_global(run.folder, tmp_path / "group-1", "group/1")
        federation = run.federation()
        rows = federation.test[0]
        predicted = fedtailor.load_model(tmp_path / "group-1").predict(federation.samples.x[rows])
    assert len(predicted) == len(rows)


def test_what_was_recorded_survives_the_store(tmp_path: Path) -> None:
    with digits(tmp_path / "run", {"name": "fedalp"}) as run:
        state = run.server_state()
    found = state["clustering"]
    assert set(found["scores"]) == set(range(2, 8))
    best = max(found["scores"], key=found["scores"].__getitem__)
    assert best == len(state["clustering"]["psi"]) == len(state["groups"]["models"])
    assert np.array_equal(ward(found["similarity"], "rows").numpy(), found["linkage"].numpy())
    assert state["groups"]["member"] == dict(zip(range(8), cut(found["linkage"], best), strict=True))
