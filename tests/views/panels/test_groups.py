from fedtailor.runs import Run
from fedtailor.views.panels import about, panels
from fedtailor.views.panels.groups import groups
from tests.views.panels.conftest import Made


def test_groups_are_those_that_the_method_keeps(made: Made) -> None:
    with Run(made("ifca")) as run:
        chosen = run.server_state("chosen")["chosen"]
        assert groups(run) == chosen
        (panel,) = panels(run)
        assert sum(panel["series"][0]["y"]) == len(chosen) == 6
        assert about(run, 0)[0].startswith(f"It is in group {chosen[0]},")
    with Run(made("fedalp")) as run:
        assert groups(run) == run.server_state("groups")["groups"]["member"]


def test_other_methods_have_none(made: Made) -> None:
    for method in ("fedavg", "fedah", "pfedrlla"):
        with Run(made(method)) as run:
            assert groups(run) == {}
