"""The settings of the clients' devices."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fedtailor.devices.availability import Always, AvailabilitySettings
from fedtailor.devices.clock import VirtualClock
from fedtailor.devices.profiles import UNITS, Profile, Profiles, Uniform
from fedtailor.methods import Moment


class Devices(BaseModel):
    """A table ``[devices]`` switches the virtual clock on. Its values describe a reference device.

    The reference is the fastest client of ``uniform``, the median of ``log-normal``, and the tier with factors 1 of
    ``tiers``; with ``csv`` it fills in missing columns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    profiles: Profiles = Field(Uniform(), description="How the clients' devices differ.")
    speed: float = Field(10.0, gt=0, description="Billion multiply-adds a second.")
    down: float = Field(50.0, gt=0, description="Megabits a second to the client.")
    up: float = Field(10.0, gt=0, description="Megabits a second from the client.")
    latency: float = Field(0.05, ge=0, description="Seconds per message, in addition to the time of its bytes.")
    noise: float = Field(
        0.1,
        ge=0,
        le=5,
        description="Deviation of the logarithm of a random factor on a device's time, drawn in every round.",
    )
    noise_per: Literal["task", "round"] = Field(
        "task",
        description="task: a factor for each kind of task in a round, so that an assessment predicts the time of the "
        "training roughly; round: one factor for all tasks, so that it predicts it exactly.",
    )
    failure: float = Field(0.0, ge=0, lt=1, description="Probability that a device fails in a round.")
    availability: AvailabilitySettings = Field(Always(), description="When the devices are available.")
    deadline: float | None = Field(
        None, gt=0, description="Seconds a client has to answer; a late client is left out of the round."
    )
    seed: int | None = Field(None, ge=0, description="Seed of the devices; default the experiment's.")


def virtual_clock(settings: Devices, sizes: Sequence[int], seed: int) -> VirtualClock:
    """Build the clock of a federation; ``sizes`` are the clients' numbers of training samples."""
    own = seed if settings.seed is None else settings.seed
    reference = Profile(**{name: getattr(settings, name) * unit for name, unit in UNITS.items()})
    return VirtualClock(
        tuple(settings.profiles.draw(reference, len(sizes), own)),
        settings.availability.of(len(sizes), own),
        tuple(sizes),
        Moment(seed),
        settings.noise,
        settings.deadline,
        settings.noise_per,
    )
