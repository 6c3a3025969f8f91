"""The networks of a job: the run's own, those of the method's family, and which of their tensors travel."""

from fedtailor.engines.base import Job
from fedtailor.learning.tensors import inputs_of
from fedtailor.messages.trees import unpack
from fedtailor.models import Network, build
from fedtailor.seeding import seed_of


def run_network(job: Job, seed: int) -> Network:
    """Build the run's own network with its initial weights.

    Parameters
    ----------
    job : Job
        Gives the model and the shape of its inputs.
    seed : int
        The seed of the weights, ``moment.network_seed`` of the episode, unless the job has its own.

    Returns
    -------
    Network
        A new network.
    """
    network = build(job.model, inputs_of(job.federation.samples), seed)
    if job.initial is not None:
        network.load(unpack(job.initial))
    return network


def family_network(job: Job, name: str, seed: int) -> Network:
    """Build a network of the method's family with its initial weights, which differ from name to name.

    Parameters
    ----------
    job : Job
        Gives the method, its family and the shape of inputs.
    name : str
        The network's name in ``method.family``.
    seed : int
        The seed of the episode, as for `run_network`.

    Returns
    -------
    Network
        A new network.
    """
    return build(job.method.family(job.model)[name], inputs_of(job.federation.samples), seed_of(seed, "family", name))


def shared_and_kept(job: Job, network: Network) -> tuple[frozenset[str], frozenset[str]]:
    """Divide the tensors of the run's network into those that travel and those that stay with the client.

    Running statistics travel with their layer (``averaged``), stay (``local``), or do neither: with ``reset`` every
    task begins with fresh ones.

    Parameters
    ----------
    job : Job
        Its method says which tensors are shared, its model what becomes of running statistics.
    network : Network
        The run's network.

    Returns
    -------
    tuple of frozenset of str
        The names of the shared tensors, and the names of the kept ones.
    """
    shared, everything = job.method.shared(network), frozenset(network.names)
    if job.model.running_statistics == "averaged":
        return shared, everything - shared
    shared = shared - network.statistics
    kept = everything - shared
    return shared, kept if job.model.running_statistics == "local" else kept - network.statistics
