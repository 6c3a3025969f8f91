"""Assembles a run from its settings: job, networks, clock and server.

The round loop, the check of a policy, the export of models and the table of devices all use it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from fedtailor.data import Federation
from fedtailor.devices import VirtualClock, virtual_clock
from fedtailor.engines import Job, device_of, family_network, run_network, shared_and_kept
from fedtailor.engines.allocation import keep_memory
from fedtailor.errors import UserError
from fedtailor.learning.precision import fails_in_bf16, resolved
from fedtailor.learning.tensors import inputs_of
from fedtailor.methods import (
    Memory,
    Method,
    Moment,
    Server,
    find,
    spec,
    start,
)
from fedtailor.models import Network, build, count_flops
from fedtailor.runs.accounting import check_privacy
from fedtailor.runs.cohort import expected_cohort, largest_cohort
from fedtailor.runs.fitting import check_loss, check_shared_samples, measuring_of
from fedtailor.runs.resources import Resources
from fedtailor.runs.sampling import check_tested, tested_clients, tested_newcomers
from fedtailor.runs.settings import Experiment
from fedtailor.runs.stopping import check_validation
from fedtailor.runs.together import with_together
from fedtailor.weights import nbytes, select


@dataclass(frozen=True)
class Assembly:
    """The parts of a run in one episode. Only the server changes during the run."""

    experiment: Experiment
    job: Job
    moment: Moment  # the moment at which the run starts or resumes
    network: Network  # with its initial weights
    shared: frozenset[str]  # names of the tensors that are exchanged
    kept: frozenset[str]  # names of the tensors that stay with a client
    family: Mapping[str, Network]  # the method's other networks, by name
    clock: VirtualClock | None  # None without devices

    @property
    def method(self) -> Method:
        return self.job.method

    @property
    def clients(self) -> int:
        return self.job.federation.clients

    @cached_property
    def tested(self) -> Sequence[int]:
        """The clients whose models are tested: all, or a sample."""
        return tested_clients(self.experiment, self.job.federation)

    @cached_property
    def tested_newcomers(self) -> Sequence[int]:
        """The new clients that adapt the model at the end: all, or a sample."""
        return tested_newcomers(self.experiment, self.job.federation)

    def server(self, memory: Memory | None = None, keeps_best: bool = False) -> Server:
        """The server before the first round; ``memory`` reads the rows that a run has stored.

        With ``keeps_best``, pre-training keeps its best policy.
        """
        server = Server(
            self.network,
            tuple(self.job.federation.train.sizes[: self.clients].tolist()),
            self.job.training,
            self.moment,
            self.shared,
            Memory(lambda _client: None, set()) if memory is None else memory,
            largest_cohort=largest_cohort(self.experiment, self.clients),
            clock=self.clock,
            family=self.family,
            names=self.job.federation.labels[: self.clients],
            aggregation=self.experiment.aggregation,
            privacy=self.experiment.privacy,
            expected_cohort=expected_cohort(self.experiment, self.clients),
        )
        start(self.method, server, keeps_best)
        return server


def assemble(experiment: Experiment, job: Job, moment: Moment | None = None) -> Assembly:
    """Build all parts of a run for the episode of ``moment``; by default the first episode."""
    torch.set_num_threads(1)  # always one thread: the order of sums depends on the number of threads
    keep_memory()
    moment = moment or Moment(job.seed)
    seed = moment.network_seed
    network = run_network(job, seed)
    shared, kept = shared_and_kept(job, network)
    family = {name: family_network(job, name, seed) for name in job.method.family(job.model)}
    return Assembly(experiment, job, moment, network, shared, kept, family, _clock(experiment, job))


def with_precision(settings: Experiment) -> Experiment:
    """The experiment with the precision that ``training.precision = "auto"`` means on the device of this machine."""
    precision = resolved(settings.training.precision, device_of(settings.engine))
    training = settings.training.model_copy(update={"precision": precision})
    return settings.model_copy(update={"training": training})


def job_of(settings: Experiment, resources: Resources) -> Job:
    """Check all requirements of a run before anything is written, and build its job."""
    if settings.engine.kind != "inline":
        _check_importable(settings.method)
    device = device_of(settings.engine)
    settings = with_precision(settings)
    check_shared_samples(settings)
    federation = resources.federation(settings)
    settings, together = with_together(settings, federation, device)
    cohort = settings.participation.clients
    if cohort is not None and cohort > federation.clients:
        raise UserError(f"participation.clients = {cohort}: there are only {federation.clients} clients")
    check_tested(settings.evaluation, federation.clients)
    for model in (settings.model, *settings.method.family(settings.model).values()):
        network = build(model, inputs_of(federation.samples), settings.seed)
        if settings.training.precision == "bf16" and (reason := fails_in_bf16(network)):
            raise UserError(f"training.precision = 'bf16': model {model.name!r} fails in bf16 ({reason}): use 'fp32'")
        check_privacy(settings, network)
    check_loss(settings, federation)
    private = settings.privacy.hides_clients or settings.training.dp_sgd is not None
    check_validation(settings.stopping, len(federation.val.indices), private)
    job = Job(
        settings.method,
        settings.model,
        settings.training,
        settings.seed,
        federation,
        device,
        counts_work=settings.devices is not None,
        measures=measuring_of(settings, federation).further,
        attack=settings.attack,
        together=together,
    )
    _clock(settings, job)
    if federation.new:
        newcomers_clock(settings, job)  # fails here if a file lacks their devices
    return job


def check_data(settings: Experiment, federation: Federation, before: str, sentence: str) -> None:
    """Raise a `UserError` if the data are not those that a run began with; ``before`` is the digest of those."""
    if federation.digest() != before:
        raise UserError(f"{sentence}: the data in {settings.data.source!r} are not those it began with")


def devices_digest(settings: Experiment, job: Job) -> str | None:
    """A digest of the clients' devices, including files that describe them; None without devices."""
    clock = _clock(settings, job)
    return None if clock is None else clock.digest()


def describe_devices(settings: Experiment, resources: Resources) -> dict[str, Any]:
    """The clients' devices, and the time that the experiment's network and method take on them."""
    if settings.devices is None:
        raise UserError("this experiment has no devices: add a table [devices], or --set devices.profiles=uniform")
    made = assemble(settings, job_of(settings, resources))
    assert made.clock is not None
    flops = count_flops(made.network, inputs_of(made.job.federation.samples))
    traffic = nbytes(select(made.network.weights(), made.shared))
    labels = made.job.federation.labels
    table = made.clock.table(flops, traffic, traffic)
    rows: list[dict[str, Any]] = [
        {**row, **({"name": labels[client]} if labels else {})} for client, row in enumerate(table)
    ]
    seconds = [row["epoch_seconds"] for row in rows if row["epoch_seconds"]]
    return {
        "model": settings.model.name,
        "flops": flops,
        "bytes_down": traffic,
        "bytes_up": traffic,
        "spread": max(seconds) / min(seconds) if seconds else 1.0,
        "devices": rows,
    }


def _clock(experiment: Experiment, job: Job) -> VirtualClock | None:
    if experiment.devices is None:
        return None
    sizes = job.federation.train.sizes[: job.federation.clients]
    return virtual_clock(experiment.devices, sizes.tolist(), job.seed)


def newcomers_clock(experiment: Experiment, job: Job) -> VirtualClock | None:
    """A clock with the devices of new clients too; None without devices. Those of the others are not the run's."""
    if experiment.devices is None:
        return None
    return virtual_clock(experiment.devices, job.federation.train.sizes.tolist(), job.seed)


def _check_importable(method: Method) -> None:
    """Raise a `UserError` if another process could not import the method."""
    name = spec(method)
    module, _, attribute = name.partition(":")
    if module == "__main__" or "<locals>" in attribute:
        raise UserError(
            f"{attribute} is defined where worker processes cannot import it: put it into its own file "
            f"(mine.py, then method.name = 'mine:{attribute.rpartition('.')[2]}') or set engine.kind = 'inline'"
        )
    find(name)
