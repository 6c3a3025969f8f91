"""Tasks of clients: made when their turn comes, executed by an engine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedtailor.engines import Engine, Result, Task
from fedtailor.methods import Moment, Payload
from fedtailor.runs.store import Store
from fedtailor.runs.watch import Watch


class Tasks:
    """Knows which clients have a state in the store, and has tasks executed."""

    def __init__(self, engine: Engine, store: Store, watch: Watch, stateful: set[int]):
        self.engine, self.store, self.watch = engine, store, watch
        self.stateful = stateful  # clients whose state is in the store

    def later(
        self,
        kind: Any,
        client: int,
        payload: Payload,
        packed: "Packed",
        moment: Moment,
        states: Mapping[int, bytes | None] | None = None,
        **more: Any,
    ) -> Callable[[int], Task]:
        """A task whose payload is packed, and whose client state is read, only when its turn comes.

        ``states`` are those of this round, which are not stored yet.
        """

        def make(index: int) -> Task:
            state = None
            if states is not None and client in states:
                state = states[client]
            elif client in self.stateful:
                state = self.store.state("client", client)
            return Task(kind, index, moment, client, packed.of(payload), state, **more)

        return make

    def execute(self, tasks: Sequence[Callable[[int], Task]]) -> Iterator[Result]:
        """Results in the order of the tasks."""
        results: dict[int, Result] = {}
        for result in self.engine.run(task(index) for index, task in enumerate(tasks)):
            results[result.index] = result
            self.watch.task_done(len(results), len(tasks))
        return iter([results[index] for index in sorted(results)])


class Packed:
    """Payloads as bytes. One that several clients get is packed once; of those of one client only a few are kept."""

    KEPT = 4

    def __init__(self) -> None:
        self._known: dict[int, tuple[Payload, bytes]] = {}

    def of(self, payload: Payload) -> bytes:
        found = self._known.pop(id(payload), None) or (payload, payload.pack())
        self._known[id(payload)] = found  # keeps the payload too, so that its id stays its own
        if len(self._known) > self.KEPT:
            self._known.pop(next(iter(self._known)))
        return found[1]
