"""The privacy that a run promises: epsilon by Opacus' accountant, and what it does not cover."""

from dataclasses import dataclass
from importlib.util import find_spec

from fedtailor.errors import UserError
from fedtailor.methods import Method
from fedtailor.models import Network
from fedtailor.parties import Privacy
from fedtailor.runs.settings import Experiment


@dataclass(frozen=True)
class Promise:
    """What differential privacy a run gives.

    Attributes
    ----------
    epsilon : float
        The bound after ``rounds`` rounds; infinite without noise.
    delta : float
        The probability with which the bound need not hold.
    not_covered : tuple of str
        What leaves the clients without noise.
    """

    epsilon: float
    delta: float
    rounds: int
    not_covered: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The promise in one sentence, for tables and cards."""
        return (
            f"client-level differential privacy: epsilon = {self.epsilon:.3g} at delta = {self.delta:g} after "
            f"{self.rounds} rounds; not covered: {', '.join(self.not_covered)}"
        )


def client_epsilon(noise: float, rate: float, rounds: int, delta: float) -> float:
    """Epsilon of rounds in which every client takes part with probability ``rate`` (Poisson sampling).

    Examples
    --------
    >>> round(client_epsilon(noise=1.0, rate=0.1, rounds=100, delta=1e-5), 1)
    7.9
    """
    if not noise or not rounds:
        return float("inf") if rounds else 0.0
    from opacus.accountants import RDPAccountant  # type: ignore[import-untyped]

    accountant = RDPAccountant()
    accountant.history = [(noise, rate, rounds)]
    return float(accountant.get_epsilon(delta))


def check_privacy(experiment: Experiment, network: Network) -> None:
    """Raise a `UserError` if the method, network or cohorts of an experiment cannot be private."""
    privacy, method = experiment.privacy, experiment.method
    if not privacy.hides_clients:
        return
    where = "privacy.level = 'client'"
    if find_spec("opacus") is None:
        raise UserError(f"{where} needs opacus: pip install 'fedtailor[dp]'")
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


def promise(experiment: Experiment, rounds: int) -> Promise | None:
    """What the run promises after this number of rounds; None without privacy."""
    privacy: Privacy = experiment.privacy
    if not privacy.hides_clients:
        return None
    assert not isinstance(experiment.participation.ratio, tuple)
    epsilon = client_epsilon(privacy.noise, experiment.participation.ratio, rounds, privacy.delta)
    return Promise(epsilon, privacy.delta, rounds, not_covered(experiment.method))


def not_covered(method: Method) -> tuple[str, ...]:
    """What the clients of this method send, or the run shows, without noise."""
    return ("the numbers of samples of the clients", "the scores on the clients' test data")
