"""The catalogues of methods and of models."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.text import Text

from fedtailor.views.numbers import NOTHING, quantity
from fedtailor.views.tables import Grid

if TYPE_CHECKING:
    from fedtailor.methods import Method
    from fedtailor.models import Card


WIDEST = 100  # columns of the list of methods
SUMS = {
    True: "fits, the server needs only sums",
    False: "does not fit, the server looks at each reply",
    None: "not declared",
}
PEERS = {True: "clients receive other clients' models", False: "no client sees another's model", None: "not declared"}
PARTS = {  # by what a method shares: what travels, and what stays with the client
    "all": ("the model", ""),
    "body": ("the body", "its head"),
    "head": ("the head", "its body"),
    "adapter": ("the adapter", "the rest of its model"),
    "none": ("", "its model"),
}


def method_facts(kind: "type[Method]") -> dict[str, Any]:
    """A method as plain values: its settings with defaults, ranges and descriptions."""
    schema = kind.model_json_schema()
    properties = _flat(schema, schema.get("$defs", {}))
    settings = {
        name: {"default": field.get("default"), "allowed": allowed_values(field), "about": field.get("description", "")}
        for name, field in properties.items()
    }
    for name, deciders in _deciders(kind).items():
        settings[name]["allowed"] = ", ".join(deciders)
    return {
        "name": kind.name or f"{kind.__module__}:{kind.__qualname__}",
        "shares": kind.shares,
        "about": inspect.getdoc(kind) or "",
        **_card(kind),
        "needs_validation": kind.needs_validation,
        "settings": settings,
        "inert": _inert(kind, properties),
    }


def _card(kind: "type[Method]") -> dict[str, Any]:
    """The card of a method; without one of its own, what its class tells, and None where that tells nothing."""
    from fedtailor.methods import Method

    if "card" in vars(kind) or kind is Method:
        return asdict(kind.card)
    classes = kind.__mro__[: kind.__mro__.index(Method)]
    code = "".join(map(_source, classes))
    changed = kind.changes
    travels, stays = PARTS[kind.shares]
    client = [*([stays] if stays else []), *(["its entries of client.state"] if "client.state" in code else [])]
    server = [f"the global {kind.shares}" if kind.shares in ("body", "head") else "the global model"]
    server = [] if kind.shares == "none" else server
    server += [f"its entries of server.{name}" for name in ("state", "memory") if f"server.{name}" in code]
    exchanged = f"{travels}, down and up" if travels else "nothing"
    return {
        **asdict(kind.card),
        "paper": "none: this method has no card",
        "year": 0,
        "exchanged": f"{exchanged}, and what its upload adds" if "upload" in changed else exchanged,
        "client_state": " and ".join(client) or "nothing",
        "server_state": " and ".join(server) or "nothing",
        "cost": "not declared" if changed & {"fit", "receive", "personal", "prepare", "finish"} else "as FedAvg",
        "limits": (),
        "deviations": (),
        "only_sums": None if changed & {"finish", "prepare"} else True,
        "shows_peers": True if kind.card.shows_peers else None if kind.may_show_peers() else False,
    }


def _source(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # a class that was typed into a console
        return "client.state server.state"


def methods_page(facts: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A line or two for each method, within 100 columns; `fedtailor methods NAME` shows one in full."""
    rows = [(f["name"], str(f["year"] or NOTHING), _first_sentence(f["about"]), f["client_state"]) for f in facts]
    header = ("method", "year", "what it does", "a client keeps")
    return Group(
        Constrain(Grid(header, tuple(rows), words=frozenset({0, 2, 3})).rich(), WIDEST),
        Text("fedtailor methods NAME shows a method in full: what is exchanged, its cost, its settings."),
    )


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
        f"secure aggregation: {SUMS[facts['only_sums']]}",
        f"peers: {PEERS[facts['shows_peers']]}",
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


def _deciders(kind: "type[Method]") -> dict[str, list[str]]:
    """What may make each decision of a method, by the name of the setting, if its class declares it."""
    from fedtailor.parties.decision import AgentTables, known_deciders

    field = kind.model_fields.get("agents")
    tables = None if field is None else field.get_default(call_default_factory=True)
    if not isinstance(tables, AgentTables) or tables.rules is None:
        return {}
    return {f"agents.{name}.decider": known_deciders(table, tables.rules) for name, table in tables}


def allowed_values(field: Mapping[str, Any]) -> str:
    """The allowed values of a setting, from its JSON schema."""
    if "anyOf" in field:
        return " or ".join(allowed_values(branch) for branch in field["anyOf"])
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
