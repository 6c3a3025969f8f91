"""Standardises states by the mean and deviation of earlier states."""

from typing import Any

import torch
from torch import Tensor

FAR = 10.0  # standardised features are clipped to this many deviations


class Normaliser:
    """Standardises features by the mean and deviation of all states before the last ``refresh``.

    Between two refreshes, equal states look equal to the agent. Before the first refresh, states are unchanged.
    """

    def __init__(self, features: int):
        self.tally = torch.zeros(3, features, dtype=torch.double)  # count, sum, sum of squares
        self.scale = torch.stack([torch.zeros(features), torch.ones(features)])  # mean, deviation

    def __call__(self, state: Tensor) -> Tensor:
        return ((state - self.scale[0]) / self.scale[1]).clamp(-FAR, FAR)

    def count(self, state: Tensor, mask: Tensor) -> None:
        """Count the rows of the present slots; they take effect at the next refresh."""
        rows = state[mask].double()
        self.tally += torch.stack([torch.ones_like(rows), rows, rows.square()]).sum(1)

    def refresh(self) -> None:
        """Standardise by all counted rows from now on."""
        count, total, squares = self.tally
        if float(count[0]):
            centre = total / count
            deviation = (squares / count - centre.square()).clamp(min=1e-6).sqrt()
            self.scale = torch.stack([centre, deviation]).float()

    def state_dict(self) -> dict[str, Any]:
        return {"tally": self.tally, "scale": self.scale}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tally, self.scale = state["tally"].clone(), state["scale"].clone()
