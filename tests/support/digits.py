"""A small run on digits, and what it stored."""

from pathlib import Path
from typing import Any

import torch

import fedtailor
from fedtailor.messages.trees import unpack
from fedtailor.methods import Method

DIGITS: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 6, "samples": 200},
    "training": {"lr": 0.05, "epochs": 1, "batch_size": 16, "momentum": 0.5},
    "participation": {"ratio": 0.5},
    "engine": {"kind": "inline"},
}


NORMALISED: dict[str, Any] = {"model": {"name": "resnet18-bn", "arguments": {"width": 2}}}


def digits(folder: Path, method: Method, **more: Any) -> fedtailor.Run:
    experiment = fedtailor.experiment({**DIGITS, **more}).model_copy(update={"method": method})
    return fedtailor.run(experiment, folder=folder)


def global_model(run: fedtailor.Run) -> dict[str, torch.Tensor]:
    return unpack(run._store.state("server", "model"))["value"]  # type: ignore[no-any-return]


def kept(run: fedtailor.Run) -> dict[int, Any]:
    return {int(key): unpack(run._store.state("client", key)) for key in run._store.state_keys("client")}
