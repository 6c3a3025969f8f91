"""A module with a declared body, head and, in some networks, adapter."""

from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from fedtailor.errors import UserError, unknown
from fedtailor.models.catalogue import CATALOGUE, auto_name
from fedtailor.models.inputs import Inputs
from fedtailor.models.own import build_own
from fedtailor.models.settings import ModelSettings
from fedtailor.models.split import Split, is_sequence, split_module, split_stages
from fedtailor.seeding import seed_of

__all__ = ["NORMALISATION", "Inputs", "Network", "Part", "SideBySide", "build"]

Part = Literal["all", "body", "head", "adapter", "none"]

NORMALISATION = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)


def build(settings: ModelSettings, inputs: Inputs, seed: int) -> "Network":
    """The network with its initial weights: the same bits for the same seed, in every process.

    The global random state of torch is unchanged.
    """
    name = auto_name(inputs) if settings.name == "auto" else settings.name
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        # Not `torch.manual_seed`: it would also seed the accelerators, whose state is not restored.
        torch.default_generator.manual_seed(seed_of(seed, "model"))
        module = _module(name, settings, inputs)
        return Network(module, find_head(module, settings.head, name), inputs, find_adapter(module, name))


class Network:
    """A module with a declared body and head, and an adapter where the module declares one.

    A *layer* is a module that holds tensors itself; `layers` gives its tensors by name. Tensors of a part, of a layer
    or of the whole are always listed in the order of the module's state dict.

    Parameters
    ----------
    module
        The module.
    head_layers
        Names of the layers of its head.
    inputs
        What the network takes and gives.
    adapter_layers
        Names of the layers of its adapter; none by default. All other layers are the body.

    Examples
    --------
    >>> network = Network(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), ["2"], Inputs((4,), 2))
    >>> sorted(network.part("head"))
    ['2.bias', '2.weight']
    >>> network.load(network.weights("body"))
    """

    def __init__(
        self, module: nn.Module, head_layers: Iterable[str], inputs: Inputs, adapter_layers: Iterable[str] = ()
    ) -> None:
        self.module = module
        self.inputs = inputs
        self.half = False  # whether it computes in bf16, see `in_bf16`
        self.masters: Mapping[int, nn.Parameter] = {}  # then: the fp32 values of parameters, by their id
        self.layers = layers_of(module)
        self.head_layers = tuple(layer for layer in self.layers if layer in set(head_layers))
        self.adapter_layers = tuple(layer for layer in self.layers if layer in set(adapter_layers))
        self.names = tensor_names(module)
        self._homes = {name: _home(module, name) for name in self.names}
        self.normalisation = frozenset(name for name in self.names if _is_normalisation(self._homes[name][0]))
        buffers = dict(module.named_buffers(remove_duplicate=False))
        self.statistics = frozenset(self.normalisation & buffers.keys())
        head = frozenset(name for layer in self.head_layers for name in self.layers[layer])
        adapter = frozenset(name for layer in self.adapter_layers for name in self.layers[layer])
        self._parts: dict[Part, frozenset[str]] = {
            "all": frozenset(self.names),
            "body": frozenset(self.names) - head - adapter,
            "head": head,
            "adapter": adapter,
            "none": frozenset(),
        }
        self._split = self._find_split(inputs)

    @property
    def splittable(self) -> bool:
        """Whether `features` and `classify` exist; if not, the parts are only sets of tensors."""
        return self._split is not None

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters().values())

    @property
    def members(self) -> "tuple[Network, ...]":
        """The networks that this one consists of: itself, and those that it combines."""
        return (self,)

    def __call__(self, x: Tensor) -> Tensor:
        """The outputs. In whatever precision the network computes, they are in fp32; so are features."""
        return _widened(self.module(self._given(x)))

    def features(self, x: Tensor) -> Tensor:
        """The input of the first layer of the head: the output of the body, and of an adapter inside it."""
        return _widened(self._cut().features(self._given(x)))

    def classify(self, features: Tensor) -> Tensor:
        """The outputs for given features: `classify(features(x))` has the bits of `network(x)`."""
        return _widened(self._cut().classify(self._given(features)))

    def part(self, part: Part) -> frozenset[str]:
        """The names of the tensors, parameters and buffers, of a part."""
        return self._parts[part]

    def parameters(self, part: Part = "all") -> dict[str, nn.Parameter]:
        """The parameters of a part; one that several layers share is listed once."""
        names = self._parts[part]
        return {name: value for name, value in self.module.named_parameters() if name in names}

    def values(self) -> dict[str, nn.Parameter]:
        """The parameters in fp32: the masters while the network computes in bf16, `parameters` otherwise."""
        return {name: self.masters.get(id(value), value) for name, value in self.module.named_parameters()}

    def weights(self, part: Part = "all") -> dict[str, Tensor]:
        """Copies of the tensors of a part, contiguous and on the CPU."""
        names = self._parts[part]
        return {name: _copy(self._tensor(name)) for name in self.names if name in names}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Copy any of the network's tensors into the module, which keeps its memory format.

        Nothing is copied if a name is unknown or a shape is wrong.
        """
        for name, value in weights.items():
            if name not in self._parts["all"]:
                raise ValueError(f"the network has no tensor {name!r}")
            if value.shape != self._tensor(name).shape:
                shape = tuple(self._tensor(name).shape)
                raise ValueError(f"tensor {name!r} has shape {tuple(value.shape)}, not {shape}")
        with torch.no_grad():
            for name, value in weights.items():
                self._tensor(name).copy_(value)
                if self.half:
                    getattr(*self._homes[name]).copy_(value)

    def _find_split(self, inputs: Inputs) -> Split | None:
        head = [self._tensor(name) for name in self.names if name in self._parts["head"]]
        if is_sequence(self.module):
            return split_stages(self.module, head)
        return split_module(self.module, head, inputs)

    def _cut(self) -> Split:
        if self._split is None:
            raise ValueError(
                f"this network's head ({', '.join(self.head_layers)}) is not its last layer, "
                "so there are no features to classify"
            )
        return self._split

    def _tensor(self, name: str) -> Tensor:
        # Looked up each time: moving a module to another device or format replaces its buffers.
        tensor: Tensor = getattr(*self._homes[name])
        return self.masters.get(id(tensor), tensor) if self.half else tensor

    def _given(self, x: Tensor) -> Tensor:
        """Inputs in the precision in which the network computes."""
        if self.half:
            return x.bfloat16() if x.is_floating_point() else x
        return _widened(x)


class SideBySide(Network):
    """Several networks as one, trained together on the same mini-batches; the modules keep these names.

    The training objective calls the networks; the combination has no head.
    """

    def __init__(self, networks: "Mapping[str, Network]") -> None:
        self._combined = tuple(networks.values())
        parts = {name: network.module for name, network in networks.items()}
        super().__init__(nn.ModuleDict(parts), (), next(iter(networks.values())).inputs)

    @property
    def members(self) -> tuple[Network, ...]:
        return (self, *self._combined)

    def _find_split(self, inputs: Inputs) -> Split | None:
        return None


def tensor_names(module: nn.Module) -> tuple[str, ...]:
    """The parameters and buffers of the state dict, in its order, without a module's extra state."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = dict(module.named_buffers(remove_duplicate=False))
    return tuple(name for name in module.state_dict() if name in parameters or name in buffers)


def layers_of(module: nn.Module) -> dict[str, tuple[str, ...]]:
    """Layer name -> the names of its tensors: weight and bias together, and buffers."""
    layers: dict[str, tuple[str, ...]] = {}
    for name in tensor_names(module):
        layer = name.rpartition(".")[0]
        layers[layer] = (*layers.get(layer, ()), name)
    return layers


def find_head(module: nn.Module, head: str | tuple[str, ...], name: str) -> tuple[str, ...]:
    """The names of the layers that `model.head` means for this module."""
    adapter = find_adapter(module, name)
    if isinstance(head, tuple):
        chosen = _named(module, head)
        if both := [layer for layer in adapter if any(_within(layer, one) for one in chosen)]:
            raise UserError(f"model {name!r} declares {both[0]!r} as part of its adapter: model.head must not name it")
    else:
        linear = [
            layer
            for layer, part in module.named_modules()
            if isinstance(part, nn.Linear) and not any(_within(one, layer) for one in adapter)
        ]
        if not linear:
            raise UserError(
                f"model {name!r} has no linear layer for model.head = {head!r}: "
                f"name its head layers, some of {', '.join(layers_of(module))}"
            )
        chosen = tuple(linear[-1:] if head == "last" else linear)
    layers = tuple(layer for layer in layers_of(module) if any(_within(layer, one) for one in chosen))
    _refuse_sharing(module, layers, name)
    return layers


def find_adapter(module: nn.Module, name: str) -> tuple[str, ...]:
    """The layers of the adapter that a module declares by its attribute ``adapter_layers``; mostly none."""
    declared = getattr(module, "adapter_layers", ())
    layers = layers_of(module)
    for one in declared:
        if not any(_within(layer, one) for layer in layers):
            raise unknown(f"layer in adapter_layers of model {name!r}", one, layers)
    return tuple(layer for layer in layers if any(_within(layer, one) for one in declared))


def _module(name: str, settings: ModelSettings, inputs: Inputs) -> nn.Module:
    if ":" in name:
        return build_own(name, inputs, settings.arguments)
    if name not in CATALOGUE:
        raise unknown("model", name, [*CATALOGUE, "auto", "module:Class"])
    return CATALOGUE[name].build(inputs, settings.arguments)


def _named(module: nn.Module, head: tuple[str, ...]) -> tuple[str, ...]:
    layers = layers_of(module)
    for name in head:
        if not any(_within(layer, name) for layer in layers):
            raise unknown("layer in model.head", name, layers)
    return head


def _within(layer: str, container: str) -> bool:
    return layer == container or layer.startswith(f"{container}.")


def _refuse_sharing(module: nn.Module, head: tuple[str, ...], name: str) -> None:
    """Fail if body and head share a tensor, which could be neither sent nor kept."""
    homes: dict[int, str] = {}
    tensors = module.state_dict(keep_vars=True)
    for layer, names in layers_of(module).items():
        for tensor in names:
            other = homes.setdefault(id(tensors[tensor]), layer)
            if (other in head) != (layer in head):
                raise UserError(
                    f"model {name!r} shares {tensor!r} between layers {other!r} and {layer!r}: "
                    "model.head must name both or neither"
                )


def _home(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    layer, _, attribute = name.rpartition(".")
    return module.get_submodule(layer), attribute


def _is_normalisation(module: nn.Module) -> bool:
    return isinstance(module, NORMALISATION)


def _widened(x: Tensor) -> Tensor:
    return x.float() if x.dtype == torch.bfloat16 else x


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
