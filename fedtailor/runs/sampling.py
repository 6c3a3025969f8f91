"""The clients that are tested: all, or a sample of them."""

from collections.abc import Sequence

from fedtailor.data import Federation
from fedtailor.errors import UserError
from fedtailor.runs.sections import Evaluation
from fedtailor.runs.settings import Experiment
from fedtailor.seeding import numpy_stream


def tested_clients(experiment: Experiment, federation: Federation) -> Sequence[int]:
    """The clients whose models are tested: all, or those that the seed draws; the same in every round and method."""
    return _drawn(experiment, range(federation.clients), "tested clients")


def tested_newcomers(experiment: Experiment, federation: Federation) -> Sequence[int]:
    """The new clients that adapt the model at the end: all, or as many as are tested of the others."""
    return _drawn(experiment, federation.newcomers, "tested new clients")


def check_tested(settings: Evaluation, clients: int) -> None:
    """Raise a `UserError` if more clients are to be tested than there are."""
    if isinstance(settings.clients, int) and settings.clients > clients:
        raise UserError(f"evaluation.clients = {settings.clients}: there are only {clients} clients")


def _drawn(experiment: Experiment, clients: range, purpose: str) -> Sequence[int]:
    count = experiment.evaluation.clients
    if not isinstance(count, int) or count >= len(clients):
        return clients
    stream = numpy_stream(experiment.seed, purpose)
    return sorted((clients.start + stream.permutation(len(clients))[:count]).tolist())
