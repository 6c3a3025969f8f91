"""The measures of a model in a round, as they are recorded."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from fedtailor.runs.statistics import half_width


@dataclass(frozen=True)
class MeasureSummary:
    """One measure of a model in a round. The values are None if it is defined for no client."""

    mean: float | None  # over the clients for which it is defined
    pooled: float | None  # over the samples of all clients; None if the measure cannot be pooled
    deviation: float | None  # over clients
    worst: float | None  # of the worst client
    worst_tenth: float | None  # mean of the worst tenth of the clients
    clients: int  # clients for which it is defined
    undefined: int = 0  # clients with test samples for which it is not
    better: str = "higher"  # or "lower"
    percent: bool = False  # whether it is a share that is written in percent

    STORED: ClassVar = ("mean", "pooled", "deviation", "worst", "worst_tenth", "clients", "undefined")


@dataclass(frozen=True)
class Measures:
    """The measures of a model in a round. The values are None if no client has test samples."""

    round: int
    accuracy: float | None  # mean over clients
    pooled: float | None  # accuracy over the samples of all clients
    deviation: float | None  # deviation of the accuracy over clients
    worst: float | None  # accuracy of the worst client
    worst_tenth: float | None  # mean accuracy of the worst tenth of the clients
    loss: float | None  # mean over clients
    pooled_loss: float | None  # mean over the samples of all clients
    clients: int  # clients with test samples
    samples: int
    untrained: int = 0  # clients that never trained; the model that they would receive counts as held
    more: Mapping[str, MeasureSummary] = field(default_factory=dict)  # further measures by name
    headline: str = "accuracy"  # the measure of tables and curves
    population: int = 0  # the clients that the tested ones were drawn from; 0 if these are all

    NOT_STORED: ClassVar = ("more", "headline", "population")

    @property
    def main(self) -> MeasureSummary:
        """The headline measure."""
        return self.of(self.headline)

    def of(self, measure: str) -> MeasureSummary:
        """A measure by its name; all values are None if it was not measured."""
        if measure == "accuracy":
            known = 0 if self.accuracy is None else self.clients
            spread = (self.accuracy, self.pooled, self.deviation, self.worst, self.worst_tenth)
            return MeasureSummary(*spread, clients=known, undefined=self.clients - known, percent=True)
        return self.more.get(measure, MeasureSummary(None, None, None, None, None, 0, self.clients))

    @property
    def interval(self) -> float | None:
        """Half of the 95 % interval of the headline's mean over all clients; None unless a sample was tested."""
        return half_width(self.main.deviation, self.main.clients, self.population)

    def as_dict(self) -> dict[str, Any]:
        """The measures as one JSON document; further ones are under ``measures``."""
        values = asdict(self)
        more, headline, population = (values.pop(key) for key in ("more", "headline", "population"))
        values |= {"population": population, "interval": self.interval} if population else {}
        return {**values, "headline": headline, "measures": more} if more else values


def population(tested: int | str, clients: int) -> int:
    """The number of clients that the tested ones were drawn from; 0 if all are tested, or only the cohort."""
    return clients if isinstance(tested, int) and tested < clients else 0
