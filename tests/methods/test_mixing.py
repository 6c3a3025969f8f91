"""Element-wise mixes of two models: values by hand and the ends of the range.

The global model is w = 1, the local one w = 3, the target 0. At the mix m = 3 - 2 W the gradient is m, so a step with
rate eta moves W by 2 eta m.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fedtailor.methods import Client, Payload, find
from fedtailor.methods.mixing import learn_mix, mix
from tests.support.problem import W, play, targets


def test_a_mix_by_hand_for_the_names_that_have_weights() -> None:
    local = {"a": torch.tensor([0.0, 2.0]), "b": torch.tensor([5.0])}
    other = {"a": torch.tensor([4.0, -2.0]), "b": torch.tensor([6.0])}
    found = mix(local, other, {"a": torch.tensor([0.25, 0.5])})
    assert {name: tensor.tolist() for name, tensor in found.items()} == {"a": [1.0, 0.0]}


def test_a_mix_is_exact_at_its_ends() -> None:
    """0.1 + (0.3 - 0.1) is not 0.3 in floats."""
    local, other = {"a": torch.tensor([0.1])}, {"a": torch.tensor([0.3])}
    assert torch.equal(mix(local, other, {"a": torch.zeros(1)})["a"], local["a"])
    assert torch.equal(mix(local, other, {"a": torch.ones(1)})["a"], other["a"])


def learned(folder: Path, start: float, target: Sequence[float] = (0.0,), **settings: Any) -> tuple[float, float]:
    """The weight that is learned from ``start``, and the model that is left in the network."""
    found: list[float] = []

    class Mixing(find("fedavg")):  # type: ignore[misc]
        name = ""

        def receive(self, client: Client, payload: Payload) -> None:
            super().receive(client, payload)
            local, weights = {W: torch.tensor([[3.0]])}, {W: torch.tensor([[start]])}
            after = learn_mix(client, local, weights, **settings)
            found.extend([float(after[W]), float(client.weights()[W])])
            assert float(weights[W]) == start  # what was given stays
            client.load({W: torch.tensor([[1.0]])})

        def fit(self, client: Client) -> None: ...

    play(folder, Mixing(), targets(target), rounds=1)
    return found[0], found[1]


def test_weights_are_learned_by_hand(tmp_path: Path) -> None:
    """eta = 1/12 from W = 0: m = 3, W = 1/2; m = 2, W = 1/2 + 1/3; m = 4/3."""
    assert learned(tmp_path / "1", 0.0, eta=1 / 12) == pytest.approx((1 / 2, 2.0), abs=1e-6)
    assert learned(tmp_path / "2", 0.0, eta=1 / 12, epochs=2) == pytest.approx((5 / 6, 4 / 3), abs=1e-6)


def test_weights_stay_between_zero_and_one(tmp_path: Path) -> None:
    """From W = 1/2 the step of 2 m = 4 leads beyond 1; with the target 10, whose gradient is m - 10, below 0."""
    assert learned(tmp_path / "1", 0.5, eta=1.0) == (1.0, 1.0)
    assert learned(tmp_path / "2", 0.5, [10.0], eta=1.0) == (0.0, 3.0)


def test_without_a_rate_the_network_holds_the_mix_of_the_given_weights(tmp_path: Path) -> None:
    assert learned(tmp_path / "run", 0.25, eta=0.0) == (0.25, 2.5)


def test_only_the_chosen_rows_teach(tmp_path: Path) -> None:
    """The first sample has target 0, the other would pull to 10."""
    rows = torch.tensor([0])
    assert learned(tmp_path / "run", 0.0, [0.0, 10.0], eta=1 / 12, rows=rows) == pytest.approx((1 / 2, 2.0), abs=1e-6)


def test_it_ends_when_it_is_told(tmp_path: Path) -> None:
    """Three epochs at most; after the first the losses are (3^2 / 2), and it ends."""
    heard: list[list[float]] = []

    def until(losses: Sequence[float]) -> bool:
        heard.append(list(losses))
        return True

    found = learned(tmp_path / "run", 0.0, eta=1 / 12, epochs=3, until=until)
    assert found == pytest.approx((1 / 2, 2.0), abs=1e-6)
    assert heard[0] == [4.5]
