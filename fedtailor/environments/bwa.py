"""The batch size and the aggregation weights of BWA as decisions of an environment."""

from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from fedtailor.agents import Simplex
from fedtailor.environments.decisions import Decisions, Observation
from fedtailor.errors import UserError
from fedtailor.methods import Decide, find
from fedtailor.methods.bwa import ADJUSTMENT, BWA, FEATURES
from fedtailor.runs import Experiment
from fedtailor.runs.cohort import largest_cohort

SPAN = 2.0  # of the logits: two weights differ by e^4 at most


class BatchAndWeights(Decisions):
    """One step is a round of a federation, an episode a whole federation; state and reward are those of BWA.

    Observation: a row for each slot, flattened: loss, accuracy and divergence of the client, then of the server,
    whether the slot is taken. Action: numbers in [-1, 1]; the first says the batch size, from the smallest to the
    largest, the others are for the slots: the weights are the softmax of twice the numbers of those that are taken.
    What the method does not control (``controls``) has no numbers.
    """

    decision: ClassVar = ADJUSTMENT
    single: ClassVar = False

    def __init__(self, settings: Any = None):
        super().__init__(settings)
        slots = largest_cohort(self.settings, self._resources.federation(self.settings).clients)
        assert isinstance(self.settings.method, BWA)
        self._method: BWA = self.settings.method
        numbers = {"both": 1 + slots, "batch": 1, "weights": slots}[self._method.controls]
        self.observation_space = spaces.Box(-np.inf, np.inf, (slots * (FEATURES + 1),), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (numbers,), np.float32)

    def prepared(self, settings: Experiment) -> Experiment:
        method = settings.method
        if not isinstance(method, BWA):
            if type(method) is not find("fedavg"):  # what an experiment has when it names none
                raise UserError(f"this environment is one of bwa, and the experiment's method is {method.name}")
            method = BWA()
        return settings.model_copy(update={"method": method.model_copy(update={"learn": "never"})})

    def seen(self, question: Decide) -> Observation:
        assert question.mask is not None
        taken = question.mask[:, None].float()
        rows: Observation = torch.cat([question.observation, taken], 1).flatten().numpy()
        return rows

    def chosen(self, question: Decide, action: Any) -> Tensor:
        assert question.mask is not None
        numbers = torch.as_tensor(np.asarray(action), dtype=torch.float32).clamp(-1.0, 1.0)
        parts = []
        if self._method.controls != "weights":
            low, high = self._method.smallest, self._method.largest
            parts.append((low + (high + 1 - low) * (numbers[:1] + 1) / 2).floor().clamp(max=high))
            numbers = numbers[1:]
        if self._method.controls != "batch":
            parts.append(Simplex()(SPAN * numbers[:, None], question.mask))
        return torch.cat(parts)
