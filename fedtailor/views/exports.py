"""The results of ``fedtailor export`` and ``fedtailor predict``, and their progress."""

import csv
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fedtailor.errors import UserError
from fedtailor.runs import Exported, Predictions
from fedtailor.runs.drafts import file_at_once
from fedtailor.runs.exporting.card import calibration_sentence
from fedtailor.runs.exporting.formats import FILES
from fedtailor.runs.exporting.loading import CARD
from fedtailor.views import console
from fedtailor.views.files import writing

EVERY = 2.0  # seconds between two plain lines

Report = Callable[[int, int], None]  # how many are done, and of how many


def show_export(done: Path | Exported, as_json: bool) -> None:
    """Print what was written, and how to use it."""
    if isinstance(done, Exported):
        _show_several(done, as_json)
        return
    card = json.loads((done / CARD).read_text(encoding="utf-8"))
    lines = load_lines(done, card["files"])
    if as_json:
        facts = {key: card.get(key) for key in ("calibration", "checks", "files")}
        console.show_json({"folder": str(done), "load": lines, **facts})
        return
    for name, found in card["checks"].items():
        console.show(
            f"{name}: the largest difference from the model is {found['largest_difference']:.2g} on {found['of']}"
        )
    console.show(*([calibration_sentence(card)] if card["classes"] else []))
    console.show(f"written to {done}; load it in Python with:", *(f"    {line}" for line in lines))


def load_lines(folder: Path, files: Iterable[str]) -> list[str]:
    """The two lines of Python that load an export with these files."""
    if FILES["safetensors"] in files:
        return ["import fedtailor", f"model = fedtailor.load_model({str(folder)!r})"]
    if FILES["onnx"] in files:
        return ["import fedtailor", f"model = fedtailor.load_onnx({str(folder)!r})"]
    return ["import torch", f"program = torch.export.load({str(folder / FILES['torch'])!r}).module()"]


def check_new(out: Path | None) -> None:
    """Raise a `UserError` if the file to write exists."""
    if out is not None and os.path.lexists(out):
        raise UserError(f"{out} exists: name another file with --out")


def show_predictions(done: Predictions, out: Path | None, as_json: bool) -> None:
    """Print predictions as CSV or JSON, or write them to a file at once; notes go to stderr."""
    text = _json(done) if as_json else _csv(done)
    for note in done.notes:
        console.messages().print(f"note: {note}")
    if done.classes and not done.calibrated:
        console.messages().print("note: the probabilities are not calibrated")
    if out is None:
        print(text, end="")
        return
    check_new(out)
    with writing(out), file_at_once(out) as draft:
        draft.write_text(text, encoding="utf-8", newline="")
    console.messages().print(f"written to {out}: {len(done.samples)} predictions")


@contextmanager
def counting(what: str, quiet: bool = False) -> Iterator[Report]:
    """Yield a callback for progress: a bar in a terminal, otherwise a line now and then."""
    screen = console.messages()
    if quiet or not sys.stderr.isatty():
        told = time.monotonic()

        def tell(done: int, total: int) -> None:
            nonlocal told
            if not quiet and time.monotonic() - told > EVERY:
                told = time.monotonic()
                screen.print(f"{what}: {done} of {total}")

        yield tell
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(24), MofNCompleteColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def _show_several(done: Exported, as_json: bool) -> None:
    folders = {name: str(folder) for name, folder in done.models.items()}
    if as_json:
        console.show_json({**asdict(done), "folder": str(done.folder), "models": folders})
        return
    for name, reason in done.missing.items():
        console.messages().print(f"warning: {name} is not among them: {reason}", style="yellow")
    first = next(iter(folders.values()))
    console.show(f"written to {done.folder}: {len(folders)} models, such as {first}")


def _csv(done: Predictions) -> str:
    header, rows = done.table()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([header, *([_cell(value) for value in row] for row in rows)])
    return text.getvalue()


def _json(done: Predictions) -> str:
    facts: dict[str, Any] = {"classes": list(done.classes), "calibrated": done.calibrated, "notes": list(done.notes)}
    return json.dumps({**facts, "predictions": done.rows()}, indent=2, ensure_ascii=False) + "\n"


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
