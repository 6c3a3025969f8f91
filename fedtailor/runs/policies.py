"""The policy that the agents of a run begin with: the user's own, a built-in one, or none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from fedtailor.engines import Job
from fedtailor.methods import (
    NO_POLICY,
    AgentMethod,
    Policy,
    check_method,
    check_shape,
    read_policy,
    shape,
    spec,
)
from fedtailor.parties.policy import SHIPPED, misfit
from fedtailor.runs.assembly import assemble
from fedtailor.runs.settings import Experiment

OF_THE_RUN = ("policy", "agents", "sizes")  # what a run decides apart from its policy
ACTING = {"network", "hidden", "standardise"}  # settings of agents that a policy depends on
PAGE = "docs/results/policies.md"
BEHIND_FIXED = "the policy that we trained is behind a fixed batch size in some scenarios"
REASONS = {  # why a rule decides, by method: what the page says
    "bwa": BEHIND_FIXED,
    "adaptive-b": BEHIND_FIXED,
    "adaptive-aw": "the policy that we trained is level with it",
    "pfedrlla": "we trained no policy, since even the weights of an oracle end behind FedAvg",
    "pfedrlla-after": "the policy that we trained is level with the best fixed weights",
    "fedddrl": "we trained no policy",
}


@dataclass(frozen=True)
class InitialPolicy:
    """How the agents of a run begin."""

    settings: Experiment  # with the settings that the policy needs, or with the rules that decide in its place
    job: Job
    policy: Policy | None = None
    note: str | None = None  # a sentence to store if rules decide


def with_policy(settings: Experiment, job: Job, given: bool = False) -> InitialPolicy:
    """Find the policy of the settings; raise a `UserError` if it is the user's own and does not fit.

    With ``given``, the caller's own functions decide, so nothing built-in does.
    """
    method = settings.method
    if not isinstance(method, AgentMethod):
        return InitialPolicy(settings, job)
    server = assemble(settings, job).server()  # even without a policy, so that an unknown decider fails here
    if method.own_policy is not None:
        policy = read_policy(method.own_policy)
        check_method(policy, method.own_policy, spec(method.rehearses or method))
        found = _changed(settings, job, policy.settings)
        check_shape(policy, method.own_policy, _shape(found.settings, found.job))
        return replace(found, policy=policy)
    if given or not server.decisions.agents or not method.uses_built_in:
        return _changed(settings, job, {"policy": NO_POLICY})
    unfit: list[str] = []
    for name, card in method.shipped().items():
        found = _changed(settings, job, card.get("settings", {}))
        policy = read_policy(SHIPPED / name)
        if (property := misfit(policy, _shape(found.settings, found.job))) is None:
            return replace(found, policy=policy)
        unfit.append(f"{property} = {policy.shape.get(property)}")
    rules = {name: rule for name, rule in method.best_rules.items() if name in server.decisions.agents}
    return _with_rules(settings, job, rules, unfit)


def needed_settings(settings: Experiment, job: Job) -> dict[str, Any]:
    """The method's settings that a policy of this pre-training needs: those that change what its agents see or do."""
    method, made = settings.method, _shape(settings, job)
    assert isinstance(method, AgentMethod)
    needed: dict[str, Any] = {}
    for name, field in type(method).model_fields.items():
        usual = field.get_default(call_default_factory=True)
        if name in OF_THE_RUN or getattr(method, name) == usual:
            continue
        other = method.model_copy(update={name: usual})
        if _shape(settings.model_copy(update={"method": other}), replace(job, method=other)) != made:
            needed[name] = method.model_dump(mode="json", include={name})[name]
    before = type(method).model_fields["agents"].get_default(call_default_factory=True)
    tables = {
        name: {
            key: value
            for key, value in table.model_dump(mode="json", include=ACTING).items()
            if getattr(table, key) != getattr(getattr(before, name), key)
        }
        for name, table in method.agents
    }
    return needed | (
        {"agents": changed} if (changed := {name: table for name, table in tables.items() if table}) else {}
    )


def built_in_digest(method: AgentMethod) -> str:
    """A digest of everything built-in that a run of the method may begin with."""
    shipped = method.shipped().items()
    cards = {name: card["digest"] for name, card in shipped if method.may_fit(card["shape"])}
    return blake2b(repr((cards, dict(method.best_rules))).encode(), digest_size=16).hexdigest()


def _with_rules(settings: Experiment, job: Job, rules: Mapping[str, str], unfit: Sequence[str]) -> InitialPolicy:
    method = settings.method
    assert isinstance(method, AgentMethod)
    tables = {
        name: table.model_copy(update={"decider": rules.get(name.replace("_", "-"), table.decider)})
        for name, table in method.agents
    }
    named, name = " and ".join(dict.fromkeys(map(repr, rules.values()))), method.name or spec(method)
    reason = f"{why} ({PAGE})" if (why := REASONS.get(spec(method))) else "the package has no policy for it"
    if unfit:
        reason = f"the built-in policies are for other runs, with {' or '.join(unfit)}"
    found = _changed(settings, job, {"policy": NO_POLICY, "agents": method.agents.model_copy(update=tables)})
    return replace(found, note=f"{name}: the rule {named} decides, not an agent: {reason}")


def _shape(settings: Experiment, job: Job) -> dict[str, int | str]:
    return shape(settings.method, assemble(settings, job).server())


def _changed(settings: Experiment, job: Job, changes: Mapping[str, Any]) -> InitialPolicy:
    assert isinstance(settings.method, AgentMethod)
    method = _with(settings.method, changes)
    return InitialPolicy(settings.model_copy(update={"method": method}), replace(job, method=method))


def _with(method: AgentMethod, changes: Mapping[str, Any]) -> AgentMethod:
    """The method with these settings, where the user has left the default; agents' tables key by key."""
    kind = type(method)
    fields = kind.model_fields
    given = kind.model_validate(dict(changes))
    taken = {
        name: getattr(given, name)
        for name in changes
        if name == "policy" or getattr(method, name) == fields[name].get_default(call_default_factory=True)
    }
    if "agents" in taken or not isinstance(tables := changes.get("agents"), Mapping):
        return method.model_copy(update=taken)
    usual = fields["agents"].get_default(call_default_factory=True)
    merged = {
        name: {
            key: getattr(getattr(given.agents, name), key)
            for key in table
            if getattr(getattr(method.agents, name), key) == getattr(getattr(usual, name), key)
        }
        for name, table in ((str(name).replace("-", "_"), table) for name, table in tables.items())
    }
    agents = {name: getattr(method.agents, name).model_copy(update=keys) for name, keys in merged.items()}
    return method.model_copy(update={**taken, "agents": method.agents.model_copy(update=agents)})
