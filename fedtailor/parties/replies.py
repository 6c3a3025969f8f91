"""The answers of a cohort."""

from collections.abc import Iterator, Mapping

from fedtailor.messages.payload import Payload
from fedtailor.parties.clock import Duration


class Replies(Mapping[int, Payload]):
    """The answers of a cohort in the order of client ids, and why the others did not answer.

    ``times`` is what this phase took every client that was not dropped, where there is a clock (else empty).
    """

    def __init__(
        self, answers: Mapping[int, Payload], failed: Mapping[int, str], times: Mapping[int, Duration] | None = None
    ):
        self._answers = dict(sorted(answers.items()))
        self.failed = dict(sorted(failed.items()))
        self.times = dict(sorted((times or {}).items()))

    def computed(self, client: int, work: float) -> float:
        """The seconds a client computed in this phase; without a clock its work, as if all devices were equal."""
        return self.times[client].compute if client in self.times else work

    def __getitem__(self, client: int) -> Payload:
        return self._answers[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)
