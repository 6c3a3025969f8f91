"""An experiment as settings: a TOML file, ``--set`` on the command line, or a dict."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, InstanceOf, ValidationError

from fedtailor import imports
from fedtailor.data import DataSettings
from fedtailor.devices import Devices
from fedtailor.engines import Attack, EngineSettings
from fedtailor.errors import UserError
from fedtailor.learning import TrainingSettings
from fedtailor.methods import NO_POLICY, Method, find, spec
from fedtailor.models import ModelSettings
from fedtailor.parties import Aggregation, Privacy
from fedtailor.runs.mistakes import Mistakes, mistakes, shown, shown_key
from fedtailor.runs.sections import (
    Checkpoints,
    CompareSettings,
    Evaluation,
    Participation,
    PretrainSettings,
    Start,
    Stopping,
    TrackerName,
)

NAMES_A_FOLDER = "it names a folder: use letters, digits, '-', '_' and '.'"


def is_name(name: str) -> bool:
    """Whether this can be the name of a folder everywhere."""
    unfit = any(c in '/\\:*?"<>|' or not c.isprintable() for c in name)
    return bool(name) and not name.startswith(".") and not unfit and len(name.encode()) <= 200


def _simple_name(name: str) -> str:
    if not is_name(name):
        raise ValueError(NAMES_A_FOLDER)
    return name


Name = Annotated[str, AfterValidator(_simple_name), Field(max_length=100)]


class Experiment(BaseModel):
    """All settings of a run: frozen, validated, with a default for every one.

    `experiment` makes one from a TOML file or a mapping. A changed copy is
    ``experiment(one.as_dict() | {"rounds": 50})``.

    Attributes
    ----------
    name : str
        The name of the run and of its folder.
    seed : int
        The seed of every random stream.
    rounds : int
        Rounds of the federation.
    track : tuple of str
        The trackers that get a copy of the run: ``tensorboard``, ``mlflow``, ``wandb``.
    data, model, training, participation, aggregation, privacy, evaluation, engine : settings
        The tables of the same names.
    method : Method
        The method, with its hyper-parameters as fields.
    devices : Devices or None
        The clients' devices; without them there is no virtual clock.
    attack : Attack or None
        The malicious clients of a simulation; without it all are honest.
    stopping, checkpoints, start : settings or None
        The best round and the early end, the rounds whose states are kept, and the run or file to start from.

    Examples
    --------
    >>> made = experiment({"rounds": 5, "method": {"name": "fedprox", "mu": 0.1}})
    >>> made.rounds, made.method.mu
    (5, 0.1)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name = Field("experiment", description="name of the run's folder under runs/")
    seed: int = Field(0, ge=0, lt=2**62, description="seed of every random stream")
    rounds: int = Field(20, ge=1, le=1_000_000, description="number of rounds")
    validation: bool = Field(
        False, description="hold out validation data from every client's training data even if the method needs none"
    )
    track: tuple[TrackerName, ...] = Field(
        (), description="trackers that get a copy of the run: tensorboard, mlflow, wandb; they change no result"
    )
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    method: InstanceOf[Method] = Field(default_factory=lambda: find("fedavg")())
    participation: Participation = Participation()
    devices: Devices | None = Field(None, description="the clients' devices; without them there is no virtual clock")
    aggregation: Aggregation = Aggregation()
    privacy: Privacy = Privacy()
    attack: Attack | None = Field(None, description="malicious clients of a simulation; without it all are honest")
    evaluation: Evaluation = Evaluation()
    stopping: Stopping | None = Field(None, description="the best round by validation data; without it the last one")
    checkpoints: Checkpoints | None = Field(None, description="rounds whose states are kept; without it the last only")
    start: Start | None = Field(None, description="the run or file to start from; without it the initial model")
    engine: EngineSettings = EngineSettings()
    compare: CompareSettings = CompareSettings()
    pretrain: PretrainSettings = PretrainSettings()

    @property
    def partition_seed(self) -> int:
        """The seed of the partition: that of the data if it is set."""
        return self.data.seed if self.data.seed is not None else self.seed

    @property
    def carves_validation(self) -> bool:
        """Whether clients get validation data."""
        return self.validation or self.method.needs_validation or self.stopping is not None

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain values; `experiment` turns them back into the same experiment."""
        values = self.model_dump(mode="json", exclude={"method"}, exclude_none=True)
        values["method"] = method_dict(self.method)
        return values


def experiment(
    source: "str | Path | Mapping[str, Any] | Experiment | None" = None, changes: Mapping[str, Any] | None = None
) -> Experiment:
    """Read an experiment from a TOML file or a mapping, and change some of its settings.

    Parameters
    ----------
    source : path, mapping, Experiment or None
        A TOML file, a tree of settings, or an experiment; None means the defaults.
    changes : mapping, optional
        Values by dotted key, as in ``{"training.lr": 0.1}``, applied in order.

    Returns
    -------
    Experiment
        The validated settings.

    Raises
    ------
    UserError
        A setting is unknown or its value is not allowed.

    Examples
    --------
    >>> experiment({"rounds": 3}, {"training.lr": 0.1}).training.lr
    0.1
    """
    if isinstance(source, Experiment):
        if not changes:
            return source
        source = source.as_dict()
    if source is None or isinstance(source, Mapping):
        where, values = "experiment", _copy(source or {})
    else:
        where, values = str(source), read_toml(Path(source))
        values.setdefault("name", Path(source).stem)
    for key, value in (changes or {}).items():
        _change(values, key, value, where)
    return _validate(values, where)


def recorded(values: Mapping[str, Any]) -> Experiment:
    """The experiment of settings that a run or a comparison has stored, maybe with a name of an earlier version."""
    with imports.foreign():
        return experiment(of_this_version(values))


def of_this_version(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a run or a comparison has stored, as this version says them."""
    values = _copy(values)
    table, method = values.get("compare", {}), values.get("method", {})
    if "metric" in table:
        table["model"] = table.pop("metric")
    if "agents" in method:  # before there were built-in policies, a run without one stored nothing
        method.setdefault("policy", NO_POLICY)
    return values


def method_dict(method: Method) -> dict[str, Any]:
    """A method as its table in an experiment."""
    return {"name": spec(method), **method.model_dump(mode="json", exclude_none=True)}


def make_method(table: "str | Mapping[str, Any] | Method", where: str = "experiment") -> Method:
    """A method from its name, or from a table with its name and settings."""
    if isinstance(table, Method):
        return table
    if isinstance(table, str):
        table = {"name": table}
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise UserError(f'{where}: method needs a name, as in method.name = "fedavg"')
    kind = _find(table["name"], where)
    settings = {key: value for key, value in table.items() if key != "name"}
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        raise Mistakes(where, mistakes(error, kind, settings, ("method",))) from None


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: name an experiment's TOML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    except ValueError as error:  # not only TOMLDecodeError: tomllib passes a number of 5000 digits to int()
        raise UserError(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise UserError(f"{path} is not an experiment: its values are nested too deeply") from None


def _find(name: str, where: str) -> type[Method]:
    try:
        return find(name)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except Exception as error:  # the import of a user's module may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{where}: method {name!r} cannot be imported ({reason}): it is module:Class") from None


def _validate(values: dict[str, Any], where: str) -> Experiment:
    """Make the experiment, or raise one error about everything that is wrong."""
    values, problems = dict(values), []
    if isinstance(values.get("start"), str | Path):
        values["start"] = {"path": str(values["start"])}
    if "method" in values:
        try:
            values["method"] = make_method(values["method"], where)
        except UserError as error:
            values.pop("method")
            problems = error.problems if isinstance(error, Mistakes) else [str(error).removeprefix(f"{where}: ")]
    try:
        made = Experiment.model_validate(values)
    except ValidationError as error:
        raise Mistakes(where, [*problems, *mistakes(error, Experiment, values)]) from None
    except UserError as error:
        raise Mistakes(where, [*problems, str(error)]) from None
    cohort, clients = made.participation.clients, made.data.filled.clients
    if cohort is not None and clients is not None and cohort > clients:
        problems.append(f"participation.clients = {cohort}: there are only {clients} clients (data.clients)")
    tested = made.evaluation.clients
    if isinstance(tested, int) and clients is not None and tested > clients:
        problems.append(f"evaluation.clients = {tested}: there are only {clients} clients (data.clients)")
    if made.data.source != "folder":
        given = [f"data.{name}" for name in FOLDER_ONLY if getattr(made.data, name)]
        if given:
            source = f"data.source = {made.data.source!r}"
            problems.append(f'{", ".join(given)}: only data.source = "folder" reads your own files, and here {source}')
    if problems:
        raise Mistakes(where, problems)
    return made


FOLDER_ONLY = ("folder", "label", "client", "categorical", "ignore")  # settings of [data] that no other source reads


def _change(values: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set the value at a dotted key in a tree of settings."""
    *tables, last = key.split(".")
    for name in tables:
        inner = values.setdefault(name, {})
        if isinstance(inner, str) and name in _BARE:
            inner = values[name] = {_BARE[name]: inner}
        if isinstance(inner, Method):
            inner = values[name] = method_dict(inner)
        if not isinstance(inner, dict):
            place = ".".join(map(shown_key, (*tables, last)))
            raise UserError(f"{where}: {place} = {shown(value)}: {shown_key(name)} is not a table")
        values = inner
    values[last] = _copy(value) if isinstance(value, Mapping) else value


# Tables that may be given as a bare name: partition = "iid", method = "fedavg"
_BARE = {"partition": "kind", "method": "name", "profiles": "kind", "availability": "kind", "start": "path"}


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in values.items()}
