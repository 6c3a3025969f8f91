"""The results of commands that train: write the pictures and tables, then print the result and the next command."""

import shlex
from pathlib import Path

from fedtailor.parties.policy import read_policy
from fedtailor.runs import Comparison, Run
from fedtailor.views import console, pages
from fedtailor.views.activity import activities, as_document
from fedtailor.views.comparison import write_comparison
from fedtailor.views.curves import draw_comparison
from fedtailor.views.files import writing
from fedtailor.views.html.report import write_page
from fedtailor.views.report import write_report
from fedtailor.views.rewards import rewards_figure


def show_run(run: Run, as_json: bool) -> None:
    """Write the report of a run, and print its result."""
    with run:
        with writing(run.folder):
            written = write_report(run)
            page = write_page(run)
        if as_json:
            console.show_json(pages.run_document(run))
            return
        console.show(pages.run_page(run), f"curves and report: {', '.join(map(str, written))}")
        export = "--global" if run.nodes else f"--client {shlex.quote(run.names[0] if run.names else '0')}"
        console.show(f"next: fedtailor show {run.folder} --clients", f"      fedtailor export {run.folder} {export}")
        console.show(f"look:  {page} (open it in a browser)")


def show_policy(run: Run, as_json: bool, scenario: Path | None = None) -> None:
    """Draw the rewards of a pre-training in a scenario's file, and print its result."""
    picture = run.folder / "rewards.png"
    with run:
        with writing(run.folder):
            rewards_figure(run).savefig(picture)
            page = write_page(run)
        if as_json:
            console.show_json({**pages.run_document(run), "policy": str(run.folder), "picture": str(picture)})
            return
        console.show(pages.run_page(run), f"policy: {run.folder}", f"rewards: {picture}")
        name = read_policy(run.folder).method  # a rehearsal has a name of its own
        words = ["fedtailor run", *([str(scenario)] if scenario else []), f"--method {name}"]
        console.show(f"next: {' '.join(words)} --set method.policy={run.folder}")
        console.show(f"look:  {page} (open it in a browser)")


def show_comparison(comparison: Comparison, as_json: bool) -> None:
    """Write the tables and curves of a comparison, and print its table."""
    with writing(comparison.folder):
        tables = write_comparison(comparison)
        curves = [draw_comparison(comparison, comparison.folder / "curves.png")]
        if comparison.experiment.devices is not None:
            curves.append(draw_comparison(comparison, comparison.folder / "curves-time.png", over="time"))
        page = write_page(comparison)
    summary = comparison.summary()
    if as_json:
        console.show_json(
            {
                **summary.as_dict(),
                "activity": as_document(comparison),
                "written": [str(path) for path in (*tables, *curves, page)],
            }
        )
        return
    console.show(
        pages.comparison_page(summary, console.results().width),
        f"tables: {', '.join(map(str, tables))}",
        f"plot:   {', '.join(map(str, curves))}",
        *activities(comparison),
    )
    console.show(f"next:   fedtailor list {comparison.folder}", f"look:   {page} (open it in a browser)")
