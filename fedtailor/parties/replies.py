"""The replies of a cohort."""

from collections.abc import Iterator, Mapping

from fedtailor.messages.payload import Payload, Rejected
from fedtailor.parties.clock import Duration


class Replies(Mapping[int, Payload]):
    """The replies of a cohort: a mapping from client id to payload, in the order of ids.

    Attributes
    ----------
    failed : dict[int, str]
        The clients that did not reply, with the reason.
    times : dict[int, Duration]
        The time that each client that did not drop out took in this phase; empty without a clock.

    Examples
    --------
    >>> for client, reply in replies.items():
    ...     server.memory[client]["model"] = reply["model"]
    """

    def __init__(
        self, answers: Mapping[int, Payload], failed: Mapping[int, str], times: Mapping[int, Duration] | None = None
    ):
        self._answers = dict(sorted(answers.items()))
        self.failed = dict(sorted(failed.items()))
        self.times = dict(sorted((times or {}).items()))

    def computed(self, client: int, work: float) -> float:
        """The seconds that a client computed in this phase; without a clock ``work``, as if devices were equal.

        Parameters
        ----------
        client : int
            A client that replied.
        work : float
            The work of its task in any unit.

        Returns
        -------
        float
            The seconds, or the work.

        Examples
        --------
        >>> seconds = {client: replies.computed(client, work=server.sizes[client]) for client in replies}
        """
        return self.times[client].compute if client in self.times else work

    def __getitem__(self, client: int) -> Payload:
        return self._answers[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)


def check_peers(reply: Payload, clients: int) -> None:
    """Raise `Rejected` unless the numbers ``peers`` of a reply are different ids of clients."""
    peers = reply.several("peers")
    if len(peers) > clients or not {*peers} <= {*range(clients)} or len({*peers}) < len(peers):
        raise Rejected("peers are not ids of clients")
