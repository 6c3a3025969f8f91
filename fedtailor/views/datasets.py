"""The known data sets, and the samples of every client."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedtailor.views.tables import Grid

if TYPE_CHECKING:
    from fedtailor.data.sources import Source

MANY = 100  # clients that a table shows


def source_lines(sources: Mapping[str, "Source"], directory: Path) -> list[dict[str, Any]]:
    """The known data sets, and whether their files are in a directory."""
    return [
        {
            "name": source.name,
            "title": source.title,
            "licence": source.licence,
            "homepage": source.homepage,
            "note": source.note,
            "found": _found(source, sources, directory),
        }
        for source in sources.values()
    ]


def sources_page(lines: Sequence[Mapping[str, Any]], directory: Path) -> RenderableType:
    rows = [(s["name"], s["title"], s["licence"], s["found"], s["note"]) for s in lines]
    header = ("source", "title", "licence", "found", "note")
    grid = Grid(header, tuple(rows), words=frozenset(range(5)))
    return Group(Text(f"data directory: {directory}"), grid.rich())


def federation_page(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The samples of the clients: a line per client, up to 100 clients."""
    lines = [
        (
            str(row.get("name", row["client"])),
            *(str(row[part]) for part in ("train", "val", "test", "classes")),
            ", ".join(f"{name} ({count})" for name, count in row["top"].items()),
        )
        for row in rows[:MANY]
    ]
    words = frozenset({0, 5} if any("name" in row for row in rows) else {5})
    grid = Grid(("client", "train", "val", "test", "classes", "largest classes"), tuple(lines), words=words)
    title = f"{summary['clients']} clients, {summary['samples']:,} samples, {summary['classes']} classes"
    more = [Text(f"... and {len(rows) - MANY} more clients (--json has all)")] if len(rows) > MANY else []
    if (prepared := summary.get("preprocessing")) is not None:
        more.append(Text(_preprocessing_line(prepared)))
    warning = [Text(duplicate_warning(summary), style="yellow")] if summary.get("duplicates") else []
    return Group(Text(f"{title}, label skew {summary['skew']:.2f}", style="bold"), grid.rich(), *more, *warning)


def _preprocessing_line(prepared: Mapping[str, Any]) -> str:
    """What is done to samples before a network sees them."""
    done = ["standardised"] if prepared["standardise"] else []
    done += [f"missing values replaced ({prepared['impute']})"] if prepared["impute"] != "none" else []
    done += ["indicators of missing values"] if prepared["indicator"] else []
    done.append(f"categories as {prepared['categories']}")
    whose = "all clients" if prepared["statistics"] == "federation" else "each client"
    inputs = f", {len(prepared['inputs'])} inputs" if prepared["inputs"] else ""
    return f"pre-processing: {', '.join(done)}, by the training samples of {whose}{inputs}"


def duplicate_warning(summary: Mapping[str, Any]) -> str:
    """What to know about test samples that are also training samples."""
    return (
        f"warning: {summary['duplicates']:,} of {summary['test']:,} test samples have the same input as a training "
        f"sample ({summary['own_duplicates']:,} of them of the same client), so a model may know them by heart"
    )


def _found(source: "Source", sources: Mapping[str, "Source"], directory: Path) -> str:
    from fedtailor.data.files import SourceFiles

    if not (source.canonical or source.compact or source.parts):
        return "bundled"
    if any(_found(sources[part], sources, directory) == "no" for part in source.parts):
        return "no"
    on_disk = SourceFiles(directory, source.name, source.folders, source.compact)
    for files in (source.canonical, source.compact):
        if files and all(on_disk.find(file.name) for file in files):
            return "yes"
    return "no" if source.canonical or source.compact else "yes"
