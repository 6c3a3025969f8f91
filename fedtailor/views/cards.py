"""The catalogues of methods and of models."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from fedtailor.views.numbers import NOTHING, quantity
from fedtailor.views.tables import Grid

if TYPE_CHECKING:
    from fedtailor.methods import Method
    from fedtailor.models import Card


def method_facts(kind: "type[Method]") -> dict[str, Any]:
    """A method as plain values: its settings with defaults, ranges and descriptions."""
    schema = kind.model_json_schema()
    properties = _flat(schema, schema.get("$defs", {}))
    settings = {
        name: {"default": field.get("default"), "allowed": _allowed(field), "about": field.get("description", "")}
        for name, field in properties.items()
    }
    return {
        "name": kind.name or f"{kind.__module__}:{kind.__qualname__}",
        "shares": kind.shares,
        "about": inspect.getdoc(kind) or "",
        **asdict(kind.card),
        "needs_validation": kind.needs_validation,
        "settings": settings,
        "inert": _inert(kind, properties),
    }


def methods_page(facts: Sequence[Mapping[str, Any]]) -> RenderableType:
    header = ("method", "what it does", "year", "exchanged", "client keeps", "server keeps", "cost of a round")
    rows = [
        (
            f["name"],
            _first_sentence(f["about"]),
            str(f["year"] or NOTHING),
            f["exchanged"],
            f["client_state"],
            f["server_state"],
            f["cost"],
        )
        for f in facts
    ]
    return Grid(header, tuple(rows), words=frozenset(range(7)) - {2}).rich()


def method_card(facts: Mapping[str, Any]) -> RenderableType:
    """Everything about one method."""
    parts: list[RenderableType] = [Text(facts["name"], style="bold"), Padding(Text(facts["about"]), (0, 0, 1, 2))]
    parts += [Text(line) for line in card_lines(facts)]
    if facts["settings"]:
        rows = [(n, str(s["default"]), s["allowed"], s["about"]) for n, s in facts["settings"].items()]
        parts.append(Grid(("setting", "default", "allowed", "about"), tuple(rows), words=frozenset({0, 2, 3})).rich())
    else:
        parts.append(Text("settings: none"))
    parts += [Text(f"note: {sentence}", style="yellow") for sentence in facts["inert"]]
    return Group(*parts)


def card_lines(facts: Mapping[str, Any]) -> list[str]:
    """The fidelity card in sentences, for the terminal and the documentation."""
    year = f", {facts['year']}" if facts["year"] else ""
    lines = [
        f"paper: {facts['paper']}{year}",
        f"exchanged: {facts['exchanged']}",
        f"a client keeps: {facts['client_state']}",
        f"the server keeps: {facts['server_state']}",
        f"cost of a round: {facts['cost']}",
        "secure aggregation: "
        + (
            "fits, the server needs only sums" if facts["only_sums"] else "does not fit, the server looks at each reply"
        ),
        "peers: "
        + ("clients receive other clients' models" if facts["shows_peers"] else "no client sees another's model"),
    ]
    if facts["needs_validation"]:
        lines.append("needs validation data; without a validation split they are held out from train")
    lines += [f"limit: {limit}" for limit in facts["limits"]]
    return lines + [f"deviation: {deviation}" for deviation in facts["deviations"]]


def methods_document(facts: Sequence[Mapping[str, Any]]) -> str:
    """The fidelity cards of all methods."""
    parts = ["# Methods", "", "Written by `fedtailor methods --markdown`: each method's fidelity card.", ""]
    for fact in facts:
        parts += [f"## {fact['name']}", "", "```text", fact["about"], "```", ""]
        parts += [f"- {line}" for line in card_lines(fact)]
        parts += [f"- note: {sentence}" for sentence in fact["inert"]]
        rows = [(n, str(s["default"]), s["allowed"], s["about"]) for n, s in fact["settings"].items()]
        if rows:
            grid = Grid(("setting", "default", "allowed", "about"), tuple(rows), words=frozenset({0, 2, 3}))
            parts += ["", grid.markdown().rstrip("\n")]
        parts.append("")
    return "\n".join(parts)


def _flat(
    schema: Mapping[str, Any], parts: Mapping[str, Any], defaults: Mapping[str, Any] | None = None, prefix: str = ""
) -> dict[str, dict[str, Any]]:
    """The settings of a JSON schema by their dotted names: those of nested tables, with the outer table's defaults."""
    found: dict[str, dict[str, Any]] = {}
    nested: dict[str, dict[str, Any]] = {}
    for name, field in schema.get("properties", {}).items():
        default = field.get("default") if defaults is None else defaults.get(name, field.get("default"))
        inner = parts.get(str(field.get("$ref", "")).rpartition("/")[2])
        if inner is not None and "properties" in inner:
            nested |= _flat(inner, parts, default, f"{prefix}{name}.")
        else:
            found[prefix + name] = {**field, "default": default}
    return {**found, **nested}


def _allowed(field: Mapping[str, Any]) -> str:
    """The allowed values of a setting, from its JSON schema."""
    if "anyOf" in field:
        return " or ".join(_allowed(branch) for branch in field["anyOf"])
    if "enum" in field or "const" in field:
        return ", ".join(map(str, field.get("enum", [field.get("const")])))
    kinds = {"number": "number", "integer": "whole number", "boolean": "true or false", "string": "text"}
    kind = field.get("type", "value")
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = " and ".join(f"{sign} {field[key]:g}" for key, sign in signs.items() if key in field)
    name = "none" if kind == "null" else kinds.get(kind, "list" if kind == "array" else "table")
    return f"{name} {bounds}".strip()


def _inert(kind: "type[Method]", properties: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The warnings of settings that make the method inert, found by trying each setting at its limits."""
    from pydantic import ValidationError

    sentences: dict[str, None] = {}
    tries: list[dict[str, Any]] = [{}]
    for name, field in properties.items():
        limits = {field[key] for key in ("minimum", "maximum") if key in field}
        tries += [
            _nested(name, value)
            for value in (*sorted(limits), *field.get("enum", ()), *_SWITCHES.get(field.get("type", ""), ()))
        ]
    for settings in tries:
        try:
            sentence = kind(**settings).inert()
        except ValidationError:
            continue  # this value is only valid together with others
        if sentence:
            sentences[sentence] = None
    return list(sentences)


def _nested(name: str, value: Any) -> dict[str, Any]:
    """A dotted name with a value as tables in each other."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]


_SWITCHES: dict[str, tuple[Any, ...]] = {"boolean": (False, True), "number": (0, 1), "integer": (0, 1)}


def _first_sentence(text: str) -> str:
    return text.partition("\n\n")[0].replace("\n", " ")


def models_page(cards: Sequence["Card"]) -> RenderableType:
    rows = [
        (
            card.name,
            "x".join(map(str, card.inputs.shape)),
            quantity(card.parameters),
            quantity(card.flops),
            card.description,
        )
        for card in cards
    ]
    header = ("model", "input", "parameters", "multiply-adds", "about")
    return Grid(header, tuple(rows), words=frozenset({0, 1, 4})).rich()


def models_document(cards: Sequence["Card"]) -> list[dict[str, Any]]:
    return [{**vars(card), "inputs": vars(card.inputs)} for card in cards]
