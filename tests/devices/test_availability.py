"""Who is there when."""

from pathlib import Path

import pytest

from fedtailor.devices.availability import Always, Availability, Daily, Trace
from fedtailor.errors import UserError


def trace(folder: Path, *rows: str) -> Availability:
    (folder / "a.csv").write_text("\n".join(["client,begin,end", *rows, ""]))
    return Trace(file=folder / "a.csv").of(3, 0)


def test_without_windows_all_clients_are_available() -> None:
    found = Always().of(4, 0)
    for time in (0.0, 86_399.9, 86_400.0, 1e9):
        assert found.first(time) == (time, [0, 1, 2, 3])
    assert found.share(2) == 1.0


def test_windows_of_a_file_come_again_when_the_last_has_ended(tmp_path: Path) -> None:
    """Client 0 is there in [0, 10), 1 in [5, 20), 2 in [30, 40); the period is 40."""
    found = trace(tmp_path, "2,30,40", "0,0,10", "1,5,20")
    there = {0: [0], 5: [0, 1], 9.99: [0, 1], 10: [1], 20: [], 29: [], 30: [2], 40: [0], 45: [0, 1], 75: [2]}
    assert {time: found.at(time) for time in there} == there
    assert found.first(22.0) == (30.0, [2])
    assert found.first(62.0) == (70.0, [2])
    assert found.first(33.0) == (33.0, [2])
    assert [found.share(client) for client in range(3)] == [0.25, 0.375, 0.25]


def test_a_client_is_available_when_the_wait_ends() -> None:
    """Whatever the rounding: windows of a tenth at odd places, asked at odd moments for days."""
    found = Daily(share=0.01, day=0.7).of(3, 1)
    time = 0.1
    for _ in range(500):
        time, there = found.first(time)
        assert there
        time += 0.0137


def test_a_daily_window_has_its_length_and_an_hour_of_its_own() -> None:
    found = Daily(share=0.4, day=100.0).of(50, 0)
    for client in range(50):
        assert found.share(client) == pytest.approx(0.4)
        there = [client in found.at(time) for time in range(100)]
        assert sum(there) in (40, 41)
        assert sum(a != b for a, b in zip(there, there[1:] + there[:1], strict=True)) == 2  # one window, cyclic
    assert len({tuple(found.at(time)) for time in range(100)}) > 20
    assert Daily(share=1.0).of(3, 0).at(1234.5) == [0, 1, 2]


def test_the_hours_depend_on_the_seed() -> None:
    one, same, other = (Daily().of(5, seed) for seed in (0, 0, 1))
    assert one.begin.tolist() == same.begin.tolist() != other.begin.tolist()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["0,5,5"], "raise the end"),
        (["0,0,5", "0,4,6"], "overlap"),
        (["3,0,5"], "the clients are 0 to 2"),
        (["0.5,0,5"], "client 0.5"),
        (["0,zero,5"], "line 2: begin = 'zero'"),
        (["0,-1,5"], "begin"),
        (["0,nan,5"], "begin"),
        (["0,0,inf"], "end"),
        (["0,0"], "2 cells"),
        ([], "no rows"),
    ],
    ids=str,
)
def test_a_bad_trace_is_refused_in_one_sentence(tmp_path: Path, rows: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        trace(tmp_path, *rows)
    assert str(tmp_path / "a.csv") in str(error.value)
    assert "\n" not in str(error.value)
