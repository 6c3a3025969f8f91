"""Options of one training that differ from the run's settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Concatenate, ParamSpec, TypeVar

from torch import Tensor

from fedtailor.learning.settings import TrainingSettings
from fedtailor.learning.steps import Batch, descend
from fedtailor.models import Network, Part

Objective = Callable[[Network, Tensor, Tensor], Tensor]

Self = TypeVar("Self")
Options = TypeVar("Options")
Result = TypeVar("Result")
P = ParamSpec("P")


@dataclass(frozen=True)
class TrainOptions:
    """The options of one training, for `train` and for ``client.train``, which takes the fields as keywords.

    Parameters
    ----------
    part
        The part to train: body, head, adapter, all, or a set of tensor names. The rest stays exactly as it is,
        including running statistics.
    epochs
        Passes over the data; the run's setting by default.
    steps
        Mini-batches, instead of epochs.
    lr
        Learning rate; the run's by default.
    batch_size
        Samples per mini-batch; the run's setting by default.
    toward, pull
        Add ``pull * (w - toward)`` to every gradient: that of the proximal term ``pull / 2 * |w - toward|^2``.
        Momentum and weight decay treat it as part of the loss.
    correction
        A tensor per parameter that is added to its gradient: a control variate.
    objective
        ``objective(network, inputs, targets)`` replaces the run's loss.
    step
        The function that trains on a mini-batch and returns the loss to report.
    until
        Called after every pass with the mean loss of each pass so far. The training stops when it returns true.

    Examples
    --------
    >>> TrainOptions("head", epochs=5)
    >>> TrainOptions(toward=client.received, pull=0.1)
    """

    part: Part | frozenset[str] = "all"
    _: KW_ONLY
    epochs: int | None = None
    steps: int | None = None
    lr: float | None = None
    batch_size: int | None = None
    toward: Mapping[str, Tensor] | None = None
    pull: float = 0.0
    correction: Mapping[str, Tensor] | None = None
    objective: Objective | None = None
    step: Callable[[Batch], Tensor] = descend
    until: Callable[[Sequence[float]], bool] | None = None

    def tensors(self, network: Network) -> frozenset[str]:
        """The names of the tensors that are trained."""
        return self.part if isinstance(self.part, frozenset) else network.part(self.part)

    def duration(self, settings: TrainingSettings) -> tuple[int, int | None]:
        """The number of epochs, and the number of steps if it replaces epochs."""
        steps = self.steps if self.steps is not None else (settings.steps if self.epochs is None else None)
        return settings.epochs if self.epochs is None else self.epochs, steps


def keywords_of(
    options: Callable[P, Options],
) -> Callable[[Callable[[Self, Options], Result]], Callable[Concatenate[Self, P], Result]]:
    """A decorator for a method that takes an options object: callers pass the fields of the object instead."""

    def decorate(method: Callable[[Self, Options], Result]) -> Callable[Concatenate[Self, P], Result]:
        @wraps(method)
        def call(self: Self, /, *arguments: P.args, **keywords: P.kwargs) -> Result:
            return method(self, options(*arguments, **keywords))

        owner = Parameter("self", Parameter.POSITIONAL_ONLY)
        call.__signature__ = Signature([owner, *signature(options).parameters.values()])  # type: ignore[attr-defined]
        return call

    return decorate
