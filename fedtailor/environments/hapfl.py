"""The two decisions of HAPFL, each as an environment: who trains a model of which size, and for how many epochs."""

from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from fedtailor.agents import Simplex
from fedtailor.environments.decisions import Decisions, Observation
from fedtailor.errors import UserError
from fedtailor.methods import Decide
from fedtailor.methods.hapfl import HAPFL, INTENSITY, SIZE
from fedtailor.runs import Experiment
from fedtailor.runs.cohort import largest_cohort

SPAN = 5.0  # of the logits: two shares differ by e^10 at most


class Allocation(Decisions):
    """One step is a round of a federation on the clock alone: nothing is trained. Every decision is an episode.

    Observation: a row for each slot, flattened: a client's time, relative to the fastest's, and whether the slot is
    taken; the fastest client comes first.
    """

    single: ClassVar = True
    adapts: ClassVar[tuple[str, ...]]  # the variants of the method that ask for the decision

    def __init__(self, settings: Any = None):
        super().__init__(settings)
        self._slots = largest_cohort(self.settings, self._resources.federation(self.settings).clients)
        self.observation_space = spaces.Box(0.0, np.inf, (2 * self._slots,), np.float32)

    def prepared(self, settings: Experiment) -> Experiment:
        method = settings.method
        if not isinstance(method, HAPFL):
            raise UserError(f"this environment is one of hapfl, and the experiment's method is {method.name}")
        if len(method.sizes) < 2:
            raise UserError("this environment needs two model sizes or more in method.sizes")
        changes = {"clock_only": True, "learn": "never"}
        if method.adapts not in self.adapts:
            raise UserError(f"with method.adapts = {method.adapts} there is no {self.decision} to decide")
        return settings.model_copy(update={"method": method.model_copy(update=changes)})

    def seen(self, question: Decide) -> Observation:
        assert question.mask is not None
        rows: Observation = torch.cat([question.observation, question.mask[:, None].float()], 1).flatten().numpy()
        return rows


class SizeAllocation(Allocation):
    """PPO1's decision: a size for every slot, the number of its place in ``method.sizes``. Reward: eq. 23."""

    decision: ClassVar = SIZE
    adapts: ClassVar = ("both", "sizes")

    def __init__(self, settings: Any = None):
        super().__init__(settings)
        method = self.settings.method
        assert isinstance(method, HAPFL)
        self.action_space = spaces.MultiDiscrete([len(method.sizes)] * self._slots)

    def chosen(self, question: Decide, action: Any) -> Tensor:
        assert question.mask is not None
        return torch.as_tensor(np.asarray(action), dtype=torch.float32).masked_fill(~question.mask, 0.0)


class IntensityAllocation(Allocation):
    """PPO2's decision: the shares of the epochs, the softmax of five times a number in [-1, 1] for every slot.

    The times that are seen are those with the sizes that were chosen before, by the method's own agent. Reward: eq. 28.
    """

    decision: ClassVar = INTENSITY
    adapts: ClassVar = ("both", "intensities")

    def __init__(self, settings: Any = None):
        super().__init__(settings)
        self.action_space = spaces.Box(-1.0, 1.0, (self._slots,), np.float32)

    def chosen(self, question: Decide, action: Any) -> Tensor:
        assert question.mask is not None
        logits = SPAN * torch.as_tensor(np.asarray(action), dtype=torch.float32)
        return Simplex()(logits[:, None], question.mask)
