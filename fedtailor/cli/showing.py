"""Commands that read and print: list, show, report, draw, methods, models, version."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedtailor.cli.comparing import is_comparison
from fedtailor.cli.options import Json, RunFolder
from fedtailor.errors import UserError
from fedtailor.version import __version__

commands = typer.Typer()


@commands.command("list", epilog="Example: fedtailor list runs")
def list_command(
    runs_dir: Annotated[Path, typer.Argument(metavar="RUNS_DIR", help="Folder with runs.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs below a folder."""
    from fedtailor.runs import all_runs
    from fedtailor.views import console, pages

    lines = pages.run_lines(runs_dir, all_runs(runs_dir))
    if as_json:
        console.show_json(lines)
    else:
        console.show(pages.list_page(lines) if lines else f"no runs in {runs_dir}; start one with: fedtailor run")


@commands.command(epilog="Example: fedtailor show runs/experiment --clients")
def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run or of a comparison.")],
    clients: Annotated[bool, typer.Option("--clients", help="Also show each client's accuracy.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Show where the time of a run's rounds went.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="With --profile: also write the picture of it, as in --picture profile.png.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a run or a comparison has recorded so far."""
    from fedtailor.runs import Run
    from fedtailor.views import console, pages, timing
    from fedtailor.views.files import writing

    if picture is not None and not profile:
        raise UserError("--picture belongs to --profile; 'fedtailor draw' draws the other pictures of a run")
    if picture is not None and picture.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"--picture {picture}: its name ends with .png, .svg or .pdf")
    if profile:
        with Run(run) as found:
            spent = timing.profile_document(found)
            if picture is not None:
                with writing(picture):
                    timing.profile_figure(found).savefig(picture)
        console.show_json(spent) if as_json else console.show(timing.profile_grid(spent).page())
        return
    if is_comparison(run):
        from fedtailor.runs import Comparison

        summary = Comparison(run).summary()
        if as_json:
            console.show_json(summary.as_dict())
        else:
            console.show(pages.comparison_page(summary, console.results().width), pages.look(run))
        return
    with Run(run) as found:
        if as_json:
            console.show_json(pages.run_document(found, clients))
        else:
            console.show(pages.run_page(found, clients), pages.look(run))


@commands.command(epilog="Example: fedtailor report runs/experiment --out experiment.html")
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run or of a comparison.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default: report.html in the run's folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a page with curves, tables, clients, settings and versions: one HTML file that opens offline."""
    from fedtailor.runs import Comparison, Run
    from fedtailor.views import console
    from fedtailor.views.files import writing
    from fedtailor.views.html.report import write_page

    with writing(out or run):
        if is_comparison(run):
            written = write_page(Comparison(run), out)
        else:
            with Run(run) as found:
                written = write_page(found, out)
    console.show_json({"written": str(written)}) if as_json else console.show(str(written))


@commands.command(epilog="Example: fedtailor draw runs/experiment --out pictures")
def draw(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pictures; default: drawings in the run's folder.")
    ] = None,
    ending: Annotated[Literal["png", "svg", "pdf"], typer.Option("--format", help="Format of the pictures.")] = "png",
    as_json: Json = False,
) -> None:
    """Draw the curves of a run and the pictures of its method: groups, weights, decisions."""
    from fedtailor.runs import Run
    from fedtailor.views import console, drawings
    from fedtailor.views.files import writing

    folder = out or run / "drawings"
    with Run(run) as found, writing(folder):
        written = [str(path) for path in drawings.draw(found, folder, ending)]
    console.show_json({"written": written}) if as_json else console.show(*written)


@commands.command(epilog="Example: fedtailor methods fedprox")
def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this method in full.")] = None,
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print all cards as a page of Markdown.")] = False,
) -> None:
    """List the methods, or show one with its settings."""
    from fedtailor.methods import catalogue, find
    from fedtailor.views import cards, console

    if name is not None:
        facts = cards.method_facts(find(name))
        console.show_json(facts) if as_json else console.show(cards.method_card(facts))
        return
    every = [cards.method_facts(kind) for kind in catalogue().values()]
    if markdown:
        from fedtailor.views.cards import methods_document

        sys.stdout.write(methods_document(every))
        return
    console.show_json(every) if as_json else console.show(cards.methods_page(every))


@commands.command(epilog="Example: fedtailor models --json")
def models(as_json: Json = False) -> None:
    """List the networks with their numbers of parameters and multiply-adds."""
    from fedtailor.models import cards as model_cards
    from fedtailor.views import cards, console

    every = model_cards()
    console.show_json(cards.models_document(every)) if as_json else console.show(cards.models_page(every))


@commands.command(epilog="Example: fedtailor version")
def version() -> None:
    """Show the version."""
    typer.echo(f"fedtailor {__version__}")
