"""Where things are printed: results on stdout, everything else on stderr."""

import json
import math
import sys
from typing import Any

from rich.console import Console, RenderableType

PIPE_WIDTH = 160  # columns of a table that is piped into a file or another program


def show(*things: RenderableType) -> None:
    """Print results on stdout."""
    console = results()
    for thing in things:
        # A path or a command that is broken into lines cannot be copied; tables and prose fit the terminal.
        console.print(thing, soft_wrap=isinstance(thing, str))


def show_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    print(json.dumps(_standard(document), indent=2, ensure_ascii=False, default=str))


def results() -> Console:
    # No markup: names and messages of the user may hold brackets.
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(markup=False, highlight=False, width=width)


def messages() -> Console:
    return Console(stderr=True, markup=False, highlight=False, soft_wrap=not sys.stderr.isatty())


def _standard(value: Any) -> Any:
    """JSON knows no infinity and no NaN, which a loss that ran away may be."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _standard(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_standard(inner) for inner in value]
    return value
