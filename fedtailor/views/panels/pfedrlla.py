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
    if len(found) < len(rows):
        words += (
            f" {len(rows) - len(found)} of {len(rows)} decisions are left out: this run did not record whose heads."
        )
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
    cohorts = _whole_cohorts(run)
    found = []
    for row in run.decisions() if rows is None else rows:
        about = row["about"]
        slots = row["slots"] or _implied(row, cohorts)
        weights: dict[int, float] = {}
        for slot, weight, known in zip(slots, row["action"].tolist(), row["mask"].tolist(), strict=False):
            if known and slot is not None:
                key = about if isinstance(slot, str) else slot  # its own head, before and after its training
                weights[key] = weights.get(key, 0.0) + weight
        if weights:
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


def _implied(row: Any, cohorts: dict[tuple[int, int], list[int]]) -> list[int]:
    """The slots of a decision in a run of an earlier version: the last cohort; nothing if a client of it failed."""
    about, when = row["about"], (row["episode"], row["round"])
    peers = cohorts.get(when, []) and cohorts.get((when[0], max(1, when[1] - 1)), [])
    others = [k for k in peers if k != about]
    return [*others, *[about] * (len(row["mask"]) - len(others))] if peers else []


def _whole_cohorts(run: Run) -> dict[tuple[int, int], list[int]]:
    """The cohorts of the rounds in which no client failed, by episode and round."""
    failed = {(event["episode"], event["round"]) for event in run.events()}
    cohorts = {(row["episode"], row["round"]): row["cohort"] for row in run.rounds()}
    return {when: cohort for when, cohort in cohorts.items() if when not in failed}
