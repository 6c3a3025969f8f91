import numpy as np
import pytest

from fedtailor.runs import Run
from fedtailor.views.panels import about, fedalp, panels
from tests.views.panels.conftest import Made

# 0 and 1 merge at height 1, 2 and 3 at height 2, all at height 5
TREE = np.array([[0, 1, 1.0, 2], [2, 3, 2.0, 2], [4, 5, 5.0, 4]])


def test_merges_belong_to_a_group_until_groups_meet() -> None:
    assert fedalp.merge_groups(TREE, [0, 0, 1, 1]) == {4: 0, 5: 1, 6: None}
    assert fedalp.cut_height(TREE, 2) == 3.5
    assert fedalp.cut_height(TREE, 4) == 0.5
    assert fedalp.in_groups([5, 6, 7, 8], {5: 1, 6: 0, 7: 1, 8: 0}) == [1, 3, 0, 2]


def test_the_tree_psi_and_similarities_are_those_of_the_run(made: Made) -> None:
    with Run(made("fedalp")) as run:
        state = run.server_state("groups", "clustering")
        shown = {panel["kind"] + panel["title"].partition(" ")[0]: panel for panel in panels(run)}
    tree, psi, cosines = shown["treeWard's"], shown["heatPsi"], shown["heatCosine"]
    members, found = state["groups"]["member"], state["clustering"]
    assert sorted(leaf["name"] for leaf in tree["leaves"]) == [str(k) for k in range(6)]
    assert {int(leaf["name"]): leaf["group"] for leaf in tree["leaves"]} == members
    assert len(tree["links"]) == 5
    assert sum(max(link["y"]) > tree["cut"] for link in tree["links"]) == 1  # two groups meet once
    assert (
        psi["frames"][0]["rows"]
        == found["psi"][:, [found["layers"].index(n) for n in psi["frames"][0]["across"]]].tolist()
    )
    order = fedalp.in_groups(found["clients"], members)
    assert cosines["frames"][0]["rows"] == found["similarity"][order][:, order].tolist()


def test_a_client_is_told_how_near_it_is_to_every_group(made: Made) -> None:
    with Run(made("fedalp")) as run:
        state = run.server_state("groups", "clustering")
        membership, near = about(run, 0)
    members, rho = state["groups"]["member"], state["clustering"]["similarity"]
    own = [float(rho[0, k]) for k in range(1, 6) if members[k] == members[0]]
    assert membership == f"It is in group {members[0]}, which has {len(own) + 1} of the clients."
    if own:
        assert f"group {members[0]} {np.mean(own):.3f}" in near
    others = [float(rho[0, k]) for k in range(6) if members[k] != members[0]]
    assert f"group {1 - members[0]} {np.mean(others):.3f}" in near


def test_before_there_are_groups_there_is_nothing(made: Made) -> None:
    with Run(made("fedalp", method={"name": "fedalp", "warmup": 1})) as run:
        assert panels(run) == []
        assert about(run, 0) == []


def test_a_number_of_groups_that_was_chosen_has_its_scores(made: Made) -> None:
    with Run(made("fedalp", method={"name": "fedalp"})) as run:
        scores = run.server_state("clustering")["clustering"]["scores"]
        (panel,) = [panel for panel in panels(run) if panel["kind"] == "curves"]
    assert dict(zip(panel["series"][0]["x"], panel["series"][0]["y"], strict=True)) == pytest.approx(scores)
