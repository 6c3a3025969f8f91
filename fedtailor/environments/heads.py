"""The head weights of pFedRLLA as decisions of an environment."""

from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from fedtailor.agents import Simplex
from fedtailor.environments.decisions import Decisions, Observation
from fedtailor.errors import UserError
from fedtailor.methods import Decide, find
from fedtailor.methods.pfedrlla import HEAD, PFedRLLA
from fedtailor.runs import Experiment
from fedtailor.runs.cohort import largest_cohort

SPAN = 5.0  # of the logits: two weights differ by e^10 at most


class HeadAggregation(Decisions):
    """One step chooses the weights of the heads for one client; its reward is that of the paper (eq. 1).

    Observation: a row for each slot, flattened: the embedding of the head, log(1 + age), whether it is the target
    client (the last slot), the logarithm of its similarity to it, whether the slot is taken. Action: a number in
    [-1, 1] for each slot; the weights are the softmax of five times the numbers of the slots that are taken. Every
    decision is an episode of its own.
    """

    decision: ClassVar = HEAD
    single: ClassVar = True

    def __init__(self, settings: Any = None):
        super().__init__(settings)
        slots = largest_cohort(self.settings, self._resources.federation(self.settings).clients) + 1
        method = self.settings.method
        assert isinstance(method, PFedRLLA)
        width = method.size + 4
        self.observation_space = spaces.Box(-np.inf, np.inf, (slots * width,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (slots,), np.float32)

    def prepared(self, settings: Experiment) -> Experiment:
        method = settings.method
        if not isinstance(method, PFedRLLA):
            if type(method) is not find("fedavg"):  # what an experiment has when it names none
                raise UserError(f"this environment is one of pfedrlla, and the experiment's method is {method.name}")
            method = PFedRLLA()
        if method.mixes == "after":
            raise UserError("this environment judges a decision at once: it needs method.mixes = 'before'")
        return settings.model_copy(
            update={"method": method.rehearsal().model_copy(update={"judge": "at once", "updates": 0})}
        )

    def seen(self, question: Decide) -> Observation:
        assert question.mask is not None
        taken = question.mask[:, None].float()
        rows: Observation = torch.cat([question.observation, taken], 1).flatten().numpy()
        return rows

    def chosen(self, question: Decide, action: Any) -> Tensor:
        assert question.mask is not None
        logits = SPAN * torch.as_tensor(np.asarray(action), dtype=torch.float32)
        return Simplex()(logits[:, None], question.mask)
