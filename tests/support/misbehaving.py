"""FedAH on nodes that tests can hold up or make lie: files in the folder $MISBEHAVE say when.

hold-fit-2     training of round 2 begins, says so in holding-fit-2, and waits until the file is gone
hold-upload-2  the same after training
nan-2          round 2 sends values that are not finite
shape-2        round 2 sends tensors of a wrong shape
"""

import os
import time
from pathlib import Path
from typing import ClassVar

from fedtailor.methods import Client, Payload
from fedtailor.methods.fedah import FedAH


class Misbehaving(FedAH):
    name: ClassVar = "misbehaving"

    def fit(self, client: Client) -> None:
        _hold(f"fit-{client.round}")
        super().fit(client)

    def upload(self, client: Client) -> Payload:
        _hold(f"upload-{client.round}")
        sent = super().upload(client)
        first = next(iter(sent["model"]))
        if _wanted(f"nan-{client.round}"):
            sent.groups["model"] = {**sent["model"], first: sent["model"][first] * float("nan")}
        if _wanted(f"shape-{client.round}"):
            sent.groups["model"] = {**sent["model"], first: sent["model"][first].flatten()[:1]}
        return sent


def _wanted(what: str) -> bool:
    return "MISBEHAVE" in os.environ and (Path(os.environ["MISBEHAVE"]) / what).exists()


def _hold(where: str) -> None:
    if _wanted(f"hold-{where}"):
        (Path(os.environ["MISBEHAVE"]) / f"holding-{where}").touch()
        while _wanted(f"hold-{where}"):
            time.sleep(0.1)
