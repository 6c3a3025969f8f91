"""Networks of the user's own, named 'module:Class'."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedtailor.errors import UserError
from fedtailor.models import Inputs, ModelSettings, Network, build

torch.set_num_threads(1)

INPUTS = Inputs((6,), 3)

SOURCE = '''
import torch
from torch import nn


class Plain(nn.Module):
    """A body and a head as attributes, called from forward."""
    def __init__(self, width=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU())
        self.classifier = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x):
        return self.classifier(self.body(x))


class Scaled(Plain):
    """What follows the head only shows once it is no longer 1."""
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return super().forward(x) * self.scale


class Gated(Plain):
    """A second path around the head, closed at first."""
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 3)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, x):
        return super().forward(x) + self.gate(x)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 3)
        self.head = nn.Linear(3, 3)

    def forward(self, x):
        return self.head(self.head(self.body(x)))


class Repeats(Twice):
    """Gives what the head gave, but calls it two times."""
    def forward(self, x):
        self.head(self.body(x))
        return self.head(self.body(x))


class Unused(Twice):
    def forward(self, x):
        return self.body(x)


class Wrapped(nn.Module):
    """A layer without tensors in front of the linear layer, in the same container."""
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 6)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(6, 3))

    def forward(self, x):
        return self.head(self.body(x))


class ByKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 3)
        self.head = nn.Linear(3, 3)

    def forward(self, x):
        return self.head(input=self.body(x))


class Offered(nn.Sequential):
    def __init__(self, inputs, shape, classes, outputs, vocabulary, extra=0):
        assert inputs.shape == shape and inputs.outputs == classes == outputs and vocabulary == 0
        super().__init__(nn.Linear(*shape, 4 + extra), nn.ReLU(), nn.Linear(4 + extra, classes))


class Fixed(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Linear(6, classes))


class Nested(nn.Sequential):
    def __init__(self):
        relu = nn.ReLU()
        super().__init__(
            nn.Sequential(nn.Linear(6, 4), relu, nn.Linear(4, 4), relu),
            nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4), relu, nn.Linear(4, 3)),
        )


class Normed(nn.Module):
    """Normalisation under names that say nothing, a buffer elsewhere, an extra state."""
    def __init__(self):
        super().__init__()
        self.alpha = nn.BatchNorm1d(6)
        self.beta = nn.LayerNorm(6)
        self.running_mean = nn.Linear(6, 3)
        self.register_buffer("steps", torch.zeros(2))

    def forward(self, x):
        return self.running_mean(self.beta(self.alpha(x)))

    def get_extra_state(self):
        return {"version": 1}

    def set_extra_state(self, state):
        pass


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.head(self.two(self.one(x)))


class Lazy(nn.Sequential):
    def __init__(self):
        super().__init__(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))


class NoLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Conv1d(6, 3, 1)

    def forward(self, x):
        return self.table(x.unsqueeze(-1)).squeeze(-1)


class Wrong(nn.Linear):
    def __init__(self):
        super().__init__(6, 4)


class Pair(nn.Linear):
    def __init__(self):
        super().__init__(6, 3)

    def forward(self, x):
        return super().forward(x), x


class Fails(nn.Linear):
    def __init__(self):
        super().__init__(7, 3)


class Raises(nn.Module):
    def __init__(self):
        raise RuntimeError("first line\\nsecond line")


class NotAModule:
    pass


NUMBER = 3


def factory(classes):
    return nn.Linear(6, classes)


def nothing():
    return None
'''


@pytest.fixture(scope="module", autouse=True)
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_networks.py").write_text(SOURCE)
    (folder / "own_broken.py").write_text("def broken(:\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


def own(name: str, head: object = "last", seed: int = 0, **arguments: object) -> Network:
    settings = ModelSettings.model_validate({"name": f"own_networks:{name}", "head": head, "arguments": arguments})
    return build(settings, INPUTS, seed)


def splits_exactly(network: Network) -> bool:
    network.module.eval()
    x = INPUTS.example(5)
    return torch.equal(network.classify(network.features(x)), network(x))


def test_module_whose_last_step_is_the_head_is_split() -> None:
    network = own("Plain")
    assert network.head_layers == ("classifier.2",)
    assert splits_exactly(network)
    assert network.features(INPUTS.example()).shape == (2, 5)


@pytest.mark.parametrize("head", ["linear", ["classifier"], ["classifier.0", "classifier.2"]])
def test_head_of_several_layers_is_split_if_one_module_holds_them(head: object) -> None:
    network = own("Plain", head)
    # "linear" also means the body's linear layer, which no single module holds together with the head.
    assert network.splittable == (head != "linear")
    if network.splittable:
        assert network.head_layers == ("classifier.0", "classifier.2")
        assert splits_exactly(network)


def test_split_of_a_module_passes_gradients_to_the_body() -> None:
    network = own("Plain")
    network.classify(network.features(INPUTS.example(8))).sum().backward()
    assert all(p.grad is not None for p in network.parameters().values())


@pytest.mark.parametrize("name", ["Scaled", "Gated", "Twice", "Repeats", "Unused"])
def test_module_that_does_not_end_with_one_call_of_its_head_is_not_split(name: str) -> None:
    network = own(name, ["classifier"] if name in ("Scaled", "Gated") else ["head"])
    assert not network.splittable
    assert network.part("head") | network.part("body") == network.part("all")
    assert network(INPUTS.example()).shape == (2, 3)


def test_features_are_what_the_first_head_layer_reads() -> None:
    network = own("Wrapped")
    assert splits_exactly(network)
    assert network.features(INPUTS.example(9)).min() >= 0  # after the ReLU


def test_head_called_by_keyword_is_split() -> None:
    assert splits_exactly(own("ByKeyword"))


def test_trying_the_split_leaves_no_trace() -> None:
    network = own("Plain", width=4)
    torch.default_generator.manual_seed(0)
    before = torch.get_rng_state()
    again = own("Plain", width=4)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, again.weights()[name]) for name, value in network.weights().items())
    assert network.weights()["body.1.num_batches_tracked"] == 0
    assert torch.equal(network.weights()["body.1.weight"], torch.ones(4))
    assert all(layer.training for layer in network.module.modules())
    assert not any(layer._forward_pre_hooks for layer in network.module.modules())


def test_initial_weights_come_from_the_seed() -> None:
    one, two, other = (own("Plain", seed=seed).weights()["body.0.weight"] for seed in (4, 4, 5))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_constructor_is_offered_what_it_names() -> None:
    network = own("Offered", extra=2)
    assert network.size == 6 * 6 + 6 + 6 * 3 + 3
    assert splits_exactly(network)


def test_settings_go_before_what_is_offered() -> None:
    with pytest.raises(UserError, match=r"gives \(2, 4\)"):
        own("Fixed", classes=4)


def test_nested_sequences_are_cut_at_the_layer() -> None:
    network = own("Nested")
    assert network.head_layers == ("1.3",)
    assert splits_exactly(network)
    longer = own("Nested", ["1"])
    assert longer.head_layers == ("1.1", "1.3")
    assert splits_exactly(longer)


def test_normalisation_is_found_by_type_and_not_by_name() -> None:
    network = own("Normed")
    assert network.statistics == {"alpha.running_mean", "alpha.running_var", "alpha.num_batches_tracked"}
    assert network.normalisation == network.statistics | {
        "alpha.weight",
        "alpha.bias",
        "beta.weight",
        "beta.bias",
    }
    assert network.names[0] == "steps"
    assert network.layers[""] == ("steps",)
    assert set(network.weights()) == set(network.names)
    assert splits_exactly(network)


def test_shared_weights_are_listed_once_and_stay_in_one_part() -> None:
    network = own("Tied")
    assert network.size == 36 + 6 + 6 + 18 + 3
    assert "two.weight" in network.names
    assert "two.weight" not in network.parameters()
    network.load(network.weights())
    with pytest.raises(UserError, match="'one' and 'two'"):
        own("Tied", ["two", "head"])


def test_lazy_layers_are_made_from_the_seed() -> None:
    network = own("Lazy")
    assert network.head_layers == ("3",)
    assert "1.running_mean" in network.statistics
    assert torch.equal(network.weights()["3.weight"], own("Lazy").weights()["3.weight"])


def test_function_that_returns_a_module_is_welcome() -> None:
    network = own("factory")
    assert network.head_layers == ("",)
    assert splits_exactly(network)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("own_networks:NoLinear", "has no linear layer"),
        ("own_networks:Wrong", "gives (2, 4) for a batch of 2 samples, but this data needs (2, 3)"),
        ("own_networks:Pair", "gives a tuple"),
        ("own_networks:Fails", "fails on a batch of shape (2, 6)"),
        ("own_networks:Raises", "cannot be built with {}: first line"),
        ("own_networks:Offred", "has no attribute 'Offred'"),
        ("own_networks:NotAModule", "is not a class that extends torch.nn"),
        ("own_networks:NUMBER", "is not a class that extends torch.nn"),
        ("own_networks:nothing", "gives a NoneType"),
        ("own_networks:", "has no attribute ''"),
        ("own_missing:Net", "cannot be imported (ModuleNotFoundError: No module named 'own_missing')"),
        ("own_broken:Net", "cannot be imported"),
        (":Net", "cannot be imported"),
    ],
)
def test_what_cannot_work_is_one_sentence(name: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        build(ModelSettings(name=name), INPUTS, seed=0)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_argument_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"cannot be built with \{'depth': 3\}"):
        own("Plain", depth=3)
