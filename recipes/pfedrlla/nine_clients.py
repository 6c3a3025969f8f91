"""The paper's Fig. 3: whose head goes into whose, with agents that learn and one that does not.

``python recipes/pfedrlla/nine_clients.py RUNS_DIR`` runs recipes/pfedrlla/nine-clients.toml into RUNS_DIR, with seeds
0, 1 and 2, and writes docs/results/pfedrlla-nine-clients.md and .png. What is there already is not run again.
"""

import sys
import time
from pathlib import Path

import numpy as np

from fedtailor.runs import Run, experiment, run
from fedtailor.views.drawings.pfedrlla import mean_weights, weights_figure
from fedtailor.views.provenance import made_by

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RECIPE = Path(__file__).with_name("nine-clients.toml")
SEEDS = (0, 1, 2)
COMMON = {  # blocks (who receives, who gives) of three clients each
    "the same classes": [(0, 0), (1, 1), (2, 2)],
    "one class": [(0, 1), (1, 0)],
    "none": [(0, 2), (1, 2), (2, 0), (2, 1)],
}

AGENTS: dict[str, tuple[dict[str, int], bool]] = {  # changes of the agent's settings, and whether it sees similarities
    "learns": ({}, False),
    "learns, sees similarities": ({}, True),
    "does not learn": ({"updates": 0}, False),
}


def main(runs: Path) -> None:
    begin = time.monotonic()
    lines = [
        "# pfedrlla-nine-clients",
        "",
        "Nine clients of digits:",
    ]
    lines += ["three with 0 and 1, three with 1 and 2, three with 5 and 6. The mean weight, over the last fifth of the"]
    lines += ["rounds, of a peer's head by what the two have in common; equal weights are 0.111.", ""]
    lines += ["![weights](pfedrlla-nine-clients.png)", ""]
    lines += [f"| agent | seed | {' | '.join(COMMON)} | itself |", "| --- | --- | --- | --- | --- | --- |"]
    for agent, (changes, sees) in AGENTS.items():
        for seed in SEEDS:
            folder = runs / f"pfedrlla-nine-clients-{agent.replace(' ', '-').replace(',', '')}-s{seed}"
            if not folder.exists():
                settings = experiment(RECIPE).as_dict()
                ((name, table),) = settings["method"]["agents"].items()
                method = {**settings["method"], "agents": {name: table | changes}, "similarities": sees}
                run({**settings, "seed": seed, "method": method}, folder=folder).close()
            with Run(folder) as done:
                given = mean_weights(done)
                if sees and seed == 0:
                    weights_figure(done).savefig(RESULTS / "pfedrlla-nine-clients.png")
            lines.append(f"| {agent} | {seed} | {' | '.join(f'{value:.3f}' for value in by_kind(given))} |")
    lines += ["", made_by("python recipes/pfedrlla/nine_clients.py RUNS_DIR", begin, SEEDS)]
    page = RESULTS / "pfedrlla-nine-clients.md"
    page.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(page)


def by_kind(given: "np.ndarray") -> list[float]:  # type: ignore[type-arg]
    own = float(given.diagonal().mean())
    others = np.where(np.eye(9, dtype=bool), np.nan, given).reshape(3, 3, 3, 3)  # (kind, client, kind, client)
    return [*(float(np.nanmean([others[i, :, j] for i, j in blocks])) for blocks in COMMON.values()), own]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
