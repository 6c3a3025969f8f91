"""Printing: results go to stdout, everything else to stderr."""

import json
import math
import sys
from typing import Any

from rich.console import Console, RenderableType

PIPE_WIDTH = 160  # columns of a table when stdout is not a terminal


def show(*things: RenderableType) -> None:
    """Print results on stdout."""
    console = results()
    for thing in things:
        # Paths and commands must not be broken into lines, so that they can be copied.
        console.print(thing, soft_wrap=isinstance(thing, str))


def show_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    print(json_text(document), end="")


def json_text(document: Any) -> str:
    """A document as JSON; infinity and NaN (a diverged loss), which JSON lacks, become null."""
    return json.dumps(_standard(document), indent=2, ensure_ascii=False, default=str) + "\n"


def results() -> Console:
    # No markup: names and messages of the user may hold brackets.
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(markup=False, highlight=False, width=width)


def messages() -> Console:
    return Console(stderr=True, markup=False, highlight=False, soft_wrap=not sys.stderr.isatty())


def _standard(value: Any) -> Any:
    """Replace infinity and NaN (a diverged loss) by None: JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _standard(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_standard(inner) for inner in value]
    return value
