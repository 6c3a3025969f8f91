"""Mistakes in settings as sentences: the key, the value, and what is allowed."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fedtailor.errors import UserError, unknown

# Words of other frameworks and of papers, and the setting that each means here.
SYNONYMS = {
    **dict.fromkeys(("learning_rate", "local_lr", "client_lr", "local_learning_rate", "eta"), "training.lr"),
    **dict.fromkeys(("batchsize", "local_batch_size", "minibatch_size", "bs"), "training.batch_size"),
    **dict.fromkeys(("local_epochs", "local_epoch", "num_epochs", "n_epochs", "client_epochs"), "training.epochs"),
    **dict.fromkeys(("local_steps", "local_iterations", "num_steps"), "training.steps"),
    **dict.fromkeys(("optim", "optimizer"), "training.optimiser"),
    **dict.fromkeys(("l2", "wd", "decay"), "training.weight_decay"),
    **dict.fromkeys(("criterion", "loss_function", "loss_fn"), "training.loss"),
    **dict.fromkeys(
        ("num_clients", "n_clients", "nclients", "number_of_clients", "users", "num_users"), "data.clients"
    ),
    **dict.fromkeys(("dataset", "data_set", "dataset_name"), "data.source"),
    **dict.fromkeys(("data_dir", "data_path", "root"), "data.dir"),
    **dict.fromkeys(("dirichlet_alpha", "dir_alpha", "non_iid_alpha"), "data.partition.alpha"),
    **dict.fromkeys(("global_rounds", "num_rounds", "n_rounds", "communication_rounds", "comm_round"), "rounds"),
    **dict.fromkeys(("join_ratio", "participation_rate", "client_fraction", "fraction", "frac"), "participation.ratio"),
    **dict.fromkeys(("clients_per_round", "cohort_size", "sample_clients"), "participation.clients"),
    **dict.fromkeys(("random_seed", "manual_seed"), "seed"),
    **dict.fromkeys(("algorithm", "strategy", "aggregator"), "method.name"),
    **dict.fromkeys(("network", "architecture", "arch", "backbone", "model_name"), "model.name"),
    **dict.fromkeys(("num_workers", "n_workers", "processes", "n_jobs", "cpus"), "engine.workers"),
    **dict.fromkeys(("gpu", "cuda"), "engine.device"),
    **dict.fromkeys(("eval_every", "eval_gap", "evaluate_every", "test_every"), "evaluation.every"),
}


MOST = 12  # mistakes that one message lists


class Mistakes(UserError):
    """Everything that is wrong with some settings."""

    def __init__(self, where: str, problems: Iterable[str]):
        self.problems = list(problems)
        many = f"{len(self.problems)} problems: " if len(self.problems) > 1 else ""
        listed = _without_repeats(self.problems[:MOST])
        more = [f"and {len(self.problems) - MOST} more"] if len(self.problems) > MOST else []
        super().__init__(f"{where}: {many}{'; '.join([*listed, *more])}")


def mistakes(error: ValidationError, model: type[BaseModel], values: Any, prefix: tuple[str, ...] = ()) -> list[str]:
    """A sentence for everything that a validation found: the key, the value, and what is allowed.

    Parameters
    ----------
    error
        What pydantic raised.
    model
        The model that was validated.
    values
        The values that it got.
    prefix
        The keys of the table that the values are in.
    """
    found = error.errors(include_url=False)
    # pydantic leaves wrong items out of a list before it counts them
    problems = [
        problem
        for problem in found
        if problem["type"] != "too_short"
        or not any(
            len(o["loc"]) > len(problem["loc"]) and o["loc"][: len(problem["loc"])] == problem["loc"] for o in found
        )
    ]
    unions = dict.fromkeys(_union(problem, values) for problem in problems)
    return [
        _sentence([problem for problem in problems if _union(problem, values) == union], model, values, prefix)
        for union in unions
    ]


def meant(name: str) -> str | None:
    """The setting that a well-known word of other frameworks means.

    >>> meant("learning-rate"), meant("colour")
    ('training.lr', None)
    """
    return SYNONYMS.get(name.lower().replace("-", "_"))


def shown_key(part: int | str) -> str:
    """A key as an error shows it, shortened."""
    text = str(part)
    text = text if text.replace("-", "").replace("_", "").isalnum() else repr(part)
    return text if len(text) <= 60 else text[:57] + "..."


def shown(value: Any) -> str:
    """A value as an error shows it, shortened."""
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # thousands of digits or levels
        return "a value too large to show"
    return text if len(text) <= 60 else text[:57] + "..."


def _without_repeats(sentences: Iterable[str]) -> list[str]:
    """The sentences, each list of known names only where it stands first."""
    said: set[str] = set()
    kept = []
    for sentence in sentences:
        start, bracket, known = sentence.partition("(known: ")
        kept.append(start.rstrip(" :") if bracket and known in said else sentence)
        said.add(known)
    return kept


def _sentence(problems: list[ErrorDetails], model: type[BaseModel], values: Any, prefix: tuple[str, ...]) -> str:
    first, reasons = _most_specific(problems, values)
    key = ".".join(shown_key(part) for part in (*prefix, *_place(first, values))) or ".".join(prefix)
    if first["type"] == "missing":
        return f"{key} is missing"
    if first["type"] == "extra_forbidden":
        reason = _unknown_setting(first, model, prefix)
    elif first["type"] in ("union_tag_invalid", "union_tag_not_found", "model_attributes_type"):
        reason = _kind_reason(
            first, sorted(kind for inner in _models_at(model, list(first["loc"])) for kind in _kinds(inner))
        )
    else:
        reason = ", or ".join(dict.fromkeys(reasons)).replace(", or should be ", ", or ")
    return f"{key} = {shown(first['input'])}: {reason}"


def _unknown_setting(problem: ErrorDetails, model: type[BaseModel], prefix: tuple[str, ...]) -> str:
    table, name = list(problem["loc"][:-1]), str(problem["loc"][-1])
    inside = ".".join((*prefix, *map(str, table)))
    fields = _fields_at(model, table)
    if deeper := _deeper(_models_at(model, table), inside, name):
        return f"unknown setting {name!r}: did you mean {' or '.join(deeper)}?"
    if (setting := meant(name)) is not None:
        return f"unknown setting {name!r}: did you mean {setting}?"
    return str(unknown("setting", name, fields)) if fields else f"unknown setting {name!r}: there are none here"


def _most_specific(problems: list[ErrorDetails], values: Any) -> tuple[ErrorDetails, list[str]]:
    """A problem and its reasons; of those of a failed union, the one of the branch that was probably intended.

    That is the branch that got furthest into the value or, if several did, one that accepted its type. If there is
    none, all reasons together say what is allowed.
    """
    depth = max(len(_place(problem, values)) for problem in problems)
    rivals = [problem for problem in problems if len(_place(problem, values)) == depth]
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
