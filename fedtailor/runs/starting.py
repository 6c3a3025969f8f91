"""Where a run starts: the state of another run, or weights. They are copied, so that the run does not need it again.

If method, model and clients are the same, everything is carried over and the rounds continue: with the same settings,
the result is to the bit that of the other run. Otherwise the shared weights are the initial model of all clients.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedtailor import imports
from fedtailor.engines import Job, run_network
from fedtailor.errors import UserError
from fedtailor.messages.digests import digest
from fedtailor.messages.trees import pack
from fedtailor.methods import AgentMethod, Method, Server, shape, spec
from fedtailor.runs.assembly import assemble
from fedtailor.runs.checkpoints import BEST, START, kept_rounds, kept_scopes
from fedtailor.runs.deployed import described
from fedtailor.runs.ledger import Ledger
from fedtailor.runs.sections import Start
from fedtailor.runs.settings import Experiment, experiment, method_dict, recorded
from fedtailor.runs.stopping import best_of
from fedtailor.runs.store import DATABASE, Store
from fedtailor.runs.tables import SCHEMA
from fedtailor.runs.weights_files import fitted, read_weights
from fedtailor.weights import Weights


@dataclass(frozen=True)
class InitialState:
    """What a run starts with, until it is copied into its database.

    Attributes
    ----------
    facts : dict
        What the run records: path, round, what was carried over, digest.
    initial : bytes
        The packed initial model of all clients.
    source : Store or None
        The other run, from which all states in ``scopes`` are copied; None if only weights are used.
    scopes : dict
        The scopes of the states in the other run, with their names in the new one.
    held : list of dict
        The latest scores of the models that clients hold.
    """

    facts: dict[str, Any]
    initial: bytes
    source: Store | None = None
    scopes: dict[str, str] = field(default_factory=dict)
    held: list[dict[str, Any]] = field(default_factory=list)

    def write(self, store: Store) -> None:
        """Copy everything into the database of the new run."""
        with store.transaction():
            store.set_meta("start", self.facts)
            store.set_state(START, "model", self.initial)
            for scope, name in self.scopes.items():
                assert self.source is not None
                for key in self.source.state_keys(scope):
                    store.set_state(name, key, self.source.state(scope, key))
            store.insert("scores", self.held)

    def applied(self, settings: Experiment, job: Job) -> tuple[Experiment, Job]:
        """The settings as the run records them, with the digest, and the job with the initial model."""
        assert settings.start is not None
        start = settings.start.model_copy(update={"digest": self.facts["digest"]})
        return settings.model_copy(update={"start": start}), replace(job, initial=self.initial)

    @property
    def nbytes(self) -> int:
        """The bytes that it takes in the database of the new run."""
        found = 0
        for scope in self.scopes:
            assert self.source is not None
            row = self.source.rows("SELECT SUM(LENGTH(data)) AS bytes FROM state WHERE scope = ?", [scope])
            found += row[0]["bytes"] or 0
        return found + len(self.initial)


def start_settings(path: str | Path) -> Experiment | None:
    """The settings of the run that a new one starts from, without what made that run; None for a file of weights."""
    if not (Path(path) / DATABASE).is_file():
        return None
    with Store(Path(path), still=True) as store:
        values = {key: value for key, value in store.meta("experiment").items() if key != "start"}
    return recorded(values)


@contextmanager
def initial_state(settings: Experiment, job: Job) -> Iterator[InitialState | None]:
    """What a run with these settings starts with; None for the initial model. The other run stays open meanwhile."""
    start = settings.start
    if start is None:
        yield None
        return
    place = Path(start.path).expanduser()
    if (place / DATABASE).is_file():
        with Store(place, still=True) as store:
            found = _from_run(store, place, start, settings, job)
            _check(found, start, settings)
            yield found
    else:
        if start.round != "last" or start.model is not None:
            raise UserError(f"start.round and start.model are about a run, and {place} is none")
        found = _from_file(place, start, job)
        _check(found, start, settings)
        yield found


def started(job: Job, store: Store) -> Job:
    """The job of a run with the initial model that the run started from."""
    return replace(job, initial=store.state(START, "model"))


def _check(found: InitialState, start: Start, settings: Experiment) -> None:
    if start.digest is not None and found.facts["digest"] != start.digest:
        raise UserError(f"{start.path} is not what start.digest says: its digest is {found.facts['digest']}")
    after = found.facts["after"]
    if after >= settings.rounds:
        raise UserError(f"{start.path} has done {after} rounds, and rounds = {settings.rounds}: give more rounds")


def _from_file(place: Path, start: Start, job: Job) -> InitialState:
    weights = read_weights(place)
    facts = {"path": start.path, "kind": "file", "round": None, "method": None}
    remark = f"{start.path} is a file, and what its weights were trained on is not known here: if those data share "
    remark += "samples with this run's test data, the scores are too high"
    return _warm(facts, weights, job, start, str(place), True, remark)


def _from_run(store: Store, place: Path, start: Start, settings: Experiment, job: Job) -> InitialState:
    if (version := store.meta("schema")) != SCHEMA:
        raise UserError(f"{place} has schema {version} of an earlier version of fedtailor: no run can start from it")
    if store.meta("episodes") is not None:
        raise UserError(f"{place} pre-trains an agent: use it with method.policy = {str(place)!r}")
    kept, round = _chosen(store, place, start)
    with imports.foreign():
        old = experiment({**store.meta("experiment"), "engine": {"kind": "inline"}})
    server = _server_of(store, old, kept)
    same_data = store.meta("federation") == job.federation.digest()
    same_clients = same_data or _same_names(store, job)
    _check_private(place, settings, same_clients)
    facts: dict[str, Any] = {"path": start.path, "kind": "run", "round": round, "method": spec(old.method)}
    if start.carry == "auto" and start.part == "all" and start.model is None and store.meta("nodes") is None:
        alike = (method_dict(old.method), old.model) == (method_dict(settings.method), settings.model)
        if same_clients and alike:
            _check_agent(place, server, settings, job)
            return _branch(facts, store, old, kept, round, same_data, server)
    weights, whole = _shared_weights(server, old.method, start, place)
    remark = (
        ""
        if same_data
        else f"{start.path} trained on other data, or on another division of them: if it has seen samples of this "
        "run's test or validation data, the scores are too high"
    )
    return _warm(facts, weights, job, start, str(place), whole, remark)


def _chosen(store: Store, place: Path, start: Start) -> tuple[str, int]:
    """The name of the kept state, empty for the latest, and its round."""
    last = store.rows("SELECT MAX(round) AS round FROM rounds")[0]["round"]
    if last is None:
        raise UserError(f"{place} has no complete round yet: there is nothing to start from")
    if start.round == "last" or start.round == last:
        return "", last
    pruned = " ('fedtailor prune' deleted its checkpoints)" if "checkpoints" in (store.meta("pruned") or ()) else ""
    if start.round == "best":
        best = best_of(store)
        if best is None:
            raise UserError(f"{place} has no best round: only a run with a table [stopping] chooses one")
        if not kept_scopes(store, BEST):
            raise UserError(f"{place} has no state of its best round any more{pruned}")
        return BEST, best.round
    rounds = kept_rounds(store)
    if start.round not in rounds:
        known = sorted({*rounds, last})
        have = f"those of rounds {', '.join(map(str, known))}" if len(known) > 1 else f"that of round {known[0]}"
        raise UserError(f"{place} has no state of round {start.round}{pruned}: it has {have}")
    return str(start.round), int(start.round)


def _server_of(store: Store, old: Experiment, kept: str) -> Server:
    """The server of the other run; its data are not needed."""
    samples = store.meta("samples")
    if samples is None:
        raise UserError(f"{store.path} was written by an earlier version, which did not record the form of its data")
    data = described(samples, store.meta("clients"))
    job = started(Job(old.method, old.model, old.training, old.seed, data), store)
    ledger = Ledger(store, old.seed, old.rounds, kept=kept)
    return ledger.server(assemble(old, job, ledger.moment))


def _same_names(store: Store, job: Job) -> bool:
    """Whether all clients have names of their own, and the other run had clients of the same names."""
    names = [row["name"] for row in store.read("clients", "ORDER BY client")]
    return bool(names) and names == list(job.federation.labels)


def _check_private(place: Path, settings: Experiment, same_clients: bool) -> None:
    private = settings.privacy.hides_clients or settings.training.dp_sgd is not None
    if private and same_clients:
        raise UserError(
            f"{place} trained on the same clients: the privacy of a run that starts from it would not cover what it "
            "learned; start from other data, or resume it"
        )


def _check_agent(place: Path, server: Server, settings: Experiment, job: Job) -> None:
    """Raise a `UserError` if the agent of the other run has another shape than that of this one."""
    method = settings.method
    if isinstance(method, AgentMethod) and shape(method, server) != shape(method, assemble(settings, job).server()):
        raise UserError(
            f"{place} has an agent for another number of clients or layers; start.carry = 'weights' takes only the "
            "shared weights"
        )


def _branch(
    facts: dict[str, Any], store: Store, old: Experiment, kept: str, round: int, same_data: bool, server: Server
) -> InitialState:
    """Carry over all states; the rounds continue."""
    scopes = kept_scopes(store, kept)
    rows = [
        [scopes[row["scope"]], row["key"], row["digest"]]
        for row in store.rows("SELECT scope, key, digest FROM state")
        if row["scope"] in scopes
    ]
    clock = store.read("clock", "WHERE round <= ? ORDER BY round DESC LIMIT 1", [round])
    held: dict[int, dict[str, Any]] = {}
    if same_data:  # otherwise the scores are those of other test data
        for row in store.read("scores", "WHERE model = 'held' AND round <= ? ORDER BY round", [round]):
            held[row["client"]] = row
    initial = store.state(START, "model") or pack(server.initial)
    more = {
        "carried": "all states",
        "after": round,
        "seconds": clock[0]["begin"] + clock[0]["seconds"] if clock else 0.0,
        "digest": digest(pack([digest(initial), sorted(rows)])),
        "remarks": [] if same_data else [f"the clients have other data than in {facts['path']}: their states are kept"],
    }
    return InitialState({**facts, **more}, initial, store, scopes, list(held.values()))


def _shared_weights(server: Server, method: Method, start: Start, place: Path) -> tuple[Weights, bool]:
    """The weights on a server, and whether they are a whole model."""
    models = method.models(server)
    name = start.model or "global"
    if name in models:
        return models[name], True
    if start.model is None and "models" not in method.changes and server.weights:
        return server.weights, False
    held = f"it holds {', '.join(sorted(models))}; name one with start.model" if models else "it holds none"
    raise UserError(f"{place} has no {name!r} model on its server to start from: {spec(method)}: {held}")


def _warm(
    facts: dict[str, Any], found: Weights, job: Job, start: Start, where: str, whole: bool, remark: str
) -> InitialState:
    """Carry over weights alone: the initial model of all clients; the rounds begin at 1."""
    if job.method.family(job.model):
        raise UserError(f"{spec(job.method)} trains networks of several sizes: it starts only from a run of its own")
    network = run_network(job, job.seed)
    used = fitted(found, network, start.part, where, whole)
    every = len(network.names)
    rest = "" if len(used) == every else f" of {every}, the others are initial"
    more = {
        "carried": f"{len(used)} tensors of weights{rest}" if rest else "weights",
        "after": 0,
        "seconds": 0.0,
        "digest": digest(pack(used)),
        "remarks": [remark] if remark else [],
    }
    return InitialState({**facts, **more}, pack({**network.weights(), **used}))
