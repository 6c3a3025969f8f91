"""The server as a method sees it: averages and names."""

import numpy as np
import torch

from fedtailor.data.federation import Federation
from fedtailor.data.samples import Samples
from fedtailor.data.shares import Shares
from fedtailor.learning import TrainingSettings
from fedtailor.methods import Memory, Moment, Payload, Server
from fedtailor.models import Inputs, Network
from fedtailor.parties.server import Numbered


def server(**more: object) -> Server:
    network = Network(torch.nn.Sequential(torch.nn.Linear(1, 1)), ("0",), Inputs((1,), 1))
    shared = frozenset(network.names)
    memory = Memory(lambda client: None, set())
    return Server(network, (1, 3), TrainingSettings(), Moment(0), shared, memory, **more)  # type: ignore[arg-type]


def reply(value: float, samples: int) -> Payload:
    return Payload({"model": {"a": torch.tensor(value), "b": torch.tensor(-value)}}, {"samples": samples})


def test_replies_are_averaged_by_samples_or_by_given_weights() -> None:
    replies = {0: reply(0.0, 1), 4: reply(4.0, 3)}
    assert server().average(replies) == {"a": 3.0, "b": -3.0}
    assert server().average(replies, weights=dict.fromkeys(replies, 1.0)) == {"a": 2.0, "b": -2.0}
    assert server().average(replies, names={"b"}) == {"b": -3.0}
    assert server().average(replies, names=()) == {}
    assert server().average({4: replies[4]}) == {"a": 4.0, "b": -4.0}


def test_what_the_server_made_of_replies_is_averaged_in_their_place() -> None:
    replies = {0: reply(0.0, 1), 4: reply(4.0, 3)}
    values = {4: {"c": torch.tensor(8.0)}, 0: {"c": torch.tensor(0.0)}, 7: {"c": torch.tensor(99.0)}}
    assert server().average(replies, values=values) == {"c": 6.0}


def test_clients_have_names() -> None:
    assert list(server().names) == ["client-0", "client-1"]
    assert Numbered(10**6)[-1] == "client-999999"  # none of them is stored
    named = server(names=("north", "south"))
    assert named.names == named.preview(lambda _: None).names == ("north", "south")


def test_a_federation_names_its_clients() -> None:
    x, y = np.zeros((2, 1), np.float32), np.zeros(2, np.int64)
    samples = Samples(x=x, y=y, classes=("a",), official_test=np.zeros(2, bool))
    shares = Shares(np.arange(2), np.array([0, 1, 2]))
    assert Federation(samples, shares, shares, shares).names == ("client-0", "client-1")
    labelled = Federation(samples, shares, shares, shares, labels=("north", "south"))
    assert labelled.names == ("north", "south")
    assert labelled.digest() == Federation(samples, shares, shares, shares).digest()
