"""An experiment as settings: a TOML file, ``--set`` on the command line, or a dict."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, InstanceOf, ValidationError, model_validator

from fedtailor.data import DataSettings
from fedtailor.engines import EngineSettings
from fedtailor.errors import UserError, unknown
from fedtailor.learning import TrainingSettings
from fedtailor.methods import Method, find, spec
from fedtailor.models import ModelSettings

Measured = Literal["received", "held", "global"]


def _simple_name(name: str) -> str:
    if not name or name.startswith(".") or any(c in name for c in '/\\:*?"<>|\n\0'):
        raise ValueError("a name is the name of a folder: letters, digits, '-', '_' and '.'")
    return name


Name = Annotated[str, AfterValidator(_simple_name), Field(max_length=100)]


class Participation(BaseModel):
    """Who takes part in a round."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ratio: (
        Annotated[float, Field(gt=0, le=1)]
        | tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(gt=0, le=1)]]
    ) = Field(1.0, description="share of the clients in a cohort, or [low, high]: drawn anew in every round")
    clients: int | None = Field(None, ge=1, description="clients in a cohort, instead of a ratio")
    dropout: float = Field(0.0, ge=0, lt=1, description="probability that a chosen client does not answer")

    @model_validator(mode="after")
    def _ordered(self) -> "Participation":
        if isinstance(self.ratio, tuple) and self.ratio[0] > self.ratio[1]:
            raise ValueError("ratio is [low, high]; the first is larger than the second")
        return self


class Evaluation(BaseModel):
    """What is measured, and when. It changes no training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: int = Field(1, ge=0, description="rounds between two evaluations; 0 evaluates nothing but the end")
    clients: Literal["all", "cohort"] = Field(
        "all", description="whose received models are tested: all clients', or only the cohort's"
    )
    models: tuple[Measured, ...] = Field(
        ("received", "held", "global"), description="the models that are tested on the way"
    )
    final: bool = Field(True, description="at the end every client receives and trains once more")


class CompareSettings(BaseModel):
    """A comparison: methods times seeds, and the metric of its table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    methods: tuple[str | dict[str, Any], ...] = Field(
        ("local", "fedavg", "fedavg-ft", "fedper"),
        min_length=1,
        description='names, or tables such as {name = "fedprox", mu = 0.01}',
    )
    seeds: tuple[int, ...] = Field((0,), min_length=1, description="one run per method and seed")
    metric: Literal["received", "held", "global", "final"] = Field("final", description="the headline of the table")
    pooled: bool = Field(False, description="average over samples instead of over clients")


class Experiment(BaseModel):
    """Everything that defines a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name = Field("experiment", description="the run's folder under runs/")
    seed: int = Field(0, ge=0, lt=2**62, description="of every random stream")
    rounds: int = Field(20, ge=1, le=1_000_000, description="rounds of the federation")
    validation: bool = Field(
        False, description="carve validation data out of every client's train, whether or not the method needs it"
    )
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    method: InstanceOf[Method] = Field(default_factory=lambda: find("fedavg")())
    participation: Participation = Participation()
    evaluation: Evaluation = Evaluation()
    engine: EngineSettings = EngineSettings()
    compare: CompareSettings = CompareSettings()

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain values; `experiment` makes them into the same experiment."""
        values = self.model_dump(mode="json", exclude={"method"}, exclude_none=True)
        values["method"] = method_dict(self.method)
        return values


def experiment(
    source: "str | Path | Mapping[str, Any] | Experiment | None" = None, sets: Iterable[str] = ()
) -> Experiment:
    """The experiment of a TOML file or a mapping, changed by ``key=value`` strings."""
    if isinstance(source, Experiment):
        if not sets:
            return source
        source = source.as_dict()
    if source is None or isinstance(source, Mapping):
        where, values = "experiment", _copy(source or {})
    else:
        where, values = str(source), read_toml(Path(source))
        values.setdefault("name", Path(source).stem)
    for text in sets:
        _set(values, text)
    return _validate(values, where)


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
    kind = find(table["name"])
    try:
        return kind.model_validate({key: value for key, value in table.items() if key != "name"})
    except ValidationError as error:
        raise UserError(_sentence(error, where, kind, ("method",))) from None


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: name an experiment's TOML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


def _validate(values: dict[str, Any], where: str) -> Experiment:
    values = dict(values)
    if "method" in values:
        values["method"] = make_method(values["method"], where)
    try:
        made = Experiment.model_validate(values)
    except ValidationError as error:
        raise UserError(_sentence(error, where, Experiment, ())) from None
    cohort = made.participation.clients
    if cohort is not None and cohort > made.data.clients and made.data.partition.kind != "given":
        raise UserError(
            f"{where}: participation.clients = {cohort}: there are only {made.data.clients} clients (data.clients)"
        )
    return made


def _set(values: dict[str, Any], text: str) -> None:
    """Apply ``training.lr=0.1`` to a tree of settings."""
    key, equals, value = text.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise UserError(f"--set {text!r}: write key=value, as in --set training.lr=0.05")
    for name in names[:-1]:
        inner = values.setdefault(name, {})
        if isinstance(inner, str):  # a bare name where a table may stand: partition = "iid", method = "fedavg"
            inner = values[name] = {"kind" if name == "partition" else "name": inner}
        if not isinstance(inner, dict):
            raise UserError(f"--set {text!r}: {name} is not a table")
        values = inner
    values[names[-1]] = _value(value.strip())


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text  # a plain word is a string


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _sentence(error: ValidationError, where: str, model: type[BaseModel], prefix: tuple[str, ...]) -> str:
    """One sentence: the file, the key, the value, what is allowed."""
    problems = error.errors()
    first = problems[0]
    place = [part for part in (*prefix, *first["loc"]) if not _is_branch(part)]
    key = ".".join(str(part) for part in place)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        fields = _fields_at(model, list(first["loc"][:-1]))
        return f"{where}: {unknown('setting', key.rsplit('.', 1)[-1], fields)} in {key}{more}"
    reason = first["msg"].removeprefix("Value error, ")
    value = repr(first["input"])
    value = value if len(value) <= 60 else value[:57] + "..."
    return f"{where}: {key} = {value}: {reason[:1].lower()}{reason[1:]}{more}"


def _is_branch(part: object) -> bool:
    """Whether pydantic put the name of a union's branch into the place of an error."""
    return isinstance(part, str) and ("[" in part or part in {"float", "int", "str"} or part[:1].isupper())


def _fields_at(model: type[BaseModel], place: list[Any]) -> list[str]:
    """The fields allowed at a place in a tree of settings."""
    for part in place:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        if field is not None:
            inner = [a for a in (field.annotation, *_deep_args(field.annotation)) if _is_model(a)]
            if len(inner) != 1:
                inner = [a for a in inner if str(place[-1]) in _kinds(a)] or inner
            model = inner[0] if inner else model
    return [name for name in model.model_fields if name != "kind"]


def _deep_args(annotation: Any) -> list[Any]:
    found = []
    for inner in get_args(annotation):
        found += [inner, *_deep_args(inner)]
    return found


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _kinds(model: type[BaseModel]) -> list[str]:
    kind = model.model_fields.get("kind")
    return [str(value) for value in get_args(kind.annotation)] if kind else []
