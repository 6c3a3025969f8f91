"""Hand-derived values, identities, mechanism and exactness of bwa, adaptive-b, adaptive-aw and bo-bwa.

Client 0 has one training sample with target 0, client 1 three with target 4; their validation targets are 1 and 4. A
step with learning rate 1/2 on (w - a)^2 / 2 moves w half of the way to a, so client 1 goes half of the way with
batches of 3 or more, three quarters with batches of 2 and seven eighths with batches of 1. A regression has no
accuracy: it is 0.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

import fedtailor
from fedtailor.agents import PPO, IntegerHead, PPOSettings, SimplexHead
from fedtailor.data import DataSettings, Federation, build
from fedtailor.messages.trees import pack, plain, unpack
from fedtailor.methods import Client, Method, Payload, Question, Server, find, read_policy
from fedtailor.methods.adjustment import ADJUSTMENT, Adjusted
from fedtailor.methods.bo_bwa import BoBWA
from fedtailor.methods.bwa import BWA, BWAAgents
from fedtailor.runs import Callback, RoundReport, pretrain, resume, run
from fedtailor.runs.store import Store
from tests.methods.test_feddrl import HERE, Decider, W, judged, largest_gap, model_of

SCALAR: dict[str, Any] = {
    "rounds": 2,
    "model": {"name": "tests.support.problem:Scalar"},
    "training": {"lr": 0.5, "epochs": 1, "batch_size": 1000, "loss": "squared-error"},
    "engine": {"kind": "inline"},
}
DIGITS: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 4, "samples": 240, "partition": {"kind": "mixed", "sigma": 0.5}},
    "model": {"name": "linear"},
    "training": {"lr": 0.05, "epochs": 1, "batch_size": 10},
    "engine": {"kind": "inline"},
    "method": {"name": "bwa", "agents": {"adjustment": {"hidden": [16, 16]}}},
}


def agents(units: int = 4, **changes: Any) -> dict[str, Any]:
    """The setting ``agents`` with two small layers."""
    return {"adjustment": {"hidden": [units, units], **changes}}


def tables(units: int = 4, **changes: Any) -> BWAAgents:
    return BWAAgents.model_validate(agents(units, **changes))


def with_method(settings: dict[str, Any], method: str | Method, **changes: Any) -> Any:
    if isinstance(method, Method):
        return fedtailor.experiment({**settings, "method": {"name": "fedavg"}}).model_copy(update={"method": method})
    return {**settings, "method": {"name": method, **changes}}


def always(*actions: Sequence[float]) -> dict[str, Decider]:
    """These actions, round by round, the last of them for ever; slots without a number get zeros."""

    def script(server: Server, question: Question) -> Tensor:
        numbers = actions[min(server.round, len(actions)) - 1]
        return torch.tensor([*numbers, *[0.0] * (server.largest_cohort + 1 - len(numbers))])

    return {ADJUSTMENT: script}


def two() -> Federation:
    return judged(HERE, ([1.0], [4.0]))


def test_hand_bwa(tmp_path: Path) -> None:
    """(b, lambda) = (3, 1/2, 1/2), then (2, 3/4, 1/4).

    w = 1 loses 0 and 9/2 on validation data, pooled 9/4. Round 1: the clients hold 1/2 and 5/2 (b = 3 is clipped to 1
    for client 0), which lose 1/8 and 9/8, divergences 1/2 and 3/2; w = 3/2 loses 1/8 and 25/8, pooled 13/8, divergence
    1/2. Round 2: 3/4 and, in two steps, 11/4, 27/8; w = 9/16 + 27/32 = 45/32. All rewards are 0.
    """
    deciders = always([3, 0.5, 0.5], [2, 0.75, 0.25])
    settings = with_method(SCALAR, "bwa", agents=agents())
    with run(settings, folder=tmp_path / "run", federation=two(), deciders=deciders) as done:
        assert float(model_of(done)[W]) == pytest.approx(45 / 32, abs=1e-6)
        one, other = done.decisions()
        assert one["observation"].tolist() == [[0, 0, 0, 2.25, 0, 0], [4.5, 0, 0, 2.25, 0, 0]]
        assert other["observation"].tolist() == [[0.125, 0, 0.5, 1.625, 0, 0.5], [1.125, 0, 1.5, 1.625, 0, 0.5]]
        assert [row["mask"].tolist() for row in (one, other)] == [[True, True]] * 2
        assert [row["reward"] for row in (one, other)] == [0.0, 0.0]
        assert done.server_state()["progress"]["clipped"] == {0: 2}
        agent = done.agents()["adjustment"]
        assert agent["steps"] == 1
        assert agent["buffer"] == {}
        # down: the model, a batch size in 6 letters, the new model; up: the model and three numbers, then three; in
        # round 1 the initial model and its three numbers first
        assert [(row["bytes_down"], row["bytes_up"]) for row in done.rounds()] == [
            (2 * (4 + 4 + 6 + 4), 2 * (24 + 4 + 24 + 24)),
            (2 * (4 + 6 + 4), 2 * (4 + 24 + 24)),
        ]
        assert done._store.state_keys("client") == []


def test_hand_adaptive_b(tmp_path: Path) -> None:
    """b = 2, then 3; the weights are 1/4 and 3/4: w = (1/2 + 3 * 13/4) / 4 = 41/16, then (41/32 + 3 * 105/32) / 4."""
    settings = with_method(SCALAR, "adaptive-b", agents=agents())
    deciders: dict[str, Decider] = {ADJUSTMENT: lambda server, _: torch.tensor([1.0 + server.round])}
    with run(settings, folder=tmp_path / "run", federation=two(), deciders=deciders) as done:
        assert float(model_of(done)[W]) == pytest.approx(356 / 128, abs=1e-6)


def test_hand_adaptive_aw(tmp_path: Path) -> None:
    """Weights (1/4, 3/4), full batches: w = 1/8 + 15/8 = 2; then (1/2, 1/2) gives (1 + 3) / 2, (1/4, 3/4) 5/2."""
    settings = with_method(SCALAR, "adaptive-aw", agents=agents())
    for share, wanted in ((0.5, 2.0), (0.25, 2.5)):

        def script(server: Server, _question: Question, share: float = share) -> Tensor:
            return torch.tensor([0.25, 0.75] if server.round == 1 else [share, 1 - share])

        deciders = {ADJUSTMENT: script}
        with run(settings, folder=tmp_path / str(share), federation=two(), deciders=deciders) as done:
            assert float(model_of(done)[W]) == pytest.approx(wanted, abs=1e-6)


def test_hand_bo_bwa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """b = 2 and numbers (0.2, 0.6), weights 1/4 and 3/4, in both rounds: w = 41/16, then (41/32 + 3 * 233/64) / 4.

    The objective is 64^(0 - 1) twice.
    """
    monkeypatch.setattr(BoBWA, "_suggestion", lambda *_: {"batch": 2, "weights": [0.2, 0.6], "value": 0.0})
    with run(with_method(SCALAR, "bo-bwa"), folder=tmp_path / "run", federation=two()) as done:
        assert float(model_of(done)[W]) == pytest.approx((41 / 32 + 699 / 64) / 4, abs=1e-6)
        (trial,) = done.server_state()["trials"]
        assert trial == {"batch": 2, "weights": [0.2, 0.6], "value": 2 / 64}
        assert [row["action"].tolist() for row in done.decisions()] == [pytest.approx([2, 0.25, 0.75])] * 2


# Rewards


class Told(BWA):
    """A global model that is as accurate as the round says: 0, 4, 2, 3, 8 of 16 samples right."""

    name = ""

    def judge(self, client: Client, payload: Payload) -> Payload:
        first = float(payload["model"][W]) == 1.0
        correct = 0 if first else (2, 1, 1.5, 4)[client.round - 1]
        return Payload(numbers={"summed": 0.0, "correct": correct, "samples": 8})


@pytest.mark.parametrize(
    ("reward", "wanted"),
    [
        # from 0, counted as 1 of 16, to the first maximum; down; up, but lower than before; a maximum in round 4
        ("gain", [4.0 * 1, -0.5, 0.5, (5 / 16) / (3 / 16) * 4]),
        ("objective", [64**-0.75, 64**-0.875, 64**-0.8125, 64**-0.5]),
        ("rise", [0.25, -0.125, 0.0625, 0.3125]),
    ],
)
def test_the_rewards_by_hand(tmp_path: Path, reward: str, wanted: list[float]) -> None:
    settings = with_method({**SCALAR, "rounds": 4}, Told(agents=tables(), reward=reward))  # type: ignore[arg-type]
    with run(settings, folder=tmp_path / "run", federation=two(), deciders=always([3, 0.5, 0.5])) as done:
        assert done.rewards()[ADJUSTMENT] == pytest.approx(wanted, abs=1e-6)
        assert [float(row["observation"][0, 4]) for row in done.decisions()] == [0, 0.25, 0.125, 0.1875]


class Silent(Told):
    """Client 1 judges nothing in round 1 but the initial model."""

    def judge(self, client: Client, payload: Payload) -> Payload:
        if client.id == 1 and client.round == 1 and float(payload["model"][W]) != 1.0:
            raise RuntimeError("no time")
        if client.id == 1:
            return Payload(numbers={"summed": 0.0, "correct": 8, "samples": 8})
        return super().judge(client, payload)


def test_a_reward_compares_two_models_on_the_data_of_the_same_clients(tmp_path: Path) -> None:
    """Client 1 is always right: 8/16 before round 1, but without it 0/8 and 2/8; with both 10/16 and 9/16."""
    with run(with_method(SCALAR, Silent(agents=tables())), folder=tmp_path / "run", federation=two()) as done:
        assert done.rewards()[ADJUSTMENT] == pytest.approx([2.0, (9 - 10) / 10], abs=1e-6)


def test_without_validation_data_nothing_is_learned_and_nothing_breaks(tmp_path: Path) -> None:
    nobody = judged(HERE, ([], []))
    with run(with_method(SCALAR, "bwa", agents=agents()), folder=tmp_path / "run", federation=nobody) as done:
        assert done.rewards() == {}
        assert done.agents()["adjustment"]["steps"] == 0
        assert float(model_of(done)[W]) != 1.0


# Identities


def by_size(batch: float | None) -> dict[str, Decider]:
    def script(server: Server, _question: Question) -> Tensor:
        sizes = torch.tensor([float(size) for size in server.sizes])
        return torch.cat([torch.tensor([] if batch is None else [batch]), sizes / sizes.sum()])

    return {ADJUSTMENT: script}


def test_one_batch_size_and_weights_by_data_size_are_fedavg(tmp_path: Path) -> None:
    uneven = {**DIGITS, "data": {"clients": 4, "samples": 240}, "validation": True}
    seven = {**uneven, "training": {**DIGITS["training"], "batch_size": 7}}

    def model(name: str, settings: Any, deciders: dict[str, Decider] | None = None) -> dict[str, Tensor]:
        with run(settings, folder=tmp_path / name, deciders=deciders) as done:
            return model_of(done)

    plain = model("plain", with_method(seven, "fedavg"))
    assert largest_gap(plain, model("bwa", with_method(uneven, "bwa"), by_size(7.0))) < 1e-6
    assert largest_gap(plain, model("other", with_method(uneven, "bwa"), by_size(8.0))) > 1e-3
    batch: dict[str, Decider] = {ADJUSTMENT: lambda *_: torch.tensor([7.0])}
    assert largest_gap(plain, model("b", with_method(uneven, "adaptive-b"), batch)) == 0.0
    assert largest_gap(plain, model("aw", with_method(seven, "adaptive-aw"), by_size(None))) < 1e-6
    assert largest_gap(plain, model("aw10", with_method(uneven, "adaptive-aw"), by_size(None))) > 1e-3
    assert largest_gap(plain, model("bo", with_method(uneven, "bo-bwa"), by_size(7.0))) < 1e-6


# Failures


class Absent(BWA):
    """Client 0 does not answer the first question; client 1 does not train in round 2."""

    name = ""

    def judge(self, client: Client, payload: Payload) -> Payload:
        if client.id == 0 and client.round == 1:
            raise RuntimeError("no time")
        return super().judge(client, payload)

    def fit(self, client: Client) -> None:
        if client.id == 1 and client.round == 2:
            raise RuntimeError("no power")
        super().fit(client)


def test_who_does_not_answer_is_masked_and_the_others_weights_sum_to_one(tmp_path: Path) -> None:
    """Targets 0, 4, 8; weights (1/2, 1/4, 1/4) in the order of those who are there.

    Round 1 without client 0: clients 1 and 2 hold 5/2 and 9/2 and weigh 1/2 and 1/4: w = 19/6. Round 2: all three are
    asked, client 0 for w's scores; clients 0 and 2 hold 19/12 and 67/12 and weigh 1/2 and 1/4: w = 35/12.
    Round 3: client 1 scores w again, at divergence 0.
    """
    three = judged(([0.0], [4.0], [8.0]), ([0.0], [4.0], [8.0]))
    settings = with_method({**SCALAR, "rounds": 3}, Absent(agents=tables()))
    with run(settings, folder=tmp_path / "run", federation=three, deciders=always([3, 0.5, 0.25, 0.25])) as done:
        one, two, three_ = done.decisions()
        assert [row["mask"].tolist() for row in (one, two, three_)] == [[True, True, False], [True] * 3, [True] * 3]
        assert one["observation"][2].tolist() == [0.0] * 6
        assert one["observation"][:, 0].tolist() == [4.5, 24.5, 0.0]
        assert two["observation"][:, 2].tolist() == [0.0, 1.5, 3.5]
        assert two["observation"][0, 0] == pytest.approx((19 / 6) ** 2 / 2, abs=1e-5)
        assert two["observation"][0, 5] == pytest.approx(13 / 6, abs=1e-6)
        assert three_["observation"][:, 2].tolist() == pytest.approx([19 / 12, 0.0, 29 / 12], abs=1e-6)
        assert three_["observation"][1, 0] == pytest.approx((35 / 12 - 4) ** 2 / 2, abs=1e-5)
        assert [(e["round"], e["client"]) for e in done.events() if e["kind"] == "failed"] == [(1, 0), (2, 1)]


def test_clients_that_come_and_go_fit_into_the_slots(tmp_path: Path) -> None:
    settings = {**DIGITS, "rounds": 5, "participation": {"ratio": [0.25, 0.8], "dropout": 0.3}}
    with run(settings, folder=tmp_path / "run") as done:
        for row in done.decisions():
            assert row["observation"].shape == (3, 6)
            assert row["action"][1:].sum() == pytest.approx(1.0, abs=1e-5)
            assert (row["action"][1:][~row["mask"]] == 0).all()
            assert 1 <= row["action"][0] <= 64
        assert len({int(row["mask"].sum()) for row in done.decisions()}) > 1


@pytest.mark.parametrize(
    ("threshold", "wanted", "uploads"),
    [(0.0, 0.7 * 0.5 + 0.2 * 2.5 + 0.1 * 4.5, 3), (0.15, (0.7 * 0.5 + 0.2 * 2.5) / 0.9, 2), (1.0, 0.5, 1)],
)
def test_below_the_threshold_scores_are_uploaded_and_no_model(
    tmp_path: Path, threshold: float, wanted: float, uploads: int
) -> None:
    """From w = 1 with targets 0, 4, 8 the clients come to 1/2, 5/2, 9/2; a model is 4 bytes, the heaviest is sent."""
    three = judged(([0.0], [4.0], [8.0]), ([0.0], [4.0], [8.0]))
    settings = with_method({**SCALAR, "rounds": 2}, "bwa", agents=agents(), threshold=threshold)
    deciders = always([3, 0.7, 0.2, 0.1])
    with run({**settings, "rounds": 1}, folder=tmp_path / "one", federation=three, deciders=deciders) as done:
        assert float(model_of(done)[W]) == pytest.approx(wanted, abs=1e-6)
    with run(settings, folder=tmp_path / "two", federation=three, deciders=deciders) as done:
        assert done.rounds()[1]["bytes_up"] == 3 * (24 + 24) + 4 * uploads
        assert (done.decisions()[1]["observation"][:, 2]).tolist() == [0.5, 1.5, 3.5]  # of all of them


# Learning


class Nearness(BWA):
    """The nearer the model to 4, the more accurate: more of client 1 and more of its steps are better."""

    name = ""

    def judge(self, client: Client, payload: Payload) -> Payload:
        score = 1 - abs(float(payload["model"][W]) - 4) / 4
        return Payload(numbers={"summed": 0.0, "correct": 100 * score, "samples": 100})


def test_it_learns_which_batch_size_and_whose_weights_help(tmp_path: Path) -> None:
    method = Nearness(smallest=1, largest=3, reward="objective", agents=tables(16, actor_lr=5e-3, discount=0.5))
    settings = {**SCALAR, "rounds": 4, "pretrain": {"episodes": 80}}
    with pretrain(with_method(settings, method), folder=tmp_path / "policy", federation=two()) as done:
        decisions = done.decisions()
    first, last = (torch.stack([row["action"] for row in rows]).mean(0) for rows in (decisions[:40], decisions[-40:]))
    assert 0.35 < first[2] < 0.65  # at first neither client is preferred
    assert last[2] > 0.7
    assert last[0] < first[0] - 0.3


def test_the_agent_sees_numbers_standardised_by_those_of_earlier_episodes(tmp_path: Path) -> None:
    settings = {**DIGITS, "pretrain": {"episodes": 2}}
    with pretrain(settings, folder=tmp_path / "policy") as done:
        rows = torch.cat([row["observation"][row["mask"]] for row in done.decisions()]).double()
        rows[:, [0, 2, 3, 5]] = rows[:, [0, 2, 3, 5]].log1p()
        scale = done.agents()["adjustment"]["normaliser"]["scale"]
        assert torch.allclose(scale[0], rows.mean(0).float(), atol=1e-5)
        assert torch.allclose(scale[1], rows.std(0, correction=0).float(), atol=1e-4)


def test_every_setting_matters(tmp_path: Path) -> None:
    """What the agent has become after two episodes, by setting."""
    changes: list[dict[str, Any]] = [
        {},
        {"controls": "batch"},
        {"controls": "weights"},
        {"smallest": 8},
        {"largest": 32},
        {"threshold": 0.3},
        {"reward": "objective"},
        {"reward": "objective", "alpha": 2.0},
        {"reward": "rise"},
        {"agents": agents(16, network="per-slot")},
        {"agents": agents(8)},
        {"agents": agents(16, actor_lr=1e-2)},
        {"agents": agents(16, critic_lr=1e-2)},
        {"agents": agents(16, epochs=2)},
        {"agents": agents(16, clip=0.01, actor_lr=1e-2)},
        {"agents": agents(16, discount=0.9)},
        {"agents": agents(16, discount=0.9, gae_lambda=0.5)},
        {"agents": agents(16, critic_epochs=3)},
        {"agents": agents(16, critic_first=1)},
        {"agents": agents(16, center_advantages=False)},
        {"agents": agents(16, standardise=False)},
    ]
    seen: dict[bytes, dict[str, Any]] = {}
    for i, change in enumerate(changes):
        settings = {**with_method(DIGITS, "bwa", **{"agents": agents(16), **change}), "pretrain": {"episodes": 2}}
        pretrain(settings, folder=tmp_path / str(i)).close()
        learned = (tmp_path / str(i) / "policy.safetensors").read_bytes()
        assert learned not in seen, f"{change} changes nothing over {seen[learned]}"
        seen[learned] = change


class Episodic(BWA):
    """A global model that is as accurate as the episode says."""

    name = ""
    right: ClassVar = (4, 1, 5, 6, 4, 2, 3)  # of 8; means of three in a row: 10/3, 4, 5, 4, 3

    def judge(self, client: Client, payload: Payload) -> Payload:
        correct = self.right[client.moment.episode]
        return Payload(numbers={"summed": 0.0, "correct": correct, "samples": 8})


@pytest.mark.parametrize(("episodes", "kept"), [(2, None), (3, 1), (5, 3), (7, 3)])
def test_pre_training_can_leave_the_best_policy_instead_of_the_last(
    tmp_path: Path, episodes: int, kept: int | None
) -> None:
    """Three episodes in a row judge the policy in their middle, which has learned from those before it."""

    def policy(keep: Literal["best", "last"], episodes: int) -> tuple[dict[str, Any], dict[str, Any]]:
        pretraining = {"episodes": episodes, "keep": keep}
        settings = with_method({**SCALAR, "pretrain": pretraining}, Episodic(agents=tables()))
        folder = tmp_path / f"{keep}-{episodes}"
        with pretrain(settings, folder=folder, federation=two()) as done:
            return done.agents(), dict(read_policy(folder).agents[ADJUSTMENT])

    state, best = policy("best", episodes)
    found = state["adjustment"]["best"]["kept"]
    if kept is None:
        assert found is None
    else:
        assert found["episode"] == kept
        rights = Episodic.right[kept - 1 : kept + 2]
        assert found["value"] == pytest.approx(2 * sum(64 ** (right / 8 - 1) for right in rights) / 3)
    last, known = policy("last", episodes if kept is None else kept)
    assert "best" not in last["adjustment"]
    # in the tally there are also the states of the episode that it decided
    assert torch.equal(best.pop("normaliser")["scale"], known.pop("normaliser")["scale"])
    assert pack(best) == pack(known)


@pytest.mark.parametrize("method", ["bwa", "adaptive-b", "adaptive-aw", "bo-bwa"])
def test_a_policy_is_deployed_greedily_and_learns_no_more(tmp_path: Path, method: str) -> None:
    settings = {**with_method(DIGITS, method), "pretrain": {"episodes": 2}}
    pretrain(settings, folder=tmp_path / "policy").close()
    deployed = with_method(DIGITS, method, policy=str(tmp_path / "policy"))
    with run(deployed, folder=tmp_path / "run") as done, run({**deployed, "seed": 0}, folder=tmp_path / "again"):
        trials, learned, decisions = done.server_state().get("trials"), done.agents(), done.decisions()
    policy = read_policy(tmp_path / "policy")
    if method == "bo-bwa":
        assert trials == policy.parts["trials"]
        best = max(trials, key=lambda trial: trial["value"])
        assert {int(row["action"][0]) for row in decisions} == {best["batch"]}
        assert policy.agents == learned == {}
        return
    known = plain(policy.agents[ADJUSTMENT])
    assert known["steps"] == 2
    assert policy.parts == {}
    assert pack(learned["adjustment"]) == pack(known)
    if method == "bwa":
        heads = {"batch": IntegerHead(1, 64, ratios=True), "weights": SimplexHead(unit=0.1)}
        agent = PPO(4, 6, heads, PPOSettings(hidden=(256, 256)), torch.Generator().manual_seed(9))
        agent.load_state_dict(known)
        seen = decisions[0]["observation"].clone()
        seen[:, [0, 2, 3, 5]] = seen[:, [0, 2, 3, 5]].log1p()
        mean, deviation = known["normaliser"]["scale"]
        assert torch.equal(agent.act(((seen - mean) / deviation).clamp(-10, 10)), decisions[0]["action"])


def test_a_policy_serves_another_number_of_clients_and_other_data(tmp_path: Path) -> None:
    small = {"agents": agents(16, network="per-slot")}
    settings = {**with_method(DIGITS, "bwa", **small), "pretrain": {"episodes": 2}}
    pretrain(settings, folder=tmp_path / "policy").close()
    elsewhere = {**DIGITS, "data": {"source": "synthetic", "clients": 7, "partition": "iid"}}
    deployed = with_method(elsewhere, "bwa", policy=str(tmp_path / "policy"), **small)
    with run(deployed, folder=tmp_path / "run") as done:
        assert {tuple(row["action"].shape) for row in done.decisions()} == {(8,)}
    with pretrain(deployed, folder=tmp_path / "more") as more:  # goes on learning there
        assert more.agents()["adjustment"]["steps"] == 3
    flat = with_method(elsewhere, "bwa", policy=str(tmp_path / "policy"), agents=agents(16))
    with pytest.raises(fedtailor.UserError, match="network"):
        run(flat, folder=tmp_path / "flat")


def test_settings_that_decide_nothing_are_said_to_be_inert() -> None:
    assert "explores" in (find("bwa")().inert() or "")
    assert "never learns" in (BWA(agents=tables(epochs=0)).inert() or "")
    assert BWA().rehearsal().inert() is None
    assert find("bwa")(policy=Path("policy")).inert() is None
    with pytest.raises(ValueError, match="larger"):
        find("bwa")(smallest=9, largest=8)


# Exactness


class Stop(Callback):
    def __init__(self, *rounds: int) -> None:
        self.rounds = rounds

    def round_done(self, report: RoundReport) -> None:
        if report.round in self.rounds:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("method", "keep", "rounds", "episodes", "stops"),
    [
        ({"name": "bwa", "agents": agents(16)}, "last", 3, 3, (2, 3, 7)),
        ({"name": "bwa", "agents": agents(16, critic_first=2)}, "best", 2, 6, (3, 6, 9)),
        ({"name": "adaptive-b"}, "last", 2, 2, (3,)),
        ({"name": "bo-bwa"}, "last", 1, 13, (3, 11, 12)),
    ],
)
def test_pre_training_goes_on_exactly_where_it_stopped(
    tmp_path: Path, method: dict[str, Any], keep: str, rounds: int, episodes: int, stops: tuple[int, ...]
) -> None:
    """Inside an episode, at its end, and inside the last; bo-bwa fits its process from the eleventh evaluation on."""
    settings = {**DIGITS, "method": method, "rounds": rounds, "pretrain": {"episodes": episodes, "keep": keep}}
    settings["participation"] = {"dropout": 0.2}
    pretrain(settings, folder=tmp_path / "one").close()
    with pytest.raises(KeyboardInterrupt):
        pretrain(settings, folder=tmp_path / "two", callbacks=Stop(*stops))
    for _ in stops[1:]:
        with pytest.raises(KeyboardInterrupt):
            resume(tmp_path / "two", callbacks=Stop(*stops))
    resume(tmp_path / "two").close()
    assert (tmp_path / "one/policy.safetensors").read_bytes() == (tmp_path / "two/policy.safetensors").read_bytes()
    with Store(tmp_path / "one") as one, Store(tmp_path / "two") as other:
        query = "SELECT episode, round, observation, mask, action, reward FROM decisions ORDER BY id"
        assert one.rows(query) == other.rows(query)
        assert {row["episode"] for row in one.rows(query)} == set(range(episodes))


def test_pre_training_can_go_on_for_longer_than_it_was_meant_to(tmp_path: Path) -> None:
    settings = {**DIGITS, "rounds": 2}
    pretrain({**settings, "pretrain": {"episodes": 5, "keep": "best"}}, folder=tmp_path / "one").close()
    pretrain({**settings, "pretrain": {"episodes": 3, "keep": "best"}}, folder=tmp_path / "two").close()
    with pytest.raises(fedtailor.UserError, match="3 episodes: it can have more, not 2"):
        resume(tmp_path / "two", episodes=2)
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "two", episodes=5, callbacks=Stop(7))
    with resume(tmp_path / "two") as done:  # the number is kept
        assert done.finished
        assert len(done.decisions()) == 10
    for name in ("policy.safetensors", "policy.json", "experiment.toml"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    run({**DIGITS, "rounds": 1}, folder=tmp_path / "run").close()
    with pytest.raises(fedtailor.UserError, match="not a pre-training"):
        resume(tmp_path / "run", episodes=5)


@pytest.mark.parametrize("method", ["bwa", "bo-bwa"])
def test_test_labels_do_not_matter_and_validation_labels_do(tmp_path: Path, method: str) -> None:
    real = build(DataSettings.model_validate(DIGITS["data"]), 0, needs_validation=True)

    def policy(name: str, part: str) -> bytes:
        labels = real.samples.y.copy()
        changed = getattr(real, part).indices if part else []
        labels[changed] = (labels[changed] + 1 + np.arange(len(changed)) % 8) % 10
        federation = replace(real, samples=replace(real.samples, y=labels))
        settings = {**with_method(DIGITS, method), "pretrain": {"episodes": 2}}
        pretrain(settings, folder=tmp_path / name, federation=federation).close()
        return (tmp_path / name / "policy.safetensors").read_bytes()

    as_it_is = policy("real", "")
    assert policy("test", "test") == as_it_is
    assert policy("val", "val") != as_it_is


def test_an_episode_starts_afresh_but_for_the_agent(tmp_path: Path) -> None:
    settings = {**DIGITS, "pretrain": {"episodes": 3}}
    with pretrain(settings, folder=tmp_path / "policy") as done:
        rows = {(row["episode"], row["round"]): row["observation"] for row in done.decisions()}
        assert sorted(rows) == [(e, r) for e in range(3) for r in (1, 2, 3)]
        for one, other in pairwise(range(3)):
            assert (rows[one, 1][:, [2, 5]] == 0).all()  # nobody has moved yet
            assert not torch.equal(rows[one, 1], rows[other, 1])  # another initial model
        agent = done.agents()["adjustment"]
        assert agent["steps"] == 3
        assert float(agent["normaliser"]["tally"][0, 0]) == 3 * 3 * 4
        assert unpack(done._store.state("memory", 0))["round"] == 3


# Bayesian optimisation


def test_evaluations_come_nearer_to_the_best(tmp_path: Path) -> None:
    """A known function: batch 8 and all weight on client 0 are best. A resumed search asks for the same again."""
    method = BoBWA()

    def value(trial: dict[str, Any]) -> float:
        share = trial["weights"][0] / sum(trial["weights"])
        return share - abs(np.log(trial["batch"] / 8))

    trials: list[dict[str, Any]] = []
    for number in range(25):
        found = method._suggestion(trials, 3, number)
        assert method._suggestion(trials, 3, number) == found
        trials.append({**found, "value": float(value(found))})
    best = [max(trial["value"] for trial in part) for part in (trials[:10], trials[10:])]
    assert best[1] > max(best[0], 0.6)


def test_an_evaluation_is_the_objective_of_its_episode(tmp_path: Path) -> None:
    settings = {**with_method(DIGITS, "bo-bwa"), "pretrain": {"episodes": 3}}
    with pretrain(settings, folder=tmp_path / "policy") as done:
        trials = done.server_state()["trials"]
        for episode, trial in enumerate(trials):
            rows = [row for row in done.decisions() if row["episode"] == episode]
            assert trial["value"] == pytest.approx(sum(row["reward"] for row in rows), abs=1e-9)
            assert {int(row["action"][0]) for row in rows} == {trial["batch"]}
            assert rows[0]["action"][1:].tolist() == pytest.approx(
                [weight / sum(trial["weights"]) for weight in trial["weights"]], abs=1e-6
            )
        assert len({trial["batch"] for trial in trials}) == 3


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtailor.methods.bo_bwa.find_spec", lambda _name: None)
    with pytest.raises(fedtailor.UserError, match=r"fedtailor\[bo\]"):
        run(with_method(DIGITS, "bo-bwa"), folder=tmp_path / "run")
    assert not list(tmp_path.iterdir())  # it is said before anything is written
    assert isinstance(BoBWA(), Adjusted)
