"""Training in bf16 with fp32 master weights."""

import pytest
import torch
from torch import Tensor, nn

from fedtailor.learning import Batch, FeatureCache, TrainingSettings, TrainOptions, precision, train
from fedtailor.learning.precision import computing, fails_in_bf16, native_bf16, resolved
from fedtailor.models import Inputs, Network
from fedtailor.models.processor import ALL, LIMIT, WITHOUT
from fedtailor.seeding import torch_stream
from tests.support.networks import cnn, images, normalised
from tests.support.problem import Constant

W = "0.weight"
FINE = 1 + 2**-9  # bf16 has 8 binary digits: it rounds this to 1


def scalar(weight: float) -> Network:
    """f(x) = w x; its loss is (w x - t)^2 / 2, and the gradient (w x - t) x."""
    network = Network(nn.Sequential(nn.Linear(1, 1, bias=False)), ["0"], Inputs((1,), 1))
    network.load({W: torch.tensor([[weight]])})
    return network


def bf16(**more: object) -> TrainingSettings:
    return TrainingSettings(precision="bf16", loss="squared-error", batch_size=1, epochs=1, **more)


def sample(x: float, target: float) -> tuple[Tensor, Tensor]:
    return torch.tensor([[x]]), torch.tensor([[target]])


def weight(network: Network) -> float:
    value = network.weights()[W]
    assert value.dtype == torch.float32
    return float(value)


def test_hand_one_step_of_sgd() -> None:
    """w = 1 + 2^-9 and x = 1.5 + 2^-9 are 1 and 1.5 in bf16. Output 1.5, target 1: loss 1/8, gradient 0.5 * 1.5 = 0.75.

    The master moves by 0.5 * 0.75: w = 1 + 2^-9 - 0.375 = 0.625 + 2^-9, which bf16 would round to 0.625.
    """
    network = scalar(FINE)
    trace = train(network, *sample(1.5 + 2**-9, 1.0), bf16(lr=0.5), torch_stream("b"))
    assert trace.loss == 0.125
    assert weight(network) == 0.625 + 2**-9


def test_masters_gather_steps_that_bf16_would_lose() -> None:
    """Target 0, x = 1, learning rate 2^-10, so a step is 2^-10 w. Below 1 the numbers of bf16 are 2^-8 apart.

    A weight in bf16 stays 1 for ever: 1 - 2^-10 rounds to 1. The master falls by 2^-10 three times (1 - 2^-9 is
    halfway and rounds to 1, the even one); then its copy is 1 - 2^-8, and the fourth step is 2^-10 (1 - 2^-8). So it
    ends at 1 - 2^-8 + 2^-18.
    """
    alone = torch.ones((), dtype=torch.bfloat16)
    for _ in range(4):
        alone -= 2**-10 * alone
    assert float(alone) == 1.0
    network = scalar(1.0)
    train(network, *sample(1.0, 0.0), bf16(lr=2**-10), torch_stream("b"), TrainOptions(steps=4))
    assert weight(network) == 1 - 2**-8 + 2**-18


def test_momentum_pull_and_correction_act_on_the_masters() -> None:
    """At the copy 1 with target 1 the gradient is 0. The pull 2 (w - 1) = 2^-8 and the correction 1 are not rounded."""
    network, one = scalar(FINE), {W: torch.ones(1, 1)}
    options = TrainOptions(toward=one, pull=2.0, correction=one)
    train(network, *sample(1.0, 1.0), bf16(lr=0.5, momentum=0.5), torch_stream("b"), options)
    assert weight(network) == FINE - 0.5 * (1 + 2**-8)


def test_a_gradient_elsewhere_leaves_the_weights() -> None:
    """At 2 the output is 2, so with target 1 the gradient is 1; at the master's copy it is 0."""
    found: list[float] = []

    def step(batch: Batch) -> Tensor:
        there = {W: torch.full((1, 1), 2 * FINE)}
        found.extend(float(batch.gradient(at=at)[1][0]) for at in (there, None))
        assert float(there[W]) == 2 * FINE
        return batch.gradient()[0]

    network = scalar(FINE)
    train(network, *sample(1.0, 1.0), bf16(), torch_stream("b"), TrainOptions(step=step))
    assert found == [1.0, 0.0]
    assert weight(network) == FINE


def test_a_gradient_with_other_frozen_weights_uses_them() -> None:
    """f = h b x with b = 1 frozen. At b = 2 the gradient by h is (2 h - 0) * 2 = 4 h; afterwards it is h again."""
    network = Network(nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)), ["1"], Inputs((1,), 1))
    network.load({"0.weight": torch.ones(1, 1), "1.weight": torch.ones(1, 1)})
    found: list[float] = []

    def step(batch: Batch) -> Tensor:
        found.extend(float(batch.gradient(at=at)[1][0]) for at in ({"0.weight": torch.full((1, 1), 2.0)}, None))
        return batch.gradient()[0]

    def objective(network: Network, inputs: Tensor, targets: Tensor) -> Tensor:  # it keeps the features from the cache
        return 0.5 * (network(inputs) - targets).square().mean()

    options = TrainOptions("head", step=step, objective=objective)
    train(network, *sample(1.0, 0.0), bf16(), torch_stream("b"), options)
    assert found == [4.0, 1.0]


def test_cached_features_give_the_head_of_the_whole_network() -> None:
    data, heads = images(24), []
    for objective in (None, lambda network, x, y: nn.functional.cross_entropy(network(x), y)):
        network = cnn()
        options = TrainOptions("head", epochs=2, objective=objective)  # an objective switches the cache off
        settings = TrainingSettings(precision="bf16", batch_size=8)
        train(network, *data, settings, torch_stream("b"), options, FeatureCache())
        heads.append(network.weights("head"))
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[0])


def test_bf16_and_fp32_end_near_each_other_but_not_at_the_same_bits() -> None:
    ends = []
    for kind in ("fp32", "bf16"):
        network = cnn()
        train(network, *images(32), TrainingSettings(precision=kind, epochs=2, batch_size=8), torch_stream("b"))
        ends.append(torch.cat([value.flatten() for value in network.weights().values()]))
    gap = float((ends[0] - ends[1]).abs().max())
    assert 0 < gap < 0.01


def test_auto_is_bf16_exactly_where_it_is_native(monkeypatch: pytest.MonkeyPatch) -> None:
    for native, expected in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(precision, "native_bf16", lambda device, native=native: native)
        assert resolved("auto", "cpu") == expected
        assert resolved("bf16", "cpu") == "bf16"
        assert resolved("fp32", "cpu") == "fp32"


@pytest.mark.parametrize("instruction", ["avx512_bf16", "amx_bf16", "bf16"])
def test_a_processor_is_native_by_its_instructions(instruction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, ALL)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, instruction: True})
    assert native_bf16()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, instruction: False})
    assert not native_bf16()


def test_a_processor_without_its_matrix_units_is_slow_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True, "amx_bf16": True})
    for limit, native in ((ALL, True), ("AVX512_CORE_AMX", True), (WITHOUT, False), ("AVX2", False)):
        monkeypatch.setenv(LIMIT, limit)
        assert native_bf16() == native
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True, "amx_bf16": False})
    monkeypatch.setenv(LIMIT, WITHOUT)
    assert native_bf16()  # without matrix units, this limit takes nothing away


def test_an_unresolved_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="not resolved"):
        computing(scalar(1.0), "auto")


@pytest.mark.parametrize(("there", "native"), [(False, True), (True, False), (True, True)])
def test_a_gpu_is_native_if_it_is_there_and_has_the_instructions(
    there: bool, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native and not including_emulation)
    assert native_bf16("cuda:0") == (there and native)


def test_a_trial_in_bf16_leaves_running_statistics() -> None:
    network = normalised()
    before = network.weights()
    network.module.train()
    assert fails_in_bf16(network) == ""
    after = network.weights()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_network_that_cannot_compute_in_bf16_is_noticed() -> None:
    assert fails_in_bf16(scalar(1.0)) == ""
    assert "dtype" in fails_in_bf16(Network(Constant(), ["last"], Inputs((1,), 1)))
