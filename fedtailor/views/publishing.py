"""Results as documentation: a comparison, or the methods' cards, as a page of Markdown that nobody types."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtailor.errors import UserError
from fedtailor.runs import Comparison, Run, toml
from fedtailor.views.cards import card_lines
from fedtailor.views.curves import draw_comparison
from fedtailor.views.numbers import duration
from fedtailor.views.report import WORDS
from fedtailor.views.tables import Grid, comparison_grid


def publish(comparison: Comparison, folder: Path, name: str | None = None) -> list[Path]:
    """Write a comparison's table, picture, settings, versions and time into a folder."""
    runs = [path for paths in comparison.runs().values() for path in paths]
    if not runs or not any(row["seeds"] for row in comparison.table()):
        raise UserError(f"{comparison.folder} has no finished run to publish: resume it first")
    name = name or comparison.experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    picture, page = folder / f"{name}.png", folder / f"{name}.md"
    shutil.copyfile(draw_comparison(comparison, comparison.folder / "curves.png"), picture)
    pictures = [picture]
    if comparison.experiment.devices is not None:
        pictures.append(draw_comparison(comparison, folder / f"{name}-time.png", over="time"))
    page.write_text(_page(comparison, runs, name, [file.name for file in pictures]), encoding="utf-8")
    return [page, *pictures]


def took(databases: Iterable[Path], seeds: Iterable[int]) -> str:
    """The last line of a page that is gathered from many runs, by their ``run.db``: seeds, time and versions."""
    seconds: list[float] = []
    versions: Mapping[str, Any] = {}
    for place in sorted(databases):
        with Run(place.parent) as run:
            seconds.append(sum(row["seconds"] for row in run.rounds()))
            versions = versions or run.environment
    made = ", ".join(f"{name} {version}" for name, version in versions.items())
    tested = ", ".join(map(str, seeds))
    return f"Seeds {tested}; the rounds of {len(seconds)} runs took {duration(sum(seconds))} in all. {made}."


def methods_document(facts: Sequence[Mapping[str, Any]]) -> str:
    """The fidelity cards of all methods."""
    parts = ["# Methods", "", "Written by `fedtailor methods --markdown`: each method's fidelity card.", ""]
    for fact in facts:
        parts += [f"## {fact['name']}", "", "```text", fact["about"], "```", ""]
        parts += [f"- {line}" for line in card_lines(fact)]
        parts += [f"- note: {sentence}" for sentence in fact["inert"]]
        rows = [(n, str(s["default"]), s["allowed"], s["about"]) for n, s in fact["settings"].items()]
        if rows:
            grid = Grid(("setting", "default", "allowed", "about"), tuple(rows), words=frozenset({0, 2, 3}))
            parts += ["", grid.markdown().rstrip("\n")]
        parts.append("")
    return "\n".join(parts)


def _page(comparison: Comparison, runs: Sequence[Path], name: str, pictures: Sequence[str]) -> str:
    summary = comparison.summary()
    with Run(runs[0]) as first:
        versions = ", ".join(f"{key} {value}" for key, value in first.environment.items())
    seconds = sum(row["seconds"] * row["seeds"] for row in summary["table"] if row["seconds"])
    settings = {k: v for k, v in comparison.experiment.as_dict().items() if k not in ("engine", "method", "seed")}
    settings["data"] = {k: v for k, v in settings["data"].items() if k != "dir"}
    return "\n".join(
        [
            f"# {name}",
            "",
            f"Accuracy averaged {summary['average']} (%), headline: {summary['metric']}; mean and deviation over seeds "
            f"{', '.join(map(str, summary['seeds']))} (the last column says how many of them are finished).",
            "",
            comparison_grid(summary).markdown().rstrip("\n"),
            "",
            WORDS,
            "",
            *(f"![accuracy over {'time' if k else 'rounds'}]({picture})\n" for k, picture in enumerate(pictures)),
            f"The rounds of {sum(row['seeds'] for row in summary['table'])} runs took {duration(seconds)} in all, "
            f"without the final passes. {versions}.",
            "",
            "Save the settings below as a file, then `fedtailor compare FILE` makes the runs and "
            "`fedtailor publish` this page.",
            "",
            f"```toml\n{toml.dumps(settings)}```",
            "",
        ]
    )
