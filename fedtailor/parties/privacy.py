"""The ``[privacy]`` settings of an experiment, and the private sum of what clients send."""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedtailor.learning import Noise
from fedtailor.weights import Weights, delta, norm

Generator = Literal["seeded", "system"]


class Privacy(BaseModel):
    """Differential privacy of clients: the models do not show whether one client took part.

    The server adds clipped changes and Gaussian noise (McMahan et al., 2018). Private parts of the models stay on
    the clients and need no noise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Literal["none", "client"] = Field("none", description="client: hide whether a client took part at all")
    clip: float = Field(1.0, gt=0, description="longest change that a client may send")
    noise: float = Field(1.0, ge=0, le=1e6, description="deviation of the noise on the sum of changes, in clips")
    delta: float = Field(1e-5, gt=0, lt=1, description="probability with which epsilon need not hold")
    generator: Generator = Field(
        "seeded",
        description="seeded: noise of the run's streams, for simulations; system: noise of the operating system, "
        "which cannot be repeated; a federation uses it",
    )

    @property
    def hides_clients(self) -> bool:
        return self.level == "client"


def private_mean(
    start: Mapping[str, Tensor],
    models: Mapping[int, Mapping[str, Tensor]],
    clip: float,
    noise: float,
    expected: float,
    normal: Noise,
) -> Weights:
    """The start plus the noisy sum of clipped changes, divided by the expected number of clients.

    Parameters
    ----------
    start
        The model that all clients received.
    models
        The models that they sent, in the order of client ids; there may be none.
    clip
        The longest change of a client over all tensors.
    noise
        The deviation of the noise, in clips.
    expected
        The expected number of clients, which does not depend on who takes part.
    normal
        Makes standard normal numbers.
    """
    total = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
    for model in models.values():
        change = delta({name: model[name] for name in start}, start)
        shorter = min(1.0, clip / max(norm(change), 1e-300))
        for name, tensor in change.items():
            total[name].add_(tensor, alpha=shorter)
    return {name: start[name] + (tensor + noise * clip * normal(tensor)) / expected for name, tensor in total.items()}
