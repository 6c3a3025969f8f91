"""The sentences about what the five systems did."""

from typing import Any

import pytest

import fedtailor
from fedtailor.runs import Comparison
from fedtailor.runs.comparing import compare
from fedtailor.views.activity import activities, as_document
from fedtailor.views.drawings import draw

SHORT: dict[str, Any] = {
    "name": "short",
    "rounds": 2,
    "data": {"source": "digits", "clients": 4, "samples": 200, "partition": {"kind": "dirichlet", "alpha": 0.5}},
    "model": {"name": "mlp", "arguments": {"hidden": 8}},
    "engine": {"kind": "inline"},
    "compare": {"methods": ["fedavg", "pfedrlla-after", "fedalp", "fedah", "bwa", "hapfl"], "seeds": [0]},
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(SHORT, folder=tmp_path_factory.mktemp("activity") / "all")


def test_every_system_says_what_it_did_and_how_to_draw_it(compared: Comparison) -> None:
    told = {sentence.split()[0]: sentence for sentence in activities(compared)}
    assert list(told) == ["pfedrlla-after", "fedalp", "fedah", "bwa", "hapfl"]
    assert "% of a mix were the client's own" in told["pfedrlla-after"]
    assert "groups after round 1, of " in told["fedalp"]
    assert "how much of the global head" in told["fedah"]
    assert "batch sizes " in told["bwa"]
    assert "times equal ones" in told["bwa"]
    assert "in the last round: models " in told["hapfl"]
    for name, sentence in told.items():
        assert sentence.endswith(f": fedtailor draw {compared.folder / f'{name}-s0'}")
    assert [row["draw"] for row in as_document(compared)] == [text.rsplit(": ", 1)[1] for text in told.values()]


def test_the_sentences_are_what_the_runs_recorded(compared: Comparison) -> None:
    told = {sentence.split()[0]: sentence for sentence in activities(compared)}
    with fedtailor.Run(compared.folder / "bwa-s0") as run:
        first = int(run.decisions()[0]["action"][0])
        assert f"batch sizes {first}" in told["bwa"]
    with fedtailor.Run(compared.folder / "hapfl-s0") as run:
        most = max(run.server_state()["timeline"]["latest"]["epochs"].values())
        assert f"{most} epochs" in told["hapfl"]
    with fedtailor.Run(compared.folder / "fedah-s0") as run:
        assert "mixing.png" in {path.name for path in draw(run, compared.folder / "pictures")}
