"""How well FedALP's groups agree with the clients' labels, as they were cut and as other ways would cut them.

``python recipes/fedalp/groups.py RUNS_DIR`` reads the runs that `fedtailor reproduce recipes/fedalp` left there and
writes docs/results/fedalp-groups.md.
"""

import sys
import time
from pathlib import Path
from typing import Any

from fedtailor.methods.clustering import choose, cut, ward
from fedtailor.runs import Run
from fedtailor.views.drawings.fedalp import agreement, true_labels
from fedtailor.views.provenance import made_by
from fedtailor.views.tables import Grid

PAGE = Path(__file__).parents[2] / "docs" / "results" / "fedalp-groups.md"
ABOUT = """# FedALP's groups

The number M of groups and the adjusted Rand index (1: the groups are the
labels) against each client's most frequent label; `used` is Ward on rows with M by silhouette. The other columns cut
the same similarities in other ways: M by the largest gap, Ward on condensed distances, M given as the number of labels.
"""
WAYS = (("rows", "gap"), ("condensed", "silhouette"), ("condensed", "gap"), ("rows", None))


def main(runs: Path) -> None:
    begin, seeds, rows = time.monotonic(), set[int](), []
    for place in sorted((runs / "reproduce-fedalp").glob("*-fedalp-s*")):
        with Run(place) as run:
            state, labels = run.server_state(), true_labels(run)
        if labels is not None and state["groups"]["member"]:
            kinds = len(set(labels))
            seeds.add(run.settings["seed"])
            used = f"{len(state['clustering']['psi'])}, {agreement(state['groups']['member'], labels):.2f}"
            name = place.name.rpartition("-")[0]  # without the key
            rows.append((name, str(kinds), used, *others(state["clustering"], labels, kinds)))
    header = ("run", "labels", "used: M, ARI", "rows, gap", "condensed", "condensed, gap", "M = labels")
    made = made_by("python recipes/fedalp/groups.py RUNS_DIR", begin, sorted(seeds))
    PAGE.write_text(f"{ABOUT}\n{Grid(header, tuple(rows)).markdown()}\n{made}\n", encoding="utf-8")
    print(PAGE)


def others(found: dict[str, Any], labels: list[int], kinds: int) -> list[str]:
    """The number of groups and the index, for each of the other ways."""
    cells = []
    for on, by in WAYS:
        tree = ward(found["similarity"], on)  # type: ignore[arg-type]
        count = kinds if by is None else choose(found["similarity"], tree, by)[0]  # type: ignore[arg-type]
        groups = dict(zip(found["clients"], cut(tree, count), strict=True))
        cells.append(f"{count}, {agreement(groups, labels):.2f}")
    return cells


if __name__ == "__main__":
    main(Path(sys.argv[1]))
