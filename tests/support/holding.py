"""FedAvg that waits in the middle of a round, so that a test can do something there.

While the file ``hold-2`` is in the folder $HOLD, the training of round 2 does not begin: its client adds a byte to
the file ``holding`` again and again. A test that sees the file grow knows that the run is in that round, and that a
signal it has sent has been handled.
"""

import os
import time
from pathlib import Path
from typing import ClassVar

from fedtailor.methods import Client
from fedtailor.methods.fedavg import FedAvg


class Holding(FedAvg):
    name: ClassVar = "holding"

    def fit(self, client: Client) -> None:
        folder = Path(os.environ["HOLD"])
        while (folder / f"hold-{client.round}").exists():
            with (folder / "holding").open("ab") as file:
                file.write(b".")
            time.sleep(0.02)
        super().fit(client)
