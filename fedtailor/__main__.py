"""The console script: runs a command and turns errors into exit codes."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO, cast

from fedtailor.errors import UserError, without_torch

if TYPE_CHECKING:
    from click import ClickException

STOPPED = 130  # the exit code that shells expect after Ctrl-C


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    from typer import Abort, BadParameter

    from fedtailor.cli import app

    # click's own class, or that of the copy of click in typer 0.26 and later
    mistake = cast("type[ClickException]", BadParameter.__mro__[2])
    _tolerate_encodings(sys.stdout, sys.stderr)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # so that the user's methods and networks in this folder can be imported
    try:
        code = app(args=arguments, prog_name="fedtailor", standalone_mode=False)
    except mistake as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "fedtailor"
        return _fail(f"{error.format_message()}{_meant(error)} (see '{command} --help')")
    except UserError as error:
        # The author of a method needs its traceback; other users need one sentence.
        if details := getattr(error, "details", ""):
            print(details.rstrip(), file=sys.stderr)
        return _fail(str(error))
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return _fail(str(without_torch()))
    except (Abort, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
        return STOPPED
    return code if isinstance(code, int) else 0


def _meant(error: Exception) -> str:
    """The setting that an unknown option means, such as --learning-rate."""
    option = getattr(error, "option_name", None)
    if option is None or type(error).__name__ != "NoSuchOption":
        return ""
    from fedtailor.runs.mistakes import meant

    setting = meant(option.lstrip("-"))
    return "" if setting is None else f" Write --set {setting}=VALUE."


def _fail(sentence: str) -> int:
    print(f"error: {' '.join(sentence.split())}", file=sys.stderr)
    return 2


def _tolerate_encodings(*streams: TextIO) -> None:
    """Print a question mark for characters that a terminal cannot show."""
    for stream in streams:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
