"""Weights from files: only tensors are read, and only those that fit."""

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from fedtailor.errors import UserError
from fedtailor.models import Inputs, Network
from fedtailor.runs.weights_files import fitted, read_weights

WEIGHTS = {"0.weight": torch.arange(8.0).view(2, 4), "0.bias": torch.ones(2)}


class Touch:
    """An object that would run code when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def network() -> Network:
    return Network(nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 3)), ["2"], Inputs((4,), 3))


@pytest.mark.parametrize("nested", ["", "state_dict", "model_state_dict"])
def test_a_state_dict_of_torch_is_read_with_its_bits(nested: str, tmp_path: Path) -> None:
    torch.save({nested: WEIGHTS, "epoch": 3} if nested else WEIGHTS, tmp_path / "a.pt")
    found = read_weights(tmp_path / "a.pt")
    assert found.keys() == WEIGHTS.keys()
    assert all(torch.equal(found[name], WEIGHTS[name]) for name in WEIGHTS)


def test_safetensors_are_read_from_a_file_and_from_an_exported_folder(tmp_path: Path) -> None:
    safetensors.torch.save_file(WEIGHTS, tmp_path / "model.safetensors")
    for place in (tmp_path, tmp_path / "model.safetensors"):
        assert torch.equal(read_weights(place)["0.weight"], WEIGHTS["0.weight"])


def test_no_code_in_a_file_is_run(tmp_path: Path) -> None:
    torch.save({"weight": Touch(tmp_path / "touched")}, tmp_path / "evil.pt")
    with pytest.raises(UserError, match="cannot be read as tensors alone"):
        read_weights(tmp_path / "evil.pt")
    assert not (tmp_path / "touched").exists()
    torch.load(tmp_path / "evil.pt", weights_only=False)  # so the file is one that would
    assert (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.pt", b"nonsense", "cannot be read"),
        ("a.safetensors", b"nonsense", "cannot be read"),
        ("a.npz", b"", "weights are in a file"),
        ("a.pt", {"epoch": 3}, "holds no state_dict"),
        ("a.pt", {}, "holds no state_dict"),
        ("a.pt", [torch.ones(2)], "holds no state_dict"),
        ("a.pt", nn.Linear(2, 2), "save the model's state_dict"),
        ("", None, "is neither a run, nor an exported model"),
    ],
)
def test_other_files_are_refused_in_one_sentence(name: str, content: Any, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif name:
        torch.save(content, file)
    with pytest.raises(UserError, match=sentence) as error:
        read_weights(file)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_the_weights_of_a_part_are_used_and_take_the_networks_type() -> None:
    whole = {name: tensor.double() + 1 for name, tensor in network().weights().items()}
    assert fitted(whole, network(), "all", "here", True).keys() == whole.keys()
    body = fitted({**whole, "2.weight": torch.ones(9, 9)}, network(), "body", "here", True)
    assert sorted(body) == ["0.bias", "0.weight"]
    assert {tensor.dtype for tensor in body.values()} == {torch.float32}
    assert torch.equal(body["0.bias"], whole["0.bias"].float())


@pytest.mark.parametrize(
    ("change", "part", "whole", "sentence"),
    [
        ({"2.weight": torch.ones(9, 2)}, "all", True, r"\(9, 2\).*needs \(3, 2\); start.part = 'body'"),
        ({"2.weight": None}, "all", True, "lacks 2.weight of this run's model; start.part = 'body'"),
        ({"0.weight": None, "0.bias": None}, "body", True, "lacks 0.bias and 1 other"),
        ({"3.weight": torch.ones(1)}, "all", False, "has 3.weight, and this run's model does not"),
        ({"0.bias": torch.full((2,), torch.nan)}, "all", True, "not finite"),
        ({"0.bias": torch.ones(2, dtype=torch.int64)}, "all", True, "of another type"),
        (dict.fromkeys(("0.weight", "0.bias")), "body", False, "no tensor of the body"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    change: dict[str, torch.Tensor | None], part: str, whole: bool, sentence: str
) -> None:
    given = {**network().weights(), **change}
    found = {name: tensor for name, tensor in given.items() if tensor is not None}
    with pytest.raises(UserError, match=sentence):
        fitted(found, network(), part, "here", whole)
