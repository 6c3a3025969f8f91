"""Results as values with names, and the JSON documents that they make."""

import json
from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.learning import TrainingSettings
from fedtailor.methods import find
from fedtailor.runs.results import equal_rows

SETTINGS: dict[str, Any] = {
    "name": "small",
    "rounds": 2,
    "data": {"clients": 3, "samples": 90},
    "training": {"epochs": 1},
    "engine": {"kind": "inline"},
}
COST = ("bytes_down", "bytes_up", "seconds", "failed_tasks")
DOCUMENT = [
    "name",
    "folder",
    "method",
    "seed",
    "status",
    "rounds",
    "rounds_done",
    "clients",
    "metrics",
    *COST,
    "warnings",
]
VALUES = ("accuracy", "pooled", "deviation", "worst", "worst_tenth", "loss", "pooled_loss")
MEASURED = ["round", *VALUES, "clients", "samples", "untrained"]
SPREADS = ("received", "held", "global", "final", "worst", "worst_tenth", "deviation")
ROW = [
    "method", "seeds", *(key for name in SPREADS for key in (name, f"{name}_std")), "megabytes", "seconds",
    "difference", "difference_low", "difference_high", "difference_unit", "decided",
    "clients_won", "clients_tied", "clients_lost",
]  # fmt: skip


def test_the_summary_of_a_run_has_names_and_makes_one_json_document(tmp_path: Path) -> None:
    with fedtailor.run(SETTINGS, folder=tmp_path / "run") as run:
        summary = run.summary()
        scores = [score["accuracy"] for score in run.scores("final")]
    assert summary.final.accuracy == pytest.approx(sum(scores) / 3)
    assert summary.final == summary.metrics["final"]
    assert (summary.held.round, summary.received.clients) == (2, 3)
    assert summary.clock is None
    document = json.loads(json.dumps(summary.as_dict()))
    assert list(document) == DOCUMENT
    assert list(document["metrics"]["final"]) == MEASURED


def test_a_model_that_was_not_measured_is_told_in_one_sentence(tmp_path: Path) -> None:
    settings = {**SETTINGS, "evaluation": {"final": False, "models": ["held"]}}
    with (
        fedtailor.run(settings, folder=tmp_path / "run") as run,
        pytest.raises(fedtailor.UserError, match=r"no measures of 'final' models \(it has: held\)"),
    ):
        _ = run.summary().final


@pytest.mark.parametrize("devices", [None, {"profiles": "uniform"}])
def test_the_table_of_a_comparison_has_names_and_flat_rows(devices: dict[str, Any] | None, tmp_path: Path) -> None:
    settings = SETTINGS if devices is None else {**SETTINGS, "devices": devices}
    comparison = fedtailor.compare(settings, methods=["local", "fedavg"], seeds=[0, 1], folder=tmp_path / "cmp")
    summary = comparison.summary()
    row = summary.row("fedavg")
    finals = []
    for seed in (0, 1):
        with fedtailor.Run(tmp_path / "cmp" / f"fedavg-s{seed}") as run:
            finals.append(run.summary().final.accuracy)
    assert row.headline["final"].mean == pytest.approx(sum(filter(None, finals)) / 2)
    assert row.seeds == 2
    clock = [] if devices is None else ["virtual_seconds", "latency", "idle", "late", "dropped"]
    document = json.loads(json.dumps(summary.as_dict()))
    assert list(document) == [
        "name", "folder", "model", "measure", "percent", "average", "seeds", "table", "baseline", "notes", "comparisons"
    ]  # fmt: skip
    assert [list(one) for one in document["table"]] == [[*ROW, *clock]] * 2
    with pytest.raises(fedtailor.UserError, match=r"does not compare 'fedper': (local, fedavg|fedavg, local)"):
        summary.row("fedper")


def test_rows_with_the_same_scores_are_noted_with_the_reason_that_a_method_gives() -> None:
    methods = {"plain": find("fedavg")(), "tuned": find("fedavg-ft")(ft_epochs=3), "alone": find("local")()}
    scores = {"plain": ((0, (1, 2)),), "tuned": ((0, (1, 2)),), "alone": ((0, (1, 3)),)}
    (note,) = equal_rows(scores, methods, TrainingSettings(epochs=3))
    assert note.rows == ("plain", "tuned")
    assert note.sentence.startswith(
        "these rows are equal: every client has the same score in every seed; fine-tuning for"
    )
    (note,) = equal_rows(scores, methods, TrainingSettings(epochs=2))  # equal by chance: no method gives a reason
    assert note.sentence.endswith("in every seed")
