"""The doctor sees what is missing, damaged or too old."""

from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fedtailor.data import SOURCES
from fedtailor.runs import doctor
from fedtailor.runs.doctor import Finding, examine


def found(name: str, directory: Path) -> Finding:
    return next(one for one in examine(directory) if one.name == name)


def test_a_machine_that_runs_these_tests_works(tmp_path: Path) -> None:
    findings = examine(tmp_path)
    assert [one for one in findings if one.state == "problem"] == []
    names = {one.name for one in findings}
    assert {"python", "torch", "cores", "threads", "memory", "bf16", "flower", "ray", "chromium", *SOURCES} <= names


def test_a_data_set_that_is_absent_is_no_problem_and_a_damaged_one_is(tmp_path: Path) -> None:
    assert found("mnist", tmp_path).state == "absent"
    assert found("digits", tmp_path).state == "ok"
    (tmp_path / "mnist").mkdir()
    for file in SOURCES["mnist"].canonical:
        (tmp_path / "mnist" / file.name).write_bytes(b"garbage")
    damaged = found("mnist", tmp_path)
    assert damaged.state == "problem"
    assert "fedtailor data get mnist" in damaged.about
    assert found("mnist-star", tmp_path).about.endswith("see mnist")


def test_a_package_that_is_missing_too_old_or_broken_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._unfit(Requirement("no-such-package>=1")) == "no-such-package is not installed"
    assert doctor._unfit(Requirement("numpy>=999")).endswith("is installed, >=999 is needed")
    assert doctor._unfit(Requirement(f"numpy=={metadata.version('numpy')}")) == ""

    def breaks(_: str) -> object:
        raise OSError("a symbol is missing")

    assert doctor._unimportable("numpy", breaks) == "cannot be imported: OSError: a symbol is missing"


def test_an_extra_that_consists_of_others_is_absent_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {extra: {one.name for one in needed} for extra, needed in doctor._requirements().items()}
    assert names["track"] == names["tensorboard"] | names["mlflow"] | names["wandb"]
    version = metadata.version

    def without(name: str) -> str:
        if name == "wandb":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor.metadata, "version", without)
    (track,) = [one for one in doctor._extras() if one.name == "track"]
    assert (track.state, track.about) == ("absent", "wandb is not installed: pip install 'fedtailor[track]'")


def test_a_build_of_torch_for_another_machine_is_said() -> None:
    assert doctor._torch_build(None, "cpu") == Finding("machine", "torch build", "ok", "for the CPU")
    assert doctor._torch_build("13.0", "cuda:0").state == "ok"
    needless = doctor._torch_build("13.0", "cpu")
    assert needless.state == "absent"
    assert "the CPU build" in needless.about
