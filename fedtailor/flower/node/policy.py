"""What a node's owner permits. The node checks every message before it does what the message asks for."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedtailor.engines import Result, Task
from fedtailor.errors import UserError
from fedtailor.flower.folders import make_private
from fedtailor.learning import sample_rate
from fedtailor.methods import find
from fedtailor.runs.accounting import combined_epsilon

FILE = "privacy.json"  # in the node's folder: what its data have been used for, over all runs


@dataclass(frozen=True)
class Policy:
    """The limits of a node's owner; a limit that is None or empty permits everything.

    Method, training and data of a task are those that the node itself executes, so that a coordinator cannot claim
    one thing and have another done. The size of a cohort and the noise that the server adds are what the coordinator
    says: no node can see them.

    Attributes
    ----------
    methods : frozenset of str
        The methods that this node takes part in.
    peers : bool
        Whether methods may show its models to other clients.
    smallest_cohort : int
        The least number of clients whose replies are put together.
    largest_epsilon : float or None
        The most that its data may be used for, over all runs of this folder: a run must be private, by record-level or
        client-level differential privacy, and every level that it has must stay within this bound.
    """

    methods: frozenset[str] = field(default_factory=frozenset)
    peers: bool = True
    smallest_cohort: int = 1
    largest_epsilon: float | None = None

    def check(self, header: Mapping[str, Any], tasks: list[Task], folder: Path) -> None:
        """Raise a `UserError` if a message asks for something that the owner does not permit."""
        name = header["job"]["method"][0]
        if self.methods and name not in self.methods:
            raise UserError(f"its owner permits only {', '.join(sorted(self.methods))}, not {name} (--methods)")
        if not self.peers and find(name).may_show_peers():
            raise UserError(
                f"its owner does not permit {name}, which may show its models to other clients (--no-peers)"
            )
        trains = any(task.kind in ("fit", "ask") for task in tasks)
        cohort = min(_count(header, "clients"), _count(header, "cohort") if trains else self.smallest_cohort)
        if cohort < self.smallest_cohort > 1:
            raise UserError(
                f"its owner permits cohorts of {self.smallest_cohort} clients or more, not of {cohort} "
                "(--smallest-cohort)"
            )
        if self.largest_epsilon is not None:
            self._check_private(header, tasks, Spent(folder / FILE))

    def charge(self, header: Mapping[str, Any], results: list[Result], samples: int, folder: Path) -> None:
        """Count what the answers would reveal, before they are sent; raise a `UserError` if it is too much."""
        if self.largest_epsilon is None:
            return
        spent = Spent(folder / FILE)
        rows = [*self._client_rows(header, sum(result.reply is not None for result in results))]
        private = header["job"]["training"].get("dp_sgd")
        steps = sum(result.trace.steps for result in results)
        if private is not None and steps:
            rate = sample_rate(header["job"]["training"]["batch_size"], samples)
            rows.append(("record", float(private["noise"]), rate, steps))
        self._check_spent([*spent.rows, *rows])
        spent.add(rows)

    def _check_private(self, header: Mapping[str, Any], tasks: list[Task], spent: "Spent") -> None:
        """Refuse before any work is done: a run without privacy, or one whose next sum is too much."""
        rows = self._client_rows(header, sum(task.kind in ("fit", "ask") for task in tasks))
        if header["job"]["training"].get("dp_sgd") is None and not _hides_clients(header):
            raise UserError(
                f"its owner permits an epsilon of {self.largest_epsilon:g}, and this run has no differential privacy "
                "(--largest-epsilon)"
            )
        self._check_spent([*spent.rows, *rows])

    def _client_rows(self, header: Mapping[str, Any], sums: int) -> list["Row"]:
        """The sums that this node takes part in. It knows that it does, so that sampling hides nothing from it."""
        if not _hides_clients(header) or not sums:
            return []
        return [("client", float(header["privacy"]["noise"]), 1.0, sums)]

    def _check_spent(self, rows: list["Row"]) -> None:
        assert self.largest_epsilon is not None
        for level in ("client", "record"):
            epsilon = combined_epsilon([row[1:] for row in rows if row[0] == level])
            if epsilon > self.largest_epsilon:
                raise UserError(
                    f"its owner permits an epsilon of {self.largest_epsilon:g}, and this would make the {level}-level "
                    f"one {epsilon:.3g} (--largest-epsilon)"
                )


Row = tuple[str, float, float, int]  # level, noise, rate, steps


class Spent:
    """What the data of a node have been used for, in a file that outlives the process."""

    def __init__(self, file: Path):
        self.file, self.rows = file, list[Row]()
        try:
            self.rows = [(str(a), float(b), float(c), int(d)) for a, b, c, d in json.loads(file.read_text("utf-8"))]
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError):
            raise UserError(f"its record of privacy {file.name} cannot be read: restore it from a copy") from None

    def add(self, rows: list[Row]) -> None:
        """Store further rows; equal ones are counted together."""
        counts: dict[tuple[str, float, float], int] = {}
        for level, noise, rate, steps in [*self.rows, *rows]:
            counts[level, noise, rate] = counts.get((level, noise, rate), 0) + steps
        self.rows = [(*key, steps) for key, steps in counts.items()]
        make_private(self.file.parent)
        draft = self.file.with_suffix(".part")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
            json.dump(self.rows, opened)
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(self.file)


def _hides_clients(header: Mapping[str, Any]) -> bool:
    return (header.get("privacy") or {}).get("level") == "client"


def _count(header: Mapping[str, Any], key: str) -> int:
    value = header.get(key)
    return value if type(value) is int else 0
