"""What the records of a run are made of: the score of a model, and why a client was left out of a round.

Reading a run needs no more than this, so this module imports no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LATE = "late: "
DROPPED = "dropped out"
BROKEN = "its device failed"


@dataclass(frozen=True)
class Score:
    """The counts of an evaluation.

    Attributes
    ----------
    correct : int
        Samples classified correctly; 0 in a regression.
    loss : float
        The sum of the losses of all samples.
    samples : int
        The number of samples.
    values : mapping of str to float or None
        The values of further measures; None where a measure is undefined, as for a client with one class.
    sums : mapping of str to sequence of float
        What further measures need to be computed over the samples of all clients.
    """

    correct: int
    loss: float
    samples: int
    values: Mapping[str, float | None] = field(default_factory=dict)
    sums: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """The share of correct predictions; 0 without samples."""
        return self.correct / max(self.samples, 1)

    @property
    def mean_loss(self) -> float:
        """The mean loss of a sample; 0 without samples."""
        return self.loss / max(self.samples, 1)


def cause(reason: str) -> str:
    """A reason without its numbers, for counting.

    >>> cause("late: 12.3 s, deadline 10 s"), cause("dropped out")
    ('late', 'dropped out')
    """
    return LATE[:-2] if reason.startswith(LATE) else reason
