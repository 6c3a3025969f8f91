import pytest
import torch

from fedtailor.runs import Run
from fedtailor.views.panels import about, decisions, panels
from tests.views.panels.conftest import Made


def test_any_method_that_declares_decisions_is_shown(made: Made) -> None:
    """FedDRL has no panels of its own: a row per client, a column per round."""
    with Run(made("feddrl")) as run:
        table, rewards = panels(run)
        rows, declared = run.decisions(), run.declared()["impact"]
        given = decisions.about(run, 4, most=2)
        assert about(run, 4) == []  # it has no sentences of its own
    assert (table["title"], table["x"], table["y"]) == ("Decision: impact, factors", "round", "client")
    place = rows[1]["slots"].index(4)
    assert table["frames"][0]["rows"][4][1] == pytest.approx(decisions.answer(declared, rows[1], "factors")[4])
    assert rewards["series"][0]["y"] == [row["reward"] for row in rows]
    assert [one["round"] for one in given] == [2, 3]
    features = list(declared["features"])
    assert given[0]["saw"][features[0]] == f"{float(rows[1]['observation'][place, 0]):.4g}"
    assert given[0]["reward"] == rows[1]["reward"]


def test_numbers_belong_to_the_action_at_their_place() -> None:
    row = {"action": torch.tensor([8.0, 0.25, 0.75, 0.0]), "mask": torch.tensor([True, True, False])}
    row["slots"] = [5, "own", None]
    kinds = {"batch": {"per_slot": False}, "weights": {"per_slot": True}}
    declared = {"features": {}, "actions": kinds}
    assert decisions.answer(declared, row, "batch") == 8
    assert decisions.answer(declared, row, "weights") == {5: 0.25, "own": 0.75}


def test_records_without_slots_show_numbered_slots_and_never_guess() -> None:
    row = {"action": torch.tensor([0.25, 0.75]), "mask": torch.tensor([True, True]), "slots": None}
    assert decisions.answer(decisions.undeclared(row), row, "") == {"slot 0": 0.25, "slot 1": 0.75}
    several = {**row, "action": torch.tensor([8.0, 0.25, 0.75])}
    found = decisions.answer(decisions.undeclared(several), several, "")
    assert found == {"number 0": 8.0, "number 1": 0.25, "number 2": 0.75}


def test_a_decision_about_a_client_names_the_largest_answers(made: Made) -> None:
    with Run(made("pfedrlla")) as run:
        last = run.decisions()[-1]
        found = decisions.about(run, last["about"], most=100)
        other = [row for row in run.decisions() if row["about"] == last["about"]]
    assert len(found) == len(other)
    weights = dict(zip(last["slots"], last["action"].tolist(), strict=True))
    name = max((key for key in weights if key is not None), key=lambda key: weights[key])
    assert found[-1]["answer"]["weights"].startswith(f"{name}: {weights[name]:.3g}")
    assert any(said.endswith("numbers") for said in found[-1]["saw"].values())  # an embedding is not written out


def test_a_method_without_decisions_has_no_panels(made: Made) -> None:
    with Run(made("fedavg")) as run:
        assert panels(run) == []
