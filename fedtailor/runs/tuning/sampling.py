"""Asks Optuna for the next settings to try. What it answers depends on the seed and earlier trials alone."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedtailor.errors import UserError
from fedtailor.runs.tuning.space import Dimension
from fedtailor.seeding import seed_of

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

STARTUP = 8  # random trials before the model of good settings decides


@dataclass(frozen=True)
class Observation:
    """A trial as the sampler sees it: its settings and what it reached by round; no value if it failed."""

    values: dict[str, Any]
    curve: dict[int, float] = field(default_factory=dict)
    value: float | None = None  # None: it was stopped early, or failed
    running: bool = False


def check_optuna() -> None:
    """Raise a `UserError` if Optuna is not installed."""
    if find_spec("optuna") is None:
        raise UserError("fedtailor tune needs optuna: pip install 'fedtailor[bo]'")


def suggest(
    space: Sequence[Dimension], observations: Sequence[Observation], count: int, better: int, seed: int
) -> list[dict[str, Any]]:
    """The settings of the next ``count`` trials, by a tree-structured Parzen estimator.

    Trials of a batch do not know each other's results, only that they run. Every call makes a new study with a seed of
    its own, so that a search can be resumed.
    """
    asked: list[Observation] = []
    for place in range(count):
        found = _ask(space, [*observations, *asked], better, seed_of(seed, "tune", len(observations) + place))
        asked.append(Observation(found, running=True))
    return [one.values for one in asked]


def importance(space: Sequence[Dimension], observations: Sequence[Observation], better: int) -> dict[str, float]:
    """The share of each setting in the differences between complete trials (fANOVA); empty if too few are complete."""
    complete = [one for one in observations if one.value is not None]
    if len(space) < 2 or len(complete) < 4 or len({one.value for one in complete}) < 2:
        return {}
    import optuna

    study = _study(space, complete, better, 0)
    found = optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
    )
    return {name: float(share) for name, share in found.items()}


def _ask(space: Sequence[Dimension], observations: Sequence[Observation], better: int, seed: int) -> dict[str, Any]:
    found = _study(space, observations, better, seed).ask(_distributions(space)).params
    return {one.key: found[one.key] for one in space}


def _study(space: Sequence[Dimension], observations: Sequence[Observation], better: int, seed: int) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # multivariate sampling is marked as experimental
        sampler = optuna.samplers.TPESampler(
            seed=seed % 2**32, multivariate=True, constant_liar=True, n_startup_trials=STARTUP
        )
    study = optuna.create_study(direction="maximize" if better > 0 else "minimize", sampler=sampler)
    for one in observations:
        study.add_trial(_frozen(space, one))
    return study


def _frozen(space: Sequence[Dimension], observation: Observation) -> "FrozenTrial":
    import optuna
    from optuna.trial import TrialState

    inside = all(one.contains(observation.values[one.key]) for one in space)  # the user's own settings may lie outside
    ended = TrialState.PRUNED if observation.value is None else TrialState.COMPLETE
    return optuna.create_trial(
        state=TrialState.RUNNING if observation.running else ended,
        params=observation.values if inside else {},
        distributions=_distributions(space) if inside else {},
        value=observation.value,
        intermediate_values=observation.curve,
    )


def _distributions(space: Sequence[Dimension]) -> "dict[str, BaseDistribution]":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, BaseDistribution] = {}
    for one in space:
        if one.choices:
            found[one.key] = CategoricalDistribution(one.choices)
        elif one.whole:
            found[one.key] = IntDistribution(int(one.low), int(one.high), log=one.log)
        else:
            found[one.key] = FloatDistribution(one.low, one.high, log=one.log)
    return found
