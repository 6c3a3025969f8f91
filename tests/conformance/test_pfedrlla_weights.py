"""Does pFedRLLA's agent learn the right thing? The paper's Fig. 3 on digits."""

from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from fedtailor.runs import experiment, run

RECIPE = Path(__file__).parents[2] / "recipes" / "pfedrlla" / "nine-clients.toml"
KINDS = [0, 0, 0, 1, 1, 1, 2, 2, 2]  # digits 0 and 1, 1 and 2, 5 and 6
LAST = 10  # rounds


def weights(folder: Path, **changes: Any) -> dict[str, float]:
    """The mean weight that a client gives to a peer in the last rounds, by what the two have in common."""
    settings = experiment(RECIPE).as_dict()
    settings |= {"evaluation": {"every": 0, "final": False}, "engine": {"kind": "inline"}}
    settings["method"] |= changes
    found: dict[str, list[float]] = {"same": [], "shared": [], "disjoint": []}
    with run(settings, folder=folder) as done:
        for row in done.decisions():
            if row["round"] <= settings["rounds"] - LAST:
                continue
            peers = [j for j in range(9) if j != row["about"]]
            for j, weight in zip(peers, row["action"].tolist(), strict=False):  # then an empty slot and the client's own
                one, other = KINDS[row["about"]], KINDS[j]
                common = "same" if one == other else "disjoint" if 2 in (one, other) else "shared"
                found[common].append(weight)
    return {common: mean(values) for common, values in found.items()}


@pytest.mark.slow
def test_the_agent_gives_more_to_who_is_more_alike(tmp_path: Path) -> None:
    """Twice as much to the same classes as to a shared one, and a quarter more to that than to none."""
    learned = weights(tmp_path / "learned")
    assert learned["same"] > 1.5 * learned["shared"]
    assert learned["shared"] > 1.25 * learned["disjoint"]


@pytest.mark.slow
def test_an_agent_that_does_not_learn_treats_all_alike(tmp_path: Path) -> None:
    idle = weights(tmp_path / "idle", updates=0)
    assert max(idle.values()) < 1.05 * min(idle.values())
