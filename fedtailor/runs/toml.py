"""Writes settings as TOML text (the standard library only reads it)."""

import json
from collections.abc import Mapping
from typing import Any


def dumps(values: Mapping[str, Any]) -> str:
    """TOML text that reads back as the same values; a table per nested mapping, None left out."""
    return "\n".join(_table(values, ())).strip() + "\n"


def _table(values: Mapping[str, Any], place: tuple[str, ...]) -> list[str]:
    plain = {k: v for k, v in values.items() if not isinstance(v, Mapping) and v is not None}
    nested = {k: v for k, v in values.items() if isinstance(v, Mapping)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in nested.items():
        inner = (*place, key)
        lines += ["", f"[{'.'.join(map(_key, inner))}]", *_table(value, inner)]
    return lines


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float.__repr__(value)  # not repr, which would include the type of a numpy float
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    # A JSON string is a TOML string, except for DEL and for characters that ASCII writes as two escapes.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
