"""A network over slots moves with them, ignores empty ones, and lets a slot look at another."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedtailor.agents import Attention, seen
from fedtailor.learning.optimisers import Adam
from fedtailor.messages.trees import pack, unpack
from fedtailor.seeding import torch_stream

torch.set_num_threads(1)  # as in a run


def network(per_slot: int = 2, shared: int = 3, seed: int = 0, hidden: tuple[int, ...] = (16, 8)) -> Attention:
    """With the last layer drawn anew, larger, so that outputs are of order one."""
    made = Attention(4, hidden, per_slot, shared, torch_stream(seed, "weights"))
    with torch.no_grad():
        for parameter in made.parameters[-2:]:
            parameter.normal_(generator=torch_stream(seed, "last"))
    return made


def slots(count: int = 5, batch: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    stream = torch_stream(seed, "slots")
    mask = torch.rand(batch, count, generator=stream) < 0.7
    mask[:, 0] = True
    return torch.randn(batch, count, 4, generator=stream), mask


def test_the_outputs_by_hand() -> None:
    """One feature, width one. Slots x = (1, 3) have h = (1, 3); q = 0 looks at both alike, so c = mean of v = 2 h is 4.

    f = h + 10 c + 100 h c: 1 + 40 + 400 = 441 and 3 + 40 + 1200 = 1243; shared is the mean, 842. Without the second
    slot c = 2: 1 + 20 + 200 = 221.
    """
    made = Attention(1, (1,), 1, 1, torch_stream("w"))
    encoder, look, output = [[1.0]], [[0.0], [1.0], [2.0]], [[1.0, 10.0, 100.0]] * 2
    parameters = [torch.tensor(p) for p in (encoder, [0.0], look, [0.0] * 3, output, [0.0] * 2)]
    made.load_state_dict({"parameters": parameters})
    state = torch.tensor([[1.0], [3.0]])
    each, shared = made.outputs(state, torch.tensor([True, True]))
    assert each.tolist() == [[441.0], [1243.0]]
    assert shared.tolist() == [842.0]
    each, shared = made.outputs(state, torch.tensor([True, False]))
    assert (each[0].item(), shared.item()) == (221.0, 221.0)


def test_a_slot_looks_where_its_score_is_highest() -> None:
    """With q = h and k = h times 100 all look at the largest h, 3, so c = 6 for all: h + 10 c = 61, 62 and 63."""
    made = Attention(1, (1,), 1, 0, torch_stream("w"))
    look = [[1.0], [100.0], [2.0]]
    parameters = [[[1.0]], [0.0], look, [0.0] * 3, [[1.0, 10.0, 0.0]], [0.0]]
    made.load_state_dict({"parameters": [torch.tensor(p) for p in parameters]})
    each, shared = made.outputs(torch.tensor([[1.0], [2.0], [3.0]]), torch.ones(3, dtype=torch.bool))
    assert each.flatten().tolist() == pytest.approx([61.0, 62.0, 63.0], abs=1e-4)
    assert shared.shape == (0,)


def test_outputs_of_slots_move_with_them_and_shared_ones_stay() -> None:
    made = network()
    state, mask = slots()
    order = torch.randperm(5, generator=torch_stream("order"))
    each, shared = made.outputs(state, mask)
    moved, same = made.outputs(state[:, order], mask[:, order])
    torch.testing.assert_close(moved, each[:, order], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(same, shared, atol=1e-6, rtol=1e-6)
    assert (each[:, 1:] - each[:, :1]).abs().min() > 1e-4


def test_empty_slots_have_no_influence() -> None:
    """Whatever stands in them, and as if they did not exist."""
    made = network()
    state, mask = slots()
    junk = torch.where(mask.unsqueeze(-1), state, torch.full((), 1e3))
    for one, other in zip(made.outputs(state, mask), made.outputs(junk, mask), strict=True):
        present = mask if one.dim() == 3 else slice(None)
        torch.testing.assert_close(one[present], other[present], atol=1e-6, rtol=1e-6)
    for row, here in enumerate(mask):
        each, shared = made.outputs(state[row, here], torch.ones(int(here.sum()), dtype=torch.bool))
        torch.testing.assert_close(each, made.outputs(state, mask)[0][row, here], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(shared, made.outputs(state, mask)[1][row], atol=1e-5, rtol=1e-5)


def test_present_slots_have_influence_on_each_other() -> None:
    """The gradient of a slot's output reaches every present slot and no empty one."""
    made = network()
    state, mask = slots()
    state.requires_grad_()
    for row in range(3):
        for slot in mask[row].nonzero().flatten():
            (gradient,) = torch.autograd.grad(made.outputs(state, mask)[0][row, slot].sum(), state)
            assert ((gradient[row].abs().sum(-1) > 0) == mask[row]).all()
            assert gradient[[other for other in range(3) if other != row]].abs().max() == 0


def test_gradients_reach_every_parameter_and_are_the_slope() -> None:
    made = network()
    for parameter in made.parameters:
        parameter.data = parameter.data.double()
    state, mask = slots()
    state, stream = state.double(), torch_stream("directions")

    def loss() -> Tensor:
        each, shared = made.outputs(state, mask)
        return each[mask].square().mean() + shared.square().mean()

    gradients = torch.autograd.grad(loss(), made.parameters)
    for parameter, gradient in zip(made.parameters, gradients, strict=True):
        direction = torch.randn(parameter.shape, generator=stream, dtype=torch.double)
        around = []
        for step in (-1e-6, 1e-6):
            with torch.no_grad():
                parameter.add_(step * direction)
                around.append(float(loss()))
                parameter.sub_(step * direction)
        slope = float((gradient * direction).sum())
        assert abs(slope) > 1e-3
        assert (around[1] - around[0]) / 2e-6 == pytest.approx(slope, rel=1e-5)


def test_flat_outputs_are_those_of_the_slots_and_then_of_all() -> None:
    made = network()
    state, mask = slots()
    flat = made(seen(state, mask))
    each, shared = made.outputs(state, mask)
    assert flat.shape == (3, 5 * 2 + 3)
    torch.testing.assert_close(flat[:, :10].reshape(3, 5, 2)[mask], each[mask], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(flat[:, 10:], shared, atol=1e-6, rtol=1e-6)
    assert network(2, 0)(seen(state[0], mask[0])).shape == (10,)
    assert network(0, 1)(seen(state, mask)).shape == (3, 1)


def test_any_number_of_slots_will_do() -> None:
    made = network()
    for count in (1, 2, 30):
        state, mask = slots(count)
        assert made(seen(state, mask)).shape == (3, count * 2 + 3)


def test_a_slot_learns_to_compare_itself_with_a_marked_one() -> None:
    """Output 1 where the sign agrees with that of the marked slot, -1 elsewhere: nothing that a slot knows alone."""

    def task(stream: torch.Generator) -> tuple[Tensor, Tensor]:
        signs = torch.randint(2, (64, 5, 1), generator=stream) * 2.0 - 1
        marks = F.one_hot(torch.randint(5, (64,), generator=stream), 5).unsqueeze(-1).float()
        special = (signs * marks).sum(1, keepdim=True)
        return torch.cat([signs, marks, torch.zeros(64, 5, 2)], -1), (signs * special).squeeze(-1)

    def error(made: Attention, stream: torch.Generator) -> Tensor:
        state, wanted = task(stream)
        each, _ = made.outputs(state, torch.ones(64, 5, dtype=torch.bool))
        return F.mse_loss(each.squeeze(-1), wanted)

    made = Attention(4, (32, 32), 1, 0, torch_stream("w"))
    optimiser, stream = Adam(made.parameters, 5e-3), torch_stream("tasks")
    assert float(error(made, torch_stream("test")).detach()) > 0.9
    for _ in range(150):
        optimiser.step(list(torch.autograd.grad(error(made, stream), made.parameters)))
    assert float(error(made, torch_stream("test")).detach()) < 0.1


def test_it_is_kept_restored_and_averaged_like_any_network() -> None:
    """0.75 * w + 0.25 * 3 w = 1.5 w, in the parts that compute, too."""
    made, other = network(), network(seed=1)
    other.load_state_dict(unpack(pack(made)).state)
    assert pack(other) == pack(made) != pack(network(seed=1))
    state, mask = slots()
    assert torch.equal(other(seen(state, mask)), made(seen(state, mask)))
    copied = deepcopy(made)
    with torch.no_grad():
        for parameter in other.parameters:
            parameter.mul_(3)
    copied.approach(other, 0.75)
    torch.testing.assert_close(copied.parameters, [1.5 * parameter for parameter in made.parameters])
    assert not torch.equal(copied(seen(state, mask)), made(seen(state, mask)))


def test_it_draws_from_the_given_stream_alone() -> None:
    before = torch.random.get_rng_state()
    assert pack(network(seed=1)) == pack(network(seed=1)) != pack(network(seed=2))
    assert torch.equal(torch.random.get_rng_state(), before)
