"""The replay keeps the latest transitions."""

import torch

from fedtailor.agents import Replay
from fedtailor.messages.trees import pack, unpack
from fedtailor.seeding import torch_stream


def numbers(replay: Replay) -> list[float]:
    drawn = replay.sample(1000, torch_stream("draw"))
    assert torch.equal(drawn["twice"], drawn["value"] * 2)  # a transition stays together
    return sorted(set(drawn["value"].tolist()))


def push(replay: Replay, *values: float) -> None:
    for value in values:
        replay.push(value=torch.tensor(value), twice=torch.tensor(2 * value))


def test_the_oldest_are_replaced_when_it_is_full() -> None:
    replay = Replay(5)
    push(replay, 0, 1, 2)
    assert (len(replay), numbers(replay)) == (3, [0, 1, 2])
    push(replay, 3, 4, 5, 6)
    assert (len(replay), numbers(replay)) == (5, [2, 3, 4, 5, 6])
    push(replay, *range(7, 100))
    assert (len(replay), numbers(replay)) == (5, [95, 96, 97, 98, 99])


def test_it_takes_room_for_what_it_keeps_only() -> None:
    replay = Replay(10**12)
    push(replay, *range(200))
    assert (len(replay), numbers(replay)[:3]) == (200, [0, 1, 2])
    assert len(replay._rows["value"]) < 500


def test_a_restored_replay_goes_on_like_the_one_that_was_saved() -> None:
    for count in (0, 3, 64, 65, 70, 150):
        one, other = Replay(70), Replay(70)
        push(one, *range(count))
        other.load_state_dict(unpack(pack(one)).state)
        assert pack(other) == pack(one)
        for replay in (one, other):
            push(replay, 1000, 1001)
        assert pack(other) == pack(one)
        assert numbers(other) == numbers(one)


def test_transitions_are_drawn_evenly() -> None:
    replay = Replay(10)
    push(replay, *range(4))
    drawn = replay.sample(8000, torch_stream("even"))["value"]
    counts = torch.bincount(drawn.long()) / 8000
    assert (counts - 0.25).abs().max() < 0.02


def test_only_what_changed_is_taken_to_be_stored() -> None:
    """Places 0, 1, 2; then 3 and, since there is room for four, 0 again; then nothing."""
    replay = Replay(4)
    push(replay, 10, 11, 12)
    assert {place: float(row["value"]) for place, row in replay.take_changed().items()} == {0: 10, 1: 11, 2: 12}
    push(replay, 13, 14)
    taken = replay.take_changed()
    assert {place: float(row["twice"]) for place, row in taken.items()} == {0: 28, 3: 26}
    assert replay.take_changed() == {}
    push(replay, 15)
    taken[0]["value"].zero_()  # a copy
    assert 14 in numbers(replay)


def test_rows_that_were_stored_one_by_one_make_the_same_replay() -> None:
    for count in (0, 3, 70, 75, 150):
        one, other, kept = Replay(70), Replay(70), {}
        for value in range(count):
            push(one, value)
            if value % 7 == 0:
                kept.update(one.take_changed())
        kept.update(one.take_changed())
        other.load_state_dict(Replay.stored(kept, one.state_dict()["next"]))
        assert pack(other) == pack(one)
        for replay in (one, other):
            push(replay, 1000)
        assert pack(other) == pack(one)
        assert sorted(other.take_changed()) == sorted(one.take_changed()) == [count % 70]
