"""Clients that never took part: the server welcomes each of them alone, and it adapts what it receives."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fedtailor.engines import Result, Task
from fedtailor.errors import UserError
from fedtailor.methods import Clock, Moment, Payload, Server
from fedtailor.runs.assembly import Assembly
from fedtailor.runs.ledger import Round
from fedtailor.runs.phases import Phases
from fedtailor.runs.tasks import Packed, Tasks


@dataclass(frozen=True)
class Welcome:
    """Welcomes clients from outside the federation. Nothing of a run changes.

    Each is alone with the server as it is after its last round: a new client's model depends on no other new client.
    """

    made: Assembly
    server: Server
    phases: Phases
    tasks: Tasks
    clock: Clock | None  # with the devices of the new clients; None without devices

    def adapt(self, clients: Sequence[int], passes: Sequence[int | None], keeps: bool) -> Iterator[Result]:
        """Let these clients receive and adapt; for each in turn a result for each number of passes over its data.

        None stands for the epochs of the run. With ``keeps``, the results hold the models.
        """
        makers: list[Callable[[int], Task]] = []
        failures: dict[int, str] = {}
        for client in clients:
            payload, states, moment, failure = self._payload(client)
            if payload is None:
                failures[client] = failure
                continue
            later = partial(self.tasks.later, "adapt", client, payload, Packed(), moment, states)
            makers += [later(greedy=True, want_model=keeps, passes=number) for number in passes]
        for client, failure in failures.items():
            yield from (Result(-1, client, failure=failure) for _ in passes)
        yield from self.tasks.execute(makers)

    def _payload(self, client: int) -> tuple[Payload | None, Mapping[int, bytes | None], Moment, str]:
        """What a client receives, its state after the method's questions, and the reason if it receives nothing."""
        method, federation = self.made.method, self.made.job.federation
        samples, name = len(federation.train[client]), federation.name(client)
        server = self.server.welcoming(method.start_server, client, samples, self.clock, name)
        work = Round(server.moment)
        try:
            payloads = self.phases.drive(method.welcome(server, client), server, work, preview=True)
        except UserError as refusal:
            return None, {}, server.moment, str(refusal)
        states = {client: work.states.get(client)}
        return payloads.get(client), states, server.moment, work.failed.get(client, "it received no model")
