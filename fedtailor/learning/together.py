"""The trainings of several clients at once, for networks of linear layers.

With small matrices, a processor spends most of its time between the products. Here the weights of several clients lie
in a stack, and one product does a layer of all of them. Every client has the batches that `train` draws from its
stream; only the order of sums differs. The bits of a client do not depend on the others:

* Widths are padded with zeros to multiples of `ALIGNED`, so that every client's matrices begin at a multiple of 64
  bytes: elsewhere products round differently. The biases of a client are padded to a multiple of `VECTORS`.
* A stack has `FEWEST` places or more: the product of a stack of one rounds differently. A place without a client
  holds zeros.
* A client that has done its steps leaves the stack; the others go on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil

import torch
from torch import Tensor, nn

from fedtailor.learning.loop import Trace
from fedtailor.learning.optimisers import Optimiser, optimiser
from fedtailor.learning.settings import TrainingSettings
from fedtailor.weights import Weights

ALIGNED = 16  # floats in 64 bytes
VECTORS = 64  # an element-wise operation takes 32 floats at a time, and the last ones one by one
FEWEST = 2
PREPARED = 64  # steps whose batches are looked up at once
HELD = 2**24  # floats of inputs in a stack

# The rule of `training.together = "auto"`, from `benchmarks/grouped.py`: where a stack gains a fifth or more.
WEIGHTS = 2**18  # padded weights of a client
WORK = 2**22  # multiply-adds of a batch's forward pass
BATCH = 256
STACK = 2**20  # padded weights in a stack: with more of them, they leave the processor's cache
MOST = 32  # clients in a stack


@dataclass(frozen=True)
class Dense:
    """A linear layer and the names of its tensors."""

    weight: str
    bias: str | None
    inputs: int
    outputs: int


@dataclass(frozen=True)
class Start:
    """What the training of a client begins with."""

    weights: Weights
    x: Tensor
    y: Tensor
    stream: torch.Generator


def dense_layers(module: nn.Module) -> tuple[Dense, ...]:
    """The linear layers of a network that consists of them, with a ReLU between two; empty for other networks."""
    layers = dict(module.named_children()) if type(module) is nn.Sequential else {}
    if layers and type(next(iter(layers.values()))) is nn.Flatten:
        layers.pop(next(iter(layers)))
    names, between = list(layers)[::2], list(layers.values())[1::2]
    if len(names) != len(between) + 1 or any(type(layer) is not nn.ReLU for layer in between):
        return ()
    found = []
    for name in names:
        layer = layers[name]
        if type(layer) is not nn.Linear or not all(value.requires_grad for value in layer.parameters()):
            return ()
        bias = None if layer.bias is None else f"{name}.bias"
        found.append(Dense(f"{name}.weight", bias, layer.in_features, layer.out_features))
    return tuple(found)


def unfit(module: nn.Module, settings: TrainingSettings) -> str:
    """Why `train_together` cannot train this network with these settings; empty if it can."""
    if not dense_layers(module):
        return "the network is not a sequence of linear layers and ReLUs"
    if settings.loss not in ("auto", "cross-entropy"):
        return f"the loss is {settings.loss}"
    for name, usual in (("precision", "fp32"), ("clip", None), ("dp_sgd", None)):
        if getattr(settings, name) != usual:
            return f"training.{name} is set"
    return ""


def slow(layers: Sequence[Dense], settings: TrainingSettings) -> str:
    """Why `train_together` gains little with these shapes; empty if it gains."""
    weights, size = _weights(layers), settings.batch_size
    if weights > WEIGHTS:
        return f"the network has {weights:,} weights, more than {WEIGHTS:,}"
    if size > BATCH or weights * size > WORK:
        return f"batches of {size} with {weights:,} weights are too large"
    return ""


def most_together(layers: Sequence[Dense]) -> int:
    """How many clients a stack holds at most."""
    return max(1, min(MOST, STACK // _weights(layers)))


def _weights(layers: Sequence[Dense]) -> int:
    return sum(_padded(layer.inputs) * _padded(layer.outputs) for layer in layers)


def train_together(
    layers: Sequence[Dense], starts: Sequence[Start], settings: TrainingSettings, lr: float
) -> list[tuple[Weights, Trace]]:
    """Train the whole network of each client with cross-entropy, and return its weights and the record.

    The results are those of `train`, up to rounding.
    """
    results = [(start.weights, Trace()) for start in starts]
    longest_first = sorted(range(len(starts)), key=lambda place: -_steps(starts[place], settings))
    trained = [place for place in longest_first if _steps(starts[place], settings)]
    for places in _portions(trained, starts):
        group = [starts[place] for place in places]
        for place, result in zip(places, _Group(layers, group, settings, lr).train(), strict=True):
            results[place] = result
    return results


def _steps(start: Start, settings: TrainingSettings) -> int:
    if len(start.y) == 0:
        return 0
    return settings.epochs * ceil(len(start.y) / settings.batch_size) if settings.steps is None else settings.steps


def _portions(places: Sequence[int], starts: Sequence[Start]) -> Iterator[list[int]]:
    """The places in portions whose inputs fit into `HELD` floats; the inputs of one client always do."""
    portion: list[int] = []
    for place in places:
        if portion and sum(starts[one].x.numel() for one in [*portion, place]) > HELD:
            yield portion
            portion = []
        portion.append(place)
    if portion:
        yield portion


class _Group:
    """The training of some clients in one stack, the longest first."""

    def __init__(self, layers: Sequence[Dense], starts: Sequence[Start], settings: TrainingSettings, lr: float):
        self.layers, self.starts, self.settings, self.lr = layers, starts, settings, lr
        self.steps = [_steps(start, settings) for start in starts]
        self.classes = layers[-1].outputs
        places = max(FEWEST, len(starts))
        offsets = [0, *accumulate(_padded(layer.outputs) for layer in layers)]
        self.slices = [slice(*ends) for ends in pairwise(offsets)]  # of the layers in the biases
        shapes = [(_padded(layer.outputs), _padded(layer.inputs)) for layer in layers]
        shapes.append((1, _padded(offsets[-1], VECTORS)))  # all biases
        self.tensors = [torch.zeros(places, *shape) for shape in shapes]
        self.gradients = [torch.zeros(places, *shape) for shape in shapes]
        for place, start in enumerate(starts):
            self._exchange(place, start.weights, inwards=True)
        # the rows of all clients, and a last one that fills up batches
        first = [0, *accumulate(len(start.y) for start in starts)]
        self.first, self.filler = first, first[-1]
        self.x = torch.zeros(self.filler + 1, _padded(layers[0].inputs))
        self.y = torch.zeros(self.filler + 1, dtype=torch.int64)
        for start, (begin, end) in zip(starts, pairwise(first), strict=True):
            self.x[begin:end, : layers[0].inputs] = start.x.flatten(1)
            self.y[begin:end] = start.y

    def train(self) -> list[tuple[Weights, Trace]]:
        """Do all steps, and return what they made of each client."""
        at_work, places = len(self.starts), len(self.tensors[0])
        rule: Optimiser = optimiser(self.settings, self.tensors, self.lr)
        totals, seen = torch.zeros(places), torch.zeros(places, dtype=torch.int64)
        done: list[Weights] = [{} for _ in self.starts]
        step = 0
        for rows in self._tables():
            present = rows != self.filler  # (steps, places, batch)
            counts = present.sum(2, keepdim=True)
            shares = (present / counts.clamp(min=1)).unsqueeze(3)  # of a row in the mean loss of its batch
            seen += counts.sum((0, 2))
            for now in range(len(rows)):
                step += 1
                table = rows[now, :places].flatten()
                x = self.x.index_select(0, table).view(places, -1, self.x.shape[1])
                y = self.y.index_select(0, table).view(places, -1, 1)
                means = self._gradient(x, y, shares[now, :places])
                totals[:places] += means * counts[now, :places, 0]
                rule.step([gradient[:places] for gradient in self.gradients])
                while at_work and self.steps[at_work - 1] == step:
                    at_work -= 1
                    done[at_work] = {}
                    self._exchange(at_work, done[at_work], inwards=False)
                if max(FEWEST, at_work) < places:
                    places = max(FEWEST, at_work)
                    rule = self._narrowed(rule, places)
        losses = (totals[: len(done)] / seen[: len(done)]).tolist()
        numbers = zip(self.steps, seen.tolist(), losses, strict=False)
        return [(weights, Trace(*trace)) for weights, trace in zip(done, numbers, strict=True)]

    def _gradient(self, x: Tensor, y: Tensor, shares: Tensor) -> Tensor:
        """Compute the gradients of the mean losses of these batches; return the losses.  # (places,)"""
        places = len(x)
        *weights, biases = (tensor[:places] for tensor in self.tensors)
        *slopes, bias_slopes = (gradient[:places] for gradient in self.gradients)
        inputs = [x]  # of each layer, (places, batch, width)
        for weight, part in zip(weights, self.slices, strict=True):
            outputs = torch.baddbmm(biases[:, :, part], inputs[-1], weight.transpose(1, 2))
            inputs.append(outputs.relu_() if len(inputs) < len(weights) else outputs)
        logits = inputs.pop()[:, :, : self.classes]
        likelihoods = torch.log_softmax(logits, 2).gather(2, y)
        delta = torch.zeros(places, x.shape[1], _padded(self.classes))  # the gradient of a layer's outputs
        delta[:, :, : self.classes] = torch.softmax(logits, 2)
        delta.scatter_add_(2, y, delta.new_full(y.shape, -1.0))
        delta *= shares
        for index in reversed(range(len(weights))):
            torch.bmm(delta.transpose(1, 2), inputs[index], out=slopes[index])
            if self.layers[index].bias is not None:
                torch.sum(delta, 1, keepdim=True, out=bias_slopes[:, :, self.slices[index]])
            if index:
                delta = torch.bmm(delta, weights[index])
                delta = torch.ops.aten.threshold_backward(delta, inputs[index], 0)
        return -(likelihoods * shares).sum((1, 2))

    def _tables(self) -> Iterator[Tensor]:
        """The rows of the batches, step by step; places without a client, or whose client is done, have fillers."""
        size, places = self.settings.batch_size, len(self.tensors[0])
        orders = [self._order(place) for place in range(len(self.starts))]
        waiting = [torch.empty(0, size, dtype=torch.int64) for _ in orders]
        for begin in range(0, self.steps[0], PREPARED):
            table = torch.full((min(PREPARED, self.steps[0] - begin), places, size), self.filler)
            for place, order in enumerate(orders):
                wanted = max(0, min(PREPARED, self.steps[place] - begin))
                while len(waiting[place]) < wanted:
                    waiting[place] = torch.cat([waiting[place], next(order)])
                table[:wanted, place], waiting[place] = waiting[place][:wanted], waiting[place][wanted:]
            yield table

    def _order(self, place: int) -> Iterator[Tensor]:
        """The rows of shuffled passes over a client's samples.  # (steps of a pass, batch)"""
        stream, size = self.starts[place].stream, self.settings.batch_size
        torch.randint(2**62, (), generator=stream)  # where `train` draws the seed of dropout
        samples, batches = len(self.starts[place].y), ceil(len(self.starts[place].y) / size)
        while True:
            rows = torch.full((batches * size,), self.filler)
            rows[:samples] = self.first[place] + torch.randperm(samples, generator=stream)
            yield rows.view(batches, size)

    def _narrowed(self, rule: Optimiser, places: int) -> Optimiser:
        """The optimiser of the first places."""
        made = optimiser(self.settings, [tensor[:places] for tensor in self.tensors], self.lr)
        state = {
            key: [tensor[:places] for tensor in value] if isinstance(value, list) else value
            for key, value in rule.state_dict().items()
        }
        made.load_state_dict(state)
        return made

    def _exchange(self, place: int, weights: Weights, inwards: bool) -> None:
        """Copy a client's weights into its place, or copies of them out of it."""
        *matrices, biases = (tensor[place] for tensor in self.tensors)
        for layer, matrix, part in zip(self.layers, matrices, self.slices, strict=True):
            views = {layer.weight: matrix[: layer.outputs, : layer.inputs]}
            if layer.bias is not None:
                views[layer.bias] = biases[0, part][: layer.outputs]
            for name, view in views.items():
                if inwards:
                    view.copy_(weights[name])
                else:
                    weights[name] = view.clone(memory_format=torch.contiguous_format)


def _padded(width: int, multiple: int = ALIGNED) -> int:
    return ceil(width / multiple) * multiple
