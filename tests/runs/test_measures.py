"""From counts per client to the numbers of a table."""

import math

import pytest

from fedtailor.learning import Score
from fedtailor.runs.measuring import measures


def test_three_clients_by_hand() -> None:
    scores = {2: Score(5, 10.0, 10), 0: Score(20, 5.0, 20), 1: Score(0, 30.0, 10)}  # 0.5, 1.0, 0.0
    found = measures(scores, round=2, untrained=4)
    assert found.as_dict() == pytest.approx(
        {
            "round": 2,
            "accuracy": 0.5,
            "pooled": 25 / 40,
            "deviation": math.sqrt((0.25 + 0.25) / 3),
            "worst": 0.0,
            "worst_tenth": 0.0,
            "loss": (1.0 + 0.25 + 3.0) / 3,
            "pooled_loss": 45 / 40,
            "clients": 3,
            "samples": 40,
            "untrained": 4,
        }
    )


def test_the_worst_tenth_of_25_clients_are_three() -> None:
    scores = {client: Score(100 - client, 0.0, 100) for client in range(25)}
    found = measures(scores)
    assert found.worst == pytest.approx(0.76)
    assert found.worst_tenth == pytest.approx((0.76 + 0.77 + 0.78) / 3)


@pytest.mark.parametrize(("clients", "tenth"), [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_a_tenth_is_rounded_up(clients: int, tenth: int) -> None:
    scores = {client: Score(client, 0.0, 100) for client in range(clients)}
    assert measures(scores).worst_tenth == pytest.approx(sum(range(tenth)) / tenth / 100)


def test_clients_without_test_samples_do_not_count() -> None:
    with_empty = {0: Score(3, 2.0, 4), 1: Score(0, 0.0, 0), 2: Score(1, 2.0, 4)}
    without = {0: with_empty[0], 2: with_empty[2]}
    assert measures(with_empty) == measures(without)
    assert measures(with_empty).clients == 2


@pytest.mark.parametrize("scores", [{}, {0: Score(0, 0.0, 0)}])
def test_without_a_tested_client_there_is_nothing_to_say(scores: dict[int, Score]) -> None:
    found = measures(scores, round=1, untrained=2)
    assert (found.round, found.clients, found.samples, found.untrained) == (1, 0, 0, 2)
    assert list(found.as_dict().values()).count(None) == 7


def test_the_order_of_clients_does_not_change_a_bit() -> None:
    scores = {client: Score(client % 7, client * 0.1, 7 + client % 3) for client in range(50)}
    assert measures(scores) == measures(dict(reversed(scores.items())))
