"""When a client's device is there: windows of time that come again and again."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fedtailor.devices.tables import client_of, read_numbers
from fedtailor.errors import UserError
from fedtailor.seeding import numpy_stream

DAY = 86_400.0


@dataclass(frozen=True, eq=False)
class Availability:
    """Windows [begin, end) within a period; outside of its windows a client is not chosen."""

    clients: int
    period: float
    owner: np.ndarray  # int64 (windows,)
    begin: np.ndarray  # float64 (windows,)
    end: np.ndarray  # float64 (windows,)

    def at(self, time: float) -> list[int]:
        """Who is there."""
        place = time % self.period
        return sorted({int(client) for client in self.owner[(self.begin <= place) & (place < self.end)]})

    def first(self, time: float) -> tuple[float, list[int]]:
        """The first moment from this one on when somebody is there, and who."""
        if there := self.at(time):
            return time, there
        waits = (self.begin - time) % self.period
        # by the smallest wait and not by `at`, which may miss the edge of a window by a rounding
        return float(time + waits.min()), sorted({int(client) for client in self.owner[waits == waits.min()]})

    def share(self, client: int) -> float:
        """The share of the time in which a client is there; its windows do not overlap."""
        mine = self.owner == client
        return float((self.end[mine] - self.begin[mine]).sum() / self.period)


class Windows(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def of(self, clients: int, seed: int) -> Availability:
        """When every client is there: the same for the same seed."""
        raise NotImplementedError


class Always(Windows):
    """Everybody is there."""

    kind: Literal["always"] = "always"

    def of(self, clients: int, seed: int) -> Availability:
        return _availability(clients, DAY, [(client, 0.0, DAY) for client in range(clients)])


class Daily(Windows):
    """Every client is there for a part of the day, which begins at an hour of its own."""

    kind: Literal["daily"] = "daily"
    share: float = Field(0.5, gt=0, le=1, description="Share of the day in which a client is there.")
    day: float = Field(DAY, gt=0, le=1e9, description="Length of the day in seconds.")

    def of(self, clients: int, seed: int) -> Availability:
        found = []
        for client, place in enumerate(numpy_stream(seed, "devices", "hours").random_sample(clients)):
            begin, end = place * self.day, (place + self.share) * self.day
            found.append((client, begin, min(end, self.day)))
            if end > self.day:  # over midnight
                found.append((client, 0.0, end - self.day))
        return _availability(clients, self.day, found)


class Trace(Windows):
    """Windows of the user's, which begin again when the last of them has ended."""

    kind: Literal["csv"] = "csv"
    file: Path = Field(description="Columns: client, begin, end, in seconds; a client without a row is never there.")

    def of(self, clients: int, seed: int) -> Availability:
        rows = read_numbers(self.file, ("client", "begin", "end"), ("client", "begin", "end"))
        found = sorted((client_of(row, clients, self.file), row["begin"], row["end"]) for row in rows)
        for client, begin, end in found:
            if begin >= end:
                raise UserError(f"{self.file}: client {client} is there from {begin:g} to {end:g} s: it ends too early")
        for (one, _, end), (other, begin, _) in pairwise(found):
            if one == other and begin < end:
                raise UserError(f"{self.file}: two windows of client {one} overlap at {begin:g} s")
        return _availability(clients, max(end for _, _, end in found), found)


def _from_name(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


AvailabilitySettings = Annotated[
    Annotated[Always | Daily | Trace, Field(discriminator="kind")], BeforeValidator(_from_name)
]


def _availability(clients: int, period: float, found: list[tuple[int, float, float]]) -> Availability:
    owner, begin, end = zip(*found, strict=True)
    return Availability(clients, period, np.array(owner), np.array(begin), np.array(end))
