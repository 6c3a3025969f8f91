"""Trained federations in which rules of choice are replayed: what every candidate of every client says.

A federation is trained once by FedAvg; then every client fine-tunes. What is kept are the outputs of its mixes for its
validation and its test data, so that a new rule needs no new training.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import fedtailor
from fedtailor.data import build
from fedtailor.learning.tensors import tensors
from fedtailor.methods import Client
from fedtailor.methods.candidates import POWERS, SHARPNESS, Tailoring, grid, log_frequencies, mixed, pooled
from fedtailor.methods.fedavg_ft import FedAvgFT
from fedtailor.methods.tailor import FORWARD, LEAST, Tailor
from fedtailor.models.evaluating import evaluating

CANDIDATES = grid(mix=True, parts=True, correct=True)
MIXES = [candidate for candidate in CANDIDATES if not candidate.power]
ALIKE = [place for place, candidate in enumerate(CANDIDATES) if candidate.body == candidate.head]  # without parts


@dataclass(frozen=True)
class Replay:
    """What the candidates of a federation's clients gain on validation data, and how accurate they are on test data."""

    samples: Tensor  # of validation  # (clients,)
    gains: Tensor  # in loss  # (clients, candidates)
    calibrated: Tensor  # in the loss at the best sharpness of logits  # (clients, candidates)
    right: Tensor  # in accuracy  # (clients, candidates)
    accuracy: Tensor  # on test data  # (clients, candidates)
    order: list[int]  # in which clients are asked for evidence
    paid: float  # passes over a client's training data that the evidence may cost
    mixes: int  # models that a client tries

    @cached_property
    def asked(self) -> list[int]:
        """The clients that are asked for evidence, as Tailor asks them."""
        cost = Tailor().ft_epochs + FORWARD * self.mixes
        return self.order[: int(min(len(self.order), max(LEAST, self.paid / cost)))]

    def pooled(self, caution: float = 0.5, power: float = 1.0, gains: Tensor | None = None) -> Tensor:
        """Pooled gains; a client counts by its validation samples to this power."""
        gains = self.gains if gains is None else gains
        counts = self.samples.pow(power) * (self.samples > 0)
        found = pooled({i: (float(counts[i]), gains[i].tolist()) for i in self.asked}, caution)
        return torch.tensor(found or [0.0] * gains.shape[1], dtype=torch.double)

    def scores(self, caution: float = 0.5, strength: float = 100.0, power: float = 1.0) -> Tensor:
        """By client, what each candidate is worth by its own validation data and those of all that were asked."""
        n, known = self.samples[:, None], sum(bool(self.samples[i]) for i in self.asked) >= LEAST
        found = (n * self.gains + strength * self.pooled(caution, power)) / (n + strength)
        return found if known else torch.zeros_like(found)

    def both(self, caution: float = 0.5, strength: float = 100.0, power: float = 1.0) -> Tensor:
        return self.scores(caution, strength, power).argmax(1)

    def fixed(self, place: int) -> Tensor:
        return torch.full((len(self.samples),), place)

    def lead(self, chosen: Tensor) -> tuple[float, float]:
        """The lead over FedAvg+FT in points: of the mean over clients, and of the worst tenth."""
        mine, base = self.accuracy.gather(1, chosen[:, None])[:, 0], self.accuracy[:, 0]
        worst = max(1, len(mine) // 10)
        tenth = mine.sort().values[:worst].mean() - base.sort().values[:worst].mean()
        return 100 * float((mine - base).mean()), 100 * float(tenth)

    def alike(self) -> "Replay":
        """Only the candidates whose body and head have the same share."""
        found = {name: getattr(self, name)[:, ALIKE] for name in ("gains", "calibrated", "right", "accuracy")}
        return replace(self, **found, mixes=len(ALIKE) // len(POWERS))

    def everyone(self) -> "Replay":
        """All clients are asked, whatever it costs."""
        return replace(self, paid=float("inf"))

    def seeing(self, gains: Tensor) -> "Replay":
        return replace(self, gains=gains)


class Watched(FedAvgFT):
    """FedAvg+FT that hands the candidates of every deployed model to ``seen``."""

    seen: ClassVar[Callable[[Client, Tailoring], None]]

    def personal(self, client: Client) -> None:
        super().personal(client)
        if client.round > client.rounds:
            type(self).seen(client, Tailoring.of(client, CANDIDATES))


def replayed(settings: Mapping[str, Any], store: Path | None = None) -> Replay:
    """The replay of a federation; what its clients' mixes put out is taken from the store, if it is there."""
    if store is None or not store.exists():
        kept = _trained(settings)
        if store is not None:
            store.parent.mkdir(parents=True, exist_ok=True)
            torch.save({"settings": dict(settings), "clients": kept}, store.with_suffix(".part"))
            store.with_suffix(".part").rename(store)
    else:
        found = torch.load(store)
        if found["settings"] != dict(settings):
            raise SystemExit(f"{store} is of another federation: delete it")
        kept = found["clients"]
    rows = [_judged(*(kept[client])) for client in sorted(kept)]
    columns = (torch.tensor(column, dtype=torch.double) for column in zip(*rows, strict=True))
    experiment = fedtailor.experiment(dict(settings))
    share = experiment.participation.ratio
    paid = Tailor().budget * experiment.rounds * share * len(kept) * experiment.training.epochs
    order = torch.randperm(len(kept), generator=torch.Generator().manual_seed(experiment.seed)).tolist()
    return Replay(*columns, order=order, paid=paid, mixes=len(MIXES))


def _trained(settings: Mapping[str, Any]) -> dict[int, tuple[Tensor, ...]]:
    """By client: outputs on validation and test data by mix, their targets, and the log of its class frequencies."""
    experiment = fedtailor.experiment(dict(settings)).model_copy(update={"method": Watched()})
    federation = build(experiment.data, experiment.seed)
    kept: dict[int, tuple[Tensor, ...]] = {}

    def seen(client: Client, tailoring: Tailoring) -> None:
        x, y = tensors(federation.samples, federation.test[client.id], "cpu", client.id)
        val, outputs = client.data("val"), []
        for mix in MIXES:
            client.load(mixed(client.network, tailoring.received, tailoring.tuned, mix))
            with evaluating(client.network.module), torch.inference_mode():
                outputs.append([client.network(each).float() if len(each) else None for each in (val[0], x)])
        classes = client.network.inputs.outputs
        both = [
            torch.stack([o if o is not None else torch.zeros(0, classes) for o in column])
            for column in zip(*outputs, strict=True)
        ]
        shift = log_frequencies(client.data("train")[1], classes).cpu() if tailoring.bias else torch.zeros(classes)
        kept[client.id] = tuple(each.clone() for each in (*both, val[1], y, shift))

    Watched.seen = staticmethod(seen)  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        fedtailor.run(experiment, folder=Path(folder) / "run").close()
    return kept


def _judged(
    val: Tensor, test: Tensor, targets: Tensor, truth: Tensor, shift: Tensor
) -> tuple[int, list[float], list[float], list[float], list[float]]:
    """One client: its validation samples, the gains of its candidates there, and their accuracy on its test data."""
    lost, calibrated, right, accuracy = [], [], [], []
    for outputs, tested in zip(val, test, strict=True):
        for power in POWERS:
            moved = outputs + power * shift
            losses = [float(cross_entropy(f * moved, targets)) if len(targets) else 0.0 for f in SHARPNESS]
            lost.append(losses[SHARPNESS.index(1.0)])
            calibrated.append(min(losses))
            right.append(_share(moved, targets))
            accuracy.append(_share(tested + power * shift, truth))
    gains = [[max(-1.0, min(1.0, column[0] - loss)) for loss in column] for column in (lost, calibrated)]
    return len(targets), *gains, [share - right[0] for share in right], accuracy


def _share(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs.argmax(-1) == targets).sum()) / max(1, len(targets))
