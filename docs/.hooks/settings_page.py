"""The settings reference: every key of an experiment with its type, range, default and description, from the schema."""

from collections.abc import Iterator, Mapping
from typing import Any

from markup import cell, code, rows_of, text_of

from fedtailor.runs import Experiment
from fedtailor.runs.toml import value_text
from fedtailor.views.cards import allowed_values

HEADER = ("key", "allowed", "default", "about")
INTRODUCTION = """# Settings

An experiment is a TOML file with these keys; `fedtailor new` writes one with comments, and `--set KEY=VALUE` changes
any of them on the command line. Every key has a default. A method has a table of its own, `[method]`, with its name
and its settings: see the page of the method.
"""
METHOD = """The method: its `name`, and its settings as further keys. The pages of the methods list them.

```toml
[method]
name = "fedprox"
mu = 0.01
```
"""
Schema = Mapping[str, Any]


class Page:
    """The tables of the settings, in the order of the schema."""

    def __init__(self, schema: Schema) -> None:
        self.parts: Schema = schema["$defs"]
        self.lines = [INTRODUCTION]
        self.missing: list[str] = []

    def table(self, name: str, fields: Schema, default: Any, about: str) -> None:
        """The section of a table, and those of the tables inside it."""
        if name:
            self.lines += [f"## [{name}]", "", about, ""]
        own, inner = [], []
        for key, field in fields.items():
            value = default.get(key, field.get("default")) if isinstance(default, Mapping) else field.get("default")
            full = self._resolved(field)
            if self._is_table(full):
                inner.append((f"{name}.{key}".strip("."), full, value))
            else:
                own.append(self._row(f"{name}.{key}".strip("."), full, value))
        if own:
            self.lines += [*rows_of(HEADER, own), ""]
        for place, full, value in inner:
            self._inner(place, full, value)

    def _inner(self, place: str, full: Schema, value: Any) -> None:
        about = text_of(full.get("description", ""))
        branches = self._tables(full)
        if place == "method":
            self.lines += ["## [method]", "", METHOD, ""]
        elif "discriminator" in full or len(branches) > 1:
            self._kinds(place, full, value, about)
        else:
            (table,) = branches or [full]
            own = self.parts.get(str(full.get("$ref", "")).rpartition("/")[2], table).get("description", "")
            both = dict.fromkeys(_sentence(one) for one in (text_of(own), about) if one)
            self.table(place, table["properties"], value, "\n\n".join(both))

    def _kinds(self, place: str, full: Schema, value: Any, about: str) -> None:
        """A table that has other keys for each of its kinds."""
        chosen = value.get("kind") if isinstance(value, Mapping) else None
        self.lines += [f"## [{place}]", "", _sentence(about), ""]
        self.lines += [f"`kind` is {code(chosen)} by default.", ""] if chosen else []
        for table in self._tables(full):
            kind = table["properties"]["kind"]["const"]
            own = value if kind == chosen else {}
            fields = {key: field for key, field in table["properties"].items() if key != "kind"}
            self.lines += [f'### kind = "{kind}"', "", _sentence(text_of(table.get("description", ""))), ""]
            rows = [
                row for key, field in fields.items() for row in self._of_kind(f"{place}.{key}", field, own.get(key))
            ]
            self.lines += [*rows_of(HEADER, rows), ""] if rows else []

    def _of_kind(self, key: str, field: Schema, default: Any) -> Iterator[tuple[str, ...]]:
        """The row of a key, and those of the tables that a list at this key has."""
        yield self._row(key, self._resolved(field), field.get("default") if default is None else default)
        for name, inner in self._resolved(field.get("items", {})).get("properties", {}).items():
            yield self._row(f"{key}.{name}", self._resolved(inner), inner.get("default"))

    def _row(self, key: str, field: Schema, default: Any) -> tuple[str, ...]:
        about = field.get("description", "")
        if not about:
            self.missing.append(key)
        shown = "–" if default is None else code(value_text(default))
        return code(key), cell(self._allowed(field)), shown, cell(_sentence(text_of(about)))

    def _allowed(self, field: Schema) -> str:
        branches = [self._resolved(one) for one in field.get("anyOf", ()) if one.get("type") != "null"]
        if branches:
            return " or ".join("a table" if "properties" in one else self._allowed(one) for one in branches)
        if field.get("type") == "array" and "items" in field:
            item = self._resolved(field["items"])
            return f"list of: {self._allowed(item)}" if item else "list"
        return allowed_values(field)

    def _resolved(self, field: Schema) -> dict[str, Any]:
        return {**self.parts.get(str(field.get("$ref", "")).rpartition("/")[2], {}), **field}

    def _tables(self, field: Schema) -> list[dict[str, Any]]:
        """The tables that a field may be, one for each kind."""
        branches = map(self._resolved, (*field.get("oneOf", ()), *field.get("anyOf", ())))
        found = [part for one in branches for part in (self._tables(one) or [one]) if "properties" in part]
        return found or ([dict(field)] if "properties" in field else [])

    def _is_table(self, field: Schema) -> bool:
        """Whether a field is a table, or one of several; one that may also be a plain value counts as a table."""
        return bool(self._tables(field)) or field.get("title") == "Method" or "discriminator" in field


def settings_page() -> str:
    schema = Experiment.model_json_schema()
    page = Page(schema)
    page.table("", schema["properties"], None, "")
    if page.missing:
        raise ValueError(f"settings without a description: {', '.join(page.missing)}")
    return "\n".join(page.lines)


def keys() -> Iterator[str]:
    """Every key that the page must have, found apart from it: by the classes of the settings, not by their schema."""
    yield from _keys(Experiment, "")


def _keys(model: Any, prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        kinds = [one for one in _classes(field.annotation) if hasattr(one, "model_fields")]
        if prefix + name == "method":
            continue
        if not kinds:
            yield prefix + name
        for kind in kinds:
            yield from (key for key in _keys(kind, f"{prefix}{name}.") if not key.endswith(".kind") or len(kinds) == 1)


def _classes(annotation: Any) -> Iterator[type]:
    from typing import get_args

    inner = get_args(annotation)
    if isinstance(annotation, type) and not inner:
        yield annotation
    for one in inner:
        yield from _classes(one)


def _sentence(text: str) -> str:
    text = text.strip()
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", ":", "?", "```")) else f"{text}."
