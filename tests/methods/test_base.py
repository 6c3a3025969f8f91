"""What methods declare: settings that switch them off, training that breaks them, how much they compute."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import fedtailor
from fedtailor.learning import TrainingSettings, loop
from fedtailor.methods import AgentMethod, Method, Payload, catalogue
from fedtailor.runs import Callback, running
from tests.support.bench import RESNET, Bench
from tests.support.digits import DIGITS
from tests.support.peers import digits, scores
from tests.support.problem import HERE, W, make, play, targets


def test_settings_that_turn_a_method_into_fedavg_warn() -> None:
    assert "FedAvg" in (make("fedprox", mu=0.0).inert() or "")
    assert "FedAvg" in (make("fedavg-ft", ft_epochs=0).inert() or "")
    assert make("fedprox", mu=0.1).inert() is None


@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("per-fedavg", {"alpha": 0.0}),
        ("pfedme", {"lam": 0.0}),
        ("pfedme", {"beta": 0.0}),
        ("ditto", {"lam": 0.0}),
        ("apfl", {"alpha_updates": "never", "alpha_0": 0.0}),
    ],
    ids=str,
)
def test_settings_that_switch_a_method_off_are_said_and_change_the_numbers(
    name: str, off: dict[str, Any], tmp_path: Path
) -> None:
    assert make(name, **off).inert()
    assert make(name).inert() is None
    on = play(tmp_path / "on", make(name), targets(*HERE), lr=0.05, epochs=2, rounds=3)
    without = play(tmp_path / "off", make(name, **off), targets(*HERE), lr=0.05, epochs=2, rounds=3)
    assert any(abs(on.personal(c, W) - without.personal(c, W)) > 1e-4 for c in (0, 1))


class Told(Callback):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, sentence: str) -> None:
        self.warnings.append(sentence)


@pytest.mark.parametrize(
    ("method", "training", "word"),
    [
        ({"name": "scaffold"}, {"optimiser": "adam"}, "control variates"),
        ({"name": "scaffold"}, {"clip": 1.0}, "control variates"),
        ({"name": "scaffold"}, {"momentum": 0.5, "weight_decay": 0.01}, None),
        ({"name": "fednova"}, {"optimiser": "adam"}, "number of steps"),
        ({"name": "fednova"}, {"momentum": 0.5}, None),
        ({"name": "per-fedavg", "variant": "hessian-free"}, {"clip": 1.0}, "Hessian"),
        ({"name": "per-fedavg"}, {"clip": 1.0}, None),
    ],
    ids=str,
)
def test_training_settings_that_break_a_method_are_said(
    method: dict[str, Any], training: dict[str, Any], word: str | None, tmp_path: Path
) -> None:
    told = Told()
    settings = {**DIGITS, "rounds": 1, "method": method, "training": {"lr": 0.01, "epochs": 1, **training}}
    fedtailor.run(settings, folder=tmp_path / "run", callbacks=told).close()
    assert [word in sentence for sentence in told.warnings] == ([True] if word else [])


FACTORS: list[tuple[str, dict[str, Any], Callable[[int], float]]] = [
    ("fednova", {}, lambda epochs: epochs),
    ("scaffold", {}, lambda epochs: epochs),
    ("ditto", {}, lambda epochs: 2 * epochs),
    ("apfl", {}, lambda epochs: 2 * epochs),
    ("pfedme", {"inner_steps": 7}, lambda epochs: 7 * epochs),
    ("per-fedavg", {}, lambda epochs: epochs),
    ("per-fedavg", {"variant": "hessian-free"}, lambda epochs: 4 / 3 * epochs),
]


@pytest.mark.parametrize(("name", "settings", "expected"), FACTORS)
def test_the_passes_that_are_declared_are_those_that_are_made(
    name: str, settings: dict[str, Any], expected: Callable[[int], float], tmp_path: Path, monkeypatch: Any
) -> None:
    """Gradients of three samples, for two epochs in one round; no final pass, nothing else is trained."""
    seen = 0
    original = loop.mean_loss

    def count(kind: Any, outputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        seen += len(wanted)
        return original(kind, outputs, wanted)

    monkeypatch.setattr(loop, "mean_loss", count)
    monkeypatch.setattr(running, "expected_seconds", lambda *_: None)  # it trains, to tell the time
    method = make(name, **settings)
    experiment = fedtailor.experiment(
        {
            "rounds": 1,
            "training": {"epochs": 2, "lr": 0.01, "loss": "squared-error"},
            "model": {"name": "tests.support.problem:Scalar"},
            "engine": {"kind": "inline"},
            "evaluation": {"every": 0, "final": False},
        }
    ).model_copy(update={"method": method})
    fedtailor.run(experiment, folder=tmp_path / "run", federation=targets([1.0, 2.0, 3.0])).close()
    assert method.passes(2) == pytest.approx(expected(2)) == pytest.approx(seen / 3)


@pytest.mark.parametrize(
    ("method", "epochs", "frozen"),
    [
        (lambda: make("fedbabu"), 2, "head"),
        (lambda: make("fedrep", head_epochs=0), 2, "head"),
        (lambda: make("fedrep", head_epochs=2), 0, "body"),
        (lambda: make("fedpac", head_epochs=0), 2, "head"),
        (lambda: make("fedpac", head_epochs=2), 0, "body"),
    ],
    ids=["fedbabu", "fedrep-body", "fedrep-head", "fedpac-body", "fedpac-head"],
)
def test_a_frozen_part_stays_to_the_bit_with_its_statistics(
    method: Callable[[], Method], epochs: int, frozen: Any
) -> None:
    bench = Bench(method(), RESNET, epochs=epochs)
    reply = Payload.unpack(bench.round(0).reply or b"")
    whole = {**reply["model"], **bench.private(0)}
    changed = {name for name in whole if not torch.equal(whole[name], bench.initial[name])}
    assert changed
    assert changed <= whole.keys() - bench.network.part(frozen)


@pytest.mark.parametrize(
    ("on", "off"),
    [
        (("fedrep", {}), ("fedper", {})),
        (("fedbabu", {}), ("fedper", {})),
        (("lg-fedavg", {}), ("fedavg", {})),
        (("fedphp", {}), ("fedphp", {"lam": 0.0})),
        (("fedphp", {}), ("fedphp", {"mu": 0.0})),
        (("fedpac", {}), ("fedpac", {"lam": 0.0})),
        (("fedpac", {}), ("fedpac", {"heads": "own"})),
        (("fedpac", {}), ("fedpac", {"heads": "mean"})),
        (("fedala", {}), ("fedala", {"eta": 0.0})),
        (("fedala", {}), ("fedala", {"layers": 1})),
        (("fedala", {}), ("fedala", {"share": 0.5})),
    ],
    ids=str,
)
def test_switching_an_idea_off_changes_the_numbers(on: Any, off: Any, tmp_path: Path) -> None:
    losses = set()
    for name, settings in (on, off):
        experiment = {
            "rounds": 3,
            "method": {"name": name, **settings},
            "data": {"clients": 4, "samples": 160, "partition": {"kind": "pathological", "classes": 3}},
            "training": {"lr": 0.05, "epochs": 1},
            "engine": {"kind": "inline"},
        }
        with fedtailor.run(experiment, folder=tmp_path / str(len(losses))) as run:
            losses.add(run.last()["final"].loss)
    assert len(losses) == 2


def test_settings_that_switch_a_method_off_warn() -> None:
    assert "FedBABU" in (make("fedrep", head_epochs=0).inert() or "")
    assert "global model" in (make("fedbabu", ft_epochs=0).inert() or "")
    assert "FedAvg" in (make("fedphp", lam=0.0, mu=0.0).inert() or "")
    assert "FedRep" in (make("fedpac", lam=0.0, heads="own").inert() or "")
    for name in ("fedrep", "fedbabu", "lg-fedavg", "fedbn", "fedphp", "fedpac", "fedala"):
        assert make(name).inert() is None


@pytest.mark.parametrize(
    ("table", "policy", "idle"),
    [
        ({}, "none", ()),
        ({}, "built-in", ()),
        ({"updates": 0}, "none", ("termination",)),
        ({"learn": "never"}, "none", ("termination",)),
        ({"updates": 0}, "built-in", ()),
        ({"updates": 0, "decider": "uniform"}, "none", ()),
    ],
    ids=str,
)
def test_agents_that_can_never_learn_are_named_unless_something_else_decides(
    table: dict[str, Any], policy: str, idle: tuple[str, ...]
) -> None:
    said = make("fedddrl", policy=policy, agents={"termination": table}).inert()
    assert said == (f"without a policy, these agents do not learn: {', '.join(idle)}" if idle else None)


@pytest.mark.parametrize("name", ["fedamp", "fedfomo", "pfedla", "apple", "ifca", "cfl"])
def test_switching_the_idea_off_changes_the_numbers(name: str, tmp_path: Path) -> None:
    """On digits, against the same method with its idea switched off."""
    on: dict[str, dict[str, Any]] = {
        "fedamp": {"attention": "cosine"},
        "pfedla": {"lr": 1.0},
        "apple": {"relation_lr": 0.01},
        "cfl": {"eps1": 1e6, "eps2": 0.0, "quorum": 0.3},
    }
    off: dict[str, dict[str, Any]] = {
        "fedamp": {"sigma": 1e-9},
        "fedfomo": {"M": 0},
        "pfedla": {"lr": 0.0},
        "apple": {"relation_lr": 0.0},
        "ifca": {"k": 1},
        "cfl": {"eps1": 0.0},
    }
    with (
        digits(make(name, **on.get(name, {})), tmp_path / "on", rounds=5) as one,
        digits(make(name, **off[name]), tmp_path / "off", rounds=5) as other,
    ):
        assert scores(one, "final") != scores(other, "final")


# Settings that change nothing

SHORT: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 4, "samples": 160, "partition": {"kind": "dirichlet", "alpha": 0.5}},
    "training": {"epochs": 2, "lr": 0.05, "batch_size": 8},
    "model": {"name": "mlp", "arguments": {"hidden": 8}},
    "validation": True,
    "engine": {"kind": "inline"},
    "devices": {"profiles": {"kind": "uniform", "spread": 4}},
}
WITH_IDLE: dict[str, list[dict[str, Any]]] = {
    "adaptive-aw": [{}, {"policy": "none"}],
    "adaptive-b": [{}, {"policy": "none"}],
    "apple": [{"mu": 0.0}, {"relation_lr": 0.0}],
    "bo-bwa": [{}, {"controls": "weights"}],
    "bwa": [{}, {"policy": "none", "controls": "batch"}],
    "cfl": [{"eps1": 0.0}],
    "fedah": [{"eta": 0.0}, {"mix_epochs": 0}],
    "fedala": [{"eta": 0.0}],
    "fedamp": [{}],
    "fedddrl": [{}],
    "fedfomo": [{"M": 0}, {"epsilon": 0.0}],
    "hapfl": [{}, {"agents": {"size": {"decider": "search"}, "intensity": {"decider": "search"}}}],
    "per-fedavg": [{}, {"variant": "hessian-free", "alpha": 0.0}],
    "pfedla": [{"lr": 0.0}],
    "pfedrlla": [{}, {"head": "size"}],
    "pfedrlla-after": [{}, {"start": "none"}, {"agents": {"head_weights": {"decider": "similarity"}}}],
    "tailor": [{"evidence": "own"}, {"mix": False, "correct": False}, {"mix": False}, {"evidence": "pooled"}],
}


def other_value(method: Method, name: str) -> Any:
    """Another value of a setting that the method may have."""
    value = getattr(method, name)
    if isinstance(value, bool):
        tried: list[Any] = [not value]
    elif isinstance(value, int | float):
        tried = [value / 2, value * 2, value + 1, 0.5] if isinstance(value, float) else [value + 3, value // 2]
    else:
        choices = list(get_args(type(method).model_fields[name].annotation))
        tried = [*(one for one in choices if isinstance(one, str)), 0.3, {"kind": "pca", "size": 4}]
    for one in tried:
        with suppress(ValueError):
            made = type(method).model_validate({**method.model_dump(), name: one})
            if getattr(made, name) != value:
                return one
    raise AssertionError(f"there is no other value of {name}")


@pytest.mark.parametrize(
    ("name", "given"), [(name, one) for name, those in WITH_IDLE.items() for one in those], ids=str
)
def test_idle_settings_change_no_model_of_a_client(name: str, given: dict[str, Any], tmp_path: Path) -> None:
    if name == "bo-bwa":
        pytest.importorskip("optuna")
    method = make(name, **given)
    idle = sorted(method.idle_settings())
    assert idle

    def trained(folder: str, **changed: Any) -> Any:
        table = {"name": name, **given, **changed}
        with fedtailor.run({**SHORT, "method": table}, folder=tmp_path / folder) as run:
            return run._store.rows("SELECT client, loss, correct FROM scores WHERE model = 'final' ORDER BY client")

    usual = trained("usual")
    assert len(usual) == 4
    for setting in idle:
        assert trained(setting, **{setting: other_value(method, setting)}) == usual, setting


def test_methods_with_idle_settings_are_all_known_to_this_test() -> None:
    """By default; which settings are idle with others is the methods' own knowledge."""
    assert {name for name, kind in catalogue().items() if kind().idle_settings()} <= set(WITH_IDLE)


def test_settings_of_what_is_on_are_not_idle() -> None:
    """The same settings when the part that uses them is on."""
    assert not make("apple").idle_settings()
    assert "spread" not in make("bwa", policy="none").idle_settings()
    assert "alpha" not in make("bwa", policy="none").idle_settings()
    assert make("bwa", agents={"adjustment": {"decider": "random"}}).idle_settings() == {"alpha", "reward"}
    assert "delta" not in make("per-fedavg", variant="hessian-free").idle_settings()
    assert not make("pfedrlla", policy="none").idle_settings()
    assert "own" not in make("pfedrlla-after").idle_settings()
    assert "md" not in make("hapfl", policy="none").idle_settings()
    assert not make("tailor").idle_settings()


def test_the_rule_that_decides() -> None:
    """By settings alone: HAPFL's own policies may fit two or three sizes, and no other number of them."""

    def rule(name: str, **given: Any) -> str | None:
        method = make(name, **given)
        assert isinstance(method, AgentMethod)
        return method.rule()

    sizes = [{"name": "mlp", "arguments": {"hidden": hidden}} for hidden in (2, 4, 8, 16)]
    assert rule("bwa") == "uniform"
    assert rule("bwa", policy="none") is None
    assert rule("bwa", policy="own") is None
    assert rule("bwa", agents={"adjustment": {"decider": "random"}}) == "random"
    assert rule("pfedrlla") == "similarity"
    assert rule("pfedrlla", agents={"head_weights": {"noise": 0.2}}) is None
    assert rule("hapfl", sizes=sizes[:2]) is None
    assert rule("hapfl", sizes=sizes) == "search"
    assert rule("feddrl") is None


@pytest.mark.parametrize(("one", "other"), [("adaptive-b", "fedavg"), ("adaptive-aw", "bwa"), ("bwa", "adaptive-aw")])
def test_methods_that_coincide_while_the_rule_decides_deploy_the_same_models(
    one: str, other: str, tmp_path: Path
) -> None:
    training = TrainingSettings()
    assert "the rule 'uniform' decides" in (make(one).coincides(make(other), training) or "")
    assert make(one, policy="none").coincides(make(other), training) is None
    assert make(one, threshold=0.5).coincides(make(other), training) is None
    assert make("bwa").coincides(make("fedavg"), training) is None
    assert make("adaptive-b").coincides(make("bwa"), training) is None
    rows = []
    for name in (one, other):
        with fedtailor.run({**SHORT, "method": {"name": name}}, folder=tmp_path / name) as run:
            rows.append(run._store.rows("SELECT client, loss, correct FROM scores WHERE model = 'final'"))
    assert rows[0] == rows[1]
