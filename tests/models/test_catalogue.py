"""Every network of the catalogue: sizes by hand, shapes that work, shapes that are refused."""

import pytest
import torch
from torch.nn import functional

from fedtailor.errors import UserError
from fedtailor.models import CATALOGUE, Inputs, ModelSettings, Network, build, cards, count_flops

torch.set_num_threads(1)

DIGITS = Inputs((1, 8, 8), 10)
MNIST = Inputs((1, 28, 28), 10)
CIFAR10 = Inputs((3, 32, 32), 10)
CIFAR100 = Inputs((3, 32, 32), 100)
TINY = Inputs((3, 64, 64), 200)
FLAT = Inputs((30,), 3)
TEXT = Inputs((12,), 4, vocabulary=50)
CHARACTERS = Inputs((12,), 9, vocabulary=10)  # next-character prediction: nine characters and padding


def make(name: str, inputs: Inputs, **arguments: object) -> Network:
    return build(ModelSettings(name=name, arguments=arguments), inputs, seed=0)


# The ResNet's blocks without their shortcuts: two 3x3 convolutions and two normalisations (scale, shift).
def _block(given: int, width: int) -> int:
    return 9 * given * width + 9 * width * width + 4 * width


RESNET = (
    (9 * 3 * 64 + 128)
    + 2 * _block(64, 64)
    + sum(_block(w // 2, w) + (w // 2 * w + 2 * w) + _block(w, w) for w in (128, 256, 512))
)

SIZES = [
    ("cnn", CIFAR100, 2432 + 51_264 + 819_712 + 51_300),
    ("cnn", CIFAR10, 878_538),
    ("cnn", MNIST, (25 * 32 + 32) + 51_264 + (1024 * 512 + 512) + 5130),
    ("mnist-nn", MNIST, (784 * 200 + 200) + (200 * 10 + 10)),
    ("mnist-cnn", MNIST, (9 * 32 + 32) + (288 * 64 + 64) + (576 * 64 + 64) + (576 * 128 + 128) + 1290),
    (
        "cifar10-cnn",
        CIFAR10,
        (27 * 32 + 32) + (288 * 64 + 64) + (576 * 128 + 128) + (2048 * 256 + 256) + 2570,
    ),
    ("alexnet", CIFAR10, 1792 + 110_784 + 663_936 + 884_992 + 590_080 + 2 * 1_049_600 + 10_250),
    ("resnet18-gn", CIFAR10, RESNET + 5130),
    ("resnet18-bn", CIFAR100, RESNET + 51_300),
    ("resnet18-bn", TINY, RESNET + 512 * 200 + 200),
    ("fasttext", TEXT, 50 * 32 + 32 * 4 + 4),
    # embedding; three gates, each with input and state weights and two biases; linear
    ("gru", CHARACTERS, 10 * 8 + 3 * 64 * (8 + 64 + 2) + 65 * 9),
    ("digits-cnn", DIGITS, 80 + 1168 + (64 * 32 + 32) + 330),
    ("mlp", FLAT, (30 * 128 + 128) + (128 * 3 + 3)),
    ("linear", FLAT, 93),
    ("lite", MNIST, 80 + 1168 + (784 * 32 + 32) + 330),
    ("large", TINY, (27 * 32 + 32) + (288 * 64 + 64) + (576 * 128 + 128) + (2048 * 128 + 128) + 129 * 200),
]


@pytest.mark.parametrize(("name", "inputs", "size"), SIZES)
def test_number_of_parameters_is_the_one_computed_by_hand(name: str, inputs: Inputs, size: int) -> None:
    assert make(name, inputs).size == size


def test_cnn_has_the_papers_0_925_million_parameters() -> None:
    assert make("cnn", CIFAR100).size == 924_708


def test_resnet18_has_its_well_known_size() -> None:
    assert make("resnet18-gn", CIFAR10).size == 11_173_962


def every_entry() -> list[tuple[str, Inputs]]:
    images = [DIGITS, MNIST, CIFAR10, TINY]
    tried: dict[str, list[Inputs]] = {
        "cnn": [MNIST, CIFAR100, TINY],
        "alexnet": [CIFAR10, TINY],
        "resnet18-gn": [CIFAR10, TINY],
        "resnet18-bn": [CIFAR10, TINY],
        "fasttext": [TEXT],
        "gru": [TEXT, CHARACTERS],
        "linear": [FLAT, MNIST],
        "mlp": [FLAT, CIFAR10],
        "mnist-nn": [FLAT, MNIST],
    }
    return [(name, inputs) for name in CATALOGUE for inputs in tried.get(name, images)]


@pytest.mark.parametrize(("name", "inputs"), every_entry())
def test_features_then_classify_is_the_forward_pass_bit_for_bit(name: str, inputs: Inputs) -> None:
    x = inputs.example(3)
    for head in ("last", "linear"):
        network = build(ModelSettings(name=name, head=head), inputs, seed=1)
        network.module.eval()
        with torch.no_grad():
            features = network.features(x)
            outputs = network(x)
            assert torch.equal(network.classify(features), outputs)
        assert outputs.shape == (3, inputs.outputs)
        assert features.shape[1] == network.module.get_submodule(network.head_layers[0]).in_features


@pytest.mark.parametrize(("name", "inputs"), every_entry())
def test_trains_in_channels_last(name: str, inputs: Inputs) -> None:
    network = make(name, inputs)
    assert all(p.is_contiguous() and p.dtype == torch.float32 for p in network.parameters().values())
    x = inputs.example(4)
    if inputs.kind == "image":
        network.module.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    functional.cross_entropy(network(x), torch.arange(4) % inputs.outputs).backward()
    gradients = [p.grad for p in network.parameters().values()]
    assert all(g is not None and g.isfinite().all() and not g.is_sparse for g in gradients)
    assert all(g.abs().sum() > 0 for g in gradients)


@pytest.mark.parametrize("inputs", [DIGITS, MNIST, CIFAR10, TINY], ids=str)
def test_size_family_grows_strictly(inputs: Inputs) -> None:
    family = [make(name, inputs) for name in ("lite", "small", "medium", "large")]
    sizes = [network.size for network in family]
    flops = [count_flops(network, inputs) for network in family]
    assert sizes == sorted(set(sizes))
    assert flops == sorted(set(flops))


def test_new_size_is_arguments_and_not_code() -> None:
    tiny = make("lite", DIGITS, channels=[4], hidden=8)
    assert tiny.size == (9 * 4 + 4) + (4 * 16 * 8 + 8) + (8 * 10 + 10)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [(DIGITS, "digits-cnn"), (MNIST, "cnn"), (CIFAR10, "cnn"), (TEXT, "fasttext"), (CHARACTERS, "gru"), (FLAT, "mlp")],
)
def test_auto_takes_a_network_that_suits_the_data(inputs: Inputs, expected: str) -> None:
    auto, named = make("auto", inputs), make(expected, inputs)
    assert auto.names == named.names
    assert all(torch.equal(auto.weights()[name], named.weights()[name]) for name in auto.names)


def test_linear_without_bias_has_only_a_weight() -> None:
    assert make("linear", FLAT, bias=False).names == ("fc1.weight",)


def test_mlp_takes_one_width_or_several() -> None:
    assert make("mlp", FLAT, hidden=[7, 5]).layers.keys() == {"fc1", "fc2", "fc3"}
    assert make("mlp", FLAT, hidden=7).layers.keys() == {"fc1", "fc2"}
    assert make("mlp", FLAT, hidden=[]).size == make("linear", FLAT).size


def test_images_need_not_be_square() -> None:
    inputs = Inputs((1, 20, 33), 5)
    for name in ("cnn", "large", "resnet18-gn"):
        assert make(name, inputs)(inputs.example()).shape == (2, 5)


def test_pool_before_relu_has_the_bits_of_relu_before_pool() -> None:
    module = make("cnn", MNIST).module
    x = MNIST.example()
    first = module.conv1(x)
    assert torch.equal(module.relu1(module.pool1(first)), module.pool1(module.relu1(first)))


def test_text_is_the_mean_of_its_tokens_without_padding() -> None:
    network = make("fasttext", TEXT)
    table = network.weights()["embedding.weight"]
    assert table[0].abs().sum() == 0
    # A mix or noise may move the padding row: it must still not count.
    network.load({"embedding.weight": table + 1})
    features = network.features(torch.tensor([[3, 7, 0, 0], [5, 5, 5, 0], [0, 0, 0, 0]]))
    assert torch.allclose(features[0], (table[3] + table[7]) / 2 + 1)
    assert torch.allclose(features[1], table[5] + 1)
    assert torch.equal(features[2], torch.zeros(32))


def test_padding_gets_no_gradient_and_no_text_gives_no_nan() -> None:
    network = make("fasttext", TEXT)
    network(torch.zeros(2, 12, dtype=torch.int64)).sum().backward()
    gradient = network.parameters()["embedding.weight"].grad
    assert gradient is not None
    assert torch.equal(gradient, torch.zeros(50, 32))


def test_gru_is_its_equations_up_to_the_last_token() -> None:
    """r, z = sigmoid(..); n = tanh(W x + b + r (U h + c)); h = (1 - z) n + z h: two tokens by hand, then padding."""
    network = make("gru", CHARACTERS, dimensions=2, hidden=3)
    weights = {name.removeprefix("recurrent."): value for name, value in network.weights().items()}
    state = torch.zeros(3)
    for token in (4, 7):
        given = weights["weight_ih_l0"] @ weights["embedding.weight"][token] + weights["bias_ih_l0"]
        kept = weights["weight_hh_l0"] @ state + weights["bias_hh_l0"]
        reset, update = torch.sigmoid(given[:3] + kept[:3]), torch.sigmoid(given[3:6] + kept[3:6])
        state = (1 - update) * torch.tanh(given[6:] + reset * kept[6:]) + update * state
    padded = network.features(torch.tensor([[4, 7, 0, 0], [4, 7, 1, 0]]))
    assert torch.allclose(padded[0], state, atol=1e-6)
    assert not torch.allclose(padded[1], state, atol=1e-3)
    assert network(torch.zeros(2, 4, dtype=torch.int64)).isfinite().all()


def test_gru_has_a_body_and_a_head() -> None:
    network = make("gru", CHARACTERS)
    assert network.part("head") == {"fc1.weight", "fc1.bias"}
    assert network.layers.keys() == {"recurrent", "recurrent.embedding", "fc1"}
    assert network.splittable


def test_batch_normalisation_of_shortcuts_is_found_by_type() -> None:
    network = make("resnet18-bn", CIFAR10)
    # The stem, two in each of eight blocks, and three shortcuts.
    assert len(network.statistics) == 3 * (1 + 16 + 3)
    assert len(network.normalisation) == 5 * (1 + 16 + 3)
    assert "block3.shortcut.1.running_var" in network.statistics
    assert "block3.shortcut.0.weight" not in network.normalisation
    assert network.statistics.isdisjoint(network.parameters())


def test_group_normalisation_has_no_statistics() -> None:
    network = make("resnet18-gn", CIFAR10)
    assert network.statistics == frozenset()
    assert len(network.normalisation) == 2 * (1 + 16 + 3)


FLOPS = [
    ("linear", FLAT, 90),
    ("mlp", FLAT, 30 * 128 + 128 * 3),
    ("cnn", MNIST, 24 * 24 * 32 * 25 + 8 * 8 * 64 * 800 + 1024 * 512 + 5120),
    ("digits-cnn", DIGITS, 64 * 8 * 9 + 16 * 16 * 72 + 64 * 32 + 320),
    ("fasttext", TEXT, 12 * 32 + 32 * 4),
    ("gru", CHARACTERS, 12 * 3 * 64 * (8 + 64) + 64 * 9),
    # The stride of 2 halves the 64x64 image in the first convolution.
    ("lite", TINY, 32 * 32 * 8 * 27 + 16 * 16 * 16 * 72 + 1024 * 32 + 32 * 200),
]


@pytest.mark.parametrize(("name", "inputs", "flops"), FLOPS)
def test_multiply_adds_are_those_computed_by_hand(name: str, inputs: Inputs, flops: int) -> None:
    assert count_flops(make(name, inputs), inputs) == flops


@pytest.mark.parametrize("name", ["resnet18-gn", "resnet18-bn"])
def test_multiply_adds_of_resnet18(name: str) -> None:
    # Sides 32, 16, 8, 4 at widths 64, 128, 256, 512; elements = positions x width.
    stem = 1024 * 64 * 27 + 1024 * 64
    first = 4 * (1024 * 64 * 9 * 64) + 4 * (1024 * 64)
    rest = sum(
        side**2 * w * (9 * w // 2 + 3 * 9 * w) + side**2 * w * (w // 2) + 5 * side**2 * w
        for side, w in ((16, 128), (8, 256), (4, 512))
    )
    assert count_flops(make(name, CIFAR10), CIFAR10) == stem + first + rest + 5120


def test_counting_leaves_no_trace() -> None:
    network = make("resnet18-bn", CIFAR10)
    network.module.get_submodule("block1").eval()
    before, modes = network.weights(), [m.training for m in network.module.modules()]
    state = torch.get_rng_state()
    count_flops(network, CIFAR10)
    assert [m.training for m in network.module.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in network.weights().items())
    assert not any(m._forward_hooks for m in network.module.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_cards_describe_every_entry() -> None:
    listed = {card.name: card for card in cards()}
    assert listed.keys() == CATALOGUE.keys()
    assert all(card.description and card.parameters > 0 and card.flops > 0 for card in listed.values())
    assert listed["cnn"].parameters == 878_538


def test_the_sizes_are_listed_for_mnist_and_for_cifar10() -> None:
    """Lite at 1x28x28: 9 * 8 * 28^2 + 72 * 16 * 14^2 + 784 * 32 + 32 * 10 multiply-adds."""
    listed = {(card.name, card.inputs.shape): card for card in cards()}
    for name in ("lite", "small", "medium", "large"):
        assert listed[name, MNIST.shape].flops < listed[name, CIFAR10.shape].flops
        assert listed[name, MNIST.shape].parameters < listed[name, CIFAR10.shape].parameters
    assert listed["lite", MNIST.shape].flops == 9 * 8 * 28**2 + 72 * 16 * 14**2 + 784 * 32 + 32 * 10


@pytest.mark.parametrize(
    ("name", "inputs", "arguments", "says"),
    [
        ("cnn", Inputs((1, 15, 20), 10), {}, "at least 16x16 pixels, not 15x20"),
        ("alexnet", DIGITS, {}, "at least 16x16"),
        ("large", Inputs((1, 7, 7), 10), {}, "at least 8x8"),
        ("cnn", FLAT, {}, "is for image data, not for flat data"),
        ("fasttext", MNIST, {}, "is for text data"),
        ("mlp", TEXT, {}, "is for image or flat data, not for text data"),
        ("cnn", MNIST, {"hiden": 3}, "did you mean 'hidden'"),
        ("cnn", MNIST, {"hidden": "many"}, "cannot be built with {'hidden': 'many'}"),
        ("cnn", MNIST, {"hidden": 0}, "layer 8 has an empty output"),
        ("lite", DIGITS, {"channels": [4, 4, 4, 4]}, "has an empty output"),
        ("resnet18-gn", CIFAR10, {"groups": 3}, "cannot be built"),
        ("cnm", MNIST, {}, "unknown model 'cnm': did you mean 'cnn'?"),
    ],
)
def test_what_cannot_work_is_one_sentence(name: str, inputs: Inputs, arguments: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as caught:
        make(name, inputs, **arguments)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [n for n, e in CATALOGUE.items() if e.kinds == ("image",)])
def test_smallest_image_works(name: str) -> None:
    side = CATALOGUE[name].smallest
    inputs = Inputs((1, side, side), 3)
    network = make(name, inputs)
    network.module.eval()
    assert network(inputs.example()).shape == (2, 3)
