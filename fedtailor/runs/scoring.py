"""Scores one model on the test sets of many clients."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedtailor.engines import Task
from fedtailor.learning import Score
from fedtailor.messages.digests import digest
from fedtailor.messages.trees import pack
from fedtailor.methods import Moment
from fedtailor.runs.tasks import Tasks
from fedtailor.weights import Weights

# Test samples in one task. It is fixed because exact results depend on which samples are evaluated together.
SCORED_TOGETHER = 2048
REMEMBERED = 8  # number of models whose scores are kept


class Scorer:
    """Scores models, and caches the latest scores: a model that is both received and global is scored once."""

    def __init__(
        self,
        tasks: Tasks,
        sizes: Any,
        moment: Moment,
        family: Collection[str] = (),
        together: bool = True,
        tested: Sequence[int] | None = None,
    ):
        self.tasks, self.sizes, self.moment = tasks, sizes, moment
        self.tested = range(len(sizes)) if tested is None else tested  # the clients that models of the server meet
        self.together = SCORED_TOGETHER if together else 1
        self.family = family  # the names of the method's other networks
        self._memo: dict[tuple[str, str, tuple[int, ...]], dict[int, Score]] = {}

    def models(self, models: Mapping[str, Weights]) -> dict[str, dict[int, Score]]:
        """Score every model of the server on the test sets of all clients that are tested."""
        return {
            name: self.scores(pack(weights), self.tested, name if name in self.family else "")
            for name, weights in models.items()
        }

    def scores(self, weights: bytes, clients: Sequence[int], network: str = "") -> dict[int, Score]:
        """Score one model on the test sets of several clients; ``network`` names one of the method's family."""
        key = (digest(weights), network, tuple(clients))
        if key not in self._memo:
            tasks = [
                lambda index, group=group: Task(
                    "score", index, self.moment, payload=weights, clients=group, network=network
                )
                for group in _cut(clients, self.sizes, self.together)
            ]
            scores: dict[int, Score] = {}
            for result in self.tasks.execute(tasks):
                if result.failure is not None and self.tasks.engine.remote:
                    continue  # a client that does not answer has no score
                if result.failure is not None:
                    raise RuntimeError(f"evaluation failed: {result.failure}\n{result.details}")
                scores |= {int(client): score for client, score in result.scores.items()}
            self._memo = {**dict(list(self._memo.items())[1 - REMEMBERED :]), key: dict(sorted(scores.items()))}
        return self._memo[key]


def _cut(clients: Sequence[int], sizes: Any, together: int) -> list[tuple[int, ...]]:
    """Group neighbouring clients by about ``together`` test samples; clients without test samples are left out."""
    groups: list[tuple[int, ...]] = []
    group: list[int] = []
    count = 0
    for client in clients:
        if sizes[client] == 0:
            continue
        group.append(client)
        count += int(sizes[client])
        if count >= together:
            groups.append(tuple(group))
            group, count = [], 0
    return [*groups, tuple(group)] if group else groups
