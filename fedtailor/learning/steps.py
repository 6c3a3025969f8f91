"""Training steps: a mini-batch, its gradient, and the optimiser."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedtailor.learning.optimisers import Optimiser


class Batch:
    """One mini-batch: its data, the gradient of the loss there, and the run's optimiser.

    A step is a function of a batch that changes the trained parameters and returns the loss to report; see `descend`.

    Attributes
    ----------
    inputs, targets : Tensor
        The samples of the batch.

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
        """The trained parameters by name; a step may change their data."""
        return self._training.parameters

    def gradient(self, at: Mapping[str, Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """The loss and its gradient, including pull, correction and clipping.

        Parameters
        ----------
        at
            Tensors that replace those of the network with the same names for this gradient. Running statistics among
            them are updated instead of the network's. By default the present weights.
        """
        with _exchanged(self._training.tensors, at or {}):
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

    parameters: dict[str, nn.Parameter]  # trained parameters
    tensors: Mapping[str, Tensor]  # all parameters and buffers of the network
    loss_of: Callable[[Tensor, Tensor], Tensor]  # (inputs, targets) -> mean loss
    optimiser: Optimiser
    fewest: int  # smallest batch: a single sample has no batch statistics
    clip: float | None
    pull: float
    anchors: list[Tensor] | None  # of the pull, along the parameters
    correction: list[Tensor] | None  # along the parameters

    def gradient(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, list[Tensor]]:
        loss = self.loss_of(inputs, targets)
        values = list(self.parameters.values())
        # not in place: autograd may return one gradient for two parameters
        gradients = list(torch.autograd.grad(loss, values, materialize_grads=True))
        if self.anchors is not None:
            gaps = torch._foreach_sub([value.detach() for value in values], self.anchors)
            gradients = list(torch._foreach_add(gradients, gaps, alpha=self.pull))
        if self.correction is not None:
            gradients = list(torch._foreach_add(gradients, self.correction))
        if self.clip is not None:
            gradients = _clipped(gradients, self.clip)
        return loss, gradients


def along(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor] | None) -> list[Tensor] | None:
    """The values in the order of the parameters, on their device."""
    if values is None:
        return None
    return [values[name].to(parameter.device) for name, parameter in parameters.items()]


@contextmanager
def _exchanged(tensors: Mapping[str, Tensor], at: Mapping[str, Tensor]) -> Iterator[None]:
    """Swap the contents of the tensors with those of ``at``, and swap them back at the end."""
    pairs = [(tensors[name], value) for name, value in at.items()]
    _exchange(pairs)
    try:
        yield
    finally:
        _exchange(pairs)


def _exchange(pairs: list[tuple[Tensor, Tensor]]) -> None:
    for one, other in pairs:
        one.data, other.data = other.data, one.data


def _clipped(gradients: list[Tensor], largest: float) -> list[Tensor]:
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return list(torch._foreach_mul(gradients, torch.clamp(largest / (norm + 1e-12), max=1.0)))
