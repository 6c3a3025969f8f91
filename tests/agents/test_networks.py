"""The networks of agents: what they compute, and how large their first weights are."""

import pytest
import torch

from fedtailor.agents.networks import MLP, PerSlot, seen
from fedtailor.seeding import torch_stream


def test_an_mlp_by_hand() -> None:
    """relu(2 * 3 - 1) = 5 and relu(-3) = 0; 5 + 10 * 0 + 0.5 = 5.5."""
    net = MLP(1, (2,), 1, torch_stream("weights"))
    values = [[[2.0], [-1.0]], [-1.0, 0.0], [[1.0, 10.0]], [0.5]]
    net.load_state_dict({"parameters": [torch.tensor(value) for value in values]})
    assert net(torch.tensor([[3.0]])).tolist() == [[5.5]]


def bound(tensor: torch.Tensor) -> float:
    return float(tensor.detach().abs().max())


def test_first_weights_are_uniform_within_the_root_of_their_inputs() -> None:
    first, _, last, _ = MLP(16, (400,), 400, torch_stream("weights")).parameters
    assert bound(first) == pytest.approx(16**-0.5, rel=0.01)
    assert bound(last) == pytest.approx(3e-3, rel=0.01)
    assert abs(float(first.detach().mean())) < 0.01  # on both sides of 0


def test_the_encoder_of_a_slot_begins_as_a_hidden_layer() -> None:
    """Its last layer is within the root of its inputs too: 16 features, or a hidden layer of 64."""
    alone = PerSlot(16, (400,), 1, 1, torch_stream("weights"))
    assert bound(alone.encoder.parameters[-2]) == pytest.approx(16**-0.5, rel=0.01)
    deep = PerSlot(16, (64, 400), 1, 1, torch_stream("weights"))
    assert bound(deep.encoder.parameters[-2]) == pytest.approx(64**-0.5, rel=0.01)


def test_what_a_network_sees_by_hand() -> None:
    """Features, with zeros in the empty slot, then the mask."""
    state, mask = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([True, False])
    assert seen(state, mask).tolist() == [1.0, 2.0, 0.0, 0.0, 1.0, 0.0]


def test_the_outputs_of_slots_move_with_them_and_shared_ones_stay() -> None:
    net = PerSlot(2, (8,), 2, 3, torch_stream("weights"))
    state, mask = torch.randn(3, 2, generator=torch_stream("state")), torch.ones(3, dtype=torch.bool)
    order = torch.tensor([2, 0, 1])
    one, other = net(seen(state, mask)), net(seen(state[order], mask))
    assert one.shape == (3 * 2 + 3,)
    torch.testing.assert_close(other[:6].reshape(3, 2), one[:6].reshape(3, 2)[order])
    torch.testing.assert_close(other[6:], one[6:])
    assert one[:6].reshape(3, 2).unique(dim=0).shape == (3, 2)


def test_an_empty_slot_does_not_count_in_the_mean() -> None:
    net = PerSlot(2, (8,), 1, 1, torch_stream("weights"))
    state = torch.randn(3, 2, generator=torch_stream("state"))
    two = net(seen(state[:2], torch.ones(2, dtype=torch.bool)))
    three = net(seen(state, torch.tensor([True, True, False])))
    torch.testing.assert_close(three[:2], two[:2])
    torch.testing.assert_close(three[3:], two[2:])
