"""Measures of a record, and verdicts, against numbers derived by hand."""

from typing import Any

import pytest

from fedtailor.errors import UserError
from fedtailor.runs.reproduce.claims import verdict
from fedtailor.runs.reproduce.measuring import measured, parse
from fedtailor.runs.reproduce.records import Record
from fedtailor.runs.reproduce.tables import Cell, lead_over


@pytest.mark.parametrize(
    ("differences", "limit", "sign", "expected"),
    [
        ([2.9, 3.0, 3.1], 0.0, 1, "holds"),  # half an interval is 0.1 * T_2 / sqrt(3) = 0.248
        ([-2.9, -3.0, -3.1], 0.0, 1, "does not"),
        ([-0.1, 0.0, 0.1], 0.0, 1, "level"),  # [-0.248, 0.248], narrower than 2
        ([-0.3, 0.0, 0.3], 0.0, 1, "level"),  # [-0.745, 0.745], 1.49 wide
        ([-0.5, 0.0, 0.5], 0.0, 1, "not decidable at this size"),  # [-1.242, 1.242], 2.48 wide
        ([1.0, 2.0, 3.0], 0.0, 1, "not decidable at this size"),  # [-0.484, 4.484]
        ([2.9, 3.0], 0.0, 1, "not decidable at this size"),  # two seeds
        ([], 0.0, 1, "not decidable at this size"),
        ([2.9, 3.0, 3.1], 2.5, 1, "holds"),  # [2.752, 3.248]
        ([2.9, 3.0, 3.1], 3.5, 1, "does not"),
        ([2.9, 3.0, 3.1], 3.0, 1, "level"),
        ([-2.9, -3.0, -3.1], -2.5, -1, "holds"),  # less is claimed
        ([2.9, 3.0, 3.1], 0.0, -1, "does not"),
        ([float("nan"), 1.0, 1.0], 0.0, 1, "not decidable at this size"),
        ([1.0, 1.0, 1.0], 0.0, 1, "holds"),  # no deviation
        ([0.0, 0.0, 0.0], 0.0, 1, "level"),
    ],
)
def test_verdicts(differences: list[float], limit: float, sign: int, expected: str) -> None:
    assert verdict(differences, limit, sign) == expected


def record(**changes: Any) -> Record:
    """Four rounds, evaluated at 2 and 4, in which 40 and then 50 % are right."""
    facts: dict[str, Any] = {
        "key": "", "experiment": "e", "method": "m", "seed": 0, "results": 1, "settings": {}, "data": "",
        "policy": None, "versions": {}, "clients": 2, "seconds": 4.0, "passes": 1.5,
        "rounds": {
            "cohort": [2, 2, 2, 2], "steps": [10, 20, 30, 40], "client_seconds": [1.0, 1.0, 1.0, 1.0],
            "seconds": [1.0] * 4, "bytes_down": [500_000] * 4, "bytes_up": [500_000] * 4,
        },
        "clock": {"end": [5.0, 9.0, 20.0, 30.0], "latency": [None, 2.0, 4.0, 6.0], "idle": [0.5, None, 0.25, None]},
        "failed": {"late": 3},
        "metrics": {
            "held": {"round": [2, 4], "accuracy": [0.5, 0.4], "loss": [1.0, 1.5]}
            | {"auroc": [0.7, 0.8], "macro-f1": [0.3, 0.2]}
        },
        "scores": {}, "rewards": {"size": [1.0, 2.0, 3.0, 4.0]},
    }  # fmt: skip
    return Record(**{**facts, **changes})


@pytest.mark.parametrize(
    ("text", "reference", "expected"),
    [
        ("held.accuracy", None, 40.0),
        ("held.accuracy max", None, 50.0),
        ("held.loss", None, 1.5),
        ("global.accuracy", None, None),
        ("held.auroc", None, 0.8),
        ("held.macro-f1", None, 20.0),
        ("held.macro-f1 max", None, 30.0),
        ("held.log-loss", None, None),
        ("rounds to held.accuracy 45", None, 2.0),
        ("rounds to held.accuracy 51", None, None),
        ("rounds to held.accuracy near 1", None, 2.0),
        ("rounds to held.accuracy of fedavg", 50.0, 2.0),
        ("steps to held.accuracy of fedavg", 45.0, 30.0),
        ("bytes to held.accuracy 45", None, 2.0),
        ("work to held.accuracy 45", None, 3.0),
        ("clock to held.accuracy 45", None, 9.0),
        ("held.accuracy within steps of fedavg", 99.0, 50.0),
        ("held.accuracy within steps of fedavg", 100.0, 40.0),
        ("held.accuracy within steps of fedavg", 29.0, None),
        ("held.accuracy after clock of hapfl", 9.0, 50.0),
        ("held.accuracy after clock of hapfl", 9.1, 40.0),
        ("held.accuracy after clock of hapfl", 99.0, 40.0),
        ("clock.seconds", None, 30.0),
        ("clock.latency", None, 4.0),
        ("clock.idle", None, 37.5),
        ("clock.late", None, 3.0),
        ("clock.dropped", None, 0.0),
        ("bytes", None, 4.0),
        ("bytes.up", None, 2.0),
        ("bytes.client", None, 500.0),
        ("rounds", None, 4.0),
        ("steps", None, 100.0),
        ("seconds", None, 4.0),
        ("reward.size", None, 2.5),
        ("reward.size first", None, 2.0),
        ("reward.size last", None, 3.0),
    ],
)
def test_measures(text: str, reference: float | None, expected: float | None) -> None:
    assert measured(parse(text), record(), reference) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([2.9, 3.0, 3.1], "holds"),
        ([-0.1, 0.0, 0.1], "holds"),  # level
        ([-0.3, -0.2, -0.1], "holds"),  # [-0.448, 0.048] is level, too
        ([-2.9, -3.0, -3.1], "does not"),
        ([1.0, 2.0, 3.0], "not decidable at this size"),
    ],
)
def test_a_claim_of_being_at_least_level_holds_if_the_rows_are_level(differences: list[float], expected: str) -> None:
    assert verdict(differences, level=True) == expected


@pytest.mark.parametrize("text", ["", "held", "held.accurracy", "rounds to held.accuracy", "held.accuracy within steps",
                                  "miles to held.accuracy 3", "held.accuracy of fedavg",
                                  "held.log-loss max", "rounds to held.rmse 3"])  # fmt: skip
def test_a_measure_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="measure"):
        parse(text)


def test_the_direction_of_a_measure_is_its_own() -> None:
    better = {name: parse(f"held.{name}").better for name in ("accuracy", "auroc", "r2", "rmse", "calibration-error")}
    assert better == {"accuracy": 1, "auroc": 1, "r2": 1, "rmse": -1, "calibration-error": -1}


def test_a_lead_is_over_the_best_other_row_seed_by_seed() -> None:
    accuracy = parse("held.accuracy")
    ours = Cell(accuracy, {0: 80.0, 1: 82.0, 2: 84.0})
    others = {
        "weak": Cell(accuracy, {0: 10.0, 1: 10.0, 2: 10.0}),
        "strong": Cell(accuracy, {0: 81.0, 1: 80.0, 3: 99.0}),
    }
    lead = lead_over(ours, others)
    assert lead is not None
    assert (lead.other, lead.differences) == ("strong", (-1.0, 2.0))  # of the seeds that both have
