"""The one gate for code that is named: ``module:Class`` or ``module:function``.

To import a module is to run it. A name that the user wrote, in an experiment or a call, is imported, and remembered as
this account's own. A name that someone else may have written - in an export, in the folder of a run, in a message of a
coordinator - is imported only if it is allowed by name: by the caller, in the variable ``FEDTAILOR_ALLOW`` (names with
commas between them), or because the user has used it before.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any, get_type_hints

from fedtailor.errors import UserError

REMEDY = "if you trust it, allow it with FEDTAILOR_ALLOW={name}"


@dataclass(frozen=True)
class Restriction:
    """The foreign names that may be imported, and the advice in the error for all others."""

    allowed: frozenset[str]
    remedy: str = REMEDY


_RESTRICTION: ContextVar[Restriction | None] = ContextVar("restriction", default=None)
_own: set[str] = set()  # names that the user gave in this process


@contextmanager
def foreign(allowed: Iterable[str] = (), remedy: str | None = None) -> Iterator[None]:
    """Import only allowed names within this block or decorated function; nested blocks cannot allow more.

    Parameters
    ----------
    allowed : iterable of str
        Names that may be imported.
    remedy : str, optional
        How to allow a name, with ``{name}`` in it. Without it, names of this account and of ``FEDTAILOR_ALLOW`` are
        allowed too.
    """
    names = frozenset(allowed) if remedy else frozenset(allowed) | _known()
    outer = _RESTRICTION.get()
    token = _RESTRICTION.set(Restriction(names if outer is None else names & outer.allowed, remedy or REMEDY))
    try:
        yield
    finally:
        _RESTRICTION.reset(token)


def restriction() -> list[str] | None:
    """Return the names that may be imported now, to restrict another process likewise; None if all may."""
    current = _RESTRICTION.get()
    return None if current is None else sorted(current.allowed)


def restrict(allowed: Iterable[str] | None) -> None:
    """Restrict this process for good, unless it is restricted already."""
    if allowed is not None and _RESTRICTION.get() is None:
        _RESTRICTION.set(Restriction(frozenset(allowed)))


def load(name: str, what: str, kind: type | None = None) -> Any:
    """Import what a name stands for.

    Parameters
    ----------
    name : str
        ``module:Class`` or ``module:function``.
    what : str
        What it is for, in error messages: method, model, loss.
    kind : type, optional
        The class that it must extend. A function passes if its annotated result does, and without annotation if the
        user gave the name, now or before.

    Raises
    ------
    UserError
        If the name is not allowed, before anything is imported; if it does not exist or does not fit, before anything
        is called.
    """
    current = _RESTRICTION.get()
    if current is not None and name not in current.allowed:
        raise UserError(f"{what} {name!r} is code that is not imported: {current.remedy.format(name=name)}")
    where, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(where), attribute)
    except Exception as error:  # the import of a module may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        form = "module:function" if kind is None else "module:Class"
        raise UserError(
            f"{what} {name!r} cannot be imported ({reason}): it is {form}, found from this folder"
        ) from error
    if kind is not None and not _fits(found, kind, current is None or name in _own | _remembered()):
        raise UserError(f"{what} {name!r} is not a class that extends {kind.__module__}.{kind.__qualname__}")
    if current is None:
        remember(name)
    return found


def remember(name: str) -> None:
    """Note a name that the user gave, so that runs and exports of this account can be read again."""
    if ":" in name and name not in _own:
        _own.add(name)
        with suppress(OSError):  # without a home, FEDTAILOR_ALLOW remains
            file = _file()
            if name not in _remembered():
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as opened:
                    opened.write(f"{name}\n")


def _fits(found: Any, kind: type, own: bool) -> bool:
    if isinstance(found, type):
        return issubclass(found, kind)
    if not isfunction(found):  # such as os.system, which is built in
        return False
    try:
        result = get_type_hints(found).get("return")
    except Exception:  # annotations may be anything
        result = None
    return own if result is None else isinstance(result, type) and issubclass(result, kind)


def _known() -> frozenset[str]:
    given = os.environ.get("FEDTAILOR_ALLOW", "").split(",")
    return frozenset(_own | _remembered() | {name.strip() for name in given if name.strip()})


def _remembered() -> set[str]:
    try:
        return set(_file().read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return set()


def _file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "fedtailor" / "own-code"
