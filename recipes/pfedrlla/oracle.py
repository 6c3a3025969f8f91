"""pFedRLLA with an oracle in the agent's place: weights by the true overlap of labels, sum_c min(p_k(c), p_j(c)).

`fedtailor reproduce recipes/pfedrlla oracle` calls ``overlap`` with each experiment.
"""

import numpy as np
import torch
from torch import Tensor

from fedtailor.data import build
from fedtailor.methods import Decider, Question, Server
from fedtailor.methods.head_mixing import HEAD
from fedtailor.runs import Experiment

OWN = 0.8  # share of a client's own models if they are mixed after the training


def overlap(settings: Experiment) -> dict[str, Decider]:
    """Decides the weights of heads by who has which labels."""
    federation = build(settings.data, settings.partition_seed)
    labels = [federation.samples.y[federation.train[k]] for k in range(federation.clients)]
    classes = 1 + max(int(y.max()) for y in labels)
    shares = np.stack([np.bincount(y, minlength=classes) / len(y) for y in labels])  # (clients, classes)

    def decide(_server: Server, question: Question) -> Tensor:
        others = [key for key in question.keys if isinstance(key, int)]
        common = np.minimum(shares[others], shares[question.about]).sum(1)
        mine = int(question.mask.sum()) - len(others)  # the client's own models, in the last slots
        own = 1.0 if settings.method.name == "pfedrlla" else OWN / (1 - OWN) * max(common.sum(), 1e-9) / mine
        rows = np.array([*common, *[own] * mine])
        weights = torch.zeros(len(question.mask))
        weights[question.mask] = torch.as_tensor(rows / rows.sum(), dtype=torch.float)
        return weights

    return {HEAD: decide}
