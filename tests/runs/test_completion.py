"""What a run takes where its settings leave it open: sizes of models and devices."""

from pathlib import Path
from typing import Any

import fedtailor
from fedtailor.methods import find
from fedtailor.models import ModelSettings
from fedtailor.models.inputs import Inputs
from fedtailor.runs.comparing import compare
from fedtailor.runs.completion import own_settings

SHORT: dict[str, Any] = {
    "name": "short",
    "rounds": 1,
    "data": {"source": "digits", "clients": 3, "samples": 150},
    "model": {"name": "mlp", "arguments": {"hidden": 12}},
    "engine": {"kind": "inline"},
}
FLAT, IMAGES = Inputs((20,), 3), Inputs((3, 32, 32), 10)


def sizes(model: ModelSettings, inputs: Inputs) -> list[dict[str, Any]]:
    completed: Any = find("hapfl")().completed(model, inputs)
    return list(completed.sizes)


def test_the_pair_is_the_runs_own_model_and_one_of_half_its_width() -> None:
    own = ModelSettings(name="mlp", arguments={"hidden": 12})
    assert sizes(own, FLAT) == [
        {"name": "mlp", "arguments": {"hidden": 6}},
        {"name": "mlp", "arguments": {"hidden": 12}},
    ]
    assert sizes(ModelSettings(), FLAT) == [{"name": "mlp", "arguments": {"hidden": 64}}, {"name": "auto"}]
    assert sizes(ModelSettings(name="large"), IMAGES)[0]["arguments"] == {"channels": [16, 32, 64], "hidden": 64}
    assert sizes(ModelSettings(name="cnn"), IMAGES)[0] == {"name": "small"}
    assert sizes(ModelSettings(name="linear"), FLAT) == []  # there is nothing smaller: one size


def test_hapfl_without_sizes_and_devices_hands_out_two_sizes_to_mildly_different_devices(tmp_path: Path) -> None:
    with fedtailor.run({**SHORT, "method": {"name": "hapfl"}}, folder=tmp_path / "run") as done:
        assert len(done.settings["method"]["sizes"]) == 2
        assert done.settings["devices"]["profiles"]["spread"] == 3
        assert set(done.server_state()["hapfl"]["sizes"]) == {"mlp-1", "mlp-2"}
        seconds = {row["client"]: row["compute"] for row in done.times()}
    assert len(set(seconds.values())) == 3


def test_all_rows_of_a_comparison_have_the_devices_of_one_that_decides_by_times(tmp_path: Path) -> None:
    done = compare({**SHORT, "compare": {"methods": ["fedavg", "hapfl"], "seeds": [0]}}, folder=tmp_path / "both")
    summary = done.summary()
    assert {row.method: row.clock is not None for row in summary.table} == {"fedavg": True, "hapfl": True}
    (note,) = [note for note in summary.notes if "devices" in note.sentence]
    assert note.rows == ("hapfl",)
    assert "all rows have the same devices, up to 3 times apart" in note.sentence
    with fedtailor.Run(tmp_path / "both" / "fedavg-s0") as one, fedtailor.Run(tmp_path / "both" / "hapfl-s0") as other:
        assert one.settings["devices"] == other.settings["devices"]
    alone = compare({**SHORT, "compare": {"methods": ["fedavg"], "seeds": [0]}}, folder=tmp_path / "alone")
    assert alone.summary().table[0].clock is None
    assert not alone.summary().notes


def test_a_table_of_devices_is_kept(tmp_path: Path) -> None:
    equal = {"profiles": {"kind": "uniform", "spread": 1}}
    with fedtailor.run({**SHORT, "devices": equal, "method": {"name": "hapfl"}}, folder=tmp_path / "run") as done:
        assert done.settings["devices"]["profiles"]["spread"] == 1


def test_with_sizes_of_its_own_and_no_devices_all_are_equal_as_ever(tmp_path: Path) -> None:
    sizes = [{"name": "mlp", "arguments": {"hidden": 4}}, "linear"]
    with fedtailor.run({**SHORT, "method": {"name": "hapfl", "sizes": sizes}}, folder=tmp_path / "run") as done:
        assert "devices" not in done.settings
        assert [text for text in done.warnings if "all devices are taken to be equal" in text]


def test_a_comparison_uses_the_settings_of_the_method_of_the_file(tmp_path: Path) -> None:
    """Where the name stands alone; a table keeps its own settings."""
    made = compare({**SHORT, "method": {"name": "fedprox", "mu": 0.5}}, methods=["fedprox"], folder=tmp_path / "c")
    assert list(made.runs()) == ["fedprox"]
    with fedtailor.Run(made.runs()["fedprox"][0]) as run:
        assert run.settings["method"]["mu"] == 0.5
    tables = [{"name": "fedprox", "mu": 0.2}, "fedavg"]
    settings = fedtailor.experiment({"method": {"name": "fedprox", "mu": 0.5}, "compare": {"methods": tables}})
    assert own_settings(settings).compare.methods == settings.compare.methods
    assert own_settings(fedtailor.experiment({"method": {"name": "fedprox"}})).compare.methods[1] == "fedavg"
