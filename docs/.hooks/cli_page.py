"""The reference of the command line, from the Typer app."""

from collections.abc import Iterator
from typing import Any

import typer
from markup import cell, code, rows_of
from rich.text import Text

from fedtailor.cli.app import app

INTRODUCTION = """# Commands

`fedtailor COMMAND --help` shows the same in the terminal. A wrong input ends with one sentence and exit code 2;
nothing is written then.
"""


def cli_page() -> str:
    lines = [INTRODUCTION]
    for words, command in commands():
        lines += _section(words, command)
    return "\n".join(lines)


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its words, in the order of `fedtailor --help`."""
    yield from _inside("fedtailor", typer.main.get_command(app))


def _inside(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    for name, inner in command.commands.items():
        if not inner.hidden:
            if hasattr(inner, "commands"):
                yield from _inside(f"{words} {name}", inner)
            else:
                yield f"{words} {name}", inner


def _section(words: str, command: Any) -> list[str]:
    about = _plain(command.help or "")
    if not about:
        raise ValueError(f"{words} has no help")
    shown = [param for param in command.params if not getattr(param, "hidden", False)]
    arguments = [param for param in shown if param.param_type_name == "argument"]
    usage = [_argument(param) for param in arguments]
    lines = [f"## {words}", "", about, "", "```text", " ".join([words, *usage, "[OPTIONS]"]), "```", ""]
    rows = [(code(_argument(param)), _about(param)) for param in arguments]
    rows += [(code(_option(param)), _about(param)) for param in shown if param.param_type_name == "option"]
    for name, help_text in rows:
        if not help_text:
            raise ValueError(f"{words}: {name} has no help")
    lines += [*rows_of(("argument or option", "about"), rows), ""] if rows else []
    epilog = _plain(command.epilog or "")
    if epilog.startswith("Example: "):
        lines += ["Example:", "", "```sh", epilog.removeprefix("Example: "), "```", ""]
    return lines


def _argument(param: Any) -> str:
    name = param.make_metavar_name() if hasattr(param, "make_metavar_name") else (param.metavar or param.name.upper())
    name = f"{name}..." if param.nargs == -1 else name
    return name if param.required else f"[{name}]"


def _option(param: Any) -> str:
    names = ", ".join([*param.opts, *param.secondary_opts])
    if param.is_flag or getattr(param, "count", False):
        return names
    choices = getattr(param.type, "choices", None)
    return f"{names} {param.metavar or ('|'.join(map(str, choices)) if choices else param.type.name.upper())}"


def _about(param: Any) -> str:
    about = _plain(getattr(param, "help", None) or "")
    default = param.default
    if about and default not in (None, False, (), []) and not callable(default):
        about = f"{about} Default: {code(getattr(default, 'value', default))}."
    return cell(f"{about} Required." if about and param.required else about)


def _plain(text: str) -> str:
    return Text.from_markup(" ".join(text.split("\b")).replace("\f", "")).plain.strip()
