"""Requests that a method's generators may yield while they prepare or finish a round."""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedtailor.messages.payload import Payload

if TYPE_CHECKING:
    from fedtailor.parties.decision import Decided

Key = int | str  # a client's id, or the name of an own slot


@dataclass(frozen=True)
class Ask:
    """Ask clients to run the method's function of this name.

    ``replies = yield Ask("assess", {client: payload})`` calls ``method.assess(client, payload) -> Payload`` on each
    client. Clients that failed are missing from the replies; ``replies.failed`` has the reasons.

    Parameters
    ----------
    name : str
        The name of the method's function.
    payloads : mapping of int to Payload
        What each client receives. Other clients are not asked.

    Examples
    --------
    >>> def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
    ...     payload = Payload({"model": server.weights})
    ...     replies = yield Ask("assess", dict.fromkeys(cohort, payload))
    ...     return {client: payload for client in replies}
    """

    name: str
    payloads: Mapping[int, Payload]


@dataclass(frozen=True)
class Decide:
    """Ask for a decision that the method declares.

    ``decision = yield Decide("size", {client: [seconds], ...})`` returns a `Decided`: ``decision["size"]`` has a number
    for every client, or is one number if the kind of action is shared by all.

    Parameters
    ----------
    name
        The name of the declared decision.
    rows
        The features of every slot, by client id or by the name of an own slot.
    about
        The client that the decision is about, if a round makes one decision per client.
    absent
        Keys of rows whose slots are masked as empty.
    context
        Values that deciders and rewards need but the agent does not see. They are kept with the decision.

    Examples
    --------
    >>> def prepare(self, server: Server, cohort: Sequence[int]) -> Steps:
    ...     decision = yield Decide("size", {client: [server.sizes[client]] for client in cohort})
    ...     return {client: Payload(config={"size": decision["size"][client]}) for client in cohort}
    """

    name: str
    rows: Mapping[Any, "Sequence[float] | Tensor"]
    about: int | None = None
    absent: Collection[Key] = ()
    context: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reward:
    """The reward of a decision: ``yield Reward(decision, 0.3)``.

    Parameters
    ----------
    decision : Decided
        The decision, which may be one of an earlier round.
    value : float
        The reward.
    objective : float, optional
        What pre-training ranks episodes by; the reward by default.

    Examples
    --------
    >>> def finish(self, server: Server, replies: Replies) -> Steps:
    ...     server.weights = server.average(replies)
    ...     loss = sum(reply.number("loss") for reply in replies.values()) / len(replies)
    ...     yield Reward(server.decisions["size", None], -loss)
    """

    decision: "Decided"
    value: float
    objective: float | None = None


Steps = Generator[Ask | Decide | Reward, Any, Any]
