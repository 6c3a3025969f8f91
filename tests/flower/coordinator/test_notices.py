"""What nodes have a part in reaches the coordinator's terminal as text, and not as a flood."""

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.flower.coordinator.notices import MOST, SECONDS, Notices


def test_control_characters_are_escaped_and_lines_are_limited() -> None:
    said: list[str] = []
    say = Notices(said.append)
    say("a node was refused: \x1b[2J\r\nerror: \x9b31m \u202e é")
    say("x" * 10_000)
    assert said[0] == "a node was refused: \\x1b[2J error: \\x9b31m \\u202e é"
    assert len(said[1]) == 500


def test_a_flood_is_cut_and_its_size_is_said() -> None:
    said: list[str] = []
    now = [0.0]
    say = Notices(said.append, lambda: now[0])
    for number in range(1000):
        say(f"sentence {number}")
    assert len(said) == MOST
    now[0] = SECONDS + 1
    say("and now?")
    assert said[MOST:] == [f"{1000 - MOST} sentences like the last ones were left out", "and now?"]
