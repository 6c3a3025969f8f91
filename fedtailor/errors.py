"""What a user can put right: one sentence, exit code 2, no traceback."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Something the user can put right; the message is one sentence that says how."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that does not exist, with the nearest one that does.

    >>> str(unknown("method", "fedpr", ["fedper", "local"]))
    "unknown method 'fedpr': did you mean 'fedper'? (known: fedper, local)"
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UserError(f"unknown {kind} {name!r}: {hint}(known: {', '.join(names)})")
