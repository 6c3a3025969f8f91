"""Temperature scaling (Guo et al., ICML 2017): one number that makes a classifier's probabilities honest.

Outputs are divided by the temperature before they become probabilities. It changes no prediction. It is fitted to
validation samples, which neither trained the model nor score it.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST, LARGEST = 0.05, 20.0  # temperatures that are tried
STEPS = 100  # of the search; each makes the interval smaller by a factor of 0.618
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Calibration:
    """How outputs become probabilities.

    Attributes
    ----------
    temperature : float
        What outputs are divided by; 1 if nothing was fitted.
    samples : int
        The number of validation samples that it was fitted to.
    before, after : float or None
        The mean log-loss of these samples, without and with the temperature.
    missing : str
        Why nothing was fitted; empty if something was.
    """

    temperature: float = 1.0
    samples: int = 0
    before: float | None = None
    after: float | None = None
    missing: str = ""

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        if self.missing:
            return {"temperature": 1.0, "not_calibrated": self.missing}
        losses = {"log_loss_before": self.before, "log_loss_after": self.after}
        return {"temperature": self.temperature, "validation_samples": self.samples, **losses}


def calibrate(outputs: Tensor, targets: Tensor, loss: str) -> Calibration:
    """Fit the temperature to the outputs of validation samples.

    Parameters
    ----------
    outputs
        Of the network.  # (samples, classes)
    targets
        The true classes.  # (samples,)
    loss
        The kind of loss that the outputs were trained with, as in ``training.loss``.

    Examples
    --------
    Two of three samples are right, by a difference of 1: exp(1 / T) = 2, so T = 1 / ln 2.

    >>> outputs = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    >>> round(calibrate(outputs, torch.tensor([0, 0, 1]), "cross-entropy").temperature, 6)
    1.442695
    """
    if not len(targets):
        return Calibration(missing="there are no validation samples")
    wide = outputs.to(torch.float64)
    if not bool(wide.isfinite().all()):
        return Calibration(missing="the outputs of validation samples are not finite")

    def lost(logarithm: float) -> float:
        chances = log_probabilities(loss, wide, math.exp(logarithm)).gather(1, targets[:, None])
        return float(-chances.mean())

    low, high = math.log(SMALLEST), math.log(LARGEST)
    for _ in range(STEPS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if lost(left) <= lost(right) else (left, high)
    best = (low + high) / 2
    if not math.log(SMALLEST) + 0.01 < best < math.log(LARGEST) - 0.01:
        wrong = int((wide.argmax(1) != targets).sum())
        return Calibration(
            missing=f"no temperature from {SMALLEST} to {LARGEST:g} fits {len(targets)} validation samples, {wrong} of "
            "which the model gets wrong"
        )
    return Calibration(math.exp(best), len(targets), lost(0.0), lost(best))


def log_probabilities(loss: str, outputs: Tensor, temperature: float) -> Tensor:
    """The logarithms of the classes' probabilities: those of `objectives.probabilities`, also where they are tiny.

    The outputs of a binary loss are independent: their sigmoids are divided by their sum.
    """
    scaled = outputs / temperature
    return F.log_softmax(F.logsigmoid(scaled) if loss == "binary-cross-entropy" else scaled, 1)
