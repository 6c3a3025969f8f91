"""A worker: executes one task at a time. The same code in every engine is what makes them agree."""

import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from fedtailor.engines.base import Job, Result, Task
from fedtailor.learning import Score, evaluate, outcomes
from fedtailor.learning.tensors import inputs_of, tensors
from fedtailor.messages.payload import Rejected, check
from fedtailor.messages.trees import has_objects, pack, restore, unpack
from fedtailor.methods import Client, Payload, State
from fedtailor.models import Network, WorkCounter, build
from fedtailor.seeding import seed_of
from fedtailor.weights import Weights, finite, select


class Worker:
    """Executes the tasks of a job with one network that is loaded anew for each of them."""

    def __init__(self, job: Job):
        # More threads are slower at these sizes, and the order of sums would depend on their number.
        torch.set_num_threads(1)
        self.job = job
        self.method = job.method
        self.network = build(job.model, inputs_of(job.federation.samples), job.seed)
        self.initial, self._drawn = self.network.weights(), job.seed
        self.network.module.to(job.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.shared, self.kept = parts(job, self.network)
        self._second: Network | None = None
        self._relatives: dict[str, tuple[int, Network, Weights]] = {}  # by name: drawn with, network, initial weights
        self._work = WorkCounter()  # of what the method does, without what the framework measures

    def execute(self, task: Task) -> Result:
        """Do a task; whatever goes wrong in it is its result."""
        begin = time.perf_counter()
        self._work = WorkCounter()
        try:
            result = getattr(self, f"_{task.kind}")(task)
        except Rejected as refusal:
            result = Result(task.index, task.client, failure=str(refusal))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            result = Result(task.index, task.client, failure=reason, details=traceback.format_exc())
        work = result.work + self._work.total
        return Result(**{**vars(result), "seconds": time.perf_counter() - begin, "work": work})

    def _fit(self, task: Task) -> Result:
        client = self._receive(task)
        scores = {"received": self._test(client)} if "received" in task.measure else {}
        self._train(client)
        with self._counting():
            reply = self.method.upload(client).pack()
        state = self._keep(client)
        trace = client.trace
        if "held" in task.measure:
            self.method.personal(client)
            scores["held"] = self._test(client)
        return Result(task.index, client.id, reply, state, scores, trace, work=client.spent)

    def _final(self, task: Task) -> Result:
        client = self._receive(task)
        self._train(client)
        trace = client.trace
        self.method.personal(client)
        reply = None
        if task.want_model:
            reply = Payload({"model": client.model.weights()}, config={"network": client.deployed}).pack()
        return Result(task.index, client.id, reply, scores={"final": self._test(client)}, trace=trace)

    def _preview(self, task: Task) -> Result:
        client = self._receive(task)
        return Result(task.index, client.id, scores={"received": self._test(client)})

    def _ask(self, task: Task) -> Result:
        client = self._client(task)
        payload = self._payload(task)
        with self._counting():
            reply: Payload = getattr(self.method, task.question)(client, payload)
        return Result(task.index, client.id, reply.pack(), self._keep(client), trace=client.trace, work=client.spent)

    def _score(self, task: Task) -> Result:
        network = self._relative(task.network) if task.network else self.network
        network.load(unpack(task.payload))
        parts = [self._tensors(client, "test") for client in task.clients]
        x, y = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
        lost, right = outcomes(network, _channels_last(x), y, self.job.training.loss)
        sizes = [len(y) for _, y in parts]
        scores = {
            str(client): Score(int(hit.sum()), float(loss.double().sum()), len(hit))
            for client, loss, hit in zip(task.clients, torch.split(lost, sizes), torch.split(right, sizes), strict=True)
        }
        return Result(task.index, scores=scores)

    def _receive(self, task: Task) -> Client:
        client = self._client(task)
        client.payload = payload = self._payload(task)
        with self._counting():
            self.method.receive(client, payload)
        client.received = client.weights()
        return client

    def _train(self, client: Client) -> None:
        with self._counting():
            self.method.fit(client)
        typed = [value.state_dict() for value in client.state.values() if isinstance(value, State)]
        private = [
            weights for state in (client.state, *typed) for weights in state.values() if isinstance(weights, dict)
        ]
        networks = (self.network, *client.relatives.values())
        for weights in (*(network.module.state_dict() for network in networks), *private):
            for name, tensor in weights.items():
                if isinstance(tensor, Tensor) and not finite(tensor):
                    raise Rejected(f"{name} is not finite after training (is the learning rate too high?)")

    def _counting(self) -> WorkCounter | nullcontext[None]:
        return self._work if self.job.counts_work else nullcontext()

    def _client(self, task: Task) -> Client:
        """The client as it was when its last task was accepted, or new."""
        if task.moment.network_seed != self._drawn:  # a new episode
            self._drawn = task.moment.network_seed
            self.initial = build(self.job.model, inputs_of(self.job.federation.samples), self._drawn).weights()
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
            self._relative,
            self.job.model.running_statistics,
            len(self.job.federation.train[task.client]),
            self.job.measured,
            self.job.federation.name(task.client),
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

    def _payload(self, task: Task) -> Payload:
        """What the server sent, checked."""
        payload = Payload.unpack(task.payload)
        sent = [name for name in self.method.family(self.job.model) if name in payload.groups]
        check(payload, self.initial, {name: self._relative(name).weights() for name in sent})
        return payload

    def _test(self, client: Client) -> Score:
        x, y = self._tensors(client.id, "test")
        return evaluate(client.model, x, y, self.job.training.loss)

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

    def _relative(self, name: str) -> Network:
        """A network of the method's family with its initial weights: built once, loaded anew."""
        drawn, network, initial = self._relatives.get(name, (None, None, None))
        if network is None or initial is None or drawn != self._drawn:
            network = relative(self.job, name, self._drawn)
            initial = network.weights()
            network.module.to(self.job.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self._relatives[name] = (self._drawn, network, initial)
        network.load(initial)
        return network

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


def relative(job: Job, name: str, seed: int) -> Network:
    """A network of the method's family with its initial weights, which are not those of one of another name."""
    return build(job.method.family(job.model)[name], inputs_of(job.federation.samples), seed_of(seed, "family", name))


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
