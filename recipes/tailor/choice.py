"""How Tailor's rule of choice was chosen, by rules that are replayed in federations that no table of Tailor reports.

``python recipes/tailor/choice.py [first | second]`` trains FedAvg once in each federation, fine-tunes every client, and
replays rules of choice: each sees the validation data alone, and is judged by test accuracy against FedAvg+FT. It
writes a part of docs/results/tailor-choice.md. The oracles see the test data: no rule could do better. The command
keeps what it trained in runs/tailor-choice, and resumes from there.
"""

import sys
import time
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from replays import ALIKE, CANDIDATES, Replay, replayed
from torch import Tensor

from fedtailor.views.provenance import made_by

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "tailor-choice.md"
STORE = ROOT / "runs" / "tailor-choice"
DIRICHLET = {"kind": "dirichlet", "alpha": 0.1}
FEW = {"rounds": 20, "clients": 20, "samples": 4_000, "ratio": 0.5}
MANY = {"rounds": 30, "ratio": 0.1}
SPLIT = {"train": 0.65, "val": 0.15, "test": 0.2}
T975 = 2.446912  # of Student's t with six degrees of freedom: seven data sets
Rule = Callable[[Replay], tuple[float, float]]


def place(share: float, power: float) -> int:
    """The place of a candidate among those without parts."""
    return next(i for i, c in enumerate(CANDIDATES[j] for j in ALIKE) if (c.body, c.power) == (share, power))


def by_loss(replay: Replay) -> Tensor:
    return replay.gains


def by_calibrated(replay: Replay) -> Tensor:
    return replay.calibrated


def by_calibrated_and_right(replay: Replay) -> Tensor:
    return replay.calibrated + replay.right


def rule(
    choose: Callable[[Replay], Tensor],
    parts: bool = False,
    gains: Callable[[Replay], Tensor] = by_loss,
) -> Rule:
    """The lead of a choice: among all candidates or those without parts, by gains of this kind."""

    def lead(replay: Replay) -> tuple[float, float]:
        seen = replay if parts else replay.alike()
        return seen.lead(choose(seen.seeing(gains(seen))))

    return lead


# First: federations with seeds from 100 on. All clients are asked for evidence.

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


RULES: dict[str, Rule] = {
    "a = 0.6, t = 1 for all": rule(lambda r: r.fixed(place(0.6, 1.0))),
    "a = 0.6, t = 0.5 for all": rule(lambda r: r.fixed(place(0.6, 0.5))),
    "own validation data": rule(lambda r: r.gains.argmax(1)),
    **{f"pooled, caution {z:g}": rule(lambda r, z=z: r.fixed(int(r.pooled(z).argmax()))) for z in (0.0, 0.5, 1.0, 2.0)},
    **{f"both, caution 0.5, strength {k}": rule(lambda r, k=k: r.both(0.5, k)) for k in (20, 60, 100, 200, 400)},
    "both, caution 1, strength 100": rule(lambda r: r.both(1.0, 100)),
    **{
        f"both, caution 0.5, strength 100{parts * ', parts'}{calibrated * ', calibrated loss'}{name}": rule(
            lambda r, power=power: r.both(0.5, 100, power), parts, by_calibrated if calibrated else by_loss
        )
        for parts, calibrated in ((False, False), (False, True), (True, False), (True, True))
        for name, power in (("", 1.0), (", by the root of samples", 0.5), (", clients equal", 0.0))
        if parts or calibrated or power < 1
    },
    "oracle, one choice for all": rule(lambda r: r.fixed(int(r.accuracy.mean(0).argmax()))),
    "oracle, one choice for all, parts": rule(lambda r: r.fixed(int(r.accuracy.mean(0).argmax())), parts=True),
    "oracle, a choice per client": rule(lambda r: r.accuracy.argmax(1)),
}  # fmt: skip


# Second: new federations with seeds from 200 on. As many clients are asked as Tailor's budget pays for. The rules and
# how they are judged were written down before any of them was tried here:
# A rule replaces the default if, whichever data set is left out, it has the best mean over the other data sets (each
# counts the same). If none has, a rule still replaces it if its mean over the other data sets is at least the default's
# whichever is left out, and if its mean over the federations with Dirichlet 0.1 and few rounds is at least 0 where the
# default's is below 0; of several such rules the one with the best mean over all data sets. Else the default stays.

RULES_NEW: dict[str, Rule] = {
    "default": rule(lambda r: r.both()),
    "calibrated": rule(lambda r: r.both(), gains=by_calibrated),
    "equal, calibrated": rule(lambda r: r.both(power=0), gains=by_calibrated),
    "parts, equal, calibrated": rule(lambda r: r.both(power=0), parts=True, gains=by_calibrated),
    "equal, calibrated + accuracy": rule(lambda r: r.both(power=0), gains=by_calibrated_and_right),
    "parts, equal, calibrated + accuracy": rule(lambda r: r.both(power=0), parts=True, gains=by_calibrated_and_right),
    "default, veto": rule(lambda r: vetoed(r)),
}
ORACLES: dict[str, Rule] = {
    "oracle, one choice for all": rule(lambda r: r.fixed(int(r.accuracy.mean(0).argmax()))),
    "oracle, one choice for all, parts": rule(lambda r: r.fixed(int(r.accuracy.mean(0).argmax())), parts=True),
}


def vetoed(replay: Replay) -> Tensor:
    """The default, without the candidates that are less accurate on the validation data of all that were asked."""
    worse = replay.pooled(0.0, 1.0, replay.right) < 0
    return replay.scores().masked_fill(worse, float("-inf")).argmax(1)


def images(source: str, partition: Any, rounds: int, **more: Any) -> dict[str, Any]:
    """50 clients with 100 images each, 10 of them in a round."""
    return {
        "rounds": rounds,
        "data": {"source": source, "clients": 50, "samples": 5_000, "partition": partition, "split": SPLIT} | more,
        "model": {"name": "lite"},
        "training": {"epochs": 5, "batch_size": 10, "lr": 0.05},
        "participation": {"ratio": 0.2},
    }


def domains(rounds: int) -> dict[str, Any]:
    partition = {"kind": "by-domain", "mnist": 0.4, "usps": 0.4, "mnist_m": 0.2}
    data = {"source": "mnist-star", "clients": 10, "samples": 3_000, "partition": partition, "split": SPLIT}
    training = {"epochs": 2, "batch_size": 10, "lr": 0.05}
    return {"rounds": rounds, "data": data, "model": {"name": "lite"}, "training": training}


def drawers(rounds: int) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "data": {"source": "omniglot", "clients": 20, "samples": 3_000, "partition": "by-writer", "split": SPLIT},
        "model": {"name": "lite"},
        "training": {"epochs": 2, "batch_size": 10, "lr": 0.05},
        "participation": {"ratio": 0.5},
    }


def hundred(partition: Any, rounds: int) -> dict[str, Any]:
    data = {"source": "cifar100", "clients": 20, "samples": 3_000, "partition": partition, "split": SPLIT}
    training = {"epochs": 1, "batch_size": 10, "lr": 0.05}
    return {"rounds": rounds, "data": data, "model": {"name": "lite"}, "training": training}


def news(alpha: float, rounds: int) -> dict[str, Any]:
    partition = {"kind": "dirichlet", "alpha": alpha}
    data = {"source": "ag-news", "clients": 20, "samples": 2_000, "partition": partition, "split": SPLIT}
    training = {"epochs": 1, "batch_size": 10, "lr": 5.0}
    return {"rounds": rounds, "data": data, "model": {"name": "fasttext"}, "training": training}


def hospitals(rounds: int) -> dict[str, Any]:
    prepared = {"standardise": True, "impute": "mean", "indicator": True, "statistics": "federation"}
    split = {"train": 0.55, "val": 0.15, "test": 0.3}
    return {
        "rounds": rounds,
        "data": {"source": "heart-disease", "split": split, "preprocess": prepared},
        "model": {"name": "mlp", "arguments": {"hidden": 32}},
        "training": {"epochs": 2, "batch_size": 16, "lr": 0.05},
    }


TWO, FIVE = (200, 201), (200, 201, 202, 203, 204)
SKEWED = "Dirichlet 0.1, few"  # the name of federations with strong label skew and few rounds ends so
NEW: dict[str, dict[str, tuple[dict[str, Any], tuple[int, ...]]]] = {  # by data set: settings and seeds
    "Fashion-MNIST": {
        "Dirichlet 0.1, few": (images("fashion-mnist", DIRICHLET, 4), TWO),
        "Dirichlet 0.1": (images("fashion-mnist", DIRICHLET, 25), TWO),
        "3 classes": (images("fashion-mnist", {"kind": "pathological", "classes": 3}, 12), TWO),
    },
    "CIFAR-10": {
        "Dirichlet 0.1, few": (images("cifar10", DIRICHLET, 6), TWO),
        "Dirichlet 0.1": (images("cifar10", DIRICHLET, 40), TWO),
        "3 classes": (images("cifar10", {"kind": "pathological", "classes": 3}, 15), TWO),
    },
    "digits": {
        "MNIST, Dirichlet 0.1, few": (images("mnist", DIRICHLET, 3), TWO),
        "MNIST, 3 classes": (images("mnist", {"kind": "pathological", "classes": 3}, 12), TWO),
        "domains, few": (domains(5), TWO),
        "domains": (domains(20), TWO),
    },
    "CIFAR-100": {
        "Dirichlet 0.1, few": (hundred(DIRICHLET, 6), TWO),
        "20 classes": (hundred({"kind": "pathological", "classes": 20}, 30), TWO),
    },
    "AG News": {
        "Dirichlet 0.1, few": (news(0.1, 3), TWO),
        "Dirichlet 0.1": (news(0.1, 20), TWO),
        "Dirichlet 0.5": (news(0.5, 10), TWO),
    },
    "Omniglot": {"few": (drawers(8), TWO), "": (drawers(40), TWO)},
    "heart disease": {"few": (hospitals(2), FIVE), "": (hospitals(20), FIVE)},
}


def settings_of(seed: int, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run, from a short form of the first federations or those of the new ones."""
    if "data" not in given:
        kind = given["partition"]
        data = {"source": given["source"], "clients": given["clients"], "split": SPLIT}
        data |= {"partition": {"kind": "pathological", "classes": kind} if isinstance(kind, int) else kind}
        data |= {"samples": given["samples"]} if "samples" in given else {}
        names = {"epochs": 2, "batch_size": 10, "lr": 0.05}
        given = {
            "rounds": given["rounds"],
            "data": data,
            "model": {"name": given.get("model", "lite")},
            "training": {name: given.get(name, default) for name, default in names.items()},
            "participation": {"ratio": given["ratio"]},
        }
    return {**given, "seed": seed, "evaluation": {"every": 0}, "engine": {"kind": "inline"}}


def of(name: str, seed: int, given: dict[str, Any]) -> Replay:
    found = replayed(settings_of(seed, given), STORE / f"{name.replace(', ', '-').replace(' ', '_')}-s{seed}.pt")
    print(name, seed, file=sys.stderr, flush=True)
    return found


def first() -> list[str]:
    replays = {
        name: [of(name, seed, given).everyone() for seed in given.get("seeds", (100,))]
        for name, given in FEDERATIONS.items()
    }
    lines = [
        "How Tailor's rule of choice was chosen: 19 federations that no table of Tailor reports, with seeds from",
        "100 on.",
        "",
        "Points against FedAvg+FT, mean over clients; means over the seeds, in brackets the worst tenth of clients.",
        "",
        f"| rule | {' | '.join(replays)} | mean |",
        "| --- |" + " ---: |" * (len(replays) + 1),
    ]
    for title, lead in RULES.items():
        found = {name: [lead(r) for r in each] for name, each in replays.items()}
        cells = [_cell(leads) for leads in found.values()]
        lines.append(f"| {title} | {' | '.join(cells)} | {_cell([x for leads in found.values() for x in leads])} |")
    seeds = {name: given.get("seeds", (100,)) for name, given in FEDERATIONS.items()}
    return [*lines, "", f"Seeds: {'; '.join(f'{name}: {list(each)}' for name, each in seeds.items())}."]


Leads = dict[str, dict[str, dict[str, list[tuple[float, float]]]]]  # by rule, data set and federation: by seed


def second() -> list[str]:
    replays = {
        data: {name: [of(f"{data} {name}", seed, given) for seed in seeds] for name, (given, seeds) in each.items()}
        for data, each in NEW.items()
    }
    rules = {**RULES_NEW, **ORACLES}
    leads: Leads = {
        title: {
            data: {name: [lead(r) for r in found] for name, found in each.items()} for data, each in replays.items()
        }
        for title, lead in rules.items()
    }
    return [
        "New federations, with seeds from 200 on, of the data sets that Tailor's tables report. The rules and how they",
        "are judged were written down before any of them was tried here. A rule for a data set's tables is chosen on",
        "the other data sets: the best mean over them, where each counts the same. As many clients are asked for",
        'evidence as Tailor\'s budget pays for. "few": few rounds.',
        "",
        "Points against FedAvg+FT, mean over clients; means over the seeds, in brackets the worst tenth of clients.",
        "",
        *_federations(leads),
        "",
        *_left_out(leads),
        "",
        *_against_default(leads),
        "",
        "Seeds: 200 and 201; heart disease 200 to 204.",
    ]


def _federations(leads: Leads) -> list[str]:
    one = next(iter(leads.values()))
    lines = [
        f"| data set | federation | {' | '.join(leads)} |",
        "| --- | --- |" + " ---: |" * len(leads),
    ]
    for data, each in one.items():
        for name in each:
            cells = [_cell(leads[title][data][name]) for title in leads]
            lines.append(f"| {data} | {name or 'more rounds'} | {' | '.join(cells)} |")
    means = [_cell([_mean(leads[title][data]) for data in one]) for title in leads]
    lines.append(f"| mean of data sets | | {' | '.join(means)} |")
    skewed = [_cell(_skewed(leads[title])) for title in leads]
    return [*lines, f"| mean of Dirichlet 0.1, few rounds | | {' | '.join(skewed)} |"]


def _left_out(leads: Leads) -> list[str]:
    lines = [
        "| left out | best rule on the others | its mean there | default's there | its mean here | default's here |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for data in NEW:
        means = {title: _mean_of([_mean(leads[title][d]) for d in NEW if d != data]) for title in RULES_NEW}
        best = max(means, key=lambda title: means[title][0])
        here = (_mean(leads[title][data]) for title in (best, "default"))
        cells = [means[best], means["default"], *here]
        lines.append(f"| {data} | {best} | {' | '.join(_cell([cell]) for cell in cells)} |")
    return lines


def _against_default(leads: Leads) -> list[str]:
    """The paired difference to the default over the data sets, with a 95 % t-interval."""
    lines = ["| rule | mean lead over the default, seven data sets | worst data set |", "| --- | ---: | ---: |"]
    for title in list(RULES_NEW)[1:]:
        found = [_mean(leads[title][data])[0] - _mean(leads["default"][data])[0] for data in NEW]
        half = T975 * stdev(found) / sqrt(len(found))
        middle = mean(found)
        interval = f"{middle:+.2f} [{middle - half:+.2f}, {middle + half:+.2f}]"
        lines.append(f"| {title} | {interval} | {min(found):+.2f} |")
    return lines


def _mean(federations: dict[str, list[tuple[float, float]]]) -> tuple[float, float]:
    """The mean over a data set's federations, each the mean of its seeds."""
    return _mean_of([_mean_of(seeds) for seeds in federations.values()])


def _skewed(leads: dict[str, dict[str, list[tuple[float, float]]]]) -> list[tuple[float, float]]:
    return [_mean_of(found) for each in leads.values() for name, found in each.items() if name.endswith(SKEWED)]


def _mean_of(leads: list[tuple[float, float]]) -> tuple[float, float]:
    return mean(lead for lead, _ in leads), mean(tenth for _, tenth in leads)


def _cell(leads: list[tuple[float, float]]) -> str:
    lead, tenth = _mean_of(leads)
    return f"{lead:+.2f} ({tenth:+.1f})"


PARTS = {"first": ("First federations", first), "second": ("New federations", second)}


def main(names: list[str]) -> None:
    """Write these parts of the page anew; the others stay."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    kept = {
        title: text.partition(f"\n## {title}\n")[2].partition("\n## ")[0].strip("\n") for title, _ in PARTS.values()
    }
    for name in names:
        (title, part), begin = PARTS[name], time.monotonic()
        kept[title] = "\n".join([*part(), "", made_by(f"python recipes/tailor/choice.py {name}", begin)])
    lines = ["# tailor-choice"]
    for title, section in kept.items():
        lines += ["", f"## {title}", "", section] if section else []
    PAGE.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(sys.argv[1:] or list(PARTS))
