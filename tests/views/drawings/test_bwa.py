"""Pictures of BWA: what every episode brought, and what was decided in every round."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedtailor.methods.adjustment import ADJUSTMENT
from fedtailor.runs import pretrain, run
from fedtailor.views.drawings import bwa as pictures
from fedtailor.views.drawings import draw, drawings

AGENTS = {"adjustment": {"hidden": [8, 8]}}
SMALL: dict[str, Any] = {
    "rounds": 2,
    "data": {"clients": 4, "samples": 200, "partition": "iid"},
    "model": {"name": "linear"},
    "training": {"epochs": 1},
    "method": {"name": "bwa", "agents": AGENTS},
    "engine": {"kind": "inline"},
    "pretrain": {"episodes": 3},
}


def test_every_episode_is_summed_up(tmp_path: Path) -> None:
    with pretrain(SMALL, folder=tmp_path / "policy") as done:
        found, rows = pictures.episodes(done), done.decisions()
        assert list(drawings(done)) == ["curves", "rewards", "learning"]
        (panels,) = [pictures.learning(done).axes]
        assert [path.suffix for path in draw(done, tmp_path / "pictures")] == [".png"] * 3
    assert len(found) == 3
    last = rows[-2:]
    assert found[-1].gained == pytest.approx(sum(row["reward"] for row in last))
    assert found[-1].accuracy == float(last[1]["observation"][0, 4])
    assert found[-1].batch == pytest.approx(sum(float(row["action"][0]) for row in last) / 2)
    assert panels[0].lines[0].get_ydata().tolist() == [one.gained for one in found]  # type: ignore[union-attr]
    assert len(panels) == 4


def test_the_policy_that_is_kept_is_marked(tmp_path: Path) -> None:
    settings = {**SMALL, "pretrain": {"episodes": 3, "keep": "best"}}
    with pretrain(settings, folder=tmp_path / "policy") as done:
        panel = pictures.learning(done).axes[0]
    assert list(panel.lines[-1].get_xdata()) == [2, 2]  # type: ignore[call-overload]  # the middle of three episodes


@pytest.mark.parametrize(("controls", "panels"), [("both", 2), ("batch", 1), ("weights", 1)])
def test_the_decisions_of_a_run_are_drawn(tmp_path: Path, controls: str, panels: int) -> None:
    action = {"both": [5.0, 0.7, 0.1, 0.1, 0.1], "batch": [5.0], "weights": [0.7, 0.1, 0.1, 0.1]}[controls]
    settings = {**SMALL, "method": {"name": "bwa", "controls": controls, "agents": AGENTS}}
    deciders = {ADJUSTMENT: lambda *_: torch.tensor(action)}
    with run(settings, folder=tmp_path / "run", deciders=deciders) as done:
        assert "adjustments" in drawings(done)
        axes = [axes for axes in pictures.adjustments(done).axes if axes.get_label() != "<colorbar>"]
        evenness = [one.evenness for one in pictures.episodes(done)]
    assert len(axes) == panels
    if controls != "weights":
        assert axes[0].lines[0].get_ydata().tolist() == [5.0, 5.0]  # type: ignore[union-attr]
    if controls != "batch":
        assert axes[-1].images[0].get_array()[:, 0].tolist() == pytest.approx([0.7, 0.1, 0.1, 0.1])
        assert evenness == pytest.approx([1 / (4 * 0.52)])
