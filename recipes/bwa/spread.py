"""How far BWA's agent moves the aggregation weights, by the setting `spread`.

``python recipes/bwa/spread.py`` writes docs/results/bwa-spread.md. There is no federation: of ten clients the first
five have a higher accuracy in the state, and the reward of a decision is the weight of these five together, without
noise. An episode has ten decisions. At equal weights the five have 0.50. Means of three seeds, decided greedily.
"""

import sys
import time
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from fedtailor.agents import Integer, Simplex
from fedtailor.methods.adjustment import FEATURES
from fedtailor.methods.bwa import BWA
from fedtailor.seeding import torch_stream
from fedtailor.views.provenance import made_by

RESULTS = Path(__file__).parents[2] / "docs" / "results"
CLIENTS, GOOD, ROUNDS = 10, 5, 10
SPREADS = (0.1, 0.3, 0.5, 1.0)
SEEDS = (0, 1, 2)
SHOWN = (1, 2, 5, 10, 15)  # episodes
TRIALS = 50  # states that the greedy policy is judged in


def state(*names: int | str) -> Tensor:
    made = torch.randn(CLIENTS, len(FEATURES), generator=torch_stream(*names))
    made[:GOOD, 1] += 2  # accuracy of the client
    return made


def learned(spread: float, seed: int, network: str) -> list[float]:
    """The weight of the good clients, decided greedily, after each of the episodes shown."""
    settings = BWA().agents.adjustment.model_copy(update={"network": network})
    kinds = {"batch": Integer(1, 64, 10), "weights": Simplex(deviation=spread, unit=spread)}
    agent = settings.build(CLIENTS, len(FEATURES), kinds, torch_stream(seed, "agent"))
    found = []
    for episode in range(1, max(SHOWN) + 1):
        for round in range(ROUNDS):
            seen = state(seed, episode, round)
            action = agent.act(seen, stream=torch_stream(seed, episode, round, "exploration"))
            reward = float(agent.split(action)["weights"][:GOOD].sum())
            agent.observe(seen, action, reward, done=round == ROUNDS - 1)
        agent.learn(torch_stream(seed, episode, "learning"))
        if episode in SHOWN:
            trials = [agent.split(agent.act(state(seed, "trial", i)))["weights"] for i in range(TRIALS)]
            found.append(fmean(float(weights[:GOOD].sum()) for weights in trials))
    return found


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    begin = time.monotonic()
    about = " ".join((__doc__ or "").partition("``docs")[0].split())
    lines = ["# bwa-spread", "", about.replace("``python", "`python").replace("spread.py``", "spread.py`"), ""]
    lines += [f"| network | spread | {' | '.join(f'after {n}' for n in SHOWN)} |", "| --- " * (len(SHOWN) + 2) + "|"]
    for network in ("flat", "per-slot"):
        for spread in SPREADS:
            means = [fmean(values) for values in zip(*(learned(spread, seed, network) for seed in SEEDS), strict=True)]
            lines.append(f"| {network} | {spread:g} | {' | '.join(f'{mean:.2f}' for mean in means)} |")
            print(lines[-1], flush=True)
    lines += ["", made_by("python recipes/bwa/spread.py", begin, SEEDS)]
    (folder / "bwa-spread.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else RESULTS)
