"""The reference of the Python interface: what `fedtailor` exports, from its signatures and docstrings."""

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from markup import cell, code, rows_of, text_of
from pydantic import BaseModel

import fedtailor

USING = {  # the exported names, by what they are for
    "Run": ("run", "resume", "pretrain", "compare", "advise", "tune", "adapt", "diff", "track", "picture"),
    "Settings": ("experiment", "Experiment"),
    "Results": ("Run", "Comparison"),
    "Models": (
        "export_client",
        "export_clients",
        "export_server",
        "export_global",
        "load_model",
        "load_onnx",
        "predict",
    ),
    "Data": ("Federation",),
    "Observe and fail": ("Callback", "UserError"),
}
WRITING = {
    "Methods": ("Method", "AgentMethod", "Card", "Client", "Server", "Payload", "Replies", "Ask"),
    "Decisions of agents": ("Decision", "Feature", "AgentTables", "Decide", "Decided", "Reward"),
}
INTRODUCTION = """# {title}

`import fedtailor` has everything on this page; torch is loaded by the first thing that needs it. Names that are not in
the reference may change without notice.
"""
SECTION = re.compile(r"^(Parameters|Returns|Yields|Raises|Attributes|Examples|Notes)\n-{3,}\n", re.MULTILINE)


def using_page() -> str:
    """What runs experiments and reads their results, with names that have no group yet."""
    grouped = {name for names in (*USING.values(), *WRITING.values()) for name in names}
    rest = tuple(name for name in fedtailor.__all__ if name not in grouped and name != "__version__")
    return _page("Run and read in Python", {**USING, "Further names": rest} if rest else USING)


def writing_page() -> str:
    """What a method of one's own is made of."""
    return _page("Write a method in Python", WRITING)


def _page(title: str, groups: Mapping[str, tuple[str, ...]]) -> str:
    lines = [INTRODUCTION.format(title=title)]
    for group, names in groups.items():
        lines += [f"## {group}", ""]
        for name in (one for one in names if one in fedtailor.__all__):
            lines += list(_entry(name, getattr(fedtailor, name)))
    return "\n".join(lines)


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if not (inspect.isclass(value) and issubclass(value, BaseModel | Exception)):
        yield from _signature(f"fedtailor.{name}", value)
    yield from _described(name, value)
    if inspect.isclass(value):
        for member, inner in vars(value).items():
            if not member.startswith("_") and _is_documented(inner) and not _is_override(value, member):
                yield f"#### {name}.{member} {{ #{name.lower()}-{member} }}"
                yield ""
                inner = _function(inner)
                if not isinstance(inner, property):
                    yield from _signature(f"{name}.{member}", inner)
                yield from _described(f"{name}.{member}", inner)


def _is_documented(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, property | cached_property | classmethod | staticmethod)


def _is_override(kind: type, member: str) -> bool:
    """Whether a class only overrides what another class documents."""
    own = vars(kind)[member]
    return not getattr(_function(own), "__doc__", None) and any(hasattr(base, member) for base in kind.__bases__)


def _function(value: Any) -> Any:
    if isinstance(value, cached_property):
        return property(value.func)
    return value.__func__ if isinstance(value, classmethod | staticmethod) else value


def _signature(name: str, value: Any) -> Iterator[str]:
    """The call with its types, one parameter in a line if it is long."""
    signature = inspect.signature(value)
    kept = [one for key, one in signature.parameters.items() if key not in ("self", "cls")]
    signature = signature.replace(parameters=kept)
    text = re.sub(r"\b(?:fedtailor|collections|pathlib|typing|torch)(?:\.[a-z_]+)*\.(?=[A-Z])", "", str(signature))
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations that are strings
    if len(name + text) > 90 and kept:
        _, arrow, result = text.rpartition(" -> ")
        parameters = "".join(f"    {' '.join(one.split())},\n" for one in _split(text))
        text = f"(\n{parameters})" + (f"{arrow}{result}" if arrow else "")
    yield from ("```python", f"{name}{text}", "```", "")


def _split(text: str) -> list[str]:
    """The parameters of a signature's text: cut at commas outside of brackets."""
    inside, depth, parts, start = text[1 : text.rindex(")")], 0, [], 0
    for place, letter in enumerate(inside):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(inside[start:place].strip())
            start = place + 1
    return [*parts, inside[start:].strip()]


def _described(name: str, value: Any) -> Iterator[str]:
    """The docstring: its text, and its sections as tables."""
    own = value.__doc__ if not isinstance(value, property) else inspect.getdoc(value)
    if not own:
        raise ValueError(f"{name} has no docstring")
    first, *sections = SECTION.split(inspect.cleandoc(own))
    yield from (text_of(first).strip(), "")
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        yield from (f"**{title}**", "")
        if title == "Examples":
            yield from ("```pycon", textwrap.dedent(body).strip(), "```", "")
        elif title == "Notes":
            yield from (text_of(body).strip(), "")
        else:
            yield from (*rows_of(("name", "about"), map(_row, _items(body))), "")


def _items(body: str) -> list[tuple[str, str]]:
    """The entries of a section: a line at the margin, and the indented lines below it."""
    found: list[tuple[str, list[str]]] = []
    for line in body.strip("\n").splitlines():
        if line and not line[0].isspace():
            found.append((line.strip(), []))
        elif found:
            found[-1][1].append(line.strip())
    return [(name, " ".join(text)) for name, text in found]


def _row(item: tuple[str, str]) -> tuple[str, str]:
    name, _, kind = item[0].partition(" : ")
    about = cell(text_of(item[1]))
    return ", ".join(code(one) for one in name.split(", ")), f"{cell(text_of(kind))}. {about}" if kind else about
