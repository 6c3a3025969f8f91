"""Options and arguments that several commands share."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, Literal, TypeVar

import typer

Group = TypeVar("Group")

Engine = Literal["inline", "processes", "ray"]
HeadlineModel = Literal["final", "held", "received", "global"]

ExperimentFile = Annotated[
    Path | None, typer.Argument(metavar="EXPERIMENT.toml", help="The experiment; the default trains on digits.")
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in training.lr=0.05; may be repeated."),
]
Name = Annotated[str | None, typer.Option(help="Name of the folder that the command writes.")]
Seed = Annotated[int | None, typer.Option(help="Seed of every random stream.")]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with the files of the data sets.")]
Workers = Annotated[int | None, typer.Option(help="Number of worker processes; default: one per core.")]
EngineKind = Annotated[Engine | None, typer.Option(help="Where clients train; results do not depend on it.")]
RunsFolder = Annotated[Path, typer.Option(help="Parent of the folder that the command writes.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a run of this name that is not running.")]
Track = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Trackers that get a copy: tensorboard, mlflow, wandb; '' for none."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress; warnings are still shown.")]
Formats = Annotated[
    str, typer.Option("--format", metavar="A,B", help="safetensors, torch, onnx (extra export), with commas.")
]
Licence = Annotated[str | None, typer.Option(help="The licence of the model, for its card.")]


def options_of(group: type[Group]) -> Callable[[Callable[Concatenate[Group, ...], None]], Callable[..., None]]:
    """Give a command the fields of a dataclass as options, after its own; its first parameter is the dataclass."""
    shared = inspect.signature(group).parameters

    def decorate(command: Callable[Concatenate[Group, ...], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def spread(**given: Any) -> None:
            command(group(**{name: given.pop(name) for name in shared}), **given)

        own = inspect.signature(command)
        _, *others = own.parameters.values()
        parameters = [*others, *shared.values()]
        spread.__annotations__ = {one.name: one.annotation for one in parameters}
        spread.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return spread

    return decorate
