"""The command about papers' results: reproduce."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedtailor.cli.interrupts import interruptible
from fedtailor.cli.options import DataDir, EngineKind, Json, Quiet, Workers
from fedtailor.cli.settings import shared_options
from fedtailor.errors import UserError, unknown

if TYPE_CHECKING:
    from fedtailor.runs.reproduce import Plan, Record, Todo

commands = typer.Typer()


@commands.command(epilog="Example: fedtailor reproduce recipes/fedah table-2 --dry-run")
def reproduce(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A folder with a reproduce.toml.")],
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="Tables of the recipe; default: all.")
    ] = None,
    size: Annotated[
        Literal["laptop", "paper"], typer.Option(help="Settings for two cores, or those of the paper.")
    ] = "laptop",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would run, and run nothing.")] = False,
    from_records: Annotated[
        bool, typer.Option("--from-records", help="Make the pages from the records alone; needs no data.")
    ] = False,
    claims: Annotated[
        bool,
        typer.Option("--claims", help="RECIPE is the folder of all recipes: write the page of their main claims."),
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the pages.")] = Path("docs/results"),
    runs: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs"),
    data_dir: DataDir = None,
    workers: Workers = None,
    engine: EngineKind = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make the tables of a recipe: run what is missing, and write pages, CSV, LaTeX and pictures.

    A finished run leaves a record in RECIPE/records and is not run again. Ctrl-C is safe; the same command resumes.

    `fedtailor reproduce recipes --claims` writes claims.md beside the folder of the pages, from the records alone.
    """
    if claims:
        if tables or dry_run or from_records or size != "laptop":
            raise typer.BadParameter("--claims covers all tables and sizes: add nothing.", param_hint="reproduce")
        _write_claims(recipe, out, as_json)
        return
    from fedtailor.runs.reproduce import make_plan, run_missing, todo
    from fedtailor.views import console
    from fedtailor.views.files import writing
    from fedtailor.views.reproduction import show_reproduction, todo_document, todo_grid, write_pages
    from fedtailor.views.reproduction_progress import overall

    if dry_run and from_records:
        raise typer.BadParameter("use --dry-run or --from-records, not both.", param_hint="reproduce")
    where = {key: value for key, value in shared_options(None, data_dir, workers, engine).items() if value is not None}
    plan = make_plan(recipe, size, runs, where)
    chosen = _chosen_tables(plan, recipe, tables)
    found = todo(plan, chosen, runs, from_records=from_records)
    if dry_run:
        console.show_json(todo_document(found)) if as_json else console.show(*todo_grid(found))
        return
    if from_records:
        records = _records_alone(plan, recipe, chosen, found)
    else:
        with interruptible(recipe, "the same command"), overall(quiet=quiet) as callbacks:
            records = run_missing(plan, found, runs, callbacks)
    with writing(out):
        written = write_pages(plan, chosen, records, out)
    show_reproduction(plan, chosen, records, written, as_json)


def _chosen_tables(plan: "Plan", recipe: Path, tables: list[str] | None) -> list[str]:
    """The names of the tables to make; all by default."""
    from fedtailor.runs.reproduce import check

    known = list(plan.declaration.tables)
    for name in tables or ():
        if name not in known:
            raise UserError(f"{recipe}: {unknown('table', name, known)}")
    chosen = tables or known
    check(plan, chosen)
    return chosen


def _records_alone(plan: "Plan", recipe: Path, chosen: list[str], found: "Todo") -> "dict[str, Record]":
    """The records of finished runs; a `UserError` if these tables have none."""
    from fedtailor.runs.reproduce import steps_of

    if not any(step.key in found.records for name in chosen for step in steps_of(plan, name)):
        raise UserError(
            f"{recipe} has no records of {', '.join(chosen)} with this results version and these settings: "
            "its pages stay as they are"
        )
    return dict(found.records)


def _write_claims(recipes: Path, pages: Path, as_json: bool) -> None:
    from fedtailor.runs.reproduce import read_claims
    from fedtailor.views import console
    from fedtailor.views.files import writing
    from fedtailor.views.reproduction import write_whole
    from fedtailor.views.reproduction_claims import FILE, claims_text

    text = claims_text(read_claims(recipes), pages)
    place = pages.parent / FILE
    with writing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text)
    console.show_json({"written": [str(place)]}) if as_json else console.show(f"page: {place}")
