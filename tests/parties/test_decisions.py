"""Decisions: slots, rules, rewards and learning, as the framework does them for every method."""

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import fedtailor
from fedtailor.agents import (
    DDPG,
    AgentSettings,
    Categorical,
    DDPGSettings,
    Integer,
    MeanDeviation,
    PPOSettings,
    Simplex,
    VDNSettings,
)
from fedtailor.errors import UserError
from fedtailor.messages.trees import pack, unpack
from fedtailor.methods.base import AgentMethod
from fedtailor.parties import (
    AgentTables,
    Decide,
    Decided,
    Decision,
    Decisions,
    Feature,
    Question,
    Reward,
    Server,
    Steps,
)
from fedtailor.runs import Callback, RoundReport, resume, run
from fedtailor.seeding import torch_stream

torch.set_num_threads(1)  # as in a run

ONE = (Feature("number"),)
QUICK: dict[str, Any] = {"hidden": (4,), "batch": 2, "updates": 1, "noise": 1.0}


def server(round: int = 1, rounds: int = 4, episode: int = 0, greedy: bool = False) -> Any:
    """What decisions need of a server."""

    def stream(purpose: str) -> torch.Generator:
        return torch_stream(episode, round, purpose)

    return SimpleNamespace(
        round=round, rounds=rounds, greedy=greedy, stream=stream, moment=SimpleNamespace(episode=episode)
    )


def declared(slots: int = 3, settings: AgentSettings | None = None, **changes: Any) -> Decision:
    agent = DDPGSettings(**QUICK) if settings is None else settings
    return Decision("mix", ONE, {"weights": Simplex()}, agent, slots, **changes)


def made(*, policy: bool = False, keeps_best: bool = False, **changes: Any) -> Decisions:
    return Decisions([declared(**changes)], server(), policy, keeps_best)


def quick(**changes: Any) -> DDPGSettings:
    return DDPGSettings(**{**QUICK, **changes})


def agent_of(decisions: Decisions) -> DDPG:
    agent = decisions.agents["mix"]
    assert isinstance(agent, DDPG)
    return agent


ROWS = {5: [1.0], 2: [2.0]}


# Slots


def test_rows_have_slots_in_their_order_and_own_slots_a_fixed_place() -> None:
    """Clients 7 and 2 in slots 0 and 1, nobody in slot 2, the server in slot 3; client 2 is not there."""
    features = (Feature("pair", 2), Feature("single"))
    about = Decision("mix", features, {"weights": Simplex()}, quick(), slots=3, own=("server", "spare"))
    assert (about.width, about.all_slots) == (3, 5)
    rows = {7: [1.0, 2.0, 3.0], "server": torch.tensor([4.0, 5.0, 6.0]), 2: [7.0, 8.0, 9.0]}
    question = Question.of(about, Decide("mix", rows, about=7, absent=[2], context={"age": 3}))
    assert question.keys == (7, "server", 2)
    assert question.places == (0, 3, 1)
    assert question.observation.tolist() == [[1, 2, 3], [7, 8, 9], [0, 0, 0], [4, 5, 6], [0, 0, 0]]
    assert question.mask.tolist() == [True, False, False, True, False]
    assert (question.name, question.about, question.context) == ("mix", 7, {"age": 3})


def test_more_rows_than_slots_are_refused_with_a_sentence() -> None:
    about = Decision("mix", ONE, {"weights": Simplex()}, quick(), slots=2, own=("server",))
    full = {7: [0.0], "server": [0.0], 2: [0.0]}
    assert Question.of(about, Decide("mix", full)).mask.all()
    with pytest.raises(ValueError, match="the decision mix is about 2 clients at most, not 3"):
        Question.of(about, Decide("mix", {**full, 5: [0.0]}))


def test_an_action_has_numbers_by_key_or_one_for_all() -> None:
    """The flat action has the numbers of its kinds in their order: a batch size, then a weight for each of 4 slots."""
    both = Decision("mix", ONE, {"batch": Integer(1, 8), "weights": Simplex()}, PPOSettings(), slots=3, own=("server",))
    question = Question.of(both, Decide("mix", {7: [0.0], "server": [0.0], 2: [0.0]}, absent=[2]))
    decided = Decided(question, torch.tensor([5.0, 0.25, 0.0, 0.0, 0.75]), round=1)
    assert decided["batch"] == 5.0
    assert decided["weights"] == {7: 0.25, "server": 0.75, 2: 0.0}
    assert decided.numbers("weights").tolist() == [0.25, 0.75, 0.0]
    pairs = Decision("mix", ONE, {"factors": MeanDeviation(2.0, 0.5)}, quick(), slots=2)
    decided = Decided(Question.of(pairs, Decide("mix", {7: [0.0]})), torch.tensor([[1.0, 0.5], [0.0, 0.0]]), round=1)
    assert decided["factors"] == {7: [1.0, 0.5]}


def test_an_agent_sees_logarithms_where_a_feature_says_so() -> None:
    features = (Feature("raw"), Feature("ratio", scale="log"), Feature("losses", 2, scale="log1p"))
    about = Decision("mix", features, {"weights": Simplex()}, quick(), slots=2)
    seen = about.seen(torch.tensor([[-3.0, math.e, math.e - 1, -1.0], [0.0, 0.0, 0.0, 0.0]]))
    assert seen[0].tolist() == pytest.approx([-3.0, 1.0, 1.0, 0.0], abs=1e-6)
    assert seen[1].tolist() == [0.0] * 4
    assert declared().seen(seen) is seen


# Who decides


def test_equal_weights_and_chance_can_take_the_place_of_an_agent() -> None:
    """Three slots of which two are taken: 1/2 each, and the batch size that nobody decided."""
    kinds = {"batch": Integer(1, 8, usual=6), "weights": Simplex()}
    for decider in ("uniform", "random"):
        about = Decision("mix", ONE, kinds, PPOSettings(decider=decider), slots=3)
        decided = Decisions([about], server()).decide(server(), Decide("mix", ROWS))
        again = Decisions([about], server()).decide(server(), Decide("mix", ROWS))
        assert torch.equal(decided.action, again.action)
        if decider == "uniform":
            assert decided.action.tolist() == [6.0, 0.5, 0.5, 0.0]
        else:
            draws = server().stream("exploration of mix")
            batch = kinds["batch"].random(decided.question.mask, draws)
            assert torch.equal(decided.action, torch.cat([batch, kinds["weights"].random(torch.arange(3) < 2, draws)]))


def test_a_rule_of_the_method_can_take_the_place_of_an_agent() -> None:
    def heavier(_server: Server, question: Question) -> Tensor:
        return question.observation[:, 0] / question.observation.sum()

    rules = {"heavier": heavier, "similarity": None}
    by_function = made(settings=quick(decider="heavier"), deciders=rules).decide(server(), Decide("mix", ROWS))
    assert by_function["weights"] == pytest.approx({5: 1 / 3, 2: 2 / 3})
    # the question brings the numbers of its rows
    brought = Decide("mix", ROWS, absent=[5], context={"similarity": torch.tensor([0.0, 1.0])})
    by_context = made(settings=quick(decider="similarity"), deciders=rules).decide(server(), brought)
    assert by_context.action.tolist() == [0.0, 1.0, 0.0]


def test_a_rule_from_outside_comes_before_all_others() -> None:
    decided = made(settings=quick(decider="uniform")).decide(
        server(), Decide("mix", ROWS), lambda _server, _question: torch.tensor([0.9, 0.1, 0.0])
    )
    assert decided["weights"] == pytest.approx({5: 0.9, 2: 0.1})


def test_a_decider_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match="unknown decider of mix 'unifrom': did you mean 'uniform'"):
        declared(settings=quick(decider="unifrom"))


def test_settings_of_no_agent_have_no_agent_and_nothing_to_share() -> None:
    with pytest.raises(UserError, match="decider of mix 'agent'"):
        declared(settings=AgentSettings())
    decisions = made(settings=AgentSettings(decider="uniform"), keeps_best=True)
    assert not decisions.learns("mix")
    decisions.begin_round(server())
    decided = decisions.decide(server(), Decide("mix", ROWS))
    assert decided["weights"] == {5: 0.5, 2: 0.5}
    decisions.reward(server(), decided, 1.0)
    decisions.end_round(server())
    assert decisions.agents == decisions.best == decisions.rows() == decisions.policy() == decisions.shape() == {}


@pytest.mark.parametrize(
    ("settings", "policy", "learns"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"learn": "always"}, True, True),
        ({"learn": "never"}, False, False),
        ({"decider": "uniform"}, False, False),
        ({"decider": "uniform", "learn": "always"}, False, False),
        ({"updates": 0}, False, False),
    ],
)
def test_an_agent_explores_where_it_learns_and_only_there(settings: dict[str, Any], policy: bool, learns: bool) -> None:
    decisions = made(settings=quick(**settings), policy=policy)
    assert decisions.learns("mix") == learns
    agent = agent_of(decisions)
    decisions.begin_round(server())
    before = pack(agent.actor)
    decided = decisions.decide(server(), Decide("mix", ROWS))
    if "decider" not in settings:
        stream = server().stream("exploration of mix") if learns else None
        assert torch.equal(decided.action, agent.act(decided.question.observation, decided.question.mask, stream))
    greedy = decisions.preview().decide(server(greedy=True), Decide("mix", ROWS))
    assert learns == (not torch.equal(greedy.action, decided.action))
    decisions.reward(server(), decided, 1.0)
    decisions.end_round(server())
    assert len(agent.replay) == learns
    assert (pack(agent.actor) != before) == learns


@pytest.mark.parametrize(("warming", "wanted"), [("random", None), ("neutral", [0.5, 0.5, 0.0])])
def test_before_an_agent_decides_it_watches(warming: Any, wanted: Any) -> None:
    """Two rounds of the first episode: what is done is not the agent's, which observes and does not learn."""
    decisions = made(settings=quick(warmup=2), warming=warming)
    agent = agent_of(decisions)
    before = pack(agent.actor)
    for round in (1, 2, 3):
        now = server(round)
        decisions.begin_round(now)
        decided = decisions.decide(now, Decide("mix", ROWS))
        mask, draws = decided.question.mask, now.stream("exploration of mix")
        expected = Simplex().random(mask, draws).tolist() if wanted is None else wanted
        assert (decided.action.tolist() == expected) == (round < 3)
        decisions.reward(now, decided, 1.0)
        decisions.end_round(now)
        assert len(agent.replay) == round
        assert (pack(agent.actor) != before) == (round == 3)
    assert not decisions.warming(server(1, episode=1), "mix")
    assert not made(settings=quick(warmup=2), policy=True).warming(server(1), "mix")


def test_training_is_due_in_every_third_round_after_the_warm_up() -> None:
    decisions = made(settings=quick(warmup=3, every=3))
    assert [round for round in range(1, 10) if decisions.due(server(round), "mix")] == [6, 9]
    assert [round for round in range(1, 10) if decisions.due(server(round, episode=1), "mix")] == [3, 6, 9]


def test_agents_that_decide_may_be_taught_before_their_first_round_from_scratch() -> None:
    decisions = made()
    assert decisions.untrained(server(1))
    assert not decisions.untrained(server(2))
    assert not decisions.untrained(server(1, episode=1))
    assert not decisions.untrained(server(1, greedy=True))
    assert not made(policy=True).untrained(server(1))
    assert not made(settings=quick(decider="uniform")).untrained(server(1))


def test_every_use_of_a_decision_has_a_stream_of_its_own() -> None:
    names = [declared().stream(use) for use in ("start", "exploration", "learning")]
    assert names == ["start of mix", "exploration of mix", "learning of mix"]
    assert declared().stream("exploration", 7) == "exploration of mix for 7"
    assert declared().stream("exploration", 0) == "exploration of mix for 0"


# Rewards


def test_open_decisions_wait_for_their_reward() -> None:
    decisions = made()
    decisions.begin_round(server())
    assert len(decisions) == 0
    one = decisions.decide(server(), Decide("mix", ROWS, about=5))
    two = decisions.decide(server(), Decide("mix", ROWS, about=2))
    everyone = decisions.decide(server(), Decide("mix", ROWS))
    assert list(decisions) == [("mix", 5), ("mix", 2), ("mix", None)]
    assert decisions["mix", 5] is one
    assert decisions["mix", None] is everyone
    decisions.reward(server(), two, 1.0)
    assert ("mix", 2) not in decisions
    assert decisions.get(("mix", 2)) is None
    decisions.begin_round(server(2))
    assert len(decisions) == 0


def test_a_decision_can_be_rewarded_in_a_later_round_of_its_episode() -> None:
    decisions = made(rewarded_later=True)
    decisions.begin_round(server())
    decided = decisions.decide(server(), Decide("mix", ROWS, about=5))
    decisions.begin_round(server(2))
    assert decisions["mix", 5] is decided
    newer = decisions.decide(server(2), Decide("mix", ROWS, about=5))
    assert decisions["mix", 5] is newer
    decisions.begin_round(server(1, episode=1))
    assert len(decisions) == 0


@pytest.mark.parametrize(("whole", "ends"), [(True, [0, 0, 1]), (False, [1, 1, 1])])
def test_an_episode_is_a_decision_or_a_whole_federation(whole: bool, ends: list[int]) -> None:
    """With a discount, what waits for its next state is complete when that is seen, or when it ends an episode."""
    decisions = made(settings=quick(discount=0.5, updates=1), whole_federation=whole)
    replay = agent_of(decisions).replay
    for round in (1, 2, 3):
        now = server(round, rounds=3)
        decisions.begin_round(now)
        decided = decisions.decide(now, Decide("mix", {5: [float(round)]}))
        decisions.reward(now, decided, 10.0 * round)
    rows = replay.take_changed()
    assert [float(row["done"]) for row in rows.values()] == ends
    assert [float(row["reward"]) for row in rows.values()] == [10.0, 20.0, 30.0]
    if whole:
        assert [float(row["next_state"][0, 0]) for row in rows.values()][:2] == [2.0, 3.0]


def test_the_best_policy_is_judged_by_the_objective_or_else_by_the_reward() -> None:
    for objective, wanted in ((None, 6.0), (0.5, 1.5)):
        decisions = made(keeps_best=True, whole_federation=True)
        for round in (1, 2, 3):
            now = server(round, rounds=3)
            decisions.begin_round(now)
            decisions.reward(now, decisions.decide(now, Decide("mix", ROWS)), float(round), objective)
            decisions.end_round(now)
        assert decisions.best["mix"].values == [wanted]


# What is kept


def test_stored_decisions_resume_exactly() -> None:
    def rounds(decisions: Decisions, first: int, last: int) -> None:
        for round in range(first, last):
            now = server(round, rounds=9)
            decisions.begin_round(now)
            for about in (5, 2):
                waiting = decisions.get(("mix", about))
                if waiting is not None:
                    decisions.reward(now, waiting, waiting.context["pays"] * round)
                rows = {5: [float(round)], 2: [0.5]}
                decisions.decide(now, Decide("mix", rows, about=about, context={"pays": about}))
            decisions.end_round(now)

    def stored(decisions: Decisions, kept: dict[int, Any]) -> bytes:
        kept |= decisions.replays["mix"].take_changed()
        return pack([decisions.rows(), kept])

    changes: dict[str, Any] = {"rewarded_later": True, "settings": quick(discount=0.9), "keeps_best": True}
    one, kept = made(**changes), {}
    rounds(one, 1, 4)
    tree, transitions = unpack(stored(one, kept))
    rounds(one, 4, 7)
    end = stored(one, kept)
    other = made(**changes)
    other.load(tree, {"mix": transitions})
    assert [(key, decided.round, decided.context) for key, decided in other.items()] == [
        (("mix", 5), 3, {"pays": 5}),
        (("mix", 2), 3, {"pays": 2}),
    ]
    rounds(other, 4, 7)
    assert stored(other, dict(transitions)) == end
    assert "replay" in tree["agent mix"]
    assert not torch.is_tensor(tree["agent mix"]["replay"])  # the place of the next; transitions are stored apart


def test_another_run_can_start_with_the_policy_and_must_agree_on_its_shape() -> None:
    one, other = made(), Decisions([declared()], server(round=2))
    assert pack(agent_of(one).actor) != pack(agent_of(other).actor)
    other.adopt(unpack(pack(one.policy())))
    assert pack(agent_of(one).actor) == pack(agent_of(other).actor)
    shape = {
        "mix, actions": "weights: weights",
        "mix, features": "number (1 in all)",
        "mix, network": "mlp 4",
        "mix, slots": 3,
    }
    assert one.shape() == shape
    any_number = made(settings=quick(network="attention", hidden=(4, 4))).shape()
    assert "mix, slots" not in any_number
    both = Decision("size", ONE, {"size": Categorical(3)}, VDNSettings(), slots=2)
    assert Decisions([both], server()).shape()["size, actions"] == "size: one of 3"


# Settings


class Tables(AgentTables):
    """An agent for each of two decisions."""

    size: PPOSettings = PPOSettings(hidden=(8,), discount=0.5)
    head_weights: DDPGSettings = DDPGSettings(noise=0.3)


def test_what_a_user_leaves_out_has_the_defaults_of_the_method() -> None:
    tables = Tables.model_validate({"size": {"clip": 0.1}, "head-weights": {"learn": "never"}})
    assert tables.size == PPOSettings(hidden=(8,), discount=0.5, clip=0.1)
    assert tables.of("head-weights") == DDPGSettings(noise=0.3, learn="never")
    assert Tables().of("size") == PPOSettings(hidden=(8,), discount=0.5)
    with pytest.raises(ValueError, match="clib"):
        Tables.model_validate({"size": {"clib": 0.1}})
    with pytest.raises(ValueError, match="sizes"):
        Tables.model_validate({"sizes": {}})


def test_all_agents_can_be_told_to_learn() -> None:
    learning = Tables.model_validate({"head-weights": {"learn": "never", "warmup": 3}}).changed(
        learn="always", warmup=0
    )
    assert learning.size == PPOSettings(hidden=(8,), discount=0.5, learn="always")
    assert learning.head_weights == DDPGSettings(noise=0.3, learn="always")


# In a run


class LateAgents(AgentTables):
    mix: DDPGSettings = quick()


class Late(AgentMethod):
    """Every client's decision is rewarded in the next round: ten times that round, and the client."""

    agents: LateAgents = LateAgents()

    def decisions(self, server: Server) -> Sequence[Decision]:
        return [declared(server.largest_cohort, self.agents.mix, rewarded_later=True)]

    def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
        for (_, about), decision in list(server.decisions.items()):
            assert about is not None
            yield Reward(decision, 10.0 * server.round + about)
        for k in cohort:
            yield Decide("mix", {j: [float(j)] for j in cohort}, about=k)
        return super().prepare(server, cohort)


class Stop(Callback):
    def round_done(self, report: RoundReport) -> None:
        if report.round == 2:
            raise KeyboardInterrupt


def test_a_late_reward_is_recorded_with_the_decision_that_it_is_for(tmp_path: Path) -> None:
    settings = fedtailor.experiment(
        {
            "rounds": 3,
            "data": {"clients": 2, "samples": 100},
            "model": {"name": "linear"},
            "training": {"epochs": 1},
            "engine": {"kind": "inline"},
            "method": {"name": "tests.parties.test_decisions:Late"},
        }
    )
    wanted = [(1, 0, 20.0), (1, 1, 21.0), (2, 0, 30.0), (2, 1, 31.0), (3, 0, None), (3, 1, None)]
    with run(settings, folder=tmp_path / "one") as done:
        assert [(row["round"], row["about"], row["reward"]) for row in done.decisions()] == wanted
        actions = [row["action"].tolist() for row in done.decisions()]
        whole = pack(done.agents())
        assert len(unpack(done._store.state("decisions", "open decisions"))["value"]) == 2
    with pytest.raises(KeyboardInterrupt):
        run(settings, folder=tmp_path / "two", callbacks=Stop())
    with resume(tmp_path / "two") as done:
        assert [(row["round"], row["about"], row["reward"]) for row in done.decisions()] == wanted
        assert [row["action"].tolist() for row in done.decisions()] == actions
        assert pack(done.agents()) == whole


def test_a_decision_that_is_not_declared_is_named() -> None:
    with pytest.raises(UserError, match=r"'mx' that it does not declare \(known: mix\)"):
        made().decide(server(), Decide("mx", ROWS))
