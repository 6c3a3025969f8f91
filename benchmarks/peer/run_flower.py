"""Flower's simulation: FedAvg by its strategy, clients in its Ray actors. See `common` for its input."""

import os
import sys
from pathlib import Path
from typing import Any

os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # Ray's actors import `common` too

from common import CLIENTS, COHORT, data, model, say, test, train
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

client, server = ClientApp(), ServerApp()


@client.train()
def train_client(message: Message, context: Context) -> Message:
    module, mine = model(), data()[0][int(context.node_config["partition-id"])]
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(module, mine)
    content = {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": len(mine[1])})}
    return Message(RecordDict(content), reply_to=message)


@client.evaluate()
def test_client(message: Message, context: Context) -> Message:
    module, mine = model(), data()[1][int(context.node_config["partition-id"])]
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    correct, loss = test(module, mine)
    found = {"num-examples": len(mine[1]), "accuracy": correct / len(mine[1]), "loss": loss}
    return Message(RecordDict({"metrics": MetricRecord(found)}), reply_to=message)


class OnDemand(FedAvg):
    """A round for every line of the standard input."""

    kind = ""

    def configure_train(self, server_round: int, *arguments: Any) -> Any:
        say("ready" if server_round == 1 else "done")
        self.kind = sys.stdin.readline().strip()
        if not self.kind:
            os._exit(0)
        return super().configure_train(server_round, *arguments)

    def configure_evaluate(self, *arguments: Any) -> Any:
        return super().configure_evaluate(*arguments) if self.kind == "evaluated" else []


@server.main()
def main(grid: Grid, context: Context) -> None:
    strategy = OnDemand(fraction_train=COHORT / CLIENTS, fraction_evaluate=1.0, min_available_nodes=CLIENTS)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(model().state_dict()), num_rounds=10**6)


if __name__ == "__main__":
    run_simulation(
        server, client, CLIENTS, backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}}
    )
