"""Hand-derived values, identities and mechanism of pfedrlla-after, which mixes models after the training.

The network of the hand-derived values is that of test_pfedrlla.py.
"""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import fedtailor
from fedtailor.data import build
from fedtailor.messages.trees import unpack
from fedtailor.methods import Payload, Question, Replies, Reward, Server
from fedtailor.methods.head_mixing import HEAD
from fedtailor.methods.pfedrlla_after import PFedRLLAAfter
from fedtailor.runs import pretrain, run
from fedtailor.views.drawings.pfedrlla import mean_weights
from tests.support.head_mixing import DIGITS, PRODUCT, TWO, after, changed
from tests.support.problem import judged

B, H = "0.weight", "1.weight"


@pytest.mark.parametrize(
    ("changes", "heads", "bodies"),
    [
        ({"body": "agent"}, [1.8988, 2.0388], [0.8354, 1.0554]),
        ({"body": "none"}, [1.8988, 2.0388], [0.6708, 1.5108]),
        ({"body": "size"}, [1.8988, 2.0388], [5.4708 / 5, 9.3324 / 7]),
        ({"body": "agent", "gamma": 0.5}, [1.8650667, 2.1184], [0.7805333, 1.2072]),
    ],
)
def test_hand_pfedrlla_after(tmp_path: Path, changes: dict[str, Any], heads: list[float], bodies: list[float]) -> None:
    """Before round 1 as above: b = 0.6, 1.4 and h = 1.8, 2.2.

    Round 1: both start from the mean by size, b = 1.2 and h = (1.8 + 3 * 2.2) / 4 = 2.1. Training: e = 2.52 gives
    b = 0.6708, h = 1.7976; e = -1.48 gives b = 1.5108, h = 2.2776. Then client 0 gives 1/2 to its fresh model, 1/4 to
    its older one and 1/4 to its peer: h = 1.8988, b = 0.8354; client 1 gives 1/2 to its fresh one and 1/2 to its peer:
    h = 2.0388, b = 1.0554. With body = none bodies are as they were trained; by size, 1 to 3, they are
    (3 * 1.4 + 0.6 + 0.6708) / 5 and (0.6 + 3 * 1.4 + 3 * 1.5108) / 7. The fresh model is 0 rounds old, others 1: with
    gamma = 1/2 client 0 has 2/3, 1/6, 1/6 and client 1 has 2/3, 1/3.
    """

    def late(_server: Server, question: Question) -> Tensor:
        return torch.tensor([[0.25, 0.0, 0.25, 0.5], [0.5, 0.0, 0.0, 0.5]][question.about or 0])

    federation = judged(TWO, ([1.0], [4.0]), test=2.0)
    settings = {**after(PRODUCT, **changes), "rounds": 1, "evaluation": {"models": ["held"]}}
    with run(settings, folder=tmp_path / "run", federation=federation, deciders={HEAD: late}) as done:
        found = [unpack(done._store.state("client", k))["state"]["latest"].state["model"] for k in (0, 1)]
        assert [float(w[B]) for w in found] == pytest.approx([0.6708, 1.5108], abs=1e-6)
        assert [float(w[H]) for w in found] == pytest.approx([1.7976, 2.2776], abs=1e-6)
        losses = [(h * b - 2) ** 2 / 2 for h, b in zip(heads, bodies, strict=True)]
        assert [row["loss"] for row in done.scores("held", 1)] == pytest.approx(losses, abs=1e-6)
        for row in done.decisions():
            assert row["observation"][[0, 2, 3], 2].tolist() == pytest.approx([math.log(2), math.log(2), 0.0])
            assert row["observation"][[0, 2, 3], 3].tolist() == [0.0, 1.0, -1.0]  # a peer, the older, the fresh one
            assert row["observation"][2, 0] != 0
            assert row["observation"][3, :2].tolist() == [0.0, 0.0]  # nobody has seen it yet


def test_a_model_that_was_never_trained_is_not_aggregated(tmp_path: Path) -> None:
    settings = {**after(DIGITS, body="agent", initial=False), "model": {"name": "mlp"}}
    with run(settings, folder=tmp_path / "run") as done:
        seen: set[int] = set()
        for row in done.decisions():
            assert bool(row["mask"][-2]) == (row["about"] in seen)
            assert row["mask"][-1]
            assert bool(row["mask"][:-2].any()) == (row["round"] > 1)  # in round 1 nobody has a trained model
            seen.add(row["about"])
        assert len(seen) < len(done.decisions())


def test_equal_weights_leave_untrained_models_out_too(tmp_path: Path) -> None:
    """In round 1 without initial training, only the model after training is there: as without any mix."""
    held = []
    for changes in ({"decider": "uniform"}, {"body": "none", "head": "none"}):
        late = after(DIGITS, initial=False, **changes)
        settings = {**late, "model": {"name": "mlp"}, "rounds": 1, "evaluation": {"models": ["held"]}}
        with run(settings, folder=tmp_path / str(len(held))) as done:
            held.append([row["loss"] for row in done.scores("held", 1)])
    assert held[0] == held[1]


def test_a_client_without_any_weight_keeps_the_model_after_training(tmp_path: Path) -> None:
    """gamma = 0 leaves the fresh model alone, and here it has no weight either."""

    def others(_server: Server, question: Question) -> Tensor:
        assert question.mask is not None
        weights = question.mask.float()
        weights[-1] = 0
        return weights / weights.sum()

    late = after(DIGITS, body="agent", gamma=0.0)
    losses = []
    for changes, deciders in (({}, {HEAD: others}), ({"body": "none", "head": "none"}, {})):
        settings = {**changed(late, **changes), "evaluation": {"models": ["held"]}}
        with run(settings, folder=tmp_path / str(len(losses)), deciders=deciders) as done:
            losses.append([row["loss"] for row in done.scores("held", 3)])
    assert losses[0] == losses[1]


def test_a_client_that_missed_the_initial_training_has_no_older_model(tmp_path: Path) -> None:
    absent = {"ratio": 1.0, "absent": [[1, 0]]}
    settings = {**after(DIGITS, body="agent"), "participation": absent, "rounds": 2}
    with run(settings, folder=tmp_path / "run") as done:
        known = {(row["round"], row["about"]): bool(row["mask"][-2]) for row in done.decisions()}
    assert (1, 0) not in known
    assert known.pop((2, 0)) is False
    assert all(known.values())


def test_the_reward_after_the_training_is_the_accuracy_with_the_mix_minus_that_without(tmp_path: Path) -> None:
    """Test samples are the validation samples here; held models are those with (agent) or without (none) the mix."""

    def half(_server: Server, question: Question) -> Tensor:
        assert question.mask is not None
        taken = question.mask.float()
        return 0.8 * taken / taken.sum() + 0.2 * torch.eye(len(taken))[-1]

    settings = fedtailor.experiment({**after(DIGITS, b1=0, b3=0), "model": {"name": "mlp"}})
    found = build(settings.data, settings.partition_seed, needs_validation=True)
    federation = replace(found, test=found.val)
    held = {}
    for rule in ("agent", "none"):
        one = {
            **after(DIGITS, b1=0, b3=0, body=rule, head=rule),
            "model": {"name": "mlp"},
            "evaluation": {"models": ["held"]},
        }
        with run(one, folder=tmp_path / rule, federation=federation, deciders={HEAD: half}) as done:
            held[rule] = {row["client"]: row["accuracy"] for row in done.scores("held", 3)}
            decided = [row for row in done.decisions() if row["round"] == 3]
        if rule == "agent":
            rewards = {row["about"]: row["reward"] for row in decided}
    assert len(rewards) == 4
    assert rewards == {k: pytest.approx(held["agent"][k] - held["none"][k], abs=1e-6) for k in rewards}
    assert any(rewards.values())


def test_the_drawn_weights_of_both_own_models_are_added(tmp_path: Path) -> None:
    """Equal weights for seven models of the previous cohort and two of the client's own: these have 2/9."""

    def equal(_server: Server, question: Question) -> Tensor:
        assert question.mask is not None
        return question.mask.float() / question.mask.sum()

    settings = {**after(DIGITS, body="agent"), "participation": {"ratio": 1.0}}
    with run(settings, folder=tmp_path / "run", deciders={HEAD: equal}) as done:
        weights = mean_weights(done)
    assert weights.diagonal().tolist() == pytest.approx([2 / 9] * 8)
    assert weights.sum(1).tolist() == pytest.approx([1.0] * 8)


def test_a_policy_of_the_other_kind_of_mix_is_refused(tmp_path: Path) -> None:
    attention = {"network": "attention", "updates": 1}
    pretrain(changed(DIGITS, **attention), folder=tmp_path / "policy").close()
    settings = after(DIGITS, **attention, policy=str(tmp_path / "policy"))
    with pytest.raises(fedtailor.UserError, match="was trained for pfedrlla, but the method is pfedrlla-after"):
        run(settings, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("changes", [{"own": 0.8}, {"start": "similarity"}, {"start": "none"}], ids=str)
def test_a_policy_that_began_with_other_weights_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    """What it learned is a difference from them."""
    settings = after(DIGITS, start="own", own=0.9, updates=1)
    pretrain(settings, folder=tmp_path / "policy").close()
    with pytest.raises(fedtailor.UserError, match=r"initial weights = own = 0.9"):
        run(changed(settings, policy=str(tmp_path / "policy"), **changes), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_no_body_is_kept_for_rewards(tmp_path: Path) -> None:
    with run(after(DIGITS), folder=tmp_path / "run") as done:
        states = [unpack(done._store.state("client", k))["state"] for k in range(8)]
    assert all("judge" not in state for state in states)


def test_a_start_gives_the_own_models_their_share(tmp_path: Path) -> None:
    """One peer with log V = log(1/1000): the own models have 4/5 to its 1/5, so log(2/1000) each of the two.

    An untrained actor adds 0; the decider `prior` gives the weights themselves.
    """
    settings = {**after(PRODUCT, start="own", own=0.8, warmup=0, noise=0.0), "rounds": 1}
    for decider, near in {"agent": 0.02, "prior": 1e-6}.items():
        made = changed(settings, decider=decider)
        with run(made, folder=tmp_path / decider, federation=judged(TWO, ([1.0], [4.0]))) as done:
            for row in done.decisions():
                seen = row["observation"][[0, 2, 3], 4].tolist()
                assert seen == pytest.approx([math.log(n / 1000) for n in (1, 2, 2)], abs=1e-5)
                assert row["action"][[0, 2, 3]].tolist() == pytest.approx([n / 5 for n in (1, 2, 2)], abs=near)


FINGERPRINTS = [
    {},
    {"body": "size"},
    {"body": "none"},
    {"start": "similarity"},
    {"start": "own"},
    {"start": "own", "own": 0.5},
    {"decider": "uniform"},
    {"decider": "similarity"},
    {"initial": False},
    {"gamma": 0.5},
]


def test_every_setting_matters(tmp_path: Path) -> None:
    seen: dict[tuple[float, ...], dict[str, Any]] = {}
    for i, changes in enumerate(FINGERPRINTS):
        settings = {**after(DIGITS, warmup=0, **changes), "model": {"name": "mlp"}}
        with run(settings, folder=tmp_path / str(i)) as done:
            losses = tuple(row["loss"] for row in done.scores("final"))
        assert losses not in seen, f"{changes} changes nothing over {seen[losses]}"
        seen[losses] = changes


def test_a_reward_compares_with_the_trained_model_alone() -> None:
    """Alone 1/2, with the mix 3/4: r2 = 1/4, with {0, 1, 0} the reward."""
    context = {"similarity": torch.tensor([0.5, 0.5]), "judged": True, "before": None}
    decided = SimpleNamespace(context=context, numbers=lambda _name: torch.tensor([0.5, 0.5]))
    server: Any = SimpleNamespace(state={"learned": SimpleNamespace(running=0.5)}, decisions={(HEAD, 3): decided})
    replies = Replies({3: Payload(numbers={"accuracy": 0.75, "alone": 0.5})}, {})
    (step,) = PFedRLLAAfter(target=0.5).rewards(server, replies)
    assert isinstance(step, Reward)
    assert step.value == pytest.approx(0.25)


def test_ones_own_model_alone_after_the_training_is_fedavgs_local_model(tmp_path: Path) -> None:
    def own(_server: Server, question: Question) -> Tensor:
        assert question.mask is not None
        return torch.eye(len(question.mask))[-1]

    late = {"name": "pfedrlla-after", "initial": False}
    deep = {**DIGITS, "model": {"name": "mlp"}}
    with (
        run({**deep, "method": late}, folder=tmp_path / "one", deciders={HEAD: own}) as one,
        run({**deep, "method": {"name": "fedavg"}}, folder=tmp_path / "two") as two,
    ):
        wanted = {row["client"]: row["loss"] for row in two.scores("held", 3)}
        found = {row["client"]: row["loss"] for row in one.scores("held", 3)}
        assert len(found) >= 4
        assert found == {k: pytest.approx(wanted[k], rel=1e-4) for k in found}
