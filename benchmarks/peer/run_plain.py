"""Plain torch: FedAvg in two processes, without a framework. See `common` for what it reads and answers."""

import multiprocessing
import sys
from multiprocessing.connection import Connection
from typing import Any

import torch
from common import CLIENTS, COHORT, data, model, say, test, train


def work(connection: Connection) -> None:
    """Train or test the clients that the other side names."""
    clients, tests = data()
    module = model()
    while True:
        kind, mine, weights = connection.recv()
        module.load_state_dict(weights)
        if kind == "test":
            connection.send([test(module, tests[client]) for client in mine])
            continue
        total: dict[str, Any] = {}
        for client in mine:
            module.load_state_dict(weights)
            train(module, clients[client])
            for name, value in module.state_dict().items():
                total[name] = total[name] + value if name in total else value.clone()
        connection.send(total)


def main() -> None:
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe() for _ in range(2)]
    for _, theirs in ends:
        context.Process(target=work, args=(theirs,), daemon=True).start()
    workers = [ours for ours, _ in ends]
    weights = model().state_dict()

    def both(kind: str, clients: list[int]) -> list[Any]:
        for place, worker in enumerate(workers):
            worker.send((kind, clients[place :: len(workers)], weights))
        return [worker.recv() for worker in workers]

    both("test", list(range(2)))
    say("ready")
    for line in sys.stdin:
        sums = both("train", torch.randperm(CLIENTS)[:COHORT].tolist())
        weights = {name: sum(part[name] for part in sums) / COHORT for name in weights}
        if line.strip() == "evaluated":
            both("test", list(range(CLIENTS)))
        say("done")


if __name__ == "__main__":
    main()
