"""Which policy the agents of a run begin with."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.errors import UserError
from fedtailor.methods import AgentMethod, find
from fedtailor.parties import policy as policies
from fedtailor.parties.policy import CARD, SHIPPED, TENSORS, shipped_policies
from fedtailor.runs.policies import BEHIND_FIXED, PAGE, REASONS, built_in_digest
from fedtailor.runs.reproduce.plan import make_plan
from fedtailor.views.drawings.hapfl import turns

SHORT: dict[str, Any] = {
    "rounds": 2,
    "data": {"source": "digits", "clients": 4, "samples": 200},
    "model": {"name": "linear"},
    "participation": {"ratio": 0.5},
    "engine": {"kind": "inline"},
}
SHIPS = ("hapfl",)  # methods with a policy in the package
RULES = ("bwa", "adaptive-b", "adaptive-aw", "pfedrlla", "pfedrlla-after", "fedddrl")  # a rule decides by default
SIZES = [{"name": "mlp", "arguments": {"hidden": 4}}, {"name": "mlp", "arguments": {"hidden": 8}}, "linear"]


def method(name: str, **settings: Any) -> AgentMethod:
    made = find(name)(**settings)
    assert isinstance(made, AgentMethod)
    return made


@pytest.fixture
def nothing_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(policies, "SHIPPED", tmp_path / "none")
    shipped_policies.cache_clear()
    yield
    shipped_policies.cache_clear()


def test_every_shipped_policy_is_small_and_whole() -> None:
    assert {name for name in SHIPS if shipped_policies(name)} == set(SHIPS)
    for folder in SHIPPED.iterdir():
        policy = policies.read_policy(folder)
        assert sum(file.stat().st_size for file in folder.iterdir()) < 500_000
        assert policy.scenario["seed"] == 100
        assert policy.settings
        assert sorted(file.name for file in folder.iterdir()) == [CARD, TENSORS]


@pytest.mark.parametrize("number", [2, 3])
def test_a_run_begins_with_the_built_in_policy_and_decides_greedily(number: int, tmp_path: Path) -> None:
    settings: dict[str, Any] = {**SHORT, "method": {"name": "hapfl", "sizes": SIZES[:number]}}
    with fedtailor.run(settings, folder=tmp_path / "run") as done:
        assert done.settings["method"]["policy"] == "built-in"
        assert {table["network"] for table in done.settings["method"]["agents"].values()} == {"per-slot"}
        assert not [text for text in done.warnings if "rule" in text]
        stored = {decision: done.agents()[decision]["actor"]["parameters"] for decision in done.agents()}
        actions = [row["action"].tolist() for row in done.decisions()]
    policy = policies.read_policy(SHIPPED / f"hapfl-{number}")
    assert set(stored) == {"size", "intensity"}
    for decision, parameters in stored.items():
        for own, other in zip(parameters, policy.agents[decision]["actor"]["parameters"], strict=True):
            assert own.equal(other)
    with fedtailor.run({**settings, "seed": 0}, folder=tmp_path / "again") as again:
        assert [row["action"].tolist() for row in again.decisions()] == actions
    with fedtailor.run(
        {**settings, "method": {**settings["method"], "policy": "none"}}, folder=tmp_path / "no"
    ) as none:
        assert [row["action"].tolist() for row in none.decisions()] != actions


@pytest.mark.parametrize("number", [2, 3])
def test_with_a_built_in_policy_clients_wait_almost_as_little_as_with_the_search(number: int, tmp_path: Path) -> None:
    """Devices 30 times apart; nothing here was drawn while the policies learned."""
    settings: dict[str, Any] = {
        **SHORT,
        "data": {"source": "digits", "clients": 8, "samples": 200},
        "participation": {"ratio": 1.0},
        "training": {"epochs": 5},
        "devices": {"profiles": {"kind": "uniform", "spread": 30}},
    }
    search: dict[str, Any] = {"agents": {"size": {"decider": "search"}, "intensity": {"decider": "search"}}}
    rows: dict[str, dict[str, Any]] = {
        "policy": {},
        "untrained": {"policy": "none"},
        "search": search,
        "even": {"adapts": "neither"},
    }
    waiting = {}
    for name, table in rows.items():
        method = {"name": "hapfl", "sizes": SIZES[:number], **table}
        with fedtailor.run({**settings, "method": method}, folder=tmp_path / name) as done:
            times = [row["training"] for row in turns(done.server_state()["timeline"]["latest"])]
            waiting[name] = 1 - min(times) / max(times)
    limit = waiting["search"] + 0.2 * (waiting["even"] - waiting["search"])
    assert waiting["policy"] < limit < waiting["untrained"]


@pytest.mark.parametrize("name", RULES)
def test_where_no_policy_is_shipped_the_best_rule_decides_and_the_run_says_so(name: str, tmp_path: Path) -> None:
    with fedtailor.run({**SHORT, "method": {"name": name}}, folder=tmp_path / "run") as done:
        deciders = {table["decider"] for table in done.settings["method"]["agents"].values()}
        assert deciders == set(method(name).best_rules.values())
        assert done.settings["method"]["policy"] == "none"
        (said,) = [text for text in done.warnings if "decides, not an agent" in text]
    assert said.startswith(f"{name}: the rule ")
    assert said.endswith(f"not an agent: {REASONS[name]} ({PAGE})")


def test_the_reasons_for_rules_are_what_the_page_says() -> None:
    page = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")

    def outcomes(row: str, other: str) -> set[str]:
        (line,) = re.findall(rf"^\* {row} against {other}: (.*?)(?: of \d+)(?:;.*)?\.$", page, re.MULTILINE)
        return {part.rpartition(" in ")[0] for part in line.split(", ")}

    for name, reason in REASONS.items():
        if reason == BEHIND_FIXED:
            assert "behind" in outcomes(name, "always .")
        assert ("we trained no policy" in reason) == (find(name).name in ("pfedrlla", "fedddrl"))
    assert outcomes("adaptive-aw", "prior") == {"level"}
    assert outcomes("the agent", "trained 1") == {"level"}
    assert "behind FedAvg" in page


def test_a_method_of_the_users_own_does_not_inherit_a_reason(tmp_path: Path) -> None:
    class Mine(find("bwa")):  # type: ignore[misc]
        pass

    with fedtailor.run({**SHORT, "method": Mine()}, folder=tmp_path / "run") as done:
        (said,) = [text for text in done.warnings if "decides, not an agent" in text]
    assert said.endswith("not an agent: the package has no policy for it")


def test_a_policy_that_does_not_fit_gives_way_to_the_best_rule(tmp_path: Path) -> None:
    sizes = [{"name": "mlp", "arguments": {"hidden": 2**place}} for place in range(1, 6)]
    with fedtailor.run({**SHORT, "method": {"name": "hapfl", "sizes": sizes}}, folder=tmp_path / "run") as done:
        assert {table["decider"] for table in done.settings["method"]["agents"].values()} == {"search"}
        (said,) = [text for text in done.warnings if "decides" in text]
    assert said.endswith("for other runs, with size, actions = size: one of 2 or size, actions = size: one of 3")


def test_an_agent_whose_table_the_user_changes_learns_from_scratch(tmp_path: Path) -> None:
    assert method("bwa").uses_built_in
    assert not method("bwa", policy="none").uses_built_in
    assert not method("bwa", policy=Path("own")).uses_built_in
    assert not method("bwa", agents={"adjustment": {"hidden": [8]}}).uses_built_in
    assert not method("feddrl").uses_built_in  # nothing is built-in for it
    changed = {"name": "bwa", "agents": {"adjustment": {"hidden": [8]}}}
    with fedtailor.run({**SHORT, "method": changed}, folder=tmp_path / "run") as done:
        assert done.settings["method"]["policy"] == "none"
        assert done.settings["method"]["agents"]["adjustment"]["decider"] == "agent"


def test_pretraining_starts_from_scratch(tmp_path: Path) -> None:
    begun = {**SHORT, "method": {"name": "bwa", "policy": "none"}, "pretrain": {"episodes": 1}}
    usual = {**begun, "method": {"name": "bwa"}}
    digests = []
    for place, settings in (("usual", usual), ("none", begun)):
        fedtailor.pretrain(settings, folder=tmp_path / place).close()
        digests.append(json.loads((tmp_path / place / CARD).read_text())["digest"])
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("name", "table", "needed"),
    [
        ("bwa", {"agents": {"adjustment": {"hidden": [8], "actor_lr": 0.01}}, "spread": 0.25}, ("agents", "spread")),
        ("hapfl", {"agents": {"size": {"network": "per-slot"}}, "state": "full", "md": 5.0}, ("agents", "state")),
        ("pfedrlla-after", {"embedding": {"kind": "pca", "size": 4}, "own": 0.8, "b1": 1.0}, ("embedding", "own")),
        ("fedddrl", {"agents": {"epochs": {"hidden": [5]}}, "w1": 2.0}, ("agents",)),
    ],
)
def test_a_run_takes_the_settings_that_the_users_own_policy_needs(
    name: str, table: dict[str, Any], needed: tuple[str, ...], tmp_path: Path
) -> None:
    """And no others: learning rates and rewards are those of the run."""
    scenario = {**SHORT, "method": {"name": name, "policy": "none", **table}, "pretrain": {"episodes": 1}}
    fedtailor.pretrain(scenario, folder=tmp_path / "policy").close()
    policy = policies.read_policy(tmp_path / "policy")
    assert set(policy.settings) == set(needed)
    own = {**SHORT, "method": {"name": name, "policy": str(tmp_path / "policy")}}
    with fedtailor.run(own, folder=tmp_path / "run") as done:
        taken = done.settings["method"]
        stored = done.agents()
    whole = method(name, **table).model_dump(mode="json")
    for key in needed:
        if key != "agents":
            assert taken[key] == whole[key]
    for decision, agent in taken["agents"].items():
        asked = whole["agents"][decision]
        assert agent["hidden"] == asked["hidden"]
        usual = method(name).model_dump(mode="json")["agents"][decision]
        assert agent.get("actor_lr") == usual.get("actor_lr")
    assert set(stored) == set(policy.agents)
    for decision, agent in stored.items():
        for part in ("actor", "network"):
            if part in agent:
                pairs = zip(agent[part]["parameters"], policy.agents[decision][part]["parameters"], strict=True)
                assert all(one.equal(other) for one, other in pairs)


def test_a_setting_that_the_user_changes_is_kept_beside_those_of_the_policy(tmp_path: Path) -> None:
    table = {"adjustment": {"hidden": [8]}}
    scenario = {**SHORT, "method": {"name": "bwa", "policy": "none", "agents": table}, "pretrain": {"episodes": 1}}
    fedtailor.pretrain(scenario, folder=tmp_path / "policy").close()
    own = {"name": "bwa", "policy": str(tmp_path / "policy"), "agents": {"adjustment": {"learn": "always"}}}
    with fedtailor.run({**SHORT, "method": own}, folder=tmp_path / "run") as done:
        taken = done.settings["method"]["agents"]["adjustment"]
    assert (taken["hidden"], taken["learn"]) == ([8], "always")
    other = {**own, "agents": {"adjustment": {"hidden": [9]}}}
    with pytest.raises(UserError, match=r"trained with adjustment, network = flat 8, this run has flat 9"):
        fedtailor.run({**SHORT, "method": other}, folder=tmp_path / "other")


def test_a_run_keeps_the_policy_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fedtailor.run({**SHORT, "method": {"name": "hapfl", "sizes": SIZES[:2]}}, folder=tmp_path / "run").close()
    monkeypatch.setattr(policies, "SHIPPED", tmp_path / "none")  # as after an update that ships another policy
    shipped_policies.cache_clear()
    try:
        with fedtailor.resume(tmp_path / "run", rounds=None) as done:
            assert done.settings["method"]["policy"] == "built-in"
    finally:
        shipped_policies.cache_clear()


RECIPE = """
title = "keys"
[experiments.one]
base = "base.toml"
methods = [{methods}]
[tables.one]
title = "one"
experiment = "one"
columns = ["final.accuracy"]
"""


def keys(folder: Path, *tables: str) -> list[str]:
    folder.mkdir(exist_ok=True)
    (folder / "base.toml").write_text('name = "base"\n')
    (folder / "reproduce.toml").write_text(RECIPE.format(methods=", ".join(tables)))
    return [step.key for steps in make_plan(folder).steps["one"].values() for step in steps]


def test_a_records_key_depends_on_what_is_built_in_and_not_without_it(tmp_path: Path, nothing_shipped: None) -> None:
    tables = ('"bwa"', '{ label = "none", name = "bwa", policy = "none" }', '"feddrl"')
    built_in, none, other = keys(tmp_path / "recipe", *tables)
    assert built_in != none
    before = built_in_digest(method("bwa"))
    card = tmp_path / "none" / "bwa" / CARD
    card.parent.mkdir(parents=True)
    card.write_text(json.dumps({"method": "bwa", "digest": "another", "shape": {}, "settings": {}}))
    shipped_policies.cache_clear()
    assert built_in_digest(method("bwa")) != before
    again = keys(tmp_path / "recipe", *tables)
    assert again[0] != built_in
    assert again[1:] == [none, other]


def test_a_policy_for_another_number_of_sizes_changes_no_key() -> None:
    """A record of two sizes stays valid when a policy for three is added, and the other way round."""
    more = [{"name": "mlp", "arguments": {"hidden": 2**place}} for place in range(1, 7)]
    two, three, five, six = (built_in_digest(method("hapfl", sizes=more[:number])) for number in (2, 3, 5, 6))
    assert built_in_digest(method("hapfl")) == two  # a pair
    assert len({two, three, five}) == 3
    assert five == six  # the search decides in both
