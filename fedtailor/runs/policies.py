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
    check_policy,
    read_policy,
    shape,
    spec,
)
from fedtailor.parties.policy import SHIPPED, misfit
from fedtailor.runs.assembly import assemble
from fedtailor.runs.settings import Experiment

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
        check_policy(policy, method.own_policy, spec(method.rehearses or method), shape(method, server))
        return InitialPolicy(settings, job, policy)
    if given or not server.decisions.agents or not method.uses_built_in:
        return _changed(settings, job, {"policy": NO_POLICY})
    unfit: list[str] = []
    for name, card in method.shipped().items():
        found = _changed(settings, job, card.get("settings", {}))
        assert isinstance(found.settings.method, AgentMethod)
        shapes = shape(found.settings.method, assemble(found.settings, found.job).server())
        policy = read_policy(SHIPPED / name)
        if (property := misfit(policy, shapes)) is None:
            return replace(found, policy=policy)
        unfit.append(f"{property} = {policy.shape.get(property)}")
    rules = {name: rule for name, rule in method.best_rules.items() if name in server.decisions.agents}
    return _with_rules(settings, job, rules, unfit)


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


def _changed(settings: Experiment, job: Job, changes: Mapping[str, Any]) -> InitialPolicy:
    assert isinstance(settings.method, AgentMethod)
    method = _with(settings.method, changes)
    return InitialPolicy(settings.model_copy(update={"method": method}), replace(job, method=method))


def _with(method: AgentMethod, changes: Mapping[str, Any]) -> AgentMethod:
    """The method with these settings, where the user has left the default."""
    usual = type(method)
    fields = usual.model_fields
    given = usual.model_validate(dict(changes))
    taken = {
        name: getattr(given, name)
        for name in changes
        if name == "policy" or getattr(method, name) == fields[name].get_default(call_default_factory=True)
    }
    return method.model_copy(update=taken)
