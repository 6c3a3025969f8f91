"""When a client's device is available: windows of time that repeat periodically."""

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
    """Windows [begin, end) within a period; a client is not chosen outside of its windows."""

    clients: int
    period: float
    owner: np.ndarray  # int64 (windows,)
    begin: np.ndarray  # float64 (windows,)
    end: np.ndarray  # float64 (windows,)

    def at(self, time: float) -> list[int]:
        """The clients available at this time."""
        place = time % self.period
        found: list[int] = np.unique(self.owner[(self.begin <= place) & (place < self.end)]).tolist()
        return found

    def first(self, time: float) -> tuple[float, list[int]]:
        """The first time from now on at which a client is available, and the clients available then."""
        if there := self.at(time):
            return time, there
        waits = (self.begin - time) % self.period
        # By the smallest wait, not by `at`: rounding may miss the edge of a window.
        return float(time + waits.min()), sorted({int(client) for client in self.owner[waits == waits.min()]})

    def share(self, client: int) -> float:
        """The share of the time in which a client is available; its windows do not overlap."""
        mine = self.owner == client
        return float((self.end[mine] - self.begin[mine]).sum() / self.period)


class Windows(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def of(self, clients: int, seed: int) -> Availability:
        """The windows of all clients, determined by the seed."""
        raise NotImplementedError


class Always(Windows):
    """All clients are always available."""

    kind: Literal["always"] = "always"

    def of(self, clients: int, seed: int) -> Availability:
        return _availability(clients, DAY, [(client, 0.0, DAY) for client in range(clients)])


class Daily(Windows):
    """Every client is available for a part of the day that starts at its own random hour."""

    kind: Literal["daily"] = "daily"
    share: float = Field(0.5, gt=0, le=1, description="Share of the day in which a client is available.")
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
    """Windows from a file; they repeat after the last one ends."""

    kind: Literal["csv"] = "csv"
    file: Path = Field(
        description="Columns: client, begin, end, in seconds; a client without a row is never available."
    )

    def of(self, clients: int, seed: int) -> Availability:
        rows = read_numbers(self.file, ("client", "begin", "end"), ("client", "begin", "end"))
        found = sorted((client_of(row, clients, self.file), row["begin"], row["end"]) for row in rows)
        for client, begin, end in found:
            if begin >= end:
                raise UserError(f"{self.file}: client {client} is available from {begin:g} to {end:g} s: raise the end")
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
