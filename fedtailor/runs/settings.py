"""An experiment as settings: a TOML file, ``--set`` on the command line, or a dict."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, InstanceOf, ValidationError
from pydantic_core import ErrorDetails

from fedtailor import imports
from fedtailor.data import DataSettings
from fedtailor.devices import Devices
from fedtailor.engines import EngineSettings
from fedtailor.errors import UserError, unknown
from fedtailor.learning import TrainingSettings
from fedtailor.methods import Method, find, spec
from fedtailor.models import ModelSettings
from fedtailor.runs.sections import CompareSettings, Evaluation, Participation, PretrainSettings


def _simple_name(name: str) -> str:
    unfit = any(c in '/\\:*?"<>|' or not c.isprintable() for c in name)
    if not name or name.startswith(".") or unfit or len(name.encode()) > 200:
        raise ValueError("it names a folder: use letters, digits, '-', '_' and '.'")
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
    data, model, training, participation, evaluation, engine : settings
        The tables of the same names.
    method : Method
        The method, with its hyper-parameters as fields.
    devices : Devices or None
        The clients' devices; without them there is no virtual clock.

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
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    method: InstanceOf[Method] = Field(default_factory=lambda: find("fedavg")())
    participation: Participation = Participation()
    devices: Devices | None = Field(None, description="the clients' devices; without them there is no virtual clock")
    evaluation: Evaluation = Evaluation()
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
        return self.validation or self.method.needs_validation

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
    values = _copy(values)
    table = values.get("compare", {})
    if "metric" in table:
        table["model"] = table.pop("metric")
    with imports.foreign():
        return experiment(values)


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
        raise UserError(_sentence(error, where, kind, settings, ("method",))) from None


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
    values = dict(values)
    if "method" in values:
        values["method"] = make_method(values["method"], where)
    try:
        made = Experiment.model_validate(values)
    except ValidationError as error:
        raise UserError(_sentence(error, where, Experiment, values)) from None
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    cohort = made.participation.clients
    if cohort is not None and cohort > made.data.clients and made.data.partition.kind != "given":
        raise UserError(
            f"{where}: participation.clients = {cohort}: there are only {made.data.clients} clients (data.clients)"
        )
    return made


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
            place = ".".join(map(_shown_key, (*tables, last)))
            raise UserError(f"{where}: {place} = {_shown(value)}: {_shown_key(name)} is not a table")
        values = inner
    values[last] = _copy(value) if isinstance(value, Mapping) else value


# Tables that may be given as a bare name: partition = "iid", method = "fedavg"
_BARE = {"partition": "kind", "method": "name", "profiles": "kind", "availability": "kind"}


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _sentence(
    error: ValidationError, where: str, model: type[BaseModel], values: Any, prefix: tuple[str, ...] = ()
) -> str:
    """One sentence: the file, the key, the value, and what is allowed."""
    problems = error.errors(include_url=False)
    first, reasons = _most_specific(problems, values)
    place = _place(first, values)
    key = ".".join(_shown_key(part) for part in (*prefix, *place)) or ".".join(prefix)
    others = len({_place(problem, values) for problem in problems if _union(problem, values) != _union(first, values)})
    more = f" (and {others} more)" if others else ""
    if first["type"] == "missing":
        return f"{where}: {key} is missing{more}"
    if first["type"] == "extra_forbidden":
        table, name = list(first["loc"][:-1]), str(first["loc"][-1])
        fields, reason = _fields_at(model, table), f"unknown setting {name!r}: there are none here"
        if deeper := _deeper(_models_at(model, table), ".".join((*prefix, *map(str, table))), name):
            reason = f"unknown setting {name!r}: did you mean {' or '.join(deeper)}?"
        elif fields:
            reason = str(unknown("setting", name, fields))
    elif first["type"] in ("union_tag_invalid", "union_tag_not_found", "model_attributes_type"):
        reason = _kind_reason(
            first, sorted(kind for inner in _models_at(model, list(first["loc"])) for kind in _kinds(inner))
        )
    else:
        reason = ", or ".join(dict.fromkeys(reasons)).replace(", or should be ", ", or ")
    return f"{where}: {key} = {_shown(first['input'])}: {reason}{more}"


def _most_specific(problems: list[ErrorDetails], values: Any) -> tuple[ErrorDetails, list[str]]:
    """The first problem and its reasons; in a failed union, the problem of the branch that was probably intended.

    That is the branch that got furthest into the value or, if several did, one that accepted its type. If there is
    none, all reasons together say what is allowed.
    """
    union = _union(problems[0], values)
    rivals = [problem for problem in problems if _union(problem, values) == union]
    depth = max(len(_place(problem, values)) for problem in rivals)
    rivals = [problem for problem in rivals if len(_place(problem, values)) == depth]
    rivals = [problem for problem in rivals if problem["type"] not in _WRONG_TYPE] or rivals
    place = _place(rivals[0], values)
    return rivals[0], [_reason(problem) for problem in rivals if _place(problem, values) == place]


def _place(problem: ErrorDetails, values: Any) -> tuple[int | str, ...]:
    """The keys to a problem, without the names of a union's branches that pydantic puts among them."""
    place: list[int | str] = []
    for part in problem["loc"]:
        if isinstance(values, Mapping) and isinstance(part, str) and part not in values:
            dashed = part.replace("_", "-")  # as the name of a decision may be written
            part = dashed if dashed in values else part
        inside = isinstance(values, Mapping) and part in values
        inside = inside or (isinstance(values, list | tuple) and isinstance(part, int) and part < len(values))
        if inside:
            values = values[part]
        if inside or (problem["type"] in ("missing", "invalid_key") and part == problem["loc"][-1]):
            place.append(part)
    return tuple(place)


def _union(problem: ErrorDetails, values: Any) -> tuple[int | str, ...]:
    """The place of the outermost union that contains a problem, or the problem's own place."""
    place = _place(problem, values)
    same = 0
    while same < len(place) and place[same] == problem["loc"][same]:
        same += 1
    return place[:same]


_WRONG_TYPE = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type", "mapping_type"), "should be a table"),
    **dict.fromkeys(("tuple_type", "list_type"), "should be a list"),
    **dict.fromkeys(("float_type", "float_parsing"), "should be a number"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "should be a whole number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "should be true or false"),
    "string_type": "should be text",
    "path_type": "should be a path",
    "literal_error": "",
}


def _reason(problem: ErrorDetails) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "literal_error":
        return f"should be {context['expected']}"
    if kind == "too_short":
        return f"should have at least {context['min_length']} item{'s' * (context['min_length'] != 1)}"
    if kind == "too_long":
        return f"should have at most {context['max_length']} items"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return _WRONG_TYPE.get(kind) or " ".join((message[:1].lower() + message[1:]).split())


def _kind_reason(problem: ErrorDetails, kinds: list[str]) -> str:
    """The reason why a table that has several kinds is wrong."""
    if problem["type"] == "union_tag_invalid":
        tag = " ".join(str(problem["ctx"]["tag"]).split())
        return str(unknown("kind", tag if len(tag) <= 60 else tag[:57] + "...", kinds))
    return f"should be a table with a kind, one of {', '.join(kinds)}"


def _shown_key(part: int | str) -> str:
    text = str(part)
    return text if text.replace("-", "").replace("_", "").isalnum() else repr(part)


def _shown(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # thousands of digits or levels
        return "a value too large to show"
    return text if len(text) <= 60 else text[:57] + "..."


def _fields_at(model: type[BaseModel], place: list[Any]) -> list[str]:
    """The fields allowed at a place in a tree of settings."""
    models = _models_at(model, place)[:1]
    return [name for inner in models for name in inner.model_fields if name != "kind" or len(_kinds(inner)) > 1]


def _deeper(models: Iterable[type[BaseModel]], place: str, name: str) -> list[str]:
    """Where tables inside these have a setting with this name."""
    found = []
    for key, field in (pair for model in models for pair in model.model_fields.items()):
        inside = f"{place}.{key}" if place else key
        below = _tables(field.annotation)
        found += [f"{inside}.{name}" for table in below if name in table.model_fields] + _deeper(below, inside, name)
    return list(dict.fromkeys(found))


def _models_at(model: type[BaseModel], place: list[Any]) -> list[type[BaseModel]]:
    """The tables that may stand at a place in a tree of settings."""
    models = [model]
    for part in place:
        field = models[0].model_fields.get(part) if isinstance(part, str) and models else None
        if field is not None:
            models = _tables(field.annotation)
        elif len(models) > 1:
            models = [inner for inner in models if part in _kinds(inner)] or models
    return models


def _tables(annotation: Any) -> list[type[BaseModel]]:
    """The tables that a setting may be."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [table for inner in get_args(annotation) for table in _tables(inner)]


def _kinds(model: type[BaseModel]) -> list[str]:
    kind = model.model_fields.get("kind")
    return [str(value) for value in get_args(kind.annotation)] if kind else []
