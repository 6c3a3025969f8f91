"""Runs that somebody ticked, side by side."""

import shutil
from pathlib import Path

import fedtailor
from fedtailor.views.dashboard.selected import selected_document


def test_selected_runs_give_what_their_comparison_gives(compared: Path) -> None:
    folders = [compared / f"{name}-s{seed}" for name in ("local", "_b_strong__b_") for seed in (0, 1, 2)]
    found = selected_document(folders)
    row = fedtailor.Comparison(compared).summary().row("<b>strong</b>")
    assert row.difference is not None
    assert row.wins is not None
    shown = found["table"]["rows"][1]
    assert shown[0] == "fedprox (mu=0.5)"
    assert shown[3].startswith(f"{row.difference.mean:+.1f} [")
    assert shown[4].split()[0] == row.difference.outcome.split()[0]
    assert shown[5] == f"{row.wins.won} / {row.wins.tied} / {row.wins.lost}"
    assert found["curves"][0]["x"]["round"] == [1, 2]


def test_seeds_with_other_data_decide_nothing(compared: Path, named_run: Path) -> None:
    found = selected_document([compared / "local-s0", named_run])
    assert found["table"]["rows"][1][3:6] == ["–", "–", "–"]
    first, second = (set(row["seeds"]) for row in found["clients"])
    assert first & second == set()  # nor are their clients drawn as pairs


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(compared: Path, tmp_path: Path) -> None:
    with fedtailor.Run(compared / "local-s1") as run:
        settings = run.settings
    changed = {**settings, "name": "slow", "training": {**settings["training"], "lr": 0.001}}
    fedtailor.run(changed, folder=tmp_path / "slow").close()
    folders = [compared / "local-s0", tmp_path / "slow", compared / "local-s1"]
    rows = selected_document(folders)["table"]["rows"]
    assert [(row[0], row[-1]) for row in rows] == [("local: local-s0", "0, 1"), ("local: slow", "1")]


def test_a_seed_counts_once(compared: Path, tmp_path: Path) -> None:
    shutil.copytree(compared / "local-s0", tmp_path / "copy")
    found = selected_document([compared / "local-s0", tmp_path / "copy", compared / "local-s1"])
    assert found["table"]["rows"][0][-1] == "0, 1"
    assert found["notes"] == ["copy is left out: a ticked run has the same settings and seed."]
