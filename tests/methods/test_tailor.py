"""Hand-derived values, identities and mechanisms of Tailor."""

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fedtailor
from fedtailor.engines import Inline, Result, Task
from fedtailor.learning import TrainingSettings
from fedtailor.learning.objectives import Criterion
from fedtailor.messages.payload import Payload, Rejected
from fedtailor.messages.trees import unpack
from fedtailor.methods.candidates import gains_of
from fedtailor.methods.fedavg import FedAvg
from fedtailor.methods.tailor import Tailor
from fedtailor.runs import Callback, Interrupted, Resources, RoundReport
from tests.support.fingerprint import assert_same
from tests.support.problem import HERE, Played, W, judged, make, near, play, same_end, targets

# two clients with one sample of target 0 and three of target 4; they are judged by 1.45 (one sample) and 2.4 (three)
JUDGED = judged(HERE, [[1.45], [2.4, 2.4, 2.4]])
SHORT: dict[str, Any] = {"rounds": 1, "epochs": 1}


def tailor(folder: Path, **settings: Any) -> Played:
    """Body and head have the same share: this network has no body."""
    settings = {"parts": False, **settings}
    return play(folder, make("tailor", ft_epochs=1, **settings), JUDGED, **SHORT)


def test_hand_tailor(tmp_path: Path) -> None:
    """FedAvg's round: 1 -> 0.5 and 2.5, the mean by size is 2. Fine-tuning moves 2 to 1 and to 3. The candidates with
    shares a = 1, 0.8, ..., 0 are 1, 1.2, 1.4, 1.6, 1.8, 2 and 3, 2.8, 2.6, 2.4, 2.2, 2.

    Losses (w - v)^2 / 2 times 10^5: 10125, 3125, 125, 1125, 6125, 15125 for v = 1.45, and 18000, 8000, 2000, 0, 2000,
    8000 for v = 2.4. A gain is the difference to the first over the sum with it: g_0 = 0, 0.528302, 0.975610, 0.8,
    0.246154, -0.198020 and g_1 = 0, 0.384615, 0.8, 1, 0.8, 0.384615.
    Pooled with weights 1/4 and 3/4: the mean is g_0 / 4 + 3 g_1 / 4. Its squared error is
    (1/16 9/16 + 9/16 1/16) d^2 / (1 - 10/16) = 0.1875 d^2 for the difference d of the two, and half of its root is
    subtracted: G = 0, 0.389428, 0.805882, 0.906699, 0.541627, 0.112812. The largest is that of a = 0.4.
    If clients count the same, the squared error is (1/4 d^2 / 4 + 1/4 d^2 / 4) / (1 - 1/2) = d^2 / 4, and d / 4 is
    subtracted from (g_0 + g_1) / 2: G = 0, 0.420537, 0.843902, 0.85, 0.384615, -0.052361.
    By both, with strength 1, client 0 has (g + G) / 2 = 0.890746 at a = 0.6 and 0.853350 at a = 0.4.
    """
    same = tailor(tmp_path / "same", evidence="pooled")
    assert same.loop.server.state["gains"][::6] == near(0, 0.420537, 0.843902, 0.85, 0.384615, -0.052361)
    both = tailor(tmp_path / "both", strength=1.0, equal=False)
    gains = both.loop.server.state["gains"]
    assert gains[::6] == near(0, 0.389428, 0.805882, 0.906699, 0.541627, 0.112812)
    assert gains[1:6] == near(0, 0, 0, 0, 0)  # a regression has no class frequencies
    assert both.server(W) == pytest.approx(2.0, abs=1e-6)
    assert [both.personal(0, W), both.personal(1, W)] == near(1.4, 2.4)
    strong = tailor(tmp_path / "strong", strength=100.0, equal=False)
    assert [strong.personal(0, W), strong.personal(1, W)] == near(1.6, 2.4)
    pooled = tailor(tmp_path / "pooled", evidence="pooled", equal=False)
    assert [pooled.personal(0, W), pooled.personal(1, W)] == near(1.6, 2.4)
    own = tailor(tmp_path / "own", evidence="own", strength=100.0)
    assert own.loop.server.state["gains"] == []
    assert [own.personal(0, W), own.personal(1, W)] == near(1.4, 2.4)


def test_tailor_without_its_components_is_fedavg_ft_to_the_bit(tmp_path: Path) -> None:
    plain = play(tmp_path / "1", make("fedavg-ft", ft_epochs=1), JUDGED, **SHORT)
    assert same_end(plain, tailor(tmp_path / "2", mix=False, correct=False))
    assert same_end(plain, tailor(tmp_path / "3", mix=False))  # a regression has nothing else to choose
    assert not same_end(plain, tailor(tmp_path / "4", correct=False))


def test_tailor_without_evidence_is_fedavg_ft_to_the_bit(tmp_path: Path) -> None:
    """Nobody has validation data; or one client alone has them, and one opinion has no error to be judged by."""
    for name, data in {"nobody": targets(*HERE), "one": judged(HERE, [[], [2.4]])}.items():
        plain = play(tmp_path / f"{name}-1", make("fedavg-ft", ft_epochs=1), data, **SHORT)
        played = play(tmp_path / f"{name}-2", make("tailor", ft_epochs=1), data, **SHORT)
        assert played.loop.server.state["gains"] == []
        assert same_end(plain, played)


def test_hand_gain_of_accuracy_and_calibrated_loss() -> None:
    """Two samples of class 0 with outputs (x, 0): the loss of each is l(x) = ln(1 + e^-x).

    Outputs x = 1 and -1: at factor f the mean is (l(f) + l(-f)) / 2 = ln(1 + e^-f) + f / 2, which grows with f; the
    least is at 0.25: 0.575939 + 0.125 = 0.700939. One of two is right. Outputs x = 3 and -1: the mean at f is
    (l(3 f) + l(-f)) / 2: 0.591720 at 0.35, 0.587745 at 0.5, 0.609353 at 0.7: the least is at 0.5. One is right.
    Outputs x = 1 and 1: l(2) = 0.126928. Both are right.
    Gains: 0, (0.700939 - 0.587745) / 2 = 0.056597, (0.700939 - 0.126928 + 0.5) / 2 = 0.537006. By the plain losses
    0.813262, 0.680925 and 0.313262 they are 0, 0.132337 and 0.5.
    """
    outputs = [torch.tensor([[x, 0.0], [y, 0.0]]) for x, y in ((1.0, -1.0), (3.0, -1.0), (1.0, 1.0))]
    plain = Criterion("cross-entropy")
    truth = torch.zeros(2, dtype=torch.long)
    assert gains_of(plain, outputs, truth, calibrated=True) == near(0, 0.056597, 0.537006)
    assert gains_of(plain, outputs, truth, calibrated=False) == near(0, 0.132337, 0.5)
    weighted = Criterion("weighted-cross-entropy", torch.tensor([1.0, 2.0]))  # others than plain losses stay plain
    assert gains_of(weighted, outputs, truth, calibrated=True) == near(0, 0.132337, 0.5)


def test_a_model_whose_outputs_are_no_numbers_gains_nothing() -> None:
    """Nothing is below -1, whatever the accuracy is; if it is the fine-tuned model, nobody has evidence against it."""
    good, bad = torch.tensor([[1.0, 0.0]]), torch.tensor([[float("nan"), 0.0]])
    truth, plain = torch.zeros(1, dtype=torch.long), Criterion("cross-entropy")
    assert gains_of(plain, [good, bad], truth, calibrated=True) == [0, -1]
    assert gains_of(plain, [bad, good], truth, calibrated=True)[0] == -1


def test_caution_keeps_the_fine_tuned_model_if_clients_disagree(tmp_path: Path) -> None:
    """One client gains from every mix and the other loses: the mean gain is positive, but not for certain."""
    data = judged(HERE, [[2.0] * 3, [3.2]])
    bold, careful = (
        play(
            tmp_path / str(caution),
            make("tailor", ft_epochs=1, evidence="pooled", equal=False, caution=caution),
            data,
            **SHORT,
        ).personal(0, W)
        for caution in (0.0, 3.0)
    )
    assert careful == pytest.approx(1.0, abs=1e-6)
    assert bold > 1.1


# On digits with two classes per client, where logits can be moved

DIGITS: dict[str, Any] = {
    "rounds": 6,
    "validation": True,
    "data": {"clients": 8, "samples": 800, "partition": {"kind": "pathological", "classes": 2}},
    "model": {"name": "mlp"},
    "training": {"lr": 0.03, "epochs": 1, "batch_size": 16},
    "evaluation": {"every": 3, "new_clients": 0.2},
}


class Counting(Inline):
    """Counts the clients that are asked for evidence."""

    asked = 0

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        yield from super().run(self._counted(tasks))

    def _counted(self, tasks: Iterable[Task]) -> Iterator[Task]:
        for task in tasks:
            self.asked += task.question == "assess"
            yield task


def digits(folder: Path, **method: Any) -> tuple[fedtailor.Run, int]:
    engine = Counting()
    run = fedtailor.run({**DIGITS, "method": method}, folder=folder, resources=Resources(engine=engine))
    return run, engine.asked


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, fedtailor.Run]:
    folder = tmp_path_factory.mktemp("tailor")
    methods: dict[str, dict[str, Any]] = {
        "ft": {"name": "fedavg-ft"},
        "tailor": {"name": "tailor", "budget": 3.0},
        "off": {"name": "tailor", "mix": False, "correct": False},
        "mix": {"name": "tailor", "correct": False, "budget": 3.0},
    }
    return {name: digits(folder / name, **method)[0] for name, method in methods.items()}


def test_switched_off_it_has_fedavg_fts_scores(runs: dict[str, fedtailor.Run]) -> None:
    for model in ("received", "held", "global", "final", "new"):
        assert runs["off"].scores(model) == runs["ft"].scores(model) != []


def test_rounds_are_fedavg_fts_and_only_deployed_models_differ(runs: dict[str, fedtailor.Run]) -> None:
    for model in ("held", "global", "received"):
        assert runs["tailor"].scores(model) == runs["ft"].scores(model)
    assert runs["tailor"].scores("final") != runs["ft"].scores("final")


def test_corrected_logits_help_clients_with_few_classes(runs: dict[str, fedtailor.Run]) -> None:
    losses = {name: run.last()["final"].loss for name, run in runs.items()}
    assert losses["tailor"] < min(losses["ft"], losses["mix"]) - 0.02


def test_new_clients_choose_by_the_evidence_of_the_federation(runs: dict[str, fedtailor.Run]) -> None:
    assert runs["tailor"].last()["new"].loss < runs["ft"].last()["new"].loss


def test_the_evidence_is_pooled_once_and_kept(runs: dict[str, fedtailor.Run]) -> None:
    data = runs["tailor"]._store.state("server", "gains")
    assert data is not None
    gains = unpack(data)["value"]
    assert len(gains) == 216
    assert gains[0] == 0
    assert max(gains) > 0
    assert all(-2 <= gain <= 1 for gain in gains)


@pytest.mark.parametrize(("budget", "asked"), [(0.3, 2), (0.9, 4), (100.0, 6)])
def test_the_budget_limits_who_is_asked(budget: float, asked: int, tmp_path: Path) -> None:
    """Two of the 8 clients are new. 6 rounds of 6 clients and 1 epoch are 36 passes; 5 epochs and 36 / 12 passes make
    8 for a client's evidence: 0.3 x 36 / 8 = 1.35 is less than the two that always are asked, 0.9 x 36 / 8 = 4.05.
    """
    run, counted = digits(tmp_path / "run", name="tailor", budget=budget)
    run.close()
    assert counted == asked


def test_the_budget_counts_the_clients_of_a_round(tmp_path: Path) -> None:
    """6 rounds of 2 clients are 12 passes: 2.1 x 12 / 8 = 3.15."""
    engine = Counting()
    experiment = {**DIGITS, "participation": {"clients": 2}, "method": {"name": "tailor", "budget": 2.1}}
    fedtailor.run(experiment, folder=tmp_path / "run", resources=Resources(engine=engine)).close()
    assert engine.asked == 3


class StopAfter(Callback):
    """Presses Ctrl-C after a round."""

    def __init__(self, round: int) -> None:
        self.round = round

    def round_done(self, report: RoundReport) -> None:
        if report.round == self.round:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("round", [5, 6])
def test_a_run_stopped_before_or_after_the_evidence_ends_like_one_that_was_not(
    round: int, runs: dict[str, fedtailor.Run], tmp_path: Path
) -> None:
    """The evidence belongs to round 6: it is asked for again, or known, when the run is resumed."""
    experiment = {**DIGITS, "name": "tailor", "method": {"name": "tailor", "budget": 3.0}}
    with pytest.raises(Interrupted):
        fedtailor.run(
            experiment, folder=tmp_path / "run", callbacks=StopAfter(round), resources=Resources(engine=Inline())
        )
    fedtailor.resume(tmp_path / "run", engine={"kind": "inline"}).close()
    assert_same(runs["tailor"].folder, tmp_path / "run")


def test_own_evidence_asks_nobody(tmp_path: Path) -> None:
    run, counted = digits(tmp_path / "run", name="tailor", evidence="own")
    run.close()
    assert counted == 0


def test_what_the_settings_say() -> None:
    assert make("tailor").inert() is None
    assert "FedAvg+FT" in (make("tailor", mix=False, correct=False).inert() or "")
    assert "last round" in (make("tailor").total() or "")
    assert make("tailor", evidence="own").total() is None
    training = TrainingSettings(epochs=5)
    assert make("tailor").coincides(FedAvg(), training) is None
    assert make("tailor", mix=False, correct=False).coincides(FedAvg(), training) is not None
    assert make("tailor").passes(2) == pytest.approx(2.6)
    assert len(Tailor().candidates) == 216
    assert len(Tailor(parts=False).candidates) == 36


def test_a_client_with_too_few_gains_is_rejected() -> None:
    reply = Payload(numbers={"validation": 3, "gains": [0.0] * 36})
    with pytest.raises(Rejected, match="one gain for each candidate"):
        Tailor().check_reply(None, 0, reply, "assess")  # type: ignore[arg-type]
