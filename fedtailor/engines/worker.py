"""A worker executes tasks, one at a time or several clients together. All engines run this code; that is why their
results agree."""

import time
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedtailor.engines.base import TRAINING, Job, Result, Task
from fedtailor.engines.device import device_layer
from fedtailor.engines.networks import family_network, run_network, shared_and_kept
from fedtailor.learning import Criterion, Score, Trace, evaluate, evaluate_each
from fedtailor.learning.precision import computing
from fedtailor.learning.tensors import tensors
from fedtailor.learning.together import Start, dense_layers, train_together
from fedtailor.messages.payload import Rejected, check
from fedtailor.messages.trees import has_objects, pack, restore, unpack
from fedtailor.methods import Client, Payload, State
from fedtailor.models import Network, WorkCounter
from fedtailor.models.flops import TRAINING as PASSES
from fedtailor.weights import Weights, clone, finite, select

Training = Callable[[Client], None]
Opened = tuple[Client, dict[str, Score]]  # a client that received its payload, and scores so far


class Worker:
    """Executes the tasks of a job with one network, whose weights are reloaded for each task.

    Parameters
    ----------
    job : Job
        What all tasks have in common.
    """

    def __init__(self, job: Job):
        # More threads are slower at these sizes, and the order of summation would depend on their number.
        torch.set_num_threads(1)
        self.job = job
        self.method = job.method
        self._device = device_layer(job.device)
        self.network = run_network(job, job.seed)
        self.initial, self._network_seed = self.network.weights(), job.seed  # initial weights, and their seed
        self._place(self.network)
        self.shared, self.kept = shared_and_kept(job, self.network)
        self._second: Network | None = None
        self._family: dict[str, tuple[int, Network, Weights]] = {}  # by name: seed, network, initial weights
        self._work = WorkCounter()  # counts what the method does, not what the framework measures
        self._checked: bytes | None = None  # the payload that passed the checks last, which many clients share
        attack, clients = job.attack, job.federation.clients
        self._stack = dense_layers(self.network.module) if job.training.together == "on" else ()
        self._malicious = frozenset[int]() if attack is None else attack.clients(clients, job.seed)

    def execute(self, task: Task) -> Result:
        """Execute a task and return its result; an error in the task becomes the result's failure."""
        if self._stack and task.kind in TRAINING:
            return self._together([task])[0]
        return self._guarded(task, getattr(self, f"_{task.kind}"))

    def execute_all(self, tasks: Sequence[Task]) -> list[Result]:
        """Execute tasks and return their results; with ``training.together``, clients that train do so together."""
        if self._stack and all(task.kind in TRAINING for task in tasks):
            return self._together(tasks)
        return [self.execute(task) for task in tasks]

    def _together(self, tasks: Sequence[Task]) -> list[Result]:
        """Execute tasks in which a method's clients train as by default. A client's result is the same in any group."""
        opened: dict[int, Opened] = {}

        def receive(task: Task) -> Result:
            opened[task.index] = self._open(task)
            return Result(task.index, task.client)

        results = {task.index: self._guarded(task, receive) for task in tasks}
        begin = time.perf_counter()
        try:
            trained = dict(zip(opened, self._trained([client for client, _ in opened.values()]), strict=True))
        except Exception:  # of one of the clients: each trains alone, with the same bits, and that one fails
            trained = {}
        share = (time.perf_counter() - begin) / max(1, len(opened))
        for task in tasks:
            if task.index in opened:
                fit = partial(self._take, trained.get(task.index))
                rest = partial(getattr(self, f"_{task.kind}"), opened=opened[task.index], training=fit)
                done, before = self._guarded(task, rest), results[task.index]
                seconds, work = before.seconds + share + done.seconds, before.work + done.work
                results[task.index] = replace(done, seconds=seconds, work=work)
        return list(results.values())

    def _trained(self, clients: Sequence[Client]) -> list[tuple[Weights, Trace]]:
        """Train clients of one round together, from the models that they received."""
        starts = [Start(one.received, *one.data("train"), one.stream("batches")) for one in clients]
        with self._device.at_work():
            return train_together(self._stack, starts, self.job.training, clients[0].lr) if clients else []

    def _take(self, trained: tuple[Weights, Trace] | None, client: Client) -> None:
        """Give a client what its training together with others made of it, or train it alone."""
        weights, client.trace = trained or self._trained([client])[0]
        client.load(weights)
        if self.job.counts_work:
            client.spend(PASSES * client.trace.samples * sum(layer.inputs * layer.outputs for layer in self._stack))

    def _guarded(self, task: Task, do: Callable[[Task], Result]) -> Result:
        begin = time.perf_counter()
        self._work = WorkCounter()
        try:
            with self._device.at_work():
                result = do(task)
        except Rejected as refusal:
            result = Result(task.index, task.client, failure=str(refusal))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            result = Result(task.index, task.client, failure=reason, details=traceback.format_exc())
        work = result.work + self._work.total
        return Result(**{**vars(result), "seconds": time.perf_counter() - begin, "work": work})

    def _open(self, task: Task) -> Opened:
        """The client before its training, and the scores of the model that it received."""
        client = self._receive(task)
        return client, {"received": self._test(client)} if "received" in task.measure else {}

    def _fit(self, task: Task, opened: Opened | None = None, training: Training | None = None) -> Result:
        client, scores = opened or self._open(task)
        self._train(client, training)
        with self._counting():
            reply = self._sent(client, self.method.upload(client), client.payload).pack()
        state = self._keep(client)
        trace = client.trace
        if {"held", "validation"} & {*task.measure}:
            self.method.personal(client)
        if "held" in task.measure:
            scores["held"] = self._test(client)
        if "validation" in task.measure:
            scores["validation"] = self._test(client, "val")
        return Result(task.index, client.id, reply, state, scores, trace, work=client.spent)

    def _final(self, task: Task, opened: Opened | None = None, training: Training | None = None) -> Result:
        client, _ = opened or self._open(task)
        self._train(client, training)
        trace = client.trace
        self.method.personal(client)
        reply = _model(client) if task.want_model else None
        return Result(task.index, client.id, reply, scores={"final": self._test(client)}, trace=trace)

    def _adapt(self, task: Task) -> Result:
        client = self._receive(task)
        scores = {"received": self._test(client)}
        self._train(client, self.method.adapt)
        scores["new"] = self._test(client)
        return Result(task.index, client.id, _model(client) if task.want_model else None, scores=scores)

    def _preview(self, task: Task) -> Result:
        client = self._receive(task)
        return Result(task.index, client.id, scores={"received": self._test(client)})

    def _ask(self, task: Task) -> Result:
        client = self._client(task)
        payload = self._payload(task)
        with self._counting():
            honest: Payload = getattr(self.method, task.question)(client, payload)
        reply = self._sent(client, honest, payload, task.question)
        return Result(task.index, client.id, reply.pack(), self._keep(client), trace=client.trace, work=client.spent)

    def _score(self, task: Task) -> Result:
        network = self._family_network(task.network) if task.network else self.network
        network.load(unpack(task.payload))
        test_sets = [self._tensors(client, "test") for client in task.clients]
        x, y = torch.cat([x for x, _ in test_sets]), torch.cat([y for _, y in test_sets])
        sizes = [len(y) for _, y in test_sets]
        with computing(network, self.job.training.precision):
            scores = evaluate_each(network, _channels_last(x), y, sizes, self._loss(y), self.job.measures)
        return Result(task.index, scores=dict(zip(map(str, task.clients), scores, strict=True)))

    def _receive(self, task: Task) -> Client:
        """Return the client after it received the payload.

        By the method's promise, a model whose tensors are all in the payload need not be initialised before, and what
        was received can be copied when the method asks for it.
        """
        self._begin_episode(task)
        payload = self._payload(task)
        loaded = payload.groups.get("model", {}) if self.method.received_from_payload and not task.state else {}
        client = self._client(task, loaded)
        client.payload = payload
        with self._counting():
            self.method.receive(client, payload)
        if loaded:
            initial = self.initial
            client.on_received(lambda: clone({**initial, **loaded}))
        else:
            client.received = client.weights()
        return client

    def _train(self, client: Client, training: Training | None = None) -> None:
        """Train the client by the method's ``fit``, or by another function; reject weights that are not finite."""
        with self._counting():
            (training or self.method.fit)(client)
        typed = [value.state_dict() for value in client.state.values() if isinstance(value, State)]
        private = [
            weights for state in (client.state, *typed) for weights in state.values() if isinstance(weights, dict)
        ]
        networks = (self.network, *client.family_networks.values())
        for weights in (*(network.module.state_dict() for network in networks), *private):
            for name, tensor in weights.items():
                if isinstance(tensor, Tensor) and not finite(tensor):
                    raise Rejected(f"{name} is not finite after training (is the learning rate too high?)")

    def _sent(self, client: Client, honest: Payload, received: Payload, question: str = "") -> Payload:
        """Return what the client sends: its reply, or that of a malicious client in its place."""
        if client.id not in self._malicious:
            return honest
        assert self.job.attack is not None
        schema = (
            self.method.ask_schema(question, self.network, self.shared)
            if question
            else self.method.reply_schema(self.network, self.shared)
        )
        return self.job.attack.reply(honest, received, self.initial, schema)

    def _counting(self) -> WorkCounter | nullcontext[None]:
        return self._work if self.job.counts_work else nullcontext()

    def _begin_episode(self, task: Task) -> None:
        """Make the initial weights of the task's episode, if they are not those of the last task."""
        if task.moment.network_seed != self._network_seed:
            self._network_seed = task.moment.network_seed
            self.initial = run_network(self.job, self._network_seed).weights()

    def _client(self, task: Task, loaded: Collection[str] = ()) -> Client:
        """Return the client as it was after its last accepted task, or a new one.

        Its model has the initial weights, but for tensors that will be ``loaded`` next.
        """
        self._begin_episode(task)
        self.network.load({name: tensor for name, tensor in self.initial.items() if name not in loaded})
        training = self.job.training
        if task.passes is not None:
            training = training.model_copy(update={"epochs": task.passes, "steps": None})
        client = Client(
            task.client,
            self.network,
            self._data(task.client),
            training,
            task.moment,
            task.question or ("fit" if task.kind == "preview" else task.kind),
            self.shared,
            self._second_network,
            task.greedy,
            self._family_network,
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
        """Pack what outlives the task: the client's state and the private part of its model."""
        private = select(client.weights(), self.kept) if self.kept else {}
        if not private and not client.state:
            return None
        return pack({"private": private, "state": client.state})

    def _payload(self, task: Task) -> Payload:
        """Return what the server sent, after the checks."""
        payload = Payload.unpack(task.payload)
        if task.payload is self._checked:
            return payload
        sent = [name for name in self.method.family(self.job.model) if name in payload.groups]
        check(payload, self.initial, {name: self._family_network(name).weights() for name in sent})
        self._checked = task.payload
        return payload

    def _test(self, client: Client, split: str = "test") -> Score:
        x, y = self._tensors(client.id, split)
        with computing(client.model, self.job.training.precision):
            return evaluate(client.model, x, y, self._loss(y), self.job.measures)

    def _loss(self, targets: Tensor) -> Criterion:
        """The loss that evaluation reports; it has no weights."""
        return Criterion.of(self.job.training, targets).unweighted()

    def _data(self, client: int) -> Callable[[str], tuple[Tensor, Tensor]]:
        loaded: dict[str, tuple[Tensor, Tensor]] = {}

        def data(split: str) -> tuple[Tensor, Tensor]:
            if split not in loaded:
                loaded[split] = self._tensors(client, split)
            return loaded[split]

        return data

    def _second_network(self) -> Network:
        """Return a second network like the run's own, built when a method first needs one."""
        if self._second is None:
            self._second = run_network(self.job, self.job.seed)
            self._place(self._second)
        return self._second

    def _family_network(self, name: str) -> Network:
        """Return a network of the method's family with its initial weights: built once per episode, then reloaded."""
        seed, network, initial = self._family.get(name, (None, None, None))
        if network is None or initial is None or seed != self._network_seed:
            network = family_network(self.job, name, self._network_seed)
            initial = network.weights()
            self._place(network)
            self._family[name] = (self._network_seed, network, initial)
        network.load(initial)
        return network

    def _place(self, network: Network) -> None:
        """Move a network to the device, in the memory format that trains fastest."""
        network.module.to(self.job.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _tensors(self, client: int, split: str) -> tuple[Tensor, Tensor]:
        federation = self.job.federation
        x, y = tensors(federation.samples, getattr(federation, split)[client], client=client)
        return self._device.moved(x), self._device.moved(y)


def _model(client: Client) -> bytes:
    """The model that a client would deploy, with the name of its network in the method's family."""
    return Payload({"model": client.model.weights()}, config={"network": client.deployed}).pack()


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
