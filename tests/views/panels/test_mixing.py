import pytest

from fedtailor.runs import Run
from fedtailor.views.panels import about, mixing, panels
from tests.views.panels.conftest import Made


def test_mean_weights_are_those_of_the_clients_states(made: Made) -> None:
    with Run(made("fedah")) as run:
        table, shares = panels(run)
        mix = run.client_state(2)["mix"]
        (said,) = about(run, 2)
    frame = table["frames"][0]
    assert frame["across"] == list(mix) == [one["label"] for one in shares["series"]]
    assert frame["rows"][2] == [float(tensor.mean()) for tensor in mix.values()]
    assert any(value < 1 for row in frame["rows"] for value in row)  # it learned
    mean = sum(float(t.sum()) for t in mix.values()) / sum(t.numel() for t in mix.values())
    assert f"the mean {mean:.3f}" in said


def test_weights_that_are_not_learned_stay_where_they_start(made: Made) -> None:
    with Run(made("fedah", method={"name": "fedah", "eta": 0, "start": 0.25})) as run:
        rows = panels(run)[0]["frames"][0]["rows"]
    assert {value for row in rows for value in row} == {0.25}


def test_large_states_are_read_of_few_clients(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run(made("fedah")) as run:
        size = sum(t.nbytes for part in run.client_state(0).values() for t in part.values())
        monkeypatch.setattr(mixing, "BYTES", 3 * size)
        assert list(mixing.mixing_weights(run)) == [0, 2, 5]
        assert "3 of 6 clients, evenly spaced." in panels(run)[0]["note"]
