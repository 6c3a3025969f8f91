"""The virtual clock: it computes task times from counted work and bytes and never measures them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal

from fedtailor.devices.availability import Availability
from fedtailor.devices.profiles import Profile
from fedtailor.methods import Clock, Duration, Moment, Payload
from fedtailor.models import TRAINING
from fedtailor.records import LATE
from fedtailor.seeding import numpy_stream


@dataclass(frozen=True, eq=False)
class VirtualClock:
    """The times of tasks on the clients' devices in one round.

    Every number is a function of the settings and of (seed, episode, round, client), so it does not depend on the
    engine or on crashes.
    """

    profiles: tuple[Profile, ...]
    availability: Availability
    sizes: tuple[int, ...]  # training samples of every client
    moment: Moment
    noise: float = 0.0
    deadline: float | None = None
    noise_per: Literal["task", "round"] = "task"

    def at(self, moment: Moment) -> "VirtualClock":
        """The clock in another round."""
        return replace(self, moment=moment)

    def epoch_time(self, client: int, flops: float) -> float:
        """Seconds of one epoch on the client's data."""
        return self.task_time(client, TRAINING * flops * self.sizes[client], 0, 0).compute

    def task_time(self, client: int, work: float, down: int, up: int, task: str = "fit") -> Duration:
        """Work over speed; each message takes the latency and its bytes over the bandwidth."""
        device = self.profiles[client]
        transfer = 2 * device.latency + down / device.down + up / device.up
        return Duration(work / device.speed * self.slowness(client, task), transfer)

    def slowness(self, client: int, task: str = "fit") -> float:
        """The load on the device: a factor around 1 for each kind of task in a round, or one for all of them."""
        if not self.noise:
            return 1.0
        purpose = "slowness" if task == "fit" or self.noise_per == "round" else f"slowness in {task}"
        return math.exp(self.noise * self._stream(client, purpose).standard_normal())

    def fails(self, client: int) -> bool:
        """Whether the device fails in this round."""
        rate = self.profiles[client].failure
        return rate > 0 and bool(self._stream(client, "failure").random_sample() < rate)

    def table(self, flops: float, down: int, up: int) -> list[dict[str, float]]:
        """Every client's device, with the times of an epoch and of an exchange without noise."""
        calm = replace(self, noise=0.0)
        return [
            {
                "client": client,
                "samples": self.sizes[client],
                **device.shown,
                "available": self.availability.share(client),
                "epoch_seconds": calm.epoch_time(client, flops),
                "transfer_seconds": calm.task_time(client, 0, down, up).transfer,
            }
            for client, device in enumerate(self.profiles)
        ]

    def digest(self) -> str:
        """A hex digest of the devices and their availability; a resumed run compares it."""
        there = self.availability
        facts = (self.profiles, there.period, there.owner.tolist(), there.begin.tolist(), there.end.tolist())
        return blake2b(repr(facts).encode(), digest_size=16).hexdigest()

    def _stream(self, client: int, purpose: str) -> Any:
        return numpy_stream(self.moment.seed, self.moment.episode, self.moment.round, client, "device", purpose)


@dataclass
class RoundTimes:
    """The clients' times in a round, phase by phase. A phase starts when the previous one has ended for all clients."""

    begin: float  # on the clock
    deadline: float | None = None
    phases: list[dict[int, Duration]] = field(default_factory=list)

    def late(self, duration: Duration) -> str | None:
        """The reason to leave a client out for its time in a phase; None if it met the deadline."""
        if self.deadline is None or duration.seconds <= self.deadline:
            return None
        return f"{LATE}{duration.seconds:.4g} s, deadline {self.deadline:g} s"

    @property
    def seconds(self) -> float:
        """The sum over phases; a phase lasts until the last answer or the deadline."""
        return sum(max(map(self._waited, phase.values()), default=0.0) for phase in self.phases)

    @property
    def end(self) -> float:
        return self.begin + self.seconds

    @property
    def clients(self) -> dict[int, Duration]:
        """Every client's time, summed over the phases."""
        total: dict[int, Duration] = {}
        for phase in self.phases:
            for client, duration in phase.items():
                total[client] = total.get(client, Duration()) + duration
        return dict(sorted(total.items()))

    def latency(self, clients: Iterable[int]) -> float | None:
        """The straggling latency: computing time of the slowest client minus the fastest; None for fewer than two.

        HAPFL's eqs. 7 and 8: the time of a client is its assessment and its training, without transfer.
        """
        total = self.clients
        times = [total[client].compute for client in clients]
        return max(times) - min(times) if len(times) > 1 else None

    def idle(self, clients: Iterable[int]) -> float | None:
        """The mean share of the round in which these clients wait; None if there are none."""
        seconds, those = self.seconds, list(clients)
        busy = sum(self._waited(phase[client]) for phase in self.phases for client in those if client in phase)
        return 1 - busy / (seconds * len(those)) if seconds and those else None

    def _waited(self, duration: Duration) -> float:
        return duration.seconds if self.deadline is None else min(duration.seconds, self.deadline)


class Phase:
    """Tasks that clients do in parallel, and their times if there is a clock."""

    def __init__(self, clock: Clock | None, sent: Mapping[int, Payload], round: RoundTimes | None, task: str = "fit"):
        self.times: dict[int, Duration] = {}
        self._clock, self._sent, self._round, self._task = clock, sent, round, task
        if round is not None:
            round.phases.append(self.times)

    def answered(self, client: int, work: float, up: int, measured: Duration | None = None) -> str | None:
        """Record a task's time, computed or measured; return the reason to leave the client out, or None."""
        if self._clock is not None:
            taken = self._clock.task_time(client, work, self._sent[client].nbytes, up, self._task)
        elif measured is not None:
            taken = measured
        else:
            return None
        self.times[client] = taken
        return None if self._round is None else self._round.late(taken)
