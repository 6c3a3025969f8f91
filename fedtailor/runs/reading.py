"""Reads the records of a run."""

import json
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtailor.errors import unknown
from fedtailor.records import BROKEN, DROPPED, cause
from fedtailor.runs.frames import frame
from fedtailor.runs.measures import Measures, MeasureSummary, population
from fedtailor.runs.promises import Promise
from fedtailor.runs.results import ClockSummary, RunSummary, mean
from fedtailor.runs.stopping import VALIDATION, Best, best_of
from fedtailor.runs.store import Store, find_client, in_use

if TYPE_CHECKING:
    from fedtailor.data import Federation
    from fedtailor.runs.settings import Experiment

FRAMES = ("rounds", "metrics", "measures", "scores", "tasks", "events", "clock", "times", "phases", "curve")
MODELS = ("received", "held", "global", "final", "new")


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
        """The name of the run."""
        return str(self.settings["name"])

    @property
    def experiment(self) -> "Experiment":
        """The settings as an experiment, to run again."""
        from fedtailor.runs.settings import recorded

        return recorded(self.settings)

    @property
    def asked(self) -> dict[str, Any]:
        """The method's table as the user gave it; `settings` has what its policy added."""
        from fedtailor.runs.settings import method_dict

        return dict(self._store.meta("asked") or method_dict(self.experiment.method))

    @property
    def rounds_done(self) -> int:
        """Complete rounds of all episodes, with those of the run that it continues."""
        done = self._store.rows("SELECT COUNT(*) AS done FROM rounds")[0]["done"]
        return int(done) + int((self.start or {}).get("after", 0))

    @property
    def client_count(self) -> int:
        """The number of clients of the federation."""
        return int(self._store.meta("clients"))

    @property
    def new_clients(self) -> int:
        """The number of new clients, which took no part; their ids follow those of the others."""
        return int(self._store.meta("new") or 0)

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' own names by id; empty if they have none."""
        return tuple(row["name"] for row in self.clients())

    @property
    def headline(self) -> str:
        """The name of the measure of tables and curves."""
        return str(self._measuring.get("headline", "accuracy"))

    @property
    def shows_percent(self) -> bool:
        """Whether the headline is a share that is written in percent."""
        return self.headline == "accuracy" or bool(self._measuring["measures"][self.headline]["percent"])

    @property
    def less_is_better(self) -> bool:
        """Whether a lower value of the headline is better."""
        return self.headline != "accuracy" and self._measuring["measures"][self.headline]["better"] == "lower"

    @cached_property
    def _measuring(self) -> dict[str, Any]:
        return self._store.meta("measuring") or {}

    def clients(self) -> list[dict[str, Any]]:
        """The clients that have names of their own: name, and samples for training, validation and test."""
        return self._store.read("clients", "ORDER BY client")

    def label(self, client: int) -> str:
        """A client as it is shown: its own name, or its number."""
        names = self.names
        return names[client] if names else str(client)

    def client(self, which: int | str) -> int:
        """The number of a client, from its number, its name, or a text with one of them; a name comes first.

        Raises
        ------
        UserError
            If the run has no such client.

        Examples
        --------
        >>> with fedtailor.Run("runs/first") as run:
        ...     run.client("3")
        3
        """
        return find_client(self._store, which)

    def phases(self) -> list[dict[str, Any]]:
        """Where the time of every round went: seconds by phase (see `fedtailor.runs.timing.Stopwatch`)."""
        return self._store.read("phases", "ORDER BY episode, round, phase")

    @property
    def pretrains(self) -> bool:
        """Whether this run pre-trains an agent; its folder then holds a policy at the end."""
        return self._store.meta("episodes") is not None

    @property
    def nodes(self) -> list[str]:
        """The names of the clients of a real federation; none for a simulation."""
        return [str(node["name"]) for node in self._store.meta("nodes") or []]

    def node_facts(self) -> list[dict[str, Any]]:
        """What every node of a real federation reported about itself: samples and versions; none for a simulation."""
        return list(self._store.meta("nodes") or [])

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
        return tuple(row["text"] for row in self._store.read("warnings", "ORDER BY id"))

    @property
    def privacy(self) -> tuple[Promise, ...]:
        """The differential privacy of the complete run; empty before its end, and without privacy."""
        stored = self._store.meta("privacy") or []
        return tuple(map(Promise.read, stored))

    @property
    def best(self) -> Best | None:
        """The best round so far by validation data; None without ``stopping``."""
        return best_of(self._store)

    @property
    def start(self) -> dict[str, Any] | None:
        """What the run started from: path, digest, round, what was carried over; None for the initial model."""
        return self._store.meta("start")  # type: ignore[no-any-return]

    def federation(self, federation: "Federation | None" = None) -> "Federation":
        """The clients' data, built again from the settings; a `UserError` if they are not those of the run.

        A run that began with a ``federation`` given in Python needs it again.
        """
        from fedtailor.runs.assembly import check_data
        from fedtailor.runs.resources import Resources, again

        settings = again(self.experiment, federation, f"{self.folder} cannot give its data")
        found = Resources(federation).federation(settings)
        check_data(settings, found, self.data_digest, f"{self.folder} cannot give its data")
        return found

    def rounds(self) -> list[dict[str, Any]]:
        """Every round: cohort, bytes, seconds."""
        rows = self._store.read("rounds", "ORDER BY episode, round")
        return [{**row, "cohort": json.loads(row["cohort"])} for row in rows]

    def metrics(self, model: str | None = None) -> list[dict[str, Any]]:
        """The measures of every evaluated round, of one model or of all."""
        which = "" if model is None else "WHERE model = ? "
        parameters = [] if model is None else [model]
        return self._store.read("metrics", f"{which}ORDER BY episode, round, model", parameters)

    def measures(self, model: str | None = None) -> list[dict[str, Any]]:
        """The further measures of every evaluated round, a row per measure, of one model or of all."""
        which = "" if model is None else "WHERE model = ? "
        parameters = [] if model is None else [model]
        return self._store.read("measures", f"{which}ORDER BY episode, round, model, measure", parameters)

    def last(self) -> dict[str, Measures]:
        """The latest measures of every model, by its name: ``run.last()["held"].accuracy``."""
        latest = {row.pop("model"): row for row in self.metrics()}
        more: dict[str, dict[str, MeasureSummary]] = {model: {} for model in latest}
        for row in self.measures():
            model, measure, *when = (row.pop(key) for key in ("model", "measure", "episode", "round"))
            if when == [latest[model]["episode"], latest[model]["round"]]:
                more[model][measure] = MeasureSummary(**row, **self._measuring["measures"][measure])
        for row in latest.values():
            del row["episode"]
        return {
            model: Measures(**row, more=more[model], headline=self.headline, population=self._population(model))
            for model, row in latest.items()
        }

    def _population(self, model: str) -> int:
        """The clients that those with scores of a model were drawn from; 0 if all were tested."""
        tested = "all" if model == VALIDATION else self.settings["evaluation"].get("clients", "all")
        return population(tested, self.new_clients if model == "new" else self.client_count)

    def curve(self) -> list[dict[str, Any]]:
        """The headline measure of every evaluated round and model: mean, pooled, deviation, worst and worst tenth."""
        if self.headline != "accuracy":
            return [row for row in self.measures() if row.pop("measure") == self.headline]
        return [{**row, "mean": row["accuracy"]} for row in self.metrics()]

    def scores(self, model: str = "final", round: int | None = None) -> list[dict[str, Any]]:
        """Every client's score: its latest, or that of a round."""
        classes = self._measuring.get("classes", True)
        scores = self._store.latest_scores(model, 0) if round is None else self._store.scores(model, 0, round)
        rows = [
            {"client": client, "correct": score.correct, "loss": score.loss, "samples": score.samples}
            | {"accuracy": score.correct / score.samples if score.samples and classes else None}
            | ({"measures": dict(score.values)} if score.values else {})
            for client, score in sorted(scores.items())
        ]
        return self._named(rows)

    def history(self, client: int) -> list[dict[str, Any]]:
        """The headline of one client in every round in which it was tested: round, model and value."""
        rows = self._store.read("scores", "WHERE episode = 0 AND client = ? ORDER BY round, model", [client])
        found = []
        for row in rows:
            more = json.loads(row["measures"]) if row.get("measures") else {}
            known = {"accuracy": row["correct"] / row["samples"] if row["samples"] else None, "measures": more}
            found.append({"round": row["round"], "model": row["model"], "value": value_of(known, self.headline)})
        return found

    def has_model(self, client: int) -> bool:
        """Whether the final pass stored the model that this client would deploy."""
        return bool(self._store.read("deployed", "WHERE client = ?", [client]))

    def clock(self) -> list[dict[str, Any]]:
        """Every round on the clock: when it began, its seconds, straggling latency and idle share."""
        return self._timed("clock", "ORDER BY episode, round")

    def times(self) -> list[dict[str, Any]]:
        """Every client's time on its device in every round: seconds of computing and of transfer."""
        return self._timed("times", "ORDER BY episode, round, client")

    def tasks(self) -> list[dict[str, Any]]:
        """Every client's work in every round: steps, loss, bytes, seconds."""
        return self._named(self._store.read("tasks", "ORDER BY episode, round, client"))

    def events(self) -> list[dict[str, Any]]:
        """Every failure: round, client and reason."""
        return self._named(self._store.read("events", "ORDER BY id"))

    def decisions(self) -> list[dict[str, Any]]:
        """Every decision of an agent: observation, action, reward, and what its slots stand for, if that was stored.

        ``slots`` has for each slot the number of a client, the name of an own slot, or None if it was empty.
        """
        rows = self._store.read("decisions", "ORDER BY id")
        slots: dict[tuple[int, int], list[Any]] = {}
        for row in rows:
            when = (row["episode"], row["round"])
            if when not in slots:
                data = self._store.state("slots", f"{when[0]} {when[1]}")
                slots[when] = [] if data is None else _tree(data)
            row["slots"] = slots[when].pop(0) if slots[when] else None
        return [{k: _tree(v) if isinstance(v, bytes) else v for k, v in row.items()} for row in rows]

    def declared(self) -> dict[str, dict[str, Any]]:
        """By decision, what the method declared: the features that its agent sees, and its actions."""
        data = self._store.state("slots", "declared")
        return {} if data is None else dict(_tree(data))

    def rewards(self) -> dict[str, list[float]]:
        """The rewards in the order of time, by the name of the decision."""
        rows = self._store.read("decisions", "WHERE reward IS NOT NULL ORDER BY id")
        rewards: dict[str, list[float]] = {}
        for row in rows:
            rewards.setdefault(row["name"], []).append(row["reward"])
        return rewards

    def client_state(self, client: int) -> dict[str, Any]:
        """What the method keeps on a client, by key; empty if it keeps nothing there."""
        data = self._store.state("client", client)
        return {} if data is None else dict(_tree(data)["state"])

    def server_state(self, *keys: str) -> dict[str, Any]:
        """The server's stored state by key, or only these keys: the model and the method's entries.

        Objects appear as their state.
        """
        known = self._store.state_keys("server")
        stored = {key: self._store.state("server", key) for key in keys or known}
        return {key: _tree(data)["value"] for key, data in sorted(stored.items()) if data is not None}

    def agents(self) -> dict[str, dict[str, Any]]:
        """By decision, the present state of its agent, with ``best`` if pre-training keeps the best policy."""
        found: dict[str, dict[str, Any]] = {}
        for key in sorted(self._store.state_keys("decisions")):
            kind, _, name = key.partition(" ")
            data = self._store.state("decisions", key)
            if kind in ("agent", "best") and data is not None:
                state = _tree(data)["value"]
                found.setdefault(name, {}).update(state if kind == "agent" else {"best": state})
        return found

    def frame(self, what: str = "metrics") -> Any:
        """Records as a pandas frame: ``rounds``, ``metrics``, ``measures``, ``scores``, ``tasks``, ``clock``, ...

        Parameters
        ----------
        what : str
            The name of the function of this class whose rows the frame has; by default `metrics`.

        Examples
        --------
        >>> with fedtailor.Run("runs/first") as run:
        ...     list(run.frame("scores").columns)[:3]
        ['client', 'correct', 'loss']
        """
        if what not in FRAMES:
            raise unknown("frame", what, FRAMES)
        return frame(getattr(self, what)())

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
            clients=self.client_count,
            metrics=self.last(),
            bytes_down=sum(row["bytes_down"] for row in rounds),
            bytes_up=sum(row["bytes_up"] for row in rounds),
            seconds=sum(row["seconds"] for row in rounds),
            failed_tasks=len(self.events()),
            clock=self._clock_summary() if self._has_clock else None,
            warnings=self.warnings,
            privacy=self.privacy,
            best=self.best,
            stopped=self._store.meta("stopped"),
            start=self.start,
        )

    def _clock_summary(self) -> ClockSummary:
        rows = self.clock()
        ends = {row["episode"]: row["begin"] + row["seconds"] for row in rows}  # of each episode's last round
        causes = Counter(cause(event["detail"]) for event in self.events() if event["kind"] == "failed")
        return ClockSummary(
            seconds=sum(ends.values()) - (self.start or {}).get("seconds", 0.0),
            latency=mean(row["latency"] for row in rows),
            idle=mean(row["idle"] for row in rows),
            late=causes["late"],
            dropped=causes[DROPPED] + causes[BROKEN],
        )

    def _named(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows about clients, with the names of clients that have names of their own."""
        names = self.names
        if not names:
            return rows
        return [{**row, "name": None if row["client"] is None else names[row["client"]]} for row in rows]

    def _timed(self, table: str, order: str) -> list[dict[str, Any]]:
        return self._store.read(table, order) if self._has_clock else []

    @property
    def _has_clock(self) -> bool:
        return "devices" in self.settings or bool(self.nodes)


def _tree(data: bytes) -> Any:
    """Stored bytes as a tree, in which objects appear as their state; only this needs torch."""
    from fedtailor.messages.trees import plain, unpack

    return plain(unpack(data))


def value_of(score: Mapping[str, Any], measure: str) -> float | None:
    """A measure in a row of `Run.scores`; None if it is undefined for that client."""
    value: float | None = score["accuracy"] if measure == "accuracy" else score.get("measures", {}).get(measure)
    return value
