import pytest

from fedtailor.runs import Run
from fedtailor.views.panels import bwa, panels
from tests.views.panels.conftest import Made


def test_batch_sizes_and_weights_are_those_of_the_decisions(made: Made) -> None:
    with Run(made("bwa")) as run:
        shown = {panel["title"]: panel for panel in panels(run)}
        rows, cohorts = run.decisions(), [row["cohort"] for row in run.rounds()]
    assert list(shown) == [
        "Decision: adjustment, batch",
        "Decision: adjustment, weights",
        "Evenness of the weights",
        "Rewards of adjustment",
    ]
    batches = shown["Decision: adjustment, batch"]["series"][0]
    assert batches["y"] == [float(row["action"][0]) for row in rows]
    table = shown["Decision: adjustment, weights"]["frames"][0]
    assert table["down"] == [str(client) for client in sorted({k for cohort in cohorts for k in cohort})]
    for place, (row, cohort) in enumerate(zip(rows, cohorts, strict=True)):
        column = {int(name): cells[place] for name, cells in zip(table["down"], table["rows"], strict=True)}
        weights = {client: value for client, value in column.items() if value is not None}
        assert weights == dict(zip(cohort, row["action"][1:].tolist(), strict=True))


def test_evenness_is_one_for_equal_weights_and_one_of_k_for_one_client(made: Made) -> None:
    with Run(made("bwa")) as run:
        row = run.decisions()[0]
    equal, single = row["action"].clone(), row["action"].clone()
    equal[1:], single[1:], single[2] = 1 / 3, 0, 1
    assert bwa.evenness({**row, "action": equal}, "both") == pytest.approx(1)
    assert bwa.evenness({**row, "action": single}, "both") == pytest.approx(1 / 3)
