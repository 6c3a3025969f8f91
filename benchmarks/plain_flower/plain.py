"""A federation as Flower's examples write it: FedAvg by its strategy, a network and data built for every message."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

client = ClientApp()
server = ServerApp()


def network() -> nn.Module:
    """About a million parameters."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 900), nn.ReLU(), nn.Linear(900, 1020), nn.ReLU(), nn.Linear(1020, 10)
    )


@client.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    module = network()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    with np.load(str(context.node_config["data"])) as data:
        x, y = torch.from_numpy(data["x"]).float() / 255, torch.from_numpy(data["y"])
    optimiser = torch.optim.SGD(module.parameters(), 0.05)
    for start in range(0, len(y), 16):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(x[start : start + 16]), y[start : start + 16]).backward()
        optimiser.step()
    content = {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(RecordDict(content), reply_to=message)


class Timed(FedAvg):
    """Notes when a round begins."""

    times: list[float]

    def configure_train(self, server_round: int, *arguments: Any) -> Any:
        self.times.append(time.monotonic())
        return super().configure_train(server_round, *arguments)


@server.main()
def main(grid: Grid, context: Context) -> None:
    strategy = Timed(fraction_evaluate=0.0, min_train_nodes=4, min_available_nodes=4)
    strategy.times = []
    rounds = int(context.run_config["rounds"])
    arrays = ArrayRecord(network().state_dict())
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds, train_config=ConfigRecord({}))
    Path(str(context.run_config["times"])).write_text(json.dumps([*strategy.times, time.monotonic()]))
