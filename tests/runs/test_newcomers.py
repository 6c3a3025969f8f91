"""Clients that are held out of a simulation: they adapt the model at the end, and influence nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.data import DataSettings, Federation, build
from tests.support.fingerprint import assert_same, fingerprint
from tests.support.problem import targets

HELD_OUT: dict[str, Any] = {
    "rounds": 2,
    "validation": True,
    "data": {"clients": 6, "samples": 300},
    "training": {"epochs": 1, "lr": 0.1},
    "participation": {"ratio": 0.5},
    "evaluation": {"new_clients": 0.3},
    "engine": {"kind": "inline"},
}


def test_hand_new_clients(tmp_path: Path) -> None:
    """Two clients with target 4 take w from 1 half of the way to 2.5; the one held out with target 4 goes to 3.25.

    Its loss is (3.25 - 4)^2 / 2. All three have the same target, so the draw does not matter.
    """
    settings = {
        "rounds": 1,
        "model": {"name": "tests.support.problem:Scalar"},
        "engine": {"kind": "inline"},
        "training": {"lr": 0.5, "epochs": 1, "batch_size": 1000, "loss": "squared-error"},
        "evaluation": {"new_clients": 0.33},
    }
    with fedtailor.run(settings, folder=tmp_path / "run", federation=targets(*[[4.0]] * 3)) as run:
        assert (run.client_count, run.new_clients) == (2, 1)
        assert run.last()["new"].loss == pytest.approx(0.75**2 / 2)
        assert {client for row in run.rounds() for client in row["cohort"]} == {0, 1}


def test_the_share_is_rounded_up_and_the_seed_draws() -> None:
    made = [build(DataSettings(clients=7), 0), build(DataSettings(clients=7), 0, new_clients=0.2)]
    assert (made[1].clients, made[1].new, list(made[1].newcomers)) == (5, 2, [5, 6])
    assert sorted(made[0].train.sizes.tolist()) == sorted(made[1].train.sizes.tolist())
    others = [made[0].holding_out(0.2, seed).train[5].tolist() for seed in range(4)]
    assert len({tuple(rows) for rows in others}) > 1


@pytest.mark.parametrize("method", ["fedavg", "apple"])
def test_held_out_clients_influence_nothing(method: str, tmp_path: Path) -> None:
    settings = {**HELD_OUT, "method": {"name": method}}
    whole = build(DataSettings(clients=6, samples=300), 0, needs_validation=True)
    held = whole.holding_out(0.3, 0)
    y = whole.samples.y.copy()
    rows = np.concatenate([shares[k] for shares in (held.train, held.val, held.test) for k in held.newcomers])
    y[rows] = (y[rows] + 1) % 10
    changed = Federation(replace(whole.samples, y=y), whole.train, whole.val, whole.test)
    for name, data in (("one", whole), ("other", changed)):
        fedtailor.run(settings, folder=tmp_path / name, federation=data).close()
    one, other = fingerprint(tmp_path / "one"), fingerprint(tmp_path / "other")
    for table in one:
        kept = [[row for row in rows if row.get("model") != "new"] for rows in (one[table], other[table])]
        assert kept[0] == kept[1], table
    new = [[row for row in found["scores"] if row["model"] == "new"] for found in (one, other)]
    assert len(new[0]) == 2
    assert new[0] != new[1]


def test_engines_agree_and_adapt_gives_the_same_score(tmp_path: Path) -> None:
    """The first client that is held out of a run gets the same model as from ``adapt`` with its own split."""
    settings = {**HELD_OUT, "method": {"name": "pfedrlla"}, "evaluation": {"new_clients": 0.1}}
    fedtailor.run(settings, folder=tmp_path / "one").close()
    engine = {"kind": "processes", "workers": 2}
    fedtailor.run({**settings, "engine": engine}, folder=tmp_path / "two").close()
    assert_same(tmp_path / "one", tmp_path / "two")
    with fedtailor.Run(tmp_path / "one") as run:
        data, (score,) = run.federation(), run.scores("new")
    arrays: dict[str, Any] = {"classes": np.array(data.samples.classes)}
    for part, ending in (("train", ""), ("val", "_val"), ("test", "_test")):
        rows = getattr(data, part)[score["client"]]
        arrays |= {f"x{ending}": data.samples.x[rows], f"y{ending}": data.samples.y[rows]}
    done = fedtailor.adapt(tmp_path / "one", arrays, tmp_path / "out")
    assert done.scores[-1]["accuracy"] == score["accuracy"]
    assert done.scores[-1]["loss"] == score["loss"] / score["samples"]
