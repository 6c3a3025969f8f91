"""From the options of a command to an experiment's settings: values by dotted key."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedtailor.errors import UserError

if TYPE_CHECKING:
    from fedtailor.cli.options import Engine
    from fedtailor.runs import Experiment

LONGEST = 60  # characters of a user's text that an error repeats


def settings_from(
    source: "Path | Experiment | None", options: Mapping[str, Any] | None = None, sets: Iterable[str] | None = None
) -> "Experiment":
    """Read an experiment, or take one, and apply the given options, then the ``--set`` texts.

    An option that the user did not give is None and changes nothing.
    """
    from fedtailor.runs import experiment

    changes = {key: value for key, value in (options or {}).items() if value is not None}
    for key, value in map(parse_set, sets or ()):
        changes.pop(key, None)  # a repeated key moves to the end, because changes apply in order
        changes[key] = value
    return experiment(source, changes)


def shared_options(
    name: str | None = None,
    data_dir: Path | None = None,
    workers: int | None = None,
    engine: "Engine | None" = None,
    track: str | None = None,
) -> dict[str, Any]:
    """Map the options that several commands share to their settings."""
    return {
        "name": name,
        "data.dir": None if data_dir is None else str(data_dir),
        "engine.workers": workers,
        "engine.kind": engine,
        "track": split_list(track),
    }


def parse_set(text: str) -> tuple[str, Any]:
    """Split a ``--set`` text into its key and its value; a value that is not TOML is a string.

    >>> parse_set("training.lr=0.1"), parse_set("data.partition=iid")
    (('training.lr', 0.1), ('data.partition', 'iid'))
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        shown = repr(text) if len(repr(text)) <= LONGEST else repr(text)[: LONGEST - 3] + "..."
        raise UserError(f"--set {shown}: write key=value, as in --set training.lr=0.05")
    from fedtailor.runs.toml import parse_value

    return key, parse_value(value.strip())


def split_list(text: str | None) -> list[str] | None:
    """Split a list with commas; None stays None.

    >>> split_list("local, fedavg,")
    ['local', 'fedavg']
    """
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def whole_numbers(option: str, texts: list[str] | None) -> list[int] | None:
    """Read the whole numbers of an option; None stays None."""
    try:
        return None if texts is None else [int(text) for text in texts]
    except ValueError:
        raise typer.BadParameter("write whole numbers with commas, as in 0,1,2.", param_hint=option) from None
