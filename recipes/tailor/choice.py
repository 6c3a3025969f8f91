"""How Tailor's rule of choice was chosen: 19 federations that no table of Tailor reports, with seeds from 100 on.

``python recipes/tailor/choice.py`` trains FedAvg once in each federation, fine-tunes every client, and replays rules of
choice: each sees the validation data alone, and is judged by test accuracy against FedAvg+FT. It writes
docs/results/tailor-choice.md. The oracles see the test data: no rule could do better.
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import fedtailor
from fedtailor.data import build
from fedtailor.learning import evaluate
from fedtailor.learning.tensors import tensors
from fedtailor.methods import Client
from fedtailor.methods.candidates import Tailoring, grid, pooled
from fedtailor.methods.fedavg_ft import FedAvgFT
from fedtailor.models.evaluating import evaluating
from fedtailor.runs.environment import environment

RESULTS = Path(__file__).parents[2] / "docs" / "results"
CANDIDATES = grid(mix=True, parts=True, correct=True)
ALIKE = [place for place, candidate in enumerate(CANDIDATES) if candidate.body == candidate.head]  # without parts
SHARPNESS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)  # factors of logits, of which the calibrated loss takes the best
DIRICHLET = {"kind": "dirichlet", "alpha": 0.1}
FEW = {"rounds": 20, "clients": 20, "samples": 4_000, "ratio": 0.5}
MANY = {"rounds": 30, "ratio": 0.1}
FEDERATIONS: dict[str, dict[str, Any]] = {
    "digits, Dirichlet 0.3": {
        "source": "digits", "partition": {"kind": "dirichlet", "alpha": 0.3}, "rounds": 25, "clients": 20, "ratio": 0.5,
        "model": "auto", "epochs": 3, "batch_size": 20, "lr": 0.1, "seeds": (100, 101, 102),
    },
    "MNIST, 2 classes": {**MANY, "source": "mnist", "clients": 100, "samples": 10_000, "partition": 2, "rounds": 40},
    "USPS, Dirichlet 0.1": {**FEW, "source": "usps", "partition": DIRICHLET},
    "MNIST-M, Dirichlet 0.1": {**FEW, "source": "mnist-m", "partition": DIRICHLET, "seeds": (100, 101, 102)},
    "MNIST-M, 5 classes": {**MANY, "source": "mnist-m", "clients": 50, "samples": 5_000, "partition": 5, "epochs": 5},
    "USPS, iid": {**FEW, "source": "usps", "partition": "iid"},
    "MNIST-M, 100 clients, Dirichlet 0.1": {
        **MANY, "source": "mnist-m", "clients": 100, "samples": 10_000, "partition": DIRICHLET, "seeds": (100, 101, 102)
    },
    "MNIST, 100 clients, Dirichlet 0.1": {
        **MANY, "source": "mnist", "clients": 100, "samples": 10_000, "partition": DIRICHLET, "seeds": (100, 101)
    },
    "USPS, 50 clients, Dirichlet 0.1": {
        **MANY, "source": "usps", "clients": 50, "samples": 5_000, "partition": DIRICHLET, "seeds": (100, 101)
    },
    "MNIST-M, 2 classes": {
        **MANY, "source": "mnist-m", "clients": 100, "samples": 10_000, "partition": 2, "seeds": (100, 101)
    },
}  # fmt: skip


@dataclass(frozen=True)
class Replay:
    """What the candidates of a federation's clients gain, and how accurate they are."""

    samples: Tensor  # of validation  # (clients,)
    gains: Tensor  # on validation data  # (clients, candidates)
    calibrated: Tensor  # gains in the loss at the best sharpness of logits  # (clients, candidates)
    accuracy: Tensor  # on test data  # (clients, candidates)

    def pooled(self, caution: float, power: float = 1.0) -> Tensor:
        """Pooled gains; a client counts by its validation samples to this power."""
        counts = self.samples.pow(power) * (self.samples > 0)
        rows = {i: (float(n), g.tolist()) for i, (n, g) in enumerate(zip(counts, self.gains, strict=True))}
        return torch.tensor(pooled(rows, caution), dtype=torch.double)

    def both(self, caution: float, strength: float, power: float = 1.0) -> Tensor:
        n = self.samples[:, None]
        return ((n * self.gains + strength * self.pooled(caution, power)) / (n + strength)).argmax(1)

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
        found = (each[:, ALIKE] for each in (self.gains, self.calibrated, self.accuracy))
        return Replay(self.samples, *found)

    def by_calibrated(self) -> "Replay":
        return replace(self, gains=self.calibrated)


def place(share: float, power: float) -> int:
    """The place of a candidate among those without parts."""
    return next(i for i, c in enumerate(CANDIDATES[j] for j in ALIKE) if (c.body, c.power) == (share, power))


Rule = Callable[[Replay], tuple[float, float]]


def rule(choose: Callable[[Replay], Tensor], parts: bool = False, calibrated: bool = False) -> Rule:
    """The lead of a choice: among all candidates or those without parts, by the plain or the calibrated loss."""

    def lead(replay: Replay) -> tuple[float, float]:
        seen = replay if parts else replay.alike()
        return seen.lead(choose(seen.by_calibrated() if calibrated else seen))

    return lead


RULES: dict[str, Rule] = {
    "a = 0.6, t = 1 for all": rule(lambda r: r.fixed(place(0.6, 1.0))),
    "a = 0.6, t = 0.5 for all": rule(lambda r: r.fixed(place(0.6, 0.5))),
    "own validation data": rule(lambda r: r.gains.argmax(1)),
    **{f"pooled, caution {z:g}": rule(lambda r, z=z: r.fixed(int(r.pooled(z).argmax()))) for z in (0.0, 0.5, 1.0, 2.0)},
    **{f"both, caution 0.5, strength {k}": rule(lambda r, k=k: r.both(0.5, k)) for k in (20, 60, 100, 200, 400)},
    "both, caution 1, strength 100": rule(lambda r: r.both(1.0, 100)),
    **{
        f"both, caution 0.5, strength 100{parts * ', parts'}{calibrated * ', calibrated loss'}{name}": rule(
            lambda r, power=power: r.both(0.5, 100, power), parts, calibrated
        )
        for parts, calibrated in ((False, False), (False, True), (True, False), (True, True))
        for name, power in (("", 1.0), (", by the root of samples", 0.5), (", clients equal", 0.0))
        if parts or calibrated or power < 1
    },
    "oracle, one choice for all": rule(lambda r: r.fixed(int(r.accuracy.mean(0).argmax()))),
    "oracle, one choice for all, parts": rule(lambda r: r.fixed(int(r.accuracy.mean(0).argmax())), parts=True),
    "oracle, a choice per client": rule(lambda r: r.accuracy.argmax(1)),
}  # fmt: skip


class Watched(FedAvgFT):
    """FedAvg+FT that hands the candidates of every deployed model to ``seen``."""

    seen: ClassVar[Callable[[Client, Tailoring], None]]

    def personal(self, client: Client) -> None:
        super().personal(client)
        if client.round > client.rounds:
            type(self).seen(client, Tailoring.of(client, CANDIDATES))


def replay(seed: int, **given: Any) -> Replay:
    """Train a federation, and score every candidate of every client."""
    kind = given["partition"]
    data = {"source": given["source"], "clients": given["clients"], "split": {"train": 0.65, "val": 0.15, "test": 0.2}}
    data |= {"partition": {"kind": "pathological", "classes": kind} if isinstance(kind, int) else kind}
    data |= {"samples": given["samples"]} if "samples" in given else {}
    settings = {
        "seed": seed,
        "rounds": given["rounds"],
        "data": data,
        "model": {"name": given.get("model", "lite")},
        "training": {
            "epochs": given.get("epochs", 2), "batch_size": given.get("batch_size", 10), "lr": given.get("lr", 0.05)
        },
        "participation": {"ratio": given["ratio"]},
        "evaluation": {"every": 0},
        "engine": {"kind": "inline"},
    }  # fmt: skip
    experiment = fedtailor.experiment(settings).model_copy(update={"method": Watched()})
    federation = build(experiment.data, seed)
    rows: dict[int, tuple[int, list[float], list[float], list[float]]] = {}

    def seen(client: Client, tailoring: Tailoring) -> None:
        gains, best, right = tailoring.gains(), calibrated(tailoring), []
        x, y = tensors(federation.samples, federation.test[client.id], "cpu", client.id)
        for candidate in CANDIDATES:
            tailoring.load(candidate)
            right.append(evaluate(client.network, x, y, "cross-entropy").correct / max(1, len(y)))
        rows[client.id] = (len(client.data("val")[1]), gains, best, right)

    Watched.seen = staticmethod(seen)  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        fedtailor.run(experiment, folder=Path(folder) / "run").close()
    columns = zip(*(rows[i] for i in sorted(rows)), strict=True)
    return Replay(*(torch.tensor(each, dtype=torch.double) for each in columns))


def calibrated(tailoring: Tailoring) -> list[float]:
    """The gain of each candidate in the loss at its best sharpness, so that overconfidence costs nothing."""
    x, y = tailoring.client.data("val")
    if not len(y):
        return [0.0] * len(CANDIDATES)
    lost = []
    for candidate in CANDIDATES:
        tailoring.load(candidate)
        with evaluating(tailoring.client.network.module), torch.inference_mode():
            outputs = tailoring.client.network(x)
        lost.append(min(float(cross_entropy(factor * outputs, y)) for factor in SHARPNESS))
    return [max(-1.0, min(1.0, lost[0] - loss)) for loss in lost]


def main(folder: Path) -> None:
    replays: dict[str, list[Replay]] = {}
    for name, given in FEDERATIONS.items():
        for seed in given.get("seeds", (100,)):
            replays.setdefault(name, []).append(replay(seed, **given))
            print(name, seed, file=sys.stderr, flush=True)
    about = (__doc__ or "").partition("``python")[0].strip()
    lines = ["# tailor-choice", "", f"Written by `python recipes/tailor/choice.py`. {about}", ""]
    lines += [
        "Points against FedAvg+FT, mean over clients; means over the seeds, in brackets the worst tenth of clients.",
        "",
    ]
    lines += [f"| rule | {' | '.join(replays)} | mean |", "| --- |" + " ---: |" * (len(replays) + 1)]
    for title, lead in RULES.items():
        found = {name: [lead(r) for r in each] for name, each in replays.items()}
        cells = [_cell(leads) for leads in found.values()]
        lines.append(f"| {title} | {' | '.join(cells)} | {_cell([x for leads in found.values() for x in leads])} |")
    seeds = {name: given.get("seeds", (100,)) for name, given in FEDERATIONS.items()}
    facts = ", ".join(f"{key} {value}" for key, value in environment().items())
    lines += ["", f"Seeds: {'; '.join(f'{name}: {list(each)}' for name, each in seeds.items())}. {facts}."]
    page = folder / "tailor-choice.md"
    page.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(page.read_text(encoding="utf-8"))


def _cell(leads: list[tuple[float, float]]) -> str:
    mean, tenth = (sum(column) / len(leads) for column in zip(*leads, strict=True))
    return f"{mean:+.2f} ({tenth:+.1f})"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else RESULTS)
