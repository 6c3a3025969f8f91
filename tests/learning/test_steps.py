"""What a step can do with a mini-batch besides the plain descent."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fedtailor.learning import Batch, TrainingSettings, TrainOptions, descend, reach, train
from fedtailor.models import Network
from fedtailor.seeding import torch_stream
from tests.support.networks import cnn, images, normalised, vectors

SETTINGS = TrainingSettings(epochs=1, batch_size=8)


def fit(net: Network, data: tuple[Tensor, Tensor], step: Callable[[Batch], Tensor], **more) -> None:
    train(net, *data, SETTINGS, torch_stream("batches"), TrainOptions(lr=0.05, step=step, **more))


def test_the_gradient_at_other_weights_is_the_one_a_network_with_those_weights_has() -> None:
    here, there = cnn(), cnn()
    there.load({name: tensor * 1.5 + 0.01 for name, tensor in here.weights().items()})
    found: list[list[Tensor]] = []

    def look(batch: Batch) -> Tensor:
        loss, gradients = batch.gradient(at=batch.like(there.weights()))
        found.append(gradients)
        return loss

    def plain(batch: Batch) -> Tensor:
        loss, gradients = batch.gradient()
        found.append(gradients)
        return loss

    before = here.weights()
    fit(here, images(8), look)
    fit(there, images(8), plain)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert all(torch.equal(before[name], tensor) for name, tensor in here.weights().items())


def test_after_a_look_elsewhere_the_optimiser_still_moves_the_network() -> None:
    plain, looking = cnn(), cnn()

    def look(batch: Batch) -> Tensor:
        batch.gradient(at=batch.moved(batch.gradient()[1], -1.0))
        return descend(batch)

    fit(plain, images(30), descend)
    fit(looking, images(30), look)
    assert all(torch.equal(plain.weights()[name], tensor) for name, tensor in looking.weights().items())


def test_running_statistics_are_updated_where_they_were_given() -> None:
    net = normalised()
    lent = {name: net.weights()[name] for name in net.statistics}

    def elsewhere(batch: Batch) -> Tensor:
        return batch.gradient(at=lent)[0]

    fit(net, vectors(24), elsewhere)
    assert lent["1.num_batches_tracked"] == 3
    assert all(torch.equal(net.weights()[name], normalised().weights()[name]) for name in net.statistics)
    fit(net, vectors(24), lambda batch: batch.gradient()[0])
    assert net.weights()["1.num_batches_tracked"] == 3
    assert all(torch.equal(net.weights()[name], lent[name]) for name in net.statistics)


def test_copies_like_the_parameters_are_laid_out_like_them_and_are_not_them() -> None:
    net = cnn()
    made: list[dict[str, Tensor]] = []

    def step(batch: Batch) -> Tensor:
        made.append(batch.like(net.weights()))
        assert [t.stride() for t in made[-1].values()] == [p.stride() for p in batch.parameters.values()]
        return descend(batch)

    fit(net, images(8), step)
    assert not torch.equal(made[0]["0.weight"], net.weights()["0.weight"])


@pytest.mark.parametrize(("samples", "sizes"), [(8, [4, 4]), (5, [3, 2]), (4, [2, 2]), (3, [3, 3]), (2, [2, 2])])
def test_with_batch_normalisation_no_part_of_a_batch_is_a_single_sample(samples: int, sizes: list[int]) -> None:
    seen: list[int] = []

    def step(batch: Batch) -> Tensor:
        parts = batch.split(2)
        seen.extend(len(part.targets) for part in parts)
        return parts[1].gradient()[0]

    fit(normalised(), vectors(samples), step)
    assert seen == sizes


@pytest.mark.parametrize(("samples", "sizes"), [(5, [3, 2]), (2, [1, 1]), (1, [1, 1])])
def test_a_batch_without_enough_samples_is_all_in_every_part(samples: int, sizes: list[int]) -> None:
    seen: list[int] = []

    def step(batch: Batch) -> Tensor:
        seen.extend(len(part.targets) for part in batch.split(2))
        return batch.gradient()[0]

    fit(cnn(), images(samples), step)
    assert seen == sizes


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [0, 1, 3, 20])
def test_the_reach_of_sgd_is_the_closed_form(momentum: float, steps: int) -> None:
    """With rho: [tau - rho (1 - rho^tau) / (1 - rho)] / (1 - rho)."""
    settings = SETTINGS.model_copy(update={"momentum": momentum})
    closed = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    assert reach(settings, steps) == pytest.approx(closed, rel=1e-12)


def test_the_reach_with_a_pull_is_a_geometric_sum() -> None:
    """Without momentum, a <- (1 - eta mu) a + 1: 1, 1.75, 2.3125 at eta mu = 1/4."""
    assert [reach(SETTINGS, steps, 0.25) for steps in (1, 2, 3)] == [1.0, 1.75, 2.3125]


def test_adams_steps_are_counted() -> None:
    assert reach(SETTINGS.model_copy(update={"optimiser": "adam", "momentum": 0.9}), 7) == 7


@pytest.mark.parametrize("pull", [0.0, 0.8])
def test_the_reach_is_what_the_loop_goes_along_a_constant_gradient(pull: float) -> None:
    """The loss sum(w): its gradient is 1 everywhere."""
    net = cnn()
    settings = SETTINGS.model_copy(update={"momentum": 0.5})
    before = net.weights()

    def total(network: Network, inputs: Tensor, targets: Tensor) -> Tensor:
        return torch.stack([value.sum() for value in network.parameters().values()]).sum()

    trace = train(
        net,
        *images(24),
        settings,
        torch_stream("b"),
        TrainOptions(lr=0.01, objective=total, toward=before, pull=pull, epochs=1),
    )
    moved = (before["0.weight"] - net.weights()["0.weight"]) / 0.01
    torch.testing.assert_close(moved, torch.full_like(moved, reach(settings, trace.steps, 0.01 * pull)))
    assert trace.steps == 3
