"""The local optimisers.

They replace those of ``torch.optim``, whose first step imports torch's compiler: that costs every worker seconds and
about 70 MB. Tests compare both.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from fedtailor.learning.settings import TrainingSettings


class Optimiser(Protocol):
    def step(self, gradients: list[Tensor]) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def optimiser(settings: TrainingSettings, parameters: Sequence[Tensor], lr: float) -> Optimiser:
    """A new optimiser of these parameters."""
    if settings.optimiser == "adam":
        return Adam(parameters, lr, settings.weight_decay)
    return SGD(parameters, lr, settings.momentum, settings.weight_decay)


def reach(settings: TrainingSettings, steps: int, pull: float = 0.0) -> float:
    """How far ``steps`` steps of SGD move along a constant gradient, in learning rates.

    It is the sum of the factors of the gradients in the whole move: the number of steps for plain SGD, more with
    momentum, less with a pull towards the start (learning rate times strength). Adam's moves are not sums of
    gradients; for Adam it is the number of steps.
    """
    momentum = settings.momentum if settings.optimiser == "sgd" else 0.0
    place = velocity = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1 - pull * place
        place += velocity
    return place


class SGD:
    """Stochastic gradient descent with heavy-ball momentum, as in ``torch.optim.SGD``."""

    def __init__(self, parameters: Sequence[Tensor], lr: float, momentum: float = 0.0, weight_decay: float = 0.0):
        self.parameters = [parameter.detach() for parameter in parameters]
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.velocity: list[Tensor] | None = None

    def step(self, gradients: list[Tensor]) -> None:
        if self.weight_decay:
            # not in place: autograd may return one gradient for two parameters
            gradients = list(torch._foreach_add(gradients, self.parameters, alpha=self.weight_decay))
        if self.momentum:
            if self.velocity is None:
                self.velocity = [gradient.clone() for gradient in gradients]
            else:
                torch._foreach_mul_(self.velocity, self.momentum)
                torch._foreach_add_(self.velocity, gradients)
            gradients = self.velocity
        torch._foreach_add_(self.parameters, gradients, alpha=-self.lr)

    def state_dict(self) -> dict[str, Any]:
        return {"velocity": self.velocity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        velocity = state["velocity"]
        self.velocity = None if velocity is None else [stored.clone() for stored in velocity]


class Adam:
    """Adam (Kingma and Ba, 2015) with betas 0.9 and 0.999, as in ``torch.optim.Adam``."""

    def __init__(self, parameters: Sequence[Tensor], lr: float, weight_decay: float = 0.0):
        self.parameters = [parameter.detach() for parameter in parameters]
        self.lr, self.weight_decay = lr, weight_decay
        self.first = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.second = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = 0

    def step(self, gradients: list[Tensor]) -> None:
        self.steps += 1
        if self.weight_decay:
            gradients = list(torch._foreach_add(gradients, self.parameters, alpha=self.weight_decay))
        torch._foreach_lerp_(self.first, gradients, 1 - 0.9)
        torch._foreach_mul_(self.second, 0.999)
        torch._foreach_addcmul_(self.second, gradients, gradients, value=1 - 0.999)
        spread = torch._foreach_sqrt(self.second)
        torch._foreach_div_(spread, (1 - 0.999**self.steps) ** 0.5)
        torch._foreach_add_(spread, 1e-8)
        torch._foreach_addcdiv_(self.parameters, self.first, spread, value=-self.lr / (1 - 0.9**self.steps))

    def state_dict(self) -> dict[str, Any]:
        return {"first": self.first, "second": self.second, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.first = [stored.clone() for stored in state["first"]]
        self.second = [stored.clone() for stored in state["second"]]
        self.steps = state["steps"]
