"""Training steps: a mini-batch, its gradient, and the optimiser."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedtailor.learning.optimisers import Optimiser


class Batch:
    """One mini-batch: its data, the gradient of the loss there, and the run's optimiser.

    A step is a function of a batch that changes the trained parameters and returns the loss to report; see `descend`.

    Attributes
    ----------
    inputs, targets : Tensor
        The samples of the batch; with ``precision = "bf16"`` the inputs are in bf16.

    Examples
    --------
    >>> def ascend(batch: Batch) -> Tensor:
    ...     loss, gradients = batch.gradient()
    ...     batch.apply([-gradient for gradient in gradients])
    ...     return loss
    >>> client.train(step=ascend)
    """

    def __init__(self, inputs: Tensor, targets: Tensor, training: "Training"):
        self.inputs, self.targets = inputs, targets
        self._training = training

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The trained parameters by name, in fp32; a step may change their data."""
        return self._training.parameters

    def gradient(self, at: Mapping[str, Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """The loss and its gradient, including pull, correction and clipping.

        Parameters
        ----------
        at
            Tensors that replace those of the network with the same names for this gradient. Running statistics among
            them are updated instead of the network's. By default the present weights.
        """
        with self._training.exchanged(at or {}):
            return self._training.gradient(self.inputs, self.targets)

    def like(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of these weights for the trained parameters, with the memory layout of the parameters."""
        return {name: torch.empty_like(value).copy_(weights[name]) for name, value in self._values().items()}

    def moved(self, gradients: list[Tensor], by: float) -> dict[str, Tensor]:
        """The trained parameters plus ``by`` times the gradients, for ``gradient(at=...)``."""
        values = self._values()
        return dict(zip(values, torch._foreach_add(list(values.values()), gradients, alpha=by), strict=True))

    def apply(self, gradients: list[Tensor]) -> None:
        """Do one step of the run's optimiser."""
        self._training.optimiser.step(gradients)

    def split(self, parts: int) -> "list[Batch]":
        """Split the samples into ``parts`` batches. If there are too few samples, each part holds all of them."""
        if len(self.targets) < parts * self._training.fewest:
            return [self] * parts
        inputs, targets = torch.tensor_split(self.inputs, parts), torch.tensor_split(self.targets, parts)
        return [Batch(x, y, self._training) for x, y in zip(inputs, targets, strict=True)]

    def _values(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self.parameters.items()}


def descend(batch: Batch) -> Tensor:
    """The plain step: one gradient, one step of the optimiser."""
    loss, gradients = batch.gradient()
    batch.apply(gradients)
    return loss


@dataclass(frozen=True)
class Training:
    """What the mini-batches of one training share."""

    parameters: dict[str, nn.Parameter]  # trained parameters, in fp32
    leaves: list[nn.Parameter]  # the same parameters as the network computes with them: in bf16, copies
    tensors: Mapping[str, Tensor]  # all parameters, in fp32, and buffers of the network
    frozen: Mapping[str, Tensor]  # bf16 copies of the other parameters
    loss_of: Callable[[Tensor, Tensor], Tensor]  # (inputs, targets) -> mean loss
    optimiser: Optimiser
    fewest: int  # smallest batch: a single sample has no batch statistics
    clip: float | None
    pull: float
    anchors: list[Tensor] | None  # of the pull, along the parameters
    correction: list[Tensor] | None  # along the parameters

    def gradient(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, list[Tensor]]:
        copies, originals = self._copied
        if copies:
            torch._foreach_copy_(copies, originals)
        loss = self.loss_of(inputs, targets)
        # not in place: autograd may return one gradient for two parameters
        gradients = list(torch.autograd.grad(loss, self.leaves, materialize_grads=True))
        if copies:
            gradients = [gradient.float() for gradient in gradients]
        return loss, self.adjusted(gradients)

    def adjusted(self, gradients: list[Tensor]) -> list[Tensor]:
        """The gradients with pull, correction and clipping."""
        if self.anchors is not None:
            values = [value.detach() for value in self.parameters.values()]
            gaps = torch._foreach_sub(values, self.anchors)
            gradients = list(torch._foreach_add(gradients, gaps, alpha=self.pull))
        if self.correction is not None:
            gradients = list(torch._foreach_add(gradients, self.correction))
        if self.clip is not None:
            gradients = _clipped(gradients, self.clip)
        return gradients

    @cached_property
    def _copied(self) -> tuple[list[Tensor], list[Tensor]]:
        """The bf16 copies of trained parameters, and their originals."""
        pairs = zip(self.leaves, self.parameters.values(), strict=True)
        copied = [(leaf.data, value) for leaf, value in pairs if leaf is not value]
        return [copy for copy, _ in copied], [value for _, value in copied]

    @contextmanager
    def exchanged(self, at: Mapping[str, Tensor]) -> Iterator[None]:
        """Swap the contents of the tensors with those of ``at``, and swap them back at the end."""
        pairs = [(self.tensors[name], value) for name, value in at.items()]
        self._exchange(pairs, at)
        try:
            yield
        finally:
            self._exchange(pairs, at)

    def _exchange(self, pairs: list[tuple[Tensor, Tensor]], names: Iterable[str]) -> None:
        for one, other in pairs:
            one.data, other.data = other.data, one.data
        for name in names:
            if name in self.frozen:  # every gradient copies the trained ones
                self.frozen[name].copy_(self.tensors[name])


def along(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor] | None) -> list[Tensor] | None:
    """The values in the order of the parameters, on their device."""
    if values is None:
        return None
    return [values[name].to(parameter.device) for name, parameter in parameters.items()]


def _clipped(gradients: list[Tensor], largest: float) -> list[Tensor]:
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return list(torch._foreach_mul(gradients, torch.clamp(largest / (norm + 1e-12), max=1.0)))
