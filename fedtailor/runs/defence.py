"""Protects a round from malicious replies before the method sees them: long changes are clipped, odd ones rejected."""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from fedtailor.messages.payload import Payload
from fedtailor.parties import Aggregation, Schema
from fedtailor.robust import robust_mean
from fedtailor.weights import Weights, cosine, delta, learned, norm, select


class Defence:
    """Filters the replies of a cohort by the settings of aggregation.

    A change is the difference between a model that a client sends and the one that it received. Where it received
    none (a model that a method asks for), changes count from the median of the models that were sent; they have no
    common direction, so that they are clipped and pass the gate.

    Parameters
    ----------
    settings
        The run's settings of aggregation.
    models
        The names of the groups that hold models: ``model`` and the networks of the method's family.
    statistics
        The names of running statistics, which are clipped by themselves: they have another scale.
    """

    def __init__(self, settings: Aggregation, models: Collection[str], statistics: Collection[str]):
        self.settings, self.models, self.statistics = settings, frozenset(models), frozenset(statistics)

    def filter(
        self, replies: Mapping[int, Payload], sent: Mapping[int, Payload], schema: Schema
    ) -> tuple[dict[int, Payload], dict[int, str]]:
        """The replies that the method may see, and the reason for every one that it may not.

        Parameters
        ----------
        replies
            The replies of the cohort, in the order of client ids.
        sent
            What these clients received.
        schema
            The declared form of the replies.
        """
        groups = {name for reply in replies.values() for name in reply.groups if name.partition("/")[0] in self.models}
        kept, reasons = dict(replies), dict[int, str]()
        for group in sorted(groups) if self.settings.filters else ():
            declared = schema.groups.get(group)
            absolute = declared is None or not declared.change
            rows = {k: reply[group] for k, reply in kept.items() if group in reply.groups}
            starts, received = _starts(rows, sent, group, absolute)
            changes = {k: _change(row, starts[k]) for k, row in rows.items()}
            for k, reason in (self._rejected(changes) if received else {}).items():
                reasons[k] = reason
                kept.pop(k)
            for k, change in self._clipped({k: changes[k] for k in rows if k in kept}).items():
                moved = {name: starts[k][name] + tensor for name, tensor in change.items()}
                kept[k] = Payload({**kept[k].groups, group: {**rows[k], **moved}}, kept[k].numbers, kept[k].config)
        return kept, reasons

    def _rejected(self, changes: Mapping[int, Weights]) -> dict[int, str]:
        """The clients whose change points away from the cohort's median change."""
        if self.settings.gate <= -1 or len(changes) < 3:  # of two changes either may be the odd one
            return {}
        moved = {k: learned(change, self.statistics) for k, change in changes.items()}
        together = robust_mean(list(moved.values()), [1.0] * len(moved), "median")
        angles = {k: cosine(change, together) for k, change in moved.items()}
        return {
            k: f"its change has a cosine of {angle:.2f} with the cohort's median change (aggregation.gate)"
            for k, angle in angles.items()
            if angle < self.settings.gate
        }

    def _clipped(self, changes: Mapping[int, Weights]) -> dict[int, Weights]:
        """The changes that are too long, shortened; those of running statistics by their own median."""
        found: dict[int, Weights] = {}
        if not self.settings.clip or not changes:
            return found
        names = next(iter(changes.values())).keys()
        for part in (names - self.statistics, names & self.statistics):
            lengths = {k: norm(select(change, part)) for k, change in changes.items()}
            limit = self.settings.clip * sorted(lengths.values())[(len(lengths) - 1) // 2]
            for k in [k for k, length in lengths.items() if length > limit]:
                shorter = {n: t * (limit / lengths[k]) for n, t in select(changes[k], part).items()}
                found[k] = {**found.get(k, {}), **shorter}
        return found


def _starts(
    rows: Mapping[int, Weights], sent: Mapping[int, Payload], group: str, absolute: bool
) -> tuple[Mapping[int, Mapping[str, Tensor]], bool]:
    """The tensors from which the changes of a group count, and whether they are what the clients received."""
    first = next(iter(rows.values()))
    if not absolute:
        zeros = {name: torch.zeros_like(tensor) for name, tensor in first.items()}
        return dict.fromkeys(rows, zeros), True
    if all(k in sent and group in sent[k].groups and row.keys() <= sent[k][group].keys() for k, row in rows.items()):
        return {k: sent[k][group] for k in rows}, True
    return dict.fromkeys(rows, robust_mean(list(rows.values()), [1.0] * len(rows), "median")), False


def _change(row: Weights, start: Mapping[str, Tensor]) -> Weights:
    """The change of all but whole-number tensors, such as counters of batches."""
    return delta({name: tensor for name, tensor in row.items() if tensor.is_floating_point()}, start)
