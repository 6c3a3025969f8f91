"""Interrupted commands: their message and exit code."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C


@contextmanager
def interruptible(folder: Path, command: str = "") -> Iterator[None]:
    """After Ctrl-C, print the command that resumes the run and exit with code 130."""
    from fedtailor.runs import Interrupted

    try:
        yield
    except (Interrupted, KeyboardInterrupt) as end:
        how = "stopped at a round boundary" if isinstance(end, Interrupted) else "stopped at once"
        advice = f"; resume with: {command or f'fedtailor resume {folder}'}" if folder.exists() else ""
        typer.echo(f"{how}{advice}", err=True)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C: its default would leave started processes running."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
