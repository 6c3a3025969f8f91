"""Reads messages of unknown origin: an error in one is a failure of its sender only."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from fedtailor.errors import one_line
from fedtailor.messages.payload import Rejected

T = TypeVar("T")


@dataclass(frozen=True)
class Admitted(Generic[T]):
    """What was read from a message, or the reason why it cannot be used."""

    value: T | None = None
    reason: str | None = None
    details: str = ""  # the traceback of an error that no check foresees


def admitted(read: Callable[[], T]) -> Admitted[T]:
    """Read and check one message.

    Checks raise `Rejected` or a ValueError. Any other error is a message that no check foresees. It is the failure of
    this message too: one node must not be able to end the run of all. This is the only place that catches everything.

    Parameters
    ----------
    read : callable
        Reads, checks and returns the message.

    Examples
    --------
    >>> admitted(lambda: Payload.unpack(b"garbage")).reason
    'not a payload: damaged bytes (...)'
    """
    try:
        return Admitted(read())
    except (Rejected, ValueError) as refusal:
        return Admitted(reason=one_line(str(refusal)))
    except Exception as error:
        reason = one_line(f"{type(error).__name__}: {error}")
        return Admitted(reason=reason, details=traceback.format_exc())
