"""How near training comes to the roof of this processor, as ratios measured in one run.

The roof is the speed at which one thread multiplies two square matrices, in fp32 and in bf16: the faster of torch's own
way (``mm``) and oneDNN's. The multiply-adds of a training step of the CNN, forward and backward, over its time are
the speed of training:

* ``share``: the speed of training over the roof of the same precision, for FedTailor and, in fp32, plain torch
  (``raw_loop.py``); ``mm``: the speed of torch's own multiplication over the roof;
* ``layers``: the time of the convolutions and linear layers alone, forward and backward, on tensors of the same shapes,
  over that of FedTailor's whole training in fp32. Only the rest can be saved without other kernels: ``at most`` is the
  factor by which training in fp32 would be faster if all the rest took no time;
* ``bf16 over fp32``: of the roof, and of training.

One process with one thread and the environment of a worker; the measured functions take turns, so that whatever else
the machine does hits all of them. Processor times; medians are compared. Example:
``FEDTAILOR_DATA=... python benchmarks/roof.py``. Prints one JSON document.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from precision import SAMPLES, command, in_turns, problem
from raw_loop import EPOCHS, LR, train_client
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.mkldnn import to_mkldnn

from fedtailor.learning import TrainingSettings, train
from fedtailor.learning.precision import native_bf16
from fedtailor.learning.settings import Precision
from fedtailor.models import Network
from fedtailor.runs.environment import environment
from fedtailor.seeding import torch_stream

SOURCES, BATCHES = ("fashion-mnist", "cifar10"), (10, 64)
SIDE, TIMES = 1024, 4  # rows and columns of the matrices, and how often they are multiplied
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


def measure(turns: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    precisions: list[Precision] = ["fp32", "bf16"] if native_bf16() else ["fp32"]
    found = {
        source: {f"batch {batch}": roof(*prepared(source), batch, precisions, turns) for batch in BATCHES}
        for source in SOURCES
    }
    return {**found, "side": SIDE, "turns": turns, "native bf16": native_bf16(), "environment": environment()}


def prepared(source: str) -> tuple[Network, Tensor, Tensor]:
    """The network and the training samples of a client."""
    (x, y), _, network = problem(source)
    network.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network, x[:SAMPLES], y[:SAMPLES]


def roof(network: Network, x: Tensor, y: Tensor, batch: int, precisions: list[Precision], turns: int) -> dict[str, Any]:
    start, images = network.weights(), x.permute(0, 2, 3, 1).contiguous()

    def local(precision: Precision) -> None:
        network.load(start)
        settings = TrainingSettings(epochs=EPOCHS, batch_size=batch, lr=LR, precision=precision)
        train(network, x, y, settings, torch_stream("batches"))

    steps = EPOCHS * -(-len(y) // batch)
    functions: dict[str, Callable[[], None]] = {
        "layers": layers(network, x, batch, steps),
        "raw": lambda: train_client(images, y, batch=batch),
        **{precision: partial(local, precision) for precision in precisions},
        **{f"mm {precision}": mm(DTYPES[precision]) for precision in precisions},
        **{f"oneDNN {precision}": onednn(DTYPES[precision]) for precision in precisions},
    }
    seconds = in_turns(functions, turns)
    samples = EPOCHS * len(y)
    work, product = samples * flops_of_a_sample(network, x, y), TIMES * 2 * SIDE**3
    speed = {name: work / seconds[name] / 1e9 for name in ("raw", *precisions)}
    multiplying = {f"{way} {p}": product / seconds[f"{way} {p}"] / 1e9 for way in ("mm", "oneDNN") for p in precisions}
    top = {p: max(multiplying[f"mm {p}"], multiplying[f"oneDNN {p}"]) for p in precisions}
    shares = {"plain torch fp32": speed["raw"] / top["fp32"], **{p: speed[p] / top[p] for p in precisions}}
    found = {
        "share": shares,
        "mm": {p: multiplying[f"mm {p}"] / top[p] for p in precisions},
        "layers": seconds["layers"] / seconds["fp32"],
        "at most": seconds["fp32"] / seconds["layers"],
    }
    if "bf16" in precisions:
        found["bf16 over fp32"] = {"roof": top["bf16"] / top["fp32"], "training": speed["bf16"] / speed["fp32"]}
    return {
        **{name: rounded(value, 2) for name, value in found.items()},
        "gigaflops": rounded({**multiplying, **speed}, 0),
        "samples_per_second": rounded({name: samples / seconds[name] for name in ("raw", *precisions)}, 0),
    }


def rounded(value: Any, digits: int) -> Any:
    if isinstance(value, dict):
        return {name: rounded(one, digits) for name, one in value.items()}
    return round(value, digits or None)


def mm(dtype: torch.dtype) -> Callable[[], None]:
    a, b = (torch.randn(SIDE, SIDE).to(dtype) for _ in range(2))

    def multiply() -> None:
        for _ in range(TIMES):
            torch.mm(a, b)

    return multiply


def onednn(dtype: torch.dtype) -> Callable[[], None]:
    layer = to_mkldnn(nn.Linear(SIDE, SIDE, bias=False), dtype)
    x = torch.randn(SIDE, SIDE).to(dtype).to_mkldnn()

    @torch.no_grad()
    def multiply() -> None:
        for _ in range(TIMES):
            layer(x)

    return multiply


def layers(network: Network, x: Tensor, batch: int, steps: int) -> Callable[[], None]:
    """The convolutions and linear layers of training steps alone, forward and backward, without the rest of them."""
    calls: list[tuple[nn.Module, Tensor]] = []
    kinds = [layer for layer in network.module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(lambda layer, given, _: calls.append((layer, given[0]))) for layer in kinds]
    with torch.no_grad():
        network(x[:batch])
    for hook in hooks:
        hook.remove()
    inputs = [given.detach().clone().requires_grad_(place > 0) for place, (_, given) in enumerate(calls)]

    def go() -> None:
        for (layer, _), given in zip(calls * steps, inputs * steps, strict=True):
            output = layer(given)
            wanted = [tensor for tensor in (given, *layer.parameters()) if tensor.requires_grad]
            torch.autograd.grad(output, wanted, output.detach())

    return go


def flops_of_a_sample(network: Network, x: Tensor, y: Tensor) -> float:
    """Additions and multiplications of convolutions and linear layers in a training step, per sample."""
    parameters = list(network.parameters().values())
    with FlopCounterMode(display=False) as counter:
        torch.autograd.grad(nn.functional.cross_entropy(network(x), y), parameters)
    return counter.get_total_flops() / len(y)


if __name__ == "__main__":
    command(measure, __doc__)
