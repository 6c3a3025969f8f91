"""Standardised states: in deviations from the mean of what an agent saw before."""

from typing import Any

import torch
from torch import Tensor

FAR = 10.0  # deviations from the mean beyond which the agent sees no difference


class Normaliser:
    """Standardises features by the mean and deviation of all states up to the last ``refresh``.

    Between two refreshes, equal states look equal to the agent. Before the first, states stay as they are.
    """

    def __init__(self, features: int):
        self.tally = torch.zeros(3, features, dtype=torch.double)  # count, sum, sum of squares
        self.scale = torch.stack([torch.zeros(features), torch.ones(features)])  # mean, deviation

    def __call__(self, state: Tensor) -> Tensor:
        return ((state - self.scale[0]) / self.scale[1]).clamp(-FAR, FAR)

    def count(self, state: Tensor, mask: Tensor) -> None:
        """Take the rows of the present slots into account, from the next refresh on."""
        rows = state[mask].double()
        self.tally += torch.stack([torch.ones_like(rows), rows, rows.square()]).sum(1)

    def refresh(self) -> None:
        """Standardise by all that was counted."""
        count, total, squares = self.tally
        if float(count[0]):
            centre = total / count
            deviation = (squares / count - centre.square()).clamp(min=1e-6).sqrt()
            self.scale = torch.stack([centre, deviation]).float()

    def state_dict(self) -> dict[str, Any]:
        return {"tally": self.tally, "scale": self.scale}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tally, self.scale = state["tally"].clone(), state["scale"].clone()
