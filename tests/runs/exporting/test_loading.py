"""A damaged export gives one sentence that names it, and no export runs code."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import fedtailor
from fedtailor.errors import UserError
from fedtailor.runs.exporting.loading import load_any


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    """An export to damage."""
    return Path(shutil.copytree(exported, tmp_path / "export"))


def changed(folder: Path, **facts: Any) -> Path:
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    (folder / "card.json").write_text(json.dumps({**card, **facts}), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "change",
    [
        lambda card: [],
        lambda card: "a card",
        lambda card: {},
        lambda card: {**card, "model": 3},
        lambda card: {**card, "inputs": {"shape": "large"}},
        lambda card: {**card, "inputs": {**card["inputs"], "outputs": 3}},
        lambda card: {**card, "inputs": None},
        lambda card: {**card, "files": 3},
        lambda card: {**card, "preprocessing": {}},
    ],
)
def test_a_damaged_card_is_one_sentence(change: Callable[[Any], Any], copy: Path) -> None:
    fedtailor.load_model(copy)
    card = json.loads((copy / "card.json").read_text(encoding="utf-8"))
    (copy / "card.json").write_text(json.dumps(change(card)), encoding="utf-8")
    with pytest.raises(UserError, match=r"damaged model|does not describe|does not exist"):
        fedtailor.load_model(copy)


@pytest.mark.parametrize(("format", "file"), [("safetensors", "model.safetensors"), ("onnx", "model.onnx")])
def test_a_changed_bit_of_a_model_is_noticed(copy: Path, format: str, file: str) -> None:
    load_any(copy, format)
    content = bytearray((copy / file).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / file).write_bytes(content)
    with pytest.raises(UserError, match=f"holds a damaged model \\({file} is not the file that card.json describes\\)"):
        load_any(copy, format)


def test_a_tensor_that_is_missing_is_not_replaced_by_an_initial_one(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    name = next(iter(weights))
    del weights[name]
    save_file(weights, copy / "model.safetensors")
    with pytest.raises(UserError, match=f"the tensor '{name}' is missing"):
        fedtailor.load_model(changed(copy, files={}))


def test_an_onnx_program_computes_what_the_network_computes(exported: Path) -> None:
    x = np.random.RandomState(0).randint(0, 17, (30, 8, 8, 1)).astype(np.uint8)
    model, program = fedtailor.load_model(exported), fedtailor.load_onnx(exported)
    torch.testing.assert_close(program.outputs(x), model.outputs(x), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(program.probabilities(x), model.probabilities(x), atol=1e-5, rtol=1e-4)
    assert program.predict(x) == model.predict(x)
    assert program.calibrated
    with pytest.raises(UserError, match="cannot compute samples of shape"):
        program.outputs(x[:, :4])


@pytest.mark.parametrize("content", [b"", b"nothing", b"\x08\x07\x12\x00"])
def test_a_file_that_is_no_program_is_one_sentence(copy: Path, content: bytes) -> None:
    (copy / "model.onnx").write_bytes(content)
    with pytest.raises(UserError, match="is damaged or no ONNX program") as error:
        fedtailor.load_onnx(changed(copy, files={}))
    assert "\n" not in str(error.value)


def test_a_program_that_reads_other_files_is_refused(copy: Path, tmp_path: Path) -> None:
    """An ONNX tensor may name a file; a stranger's program must not read those of this machine."""
    onnx = pytest.importorskip("onnx")
    (tmp_path / "secret").write_bytes(np.arange(100, dtype=np.float32).tobytes())
    program = onnx.load(copy / "model.onnx")
    tensor = program.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../secret"
    (copy / "model.onnx").write_bytes(program.SerializeToString())
    with pytest.raises(UserError, match="wants to read its tensors from other files: it is not loaded"):
        fedtailor.load_onnx(changed(copy, files={}))


def test_outputs_that_the_card_does_not_describe_are_refused(copy: Path) -> None:
    model = fedtailor.load_onnx(changed(copy, classes=["a", "b"]))
    with pytest.raises(UserError, match="which its card does not describe"):
        model.predict(np.zeros((2, 8, 8, 1), np.uint8))


def test_a_torch_program_is_never_read(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading one unpickles, so an export that holds nothing else is refused."""

    def trap(*_: Any, **__: Any) -> None:
        raise AssertionError("a torch program was read")

    monkeypatch.setattr(torch.export, "load", trap)
    load_any(copy)
    for file in ("model.safetensors", "model.onnx"):
        (copy / file).unlink()
    with pytest.raises(UserError, match=r"torch program only, which is not read here .* torch.export.load"):
        load_any(copy)


def test_which_file_is_used(copy: Path) -> None:
    assert isinstance(load_any(copy), fedtailor.runs.Model)
    (copy / "model.safetensors").unlink()
    assert isinstance(load_any(copy), fedtailor.runs.exporting.OnnxModel)
    with pytest.raises(
        UserError, match=r"holds no model.safetensors: export the model again with --format safetensors"
    ):
        load_any(copy, "safetensors")
    with pytest.raises(UserError, match=r"is not an export: it has no card.json"):
        load_any(copy.parent)
