"""Every network of the catalogue becomes a program for any number of samples; one that cannot is one sentence."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedtailor
from fedtailor.errors import UserError
from fedtailor.learning.program import Program
from fedtailor.models import Inputs, ModelSettings, build
from fedtailor.models.catalogue import CATALOGUE
from fedtailor.runs.exporting.formats import (
    OnnxProgram,
    chosen_formats,
    difference,
    onnx_file,
    read_torch,
    torch_file,
    traced,
)


def compare(name: str, inputs: Inputs, arguments: dict[str, int], place: Path) -> None:
    """Both programs, made from two samples, compute 1 and 9 samples as the network does."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    module = build(ModelSettings(name=name, arguments=arguments), inputs, 0).module.eval().requires_grad_(False)
    for layer in module.modules():  # as after training
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
    program = Program(module, nn.Identity(), "cross-entropy", 1.7).eval()
    x = inputs.example(9)
    if inputs.vocabulary:
        x = x.int()
        x[:, -2:] = 0  # padding
    expected = lambda part: tuple(found.numpy() for found in program(torch.from_numpy(part)))  # noqa: E731
    operations = traced(program, x[:2].numpy(), name)
    (place / "model.pt2").write_bytes(torch_file(operations))
    for given in (read_torch(place / "model.pt2"), OnnxProgram(onnx_file(operations, name), name)):
        found = difference(expected, given, x.numpy(), name)
        assert found["samples"] == 9
        assert found["different_predictions"] == 0
        assert found["largest_difference"] < 1e-5


def test_a_recurrent_network_becomes_a_program(tmp_path: Path) -> None:
    """The network whose length of a batch was a constant; the digits of the other tests have convolutions."""
    compare("gru", Inputs((4,), 3, vocabulary=6), {}, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_network_of_the_catalogue_becomes_a_program(name: str, tmp_path: Path) -> None:
    compare(name, CATALOGUE[name].typical, {}, tmp_path)


class Choosing(nn.Module):
    """A network whose path depends on its inputs."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(int(np.prod(shape)), classes)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x.flatten(1))
        return found if x.sum() > 0 else -found


def test_a_network_that_cannot_become_a_program_is_one_sentence(tmp_path: Path) -> None:
    name = f"{__name__}:Choosing"
    settings = {
        "rounds": 1,
        "data": {"clients": 2, "samples": 60},
        "model": {"name": name},
        "engine": {"kind": "inline"},
    }
    fedtailor.run(settings, folder=tmp_path / "run").close()
    with pytest.raises(
        UserError, match=rf"model '{name}' cannot become a torch program .*: export it as safetensors"
    ) as e:
        fedtailor.export_client(tmp_path / "run", 0, tmp_path / "out", formats=["safetensors", "torch"])
    assert "\n" not in str(e.value)
    assert not (tmp_path / "out").exists()
    fedtailor.export_client(tmp_path / "run", 0, tmp_path / "out")


def test_hand_difference() -> None:
    """Two classes and a sample of which the second is as likely in the program: 0.25 is the largest difference."""
    x = np.zeros((2, 1), np.float32)
    ours = np.array([[1.0, 2.0], [3.0, 2.75]]) * 1e-5, np.array([[0.3, 0.7], [0.6, 0.4]])
    theirs = np.array([[1.0, 2.0], [3.0, 3.0]]) * 1e-5, np.array([[0.3, 0.7], [0.6, 0.4]])
    found = difference(
        lambda part: tuple(o[: len(part)] for o in ours), lambda part: tuple(o[: len(part)] for o in theirs), x, "it"
    )
    assert found["largest_difference"] == pytest.approx(0.25e-5)
    assert found["different_predictions"] == 0  # equal outputs: the first


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda o: o + 0.01, "differs from the model by 0.01"),
        (lambda o: o * np.nan, "differs from the model"),
        (lambda o: o[:1], "another shape"),  # a program for one sample only
    ],
)
def test_a_program_that_computes_something_else_is_refused(wrong: object, said: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    with pytest.raises(UserError, match=said):
        difference(lambda part: (part,), lambda part: (wrong(part),), x, "it")  # type: ignore[operator]


def test_formats_are_checked_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen_formats(["torch", "safetensors", "torch"]) == ("torch", "safetensors")
    with pytest.raises(UserError, match="unknown format 'onx': did you mean 'onnx'"):
        chosen_formats(["onx"])
    with pytest.raises(UserError, match="name at least one format"):
        chosen_formats([])
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match=r"ONNX needs the Python package onnxscript: pip install 'fedtailor\[export\]'"):
        chosen_formats(["onnx"])
