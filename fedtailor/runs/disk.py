"""How much a run will store, and whether the disk can hold it."""

import shutil
from pathlib import Path

from fedtailor.errors import UserError
from fedtailor.runs.assembly import Assembly
from fedtailor.runs.callbacks import Callback, RoundReport
from fedtailor.runs.cohort import largest_cohort
from fedtailor.runs.deployed import largest_models
from fedtailor.runs.store import Store
from fedtailor.weights import nbytes, select

PER_CLIENT = ("client", "memory")  # states with a row for every client that has taken part


def least_bytes(made: Assembly, remote: bool = False) -> int:
    """The least that a run will store: the server's model, clients' private parts, and the deployed models.

    What a method keeps besides is known after the first round only: see `DiskCheck`. The nodes of a federation
    (``remote``) store their own states.
    """
    weights, settings = made.network.weights(), made.experiment
    server, private = nbytes(select(weights, made.shared)), nbytes(select(weights, made.kept))
    if remote:
        return server
    took_part = min(made.clients, settings.rounds * largest_cohort(settings, made.clients))
    keeps = settings.evaluation.final and largest_models(made) <= settings.evaluation.keep_models * 1e6
    smallest = min(nbytes(network.weights()) for network in (made.network, *made.family.values()))
    return server + took_part * private + (len(made.tested) * smallest if keeps else 0)


def check_disk(place: Path, needed: int) -> None:
    """Raise a `UserError` if the disk clearly cannot hold what a run, or several, will store."""
    free = free_bytes(place)
    if needed > free:
        raise UserError(
            f"{place} needs at least {needed / 1e9:.2f} GB on disk, and only {free / 1e9:.2f} GB are free: make room, "
            "name another folder with --out, or store no clients' models with --set evaluation.keep_models=0"
        )


def free_bytes(place: Path) -> int:
    """The free space of the disk that will hold this folder."""
    place = place.absolute()
    return shutil.disk_usage(next(path for path in (place, *place.parents) if path.is_dir())).free


class DiskCheck(Callback):
    """Warns after the first round if the states of all clients will not fit on the disk."""

    def __init__(self, store: Store, clients: int, callbacks: Callback):
        self.store, self.clients, self.callbacks = store, clients, callbacks
        self.checked = False

    def round_done(self, report: RoundReport) -> None:
        if self.checked:
            return
        self.checked = True
        missing, free = self.missing_bytes(), free_bytes(self.store.path.parent)
        if missing > free:
            self.callbacks.warning(
                f"the states of all {self.clients} clients will take about {missing / 1e9:.2f} GB more, and only "
                f"{free / 1e9:.2f} GB are free: the run will stop when the disk is full, and can be resumed"
            )

    def missing_bytes(self) -> int:
        """What clients without a state will add, if their states are as large as those stored so far."""
        total = 0
        for scope in PER_CLIENT:
            (row,) = self.store.rows(
                "SELECT COUNT(DISTINCT key) AS clients, SUM(LENGTH(data)) AS bytes FROM state WHERE scope = ?", [scope]
            )
            if row["clients"]:
                total += max(0, self.clients - row["clients"]) * row["bytes"] // row["clients"]
        return int(total)
