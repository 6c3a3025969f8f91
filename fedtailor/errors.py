"""What a user can put right: one sentence, exit code 2, no traceback."""

from collections.abc import Iterable
from difflib import get_close_matches

MAX_TEXT = 300  # characters of a stranger's text
CPU_BUILD = "PyTorch's install page has the command for the CPU build"


class UserError(Exception):
    """Something the user can put right; the message is one sentence that says how.

    Examples
    --------
    >>> try:
    ...     fedtailor.run({"method": {"name": "fedpr"}})
    ... except fedtailor.UserError as error:
    ...     print(str(error).partition(" (")[0])
    experiment: unknown method 'fedpr': did you mean 'fedper'?
    """


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that does not exist, with the nearest one that does.

    >>> str(unknown("method", "fedpr", ["fedper", "local"]))
    "unknown method 'fedpr': did you mean 'fedper'? (known: fedper, local)"
    """
    names = sorted(known)
    near = [one for one in names if one.lower() == name.lower()] or get_close_matches(name, names, n=1)
    near = near or get_close_matches(name.lower(), names, n=1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    return UserError(f"unknown {kind} {name!r}{hint} (known: {', '.join(names)})")


def without_torch() -> UserError:
    """The error for a machine on which torch is not installed."""
    return UserError(f"torch is not installed: pip install torch ({CPU_BUILD}, which saves gigabytes without a GPU)")


def one_line(text: object, most: int = MAX_TEXT) -> str:
    """A text of unknown origin for logs and records: one line of limited length, with control characters escaped.

    >>> one_line("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    given = text if isinstance(text, str) else f"a {type(text).__name__} instead of a text"
    words = " ".join(given[: 4 * most].split())
    line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in words)
    return line if len(line) <= most else f"{line[: most - 3]}..."
