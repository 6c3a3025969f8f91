"""Our optimisers are torch's, and the gradients they are given are the ones of the paper."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedtailor.learning import TrainingSettings, TrainOptions, train
from fedtailor.learning.optimisers import SGD, Adam, optimiser
from fedtailor.messages.trees import pack, unpack
from fedtailor.models import Inputs, Network
from fedtailor.seeding import torch_stream
from tests.support.networks import cnn, images, line

OURS = {
    "plain": ({}, torch.optim.SGD, {}),
    "momentum": ({"momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    "decay": ({"weight_decay": 0.05}, torch.optim.SGD, {"weight_decay": 0.05}),
    "momentum-decay": (
        {"momentum": 0.5, "weight_decay": 0.05},
        torch.optim.SGD,
        {"momentum": 0.5, "weight_decay": 0.05},
    ),
    "adam": ({"optimiser": "adam"}, torch.optim.Adam, {}),
    "adam-decay": ({"optimiser": "adam", "weight_decay": 0.05}, torch.optim.Adam, {"weight_decay": 0.05}),
}


@pytest.mark.parametrize("kind", OURS)
def test_twenty_steps_on_a_cnn_equal_those_of_torch(kind: str) -> None:
    changes, theirs, arguments = OURS[kind]
    ours, reference = cnn(), cnn()
    x, y = images()
    mine = optimiser(TrainingSettings(**changes), list(ours.parameters().values()), lr=0.01)
    yours = theirs(reference.module.parameters(), lr=0.01, **arguments)
    for step in range(20):
        part = slice(step % 5 * 10, step % 5 * 10 + 10)
        loss = F.cross_entropy(ours(x[part]), y[part])
        mine.step(list(torch.autograd.grad(loss, list(ours.parameters().values()))))
        yours.zero_grad()
        F.cross_entropy(reference(x[part]), y[part]).backward()
        yours.step()
    moved = max(
        float((a - b).abs().max()) for a, b in zip(ours.weights().values(), cnn().weights().values(), strict=True)
    )
    assert moved > 0.01
    for name, tensor in ours.weights().items():
        torch.testing.assert_close(tensor, reference.weights()[name], rtol=0, atol=1e-7)


@pytest.mark.parametrize("kind", OURS)
def test_the_training_loop_equals_a_plain_loop_with_torchs_optimiser(kind: str) -> None:
    """The plain loop is contiguous, the training loop channels-last."""
    changes, theirs, arguments = OURS[kind]
    ours, reference = cnn(), cnn()
    x, y = images(47)
    settings = TrainingSettings(epochs=4, batch_size=10, **changes)
    trace = train(ours, x, y, settings, torch_stream("batches"), TrainOptions(lr=0.01))

    stream, losses = torch_stream("batches"), []
    torch.randint(2**62, (), generator=stream)  # the seed of the dropout draws
    yours = theirs(reference.module.parameters(), lr=0.01, **arguments)
    for _ in range(4):
        for rows in torch.split(torch.randperm(47, generator=stream), 10):
            yours.zero_grad()
            loss = F.cross_entropy(reference(x[rows]), y[rows])
            loss.backward()
            yours.step()
            losses.append(float(loss.detach()) * len(rows))
    for name, tensor in ours.weights().items():
        torch.testing.assert_close(tensor, reference.weights()[name], rtol=1e-5, atol=1e-5)
    assert (trace.steps, trace.samples) == (20, 4 * 47)
    assert trace.loss == pytest.approx(sum(losses) / (4 * 47), rel=1e-5)


def test_an_optimiser_does_not_change_the_gradients_it_is_given() -> None:
    for made in (SGD, Adam):
        gradient = torch.ones(2)
        one = made([torch.zeros(2), torch.ones(2)], lr=0.1, weight_decay=0.5)
        one.step([gradient, gradient])
        assert gradient.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("made", [SGD, Adam])
def test_a_restored_optimiser_continues_to_the_bit(made: type) -> None:
    def steps(one: SGD | Adam, first: int, last: int) -> None:
        for step in range(first, last):
            one.step([torch.randn(3, generator=torch_stream(step))])

    more = {"momentum": 0.9} if made is SGD else {}
    whole, begun = torch.ones(3), torch.ones(3)
    steps(made([whole], lr=0.1, **more), 0, 6)
    before = made([begun], lr=0.1, **more)
    steps(before, 0, 3)
    after, forgetful = made([begun], lr=0.1, **more), begun.clone()
    after.load_state_dict(unpack(pack(before)).state)
    steps(made([forgetful], lr=0.1, **more), 3, 6)
    steps(after, 3, 6)
    assert torch.equal(begun, whole)
    assert not torch.equal(forgetful, whole)


# One step by hand: y = w x with w = (1, 2), x = (3, 1), target 1: the error is 4, the gradient 4 * (3, 1).
X, Y = torch.tensor([[3.0, 1.0]]), torch.tensor([[1.0]])


def trained(steps: int = 1, lr: float = 0.01, pull: float = 0.0, **changes: object) -> list[float]:
    net = line()
    settings = TrainingSettings(loss="squared-error", batch_size=5, **changes)
    toward = {"0.weight": torch.tensor([[0.0, 3.0]])}
    train(net, X, Y, settings, torch_stream("b"), TrainOptions(lr=lr, steps=steps, toward=toward, pull=pull))
    return net.weights()["0.weight"].flatten().tolist()


def test_a_step_of_linear_regression_by_hand() -> None:
    assert trained() == pytest.approx([1 - 0.01 * 12, 2 - 0.01 * 4])


def test_the_mean_over_a_batch_is_taken_by_hand() -> None:
    net = line()
    settings = TrainingSettings(epochs=1, loss="squared-error", batch_size=2)
    x, y = torch.tensor([[3.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0], [3.0]])  # errors 4 and -2
    trace = train(net, x, y, settings, torch_stream("b"), TrainOptions(lr=0.1))
    gradient = [(4 * 3 - 2 * 1) / 2, 4 * 1 / 2]
    assert net.weights()["0.weight"].flatten().tolist() == pytest.approx([1 - 0.1 * gradient[0], 2 - 0.1 * gradient[1]])
    assert trace.loss == pytest.approx((16 / 2 + 4 / 2) / 2)


def test_two_steps_with_momentum_and_weight_decay_by_hand() -> None:
    w, v = [1.0, 2.0], [0.0, 0.0]
    for _ in range(2):
        error = 3 * w[0] + w[1] - 1
        gradient = [error * 3 + 0.2 * w[0], error + 0.2 * w[1]]
        v = [0.5 * v[0] + gradient[0], 0.5 * v[1] + gradient[1]]
        w = [w[0] - 0.01 * v[0], w[1] - 0.01 * v[1]]
    assert trained(steps=2, momentum=0.5, weight_decay=0.2) == pytest.approx(w)


def test_the_proximal_pull_adds_the_distance_to_the_gradient() -> None:
    assert trained(pull=0.5) == pytest.approx([1 - 0.01 * (12 + 0.5 * (1 - 0)), 2 - 0.01 * (4 + 0.5 * (2 - 3))])


def test_the_proximal_pull_goes_through_momentum() -> None:
    w, v = [1.0, 2.0], [0.0, 0.0]
    for _ in range(3):
        error = 3 * w[0] + w[1] - 1
        gradient = [error * 3 + 0.5 * (w[0] - 0), error + 0.5 * (w[1] - 3)]
        v = [0.9 * v[0] + gradient[0], 0.9 * v[1] + gradient[1]]
        w = [w[0] - 0.01 * v[0], w[1] - 0.01 * v[1]]
    assert trained(steps=3, pull=0.5, momentum=0.9) == pytest.approx(w)


def test_the_weights_pulled_toward_are_not_changed() -> None:
    toward = {"0.weight": torch.tensor([[0.0, 3.0]])}
    settings = TrainingSettings(loss="squared-error", momentum=0.9, clip=0.1)
    train(line(), X, Y, settings, torch_stream("b"), TrainOptions(lr=0.1, steps=3, toward=toward, pull=0.5))
    assert toward["0.weight"].flatten().tolist() == [0.0, 3.0]


def test_a_large_gradient_is_scaled_to_the_largest_norm() -> None:
    norm = (12**2 + 4**2) ** 0.5
    assert trained(clip=2.0) == pytest.approx([1 - 0.01 * 12 * 2 / norm, 2 - 0.01 * 4 * 2 / norm])


def test_a_small_gradient_is_not_clipped() -> None:
    assert trained(clip=13.0) == trained()


def test_clipping_takes_the_norm_over_all_tensors_and_sees_the_pull() -> None:
    clipped, free, start = cnn(), cnn(), cnn().weights()
    x, y = images(10)
    toward = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
    for net, clip in ((clipped, 0.05), (free, None)):
        train(
            net,
            x,
            y,
            TrainingSettings(clip=clip),
            torch_stream("b"),
            TrainOptions(lr=1.0, steps=1, toward=toward, pull=0.3),
        )
    after, unclipped = clipped.weights(), free.weights()
    gradients = {name: start[name] - unclipped[name] for name in start}
    norm = torch.cat([g.flatten() for g in gradients.values()]).norm()
    assert norm > 0.05
    for name in start:
        torch.testing.assert_close(start[name] - after[name], gradients[name] * (0.05 / norm), rtol=1e-3, atol=1e-6)


class Sum(nn.Module):
    """Two parameters that are added before use: autograd gives both the very same gradient tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.common, self.own = nn.Parameter(torch.tensor([[1.0, 0.0]])), nn.Parameter(torch.tensor([[0.0, 2.0]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.common + self.own)


@pytest.mark.parametrize("changes", [{}, {"weight_decay": 0.1}, {"clip": 1.0}, {"pull": 0.5}], ids=str)
def test_parameters_that_are_added_together_do_not_disturb_each_others_gradients(changes: dict) -> None:
    changes, module = dict(changes), Sum()
    pull = changes.pop("pull", 0.0)
    toward = {"common": torch.zeros(1, 2), "own": torch.ones(1, 2)}
    settings = TrainingSettings(loss="squared-error", **changes)
    net = Network(module, (), Inputs((2,), 1))
    train(net, X, Y, settings, torch_stream("b"), TrainOptions(lr=0.01, steps=1, toward=toward, pull=pull))

    plain = Sum()
    (0.5 * (plain(X) - Y).square().sum()).backward()
    gradients = {}
    for name, parameter in plain.named_parameters():
        gradients[name] = parameter.grad + pull * (parameter.detach() - toward[name])
    scale = min(1.0, changes.get("clip", 1e9) / float(torch.cat(list(gradients.values())).norm()))
    for name, parameter in plain.named_parameters():
        step = gradients[name] * scale + changes.get("weight_decay", 0.0) * parameter.detach()
        torch.testing.assert_close(net.weights()[name], parameter.detach() - 0.01 * step)
