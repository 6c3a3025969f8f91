"""The phases of a round: in which order clients get their tasks."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

import fedtailor
from fedtailor.engines import Inline, Result, Task
from fedtailor.methods import Payload, Server
from fedtailor.methods.fedavg import FedAvg
from fedtailor.runs import Resources


class Uneven(FedAvg):
    """Clients with higher numbers train longer."""

    def prepare(self, server: Server, cohort: Sequence[int]) -> dict[int, Payload]:
        return {client: Payload({"model": server.weights}, config={"epochs": 10**client}) for client in cohort}


class Odd(FedAvg):
    """Epochs of this method are not what the framework knows."""

    def prepare(self, server: Server, cohort: Sequence[int]) -> dict[int, Payload]:
        return {client: Payload({"model": server.weights}, config={"epochs": "many"}) for client in cohort}


class Watched(Inline):
    order: tuple[int, ...] = ()

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        for task in tasks:
            self.order += (task.client,)
            yield from super().run([task])


@pytest.mark.parametrize("method", [FedAvg(), Uneven(), Odd()])
def test_the_client_that_trains_longest_begins_first(method: FedAvg, tmp_path: Path) -> None:
    settings = {
        "rounds": 1,
        "data": {"clients": 4, "samples": 200, "partition": {"kind": "dirichlet", "alpha": 0.5}},
        "method": method,
        "participation": {"clients": 4},
        "evaluation": {"every": 0, "final": False},
        "engine": {"kind": "inline"},
    }
    engine = Watched()
    made = fedtailor.experiment(settings)
    with fedtailor.run(made, folder=tmp_path / "run", resources=Resources(engine=engine)) as run:
        sizes = run._store.meta("sizes")
    lengths = [size * (10**client if isinstance(method, Uneven) else 1) for client, size in enumerate(sizes)]
    assert engine.order == tuple(sorted(range(4), key=lambda client: (-lengths[client], client)))
    assert (len(set(sizes)), engine.order != (0, 1, 2, 3)) == (4, True)
