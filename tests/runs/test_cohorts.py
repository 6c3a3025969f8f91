"""Who takes part in a round, and how many at most."""

from typing import Any

import pytest

from fedtailor.methods import Moment
from fedtailor.runs import experiment
from fedtailor.runs.cohort import choose_cohort, largest_cohort


@pytest.mark.parametrize(
    ("participation", "most"),
    [
        ({}, 11),
        ({"ratio": 0.5}, 6),
        ({"ratio": 0.01}, 1),
        ({"ratio": [0.1, 0.6]}, 7),
        ({"clients": 4}, 4),
    ],
    ids=str,
)
def test_no_round_has_more_clients_than_the_largest_cohort_and_some_round_has_as_many(
    participation: dict[str, Any], most: int
) -> None:
    made = experiment({"participation": participation})
    assert largest_cohort(made, 11) == most
    assert max(len(choose_cohort(made, 11, Moment(0, round=round))) for round in range(1, 60)) == most
