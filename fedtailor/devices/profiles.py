"""Profiles of devices, and the distributions they are drawn from."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from fedtailor.devices.tables import client_of, read_numbers
from fedtailor.errors import UserError
from fedtailor.seeding import numpy_stream

# Factors from the units of the settings (billions, megabits) to those of a Profile
UNITS = {"speed": 1e9, "down": 1e6 / 8, "up": 1e6 / 8, "latency": 1.0, "failure": 1.0}


@dataclass(frozen=True)
class Profile:
    """A device, in units of the clock."""

    speed: float  # multiply-adds a second
    down: float  # bytes a second
    up: float  # bytes a second
    latency: float  # seconds per message, in addition to its bytes
    failure: float  # probability that the device fails in a round

    def scaled(self, speed: float, bandwidth: float = 1.0) -> "Profile":
        return replace(self, speed=self.speed * speed, down=self.down * bandwidth, up=self.up * bandwidth)

    @property
    def shown(self) -> dict[str, float]:
        """The values in the units of the settings."""
        return {name: value / UNITS[name] for name, value in asdict(self).items()}


class Family(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def draw(self, reference: Profile, clients: int, seed: int) -> list[Profile]:
        """Draw a device for every client, determined by the seed."""
        raise NotImplementedError


class Uniform(Family):
    """Speeds in even steps below the reference, in random order; fastest over slowest is exactly ``spread``."""

    kind: Literal["uniform"] = "uniform"
    spread: float = Field(10.0, ge=1, le=1e6, description="Speed of the fastest client over that of the slowest.")
    bandwidth: float = Field(
        1.0,
        ge=1,
        le=1e6,
        description="The same ratio for bandwidths, in an independent order; 1: all equal the reference.",
    )

    def draw(self, reference: Profile, clients: int, seed: int) -> list[Profile]:
        speeds, bandwidths = (
            numpy_stream(seed, "devices", name).permutation(np.linspace(1, 1 / spread, clients))
            for name, spread in (("speed", self.spread), ("bandwidth", self.bandwidth))
        )
        return _scaled(reference, speeds, bandwidths)


class Tier(BaseModel):
    """A class of devices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    share: float = Field(gt=0, le=1, description="Share of the clients.")
    speed: float = Field(1.0, gt=0, description="Factor on the reference device.")
    bandwidth: float = Field(1.0, gt=0, description="Factor on the reference device.")


class Tiers(Family):
    """A few classes of devices, assigned at random."""

    kind: Literal["tiers"] = "tiers"
    tiers: tuple[Tier, ...] = Field(
        (Tier(share=0.5, speed=0.1), Tier(share=0.3, speed=0.4), Tier(share=0.2)),
        min_length=1,
        description="The classes; their shares sum to 1.",
    )

    @field_validator("tiers")
    @classmethod
    def _whole(cls, tiers: tuple[Tier, ...]) -> tuple[Tier, ...]:
        if abs(sum(tier.share for tier in tiers) - 1) > 1e-6:
            raise ValueError("the shares of the tiers must sum to 1")
        return tiers

    def draw(self, reference: Profile, clients: int, seed: int) -> list[Profile]:
        ends = np.round(np.cumsum([tier.share for tier in self.tiers]) * clients)
        tiers = [self.tiers[int(np.searchsorted(ends, client, side="right"))] for client in range(clients)]
        order = numpy_stream(seed, "devices", "tiers").permutation(clients)
        return [reference.scaled(tiers[k].speed, tiers[k].bandwidth) for k in order]


class LogNormal(Family):
    """Speeds around the reference, which is their median."""

    kind: Literal["log-normal"] = "log-normal"
    sigma: float = Field(0.5, ge=0, le=5, description="Deviation of the logarithm of the speeds.")
    bandwidth: float = Field(0.0, ge=0, le=5, description="The same for the bandwidths, which are drawn independently.")

    def draw(self, reference: Profile, clients: int, seed: int) -> list[Profile]:
        speeds, bandwidths = (
            np.exp(sigma * numpy_stream(seed, "devices", name).standard_normal(clients))
            for name, sigma in (("speed", self.sigma), ("bandwidth", self.bandwidth))
        )
        return _scaled(reference, speeds, bandwidths)


class Csv(Family):
    """Devices from a file, one per row; missing columns take the values of the reference."""

    kind: Literal["csv"] = "csv"
    file: Path = Field(
        description="Columns: some of speed, down, up, latency, failure, in the units of [devices]; and client. "
        "Without client, every client draws a random row."
    )

    def draw(self, reference: Profile, clients: int, seed: int) -> list[Profile]:
        rows = read_numbers(self.file, ("client", *UNITS), ())
        if "client" in rows[0]:
            by_client = {client_of(row, clients, self.file): row for row in rows}
            if missing := sorted(set(range(clients)) - by_client.keys()):
                raise UserError(f"{self.file} has no row for client {missing[0]}: there are {clients} clients")
            rows = [by_client[client] for client in range(clients)]
        else:
            drawn = numpy_stream(seed, "devices", "rows").randint(len(rows), size=clients)
            rows = [rows[k] for k in drawn]
        made = []
        for row in rows:
            given = {name: value * UNITS[name] for name, value in row.items() if name != "client"}
            profile = replace(reference, **given)
            if min(profile.speed, profile.down, profile.up) <= 0 or profile.failure >= 1:
                raise UserError(f"{self.file}: speed, down and up should be above 0, failure below 1 in every row")
            made.append(profile)
        return made


def _from_name(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Profiles = Annotated[
    Annotated[Uniform | Tiers | LogNormal | Csv, Field(discriminator="kind")], BeforeValidator(_from_name)
]


def _scaled(reference: Profile, speeds: np.ndarray, bandwidths: np.ndarray) -> list[Profile]:
    return [reference.scaled(float(s), float(b)) for s, b in zip(speeds, bandwidths, strict=True)]
