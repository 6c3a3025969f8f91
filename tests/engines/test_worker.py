"""What a client sees in a task, whichever way the worker comes by it."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedtailor.data import DataSettings, build
from fedtailor.engines import Job, Task
from fedtailor.engines.worker import Worker
from fedtailor.learning import TrainingSettings
from fedtailor.methods import Client, Method, Moment, Payload
from fedtailor.methods.fedavg import FedAvg
from fedtailor.methods.fedper import FedPer
from fedtailor.models import ModelSettings
from fedtailor.weights import Weights

SEEN: list[Weights] = []


def look(client: Client) -> None:
    """Train, and only then ask what was received; spoil what was got."""
    before = client.weights()
    client.train()
    assert list(client.received) == list(before)
    assert all(torch.equal(client.received[name], before[name]) for name in before)
    SEEN.append({name: tensor.clone() for name, tensor in client.received.items()})
    for name, tensor in client.received.items():
        assert name not in client.payload["model"] or tensor is not client.payload["model"][name]
        tensor.fill_(7)


class Looking(FedAvg):
    def fit(self, client: Client) -> None:
        look(client)


class LookingHead(FedPer):
    def fit(self, client: Client) -> None:
        look(client)


class Adding(Looking):
    """It breaks the promise that what is received is what was sent."""

    def receive(self, client: Client, payload: Payload) -> None:
        client.load({name: client.weights()[name] + payload["model"][name] for name in payload["model"]})


def job_of(method: Method) -> Job:
    data = build(DataSettings.model_validate({"clients": 2, "samples": 100}), 0)
    return Job(method, ModelSettings(), TrainingSettings(epochs=1), 0, data)


@pytest.mark.parametrize("method", [Looking(), LookingHead(), Adding()], ids=lambda method: type(method).__name__)
def test_the_received_model_is_that_before_training_even_if_asked_for_later(method: Method) -> None:
    SEEN.clear()
    worker = Worker(job_of(method))
    shared = {name: tensor + 1 for name, tensor in worker.initial.items() if name in worker.shared}
    task = Task("fit", 0, Moment(0, round=1, rounds=2), 0, Payload({"model": shared}).pack())
    first = worker.execute(task)
    worker.execute(replace(task, client=1))  # another client in between changes nothing
    again = worker.execute(replace(task, state=first.state))  # with the private part that the client kept
    assert (first.failure, again.failure) == (None, None)
    expected: Any = {**worker.initial, **shared}
    if isinstance(method, Adding):
        expected = {name: worker.initial[name] + shared[name] for name in shared}
    assert all(torch.equal(SEEN[0][name], tensor) for name, tensor in expected.items())
    kept = {name for name in worker.initial if not torch.equal(SEEN[0][name], SEEN[2][name])}
    assert kept == (worker.kept if isinstance(method, LookingHead) else set())


def test_a_client_receives_what_it_is_sent_whoever_was_before() -> None:
    """A payload with a part of the model: the rest has the initial values, not those of the last client."""
    worker = Worker(job_of(Looking()))
    some = dict(list(worker.initial.items())[:1])
    whole = Task("fit", 0, Moment(0, round=1, rounds=1), 0, Payload({"model": worker.initial}).pack())
    part = replace(whole, payload=Payload({"model": some}).pack())
    alone = Worker(job_of(Looking())).execute(part)
    worker.execute(whole)
    assert worker.execute(part).reply == alone.reply
