"""Reads what trackers are told about a run or a comparison."""

import json
import os
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from fedtailor.runs.folders import PLAN
from fedtailor.runs.measures import Measures
from fedtailor.runs.results import ComparisonSummary, RunSummary
from fedtailor.runs.store import Store
from fedtailor.runs.tracking.base import Ending, Point, Subject, Value

IDENTITY = "tracking.json"
FILES = ("experiment.toml", PLAN, "environment.json", "report.html", "report.md", "curves.png", "curves-time.png")
TABLES = ("table.csv", "table.md")
MEASURED = ("accuracy", "pooled", "deviation", "worst", "worst_tenth", "loss", "pooled_loss")
PRIVATE = ("data.dir",)  # settings about this machine that trackers are not told


def run_subject(folder: Path, settings: Mapping[str, Any]) -> Subject:
    """The run in a folder; its parent is the comparison that the folder belongs to."""
    folder = folder.absolute()
    name = folder.name if (folder.parent / PLAN).is_file() else str(settings["name"])
    told = {key: value for key, value in settings.items() if key not in ("name", "compare", "track")}
    parent = comparison_subject(folder.parent) if (folder.parent / PLAN).is_file() else None
    return Subject(folder, identity(folder), name, "run", settings["method"]["name"], dict(flat(told)), parent)


def comparison_subject(folder: Path) -> Subject:
    """The comparison in a folder."""
    from fedtailor.runs.settings import read_toml

    folder = folder.absolute()
    told = {key: value for key, value in read_toml(folder / PLAN).items() if key not in ("name", "track", "pretrain")}
    return Subject(folder, identity(folder), folder.name, "comparison", "", dict(flat(told)))


def identity(folder: Path) -> str:
    """The name of a folder's copies in all trackers. It is stored before the first copy is made."""
    return str(_known(folder)["id"])


def is_complete(folder: Path, tracker: str) -> bool:
    """Whether a tracker has all of a finished run."""
    return tracker in _known(folder)["complete"]


def set_complete(folder: Path, tracker: str, complete: bool) -> None:
    """Remember that a tracker has all of a finished run, or that it may lack something again."""
    known = _known(folder)
    others = [name for name in known["complete"] if name != tracker]
    _write(folder, {**known, "complete": [*others, tracker] if complete else others})


def _known(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / IDENTITY).read_text(encoding="utf-8"))
        return {"id": str(found["id"]), "complete": list(found["complete"])}
    except (OSError, ValueError, KeyError, TypeError):
        made = {"id": uuid.uuid4().hex, "complete": []}
        _write(folder, made)
        return made


def _write(folder: Path, known: Mapping[str, Any]) -> None:
    fresh = folder / f".{IDENTITY}.part"
    fresh.write_text(json.dumps(known) + "\n", encoding="utf-8")
    os.replace(fresh, folder / IDENTITY)


def flat(values: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Value]]:
    """Settings by dotted name; lists are JSON texts.

    >>> dict(flat({"rounds": 5, "method": {"name": "apfl", "alpha": 0.5}, "sizes": [1, 2]}))
    {'rounds': 5, 'method.name': 'apfl', 'method.alpha': 0.5, 'sizes': '[1, 2]'}
    """
    for key, value in values.items():
        name = f"{place}{key}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        elif value is not None and name not in PRIVATE:
            yield name, value if isinstance(value, str | int | float | bool) else json.dumps(value)


def points(store: Store, after: int) -> list[Point]:
    """The complete rounds after a step, in order. A value that is undefined is left out."""
    per_episode = int(store.meta("experiment")["rounds"])
    later = "WHERE episode * ? + round > ?"
    bounds = [per_episode, after]

    def read(table: str, more: str = "") -> Iterator[tuple[int, dict[str, Any]]]:
        for row in store.read(table, f"{later}{more}", bounds):
            yield row["episode"] * per_episode + row["round"], row

    found: dict[int, dict[str, float | None]] = {}
    for step, row in read("rounds", " ORDER BY episode, round"):
        sent = {name: row[name] for name in ("bytes_down", "bytes_up", "seconds")}
        found[step] = {"clients/cohort": len(json.loads(row["cohort"])), "clients/failed": 0}
        found[step] |= {f"cost/{name}": value for name, value in sent.items()}
    for step, row in read("metrics", " AND model != 'final'"):
        found[step] |= {f"{row['model']}/{name}": row[name] for name in MEASURED} if step in found else {}
    for step, row in read("measures", " AND model != 'final'"):
        found.get(step, {})[f"{row['model']}/{row['measure']}"] = row["mean"]
    for step, row in read("clock"):
        found.get(step, {}).update({f"clock/{name}": row[name] for name in ("seconds", "latency", "idle")})
    for step, _ in read("events", " AND kind = 'failed'"):
        if step in found:
            found[step]["clients/failed"] = (found[step]["clients/failed"] or 0) + 1
    rewards: dict[tuple[int, str], list[float]] = defaultdict(list)
    for step, row in read("decisions", " AND reward IS NOT NULL"):
        rewards[step, row["name"]].append(row["reward"])
    for (step, name), values in rewards.items():
        found.get(step, {})[f"reward/{name}"] = fmean(values)
    return [Point(step, _defined(values)) for step, values in sorted(found.items())]


def run_ending(folder: Path, summary: RunSummary) -> Ending:
    """The end of a run: the final pass, the summary, and the files in its folder."""
    final = summary.metrics.get("final")
    document = {key: value for key, value in summary.as_dict().items() if key != "folder"}
    return Ending(
        finished=summary.status == "finished",
        step=summary.rounds_done,
        values=_defined(_measured(final)) if final is not None else {},
        texts={"summary.json": json.dumps(document, indent=2) + "\n"},
        files=_files(folder, FILES),
    )


def comparison_ending(folder: Path, summary: ComparisonSummary, finished: bool) -> Ending:
    """A comparison's table: for every method the headline, its deviation over seeds, and its worst tenth of clients."""
    values: dict[str, float | None] = {}
    for row in summary.table:
        headline = row.headline[summary.model]
        values |= {f"{row.method}/{summary.measure}": headline.mean, f"{row.method}/std": headline.std}
        values |= {f"{row.method}/worst_tenth": row.worst_tenth.mean, f"{row.method}/megabytes": row.megabytes}
    document = {key: value for key, value in summary.as_dict().items() if key != "folder"}
    texts = {"summary.json": json.dumps(document, indent=2) + "\n"}
    return Ending(finished, 0, _defined(values), texts, _files(folder, (*FILES, *TABLES)))


def _measured(found: Measures) -> dict[str, float | None]:
    values: dict[str, float | None] = {f"final/{name}": getattr(found, name) for name in MEASURED}
    return values | {f"final/{name}": one.mean for name, one in found.more.items()}


def _files(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [folder / name for name in names if (folder / name).is_file()]


def _defined(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None and value == value}
