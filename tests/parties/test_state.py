"""Dataclasses that pack themselves."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtailor.messages.trees import pack, plain, restore, unpack
from fedtailor.parties import State


@dataclass
class Split(State):
    round: int
    sides: tuple[list[int], ...]


class Counter:
    """An object that start_server builds."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


@dataclass
class Groups(State):
    psi: Tensor | None = None
    member: dict[int, int] = field(default_factory=dict)
    splits: list[Split] = field(default_factory=list)
    latest: Split | None = None
    by_client: dict[int, list[Split]] = field(default_factory=dict)
    counter: Counter = field(default_factory=Counter)


def stored_and_restored(state: Groups) -> Groups:
    found: Groups = restore({"groups": Groups()}, unpack(pack({"groups": state})))["groups"]
    return found


def test_every_field_comes_back_with_its_type() -> None:
    groups = Groups(torch.tensor([0.1, 0.2]), {3: 1}, [Split(2, ([0], [1, 3]))], Split(4, ()), {7: [Split(5, ([1],))]})
    groups.counter.count = 3
    found = stored_and_restored(groups)
    assert torch.equal(found.psi, groups.psi)  # type: ignore[arg-type]
    assert found.counter.count == 3
    assert (found.member, found.splits, found.latest) == (groups.member, groups.splits, groups.latest)
    assert found.by_client == groups.by_client


def test_an_empty_state_comes_back_empty() -> None:
    found = stored_and_restored(Groups())
    assert found.psi is None
    assert found.latest is None
    assert found.splits == []


def test_a_stored_state_is_plain_to_look_at() -> None:
    assert plain(unpack(pack(Split(2, ([0], [1]))))) == {"round": 2, "sides": [[0], [1]]}


def test_a_state_with_other_fields_is_refused() -> None:
    with pytest.raises(ValueError, match=r"stored Split has \['round'\], expected \['round', 'sides'\]"):
        Split.restored({"round": 1})


def test_an_object_that_was_not_built_is_refused() -> None:
    class Other(Groups):
        """Has no counter of its own at the start."""

    stored = unpack(pack(Groups()))
    with pytest.raises(TypeError, match="build it in start_server"):
        Other.restored(stored.state)
