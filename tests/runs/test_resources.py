"""The data of a run: what its settings record of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.data import DataSettings, Federation, build
from fedtailor.errors import UserError
from fedtailor.runs import Callback, RoundReport

QUICK: dict[str, Any] = {"rounds": 2, "model": {"name": "linear"}, "engine": {"kind": "inline"}}


class Stop(Callback):
    def round_done(self, report: RoundReport) -> None:
        raise KeyboardInterrupt


def hospitals(folder: Path, *names: str) -> Path:
    """A file of twelve samples for each of these clients."""
    folder.mkdir(exist_ok=True)
    for seed, name in enumerate(names):
        x = np.random.RandomState(seed).random_sample((12, 3))
        np.savez(folder / f"{name}.npz", x=x, y=np.arange(12) % 2)
    return folder


def in_python() -> Federation:
    return build(DataSettings.model_validate({"clients": 3, "samples": 90}), 0)


def test_a_run_records_what_its_data_decided(tmp_path: Path) -> None:
    data = {"source": "folder", "folder": str(hospitals(tmp_path / "tab", "cairo", "lima"))}
    with fedtailor.run({**QUICK, "data": data}, folder=tmp_path / "run") as run:
        recorded = run.experiment.data
        assert (recorded.clients, run.summary().clients) == (2, 2)
        assert recorded.partition is not None
        assert recorded.partition.kind == "given"
        assert run.federation().digest() == run.data_digest
    again = fedtailor.experiment(tmp_path / "run" / "experiment.toml")
    assert again.data == recorded
    with pytest.raises(UserError, match=r"participation\.clients = 5: there are only 2 clients"):
        fedtailor.run({**QUICK, "data": data, "participation": {"clients": 5}}, folder=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_federation_given_in_python_is_recorded_as_such_and_asked_for_again(tmp_path: Path) -> None:
    federation = in_python()
    with pytest.raises(KeyboardInterrupt):
        fedtailor.run(QUICK, folder=tmp_path / "run", federation=federation, callbacks=Stop())
    with fedtailor.Run(tmp_path / "run") as run:
        assert (run.settings["data"]["source"], run.settings["data"]["clients"]) == ("python", 3)
    with pytest.raises(UserError, match=r"cannot resume: it began with a federation given in Python, .*federation="):
        fedtailor.resume(tmp_path / "run")
    labels = federation.samples.y.copy()
    labels[0] = (labels[0] + 1) % 10
    with pytest.raises(UserError, match="not those it began with"):
        fedtailor.resume(
            tmp_path / "run", federation=replace(federation, samples=replace(federation.samples, y=labels))
        )
    fedtailor.resume(tmp_path / "run", federation=in_python()).close()
    with fedtailor.Run(tmp_path / "run") as run:
        assert run.federation(in_python()).digest() == run.data_digest
        with pytest.raises(UserError, match="cannot give its data: it began with a federation given in Python"):
            run.federation()
    fedtailor.export_global(tmp_path / "run", tmp_path / "model")  # the server's model needs no data
    with pytest.raises(UserError, match="given in Python and are not stored"):
        fedtailor.run(tmp_path / "run" / "experiment.toml", folder=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_file_that_comes_later_is_noticed(tmp_path: Path) -> None:
    place = hospitals(tmp_path / "tab", "cairo", "lima")
    settings = {**QUICK, "data": {"source": "folder", "folder": str(place)}, "evaluation": {"keep_models": 0}}
    with pytest.raises(KeyboardInterrupt):
        fedtailor.run(settings, folder=tmp_path / "run", callbacks=Stop())
    hospitals(place, "aachen")
    with pytest.raises(UserError, match="cannot resume: the data in 'folder' are not those it began with"):
        fedtailor.resume(tmp_path / "run")
    with pytest.raises(UserError, match="cannot export client 1: the data in 'folder' are not those it began with"):
        fedtailor.export_client(tmp_path / "run", "lima", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_clients_that_are_dealt_anew_are_a_warning_of_the_run(tmp_path: Path) -> None:
    place = hospitals(tmp_path / "tab", "cairo", "lima")
    data = {"source": "folder", "folder": str(place), "partition": "iid", "clients": 3}
    with fedtailor.run({**QUICK, "data": data}, folder=tmp_path / "run") as run:
        assert any("tab comes divided among 2 clients (cairo, lima)" in sentence for sentence in run.warnings)
    with fedtailor.run({**QUICK, "data": {**data, "partition": "given", "clients": 2}}, folder=tmp_path / "own") as run:
        assert not any("comes divided" in sentence for sentence in run.warnings)


def test_a_comparison_takes_a_federation_and_keeps_no_runs_on_other_data(tmp_path: Path) -> None:
    settings = {**QUICK, "rounds": 1}
    compared = fedtailor.compare(
        settings, methods=["local", "fedavg"], seeds=[0], folder=tmp_path / "c", federation=in_python()
    )
    assert compared.experiment.data.source == "python"
    other = build(DataSettings.model_validate({"clients": 3, "samples": 91}), 0)
    with pytest.raises(UserError, match="cannot be kept: the data in 'python' are not those it began with"):
        fedtailor.compare(settings, methods=["local"], seeds=[0], folder=tmp_path / "c", federation=other)


def test_a_method_that_lacks_validation_samples_says_so(tmp_path: Path) -> None:
    x, y = np.random.RandomState(0).random_sample((12, 3)), np.arange(12) % 2
    for validation in (False, True):
        federation = Federation.from_clients({"anna": (x, y), "bert": (x, y)}, validation=validation)
        settings = {**QUICK, "method": {"name": "fedfomo"}}
        with fedtailor.run(settings, folder=tmp_path / str(validation), federation=federation) as run:
            assert any("needs validation samples" in sentence for sentence in run.warnings) is not validation
