"""The command prune."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedtailor.cli.options import Json
from fedtailor.errors import UserError

commands = typer.Typer()


@commands.command(epilog="Example: fedtailor prune runs, then: fedtailor prune runs --drafts --checkpoints --yes")
def prune(
    runs_dir: Annotated[Path, typer.Argument(metavar="RUNS_DIR", help="A run, or a folder with runs.")] = Path("runs"),
    drafts: Annotated[bool, typer.Option("--drafts", help="Delete folders that a killed process left.")] = False,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Delete states of earlier rounds (checkpoints.every).")
    ] = False,
    models: Annotated[bool, typer.Option("--models", help="Delete the stored models of clients.")] = False,
    states: Annotated[bool, typer.Option("--states", help="Delete the last states of finished runs.")] = False,
    run: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Delete this whole run; may be repeated.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    as_json: Json = False,
) -> None:
    """List what can be deleted below a folder, with its size, or delete what the options name.

    Nothing of a run that is running is touched, and results stay readable unless the whole run is deleted.
    """
    from fedtailor.runs import pruning
    from fedtailor.views import console, prunable

    items = pruning.prunable(runs_dir)
    given = {"drafts": drafts, "checkpoints": checkpoints, "models": models, "states": states}
    kinds = [kind for kind, wanted in given.items() if wanted]
    listing = not kinds and not run
    chosen = items if listing else pruning.choose(items, kinds, run or [], runs_dir)
    if chosen and not (listing or yes or sys.stdin.isatty()):
        raise UserError("nothing was deleted: confirm it with --yes")
    if not as_json:
        console.show(*prunable.prunable_page(chosen, runs_dir, listing))
    freed = 0
    if chosen and not listing:
        if not yes and not typer.confirm("Delete this?", err=True):
            raise UserError("nothing was deleted")
        freed = pruning.delete(chosen, lambda sentence: console.messages().print(f"deleting {sentence}"))
    if as_json:
        console.show_json({"items": [item.as_dict() for item in chosen], "deleted": freed > 0, "freed": freed})
    elif chosen and not listing:
        console.show(prunable.freed_text(freed))
