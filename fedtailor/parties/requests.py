"""What a method's generators may ask for while they prepare or finish a round."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedtailor.messages.payload import Payload


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
    """Ask for a decision: ``action = yield Decide("head-weights", observation)``.

    The framework answers from a script or an environment if there is one, else from ``method.decide``, and
    records observation and action; a `Reward` completes the record later.
    """

    name: str
    observation: Tensor
    mask: Tensor | None = None
    about: int | None = None  # the client that is decided about, where a round decides about several


@dataclass(frozen=True)
class Reward:
    """The reward of this round's latest decision of this name (and client): ``yield Reward("head-weights", 0.3)``."""

    name: str
    value: float
    about: int | None = None


Steps = Generator[Ask | Decide | Reward, Any, Any]
