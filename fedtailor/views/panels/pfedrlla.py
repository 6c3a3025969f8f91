"""pFedRLLA: which heads its agent mixes for which client, round by round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtailor.runs import Run
from fedtailor.views.panels import decisions
from fedtailor.views.panels.kinds import Frame, Labels, Panel, heat

LAST = 0.2  # share of the last rounds that the mean covers
MOST = 100  # most clients in the table of means


@dataclass(frozen=True)
class Mixture:
    """The weights of heads in the head that a client receives."""

    episode: int
    round: int
    client: int
    weights: dict[int, float]  # by the client whose head it is; its own head counts as one


def panels(run: Run) -> list[Panel]:
    rows = run.decisions()
    if not rows:
        return []
    label, found = Labels(run), mixtures(run, rows)
    each = run.settings["rounds"]
    by_round: dict[int, list[Mixture]] = {}
    for one in found:
        by_round.setdefault(one.episode * each + one.round, []).append(one)
    words = "A row is a client that receives a head, a column a client whose head is mixed into it."
    shown = [heat("Weights of heads", words, [_frame(n, of, label) for n, of in by_round.items()], **AXES)]
    if run.client_count <= MOST:
        names = [label(k) for k in range(run.client_count)]
        means = [[None if np.isnan(value) else value for value in row] for row in mean_weights(run, found).tolist()]
        note = f"The mean over the last {100 * LAST:.0f} % of the rounds."
        shown.append(heat("Mean weights of heads", note, [Frame("", means, names, names)], **AXES))
    return [*shown, *decisions.rewards(run, rows)]


AXES: dict[str, Any] = {"x": "head of", "y": "client", "unit": "weight"}


def mixtures(run: Run, rows: Sequence[Any] | None = None) -> list[Mixture]:
    """Every decision of the agent, with the clients that its weights belong to."""
    answered = _answered(run)
    found = []
    for row in run.decisions() if rows is None else rows:
        about = row["about"]
        if row["slots"] is None:  # a run of an earlier version: the order of the slots is that of the last cohort
            cohorts = answered[row["episode"]]
            peers = [k for k in cohorts.get(row["round"] - 1) or cohorts[row["round"]] if k != about]
            slots = [*peers, *[about] * (len(row["mask"]) - len(peers))]
        else:
            slots = [about if isinstance(slot, str) else slot for slot in row["slots"]]
        weights: dict[int, float] = {}
        for slot, weight, known in zip(slots, row["action"].tolist(), row["mask"].tolist(), strict=True):
            if known and slot is not None:
                weights[slot] = weights.get(slot, 0.0) + weight
        found.append(Mixture(row["episode"], row["round"], about, weights))
    return found


def mean_weights(run: Run, found: Sequence[Mixture] | None = None) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """(clients, clients), of the last episode: a row for each target, NaN where two clients never met."""
    episode, last = max((row["episode"], row["round"]) for row in run.rounds())
    count = run.client_count
    sums, times = np.zeros((count, count)), np.zeros((count, count))
    for one in mixtures(run) if found is None else found:
        if one.episode == episode and one.round > (1 - LAST) * last:
            for k, weight in one.weights.items():
                sums[one.client, k] += weight
                times[one.client, k] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / times)


def about(run: Run, client: int) -> list[str]:
    """What the agent mixed for a client in its latest round."""
    own = [one for one in mixtures(run) if one.client == client]
    if not own:
        return []
    label, latest = Labels(run), own[-1]
    most = sorted(latest.weights.items(), key=lambda item: -item[1])[:5]
    parts = ", ".join(f"{'its own' if k == client else label(k)} {weight:.3f}" for k, weight in most)
    return [
        f"In round {latest.round} its head was mixed from {len(latest.weights)} heads; the largest weights: {parts}."
    ]


def _frame(n: int, of: Sequence[Mixture], label: Labels) -> Frame:
    across = sorted({k for one in of for k in one.weights})
    rows = [[one.weights.get(k) for k in across] for one in of]
    return Frame(f"round {n}", rows, [label(one.client) for one in of], [label(k) for k in across])


def _answered(run: Run) -> dict[int, dict[int, list[int]]]:
    """By episode and round, the clients of the cohort that did not fail."""
    failed = {(event["episode"], event["round"], event["client"]) for event in run.events()}
    found: dict[int, dict[int, list[int]]] = {}
    for row in run.rounds():
        when = (row["episode"], row["round"])
        found.setdefault(when[0], {})[when[1]] = [k for k in row["cohort"] if (*when, k) not in failed]
    return found
