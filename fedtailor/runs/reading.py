"""A run on disk, to look at."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedtailor.data import Federation, build
from fedtailor.devices import cause
from fedtailor.errors import UserError
from fedtailor.messages.trees import plain, unpack
from fedtailor.runs.settings import Experiment, experiment
from fedtailor.runs.store import DATABASE, Store, in_use

MODELS = ("received", "held", "global", "final")


class Run:
    """What a run has recorded so far. Reading never changes it, and works while it goes on."""

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
        """Of all episodes."""
        return self._store.rows("SELECT COUNT(*) AS done FROM rounds")[0]["done"]  # type: ignore[no-any-return]

    @property
    def pretrains(self) -> bool:
        """Whether this run trains an agent for others; it then holds a policy at its end."""
        return self._store.meta("episodes") is not None

    @property
    def nodes(self) -> list[str]:
        """The names of the clients of a real federation; none for a simulation."""
        return [str(node["name"]) for node in self._store.meta("nodes") or []]

    @property
    def finished(self) -> bool:
        return bool(self._store.meta("finished"))

    @property
    def status(self) -> str:
        """finished, running (in some process) or stopped."""
        return "finished" if self.finished else "running" if in_use(self.folder) else "stopped"

    @property
    def data_digest(self) -> str:
        """Of the federation it runs on: ``Federation.digest()``."""
        return str(self._store.meta("federation"))

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

    def last(self) -> dict[str, dict[str, Any]]:
        """The latest measures of every model."""
        return {row["model"]: row for row in self.metrics()}

    def scores(self, model: str = "final", round: int | None = None) -> list[dict[str, Any]]:
        """Every client's score: its latest, or that of a round."""
        if round is None:
            return [
                {"client": client, **vars(score), "accuracy": score.correct / score.samples if score.samples else None}
                for client, score in sorted(self._store.latest_scores(model, 0).items())
            ]
        return [
            {"client": client, **vars(score), "accuracy": score.correct / score.samples if score.samples else None}
            for client, score in sorted(self._store.scores(model, 0, round).items())
        ]

    def clock(self) -> list[dict[str, Any]]:
        """Every round on the clock: when it began, its seconds, straggling latency and idle share."""
        return self._timed("SELECT * FROM clock ORDER BY episode, round")

    def times(self) -> list[dict[str, Any]]:
        """What every client's device did in every round: seconds of computing and of transfer."""
        return self._timed("SELECT * FROM times ORDER BY episode, round, client")

    def tasks(self) -> list[dict[str, Any]]:
        """What every client did in every round: steps, loss, bytes, seconds."""
        return self._store.rows("SELECT * FROM tasks ORDER BY episode, round, client")

    def events(self) -> list[dict[str, Any]]:
        """Who failed, when and why."""
        return self._store.rows("SELECT * FROM events ORDER BY id")

    def decisions(self) -> list[dict[str, Any]]:
        """What agents decided: observation, action and reward."""
        rows = self._store.rows("SELECT * FROM decisions ORDER BY id")
        return [{k: unpack(v) if isinstance(v, bytes) else v for k, v in row.items()} for row in rows]

    def rewards(self) -> dict[str, list[float]]:
        """The reward of every decision that got one, in the order of time, by the decision's name."""
        rows = self._store.rows("SELECT name, reward FROM decisions WHERE reward IS NOT NULL ORDER BY id")
        rewards: dict[str, list[float]] = {}
        for row in rows:
            rewards.setdefault(row["name"], []).append(row["reward"])
        return rewards

    def server_state(self) -> dict[str, Any]:
        """What the server keeps now, by key: the model and all that the method puts there; objects as their state."""
        stored = {key: self._store.state("server", key) for key in self._store.state_keys("server")}
        return {key: plain(unpack(data)["value"]) for key, data in sorted(stored.items()) if data is not None}

    def agents(self) -> dict[str, dict[str, Any]]:
        """What the agent of every decision knows now: its state, and ``best`` where pre-training keeps the best."""
        found: dict[str, dict[str, Any]] = {}
        for key in sorted(self._store.state_keys("decisions")):
            kind, _, name = key.partition(" ")
            data = self._store.state("decisions", key)
            if kind in ("agent", "best") and data is not None:
                state = plain(unpack(data)["value"])
                found.setdefault(name, {}).update(state if kind == "agent" else {"best": state})
        return found

    def summary(self) -> dict[str, Any]:
        """The run in one JSON document."""
        rounds = self.rounds()
        return {
            "name": self.name,
            "folder": str(self.folder),
            "method": self.settings["method"],
            "seed": self.settings["seed"],
            "status": self.status,
            "rounds": self.settings["rounds"] * (self._store.meta("episodes") or 1),
            "rounds_done": self.rounds_done,
            "clients": self._store.meta("clients"),
            "metrics": {model: _without_place(row) for model, row in self.last().items()},
            "bytes_down": sum(row["bytes_down"] for row in rounds),
            "bytes_up": sum(row["bytes_up"] for row in rounds),
            "seconds": sum(row["seconds"] for row in rounds),
            "failed_tasks": len(self.events()),
            **({"clock": self._clock_summary()} if self._has_clock else {}),
        }

    def _clock_summary(self) -> dict[str, Any]:
        """The time of all rounds, means over rounds, and how often a client was late or dropped out."""
        rows = self.clock()
        ends = {row["episode"]: row["begin"] + row["seconds"] for row in rows}  # the last of each episode
        causes = Counter(cause(event["detail"]) for event in self.events() if event["kind"] == "failed")
        return {
            "seconds": sum(ends.values()),
            "latency": _mean(row["latency"] for row in rows),
            "idle": _mean(row["idle"] for row in rows),
            "late": causes["late"],
            "dropped": causes["dropped out"] + causes["its device failed"],
        }

    def _timed(self, query: str) -> list[dict[str, Any]]:
        return self._store.rows(query) if self._has_clock else []

    @property
    def _has_clock(self) -> bool:
        return "devices" in self.settings or bool(self.nodes)


def all_runs(folder: Path) -> list[Path]:
    """Every run below a folder."""
    if not folder.is_dir():
        raise UserError(f"{folder} does not exist: runs are written there by 'fedtailor run'")
    return sorted(path.parent for path in folder.rglob(DATABASE))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _without_place(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("episode", "model")}
