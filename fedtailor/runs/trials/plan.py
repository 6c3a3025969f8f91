"""What trials of a search have in common: their settings, their data, and the rounds at which they are read."""

import math
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedtailor import imports
from fedtailor.data import Federation
from fedtailor.data.settings import Fractions
from fedtailor.errors import UserError
from fedtailor.learning.measures import Measure, measure
from fedtailor.methods import Server, spec
from fedtailor.runs import toml
from fedtailor.runs.assembly import assemble, job_of
from fedtailor.runs.disk import check_disk, least_bytes
from fedtailor.runs.fitting import measuring_of
from fedtailor.runs.policies import with_policy
from fedtailor.runs.resources import Resources
from fedtailor.runs.sections import CompareSettings, Measured
from fedtailor.runs.settings import Experiment, experiment
from fedtailor.runs.trials.holdout import held_out
from fedtailor.runs.trials.trial import Trial
from fedtailor.version import RESULTS

PARTS = 4  # trials are evaluated after every fourth part of their rounds


def rungs(rounds: int) -> list[int]:
    """The rounds at which trials are compared and may end early.

    >>> rungs(20), rungs(3)
    ([5, 10], [])
    """
    part = rounds // PARTS
    return [part, 2 * part] if part else []


def trial_settings(settings: Experiment, seed: int, models: tuple[Measured, ...] = ()) -> Experiment:
    """The settings of a trial: of the experiment, but it evaluates what a search compares and keeps no models."""
    compare, part = settings.compare, max(1, settings.rounds // PARTS)
    headline: Measured = "held" if compare.model == "final" else compare.model
    evaluation = settings.evaluation.model_copy(
        update={
            "every": part,
            "models": tuple(dict.fromkeys((headline, *models))),
            "final": compare.model == "final",
            "keep_models": 0.0,
            "new_clients": 0.0,  # they take no part in a search
        }
    )
    changes = {
        "name": "trial",
        "seed": seed,
        "validation": False,  # the data of a trial are given
        "track": (),
        "privacy": settings.privacy.model_copy(update={"generator": "seeded"}),  # a search can be repeated
        "evaluation": evaluation,
        "stopping": None,  # the search itself decides by validation data
        "checkpoints": None,
        "compare": CompareSettings(model=compare.model, pooled=compare.pooled),
    }
    return settings.model_copy(update=changes)


def trial_of(label: str, settings: Experiment, until: int) -> Trial:
    """A trial; settings that are equal have the same key, whatever the engine."""
    values = {key: value for key, value in settings.as_dict().items() if key != "engine"}
    digest = blake2b(toml.dumps(values).encode(), digest_size=6).hexdigest()
    safe = "".join(c if c.isalnum() or c in "-_.=" else "_" for c in label)[:60]
    return Trial(f"{safe}-{digest}-s{settings.seed}", settings, until)


def whole_of(settings: Experiment, federation: Federation | None) -> Federation:
    """The experiment's clients with all their data: those of its own seed, because a search is about this federation.

    Attacks of malicious clients come later: every trial makes its own.
    """
    return Resources(federation).federation(settings.model_copy(update={"attack": None}))


def data_of(whole: Federation, settings: Experiment, needs_validation: bool) -> Callable[[int], Federation]:
    """A function that gives the data of trials with a seed: the experiment's clients, without their test samples."""
    by = settings.data.split.by if isinstance(settings.data.split, Fractions) else None
    return lambda seed: held_out(whole, seed, settings.data.preprocess, by, needs_validation)


def measure_of(settings: Experiment, data: Federation) -> Measure:
    """The headline measure, by which trials are compared."""
    return measure(measuring_of(settings, data).headline)


def check_minutes(minutes: float | None) -> None:
    """Raise a `UserError` if a budget of time is none."""
    if minutes is not None and not 0 < minutes < math.inf:
        raise UserError(f"--minutes {minutes:g}: give a time above 0")


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise a `UserError` if a seed is negative or appears twice."""
    if wrong := [seed for seed in seeds if not 0 <= seed < 2**62]:
        raise UserError(f"--seeds {wrong[0]}: a seed is a whole number from 0 to 2^62 - 1")
    if len(set(seeds)) < len(seeds):
        raise UserError("--seeds: a seed appears twice, which would count one run as two")


def caveats(settings: Experiment, all_settings: Iterable[Experiment], data: Federation) -> list[str]:
    """What a reader must know about the values of a search; ``all_settings`` are those of the methods in it."""
    notes = []
    if empty := int((data.test.sizes == 0).sum()):
        notes.append(f"{empty} of {data.clients} clients have too few samples for validation and do not count")
    if settings.privacy.hides_clients or settings.training.dp_sgd is not None:
        notes.append("every trial trains on the clients' data again: the epsilon of a run does not cover the search")
    begins = (with_policy(one, job_of(one, Resources(data))) for one in all_settings)
    return [*notes, *(one.note for one in begins if one.note is not None)]


def check(folder: Path, all_settings: Iterable[Experiment], data: Federation) -> None:
    """Check everything that trials need before anything is written."""
    needed = 0
    for settings in all_settings:
        settings.method.check()
        imports.remember(spec(settings.method))
        if settings.engine.kind == "flower":
            raise UserError("trials run in a simulation: set engine.kind to inline, processes or ray")
        if settings.start is not None:
            raise UserError("start: it may have learned from the samples that trials are judged on; remove [start]")
        made = assemble(settings, job_of(settings, Resources(data)))
        if reason := lacks_model(settings, made.server()):
            raise UserError(f"{spec(settings.method)}: {reason}")
        needed += least_bytes(made)
    check_disk(folder, needed)


def lacks_model(settings: Experiment, server: Server) -> str:
    """A sentence if trials would be compared by a model that the method does not have; otherwise empty."""
    if settings.compare.model != "global" or "global" in settings.method.models(server):
        return ""
    return "it has no global model, and compare.model = 'global' asks for it"


def facts(settings: Experiment, data: Federation) -> dict[str, Any]:
    """The part of a search's plan that says what its trials are: settings, data and version of the results."""
    values = settings.as_dict()
    kept = {key: value for key, value in values.items() if key not in ("engine", "pretrain", "compare", "track")}
    compare = {key: values["compare"][key] for key in ("model", "pooled")}
    return {"results": RESULTS, "data": data.digest(), "experiment": {**kept, "compare": compare}}


def outline(folder: Path, settings: Experiment, seeds: tuple[int, ...], data: Federation) -> dict[str, Any]:
    """What is known about a search before it begins: the first attributes of its result."""
    measured = measure_of(settings, data)
    return {
        "folder": folder,
        "name": settings.name,
        "measure": measured.name,
        "percent": measured.percent,
        "less_is_better": measured.better == "lower",
        "model": settings.compare.model,
        "rounds": settings.rounds,
        "seeds": seeds,
        "samples": (len(data.train.indices) + len(data.val.indices), len(data.test.indices)),
    }


def as_toml(settings: Experiment, comments: Sequence[str]) -> str:
    """An experiment as a TOML file: only settings that differ from their defaults, below lines of comment."""
    values = settings.as_dict()
    short = settings.model_dump(mode="json", exclude={"method"}, exclude_defaults=True, exclude_none=True)
    method = settings.method
    own = method.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    short = {"name": settings.name, "seed": settings.seed, "rounds": settings.rounds, **short}
    short["method"] = {"name": values["method"]["name"], **own}
    try:
        whole = experiment(short).as_dict() == values
    except UserError:  # a table whose kind is its default
        whole = False
    return "".join(f"# {line}\n" for line in comments) + "\n" + toml.dumps(short if whole else values)
