"""How long a run will take, from the time of earlier runs."""

from pathlib import Path
from typing import Any

import pytest

from fedtailor.runs import Run, experiment
from fedtailor.views.dashboard.estimate import UNKNOWN, estimate
from fedtailor.views.numbers import duration


def test_the_time_of_a_like_run_is_scaled_by_rounds_epochs_and_cohort(compared: Path) -> None:
    with Run(compared / "local-s0") as run:
        settings, measured = run.settings, sum(row["seconds"] for row in run.rounds()) / len(run.rounds())

    def sentence(changes: dict[str, Any], clients: int = 4) -> str:
        return estimate(experiment(settings, changes), clients, [("two/local-s0", compared / "local-s0")])

    assert sentence({"rounds": 600}).startswith(f"About {duration(600 * measured)} for 600 rounds")
    assert "measured in two/local-s0" in sentence({"seed": 7})
    assert sentence({"rounds": 600, "training.epochs": 10}).startswith(f"About {duration(1200 * measured)}")
    assert sentence({"rounds": 600, "participation.clients": 2}).startswith(f"About {duration(300 * measured)}")
    # Twice as many clients have half the samples each, so a round of all of them is as long.
    assert sentence({"rounds": 600}, clients=8).startswith(f"About {duration(600 * measured)}")


@pytest.mark.parametrize("changes", [{"method.name": "fedavg"}, {"model.name": "mlp"}, {"training.batch_size": 50}])
def test_nothing_is_claimed_without_a_like_run(compared: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / "run.db").write_bytes(b"damaged")
    with Run(compared / "local-s0") as run:
        settings = experiment(run.settings, changes)
    assert estimate(settings, 4, [("a", compared / "local-s0"), ("b", tmp_path)]) == UNKNOWN
