"""Finds the models of a run: those that its clients would deploy, and those of its server. The run does not change."""

from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from fedtailor import imports
from fedtailor.data import Federation
from fedtailor.data.sources import SOURCES
from fedtailor.engines import Job
from fedtailor.errors import UserError
from fedtailor.learning import Score
from fedtailor.runs.assembly import assemble, check_data, job_of
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.deployed import described, kept
from fedtailor.runs.exporting.writing import ClientData, Deployable
from fedtailor.runs.ledger import deployed_ledger
from fedtailor.runs.loop import RoundLoop
from fedtailor.runs.promises import Promise
from fedtailor.runs.resources import Resources, again
from fedtailor.runs.settings import Experiment, experiment
from fedtailor.runs.starting import started
from fedtailor.runs.stopping import best_of
from fedtailor.runs.store import Store, find_client
from fedtailor.weights import Weights

SERVER = "a model of the server has no validation samples"


class NoModel(UserError):
    """A client that has no model, while others may have one."""


class RunModels:
    """The models of a run, while it is open. Names of code in its settings pass the gate of `fedtailor.imports`.

    Parameters
    ----------
    folder : str or Path
        The folder of the run.
    federation : Federation, optional
        The clients' data, if the run began with the caller's.
    """

    def __init__(self, folder: str | Path, federation: Federation | None = None) -> None:
        self.folder, self._given = Path(folder), federation
        self._opened = ExitStack()
        self._read: Federation | str | None = None  # the clients' data, or why they are not here
        self._loop: tuple[Experiment, Job, RoundLoop] | None = None

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            opened.enter_context(imports.foreign())
            self.store = opened.enter_context(Store(self.folder, still=True))
            self.store.check_version()
            self.settings = experiment({**self.store.meta("experiment"), "engine": {"kind": "inline"}})
            self._resources = opened.enter_context(Resources(self._given))
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def clients(self) -> range:
        """The numbers of all clients, new ones included."""
        return range(self.store.meta("clients") + (self.store.meta("new") or 0))

    def client(self, which: int | str) -> int:
        """The number of a client, by its number or name."""
        return find_client(self.store, which)

    def name(self, client: int) -> str | None:
        """The client's own name; None if the clients have none."""
        rows = self.store.read("clients", "WHERE client = ?", [client])
        return str(rows[0]["name"]) if rows else None

    def personal(self, client: int) -> Deployable:
        """The model that a client would deploy, the one that the final pass scored.

        If the final pass did not store it, the client trains once more on the same data, which gives the same model.
        """
        if self.store.meta("nodes") is not None:
            raise UserError("the personal models of a federation are with its nodes: model/ in their --state folder")
        for event in self.store.read("events", "WHERE kind IN ('final', 'new') AND client = ?", [client]):
            raise NoModel(f"client {client} has no model: it failed in the final pass ({event['detail']})")
        model = kept(self.store, client)
        job = self._outline_job() if model is not None else self._training(client)[1]
        if model is None:
            model = self._training(client)[2].deployed(client)
        found = self._data()
        data = found if isinstance(found, str) else ClientData.of(found, client)
        return Deployable(job, model.config["network"], model["model"], self._client_facts(client), data)

    def server(self) -> dict[str, Deployable]:
        """The models that the server holds, by name; the clients' data are not needed."""
        if not self.store.rows("SELECT 1 FROM rounds LIMIT 1"):
            raise UserError(f"{self.folder} has no complete round yet: there is no model to export")
        job = self._outline_job()
        facts = self._facts()
        return {
            name: Deployable(job, name, weights, {"server_model": name, **facts, **self._server_score(name)}, SERVER)
            for name, weights in server_weights(self.store, self.settings, job).items()
        }

    def _outline_job(self) -> Job:
        """The job of the run without samples, but with their form and the clients' numbers of them."""
        data = described(self.store.meta("samples"), self.store.meta("clients"), self.store.meta("sizes"))
        made = Job(self.settings.method, self.settings.model, self.settings.training, self.settings.seed, data)
        return started(made, self.store)

    def _training(self, client: int) -> tuple[Experiment, Job, RoundLoop]:
        """What trains a client once more; raises a `UserError` if the data are not those of the run."""
        if client >= self.store.meta("clients"):
            raise NoModel(f"client {client} is new and its model was not kept: raise evaluation.keep_models")
        if self._loop is None:
            sentence = f"{self.folder} cannot export client {client}"
            settings = again(self.settings, self._given, sentence)
            job = started(job_of(settings, self._resources), self.store)
            check_data(settings, job.federation, self.store.meta("federation"), sentence)
            engine = self._resources.engine_for(settings)
            engine.start(job)
            self._loop = settings, job, RoundLoop(settings, job, engine, self.store, Callback())
            self._read = job.federation
        return self._loop

    def _data(self) -> Federation | str:
        """The clients' data, if they are here and those of the run; otherwise why not."""
        if self._read is None:
            try:
                settings = again(self.settings, self._given, f"{self.folder} cannot give its data")
                found = self._resources.federation(settings)
                check_data(settings, found, self.store.meta("federation"), f"{self.folder} cannot give its data")
                self._read = found
            except UserError as error:
                self._read = str(error)
        return self._read

    def _facts(self) -> dict[str, Any]:
        """What the cards of all models of the run say."""
        best, last = best_of(self.store), self.store.rows("SELECT MAX(round) AS round FROM rounds")[0]["round"]
        done = last if best is None else best.round
        source = self.settings.data.source
        facts: dict[str, Any] = {"run": self.settings.name, "rounds": done, "data": source}
        if source in SOURCES:
            facts["data_licence"] = SOURCES[source].licence
        promises = [Promise.read(row).sentence for row in self.store.meta("privacy") or []]
        return facts | ({"privacy": promises} if promises else {})

    def _client_facts(self, client: int) -> dict[str, Any]:
        name, data = self.name(client), self._data()
        facts: dict[str, Any] = {"client": client} | ({} if name is None else {"name": name}) | self._facts()
        if not isinstance(data, str):
            facts["samples"] = {part: len(getattr(data, part)[client]) for part in ("train", "val", "test")}
        score = self._scores["new" if client >= self.store.meta("clients") else "final"].get(client)
        if score is not None and score.samples:
            measures: dict[str, Any] = {"of": f"the client's {score.samples} test samples"}
            measures |= {"accuracy": score.correct / score.samples} if self._classes else {}
            facts["measures"] = {**measures, "loss": score.loss / score.samples, "measures": dict(score.values)}
        return facts

    def _server_score(self, name: str) -> dict[str, Any]:
        """The latest score of a model of the server over all clients; in the best round, if that is deployed."""
        best = best_of(self.store)
        which = "" if best is None else f"AND round = {best.round} "
        rows = self.store.read("metrics", f"WHERE model = ? {which}ORDER BY episode DESC, round DESC LIMIT 1", [name])
        if not rows:
            return {}
        of = f"the test samples of {rows[0]['clients']} clients, their mean, in round {rows[0]['round']}"
        accuracy = {"accuracy": rows[0]["accuracy"]} if self._classes else {}
        return {"measures": {"of": of, **accuracy, "loss": rows[0]["loss"]}}

    @cached_property
    def _scores(self) -> dict[str, dict[int, Score]]:
        return {model: self.store.latest_scores(model, 0) for model in ("final", "new")}

    @property
    def _classes(self) -> bool:
        return bool(self.store.meta("samples")["outline"]["classes"])


def server_weights(store: Store, settings: Experiment, job: Job) -> dict[str, Weights]:
    """The named models on the server of a run."""
    ledger, _ = deployed_ledger(store, job.seed, settings.rounds)
    return job.method.models(ledger.server(assemble(settings, job, ledger.moment)))
