"""The replay memory of an agent."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class Replay:
    """The latest ``capacity`` transitions. All transitions have tensors of the same names and shapes.

    Examples
    --------
    >>> replay = Replay(capacity=1000)
    >>> replay.push(state=torch.zeros(3, 2), reward=torch.tensor(0.5))
    >>> replay.sample(32, stream)["state"].shape
    torch.Size([32, 3, 2])
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._rows: dict[str, Tensor] = {}  # (allocated, ...); grows as transitions are pushed
        self._kept = 0
        self._next = 0  # index of the next transition; when the replay is full it replaces the oldest
        self._changed: set[int] = set()  # indices written since the last call of take_changed

    def __len__(self) -> int:
        return self._kept

    def push(self, **transition: Tensor) -> None:
        """Store a transition; in a full replay it replaces the oldest."""
        self._make_room(transition)
        for name, value in transition.items():
            self._rows[name][self._next] = value
        self._changed.add(self._next)
        self._kept = max(self._kept, self._next + 1)
        self._next = (self._next + 1) % self.capacity

    def sample(self, size: int, stream: torch.Generator) -> dict[str, Tensor]:
        """Draw ``size`` transitions uniformly, with replacement."""
        chosen = torch.randint(self._kept, (size,), generator=stream)
        return {name: rows[chosen] for name, rows in self._rows.items()}

    def take_changed(self) -> dict[int, dict[str, Tensor]]:
        """Return the transitions pushed since the last call, by index: those that are not stored yet."""
        changed, self._changed = sorted(self._changed), set()
        return {place: {name: rows[place].clone() for name, rows in self._rows.items()} for place in changed}

    @staticmethod
    def stored(transitions: Mapping[int, Mapping[str, Tensor]], following: int) -> dict[str, Any]:
        """Build the state of a replay from stored transitions; ``following`` is the index of the next one."""
        names = next(iter(transitions.values()), {})
        return {
            "rows": {name: torch.stack([transitions[place][name] for place in sorted(transitions)]) for name in names},
            "next": following,
        }

    def state_dict(self) -> dict[str, Any]:
        return {"rows": {name: rows[: self._kept] for name, rows in self._rows.items()}, "next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rows = {name: rows.clone() for name, rows in state["rows"].items()}
        self._kept = max((len(rows) for rows in self._rows.values()), default=0)
        self._next = state["next"]
        self._changed = set()

    def _make_room(self, transition: dict[str, Tensor]) -> None:
        for name, value in transition.items():
            rows = self._rows.get(name, torch.zeros(0, *value.shape, dtype=value.dtype))
            if self._next >= len(rows):
                more = min(max(len(rows), 64), self.capacity - len(rows))
                rows = torch.cat([rows, torch.zeros(more, *value.shape, dtype=value.dtype)])
            self._rows[name] = rows
