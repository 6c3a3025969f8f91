"""Hand-derived values, identities, mechanism and exactness of feddrl.

Client 0 has one training sample with target 0, client 1 three with target 4; a full-batch step with learning rate
1/2 on (w - a)^2 / 2 moves w half of the way to a. Their validation targets are 1 and 4.
"""

import math
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedtailor
from fedtailor.agents import MeanDeviation
from fedtailor.data import Federation
from fedtailor.messages.trees import unpack
from fedtailor.methods import Client, Decide, Decider, Payload, Question, Server, find
from fedtailor.methods.feddrl import FedDRL
from fedtailor.runs import Callback, Interrupted, RoundReport
from fedtailor.runs.store import Store
from fedtailor.seeding import torch_stream
from tests.support.problem import HERE, W, judged, largest_gap, model_of, play, targets

SCALAR: dict[str, Any] = {
    "rounds": 2,
    "model": {"name": "tests.support.problem:Scalar"},
    "training": {"lr": 0.5, "epochs": 1, "batch_size": 1000, "loss": "squared-error"},
    "method": {"name": "feddrl"},
    "engine": {"kind": "inline"},
}


def always(factors: Callable[[Server], Sequence[float]]) -> dict[str, Decider]:
    """A script that gives the clients that answered these impact factors: means log(alpha), deviations 0."""

    def script(server: Server, question: Question) -> Tensor:
        assert question.mask is not None
        action = torch.zeros(*question.mask.shape, 2)
        action[question.mask, 0] = torch.tensor(factors(server)).log()
        return action

    return {"impact": script}


def agent_of(run: fedtailor.Run) -> dict[str, Any]:
    return run.agents()["impact"]


def replay_of(run: fedtailor.Run) -> dict[str, Tensor]:
    """The transitions in the replay, by column."""
    rows = [unpack(row["data"]) for row in run._store.rows("SELECT data FROM state WHERE scope = 'replay impact'")]
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def flat(rows: list[list[float]]) -> list[float]:
    return [value for row in rows for value in row]


def test_hand_feddrl(tmp_path: Path) -> None:
    """Impact factors (1/2, 1/2), then (3/4, 1/4).

    Round 1 from w = 1: the clients hold 1/2 and 5/2, w = 3/2. Losses before 1/2, 9/2, after 1/8, 9/8; n / mean n =
    1/2, 3/2. On validation data w = 3/2 loses 1/8 and 25/8: reward -(13/8) - 3 = -4.625.
    Round 2 from w = 3/2: the clients hold 3/4 and 11/4, w = 9/16 + 11/16 = 5/4. Losses before 9/8, 25/8, after 9/32,
    25/32. w = 5/4 loses 1/32 and 121/32: reward -(61/32) - 120/32 = -5.65625.
    The replay holds round 1 with round 2's state as the next; round 2 waits for its next state.
    """
    deciders = always(lambda server: [0.5, 0.5] if server.round == 1 else [0.75, 0.25])
    with fedtailor.run(
        SCALAR, folder=tmp_path / "run", federation=judged(HERE, ([1.0], [4.0])), deciders=deciders
    ) as run:
        one, two = run.decisions()
        states = [
            [[math.log(1.5), math.log(1.125), math.log(0.5)], [math.log(5.5), math.log(2.125), math.log(1.5)]],
            [[math.log(2.125), math.log(41 / 32), math.log(0.5)], [math.log(4.125), math.log(57 / 32), math.log(1.5)]],
        ]
        assert float(model_of(run)[W]) == pytest.approx(1.25, abs=1e-6)
        assert [one["reward"], two["reward"]] == pytest.approx([-4.625, -5.65625], abs=1e-6)
        for decision, state in zip((one, two), states, strict=True):
            assert decision["observation"].flatten().tolist() == pytest.approx(flat(state), abs=1e-6)
            assert decision["mask"].tolist() == [True, True]
        agent = agent_of(run)
        rows = {name: values.flatten().tolist() for name, values in replay_of(run).items()}
        assert rows["reward"] == pytest.approx([-4.625], abs=1e-6)
        assert rows["state"] == pytest.approx(flat(states[0]), abs=1e-6)
        assert rows["next_state"] == pytest.approx(flat(states[1]), abs=1e-6)
        assert rows["action"] == pytest.approx([math.log(0.5), 0, math.log(0.5), 0], abs=1e-6)
        assert rows["done"] == [0.0]
        assert float(agent["pending"]["reward"]) == pytest.approx(-5.65625, abs=1e-6)
        assert agent["steps"] == 5  # nothing to learn from in round 1
        # down: the model twice, 4 bytes each; up: the model and three numbers, then two
        assert [(row["bytes_down"], row["bytes_up"]) for row in run.rounds()] == [(16, 2 * (4 + 24 + 16))] * 2
        assert run._store.state_keys("client") == []


def test_the_policy_by_hand() -> None:
    """sigmoid(0) = 1/2, sigmoid(log 3) = 3/4: means 1 and 3/2, deviations 1/2 * 1 * 3/4 and 1/2 * 3/2 * 1/2."""
    logits = torch.tensor([[0.0, math.log(3)], [math.log(3), 0.0], [5.0, 5.0]])
    action = MeanDeviation(span=2.0, beta=0.5)(logits, torch.tensor([True, True, False]))
    assert action.flatten().tolist() == pytest.approx([1.0, 0.375, 1.5, 0.375, 0.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e30])
def test_the_deviation_never_exceeds_its_share_of_the_mean(scale: float) -> None:
    logits = scale * torch.randn(200, 2, generator=torch_stream("logits"))
    means, deviations = MeanDeviation(2.0, 0.5)(logits, torch.ones(200, dtype=torch.bool)).unbind(-1)
    assert (means >= 0).all()
    assert (means <= 2).all()
    assert (deviations >= 0).all()
    assert (deviations <= 0.5 * means).all()


# Identities

DIGITS: dict[str, Any] = {
    "rounds": 4,
    "data": {"clients": 6, "samples": 300, "split": {"train": 0.6, "val": 0.15, "test": 0.25}},
    "training": {"lr": 0.05},
    "method": {"name": "feddrl"},
    "engine": {"kind": "inline"},
}


def test_impact_factors_in_proportion_to_the_data_are_fedavg(tmp_path: Path) -> None:
    by_size = always(lambda server: [float(size) for size in server.sizes])
    equal = always(lambda server: [1.0] * server.clients)
    with (
        fedtailor.run({**DIGITS, "method": {"name": "fedavg"}}, folder=tmp_path / "1") as fedavg,
        fedtailor.run(DIGITS, folder=tmp_path / "2", deciders=by_size) as same,
        fedtailor.run(DIGITS, folder=tmp_path / "3", deciders=equal) as other,
    ):
        assert largest_gap(model_of(fedavg), model_of(same)) < 1e-5
        assert largest_gap(model_of(fedavg), model_of(other)) > 1e-3


def test_one_client_is_fedavg_whatever_is_decided(tmp_path: Path) -> None:
    alone = judged([[4.0]], [[4.0]])
    with (
        fedtailor.run(SCALAR, folder=tmp_path / "1", federation=alone) as one,
        fedtailor.run({**SCALAR, "method": {"name": "fedavg"}}, folder=tmp_path / "2", federation=alone) as other,
    ):
        assert model_of(one)[W] == model_of(other)[W]


# Mechanism


def test_learning_changes_the_result_and_none_is_said_to_be_inert(tmp_path: Path) -> None:
    models = []
    for updates in (0, 20):
        settings = {
            **DIGITS,
            "method": {"name": "feddrl", "agents": {"impact": {"updates": updates, "actor_lr": 1e-2}}},
        }
        with fedtailor.run(settings, folder=tmp_path / str(updates)) as run:
            models.append(model_of(run))
            assert agent_of(run)["steps"] == updates * 3
    assert largest_gap(*models) > 1e-4
    assert "never learns" in (find("feddrl")(agents={"impact": {"updates": 0}}).inert() or "")
    assert find("feddrl")().inert() is None


def test_it_learns_whose_update_helps(tmp_path: Path) -> None:
    """Both clients validate at 4, but client 0 trains towards 0: the more of client 1, the better."""
    settings = {**SCALAR, "rounds": 80, "evaluation": {"every": 0, "final": False}}
    with fedtailor.run(settings, folder=tmp_path / "run", federation=judged(HERE, ([4.0], [4.0]))) as run:
        decisions = run.decisions()
    preference = [float(d["action"][1, 0] - d["action"][0, 0]) for d in decisions]
    rewards = [d["reward"] for d in decisions]
    assert abs(sum(preference[:10]) / 10) < 0.3  # at first neither is preferred
    assert sum(preference[-10:]) / 10 > 1.0
    assert sum(rewards[-10:]) > sum(rewards[5:15]) / 3


def test_decisions_explore_in_rounds_and_are_greedy_in_evaluation(tmp_path: Path) -> None:
    played = play(
        tmp_path / "run", FedDRL.model_validate({"agents": {"impact": {"noise": 1.0}}}), judged(HERE, ([1.0], [4.0]))
    )
    server = played.loop.server
    asked = Decide("impact", {0: [0.0, 0.0, 0.0], 1: [0.0, 0.0, 0.0]})
    preview = server.preview(played.loop.method.start_server)
    greedy = preview.decisions.decide(preview, asked).action
    assert torch.equal(greedy, server.decisions.agents["impact"].act(torch.zeros(2, 3)))
    assert not torch.equal(server.decisions.decide(server, asked).action, greedy)


# Circumstances


def test_any_part_of_the_largest_cohort_may_answer(tmp_path: Path) -> None:
    """Slots for the largest cohort of 4 of 6; who answered fills the first of them, in the order of ids."""
    settings = {**DIGITS, "rounds": 6, "participation": {"ratio": [0.2, 0.6], "dropout": 0.3}}
    with fedtailor.run(settings, folder=tmp_path / "run") as run:
        answered = [sum(m.tolist()) for m in (d["mask"] for d in run.decisions())]
        assert {len(d["mask"]) for d in run.decisions()} == {4}
        assert len(set(answered)) > 1
        assert all(
            d["observation"][count:].abs().sum() == 0 for d, count in zip(run.decisions(), answered, strict=True)
        )
        assert all(d["action"][count:].abs().sum() == 0 for d, count in zip(run.decisions(), answered, strict=True))
        assert all(d["reward"] < 0 for d in run.decisions())


class Reluctant(FedDRL):
    """Nobody judges the model of round 1; client 0 never does."""

    name = ""

    def judge(self, client: Client, payload: Payload) -> Payload:
        if client.id == 0 or client.round == 1:
            raise RuntimeError("no time")
        return super().judge(client, payload)


def test_the_reward_is_that_of_those_who_judge(tmp_path: Path) -> None:
    """A round that nobody judges has no reward and teaches nothing; its model counts."""
    played = play(tmp_path / "run", Reluctant(), judged(HERE, ([1.0], [4.0])), rounds=3)
    rewards = [row["reward"] for row in played.store.rows("SELECT reward FROM decisions ORDER BY id")]
    assert rewards[0] is None
    assert rewards[2] == pytest.approx(-((played.server(W) - 4) ** 2) / 2, abs=1e-6)
    assert len(played.loop.server.decisions.agents["impact"].replay) == 1
    assert played.server(W) != 1.0


def test_without_validation_data_nothing_is_learned_and_nothing_breaks(tmp_path: Path) -> None:
    played = play(tmp_path / "run", FedDRL(), targets(*HERE))
    assert [row["reward"] for row in played.store.rows("SELECT reward FROM decisions")] == [None, None]
    assert played.loop.server.decisions.agents["impact"].steps == 0


# What decides, and what does not


def test_test_targets_do_not_influence_the_policy_but_validation_targets_do(tmp_path: Path) -> None:
    def decided(name: str, federation: Federation) -> tuple[list[Any], dict[str, Tensor]]:
        settings = {**SCALAR, "rounds": 5, "method": {"name": "feddrl", "agents": {"impact": {"updates": 5}}}}
        with fedtailor.run(settings, folder=tmp_path / name, federation=federation) as run:
            rows = run._store.rows("SELECT observation, action, reward FROM decisions ORDER BY id")
            return rows, {**model_of(run), "agent": agent_of(run)["networks"]["actor"]["parameters"][0]}

    rows, weights = decided("1", judged(HERE, ([1.0], [4.0]), test=2.0))
    same_rows, same = decided("2", judged(HERE, ([1.0], [4.0]), test=-50.0))
    other_rows, other = decided("3", judged(HERE, ([3.0], [4.0]), test=2.0))
    assert rows == same_rows
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    assert rows != other_rows
    assert not torch.equal(weights["agent"], other["agent"])


class StopAt(Callback):
    """Presses Ctrl-C during a round."""

    def __init__(self, round: int) -> None:
        self.round = round

    def round_done(self, report: RoundReport) -> None:
        if report.round == self.round:
            os.kill(os.getpid(), signal.SIGINT)


EXACT = {
    **DIGITS,
    "rounds": 5,
    "participation": {"ratio": 0.7, "dropout": 0.2},
    "method": {"name": "feddrl", "agents": {"impact": {"updates": 3, "hidden": [16, 16], "capacity": 3}}},
}


def everything(folder: Path) -> dict[str, Any]:
    with Store(folder) as store:
        return {
            "state": store.rows("SELECT scope, key, data FROM state ORDER BY scope, key"),
            "decisions": store.rows("SELECT round, observation, mask, action, reward FROM decisions ORDER BY id"),
            "metrics": store.rows("SELECT * FROM metrics ORDER BY episode, round, model"),
            "bytes": store.rows("SELECT round, bytes_up, bytes_down FROM rounds ORDER BY round"),
        }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("feddrl") / "run"
    fedtailor.run(EXACT, folder=folder).close()
    return folder


@pytest.mark.parametrize("round", [1, 2, 4])
def test_interrupted_and_resumed_is_the_same_to_the_bit_replay_included(
    round: int, whole: Path, tmp_path: Path
) -> None:
    """The replay holds three transitions, so it wraps around within the run."""
    with pytest.raises(Interrupted):
        fedtailor.run(EXACT, folder=tmp_path / "run", callbacks=StopAt(round))
    with fedtailor.Run(tmp_path / "run") as run:
        assert run.rounds_done == round
        assert len(run._store.state_keys("replay impact")) == min(round - 1, 3)
        assert agent_of(run)["pending"] is not None
    fedtailor.resume(tmp_path / "run").close()
    assert everything(tmp_path / "run") == everything(whole)


def test_clients_show_their_losses_truthfully_and_upload_what_they_trained(tmp_path: Path) -> None:
    """Measuring the loss before training puts the received model in the network for a moment: it must not stay."""
    federation = judged(HERE, ([1.0], [4.0]))
    played = play(tmp_path / "run", FedDRL(), federation, rounds=1)
    assert played.loss("held", 0, 1) == pytest.approx((0.5 - 2.0) ** 2 / 2, abs=1e-6)
    assert played.loss("held", 1, 1) == pytest.approx((2.5 - 2.0) ** 2 / 2, abs=1e-6)


def test_the_parts_of_these_federations_are_what_they_say() -> None:
    made = judged(([0.0], [4.0, 5.0]), ([1.0], [2.0]), test=9.0)
    for part, wanted in ((made.train, [0, 4, 5]), (made.val, [1, 2]), (made.test, [9, 9])):
        assert made.samples.y[part.indices].flatten().tolist() == wanted
    assert made.train.sizes.tolist() == [1, 2]
