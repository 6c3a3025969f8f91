"""Gymnasium environments: the decisions of a federation for any reinforcement-learning library.

``import fedtailor.environments`` registers the environments in `REGISTERED`. Then
``gymnasium.make("fedtailor/HeadAggregation-v0", settings="scenario.toml")`` makes one of them.
`DecisionEnvironment` is the environment of any decision that a method declares.
"""

from importlib.util import find_spec

from fedtailor.errors import UserError

if find_spec("gymnasium") is None:
    raise UserError("environments need gymnasium: pip install 'fedtailor[rl]'")

import gymnasium

from fedtailor.environments.decision import DecisionEnvironment

__all__ = ["REGISTERED", "DecisionEnvironment"]

REGISTERED = {  # the method and the decision of every environment
    "fedtailor/BatchAndWeights-v0": ("bwa", "adjustment"),
    "fedtailor/HeadAggregation-v0": ("pfedrlla", "head-weights"),
    "fedtailor/IntensityAllocation-v0": ("hapfl", "intensity"),
    "fedtailor/SizeAllocation-v0": ("hapfl", "size"),
}

for _name, (_method, _decision) in REGISTERED.items():
    gymnasium.register(
        _name,
        entry_point="fedtailor.environments:DecisionEnvironment",
        kwargs={"method": _method, "decision": _decision},
    )
