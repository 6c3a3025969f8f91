"""Given decisions in the place of BWA's agents: fixed weights (Fig. 1c, d), and planned batch sizes.

`fedtailor reproduce recipes/bwa` calls these functions with the experiment and the values under ``given``.
"""

import numpy as np
import torch
from torch import Tensor

from fedtailor.data import build
from fedtailor.methods import Decider, Question, Server
from fedtailor.methods.adjustment import ADJUSTMENT
from fedtailor.runs import Experiment

Deciders = dict[str, Decider]


def weights(settings: Experiment, share: float) -> Deciders:
    """The clients with more than two classes have this share of all weights together."""
    federation = build(settings.data, settings.partition_seed, needs_validation=settings.carves_validation)
    labels = [federation.samples.y[federation.train[k]] for k in range(federation.clients)]
    wide = torch.tensor([len(np.unique(own)) > 2 for own in labels])
    given = torch.where(wide, share / wide.sum(), (1 - share) / (~wide).sum())
    return {ADJUSTMENT: lambda _server, _question: given}


def batches(_settings: Experiment, first: int, then: int | None = None, rounds: int = 0) -> Deciders:
    """Use batches of size ``first``, and of size ``then`` after ``rounds`` rounds."""

    def decide(server: Server, _question: Question) -> Tensor:
        return torch.tensor([float(first if then is None or server.round <= rounds else then)])

    return {ADJUSTMENT: decide}
