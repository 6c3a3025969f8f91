"""What tasks and rounds take, by hand."""

import math
from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from fedtailor.devices import Devices, RoundTimes, VirtualClock, virtual_clock
from fedtailor.devices.profiles import Csv, LogNormal, Tier, Tiers, Uniform
from fedtailor.methods import Duration, Moment

STILL = {"noise": 0.0, "speed": 2.0, "down": 80.0, "up": 8.0, "latency": 0.25}  # 10 MB/s down, 1 MB/s up


def clock(sizes: tuple[int, ...] = (100, 200), seed: int = 0, **settings: object) -> VirtualClock:
    return virtual_clock(Devices(**{**STILL, **settings}), sizes, seed).at(Moment(seed, 0, 1))  # type: ignore[arg-type]


def test_a_task_takes_its_work_over_the_speed_and_its_bytes_over_the_bandwidths() -> None:
    """6e9 multiply-adds at 2e9/s; 5 MB down at 10 MB/s, 3 MB up at 1 MB/s, two messages of 0.25 s."""
    one = clock(profiles=Uniform(spread=1))
    found = one.task_time(0, 6e9, 5_000_000, 3_000_000)
    assert found == Duration(3.0, 0.5 + 0.5 + 3.0)
    assert found.seconds == 7.0


def test_an_epoch_is_three_forward_passes_over_the_clients_samples() -> None:
    """3 * 1e6 * 200 multiply-adds at 2e9/s."""
    one = clock(profiles=Uniform(spread=1))
    assert one.epoch_time(1, 1e6) == pytest.approx(0.3)
    assert one.epoch_time(1, 1e6) == one.task_time(1, 3 * 1e6 * 200, 9, 9).compute


def test_a_round_is_the_sum_of_its_phases_which_last_until_the_last_answer() -> None:
    """Phases of 5 and 10 s; client 0 computes 1 + 2, client 1 4 + 8; busy 1.5 + 3 and 5 + 10 of 15 s; 2 only asked."""
    times = RoundTimes(begin=100.0)
    times.phases.append({0: Duration(1, 0.5), 1: Duration(4, 1), 2: Duration(0, 1)})
    times.phases.append({0: Duration(2, 1), 1: Duration(8, 2)})
    assert (times.seconds, times.end) == (15.0, 115.0)
    assert times.clients == {0: Duration(3, 1.5), 1: Duration(12, 3), 2: Duration(0, 1)}
    assert times.latency([0, 1]) == 9.0
    assert times.idle([0, 1]) == pytest.approx((10.5 / 15 + 0) / 2)
    assert times.idle([1]) == 0.0
    assert (times.latency([1]), times.latency([]), times.idle([])) == (None, None, None)


def test_no_client_waits_longer_than_the_deadline() -> None:
    times = RoundTimes(begin=0.0, deadline=10.0)
    times.phases += [{0: Duration(4, 0), 1: Duration(12, 0.3)}, {0: Duration(10, 0)}]
    assert times.late(Duration(12, 0.3)) == "late: 12.3 s, deadline 10 s"
    assert times.late(Duration(10, 0)) is None
    assert times.seconds == 20.0
    assert times.idle([0, 1]) == pytest.approx(1 - (4 + 10 + 10) / 40)
    assert RoundTimes(0.0).late(Duration(1e9)) is None


def test_a_round_without_any_time_has_no_idle_share() -> None:
    times = RoundTimes(0.0, phases=[{0: Duration()}])
    assert (times.seconds, times.idle([0])) == (0.0, None)


# The same numbers every time


def test_a_device_is_as_busy_in_a_task_whatever_its_work_and_differently_in_the_next_round() -> None:
    one = clock(noise=0.5)
    factors = {one.at(Moment(0, episode, round)).slowness(k) for episode in (0, 1) for round in (1, 2) for k in (0, 1)}
    assert len(factors) == 8
    assert one.task_time(0, 4e9, 0, 0).compute == pytest.approx(4 * one.task_time(0, 1e9, 0, 0).compute)
    assert one.task_time(0, 1e9, 0, 0) == one.at(Moment(0, 0, 2)).at(Moment(0, 0, 1)).task_time(0, 1e9, 0, 0)


def test_assessment_and_training_have_draws_of_their_own_unless_a_round_has_one() -> None:
    """Over many rounds the logarithms of the two factors are independent, or equal."""
    apart, common = clock(noise=0.5), clock(noise=0.5, noise_per="round")
    pairs = [
        [math.log(apart.at(Moment(0, 0, round)).slowness(0, task)) for task in ("assess", "fit")]
        for round in range(1, 1000)
    ]
    assert fmean(a * b for a, b in pairs) == pytest.approx(0, abs=0.02)
    assert all(pstdev(column) == pytest.approx(0.5, abs=0.03) for column in zip(*pairs, strict=True))
    for round in (1, 2, 3):
        now = common.at(Moment(0, 0, round))
        assert now.slowness(0, "assess") == now.slowness(0, "fit") == apart.at(Moment(0, 0, round)).slowness(0)


def test_noise_is_as_large_as_it_is_set() -> None:
    one = clock(noise=0.3)
    logs = [math.log(one.at(Moment(0, 0, round)).slowness(0)) for round in range(1, 2000)]
    assert fmean(logs) == pytest.approx(0, abs=0.03)
    assert pstdev(logs) == pytest.approx(0.3, abs=0.02)


def test_a_device_fails_as_often_as_it_should() -> None:
    one = clock(failure=0.25)
    often = sum(one.at(Moment(0, 0, round)).fails(0) for round in range(1, 2001)) / 2000
    assert often == pytest.approx(0.25, abs=0.03)
    assert not any(clock().at(Moment(0, 0, round)).fails(0) for round in range(1, 100))


@pytest.mark.parametrize("family", [Uniform(), Tiers(), LogNormal(bandwidth=0.3)], ids=lambda f: f.kind)
def test_the_same_seed_gives_the_same_devices_and_another_seed_others(family: Uniform) -> None:
    sizes = (10,) * 12
    assert clock(sizes, profiles=family).profiles == clock(sizes, profiles=family).profiles
    assert clock(sizes, profiles=family).profiles != clock(sizes, seed=1, profiles=family).profiles
    own = virtual_clock(Devices(**STILL, profiles=family, seed=1), sizes, 0)  # type: ignore[arg-type]
    assert clock(sizes, seed=1, profiles=family).profiles == own.profiles


# Families


@pytest.mark.parametrize(("clients", "spread"), [(10, 10), (20, 20), (100, 50)])
def test_uniform_speeds_are_even_steps_and_exactly_as_far_apart_as_set(clients: int, spread: float) -> None:
    made = clock((1,) * clients, profiles=Uniform(spread=spread)).profiles
    speeds = sorted(profile.speed for profile in made)
    assert speeds[-1] / speeds[0] == pytest.approx(spread)
    assert speeds[-1] == 2e9
    steps = {round(b - a) for a, b in pairwise(speeds)}
    assert max(steps) - min(steps) <= 1
    assert {profile.down for profile in made} == {1e7}


def test_bandwidths_spread_in_an_order_of_their_own() -> None:
    made = clock((1,) * 10, profiles=Uniform(spread=4, bandwidth=5)).profiles
    assert max(p.up for p in made) / min(p.up for p in made) == pytest.approx(5)
    assert all(p.down == pytest.approx(10 * p.up) for p in made)
    ranks = [sorted(range(10), key=lambda k: getattr(made[k], name)) for name in ("speed", "up")]
    assert ranks[0] != ranks[1]


def test_tiers_have_their_shares() -> None:
    tiers = Tiers(tiers=(Tier(share=0.25, speed=0.5), Tier(share=0.6, bandwidth=3.0), Tier(share=0.15, speed=4.0)))
    made = clock((1,) * 20, profiles=tiers).profiles
    found = {key: sum((p.speed, p.up) == key for p in made) for key in ((1e9, 1e6), (2e9, 3e6), (8e9, 1e6))}
    assert found == {(1e9, 1e6): 5, (2e9, 3e6): 12, (8e9, 1e6): 3}


def test_log_normal_speeds_lie_around_the_reference() -> None:
    speeds = sorted(p.speed for p in clock((1,) * 4001, profiles=LogNormal(sigma=0.5)).profiles)
    assert speeds[2000] == pytest.approx(2e9, rel=0.05)
    assert speeds[int(0.8413 * 4001)] / speeds[2000] == pytest.approx(2.718**0.5, rel=0.08)


def test_a_file_names_devices_in_the_units_of_the_settings(tmp_path) -> None:
    (tmp_path / "d.csv").write_text("client,speed,up,failure\n1,4,16,0.5\n0,1,8,0\n")
    one, other = clock(profiles=Csv(file=tmp_path / "d.csv")).profiles
    assert (one.speed, one.up, one.failure, one.down) == (1e9, 1e6, 0.0, 1e7)
    assert (other.speed, other.up, other.failure, other.latency) == (4e9, 2e6, 0.5, 0.25)


def test_from_a_file_without_clients_every_client_draws_a_row(tmp_path) -> None:
    (tmp_path / "d.csv").write_text("speed,down\n" + "".join(f"{k},{10 * k}\n" for k in range(1, 4)))
    made = clock((1,) * 50, profiles=Csv(file=tmp_path / "d.csv")).profiles
    assert {(p.speed / 1e9, p.down * 8e-6) for p in made} == {(1, 10), (2, 20), (3, 30)}
