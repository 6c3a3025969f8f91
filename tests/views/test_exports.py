"""What `fedtailor export` prints works."""

import os
from pathlib import Path

import pytest

import fedtailor
from fedtailor.__main__ import main
from fedtailor.views.exports import load_lines


def test_the_lines_that_load_an_export_fit_its_formats(tmp_path: Path) -> None:
    names = {"safetensors": "model.safetensors", "onnx": "model.onnx", "torch": "model.pt2"}
    assert "fedtailor.load_model('e')" in load_lines(Path("e"), names.values())[1]
    assert "fedtailor.load_onnx('e')" in load_lines(Path("e"), [names["onnx"], names["torch"]])[1]
    assert "torch.export.load('e/model.pt2')" in load_lines(Path("e"), [names["torch"]])[1]


def test_the_printed_lines_load_a_torch_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"rounds": 1, "data": {"clients": 2, "samples": 60}, "engine": {"kind": "inline"}}
    fedtailor.run(settings, folder=tmp_path / "run").close()
    capsys.readouterr()
    assert main(["export", "run", "--group", "global", "--format", "torch", "--out", "e"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("torch: the largest difference from the model is ")
    assert lines[1].startswith("Not calibrated: a model of the server")
    known: dict[str, object] = {}
    exec("\n".join(line.strip() for line in lines[-2:]), known)
    assert callable(known["program"])
    assert sorted(os.listdir("e")) == ["MODEL_CARD.md", "card.json", "model.pt2"]
