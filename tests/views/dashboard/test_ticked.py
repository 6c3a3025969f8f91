"""Runs that somebody ticked, side by side."""

from pathlib import Path

import fedtailor
from fedtailor.views.dashboard.ticked import ticked_document


def test_ticked_runs_give_what_their_comparison_gives(compared: Path) -> None:
    folders = [compared / f"{name}-s{seed}" for name in ("local", "_b_strong__b_") for seed in (0, 1, 2)]
    found = ticked_document(folders)
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
    found = ticked_document([compared / "local-s0", named_run])
    assert found["table"]["rows"][1][3:6] == ["–", "–", "–"]
