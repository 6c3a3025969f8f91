"""Reads the records of a run."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from fedtailor.data import Federation, build
from fedtailor.devices import cause
from fedtailor.errors import UserError
from fedtailor.messages.trees import plain, unpack
from fedtailor.runs.cohort import BROKEN, DROPPED
from fedtailor.runs.measures import Measures
from fedtailor.runs.results import ClockSummary, RunSummary, mean
from fedtailor.runs.settings import Experiment, experiment
from fedtailor.runs.store import DATABASE, Store, in_use

MODELS = ("received", "held", "global", "final")


class Run:
    """The records of a run so far. Reading never changes a run, and works while another process runs it.

    Parameters
    ----------
    folder : str or Path
        The folder of the run.

    Attributes
    ----------
    folder : Path
        The folder of the run.
    settings : dict
        The resolved settings.
    environment : dict
        The versions that the run began with.

    Examples
    --------
    >>> with fedtailor.Run("runs/first") as run:
    ...     print(run.status, run.rounds_done, run.last()["held"].round)
    finished 2 2
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._store = Store(self.folder)
        self.settings: dict[str, Any] = self._store.meta("experiment")
        self.environment: dict[str, Any] = self._store.meta("environment")

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; the run cannot be read any more."""
        self._store.close()

    @property
    def name(self) -> str:
        return str(self.settings["name"])

    @property
    def experiment(self) -> Experiment:
        """The settings as an experiment, to run again."""
        return experiment(self.settings)

    @property
    def rounds_done(self) -> int:
        """Complete rounds, counted over all episodes."""
        return self._store.rows("SELECT COUNT(*) AS done FROM rounds")[0]["done"]  # type: ignore[no-any-return]

    @property
    def pretrains(self) -> bool:
        """Whether this run pre-trains an agent; its folder then holds a policy at the end."""
        return self._store.meta("episodes") is not None

    @property
    def nodes(self) -> list[str]:
        """The names of the clients of a real federation; none for a simulation."""
        return [str(node["name"]) for node in self._store.meta("nodes") or []]

    @property
    def finished(self) -> bool:
        """Whether all rounds and the final pass are complete."""
        return bool(self._store.meta("finished"))

    @property
    def status(self) -> str:
        """``finished``, ``running`` (in some process) or ``stopped``."""
        return "finished" if self.finished else "running" if in_use(self.folder) else "stopped"

    @property
    def data_digest(self) -> str:
        """The digest of the run's data: ``Federation.digest()``."""
        return str(self._store.meta("federation"))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the run warned about: settings that make the method inert or break one of its assumptions."""
        return tuple(self._store.meta("warnings") or ())

    def federation(self) -> Federation:
        """The clients' data, built again from the settings."""
        settings = self.experiment
        return build(settings.data, settings.partition_seed, needs_validation=settings.carves_validation)

    def rounds(self) -> list[dict[str, Any]]:
        """Every round: cohort, bytes, seconds."""
        rows = self._store.rows("SELECT * FROM rounds ORDER BY episode, round")
        return [{**row, "cohort": json.loads(row["cohort"])} for row in rows]

    def metrics(self, model: str | None = None) -> list[dict[str, Any]]:
        """The measures of every evaluated round, of one model or of all."""
        which = "" if model is None else "WHERE model = ?"
        return self._store.rows(
            f"SELECT * FROM metrics {which} ORDER BY episode, round, model", [] if model is None else [model]
        )

    def last(self) -> dict[str, Measures]:
        """The latest measures of every model, by its name: ``run.last()["held"].accuracy``."""
        rows = {row.pop("model"): row for row in self.metrics()}
        return {model: Measures(**{key: row[key] for key in row if key != "episode"}) for model, row in rows.items()}

    def scores(self, model: str = "final", round: int | None = None) -> list[dict[str, Any]]:
        """Every client's score: its latest, or that of a round."""
        scores = self._store.latest_scores(model, 0) if round is None else self._store.scores(model, 0, round)
        return [
            {"client": client, **vars(score), "accuracy": score.correct / score.samples if score.samples else None}
            for client, score in sorted(scores.items())
        ]

    def clock(self) -> list[dict[str, Any]]:
        """Every round on the clock: when it began, its seconds, straggling latency and idle share."""
        return self._timed("SELECT * FROM clock ORDER BY episode, round")

    def times(self) -> list[dict[str, Any]]:
        """Every client's time on its device in every round: seconds of computing and of transfer."""
        return self._timed("SELECT * FROM times ORDER BY episode, round, client")

    def tasks(self) -> list[dict[str, Any]]:
        """Every client's work in every round: steps, loss, bytes, seconds."""
        return self._store.rows("SELECT * FROM tasks ORDER BY episode, round, client")

    def events(self) -> list[dict[str, Any]]:
        """Every failure: round, client and reason."""
        return self._store.rows("SELECT * FROM events ORDER BY id")

    def decisions(self) -> list[dict[str, Any]]:
        """Every decision of an agent: observation, action and reward."""
        rows = self._store.rows("SELECT * FROM decisions ORDER BY id")
        return [{k: unpack(v) if isinstance(v, bytes) else v for k, v in row.items()} for row in rows]

    def rewards(self) -> dict[str, list[float]]:
        """The rewards in the order of time, by the name of the decision."""
        rows = self._store.rows("SELECT name, reward FROM decisions WHERE reward IS NOT NULL ORDER BY id")
        rewards: dict[str, list[float]] = {}
        for row in rows:
            rewards.setdefault(row["name"], []).append(row["reward"])
        return rewards

    def server_state(self) -> dict[str, Any]:
        """The server's stored state, by key: the model and the method's entries; objects appear as their state."""
        stored = {key: self._store.state("server", key) for key in self._store.state_keys("server")}
        return {key: plain(unpack(data)["value"]) for key, data in sorted(stored.items()) if data is not None}

    def agents(self) -> dict[str, dict[str, Any]]:
        """By decision, the present state of its agent, with ``best`` if pre-training keeps the best policy."""
        found: dict[str, dict[str, Any]] = {}
        for key in sorted(self._store.state_keys("decisions")):
            kind, _, name = key.partition(" ")
            data = self._store.state("decisions", key)
            if kind in ("agent", "best") and data is not None:
                state = plain(unpack(data)["value"])
                found.setdefault(name, {}).update(state if kind == "agent" else {"best": state})
        return found

    def summary(self) -> RunSummary:
        """The run in a few numbers.

        Returns
        -------
        RunSummary
            Its ``as_dict()`` is the JSON document that ``fedtailor show --json`` prints.

        Examples
        --------
        >>> with fedtailor.Run("runs/first") as run:
        ...     summary = run.summary()
        >>> summary.rounds_done, summary.final.clients, summary.bytes_up > 0
        (2, 20, True)
        """
        rounds = self.rounds()
        return RunSummary(
            name=self.name,
            folder=str(self.folder),
            method=self.settings["method"],
            seed=self.settings["seed"],
            status=self.status,
            rounds=self.settings["rounds"] * (self._store.meta("episodes") or 1),
            rounds_done=self.rounds_done,
            clients=self._store.meta("clients"),
            metrics=self.last(),
            bytes_down=sum(row["bytes_down"] for row in rounds),
            bytes_up=sum(row["bytes_up"] for row in rounds),
            seconds=sum(row["seconds"] for row in rounds),
            failed_tasks=len(self.events()),
            clock=self._clock_summary() if self._has_clock else None,
            warnings=self.warnings,
        )

    def _clock_summary(self) -> ClockSummary:
        rows = self.clock()
        ends = {row["episode"]: row["begin"] + row["seconds"] for row in rows}  # of each episode's last round
        causes = Counter(cause(event["detail"]) for event in self.events() if event["kind"] == "failed")
        return ClockSummary(
            seconds=sum(ends.values()),
            latency=mean(row["latency"] for row in rows),
            idle=mean(row["idle"] for row in rows),
            late=causes["late"],
            dropped=causes[DROPPED] + causes[BROKEN],
        )

    def _timed(self, query: str) -> list[dict[str, Any]]:
        return self._store.rows(query) if self._has_clock else []

    @property
    def _has_clock(self) -> bool:
        return "devices" in self.settings or bool(self.nodes)


def all_runs(folder: Path) -> list[Path]:
    """The folders of all runs below a folder."""
    if not folder.is_dir():
        raise UserError(f"{folder} does not exist: 'fedtailor run' writes runs there")
    return sorted(path.parent for path in folder.rglob(DATABASE))
