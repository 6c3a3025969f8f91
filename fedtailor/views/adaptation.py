"""The result of ``fedtailor adapt``."""

from dataclasses import asdict

from rich.table import Table

from fedtailor.runs import Adapted
from fedtailor.views import console


def show_adapted(done: Adapted, as_json: bool) -> None:
    """Print what a new client's model scores on its test samples, and how to load it."""
    lines = ["import fedtailor", f"model = fedtailor.load_model({str(done.folder)!r})"]
    if as_json:
        console.show_json({**asdict(done), "folder": str(done.folder), "load": lines})
        return
    table = Table(title=f"{done.name}: {done.samples['train']} samples to train, {done.samples['test']} to test")
    classes = "accuracy" in done.scores[0]
    for heading in ("model", *(["accuracy"] if classes else []), "loss"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for score in done.scores:
        passes = score["passes"]
        model = "received" if not passes else f"after {passes} pass{'es' if passes > 1 else ''}"
        table.add_row(model, *([f"{score['accuracy']:.2%}"] if classes else []), f"{score['loss']:.4f}")
    console.show(table, f"written to {done.folder}; load it in Python with:", *(f"    {line}" for line in lines))
