"""An export appears at once or not at all; its temperature comes from validation samples alone."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedtailor
from fedtailor.data import Federation
from fedtailor.errors import UserError
from fedtailor.learning.temperature import calibrate
from fedtailor.runs.drafts import folder_at_once
from fedtailor.runs.exporting.writing import is_of_exports
from fedtailor.runs.pruning import delete, prunable
from tests.runs.exporting.conftest import SETTINGS


def calibration(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "card.json").read_text(encoding="utf-8"))["calibration"]
    return found


def data_of(run: Path) -> Federation:
    with fedtailor.Run(run) as opened:
        return opened.federation()


def test_the_temperature_is_that_of_the_validation_samples(run: Path, exported: Path) -> None:
    federation, model = data_of(run), fedtailor.load_model(exported)
    x, y = federation.samples.x, torch.from_numpy(federation.samples.y)
    fitted = {
        part: calibrate(model.outputs(x[rows]), y[rows], "cross-entropy").temperature
        for part, rows in (("val", federation.val[1]), ("test", federation.test[1]), ("train", federation.train[1]))
    }
    found = calibration(exported)
    assert found["temperature"] == pytest.approx(fitted["val"], rel=1e-9)
    assert len({round(value, 6) for value in fitted.values()}) == 3  # the others would have given something else
    assert found["validation_samples"] == len(federation.val[1])
    assert found["log_loss_after"] < found["log_loss_before"]
    outputs = model.outputs(x[:5])
    torch.testing.assert_close(model.probabilities(x[:5]), (outputs / found["temperature"]).softmax(1))


class Trap:
    """Test shares that nobody may look at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"test samples were asked for {name}")

    def __getitem__(self, client: int) -> Any:
        return range(3)  # their number may be known


@dataclass(frozen=True, eq=False)
class Trapped(Federation):
    """The data of the run, with other test images that nobody may look at."""

    known: str = ""

    def digest(self) -> str:
        return self.known


def test_an_export_never_looks_at_test_samples(run: Path, exported: Path, tmp_path: Path) -> None:
    """Other images and labels in the place of the test samples, and shares that refuse: the export is the same."""
    given = data_of(run)
    x, y = given.samples.x.copy(), given.samples.y.copy()
    x[given.test.indices], y[given.test.indices] = 255, 0
    samples = replace(given.samples, x=x, y=y)
    trapped = Trapped(samples, given.train, given.val, Trap(), known=given.digest())  # type: ignore[arg-type]
    folder = fedtailor.export_client(run, 1, tmp_path / "same", federation=trapped)
    assert calibration(folder) == calibration(exported)
    y[given.val.indices] = (y[given.val.indices] + 1) % 10
    folder = fedtailor.export_client(run, 1, tmp_path / "other", federation=trapped)
    assert calibration(folder) != calibration(exported)


def test_without_validation_samples_or_data_the_card_says_not_calibrated(run: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "data": {"clients": 3, "samples": 240}, "rounds": 1}
    fedtailor.run(settings, folder=tmp_path / "run").close()
    folder = fedtailor.export_client(tmp_path / "run", 0, tmp_path / "one")
    assert calibration(folder) == {
        "temperature": 1.0,
        "not_calibrated": "the client has no validation samples, see val in data.split",
    }
    assert "Not calibrated" in (folder / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert not fedtailor.load_model(folder).calibrated
    fedtailor.run(settings, folder=tmp_path / "given", federation=data_of(tmp_path / "run")).close()
    folder = fedtailor.export_client(tmp_path / "given", 0, tmp_path / "two", formats=["torch"])
    assert "given in Python, which is not stored" in calibration(folder)["not_calibrated"]
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    assert card["checks"]["torch"]["of"].startswith("made-up samples")


def test_a_full_disk_leaves_nothing_behind(run: Path, tmp_path: Path) -> None:
    """A limit of the size of files stands for the disk: the weights are larger, the card is not."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, before[1]))
    try:
        for act in (
            lambda: fedtailor.export_client(run, 1, tmp_path / "deep" / "one"),
            lambda: fedtailor.export_clients(run, tmp_path / "deep" / "all"),
        ):
            with pytest.raises(UserError, match="cannot be written: File too large") as error:
                act()
            assert "\n" not in str(error.value)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_or_cannot_be_made_is_one_sentence(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for place, said in (
        ("mine", "exists"),
        ("file", "exists"),
        ("nowhere", "exists"),
        ("file/inner", "file is not a folder"),
    ):
        with pytest.raises(UserError, match=said):
            fedtailor.export_client(run, 1, tmp_path / place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "mine", "nowhere"]
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may write anywhere")
def test_a_folder_that_is_read_only_is_one_sentence(run: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(UserError, match="cannot be written: Permission denied"):
        fedtailor.export_client(run, 1, tmp_path / "locked" / "one")


def test_an_interrupted_export_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").write_text("old")

    def interrupted() -> None:
        with folder_at_once(tmp_path / "model", is_of_exports, again=True) as draft:
            (draft / "new").write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "old"]
    with folder_at_once(tmp_path / "model", is_of_exports, again=True) as draft:
        (draft / "new").write_text("new")
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "new"]


def test_an_export_has_the_mode_of_the_umask(run: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        folder = fedtailor.export_client(run, 1, tmp_path / "one")
        adapted = fedtailor.adapt(run, (np.zeros((40, 8, 8, 1), np.uint8), np.arange(40) % 10), tmp_path / "two").folder
    finally:
        os.umask(before)
    assert [place.stat().st_mode & 0o777 for place in (folder, adapted)] == [0o755, 0o755]


WAITING = """
import sys
from fedtailor.__main__ import main
from fedtailor.runs.exporting import writing


def wait(card):  # before the last file of an export
    print("drafting", flush=True)
    sys.stdin.read()


writing.page = wait
main(sys.argv[1:])
"""


def test_the_draft_of_a_killed_export_goes_with_the_next_and_one_in_the_making_stays(
    run: Path, exported: Path, tmp_path: Path
) -> None:
    place = tmp_path / "out" / "one"
    command = [sys.executable, "-c", WAITING, "export", str(run), "--client", "1", "--out", str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "drafting\n"
            (draft,) = place.parent.iterdir()
            written = {file.name for file in draft.iterdir()}
            assert {"model.safetensors", "card.json"} <= written
            fedtailor.export_client(run, 1, place)  # meanwhile
            assert prunable(tmp_path) == []
            assert {file.name for file in draft.iterdir()} == written
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    assert [item.folder for item in prunable(tmp_path)] == [draft]
    fedtailor.export_client(run, 1, place.with_name("two"))  # of another name
    assert draft.exists()
    shutil.rmtree(place)
    folder = fedtailor.export_client(run, 1, place)
    assert sorted(path.name for path in place.parent.iterdir()) == ["one", "two"]
    assert (folder / "model.safetensors").read_bytes() == (exported / "model.safetensors").read_bytes()


def test_the_draft_of_a_killed_export_of_all_clients_goes(run: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WAITING, "export", str(run), "--all", "--out", str(tmp_path / "all")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "drafting\n"
        process.kill()
    (item,) = prunable(tmp_path)
    assert (item.kind, delete([item])) == ("drafts", item.bytes)
    assert list(tmp_path.iterdir()) == []


def test_the_model_of_a_new_client_has_formats_and_a_temperature_of_its_own(run: Path, tmp_path: Path) -> None:
    stream = np.random.RandomState(0)
    data = stream.randint(0, 17, (80, 8, 8, 1)).astype(np.uint8), np.arange(80) % 10
    done = fedtailor.adapt(run, data, tmp_path / "new", formats=["safetensors", "torch"], licence="ours", passes=1)
    card = json.loads((done.folder / "card.json").read_text(encoding="utf-8"))
    assert card["checks"]["torch"]["samples"] == done.samples["train"] + done.samples["val"]
    found = calibration(done.folder)
    assert found.get("validation_samples", done.samples["val"]) == done.samples["val"] > 0
    assert card["licence"] == "ours"
    assert "after 1 passes" in (done.folder / "MODEL_CARD.md").read_text(encoding="utf-8")
