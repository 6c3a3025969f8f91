"""The stated rules by which methods become candidates for a federation, or are left out with a reason."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedtailor.data import Federation
from fedtailor.errors import UserError
from fedtailor.methods import AgentMethod, Method, Server, catalogue, spec
from fedtailor.models import Network
from fedtailor.runs.accounting import check_privacy
from fedtailor.runs.advice.traits import Traits
from fedtailor.runs.assembly import assemble, job_of
from fedtailor.runs.resources import Resources
from fedtailor.runs.settings import Experiment, make_method
from fedtailor.runs.trials.plan import lacks_model

REFERENCES = ("fedavg", "local")  # one model for all, and no exchange at all: what every advice is measured against
MANY = 500  # clients above which the server cannot be asked to keep a model of each
TURNS = 2.0  # rounds of a client below which methods that need its memory have nothing to remember


@dataclass(frozen=True)
class Needs:
    """What the user asks of a method, besides what the experiment's own settings imply."""

    only_sums: bool = False  # secure aggregation must be possible
    no_peers: bool = False  # no client may receive another client's model


@dataclass(frozen=True)
class LeftOut:
    """A method that is no candidate, and why."""

    method: str
    reason: str


@dataclass(frozen=True)
class _Case:
    """A method in question, and all that rules look at."""

    settings: Experiment
    network: Network
    server: Server
    data: Federation
    traits: Traits
    needs: Needs

    @property
    def method(self) -> Method:
        return self.settings.method


def choose(
    settings: Experiment,
    data: Federation,
    traits: Traits,
    methods: Sequence[str | Mapping[str, Any] | Method],
    needs: Needs,
) -> tuple[list[Experiment], list[LeftOut]]:
    """The experiment with every method that is a candidate, the references first; and the methods that are not.

    Parameters
    ----------
    settings
        The experiment; its own method is a candidate with its own settings.
    data
        The data of trials.
    traits
        What is known about the federation.
    methods
        The user's choice: these are candidates unless something forbids them. Empty: the whole catalogue.
    needs
        What the user asks for.

    Raises
    ------
    UserError
        If a method that the user names is forbidden, or if nothing is left.
    """
    given = [make_method(one, "--methods") for one in methods]
    names = [spec(one) for one in given]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"--methods names {twice[0]!r} twice")
    found: list[Experiment] = []
    left: list[LeftOut] = []
    for method in given or _all(settings.method):
        case = _case(settings.model_copy(update={"method": method}), data, traits, needs)
        reason = _first(case, FORBIDDEN)
        if reason and given:
            raise UserError(f"--methods {spec(method)}: {reason}")
        own = spec(method) == spec(settings.method)
        reason = reason or ("" if given or own else _first(case, UNFIT))
        if not reason and not given:
            reason = next((said for one in found if (said := _coincides(case.settings, one))), "")
        if reason:
            left.append(LeftOut(spec(method), reason))
        else:
            found.append(case.settings)
    if not found:
        raise UserError(f"no method fits this experiment; {left[0].method}: {left[0].reason}")
    return found, left


def _all(own: Method) -> list[Method]:
    """Every method: the references, then the experiment's own, which has its settings, then the others."""
    kinds = catalogue()
    bases_first = sorted(
        kinds, key=lambda name: len(kinds[name].__mro__)
    )  # of equal methods the simplest is a candidate
    order = dict.fromkeys([*REFERENCES, spec(own), *bases_first])
    return [own if name == spec(own) else kinds[name]() for name in order]


def _case(settings: Experiment, data: Federation, traits: Traits, needs: Needs) -> _Case:
    # Built without privacy, because what privacy forbids is a rule here and not an error.
    plain = settings.model_copy(
        update={
            "privacy": settings.privacy.model_copy(update={"level": "none"}),
            "training": settings.training.model_copy(update={"dp_sgd": None}),
            "engine": settings.engine.model_copy(update={"kind": "inline", "workers": None}),
            "evaluation": settings.evaluation.model_copy(update={"new_clients": 0.0}),
        }
    )
    made = assemble(plain, job_of(plain, Resources(data)))
    return _Case(settings, made.network, made.server(), data, traits, needs)


def _first(case: _Case, rules: "Sequence[Rule]") -> str:
    return next((reason for rule in rules if (reason := rule(case))), "")


def _coincides(one: Experiment, other: Experiment) -> str:
    said = one.method.coincides(other.method, one.training)
    return f"it coincides with {spec(other.method)}: {said}" if said else ""


# What the experiment or the user forbids


def _private(case: _Case) -> str:
    try:
        check_privacy(case.settings, case.network)
    except UserError as error:
        return str(error)
    return ""


def _only_sums(case: _Case) -> str:
    if not case.needs.only_sums or (
        case.method.card.only_sums if "card" in vars(type(case.method)) else case.method.averages_once
    ):
        return ""
    return "secure aggregation does not fit it: its server looks at single replies"


def _no_peers(case: _Case) -> str:
    return (
        "it may show clients the models of other clients"
        if case.needs.no_peers and case.method.may_show_peers()
        else ""
    )


def _has_model(case: _Case) -> str:
    return lacks_model(case.settings, case.server)


# What does not fit


def _clock(case: _Case) -> str:
    if not case.method.uses_clock:
        return ""
    if case.settings.devices is None:
        return "it decides by the time of devices, and there is no table [devices]"
    sizes = getattr(case.method, "sizes", None)
    if sizes is not None and len(sizes) < 2:
        return "it has one model size to hand out: give several in [method] with sizes"
    return ""


def _policy(case: _Case) -> str:
    method = case.method
    if not isinstance(method, AgentMethod) or method.has_policy:
        return ""
    return "its agent would learn from scratch, for which trials are too short: give a policy in [method]"


def _memory(case: _Case) -> str:
    if not case.method.card.keeps_models or case.traits.clients <= MANY:
        return ""
    return f"its server keeps a model of every client, and there are more than {MANY}"


def _turns(case: _Case) -> str:
    kept = case.method.card.client_state
    if kept.startswith("nothing") or case.traits.turns >= TURNS or spec(case.method) in REFERENCES:
        return ""
    return f"clients keep {kept}, but take part in {case.traits.turns:.1f} rounds on average"


def _assumptions(case: _Case) -> str:
    return case.method.inert() or case.method.misfit(case.settings.training, case.network) or ""


def _accuracy(case: _Case) -> str:
    if not case.method.uses_accuracy or case.data.samples.classes:
        return ""
    return "it rewards or weights by accuracy, which a regression lacks"


def _averages(case: _Case) -> str:
    rule = case.settings.aggregation.rule
    if rule == "mean" or case.method.averages:
        return ""
    return f"it averages no replies, so aggregation.rule = {rule!r} would not protect it"


Rule = Callable[[_Case], str]
FORBIDDEN: tuple[Rule, ...] = (_private, _only_sums, _no_peers, _has_model)
UNFIT: tuple[Rule, ...] = (_clock, _policy, _memory, _turns, _accuracy, _averages, _assumptions)
