"""Loss and measures follow from the targets; runs, tables and exports speak of the chosen measure."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedtailor
from fedtailor.data import Federation, Samples
from fedtailor.data.shares import Shares
from fedtailor.engines import Processes
from fedtailor.errors import UserError
from fedtailor.learning.measures import Predictions, values_and_sums
from fedtailor.runs import Resources
from fedtailor.runs.assembly import job_of
from fedtailor.runs.statistics import Wins
from fedtailor.views.comparison import comparison_grid
from fedtailor.views.report import report

SHORT: dict[str, Any] = {
    "rounds": 2,
    "training": {"epochs": 2, "lr": 0.02},
    "method": {"name": "fedper"},
    "engine": {"kind": "inline"},
}


@pytest.fixture
def houses(tmp_path: Path) -> dict[str, Any]:
    """Three clients with numbers as targets, whose last coefficient differs."""
    folder, stream = tmp_path / "houses", np.random.default_rng(0)
    folder.mkdir()
    for place, name in enumerate(("cairo", "lima", "oslo")):
        x = stream.normal(size=(40, 4)).astype(np.float32)
        y = x @ np.array([1, 2, -1, place], np.float32)
        np.savez(folder / f"{name}.npz", x=x, y=y.astype(np.float32))
    return {**SHORT, "data": {"source": "folder", "folder": str(folder)}}


def one_class_clients() -> Federation:
    """Three clients with two classes, the third with class 1 only; each has 20 samples, the last 8 for tests."""
    stream = np.random.default_rng(1)
    x, y = stream.normal(size=(60, 4)).astype(np.float32), np.tile([0, 1], 30)
    y[40:] = 1
    starts = np.arange(0, 60, 20)
    parts = [
        np.concatenate([np.arange(s + low, s + high) for s in starts]) for low, high in ((0, 12), (12, 12), (12, 20))
    ]
    shares = [Shares(part, np.arange(4) * (len(part) // 3)) for part in parts]
    return Federation(Samples(x, y.astype(np.int64), ("0", "1"), np.zeros(60, bool)), *shares)


def test_numbers_as_targets_are_a_regression_from_the_run_to_the_prediction(
    houses: dict[str, Any], tmp_path: Path
) -> None:
    with fedtailor.run(houses, folder=tmp_path / "run") as run:
        final, page, federation = run.summary().final, report(run), run.federation()
        rows = run.scores("final")
    assert final.headline == "rmse"
    assert final.accuracy is final.pooled is final.worst is None
    assert "accuracy" not in page
    assert "![rmse over rounds]" in page
    for row in rows:
        model = fedtailor.load_model(
            fedtailor.export_client(tmp_path / "run", row["client"], tmp_path / str(row["client"]))
        )
        mine = federation.test[row["client"]]
        said = np.array(model.predict(federation.samples.x[mine]))
        errors = said - federation.samples.y[mine].reshape(-1)
        assert row["measures"]["rmse"] == pytest.approx(math.sqrt((errors**2).mean()), rel=1e-5)
        assert row["accuracy"] is None
    assert final.main.mean == pytest.approx(np.mean([row["measures"]["rmse"] for row in rows]))
    assert final.main.worst == max(row["measures"]["rmse"] for row in rows)
    squares = sum(row["measures"]["rmse"] ** 2 * row["samples"] for row in rows) / sum(row["samples"] for row in rows)
    assert final.main.pooled == pytest.approx(math.sqrt(squares))


def test_a_comparison_of_a_regression_is_sorted_by_the_lowest_error(houses: dict[str, Any], tmp_path: Path) -> None:
    found = fedtailor.compare(houses, methods=["fedavg", "local"], seeds=[0], folder=tmp_path / "both").summary()
    errors = [row.headline["final"].mean for row in found.table]
    assert (found.measure, found.percent) == ("rmse", False)
    assert errors == sorted(errors, key=lambda error: error or 0)
    values = {}
    for method in ("fedavg", "local"):
        with fedtailor.Run(tmp_path / "both" / f"{method}-s0") as run:
            values[method] = [row["measures"]["rmse"] for row in run.scores()]
    won = sum(ours < theirs for ours, theirs in zip(values["local"], values["fedavg"], strict=True))
    assert found.row("local").wins == Wins(won, 0, 3 - won)
    grid = comparison_grid(found)
    assert "rmse averaged per client" in grid.title
    assert "final" in grid.header


@pytest.mark.parametrize(("method", "warns"), [("bwa", True), ("pfedrlla", True), ("fedper", False)])
def test_a_method_that_rewards_accuracy_says_that_a_regression_has_none(
    method: str, warns: bool, houses: dict[str, Any], tmp_path: Path
) -> None:
    with fedtailor.run({**houses, "rounds": 1, "method": {"name": method}}, folder=tmp_path / "run") as run:
        assert any("accuracy, which is 0 in a regression" in warning for warning in run.warnings) == warns


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"training": {"loss": "cross-entropy"}}, "training.loss = 'cross-entropy' is for classes, but the targets"),
        ({"evaluation": {"headline": "accuracy"}}, "the measure 'accuracy' is for classes"),
        ({"evaluation": {"measures": ["auroc"]}}, "the measure 'auroc' is for classes"),
        ({"evaluation": {"measures": ["rsme"]}}, "unknown measure 'rsme': did you mean 'rmse'"),
        ({"training": {"loss": "nowhere:f"}}, "training.loss = 'nowhere:f' cannot be imported"),
        ({"training": {"loss": f"{__name__}:mean_error"}}, "must return a differentiable tensor"),
        ({"training": {"loss": f"{__name__}:broken"}}, r"fails on outputs \(2, 1\) and targets \(2,\)"),
    ],
)
def test_contradictions_are_refused_in_one_sentence_and_nothing_is_written(
    houses: dict[str, Any], tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence) as error:
        fedtailor.run({**houses, **changes}, folder=tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("training", "sentence"),
    [
        ({"loss": "mse"}, "training.loss = 'mse' is for numbers, but the targets in 'digits' are classes"),
        ({"loss": "weighted-cross-entropy", "class_weights": [1, 2]}, "2 weights, but the data have 10 classes"),
    ],
)
def test_losses_that_do_not_fit_classes_are_refused(training: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        fedtailor.run({**SHORT, "training": training}, folder=tmp_path / "run")


def mean_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.flatten() - targets).abs().mean()


def broken(outputs: Tensor, targets: Tensor) -> Tensor:
    raise ValueError("no")


def absolute(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.flatten() - targets).abs()


def largest_error(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs.flatten() - targets).abs().max())


largest_error.better = "lower"  # type: ignore[attr-defined]


@pytest.mark.parametrize("loss", ["huber", "squared-error", f"{__name__}:absolute"])
def test_a_loss_and_a_measure_of_ones_own_give_the_same_in_worker_processes(
    loss: str, houses: dict[str, Any], tmp_path: Path
) -> None:
    """The headline is the measure; tables show it without importing its module."""
    name = f"{__name__}:largest_error"
    settings = {**houses, "training": {**SHORT["training"], "loss": loss}, "evaluation": {"headline": name}}
    with Resources(engine=Processes(2)) as resources:
        fedtailor.run(settings, folder=tmp_path / "two", resources=resources).close()
    with fedtailor.run(settings, folder=tmp_path / "one") as one, fedtailor.Run(tmp_path / "two") as two:
        assert one.scores() == two.scores()
        assert (one.headline, one.less_is_better) == (name, True)
        values = [row["measures"][name] for row in one.scores()]
        assert one.summary().final.main.worst == max(values)
        assert one.summary().final.main.pooled is None
        assert one.summary().final.as_dict() == two.summary().final.as_dict()


def test_clients_with_one_class_are_left_out_and_counted(tmp_path: Path) -> None:
    """AUROC of two clients; log-loss of all three, and pooled as that of all predictions together."""
    settings = {**SHORT, "evaluation": {"measures": ["log-loss", "balanced-accuracy"], "headline": "auroc"}}
    data = one_class_clients()
    with fedtailor.run(settings, folder=tmp_path / "run", federation=data) as run:
        final, rows, page = run.summary().final, run.scores(), report(run)
    assert [row["measures"]["auroc"] is None for row in rows] == [False, False, True]
    assert (final.main.clients, final.main.undefined) == (2, 1)
    assert final.main.pooled is not None, "over the samples of all three clients there are two classes"
    assert final.main.mean == pytest.approx(np.mean([row["measures"]["auroc"] for row in rows[:2]]))
    assert final.of("log-loss").clients == 3
    assert "auroc is undefined for 1 of 3 clients, which are left out." in page
    outputs = []
    for client in range(3):
        model = fedtailor.load_model(fedtailor.export_client(tmp_path / "run", client, tmp_path / str(client)))
        outputs.append(model.outputs(data.samples.x[data.test[client]]))
    together = Predictions(torch.cat(outputs), torch.from_numpy(data.samples.y[data.test.indices]))
    expected, _ = values_and_sums(["log-loss", "balanced-accuracy"], together)
    for name, value in expected.items():
        assert final.of(name).pooled == pytest.approx(value, rel=1e-5)


def test_further_measures_change_no_bit_of_the_others(tmp_path: Path) -> None:
    plain = {**SHORT, "data": {"clients": 3, "samples": 150}}
    more = {**plain, "evaluation": {"measures": ["macro-f1", "calibration-error", "perplexity", "auroc"]}}
    with fedtailor.run(plain, folder=tmp_path / "plain") as one, fedtailor.run(more, folder=tmp_path / "more") as other:
        assert one.metrics() == other.metrics()
        assert one.measures() == []
        assert {row["measure"] for row in other.measures()} == set(more["evaluation"]["measures"])
        assert all("measures" not in row for row in one.scores())


def test_held_measures_survive_a_resume(tmp_path: Path) -> None:
    """Values and sums of clients outside the cohort are read from the database."""
    settings = {
        **SHORT,
        "rounds": 3,
        "data": {"clients": 4, "samples": 200},
        "participation": {"clients": 2},
        "evaluation": {"measures": ["macro-f1", "auroc"]},
    }

    class Stop(fedtailor.Callback):
        def round_done(self, report: Any) -> None:
            if report.round == 2:
                raise KeyboardInterrupt

    fedtailor.run(settings, folder=tmp_path / "whole").close()
    with pytest.raises(KeyboardInterrupt):
        fedtailor.run(settings, folder=tmp_path / "cut", callbacks=Stop())
    fedtailor.resume(tmp_path / "cut").close()
    with fedtailor.Run(tmp_path / "whole") as whole, fedtailor.Run(tmp_path / "cut") as cut:
        assert whole.measures() == cut.measures()


@pytest.mark.parametrize(
    "change", [{"attack": {"kind": "label-flip"}}, {"training": {"dp_sgd": {"clip": 1, "noise": 1}}}]
)
def test_clients_that_share_samples_cannot_flip_labels_or_promise_privacy_of_a_sample(change: Any) -> None:
    data = {"source": "synthetic", "partition": "resampled"}
    with pytest.raises(UserError, match="gives a sample to several clients"):
        job_of(fedtailor.experiment({"data": data, **change}), Resources())
    job_of(fedtailor.experiment({"data": data, "attack": {"kind": "scale"}}), Resources())
