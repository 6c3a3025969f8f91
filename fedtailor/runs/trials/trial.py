"""One trial: a run that stops at a round, and what it reached on validation data."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedtailor.runs.callbacks import Callback, RoundReport
from fedtailor.runs.episodes import Interrupted
from fedtailor.runs.loop import NoUsableModel
from fedtailor.runs.reading import Run, value_of
from fedtailor.runs.resources import Resources
from fedtailor.runs.running import resume, run
from fedtailor.runs.settings import Experiment


@dataclass(frozen=True)
class Trial:
    """A run and the round at which it is read. A later trial with the same key resumes where this one stopped."""

    key: str  # names its folder
    settings: Experiment
    until: int

    @property
    def name(self) -> str:
        return f"{self.key}@{self.until}"


@dataclass(frozen=True)
class Reading:
    """What a trial reached.

    Attributes
    ----------
    value : float or None
        The headline measure on validation data; None if the trial failed.
    clients : mapping of int to float
        The same by client, at the end of the run.
    models : mapping of str to float
        The same by model: received, held, global, final.
    seconds, megabytes : float
        Measured time of its rounds, and what clients received and sent.
    failure : str
        Why there is no value.
    """

    value: float | None
    clients: Mapping[int, float] = field(default_factory=dict)
    models: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    megabytes: float = 0.0
    failure: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Reading":
        clients = {int(client): float(value) for client, value in values["clients"].items()}
        return cls(**{**values, "clients": clients})


class Paused(Interrupted):
    """A trial has reached its round."""


class _Pause(Callback):
    """Ends a run after a round; calls ``after_round`` in every round."""

    def __init__(self, folder: Path, until: int, after_round: Callable[[], None]):
        self.folder, self.until, self.after_round = folder, until, after_round

    def round_done(self, report: RoundReport) -> None:
        self.after_round()
        if report.round == self.until < report.rounds:
            raise Paused(self.folder)


def carry_out(
    trial: Trial, folder: Path, resources: Resources, after_round: Callable[[], None] = lambda: None
) -> Reading:
    """Run a trial, or the rounds that it lacks, and read it. A run that diverges is a reading, too."""
    settings, pause = trial.settings, _Pause(folder, trial.until, after_round)
    try:
        if not folder.exists():
            run(settings, folder=folder, callbacks=pause, resources=resources).close()
        elif not _is_there(folder, trial.until, settings.rounds):
            engine = settings.engine.model_dump(exclude_none=True)
            resume(folder, callbacks=pause, resources=resources, engine=engine).close()
    except Paused:
        pass
    except NoUsableModel as error:
        return Reading(None, failure=str(error))
    with Run(folder) as done:
        return read(done, trial.until)


def read(run: Run, round: int) -> Reading:
    """The reading of a run at a round: of its headline model, or of the held one if there was no final pass yet."""
    compare, end = run.experiment.compare, run.finished and round == run.settings["rounds"]
    wanted = compare.model if compare.model != "final" or end else "held"
    statistic = "pooled" if compare.pooled else "mean"
    models = {row["model"]: row[statistic] for row in run.curve() if row["round"] == round}
    models = {model: value for model, value in models.items() if value is not None and math.isfinite(value)}
    rows = run.scores(wanted) if end else []
    clients = {row["client"]: value for row in rows if (value := value_of(row, run.headline)) is not None}
    spent = [row for row in run.rounds() if row["round"] <= round]
    failure = "" if wanted in models else f"it has no {run.headline} of the {wanted} model: its models diverged"
    lost = [event for event in run.events() if event["kind"] == "final"] if wanted == "final" else []
    if lost and not failure:  # a mean over the other clients would reward it for them
        failure = f"{len(lost)} of {run.client_count} clients failed in the final pass ({lost[0]['detail']})"
    return Reading(
        value=None if failure else models.get(wanted),
        clients=clients,
        models=models,
        seconds=sum(row["seconds"] for row in spent),
        megabytes=sum(row["bytes_up"] + row["bytes_down"] for row in spent) / 1e6,
        failure=failure,
    )


def _is_there(folder: Path, until: int, rounds: int) -> bool:
    with Run(folder) as run:
        return run.finished or until <= min(run.rounds_done, rounds - 1)
