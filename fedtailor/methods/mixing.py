"""Mixes a local and a global model element by element, with weights learned on the client's data."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from fedtailor.learning import Batch
from fedtailor.parties import Client
from fedtailor.weights import Weights, clone, select


def mix(local: Mapping[str, Tensor], global_: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> Weights:
    """local + (global - local) * weights, exact at weights of 0 and 1."""
    return {name: torch.lerp(local[name], global_[name], weight) for name, weight in weights.items()}


def learn_mix(
    client: Client,
    local: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    *,
    eta: float,
    epochs: int = 1,
    rows: Tensor | None = None,
    until: Callable[[Sequence[float]], bool] | None = None,
) -> Weights:
    """Learn the weights W of ``local + (global - local) * W`` and leave that mix in the client's network.

    The network holds the global model; ``local`` and ``weights`` hold the tensors to mix. A mini-batch moves W against
    its gradient g (global - local), where g is the gradient of the loss at the mix, and clips it to [0, 1]. Everything
    else, including running statistics, is unchanged. ``rows`` and ``until`` are options of `Client.train`.
    """
    device = next(iter(client.network.parameters().values())).device
    here = {name: tensor.to(device) for name, tensor in client.weights().items()}
    local = {name: tensor.to(device) for name, tensor in select(local, weights).items()}
    gaps = {name: here[name] - tensor for name, tensor in local.items()}
    learned = {name: weight.to(device) for name, weight in clone(weights).items()}

    def step(batch: Batch) -> Tensor:
        loss, gradients = batch.gradient()
        for (name, parameter), gradient in zip(batch.parameters.items(), gradients, strict=True):
            learned[name].sub_(gradient * gaps[name], alpha=eta).clamp_(0, 1)
            torch.lerp(local[name], here[name], learned[name], out=parameter.data)
        return loss

    client.load(mix(local, here, learned))
    client.train(frozenset(learned), epochs=epochs, rows=rows, step=step, until=until)
    client.load(select(here, client.network.statistics))
    return {name: weight.cpu() for name, weight in learned.items()}
