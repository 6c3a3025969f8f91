"""Gymnasium environments: the decisions of a federation for any library of reinforcement learning.

``import fedtailor.environments`` registers them; then ``gymnasium.make("fedtailor/HeadAggregation-v0")``.
"""

from importlib.util import find_spec

from fedtailor.errors import UserError

if find_spec("gymnasium") is None:
    raise UserError("environments need gymnasium: pip install 'fedtailor[rl]'")

import gymnasium

from fedtailor.environments.bwa import BatchAndWeights
from fedtailor.environments.decisions import Decisions
from fedtailor.environments.hapfl import IntensityAllocation, SizeAllocation
from fedtailor.environments.heads import HeadAggregation

__all__ = ["BatchAndWeights", "Decisions", "HeadAggregation", "IntensityAllocation", "SizeAllocation"]

gymnasium.register("fedtailor/BatchAndWeights-v0", entry_point="fedtailor.environments:BatchAndWeights")
gymnasium.register("fedtailor/HeadAggregation-v0", entry_point="fedtailor.environments:HeadAggregation")
gymnasium.register("fedtailor/IntensityAllocation-v0", entry_point="fedtailor.environments:IntensityAllocation")
gymnasium.register("fedtailor/SizeAllocation-v0", entry_point="fedtailor.environments:SizeAllocation")
