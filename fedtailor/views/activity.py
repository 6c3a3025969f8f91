"""What the five systems did in a comparison, in a sentence each, with the command that draws it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from fedtailor.runs import Comparison, Run
from fedtailor.views.panels.mixing import mixing_weights


def activities(comparison: Comparison) -> list[str]:
    """One sentence per row about the run of its first seed, for methods that have a sentence in ACTIVITIES."""
    found = []
    for label, folders in comparison.runs().items():
        if not folders:
            continue
        with Run(folders[0]) as run:
            sentence = activity(run) if run.finished else None
            if sentence is not None:
                found.append(f"{label} {sentence}: fedtailor draw {run.folder}")
    return found


def activity(run: Run) -> str | None:
    """What the method of a run did, without its name; None for methods without a sentence."""
    tell = ACTIVITIES.get(str(run.settings["method"]["name"]))
    return None if tell is None else tell(run)


def _mixed(run: Run) -> str | None:
    """pFedRLLA: how much of a client's head is its own."""
    rows = run.decisions()
    last = [row for row in rows if row["round"] > 0.8 * max(one["round"] for one in rows)]
    if not last:
        return None
    own = 2 if run.settings["method"]["name"] == "pfedrlla-after" else 1
    shares = torch.tensor([float(row["action"][-own:].sum()) for row in last])
    peers = [float(row["action"][:-own].max()) for row in last if len(row["action"]) > own]
    who = _decider(run, "head_weights")
    most = f", and at most {100 * max(peers):.0f} % of one other client" if peers else ""
    low, high = 100 * float(shares.min()), 100 * float(shares.max())
    return f"weighed heads by {who}: {_between(low, high)} % of a mix were the client's own{most}"


def _adjusted(run: Run) -> str | None:
    """BWA: batch sizes and weights."""
    rows, controls = run.decisions(), run.settings["method"]["controls"]
    if not rows:
        return None
    parts = []
    if controls != "weights":
        batches = [int(row["action"][0]) for row in rows]
        known = f"{batches[0]} in every round" if len(set(batches)) == 1 else _path(batches)
        parts.append(f"batch sizes {known}")
    if controls != "batch":
        skip = 1 if controls == "both" else 0
        weights = torch.cat([row["action"][skip:][row["mask"]] * row["mask"].sum() for row in rows])
        parts.append(f"weights {_between(float(weights.min()), float(weights.max()), 2)} times equal ones")
    return f"chose by {_decider(run, 'adjustment')}: {' and '.join(parts)}"


def _allocated(run: Run) -> str | None:
    """HAPFL: sizes and epochs of the last round."""
    latest = run.server_state().get("timeline", {}).get("latest")
    if not latest:
        return None
    sizes, epochs = Counter(latest["sizes"].values()), sorted(latest["epochs"].values())
    handed = " and ".join(f"{number} x {size}" for size, number in sorted(sizes.items()))
    return (
        f"handed out by {_decider(run, 'size')}, in the last round: models {handed}, "
        f"{_between(epochs[0], epochs[-1])} epochs"
    )


def _grouped(run: Run) -> str | None:
    """FedALP: groups."""
    state = run.server_state()
    sizes = sorted(Counter(state["groups"]["member"].values()).values(), reverse=True)
    if not sizes:
        return None
    return (
        f"found {len(sizes)} groups after round {state['clustering']['round']}, of {', '.join(map(str, sizes))} clients"
    )


def _aggregated(run: Run) -> str | None:
    """FedAH: weights of the global head."""
    means = [
        float(torch.cat([weight.flatten() for weight in mix.values()]).mean()) for mix in mixing_weights(run).values()
    ]
    if not means:
        return None
    low, high = 100 * min(means), 100 * max(means)
    return f"learned how much of the global head every client takes: {_between(low, high)} %"


def _decider(run: Run, decision: str) -> str:
    method = run.settings["method"]
    decider = method["agents"].get(decision, {}).get("decider", "agent")
    if decider != "agent":
        return f"the rule '{decider}'"
    policy = method.get("policy")
    return {"none": "an agent that learned meanwhile", "built-in": "its built-in policy"}.get(policy, "its policy")


def _between(low: float, high: float, digits: int = 0) -> str:
    first, last = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return first if first == last else f"{first} to {last}"


def _path(numbers: list[int]) -> str:
    """The first, a middle and the last of several numbers."""
    shown = dict.fromkeys((0, len(numbers) // 2, len(numbers) - 1))
    return ", later ".join(str(numbers[place]) for place in shown)


ACTIVITIES: dict[str, Callable[[Run], str | None]] = {
    "pfedrlla": _mixed,
    "pfedrlla-after": _mixed,
    "bwa": _adjusted,
    "adaptive-b": _adjusted,
    "adaptive-aw": _adjusted,
    "hapfl": _allocated,
    "fedalp": _grouped,
    "fedah": _aggregated,
}


def as_document(comparison: Comparison) -> list[dict[str, Any]]:
    """The sentences by row, for ``--json``."""
    return [dict(zip(("did", "draw"), sentence.rsplit(": ", 1), strict=True)) for sentence in activities(comparison)]
