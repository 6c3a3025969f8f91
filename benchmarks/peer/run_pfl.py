"""pfl's simulation in two processes that torch.distributed connects. See `common` for what it reads and answers."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from common import BATCH, CLIENTS, COHORT, EPOCHS, LR, data, model, say

PROCESSES = 2


def conduct() -> None:
    """Start the processes, and pass every line on to both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(PROCESSES)}
    shared |= {"TORCHELASTIC_RUN_ID": "peers", "LOCAL_WORLD_SIZE": str(PROCESSES)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    programs: list[Any] = [
        subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            **pipes,
        )
        for rank in range(PROCESSES)
    ]

    def both(word: str) -> None:
        for program in programs:
            if not any(line.strip() == word for line in iter(program.stdout.readline, "")):
                sys.exit("a process of pfl ended")
        say(word)

    both("ready")
    for line in sys.stdin:
        for program in programs:
            program.stdin.write(line)
        both("done")


def simulate() -> None:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.common_types import Population
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = self.inner(x)
            return outputs

        def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
            self.eval() if eval else self.train()
            return F.cross_entropy(self(x), y)

        @torch.inference_mode()
        def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> dict[str, Any]:
            outputs = self(x)
            loss = F.cross_entropy(outputs, y, reduction="sum").item()
            correct = (outputs.argmax(1) == y).sum().item()
            return {"loss": Weighted(loss, len(y)), "accuracy": Weighted(correct, len(y))}

    class OnDemand(FederatedAveraging):  # type: ignore[misc]
        """A round for every line of the standard input."""

        def get_next_central_contexts(self, model: Any, iteration: int, params: Any, *more: Any) -> Any:
            say("done" if iteration else "ready")
            kind = sys.stdin.readline().strip()
            if not kind:
                os._exit(0)
            params = replace(params, evaluation_frequency=1 if kind == "evaluated" else iteration + 1)
            contexts, model, metrics = super().get_next_central_contexts(model, iteration, params, *more)
            # the cohort is tested as one part of all clients, not also before and after it trains
            few = (replace(c, do_evaluation=False) if c.population == Population.TRAIN else c for c in contexts)
            return tuple(few), model, metrics

    def federated(part: int) -> Any:
        clients = data()[part]
        sampler = get_user_sampler("minimize_reuse", list(range(CLIENTS)))
        return FederatedDataset(lambda user: Dataset(list(clients[user])), sampler)

    network = Network()
    OnDemand().run(
        backend=SimulatedBackend(training_data=federated(0), val_data=federated(1)),
        model=PyTorchModel(
            model=network,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
        ),
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**6, evaluation_frequency=1, train_cohort_size=COHORT, val_cohort_size=CLIENTS
        ),
        model_train_params=NNTrainHyperParams(local_num_epochs=EPOCHS, local_learning_rate=LR, local_batch_size=BATCH),
        model_eval_params=NNEvalHyperParams(local_batch_size=1024),
    )


if __name__ == "__main__":
    if "RANK" in os.environ:
        torch.set_num_threads(1)
        simulate()
    else:
        conduct()
