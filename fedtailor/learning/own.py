"""Losses and measures of the user's own, named ``module:function``."""

from collections.abc import Callable
from typing import Any

from fedtailor.errors import UserError
from fedtailor.imports import load


def own_function(name: str, setting: str) -> Callable[..., Any]:
    """Import a function of the user's; ``setting`` is the key that names it."""
    found: Callable[..., Any] = load(name, f"{setting} =")
    if not callable(found):
        raise UserError(f"{setting} = {name!r} is not a function")
    return found
