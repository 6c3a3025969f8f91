"""Does pFedRLLA's agent learn the right thing? The paper's Fig. 3 on digits, by its recipe."""

from pathlib import Path
from typing import Any

import pytest

from fedtailor.runs import experiment, run
from fedtailor.views.drawings.pfedrlla import mean_weights

RECIPE = Path(__file__).parents[2] / "recipes" / "pfedrlla" / "nine-clients.toml"


def weights(folder: Path, **changes: Any) -> dict[str, float]:
    """The mean weight that a client gives to a peer in the last rounds, by what the two have in common.

    Clients 0-2 have the digits 0 and 1, clients 3-5 1 and 2, clients 6-8 5 and 6.
    """
    settings = experiment(RECIPE).as_dict()
    settings |= {"evaluation": {"every": 0, "final": False}, "engine": {"kind": "inline"}}
    settings["method"] |= changes
    with run(settings, folder=folder) as done:
        given = mean_weights(done)
    pairs = [(i, j) for i in range(9) for j in range(9) if i != j]
    same = {(i, j) for i, j in pairs if i // 3 == j // 3}
    disjoint = {(i, j) for i, j in pairs if (i < 6) != (j < 6)}
    by = {"same": same, "disjoint": disjoint, "shared": set(pairs) - same - disjoint}
    return {common: sum(given[pair] for pair in of) / len(of) for common, of in by.items()}


@pytest.mark.slow
def test_the_agent_gives_more_to_who_is_more_alike(tmp_path: Path) -> None:
    learned = weights(tmp_path / "learned")
    assert learned["same"] > 1.25 * learned["shared"]
    assert learned["shared"] > 1.25 * learned["disjoint"]


@pytest.mark.slow
def test_an_agent_that_does_not_learn_treats_all_alike(tmp_path: Path) -> None:
    idle = weights(tmp_path / "idle", updates=0)
    assert max(idle.values()) < 1.05 * min(idle.values())
