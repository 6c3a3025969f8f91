"""The console script: commands, and what becomes of errors."""

import os
import sys
from collections.abc import Sequence
from typing import TextIO

from fedtailor.errors import UserError

STOPPED = 130  # what shells expect of a program that Ctrl-C ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    from click.exceptions import Abort, ClickException

    from fedtailor.cli import app

    _speak_any_encoding(sys.stdout, sys.stderr)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # methods and networks of the user are found from this folder
    try:
        code = app(args=arguments, prog_name="fedtailor", standalone_mode=False)
    except ClickException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "fedtailor"
        return _fail(f"{error.format_message()} (see '{command} --help')")
    except UserError as error:
        # The author of a method needs the traceback of the method; everybody else one sentence.
        if details := getattr(error, "details", ""):
            print(details.rstrip(), file=sys.stderr)
        return _fail(str(error))
    except (Abort, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
        return STOPPED
    return code if isinstance(code, int) else 0


def _fail(sentence: str) -> int:
    print(f"error: {' '.join(sentence.split())}", file=sys.stderr)
    return 2


def _speak_any_encoding(*streams: TextIO) -> None:
    """A terminal that cannot show a sign shows a question mark."""
    for stream in streams:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
