"""Writes settings as TOML text (the standard library only reads it), and reads single values."""

import json
import tomllib
from collections.abc import Mapping
from datetime import date, time
from typing import Any


def dumps(values: Mapping[str, Any]) -> str:
    """TOML text that reads back as the same values; a table per nested mapping, None left out."""
    return "\n".join(_table(values, ())).strip() + "\n"


def parse_value(text: str) -> Any:
    """The value of a text that a user typed; a text that is not TOML is a string.

    >>> parse_value("0.1"), parse_value("iid"), parse_value("[1, 2]")
    (0.1, 'iid', [1, 2])
    """
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text  # a plain word is a string
    value = read["value"]
    return text if len(read) > 1 or isinstance(value, date | time) else value  # no setting is a date


def _table(values: Mapping[str, Any], place: tuple[str, ...]) -> list[str]:
    plain = {k: v for k, v in values.items() if not isinstance(v, Mapping) and v is not None}
    nested = {k: v for k, v in values.items() if isinstance(v, Mapping)}
    lines = [f"{_key(key)} = {value_text(value)}" for key, value in plain.items()]
    for key, value in nested.items():
        inner = (*place, key)
        lines += ["", f"[{'.'.join(map(_key, inner))}]", *_table(value, inner)]
    return lines


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else _text(key)


def value_text(value: Any) -> str:
    """A value as TOML text.

    >>> value_text([0.5, "a", True])
    '[0.5, "a", true]'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float.__repr__(value)  # not repr, which would include the type of a numpy float
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {value_text(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_text(item) for item in value) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    # A JSON string is a TOML string, except for DEL and for characters that ASCII writes as two escapes.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
