"""What a method's generators may ask for while they prepare or finish a round."""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedtailor.messages.payload import Payload

if TYPE_CHECKING:
    from fedtailor.parties.decision import Decided

Key = int | str  # a client's id, or the name of a slot of its own


@dataclass(frozen=True)
class Ask:
    """Ask clients for a task: the method's function of this name runs on each client.

    ``replies = yield Ask("assess", {client: payload})`` calls ``method.assess(client, payload) -> Payload``
    on the clients; those that failed are missing from the replies, with a reason in ``replies.failed``.
    """

    name: str
    payloads: Mapping[int, Payload]


@dataclass(frozen=True)
class Decide:
    """Ask for a decision that the method declares.

    ``decision = yield Decide("size", {client: [seconds], ...})`` gives a `Decided`: ``decision["size"]`` is a number
    for every client or, for a kind of action that is one for all, one number.

    Parameters
    ----------
    name
        The name of the declared decision.
    rows
        The features of every slot, by client or by the name of a slot of its own.
    about
        The client that is decided about, where a round decides about several.
    absent
        Keys of rows whose slots are not taken.
    context
        What deciders and rewards need and the agent does not see; kept with the decision.
    """

    name: str
    rows: Mapping[Any, "Sequence[float] | Tensor"]
    about: int | None = None
    absent: Collection[Key] = ()
    context: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reward:
    """The reward of a decision: ``yield Reward(decision, 0.3)``.

    ``objective`` is what pre-training ranks episodes by where that is not the reward.
    """

    decision: "Decided"
    value: float
    objective: float | None = None


Steps = Generator[Ask | Decide | Reward, Any, Any]
