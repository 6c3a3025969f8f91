"""Candidates: mixes, corrected logits, and what is pooled about them."""

import math

import pytest
import torch
from torch import Tensor, nn

from fedtailor.methods.candidates import Candidate, best, grid, log_frequencies, mixed, output_bias, pooled
from fedtailor.models import Inputs, ModelSettings, Network, build


def test_the_grid_begins_with_the_fine_tuned_model() -> None:
    assert grid(mix=False, parts=False, correct=False) == (Candidate(1, 1, 0),)
    assert [len(grid(*on)) for on in ((True, False, True), (True, False, False), (False, False, True))] == [36, 6, 6]
    assert len(grid(mix=True, parts=True, correct=False)) == 36
    assert all(grid(*on)[0] == Candidate(1, 1, 0) for on in ((True, True, True), (True, False, True)))


def test_body_and_head_are_mixed_by_their_shares() -> None:
    network = Network(nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 2)), ["1"], Inputs((1,), 2))
    received = {name: torch.zeros_like(tensor) for name, tensor in network.weights().items()}
    tuned = {name: torch.full_like(tensor, 8.0) for name, tensor in received.items()}
    found = mixed(network, received, tuned, Candidate(0.25, 0.75, 1.0))
    assert found["0.weight"].flatten().tolist() == [2.0]
    assert found["1.weight"].flatten().tolist() == found["1.bias"].tolist() == [6.0, 6.0]
    same = mixed(network, received, tuned, Candidate(1.0, 1.0, 0.0))
    assert all(same[name] is tuned[name] for name in tuned)


def test_frequencies_are_smoothed_by_half_a_sample() -> None:
    found = log_frequencies(torch.tensor([0, 1, 0, 0]), 3)
    assert found.tolist() == pytest.approx([math.log(3.5 / 5.5), math.log(1.5 / 5.5), math.log(0.5 / 5.5)])


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("linear", Inputs((4,), 3)),
        ("mlp", Inputs((4,), 3)),
        ("lite", Inputs((1, 28, 28), 10)),
        ("fasttext", Inputs((5,), 4, 30)),
        ("gru", Inputs((5,), 4, 30)),
    ],
)
def test_a_changed_bias_moves_the_logits(name: str, inputs: Inputs) -> None:
    network = build(ModelSettings(name=name), inputs, 0)
    before, bias = network.weights(), output_bias(network)
    assert bias is not None
    assert all(torch.equal(network.weights()[key], before[key]) for key in before)  # it was only tried out
    network.module.eval()
    example, shift = inputs.example(), torch.arange(float(inputs.outputs))
    with torch.no_grad():
        plain = network(example)
        network.load({bias: before[bias] + shift})
        assert torch.allclose(network(example), plain + shift, atol=1e-5)


class Scaled(nn.Module):
    """Something follows the last layer, so that its bias is not added to the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.last(x)


def test_logits_are_not_moved_where_no_bias_is_added_to_them() -> None:
    assert output_bias(Network(Scaled(), ["last"], Inputs((4,), 3))) is None
    assert output_bias(Network(nn.Sequential(nn.Linear(4, 3, bias=False)), ["0"], Inputs((4,), 3))) is None


def test_pooled_gains_are_the_mean_less_standard_errors() -> None:
    """Weights 1/4 and 3/4; the difference 0.4 has the error sqrt(0.1875) 0.4, see test_hand_tailor."""
    evidence = {0: (1.0, [0.0, 0.5]), 1: (3.0, [0.0, 0.1]), 2: (0.0, [0.0, -1.0])}
    assert pooled(evidence, 0.0) == pytest.approx([0, 0.2])
    assert pooled(evidence, 2.0) == pytest.approx([0, 0.2 - 2 * math.sqrt(0.1875) * 0.4])


def test_one_client_is_too_little_evidence() -> None:
    assert pooled({}, 1.0) == pooled({0: (9.0, [0.0, 1.0]), 1: (0.0, [0.0, 1.0])}, 1.0) == []


def test_of_equal_candidates_the_first_is_best() -> None:
    candidates = grid(mix=True, parts=False, correct=False)
    assert best(candidates, [0.0, 0.2, 0.1, 0.2, 0.0, 0.0]) == candidates[1]
    assert best(candidates, [0.0] * 6) == candidates[0]
