"""What is known about a federation before any trial: sizes, skews, participation, devices. Test samples are unseen."""

from dataclasses import dataclass

import numpy as np

from fedtailor.data import Federation, Shares
from fedtailor.data.statistics import label_counts, label_skew
from fedtailor.methods import find
from fedtailor.runs.assembly import describe_devices
from fedtailor.runs.cohort import largest_cohort
from fedtailor.runs.resources import Resources
from fedtailor.runs.settings import Experiment
from fedtailor.seeding import numpy_stream

SHUFFLES = 5  # random deals of the labels that say what skew is chance
FEATURES = 256  # features, evenly spaced, that the feature skew looks at
ROWS = 20_000  # samples, evenly spaced, that it looks at


@dataclass(frozen=True)
class Traits:
    """A federation in a few numbers.

    Attributes
    ----------
    clients, smallest, largest : int
        The number of clients, and the numbers of training samples of the smallest and the largest.
    median : float
        The median number of training samples.
    classes : int
        The number of classes; 0 for a regression.
    classes_each : float
        The median number of classes of a client.
    label_skew, label_chance : float or None
        The mean distance between a client's labels and everybody's, from 0 (alike) to 1; and what it would be if the
        same labels were dealt at random to clients of the same sizes. None for a regression.
    feature_skew : float or None
        The share of the inputs' variance, within a class, that is due to the client (omega squared): 0 if clients
        differ by chance alone. None for text, and if no class is shared by clients.
    cohort : int
        The largest number of clients in a round.
    turns : float
        The number of rounds in which a client takes part, on average.
    device_spread : float or None
        How many times longer an epoch takes on the slowest device; None without devices.
    """

    clients: int
    smallest: int
    median: float
    largest: int
    classes: int
    classes_each: float
    label_skew: float | None
    label_chance: float | None
    feature_skew: float | None
    cohort: int
    turns: float
    device_spread: float | None

    @property
    def labels_differ(self) -> bool:
        """Whether clients' labels differ clearly more than by chance."""
        return self.label_skew is not None and self.label_skew > 0.1 + (self.label_chance or 0.0)

    @property
    def features_differ(self) -> bool:
        """Whether clients' inputs differ clearly within a class."""
        return self.feature_skew is not None and self.feature_skew > 0.05


def traits_of(settings: Experiment, data: Federation) -> Traits:
    """The traits of the federation on which trials run, which has no test samples."""
    sizes = data.train.sizes
    counts = label_counts(data)
    known = bool(data.samples.classes)
    cohort = largest_cohort(settings, data.clients)
    return Traits(
        clients=data.clients,
        smallest=int(sizes.min()),
        median=float(np.median(sizes)),
        largest=int(sizes.max()),
        classes=len(data.samples.classes),
        classes_each=float(np.median(np.count_nonzero(counts, axis=1))) if known else 0.0,
        label_skew=label_skew(counts) if known else None,
        label_chance=_chance(counts, settings.seed) if known else None,
        feature_skew=feature_skew(data),
        cohort=cohort,
        turns=settings.rounds * cohort / data.clients,
        device_spread=_spread(settings, data),
    )


def feature_skew(data: Federation) -> float | None:
    """The share of the inputs' variance within classes that is due to the client: omega squared, mean over features.

    With SSB and SSW the sums of squares between and within the clients of a class, summed over classes, and their
    degrees of freedom b and w: (SSB - b SSW / w) / (SSB + SSW + SSW / w), at least 0.
    """
    samples = data.samples
    everything = Shares.from_owners(_owners(data), data.clients)
    rows = everything.indices[:: -(-len(everything.indices) // ROWS)]
    owners = everything.owners[:: -(-len(everything.indices) // ROWS)]
    if samples.vocabulary or not len(rows):
        return None
    x = samples.x.reshape(len(samples), -1)
    x = x[rows][:, :: -(-x.shape[1] // FEATURES)].astype(np.float64)
    missing = np.isnan(x)
    if missing.any():
        known = np.maximum(1, (~missing).sum(0))
        x = np.where(missing, np.where(missing, 0.0, x).sum(0) / known, x)
    labels = samples.labels[rows]
    cells = labels * data.clients + owners
    between_classes, within = _squares(x, labels), _squares(x, cells)
    between = between_classes - within  # inside a class: its total minus what its clients leave
    degrees = len(np.unique(cells)) - len(np.unique(labels))
    left = len(rows) - len(np.unique(cells))
    varies = between_classes > 1e-9 * max(1.0, float(between_classes.max(initial=0.0)))
    if degrees <= 0 or left <= 0 or not varies.any():
        return None
    noise = within[varies] / left
    found = (between[varies] - degrees * noise) / (between[varies] + within[varies] + noise)
    return max(0.0, float(found.mean()))


def _squares(x: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """By feature, the sum of squared distances from the mean of a sample's group."""
    _, places = np.unique(groups, return_inverse=True)
    counts = np.bincount(places)
    order = np.argsort(places, kind="stable")
    sums = np.add.reduceat(x[order], np.concatenate([[0], np.cumsum(counts)[:-1]]), axis=0)
    found: np.ndarray = ((x - (sums / counts[:, None])[places]) ** 2).sum(0)
    return found


def _owners(data: Federation) -> np.ndarray:
    owners = np.full(len(data.samples), -1, np.int64)
    for part in (data.train, data.val, data.test):
        owners[part.indices] = part.owners
    return owners


def _chance(counts: np.ndarray, seed: int) -> float:
    """The skew of the same labels, dealt at random to clients of the same sizes."""
    stream = numpy_stream(seed, "advice", "chance")
    labels = np.repeat(np.arange(counts.shape[1]), counts.sum(0))
    cells = np.repeat(np.arange(len(counts)), counts.sum(1)) * counts.shape[1]
    dealt = (np.bincount(cells + stream.permutation(labels), minlength=counts.size) for _ in range(SHUFFLES))
    return float(np.mean([label_skew(one.reshape(counts.shape)) for one in dealt]))


def _spread(settings: Experiment, data: Federation) -> float | None:
    if settings.devices is None:
        return None
    plain = settings.model_copy(update={"method": find("fedavg")()})
    return float(describe_devices(plain, Resources(data))["spread"])
