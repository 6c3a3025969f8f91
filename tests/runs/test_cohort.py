"""Who takes part in a round, and how many at most."""

from typing import Any

import pytest

from fedtailor.methods import Moment
from fedtailor.runs import experiment
from fedtailor.runs.cohort import choose_cohort, expected_cohort, largest_cohort


@pytest.mark.parametrize(
    ("participation", "most"),
    [
        ({}, 11),
        ({"ratio": 0.5}, 6),
        ({"ratio": 0.01}, 1),
        ({"ratio": 0.1}, 2),  # the ceiling of 1.1
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


@pytest.mark.parametrize(
    ("ratio", "clients", "wanted"), [(0.07, 100, 7), (0.1, 100, 10), (0.29, 100, 29), (0.25, 10, 3), (0.35, 10, 4)]
)
def test_a_cohort_is_the_ceiling_of_the_decimal_product(ratio: float, clients: int, wanted: int) -> None:
    """0.07 x 100 is 7.000000000000001 as a float, 0.25 x 10 and 0.35 x 10 lie between two whole numbers."""
    made = experiment({"participation": {"ratio": ratio}})
    assert len(choose_cohort(made, clients, Moment(0, round=1))) == largest_cohort(made, clients) == wanted


@pytest.mark.parametrize(
    ("participation", "mean"), [({"clients": 3}, 3), ({"ratio": 0.25}, 2.5), ({"ratio": [0.2, 0.4]}, 3), ({}, 10)]
)
def test_the_expected_cohort_counts_what_the_settings_say(participation: dict[str, object], mean: float) -> None:
    assert expected_cohort(experiment({"participation": participation}), 10) == pytest.approx(mean)
