"""The form that starts a run, made from the settings' own schema; and settings from what a user typed into it."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from fedtailor.data import SOURCES
from fedtailor.errors import UserError
from fedtailor.methods import catalogue
from fedtailor.models import CATALOGUE
from fedtailor.runs import Experiment, experiment, toml
from fedtailor.runs.mistakes import Mistakes
from fedtailor.views.cards import allowed_values

Field = dict[str, Any]
When = tuple[tuple[str, str], ...]
LEFT_OUT = ("method", "compare", "pretrain")  # tables that are no part of starting a run, or need their own form
SUGGESTIONS = {"data.source": [*SOURCES, "synthetic", "folder"], "model.name": ["auto", *CATALOGUE]}
MORE = "more"  # the key of the lines for settings that the form does not have


@cache
def form_fields() -> tuple[Field, ...]:
    """Every setting of a run, in order: key, table, description, what is allowed, default, and when it applies.

    ``when`` are pairs of a key and a value: the field matters only if those other fields have these values.
    """
    schema = Experiment.model_json_schema()
    parts = schema["$defs"]
    found = []
    for name, field in schema["properties"].items():
        if name not in LEFT_OUT:
            found += list(_fields(name, field, parts, field.get("default"), ()))
        if name == "method":
            found += list(_method_fields())
    return tuple({**field, "suggestions": SUGGESTIONS.get(field["key"], [])} for field in found)


def values_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a run as texts for the form: those that differ from the defaults."""
    found: dict[str, str] = {}
    rest = dict(_flat({name: table for name, table in settings.items() if name not in ("compare", "pretrain")}))
    for field in form_fields():
        if field["kind"] == "table":
            value: Any = any(key.startswith(f"{field['key']}.") for key in rest) or None
        else:
            value = rest.get(field["key"])
        if value is not None and _applies(field, found):
            rest.pop(field["key"], None)
            if _text(value) != field["default"]:
                found[field["key"]] = _text(value)
    lines = [f"{key}={toml.value_text(value)}" for key, value in rest.items() if value not in ((), [], None)]
    return {**found, **({MORE: "\n".join(lines)} if lines else {})}


def settings_of(values: Mapping[str, Any]) -> Experiment:
    """The experiment that was typed into the form: texts by key; an empty one means the default.

    Raises
    ------
    UserError
        If a text is not allowed; `placed` finds the field that it is about.
    """
    if not all(isinstance(key, str) and isinstance(text, str) for key, text in values.items()):
        raise UserError("the form sends texts by key")
    if strange := sorted(values.keys() - {field["key"] for field in form_fields()} - {MORE}):
        raise UserError(f"the form has no field {strange[0][:60]!r}")
    changes: dict[str, Any] = {}
    for field in form_fields():
        text = values.get(field["key"], "").strip()
        if text and text != field["default"] and _applies(field, values):
            changes[field["key"]] = _value(field, text)
    for line in filter(None, map(str.strip, values.get(MORE, "").splitlines())):
        key, equals, text = (part.strip() for part in line.partition("="))
        if not equals or not all(key.split(".")):
            raise UserError(f"{MORE} = {line[:60]!r}: write key=value in every line, as in training.lr=0.05")
        changes.pop(key, None)
        changes[key] = toml.parse_value(text)
    return experiment(None, changes)


def placed(error: UserError) -> list[dict[str, str]]:
    """The sentences of an error, each with the key of the field that it is about, or with none."""
    keys = sorted({MORE, *(field["key"] for field in form_fields())}, key=len, reverse=True)
    sentences = error.problems if isinstance(error, Mistakes) else [str(error).removeprefix("experiment: ")]
    return [{"key": _about(sentence, keys), "text": sentence} for sentence in sentences]


def _about(sentence: str, keys: Iterable[str]) -> str:
    """The field that a sentence begins with; for a table with kinds, its kind."""
    sentence = sentence.replace("unknown method ", "method.name ", 1).removeprefix("unknown ")
    for key in keys:
        start = key.removesuffix(".kind")
        for begin in dict.fromkeys((key, start)):
            if sentence.startswith(begin) and sentence[len(begin) : len(begin) + 1] in (" ", ",", ".", ":"):
                return key
    return ""


def _fields(key: str, schema: Field, parts: Mapping[str, Any], default: Any, when: When) -> Iterator[Field]:
    """The fields of one setting: one, or those of a table."""
    schema = _resolved(schema, parts)
    branches = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    nullable = len(branches) < len(schema.get("anyOf", ()))
    if nullable and len(branches) == 1:
        schema = {**_resolved(branches[0], parts), **{k: v for k, v in schema.items() if k != "anyOf"}}
    about = {"key": key, "table": key.rpartition(".")[0], "about": schema.get("description", ""), "when": when}
    if "discriminator" in schema:
        kinds = schema["discriminator"]["mapping"]
        chosen = default["kind"] if default else ""
        choices = list(kinds) if chosen else ["", *kinds]
        about |= {"key": f"{key}.kind", "table": key, "kind": "choice", "choices": choices}
        yield {**about, "default": chosen, "allowed": ", ".join(kinds)}
        for kind, place in kinds.items():
            own = default if kind == chosen else None
            table = parts[place.rpartition("/")[2]]["properties"]
            inner = (*when, (f"{key}.kind", kind))
            yield from _table(key, {k: v for k, v in table.items() if k != "kind"}, parts, own, inner)
    elif "properties" in schema:
        if nullable:
            yield {**about, "table": key, "kind": "table", "default": "false", "allowed": "true or false"}
            when = (*when, (key, "true"))
        yield from _table(key, schema["properties"], parts, default, when)
    else:
        yield {**about, **_input(schema, branches, nullable), "default": _text(default)}


def _table(key: str, table: Field, parts: Mapping[str, Any], default: Any, when: When) -> Iterator[Field]:
    for name, field in table.items():
        own = default.get(name, field.get("default")) if isinstance(default, Mapping) else field.get("default")
        yield from _fields(f"{key}.{name}", field, parts, own, when)


def _resolved(schema: Field, parts: Mapping[str, Any]) -> Field:
    return {**parts.get(str(schema.get("$ref", "")).rpartition("/")[2], {}), **schema}


def _input(schema: Field, branches: list[Field], nullable: bool) -> Field:
    """How a value is typed in: its kind, choices and bounds."""
    if len(branches) > 1:
        either = [allowed_values(branch) for branch in branches if "$ref" not in branch]
        tables = ["a table"] if len(either) < len(branches) else []
        return {"kind": "value", "allowed": " or ".join([*either, *tables])}
    found: Field = {"kind": "value", "allowed": allowed_values(schema)}
    if "enum" in schema:
        found |= {"kind": "choice", "choices": ["", *schema["enum"]] if nullable else list(schema["enum"])}
    elif schema.get("type") == "boolean":
        found["kind"] = "truth"
    elif schema.get("type") in ("integer", "number"):
        found |= {"kind": "whole" if schema["type"] == "integer" else "number"}
        found |= {"min": schema.get("minimum"), "max": schema.get("maximum")}
    elif schema.get("type") == "string":
        found["kind"] = "text"
    return found


def _method_fields() -> Iterator[Field]:
    names = list(catalogue())
    about = "The method; 'fedtailor methods NAME' describes one in full."
    first = {"key": "method.name", "table": "method", "about": about, "kind": "choice", "choices": names, "when": ()}
    yield {**first, "default": "fedavg", "allowed": "a method"}
    for name, kind in catalogue().items():
        schema = kind.model_json_schema()
        when = (("method.name", name),)
        yield from _table("method", schema.get("properties", {}), schema.get("$defs", {}), None, when)


def _applies(field: Field, values: Mapping[str, Any]) -> bool:
    """Whether a field matters, given the texts of the others."""
    return all((values.get(key) or _defaults()[key]) == value for key, value in field["when"])


@cache
def _defaults() -> dict[str, str]:
    return {field["key"]: field["default"] for field in form_fields()}


def _value(field: Field, text: str) -> Any:
    """What a text means: for a field of texts itself, else as TOML."""
    if field["kind"] == "table":
        return {}
    return text if field["kind"] in ("text", "choice") else toml.parse_value(text)


def _text(value: Any) -> str:
    """A value as a user would type it; empty for None."""
    if value is None:
        return ""
    return value if isinstance(value, str) else toml.value_text(value)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
