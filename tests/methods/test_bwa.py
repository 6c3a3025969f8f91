"""Hand-derived values, identities, mechanism and exactness of bwa; see `tests.support.adjustment` for its clients."""

from itertools import pairwise
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
import torch

import fedtailor
from fedtailor.agents import PPO, IntegerHead, PPOSettings, SimplexHead
from fedtailor.learning import TrainingSettings
from fedtailor.messages.trees import pack, unpack
from fedtailor.methods import Client, Payload, find, read_policy
from fedtailor.methods.adjustment import ADJUSTMENT
from fedtailor.methods.bwa import BWA
from fedtailor.runs import pretrain, resume, run
from fedtailor.seeding import torch_stream
from tests.support.adjustment import (
    DIGITS,
    SCALAR,
    UNEVEN,
    Stop,
    agents,
    always,
    assert_only_validation_labels_matter,
    assert_policy_stays,
    assert_pre_training_goes_on_exactly,
    by_size,
    deploy,
    eight,
    fedavg_with_batches_of_seven,
    model_after,
    tables,
    two,
    with_method,
)
from tests.support.problem import HERE, W, judged, largest_gap, model_of


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


# Rewards


class Told(BWA):
    """A global model that is as accurate as the round says: 0, 4, 2, 3, 8 of 16 samples right."""

    name = ""

    def judge(self, client: Client, payload: Payload) -> Payload:
        first = float(payload["model"][W]) == 1.0
        correct = 0 if first else (2, 1, 1 + client.id, 4)[client.round - 1]
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
    with run(settings, folder=tmp_path / "run", federation=eight(), deciders=always([3, 0.5, 0.5])) as done:
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
    with run(with_method(SCALAR, Silent(agents=tables())), folder=tmp_path / "run", federation=eight()) as done:
        assert done.rewards()[ADJUSTMENT] == pytest.approx([2.0, (9 - 10) / 10], abs=1e-6)


def test_without_validation_data_nothing_is_learned_and_nothing_breaks(tmp_path: Path) -> None:
    nobody = judged(HERE, ([], []))
    with run(with_method(SCALAR, "bwa", agents=agents()), folder=tmp_path / "run", federation=nobody) as done:
        assert done.rewards() == {}
        assert done.agents()["adjustment"]["steps"] == 0
        assert float(model_of(done)[W]) != 1.0


# Identities


def test_one_batch_size_and_weights_by_data_size_are_fedavg(tmp_path: Path) -> None:
    plain = fedavg_with_batches_of_seven(tmp_path / "plain")
    assert largest_gap(plain, model_after(tmp_path / "7", with_method(UNEVEN, "bwa"), by_size(7.0))) < 1e-6
    assert largest_gap(plain, model_after(tmp_path / "8", with_method(UNEVEN, "bwa"), by_size(8.0))) > 1e-3


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
    settings = {**DIGITS, "rounds": 5, "participation": {"ratio": [0.25, 0.75], "dropout": 0.3}}
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


def test_the_threshold_is_a_share_of_all_weights() -> None:
    """Weights by data size, 7, 2 and 1, are shares 0.7, 0.2 and 0.1; the largest uploads whatever the threshold."""
    assert BWA(threshold=0.15)._left_out({0: 7.0, 1: 2.0, 2: 1.0}) == {2}
    assert BWA(threshold=0.15)._left_out({0: 0.7, 1: 0.2, 2: 0.1}) == {2}
    assert BWA(threshold=1.0)._left_out({0: 7.0, 1: 2.0, 2: 1.0}) == {1, 2}


# Learning


class Nearness(BWA):
    """The nearer the model to 4, the more accurate: more of client 1 and more of its steps are better."""

    name = ""

    def judge(self, client: Client, payload: Payload) -> Payload:
        score = 1 - abs(float(payload["model"][W]) - 4) / 4
        return Payload(numbers={"summed": 0.0, "correct": round(100 * score), "samples": 100})


def test_it_learns_which_batch_size_and_whose_weights_help(tmp_path: Path) -> None:
    method = Nearness(smallest=1, largest=3, reward="objective", agents=tables(16, actor_lr=5e-3, discount=0.5))
    settings = {**SCALAR, "rounds": 4, "pretrain": {"episodes": 80}}
    hundred = judged(HERE, ([1.0] * 100, [4.0] * 100))
    with pretrain(with_method(settings, method), folder=tmp_path / "policy", federation=hundred) as done:
        decisions = done.decisions()
    first, last = (torch.stack([row["action"] for row in rows]).mean(0) for rows in (decisions[:40], decisions[-40:]))
    begins = torch.stack([row["action"][2] for row in decisions[:8]]).mean()
    assert 0.3 < begins < 0.7  # in the first two episodes neither client is preferred
    assert last[2] > 0.7
    assert last[0] < first[0] - 0.3


def greedy_share(spread: float, seed: int) -> float:
    """The weight of the first two of four clients after two episodes that reward it, decided greedily."""
    method = BWA(spread=spread, agents=tables(16))
    server: Any = SimpleNamespace(training=TrainingSettings(batch_size=10), largest_cohort=4)
    (declared,) = method.decisions(server)
    agent = declared.build(torch_stream(seed, "agent"))
    assert isinstance(agent, PPO)
    state = torch.tensor([[0.0, good, 0.0, 0.0, 0.0, 0.0] for good in (1.0, 1.0, -1.0, -1.0)])
    for episode in (1, 2):
        for round in range(10):
            action = agent.act(state, stream=torch_stream(seed, episode, round))
            reward = float(agent.split(action)["weights"][:2].sum())
            agent.observe(state, action, reward, done=round == 9)
        agent.learn(torch_stream(seed, episode, "learning"))
    return float(agent.split(agent.act(state))["weights"][:2].sum())


def test_weights_leave_equal_ones_within_two_episodes_unless_their_spread_is_small() -> None:
    """At equal weights the two have 1/2."""
    assert fmean(greedy_share(0.5, seed) for seed in range(3)) > 0.55
    assert fmean(greedy_share(0.1, seed) for seed in range(3)) < 0.53


def test_a_policy_of_another_spread_is_refused(tmp_path: Path) -> None:
    settings = {**with_method(DIGITS, "bwa", agents=agents(16)), "pretrain": {"episodes": 1}}
    pretrain(settings, folder=tmp_path / "policy").close()
    other = with_method(DIGITS, "bwa", agents=agents(16), spread=0.1, policy=str(tmp_path / "policy"))
    with pytest.raises(fedtailor.UserError, match=r"weights in units of 0\.5"):
        run(other, folder=tmp_path / "run")


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
        {"spread": 0.1},
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
        with pretrain(settings, folder=folder, federation=eight()) as done:
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


def test_a_policy_is_deployed_greedily_and_learns_no_more(tmp_path: Path) -> None:
    deployed = deploy(tmp_path, "bwa")
    known, first = assert_policy_stays(deployed), deployed.decisions[0]
    heads = {"batch": IntegerHead(1, 64, ratios=True), "weights": SimplexHead(unit=0.5)}
    agent = PPO(4, 6, heads, PPOSettings(hidden=(256, 256)), torch.Generator().manual_seed(9))
    agent.load_state_dict(known)
    seen = first["observation"].clone()
    seen[:, [0, 2, 3, 5]] = seen[:, [0, 2, 3, 5]].log1p()
    mean, deviation = known["normaliser"]["scale"]
    assert torch.equal(agent.act(((seen - mean) / deviation).clamp(-10, 10)), first["action"])


def test_a_policy_serves_another_number_of_clients_and_other_data(tmp_path: Path) -> None:
    small = {"agents": agents(16, network="per-slot")}
    settings = {**with_method(DIGITS, "bwa", **small), "pretrain": {"episodes": 2}}
    pretrain(settings, folder=tmp_path / "policy").close()
    elsewhere = {**DIGITS, "data": {"source": "synthetic", "clients": 7, "partition": "iid"}}
    deployed = with_method(elsewhere, "bwa", policy=str(tmp_path / "policy"), **small)
    with run(deployed, folder=tmp_path / "run") as done:
        assert {tuple(row["action"].shape) for row in done.decisions()} == {(8,)}
    with pretrain(deployed, folder=tmp_path / "more") as more:  # its agent continues to learn
        assert more.agents()["adjustment"]["steps"] == 3
    other = with_method(elsewhere, "bwa", policy=str(tmp_path / "policy"), agents=agents(8))
    with pytest.raises(fedtailor.UserError, match="network"):
        run(other, folder=tmp_path / "other")


def test_settings_that_decide_nothing_are_said_to_be_inert() -> None:
    assert "explores" in (find("bwa")(policy="none").inert() or "")
    assert find("bwa")().inert() is None
    assert "never learns" in (BWA(policy="none", agents=tables(epochs=0)).inert() or "")
    assert BWA().rehearsal().inert() is None
    assert find("bwa")(policy=Path("policy")).inert() is None
    with pytest.raises(ValueError, match="larger"):
        find("bwa")(smallest=9, largest=8)


# Exactness


@pytest.mark.parametrize(
    ("changes", "keep", "rounds", "episodes", "stops"),
    [({}, "last", 3, 3, (2, 3, 7)), ({"critic_first": 2}, "best", 2, 6, (3, 6, 9))],
)
def test_pre_training_goes_on_exactly_where_it_stopped(
    tmp_path: Path, changes: dict[str, Any], keep: str, rounds: int, episodes: int, stops: tuple[int, ...]
) -> None:
    """Inside an episode, at its end, and inside the last."""
    settings = with_method(DIGITS, "bwa", agents=agents(16, **changes))
    settings |= {"rounds": rounds, "pretrain": {"episodes": episodes, "keep": keep}}
    assert_pre_training_goes_on_exactly(tmp_path, settings, stops)


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


def test_test_labels_do_not_matter_and_validation_labels_do(tmp_path: Path) -> None:
    assert_only_validation_labels_matter(tmp_path, "bwa")


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
        assert unpack(done._store.state("memory", 0))["scores"].state["round"] == 3
