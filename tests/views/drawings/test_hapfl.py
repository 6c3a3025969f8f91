"""The pictures of HAPFL hold the numbers of its run."""

from pathlib import Path
from typing import Any

import pytest

from fedtailor.runs import Run, run
from fedtailor.views.drawings import draw, drawings
from fedtailor.views.drawings import hapfl as pictures

SMALL: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 5, "samples": 200},
    "model": {"name": "linear"},
    "training": {"epochs": 2},
    "devices": {"profiles": {"kind": "uniform", "spread": 10}, "speed": 0.001},
    "engine": {"kind": "inline"},
    "method": {
        "name": "hapfl",
        "sizes": ["linear", {"name": "mlp", "arguments": {"hidden": 80}}],
        "agents": {"size": {"decider": "search"}, "intensity": {"decider": "search"}},
    },
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawings") / "run"
    run(SMALL, folder=folder).close()
    return folder


def test_every_picture_is_written(done: Path, tmp_path: Path) -> None:
    with Run(done) as found:
        names = [path.stem for path in draw(found, tmp_path)]
    assert names == ["curves", "rewards", "timeline", "clock", "sizes"]


def test_the_timeline_has_a_bar_for_every_phase_of_every_client(done: Path) -> None:
    with Run(done) as found:
        rows, figure = pictures.turns(found.server_state()["timeline"]["latest"]), pictures.timeline(found)
    axes = figure.axes[1]
    bars = {bars.get_label(): bars for bars in axes.containers}
    assert set(bars) == {"waiting", "assessment", *(row["size"] for row in rows)}
    assert [bar.get_width() for bar in bars["assessment"]] == pytest.approx([row["assessment"] for row in rows])
    widths = sorted(bar.get_width() for name in ("linear", "mlp") for bar in bars[name])
    assert widths == pytest.approx(sorted(row["training"] for row in rows))
    assert [text.get_text() for text in axes.texts] == [f"{row['epochs']} epochs" for row in rows]


def test_times_and_accuracies_are_those_of_the_run(done: Path) -> None:
    with Run(done) as found:
        rows, bars = found.clock(), pictures.clock(found).axes
        lines = pictures.sizes(found).axes[0].lines
        wanted = [[100 * row["pooled"] for row in found.metrics(model)] for model in ("global", "linear", "mlp")]
    for axes, key in zip(bars, ("seconds", "latency"), strict=True):
        assert [bar.get_height() for bar in axes.patches] == pytest.approx([row[key] for row in rows])
    assert [line.get_ydata().tolist() for line in lines] == wanted


def test_there_is_only_what_was_recorded(tmp_path: Path) -> None:
    settings = {**SMALL, "rounds": 1, "devices": None, "evaluation": {"every": 0, "final": False}}
    with run(settings, folder=tmp_path / "run") as found:
        assert list(drawings(found)) == ["curves", "rewards", "timeline"]
        draw(found, tmp_path)
