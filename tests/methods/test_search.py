"""The search in place of agents that allocate work: values by hand, and agents that imitate it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import fedtailor
from fedtailor.agents import Categorical, PPOSettings, Simplex
from fedtailor.methods.hapfl import HAPFL
from fedtailor.methods.search import search_shares, search_sizes
from fedtailor.parties import Decide, Decision, Feature, Question, Server
from fedtailor.runs import run
from tests.support.allocation import DIGITS, SEARCH, both, changed

NOBODY = cast(Server, SimpleNamespace())  # the search asks the server nothing


def question(times: dict[int, float], **context: Any) -> Question:
    """A question of four slots about clients with these times."""
    action = {"size": Categorical(3)} if "ratios" in context else {"shares": Simplex()}
    declared = Decision("work", [Feature("time")], action, PPOSettings(), slots=4)
    rows = {client: [time] for client, time in times.items()}
    return Question.of(declared, Decide("work", rows, context=context))


def test_sizes_by_hand() -> None:
    """Times 1, 2 and 4 with ratios 1, 2, 4: sizes 2, 1, 0 let all take 4; an empty slot has 0."""
    asked = question({7: 1.0, 2: 2.0, 5: 4.0}, ratios=[1.0, 2.0, 4.0])
    assert search_sizes(NOBODY, asked).tolist() == [2, 1, 0, 0]


def test_shares_by_hand() -> None:
    """Times 1, 2, 4 and 14 epochs: 8, 4 and 2, of which 7, 3 and 1 of 11 are beyond the first."""
    found = search_shares(NOBODY, question({7: 1.0, 2: 2.0, 5: 4.0}, epochs=14))
    assert found.tolist() == pytest.approx([7 / 11, 3 / 11, 1 / 11, 0])


def test_shares_of_one_epoch_each_are_zero() -> None:
    assert search_shares(NOBODY, question({7: 1.0, 2: 2.0}, epochs=2)).tolist() == [0, 0, 0, 0]


def test_imitation_of_the_search_comes_near_it(tmp_path: Path) -> None:
    tables = both(network="per-slot", actor_lr=0.01)
    latency = {}
    for name, changes in {"even": {"adapts": "neither"}, "search": {"agents": SEARCH}, "warm": {"warm": 150}}.items():
        settings = changed({**DIGITS, "rounds": 8}, **{"state": "log", "agents": tables, **changes})
        scenario = fedtailor.experiment({**settings, "evaluation": {"every": 0, "final": False}})
        assert isinstance(scenario.method, HAPFL)
        update = {"method": scenario.method.environment()}  # on the clock alone, without learning
        with run(scenario.model_copy(update=update), folder=tmp_path / name) as done:
            latency[name] = sum(row["latency"] for row in done.clock())
    assert latency["search"] < 0.4 * latency["even"]
    assert latency["warm"] < 0.6 * latency["even"]
