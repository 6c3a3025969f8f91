"""A small federation for bwa, adaptive-b, adaptive-aw and bo-bwa, and what holds for all of them.

Client 0 has one training sample with target 0, client 1 three with target 4; their validation targets are 1 and 4. A
step with learning rate 1/2 on (w - a)^2 / 2 moves w half of the way to a, so client 1 goes half of the way with
batches of 3 or more, three quarters with batches of 2 and seven eighths with batches of 1. A regression has no
accuracy: it is 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedtailor
from fedtailor.data import DataSettings, Federation, build
from fedtailor.messages.trees import pack, plain
from fedtailor.methods import Decider, Method, Policy, Question, Server, read_policy
from fedtailor.methods.adjustment import ADJUSTMENT
from fedtailor.methods.bwa import BWAAgents
from fedtailor.runs import Callback, RoundReport, pretrain, resume, run
from fedtailor.runs.store import Store
from tests.support.problem import HERE, judged, model_of

SCALAR: dict[str, Any] = {
    "rounds": 2,
    "model": {"name": "tests.support.problem:Scalar"},
    "training": {"lr": 0.5, "epochs": 1, "batch_size": 1000, "loss": "squared-error"},
    "engine": {"kind": "inline"},
}
DIGITS: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 4, "samples": 240, "partition": {"kind": "mixed", "sigma": 0.5}},
    "model": {"name": "linear"},
    "training": {"lr": 0.05, "epochs": 1, "batch_size": 10},
    "engine": {"kind": "inline"},
    "method": {"name": "bwa", "agents": {"adjustment": {"hidden": [16, 16]}}},
}
UNEVEN: dict[str, Any] = {**DIGITS, "data": {"clients": 4, "samples": 240}, "validation": True}
SEVEN: dict[str, Any] = {**UNEVEN, "training": {**DIGITS["training"], "batch_size": 7}}  # batches of seven


def agents(units: int = 4, **changes: Any) -> dict[str, Any]:
    """The setting ``agents`` with two small layers."""
    return {"adjustment": {"hidden": [units, units], **changes}}


def tables(units: int = 4, **changes: Any) -> BWAAgents:
    return BWAAgents.model_validate(agents(units, **changes))


def with_method(settings: dict[str, Any], method: str | Method, **changes: Any) -> Any:
    if isinstance(method, Method):
        return fedtailor.experiment({**settings, "method": {"name": "fedavg"}}).model_copy(update={"method": method})
    return {**settings, "method": {"name": method, **changes}}


def always(*actions: Sequence[float]) -> dict[str, Decider]:
    """These actions, round by round, the last of them for ever; slots without a number get zeros."""

    def script(server: Server, question: Question) -> Tensor:
        numbers = actions[min(server.round, len(actions)) - 1]
        return torch.tensor([*numbers, *[0.0] * (server.largest_cohort + 1 - len(numbers))])

    return {ADJUSTMENT: script}


def by_size(batch: float | None) -> dict[str, Decider]:
    def script(server: Server, _question: Question) -> Tensor:
        sizes = torch.tensor([float(size) for size in server.sizes])
        return torch.cat([torch.tensor([] if batch is None else [batch]), sizes / sizes.sum()])

    return {ADJUSTMENT: script}


def two() -> Federation:
    return judged(HERE, ([1.0], [4.0]))


def eight() -> Federation:
    """Two clients with eight validation samples each."""
    return judged(HERE, ([1.0] * 8, [4.0] * 8))


def model_after(folder: Path, settings: Any, deciders: Mapping[str, Decider] | None = None) -> dict[str, Tensor]:
    """The global model at the end of a run."""
    with run(settings, folder=folder, deciders=deciders) as done:
        return model_of(done)


def fedavg_with_batches_of_seven(folder: Path) -> dict[str, Tensor]:
    """FedAvg's global model on the data of `UNEVEN`."""
    return model_after(folder, with_method(SEVEN, "fedavg"))


@dataclass
class Deployed:
    """A policy of two episodes, and a run that used it."""

    policy: Policy
    state: dict[str, Any]
    agents: dict[str, Any]
    decisions: list[dict[str, Any]]


def deploy(folder: Path, method: str) -> Deployed:
    """Pre-train a method for two episodes and run it with its policy."""
    settings = {**with_method(DIGITS, method), "pretrain": {"episodes": 2}}
    pretrain(settings, folder=folder / "policy").close()
    with run(with_method(DIGITS, method, policy=str(folder / "policy")), folder=folder / "run") as done:
        return Deployed(read_policy(folder / "policy"), done.server_state(), done.agents(), done.decisions())


def assert_policy_stays(deployed: Deployed) -> dict[str, Any]:
    """The agent of a run with a policy learns no more; what it has learned."""
    known = plain(deployed.policy.agents[ADJUSTMENT])
    assert known["steps"] == 2
    assert deployed.policy.parts == {}
    assert pack(deployed.agents["adjustment"]) == pack(known)
    return known


class Stop(Callback):
    def __init__(self, *rounds: int) -> None:
        self.rounds = rounds

    def round_done(self, report: RoundReport) -> None:
        if report.round in self.rounds:
            raise KeyboardInterrupt


def assert_pre_training_goes_on_exactly(folder: Path, settings: dict[str, Any], stops: tuple[int, ...]) -> None:
    """Stopped after these rounds and resumed, it leaves what it leaves without a stop."""
    settings = {**settings, "participation": {"dropout": 0.2}}
    pretrain(settings, folder=folder / "one").close()
    with pytest.raises(KeyboardInterrupt):
        pretrain(settings, folder=folder / "two", callbacks=Stop(*stops))
    for _ in stops[1:]:
        with pytest.raises(KeyboardInterrupt):
            resume(folder / "two", callbacks=Stop(*stops))
    resume(folder / "two").close()
    assert (folder / "one/policy.safetensors").read_bytes() == (folder / "two/policy.safetensors").read_bytes()
    with Store(folder / "one") as one, Store(folder / "two") as other:
        query = "SELECT episode, round, observation, mask, action, reward FROM decisions ORDER BY id"
        assert one.rows(query) == other.rows(query)
        assert {row["episode"] for row in one.rows(query)} == set(range(settings["pretrain"]["episodes"]))


def assert_only_validation_labels_matter(folder: Path, method: str) -> None:
    """A policy depends on the labels of validation data and not on those of test data."""
    real = build(DataSettings.model_validate(DIGITS["data"]), 0, needs_validation=True)

    def policy(name: str, part: str) -> bytes:
        labels = real.samples.y.copy()
        changed = getattr(real, part).indices if part else []
        labels[changed] = (labels[changed] + 1 + np.arange(len(changed)) % 8) % 10
        federation = replace(real, samples=replace(real.samples, y=labels))
        settings = {**with_method(DIGITS, method), "pretrain": {"episodes": 2}}
        pretrain(settings, folder=folder / name, federation=federation).close()
        return (folder / name / "policy.safetensors").read_bytes()

    as_it_is = policy("real", "")
    assert policy("test", "test") == as_it_is
    assert policy("val", "val") != as_it_is
