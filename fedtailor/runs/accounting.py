"""The privacy that a run promises: epsilon by Opacus' accountant, and what it does not cover."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec

from fedtailor.errors import UserError
from fedtailor.learning import sample_rate, why_not_private
from fedtailor.models import Network
from fedtailor.runs.promises import Promise
from fedtailor.runs.settings import Experiment

NOT_COVERED = (
    "the numbers of samples of the clients",
    "their training losses",
    "the scores on the clients' test data",
    "sums of the data that data.preprocess uses",
)


def gaussian_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """Epsilon of ``steps`` noisy sums in which everybody takes part with probability ``rate`` (Poisson sampling).

    Examples
    --------
    >>> round(gaussian_epsilon(noise=1.0, rate=0.1, steps=100, delta=1e-5), 1)
    7.9
    """
    if not noise or not steps:
        return float("inf") if steps else 0.0
    from opacus.accountants import RDPAccountant  # type: ignore[import-untyped]

    accountant = RDPAccountant()
    accountant.history = [(noise, rate, steps)]
    return float(accountant.get_epsilon(delta))


def combined_epsilon(rows: Iterable[tuple[float, float, int]], delta: float = 1e-5) -> float:
    """Epsilon of all these noisy sums together; a row has noise, rate and steps. Without noise it is infinite."""
    history = [row for row in rows if row[2]]
    if not all(0 < noise < float("inf") and 0 < rate <= 1 for noise, rate, _ in history):
        return float("inf")
    if not history:
        return 0.0
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = history
    return float(accountant.get_epsilon(delta))


def client_promise(experiment: Experiment, rounds: int) -> Promise | None:
    """What a run promises its clients after this number of rounds; None without such privacy."""
    privacy = experiment.privacy
    if not privacy.hides_clients:
        return None
    assert not isinstance(experiment.participation.ratio, tuple)
    epsilon = gaussian_epsilon(privacy.noise, experiment.participation.ratio, rounds, privacy.delta)
    return Promise("client", epsilon, privacy.delta, rounds, NOT_COVERED)


def record_promise(
    experiment: Experiment, steps: Mapping[int, Sequence[int]], sizes: Sequence[int], rounds: int
) -> Promise | None:
    """What a run promises for every sample: the largest epsilon of all clients; None without such privacy.

    Parameters
    ----------
    experiment
        The settings of the run.
    steps
        By client, the steps of its training in every round that it took part in.
    sizes
        The number of training samples of every client.
    rounds
        The number of rounds so far.
    """
    private, delta = experiment.training.dp_sgd, experiment.privacy.delta
    if private is None:
        return None
    largest = 0.0
    known: dict[tuple[float, int], float] = {}  # clients with equally many samples and steps are alike
    for client, counts in steps.items():
        # The model that a client deploys was trained once more.
        spent = sum(counts) + (max(counts) if experiment.evaluation.final else 0)
        key = sample_rate(experiment.training.batch_size, max(1, sizes[client])), spent
        if key not in known:
            known[key] = gaussian_epsilon(private.noise, *key, delta)
        largest = max(largest, known[key])
    return Promise("record", largest, delta, rounds, NOT_COVERED)


def check_privacy(experiment: Experiment, network: Network) -> None:
    """Raise a `UserError` if the method, network or cohorts of an experiment cannot be private."""
    if experiment.privacy.hides_clients:
        _check_clients(experiment, network)
    if experiment.training.dp_sgd is not None:
        _check_records(experiment, network)


def _check_clients(experiment: Experiment, network: Network) -> None:
    where, method = "privacy.level = 'client'", experiment.method
    check_installed(where)
    if not (method.card.only_sums and method.averages_once):
        raise UserError(
            f"{where}: {type(method).name} needs more than one sum of what clients send; see 'fedtailor methods' for "
            "methods that need sums only"
        )
    if method.needs_validation:
        raise UserError(f"{where}: clients of {type(method).name} send validation results, which no noise covers")
    if network.statistics and experiment.model.running_statistics != "local":
        raise UserError(f"{where}: running statistics get no noise; set model.running_statistics = 'local'")
    participation = experiment.participation
    if participation.clients is not None or isinstance(participation.ratio, tuple):
        raise UserError(
            f"{where}: every client takes part with one probability; set participation.ratio to a number instead of "
            "participation.clients or a range"
        )
    if experiment.aggregation.rule != "mean" or experiment.aggregation.filters:
        raise UserError(f"{where}: aggregation looks at single clients; leave its rule, clip and gate at the defaults")
    if experiment.devices is not None and experiment.devices.availability.kind != "always":
        raise UserError(f"{where}: whether a client is available may not depend on it; remove devices.availability")


def _check_records(experiment: Experiment, network: Network) -> None:
    where, method = "training.dp_sgd", experiment.method
    check_installed(where)
    if not method.trains_only or method.needs_validation:
        raise UserError(
            f"{where}: {type(method).name} uses clients' data in other ways than plain training, which get no noise; "
            "fedavg, fedprox, fedper, fedrep, lg-fedavg, ditto and local can be private"
        )
    if reason := why_not_private(network.module):
        raise UserError(f"{where}: model {experiment.model.name!r} cannot be trained privately: {reason}")


def check_installed(where: str) -> None:
    """Raise a `UserError` if the accountant is not installed."""
    if find_spec("opacus") is None:
        raise UserError(f"{where} needs opacus: pip install 'fedtailor[dp]'")
