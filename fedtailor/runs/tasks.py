"""Client tasks: built when the engine asks for them; their results come in order."""

import io
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from fedtailor.engines import Engine, Result, Task
from fedtailor.methods import Moment, Payload
from fedtailor.runs.callbacks import Callback
from fedtailor.runs.store import Store
from fedtailor.runs.timing import Stopwatch


class Tasks:
    """Builds the tasks of clients and hands them to the engine."""

    def __init__(self, engine: Engine, store: Store, callbacks: Callback, stateful: set[int]):
        self.engine, self.store, self.callbacks = engine, store, callbacks
        self.stateful = stateful  # clients whose state is in the store
        self.scope = "client"  # of their states
        self.stopwatch = Stopwatch()

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
        """A task; its payload is packed and its client's state is read only when the engine asks for it.

        ``states`` holds client states of this round that are not stored yet.
        """

        def make(index: int) -> Task:
            state = None
            if states is not None and client in states:
                state = states[client]
            elif client in self.stateful:
                with self.stopwatch.phase("store"):
                    state = self.store.state(self.scope, client)
            with self.stopwatch.phase("codec"):
                data = packed.of(payload)
            return Task(kind, index, moment, client, data, state, **more)

        return make

    def execute(self, tasks: Sequence[Callable[[int], Task]]) -> Iterator[Result]:
        """Results in the order of the tasks, each as soon as all earlier ones have arrived."""
        early: dict[int, Result] = {}
        kinds: dict[int, str] = {}
        given = 0

        def made() -> Iterator[Task]:
            for index, later in enumerate(tasks):
                task = later(index)
                kinds[index] = task.kind
                yield task

        for result in self.engine.run(made()):
            early[result.index] = result
            self.stopwatch.worked(result.worker, kinds.get(result.index, ""), result.seconds)
            self.callbacks.task_done(given + len(early), len(tasks))
            while given in early:
                yield early.pop(given)
                given += 1
        yield from (early[index] for index in sorted(early))  # results after a task that never answered


class Spool(MutableMapping[int, bytes | None]):
    """New client states, in a temporary file if they are large: those of a round may not fit into memory."""

    HELD = 2**25  # bytes in memory

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(self.HELD)  # noqa: SIM115, closed with the round
        weakref.finalize(self, self._file.close)
        self._places: dict[int, tuple[int, int] | None] = {}  # first byte and number of bytes

    def __setitem__(self, client: int, state: bytes | None) -> None:
        if state is None:
            self._places[client] = None
            return
        self._places[client] = self._file.seek(0, io.SEEK_END), len(state)
        self._file.write(state)

    def __getitem__(self, client: int) -> bytes | None:
        place = self._places[client]
        if place is None:
            return None
        self._file.seek(place[0])
        return self._file.read(place[1])

    def __delitem__(self, client: int) -> None:
        del self._places[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Packed:
    """Packs payloads into bytes. A payload that several clients share is packed once; only a few are cached."""

    KEPT = 4

    def __init__(self) -> None:
        self._known: dict[int, tuple[Payload, bytes]] = {}

    def of(self, payload: Payload) -> bytes:
        found = self._known.pop(id(payload), None) or (payload, payload.pack())
        self._known[id(payload)] = found  # keeps the payload too, so that no other object gets its id
        if len(self._known) > self.KEPT:
            self._known.pop(next(iter(self._known)))
        return found[1]
