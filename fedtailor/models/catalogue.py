"""The networks that come with FedTailor.

Every network is a `Sequential` of named layers, so that it can be cut at any layer into body and head.
None has dropout: randomness comes only from named streams. Where a paper gives no layer sizes, those
chosen here are in the description. An entry is one line in `CATALOGUE`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from torch import nn

from fedtailor.errors import UserError, unknown
from fedtailor.models.inputs import Inputs
from fedtailor.models.layers import PADDING, LastState, Layers, MeanEmbedding, ResidualBlock, batch_norm, group_norm

WIDTHS = ("channels", "hidden", "width")  # arguments that are numbers of units


@dataclass(frozen=True)
class Entry:
    """A network of the catalogue."""

    name: str
    description: str
    make: Callable[..., nn.Sequential]
    typical: Inputs  # the inputs for which `fedtailor models` shows the size
    arguments: Mapping[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = ("image",)
    smallest: int = 1  # shorter side of an image in pixels
    others: tuple[Inputs, ...] = ()  # other inputs that `fedtailor models` shows

    def build(self, inputs: Inputs, arguments: Mapping[str, Any]) -> nn.Sequential:
        """The network for these inputs; `arguments` replace those of the entry."""
        self._check(inputs, arguments)
        try:
            return self.make(inputs, **{**self.arguments, **arguments})
        except (TypeError, ValueError, RuntimeError, ZeroDivisionError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"model {self.name!r} cannot be built with {dict(arguments)}: {reason}") from error

    def _check(self, inputs: Inputs, arguments: Mapping[str, Any]) -> None:
        if inputs.kind not in self.kinds:
            raise UserError(
                f"model {self.name!r} is for {' or '.join(self.kinds)} data, not for {inputs.kind} data of "
                f"shape {inputs.shape}"
            )
        if inputs.kind == "image" and inputs.side < self.smallest:
            raise UserError(
                f"model {self.name!r} needs images of at least {self.smallest}x{self.smallest} pixels, "
                f"not {inputs.shape[1]}x{inputs.shape[2]}"
            )
        allowed = list(signature(self.make).parameters)[1:]
        for name in arguments:
            if name not in allowed:
                raise unknown(f"argument of model {self.name!r}", name, allowed)


def auto_name(inputs: Inputs) -> str:
    """The network that `auto` stands for."""
    if inputs.kind == "image":
        return "cnn" if inputs.side >= CATALOGUE["cnn"].smallest else "digits-cnn"
    if inputs.kind == "text":
        return "gru" if inputs.predicts_tokens else "fasttext"
    return "mlp"


def narrower(name: str, arguments: Mapping[str, Any], inputs: Inputs) -> dict[str, Any] | None:
    """A smaller relative of a network, as a table ``[model]``: half as wide, or the small CNN; None without one."""
    name = auto_name(inputs) if name == "auto" else name
    entry = CATALOGUE.get(name)
    if entry is None or entry.make in (linear, fasttext):
        return None
    if entry.make in (cnn, alexnet):
        return {"name": "small"}
    usual = {key: one.default for key, one in signature(entry.make).parameters.items() if one.default is not one.empty}
    given = {**usual, **entry.arguments, **arguments}
    return {"name": name, "arguments": {**arguments, **{key: _half(given[key]) for key in WIDTHS if key in given}}}


def _half(width: Any) -> Any:
    return max(1, width // 2) if isinstance(width, int) else [max(1, one // 2) for one in width]


def cnn(inputs: Inputs, hidden: int = 512) -> nn.Sequential:
    """Two 5x5 convolutions without padding and two linear layers (pFedRLLA, FedAH)."""
    layers = Layers(inputs)
    layers.convolution(32, kernel=5).pool().relu()
    layers.convolution(64, kernel=5).pool().relu()
    return layers.flatten().linear(hidden).relu().linear(inputs.outputs).sequential()


def padded_cnn(inputs: Inputs, channels: Sequence[int], hidden: int) -> nn.Sequential:
    """3x3 convolutions, each followed by a 2x2 pool, and two linear layers."""
    layers = Layers(inputs)
    for index, width in enumerate(channels):
        layers.convolution(width, padding=1, stride=_stem_stride(inputs) if index == 0 else 1).pool().relu()
    return layers.flatten().linear(hidden).relu().linear(inputs.outputs).sequential()


def alexnet(inputs: Inputs, hidden: int = 1024) -> nn.Sequential:
    """Five convolutions and three linear layers, for images of 32x32 pixels."""
    layers = Layers(inputs)
    layers.convolution(64, padding=1, stride=2).pool().relu()
    layers.convolution(192, padding=1).pool().relu()
    layers.convolution(384, padding=1).relu()
    layers.convolution(256, padding=1).relu()
    layers.convolution(256, padding=1).pool().relu()
    layers.flatten().linear(hidden).relu().linear(hidden).relu().linear(inputs.outputs)
    return layers.sequential()


def resnet18_gn(inputs: Inputs, width: int = 64, groups: int = 2) -> nn.Sequential:
    """ResNet-18 with group normalisation."""
    return _resnet18(inputs, width, group_norm(groups))


def resnet18_bn(inputs: Inputs, width: int = 64) -> nn.Sequential:
    """ResNet-18 with batch normalisation."""
    return _resnet18(inputs, width, batch_norm)


def fasttext(inputs: Inputs, dimensions: int = 32) -> nn.Sequential:
    """Mean of the tokens' embeddings and a linear layer."""
    layers = Layers(inputs)
    layers.add("embedding", MeanEmbedding(inputs.vocabulary, dimensions, padding_idx=PADDING))
    return layers.linear(inputs.outputs, given=dimensions).sequential()


def gru(inputs: Inputs, dimensions: int = 8, hidden: int = 64, layers: int = 1) -> nn.Sequential:
    """Embedding, GRU, and a linear layer on its last state."""
    made = Layers(inputs)
    made.add("recurrent", LastState(inputs.vocabulary, dimensions, hidden, layers))
    return made.linear(inputs.outputs, given=hidden).sequential()


def mlp(inputs: Inputs, hidden: int | Sequence[int] = 128) -> nn.Sequential:
    """Hidden layers of the given widths (a number means one layer)."""
    layers = Layers(inputs).flatten()
    for width in [hidden] if isinstance(hidden, int) else hidden:
        layers.linear(width).relu()
    return layers.linear(inputs.outputs).sequential()


def linear(inputs: Inputs, bias: bool = True) -> nn.Sequential:
    """One linear layer."""
    return Layers(inputs).flatten().linear(inputs.outputs, bias=bias).sequential()


def _resnet18(inputs: Inputs, width: int, norm: Callable[[int], nn.Module]) -> nn.Sequential:
    """A 3x3 stem instead of the 7x7 one with a pool, which was made for 224x224 pixels."""
    layers = Layers(inputs)
    layers.convolution(width, padding=1, stride=_stem_stride(inputs), bias=False).norm(norm(width)).relu()
    given = width
    for stage in range(4):
        for block, stride in enumerate((1 if stage == 0 else 2, 1)):
            layers.add(f"block{2 * stage + block + 1}", ResidualBlock(given, width * 2**stage, stride, norm))
            given = width * 2**stage
    layers.add("pool", nn.AdaptiveAvgPool2d(1))
    return layers.flatten().linear(inputs.outputs, given=given).sequential()


def _stem_stride(inputs: Inputs) -> int:
    """Large images (Tiny-ImageNet) are halved at once, so that they cost about as much as 32x32."""
    return 2 if inputs.side >= 64 else 1


DIGITS = Inputs((1, 8, 8), 10)
MNIST = Inputs((1, 28, 28), 10)
CIFAR10 = Inputs((3, 32, 32), 10)
AG_NEWS = Inputs((128,), 4, vocabulary=20_000)
SHAKESPEARE = Inputs((80,), 65, vocabulary=66)


def _size(name: str, text: str, channels: tuple[int, ...], hidden: int) -> Entry:
    widths = "-".join(map(str, channels))
    description = f"HAPFL's {text}: 3x3 convolutions {widths}, linear {hidden}, for images of any size"
    arguments = {"channels": channels, "hidden": hidden}
    return Entry(name, description, padded_cnn, CIFAR10, arguments, smallest=8, others=(MNIST,))


_ENTRIES = (
    Entry("cnn", "pFedRLLA's and FedAH's CNN: 5x5 convolutions 32-64, linear 512", cnn, CIFAR10, smallest=16),
    Entry(
        "mnist-nn",
        "FedALP's network with one hidden layer of 200",
        mlp,
        MNIST,
        {"hidden": 200},
        ("image", "flat"),
    ),
    Entry(
        "mnist-cnn",
        "FedALP's CNN for MNIST: 3x3 convolutions 32-64-64, linear 128",
        padded_cnn,
        MNIST,
        {"channels": (32, 64, 64), "hidden": 128},
        smallest=8,
    ),
    Entry(
        "cifar10-cnn",
        "FedALP's CNN for CIFAR-10: 3x3 convolutions 32-64-128, linear 256",
        padded_cnn,
        CIFAR10,
        {"channels": (32, 64, 128), "hidden": 256},
        smallest=8,
    ),
    Entry(
        "alexnet",
        "AlexNet for CIFAR: 3x3 convolutions 64-192-384-256-256, linear 1024-1024",
        alexnet,
        CIFAR10,
        smallest=16,
    ),
    Entry("resnet18-gn", "ResNet-18 with group normalisation and a 3x3 stem", resnet18_gn, CIFAR10, smallest=8),
    Entry("resnet18-bn", "ResNet-18 with batch normalisation and a 3x3 stem", resnet18_bn, CIFAR10, smallest=8),
    Entry(
        "fasttext",
        "FedAH's network for text: mean of the embeddings (32), linear",
        fasttext,
        AG_NEWS,
        kinds=("text",),
    ),
    Entry(
        "gru",
        "recurrent network for text: embedding (8), GRU (64), linear on its last state",
        gru,
        SHAKESPEARE,
        kinds=("text",),
    ),
    Entry(
        "digits-cnn",
        "a CNN for images of 8x8 pixels: 3x3 convolutions 8-16, linear 32",
        padded_cnn,
        DIGITS,
        {"channels": (8, 16), "hidden": 32},
        smallest=4,
    ),
    Entry("mlp", "linear layers with hidden layers of given widths (128)", mlp, MNIST, kinds=("image", "flat")),
    Entry("linear", "one linear layer, with or without bias", linear, MNIST, kinds=("image", "flat")),
    _size("lite", "LiteModel, the one all clients share", (8, 16), 32),
    _size("small", "small model", (16, 32), 64),
    _size("medium", "medium model", (24, 48), 64),
    _size("large", "large model", (32, 64, 128), 128),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
