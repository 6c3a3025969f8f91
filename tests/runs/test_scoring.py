"""How one model is scored on the test sets of many clients."""

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedtailor.engines import Result, Task
from fedtailor.learning import Score
from fedtailor.messages.trees import pack
from fedtailor.methods import Moment
from fedtailor.runs.scoring import REMEMBERED, Scorer

MODEL = pack({"w": torch.ones(1)})


class Recorded:
    """Stands in for `Tasks`: writes tasks down; client c gets c of 10 right; ``failing`` clients do not answer."""

    def __init__(self, failing: frozenset[int] = frozenset(), remote: bool = False):
        self.asked: list[Task] = []
        self.failing, self.engine = failing, SimpleNamespace(remote=remote)

    def execute(self, tasks: Sequence[Callable[[int], Task]]) -> Iterator[Result]:
        for index, make in enumerate(tasks):
            task = make(index)
            self.asked.append(task)
            scores: Any = {str(client): Score(client, 0.5 * client, 10) for client in reversed(task.clients)}
            if self.failing & set(task.clients):
                yield Result(index, -1, failure="no answer", details="where it happened")
            else:
                yield Result(index, -1, scores=scores)

    @property
    def groups(self) -> list[tuple[int, ...]]:
        return [tuple(task.clients) for task in self.asked]


def scorer(tasks: Recorded, sizes: Sequence[int], **more: Any) -> Scorer:
    return Scorer(tasks, sizes, Moment(0, round=1, rounds=2), **more)  # type: ignore[arg-type]


def test_neighbours_are_scored_together_up_to_a_fixed_number_of_samples() -> None:
    """A group is closed by the client that reaches 2048; clients without test samples are left out."""
    tasks = Recorded()
    found = scorer(tasks, [2000, 0, 48, 3000, 5, 6]).scores(MODEL, range(6))
    assert tasks.groups == [(0, 2), (3,), (4, 5)]
    assert found == {c: Score(c, 0.5 * c, 10) for c in (0, 2, 3, 4, 5)}
    assert list(found) == [0, 2, 3, 4, 5]


def test_each_client_is_scored_by_itself_where_data_stay_apart() -> None:
    tasks = Recorded()
    scorer(tasks, [5, 0, 7], together=False).scores(MODEL, range(3))
    assert tasks.groups == [(0,), (2,)]


def test_clients_without_test_samples_need_no_task_and_have_no_score() -> None:
    tasks = Recorded()
    assert scorer(tasks, [0, 0]).scores(MODEL, range(2)) == {}
    assert tasks.asked == []


def test_a_question_is_asked_once_and_another_model_network_or_cohort_is_another_question() -> None:
    tasks = Recorded()
    scores = scorer(tasks, [5, 5, 5]).scores
    for _ in range(2):
        scores(MODEL, range(3))
    assert len(tasks.asked) == 1
    scores(pack({"w": torch.zeros(1)}), range(3))
    scores(MODEL, [0, 1])
    scores(MODEL, range(3), "large")
    assert len(tasks.asked) == 4


def test_only_the_last_answers_are_remembered() -> None:
    tasks = Recorded()
    made = scorer(tasks, [5])
    models = [pack({"w": torch.full((1,), float(k))}) for k in range(REMEMBERED + 1)]
    for model in models:
        made.scores(model, [0])
    made.scores(models[-1], [0])
    made.scores(models[1], [0])
    assert len(tasks.asked) == len(models)
    made.scores(models[0], [0])
    assert len(tasks.asked) == len(models) + 1


def test_models_of_the_family_are_scored_with_their_own_network() -> None:
    tasks = Recorded()
    models = {"global": {"w": torch.ones(1)}, "large": {"w": torch.zeros(1)}}
    found = scorer(tasks, [5, 5], family={"large"}).models(models)
    assert [task.network for task in tasks.asked] == ["", "large"]
    assert found.keys() == models.keys()
    assert all(scores.keys() == {0, 1} for scores in found.values())


def test_a_client_that_does_not_answer_has_no_score_in_a_federation_and_ends_a_simulation() -> None:
    far = scorer(Recorded(frozenset({1}), remote=True), [5, 5, 5], together=False)
    assert far.scores(MODEL, range(3)).keys() == {0, 2}
    near = scorer(Recorded(frozenset({1})), [5, 5, 5], together=False)
    with pytest.raises(RuntimeError, match="no answer\nwhere it happened"):
        near.scores(MODEL, range(3))
