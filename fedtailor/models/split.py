"""Split a module into the body before the head, and the head.

A split holds modules and no functions, so that a deep copy of a network copies its split.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor, nn

from fedtailor.models.evaluating import evaluating
from fedtailor.models.inputs import Inputs
from fedtailor.seeding import torch_stream


@dataclass(frozen=True)
class StageSplit:
    """A sequence of layers, cut before the first layer of the head."""

    body: tuple[nn.Module, ...]
    head: tuple[nn.Module, ...]

    def features(self, x: Tensor) -> Tensor:
        return _apply(self.body, x)

    def classify(self, features: Tensor) -> Tensor:
        return _apply(self.head, features)


@dataclass(frozen=True)
class ModuleSplit:
    """A module of any form whose last step is the head."""

    module: nn.Module
    head: nn.Module

    def features(self, x: Tensor) -> Tensor:
        (features,), _ = _capture(self.module, self.head, x)
        return features

    def classify(self, features: Tensor) -> Tensor:
        return self.head(features)  # type: ignore[no-any-return]


Split = StageSplit | ModuleSplit


def split_stages(module: nn.Sequential, head: list[Tensor]) -> StageSplit | None:
    """Split a sequence; None if tensors of the body come after the first layer of the head."""
    stages = tuple(_stages(module))
    wanted = {id(tensor) for tensor in head}
    held = [{id(tensor) for tensor in _tensors(stage)} for stage in stages]
    start = next((index for index, tensors in enumerate(held) if tensors & wanted), None)
    if start is None or not all(tensors <= wanted for tensors in held[start:]):
        return None
    return StageSplit(stages[:start], stages[start:])


def split_module(module: nn.Module, head: list[Tensor], inputs: Inputs) -> ModuleSplit | None:
    """Split any module whose head is one module and, tested on one batch, its last step."""
    wanted = {id(tensor) for tensor in head}
    matches = [part for part in module.modules() if {id(tensor) for tensor in _tensors(part)} == wanted]
    if not matches:
        return None
    split = ModuleSplit(module, matches[-1])  # the innermost: features are what the first head layer reads
    return split if _is_last_step(split, inputs) else None


def is_sequence(module: nn.Module) -> TypeGuard[nn.Sequential]:
    """Whether the module only calls its layers one after the other."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _stages(module: nn.Sequential) -> Iterator[nn.Module]:
    for layer in module:
        if is_sequence(layer):
            yield from _stages(layer)
        else:
            yield layer


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _apply(stages: tuple[nn.Module, ...], x: Tensor) -> Tensor:
    for stage in stages:
        x = stage(x)
    return x


def _is_last_step(split: ModuleSplit, inputs: Inputs) -> bool:
    """Test with perturbed weights, to notice a factor after the head that starts at 1."""
    kept = [parameter.detach().clone() for parameter in split.module.parameters()]
    stream = torch_stream("model", "disturbed")
    with evaluating(split.module):
        try:
            for parameter in split.module.parameters():
                parameter.add_((torch.rand(parameter.shape, generator=stream) - 0.5) / 50)
            captured, outputs = _capture(split.module, split.head, inputs.example())
            return len(captured) == 1 and torch.equal(split.classify(captured[0]), outputs)
        finally:
            for parameter, value in zip(split.module.parameters(), kept, strict=True):
                parameter.copy_(value)


def _capture(module: nn.Module, head: nn.Module, x: Tensor) -> tuple[list[Tensor], Tensor]:
    """The inputs of all calls of the head, and the output of the module."""
    given: list[Tensor] = []

    def keep(_: nn.Module, arguments: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        given.extend((*arguments, *named.values()))

    hook = head.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        return given, module(x)
    finally:
        hook.remove()
