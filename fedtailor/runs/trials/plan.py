"""What trials of a search have in common: their settings, their data, and the rounds at which they are read."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedtailor import imports
from fedtailor.data import Federation
from fedtailor.data.settings import Fractions
from fedtailor.errors import UserError
from fedtailor.methods import spec
from fedtailor.runs import toml
from fedtailor.runs.assembly import assemble, job_of
from fedtailor.runs.disk import check_disk, least_bytes
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
        }
    )
    changes = {
        "name": "trial",
        "seed": seed,
        "validation": False,  # the data of a trial are given
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


def data_of(settings: Experiment, federation: Federation | None, needs_validation: bool) -> Callable[[int], Federation]:
    """A function that gives the data of trials with a seed: the experiment's clients, without their test samples.

    The clients are those of the experiment's own seed, because the search is about this federation.
    """
    clean = settings.model_copy(update={"attack": None})
    whole = Resources(federation).federation(clean)
    by = settings.data.split.by if isinstance(settings.data.split, Fractions) else None
    return lambda seed: held_out(whole, seed, settings.data.preprocess, by, needs_validation)


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
        needed += least_bytes(assemble(settings, job_of(settings, Resources(data))))
    check_disk(folder, needed)


def facts(settings: Experiment, data: Federation) -> dict[str, Any]:
    """The part of a search's plan that says what its trials are: settings, data and version of the results."""
    values = settings.as_dict()
    kept = {key: value for key, value in values.items() if key not in ("engine", "pretrain", "compare")}
    compare = {key: values["compare"][key] for key in ("model", "pooled")}
    return {"results": RESULTS, "data": data.digest(), "experiment": {**kept, "compare": compare}}


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
