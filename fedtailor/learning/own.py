"""Losses and measures of the user's own, named ``module:function``."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from fedtailor.errors import UserError


@cache
def own_function(name: str, setting: str) -> Callable[..., Any]:
    """Import a function of the user's; ``setting`` is the key that names it."""
    where, _, what = name.partition(":")
    try:
        found = getattr(import_module(where), what, None)
    except Exception as error:  # the import of a user's module may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"{setting} = {name!r} cannot be imported ({reason}): it is module:function, found from this folder"
        ) from None
    if not callable(found):
        raise UserError(f"{setting} = {name!r} cannot be imported: module {where!r} has no function {what!r}")
    return found  # type: ignore[no-any-return]
