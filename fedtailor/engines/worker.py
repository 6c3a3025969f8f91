"""A worker: executes one task at a time. The same code in every engine is what makes them agree."""

import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedtailor.engines.base import Job, Result, Task
from fedtailor.learning import Score, evaluate, outcomes
from fedtailor.learning.tensors import inputs_of, tensors
from fedtailor.methods import Client, Payload
from fedtailor.models import Network, build
from fedtailor.packing import has_objects, pack, restore, unpack
from fedtailor.payload import Rejected, check
from fedtailor.weights import select


class Worker:
    """Executes the tasks of a job with one network that is loaded anew for each of them."""

    def __init__(self, job: Job):
        # More threads are slower at these sizes, and the order of sums would depend on their number.
        torch.set_num_threads(1)
        self.job = job
        self.method = job.method
        self.network = build(job.model, inputs_of(job.federation.samples), job.seed)
        self.initial = self.network.weights()
        self.network.module.to(job.device)
        self.shared, self.kept = parts(job, self.network)
        self._second: Network | None = None

    def execute(self, task: Task) -> Result:
        """Do a task; whatever goes wrong in it is its result."""
        begin = time.perf_counter()
        try:
            result = getattr(self, f"_{task.kind}")(task)
        except Rejected as refusal:
            result = Result(task.index, task.client, failure=str(refusal))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            result = Result(task.index, task.client, failure=reason, details=traceback.format_exc())
        return Result(**{**vars(result), "seconds": time.perf_counter() - begin})

    def _fit(self, task: Task) -> Result:
        client = self._receive(task)
        scores = {"received": self._test(client.id)} if "received" in task.measure else {}
        self._train(client)
        reply = self.method.upload(client).pack()
        state = self._keep(client)
        trace = client.trace
        if "held" in task.measure:
            self.method.personal(client)
            scores["held"] = self._test(client.id)
        return Result(task.index, client.id, reply, state, scores, trace)

    def _final(self, task: Task) -> Result:
        client = self._receive(task)
        self._train(client)
        trace = client.trace
        self.method.personal(client)
        reply = Payload({"model": client.weights()}).pack() if task.want_model else None
        return Result(task.index, client.id, reply, scores={"final": self._test(client.id)}, trace=trace)

    def _preview(self, task: Task) -> Result:
        client = self._receive(task)
        return Result(task.index, client.id, scores={"received": self._test(client.id)})

    def _ask(self, task: Task) -> Result:
        client = self._client(task)
        payload = Payload.unpack(task.payload)
        check(payload, self.initial)
        reply: Payload = getattr(self.method, task.question)(client, payload)
        return Result(task.index, client.id, reply.pack(), self._keep(client), trace=client.trace)

    def _score(self, task: Task) -> Result:
        self.network.load(unpack(task.payload))
        parts = [self._tensors(client, "test") for client in task.clients]
        x, y = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
        lost, right = outcomes(self.network, _channels_last(x), y, self.job.training.loss)
        sizes = [len(y) for _, y in parts]
        scores = {
            str(client): Score(int(hit.sum()), float(loss.double().sum()), len(hit))
            for client, loss, hit in zip(task.clients, torch.split(lost, sizes), torch.split(right, sizes), strict=True)
        }
        return Result(task.index, scores=scores)

    def _receive(self, task: Task) -> Client:
        client = self._client(task)
        payload = Payload.unpack(task.payload)
        check(payload, self.initial)
        client.payload = payload
        self.method.receive(client, payload)
        client.received = client.weights()
        return client

    def _train(self, client: Client) -> None:
        self.method.fit(client)
        private = [weights for weights in client.state.values() if isinstance(weights, dict)]
        for weights in (client.weights(), *private):
            for name, tensor in weights.items():
                if isinstance(tensor, Tensor) and not torch.isfinite(tensor).all():
                    raise Rejected(f"{name} is not finite after training (is the learning rate too high?)")

    def _client(self, task: Task) -> Client:
        """The client as it was when its last task was accepted, or new."""
        self.network.load(self.initial)
        client = Client(
            task.client,
            self.network,
            self._data(task.client),
            self.job.training,
            task.moment,
            task.question or ("fit" if task.kind == "preview" else task.kind),
            self.shared,
            self._twin,
            task.greedy,
        )
        stored: dict[str, Any] = unpack(task.state) if task.state else {}
        if not stored or has_objects(stored):
            self.method.start_client(client)
        if stored:
            client.state = restore(client.state, stored["state"])
            client.load(stored["private"])
        return client

    def _keep(self, client: Client) -> bytes | None:
        """What outlives the task: the client's state and the private part of its model."""
        private = select(client.weights(), self.kept) if self.kept else {}
        if not private and not client.state:
            return None
        return pack({"private": private, "state": client.state})

    def _test(self, client: int) -> Score:
        x, y = self._tensors(client, "test")
        return evaluate(self.network, x, y, self.job.training.loss)

    def _data(self, client: int) -> Callable[[str], tuple[Tensor, Tensor]]:
        loaded: dict[str, tuple[Tensor, Tensor]] = {}

        def data(split: str) -> tuple[Tensor, Tensor]:
            if split not in loaded:
                loaded[split] = self._tensors(client, split)
            return loaded[split]

        return data

    def _twin(self) -> Network:
        """A second network, built when a method first needs one."""
        if self._second is None:
            self._second = build(self.job.model, inputs_of(self.job.federation.samples), self.job.seed)
            self._second.module.to(self.job.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self._second

    def _tensors(self, client: int, split: str) -> tuple[Tensor, Tensor]:
        federation = self.job.federation
        return tensors(federation.samples, getattr(federation, split)[client], self.job.device)


def parts(job: Job, network: Network) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the tensors that travel and of those that stay with the client.

    Running statistics travel with their layer, stay, or do neither and start afresh in every task.
    """
    shared, everything = job.method.shared(network), frozenset(network.names)
    if job.model.running_statistics == "averaged":
        return shared, everything - shared
    shared = shared - network.statistics
    kept = everything - shared
    return shared, kept if job.model.running_statistics == "local" else kept - network.statistics


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
