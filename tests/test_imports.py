"""The gate for code that is named: what the user wrote passes, what somebody else wrote does not."""

import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fedtailor
from fedtailor import imports
from fedtailor.errors import UserError
from fedtailor.learning.own import own_function
from fedtailor.runs.store import Store

TRAP = """
import pathlib
from torch import nn
from fedtailor import Method
pathlib.Path(__file__).with_name("imported").touch()
class Net(nn.Sequential):
    def __init__(self, shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))
class Mine(Method):
    pass
def make(shape, classes) -> Net:
    return Net(shape, classes)
def bare(shape, classes):
    return Net(shape, classes)
"""


SETTINGS = {"rounds": 1, "data": {"clients": 2, "samples": 60}, "engine": {"kind": "inline"}}


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that leaves a file when it is imported; nobody has named it yet."""
    (tmp_path / "trap.py").write_text(TRAP)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(imports, "_own", set())
    monkeypatch.delitem(sys.modules, "trap", raising=False)
    return tmp_path / "imported"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(imports, "_own", set())
    monkeypatch.delitem(sys.modules, "trap", raising=False)


def export(folder: Path, name: str, **arguments: object) -> Path:
    """An export as a stranger writes it."""
    folder.mkdir()
    card = {
        "model": {"name": name, "arguments": arguments},
        "inputs": {"shape": [1, 2, 2], "outputs": 3, "vocabulary": 0},
        "mean": [0.0],
        "std": [1.0],
        "classes": ["a", "b", "c"],
    }
    (folder / "card.json").write_text(json.dumps(card))
    save_file({"1.weight": torch.zeros(3, 4), "1.bias": torch.zeros(3)}, folder / "model.safetensors")
    return folder


def test_an_export_of_a_stranger_imports_nothing(trap: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'trap:Net' is code that is not imported: .*FEDTAILOR_ALLOW=trap:Net"):
        fedtailor.load_model(export(tmp_path / "export", "trap:Net"))
    assert not trap.exists()


def test_an_export_of_a_stranger_runs_no_command(tmp_path: Path) -> None:
    written = tmp_path / "written"
    folder = export(tmp_path / "export", "os:system", command=f"touch {written}")
    for allow in ([], ["os:system"]):  # even where somebody allows it
        with pytest.raises(UserError):
            fedtailor.load_model(folder, allow=allow)
    folder = export(tmp_path / "other", "subprocess:call", args=["touch", str(written)])
    with pytest.raises(UserError, match="not a class that extends"):  # a function, but none that makes networks
        fedtailor.load_model(folder, allow=["subprocess:call"])
    assert not written.exists()


@pytest.mark.parametrize("name", ["trap:Net", "trap:make"])
def test_a_name_that_is_allowed_passes(trap: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = export(tmp_path / "export", name)
    assert isinstance(fedtailor.load_model(folder, allow=[name]).module, nn.Module)
    forget(monkeypatch)
    monkeypatch.setenv("FEDTAILOR_ALLOW", f"a:B, {name}")
    assert isinstance(fedtailor.load_model(folder).module, nn.Module)


def test_what_the_user_has_used_before_passes(trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports.load("trap:Net", "model", nn.Module)
    forget(monkeypatch)
    fedtailor.load_model(export(tmp_path / "export", "trap:Net"))
    with pytest.raises(UserError):
        fedtailor.load_model(export(tmp_path / "other", "trap:make"))


def test_losses_and_measures_pass_the_same_gate(trap: Path) -> None:
    with imports.foreign():
        for setting in ("training.loss", "evaluation.measures"):
            with pytest.raises(UserError, match=rf"{setting} = 'trap:bare' is code that is not imported"):
                own_function("trap:bare", setting)
    assert not trap.exists()
    assert callable(own_function("trap:bare", "training.loss"))


def test_nothing_inside_a_restriction_allows_more(trap: Path) -> None:
    with imports.foreign(["a:B"], "no: {name}"), imports.foreign(["trap:Net"]):
        assert imports.restriction() == []
        with pytest.raises(UserError):
            imports.load("trap:Net", "model", nn.Module)
    assert imports.restriction() is None
    assert not trap.exists()


@pytest.mark.parametrize("part", ["method", "model"])
def test_the_run_folder_of_a_stranger_imports_nothing(trap: Path, tmp_path: Path, part: str) -> None:
    folder = tmp_path / "run"
    fedtailor.run(SETTINGS, folder=folder).close()
    with Store(folder, write=True) as store, store.transaction():
        values = store.meta("experiment")
        values[part] = {**values[part], "name": "trap:Mine" if part == "method" else "trap:Net"}
        store.set_meta("experiment", values)
        store.set_meta("finished", False)
    with pytest.raises(UserError, match="code that is not imported"):
        fedtailor.resume(folder)
    with pytest.raises(UserError, match="code that is not imported"):
        fedtailor.export_global(folder, tmp_path / "out")
    with suppress(UserError):  # a stored model needs no network
        fedtailor.export_client(folder, 0, tmp_path / "out")
    with fedtailor.Run(folder) as run:
        from fedtailor.views.drawings import drawings

        drawings(run)
    assert not trap.exists()


def test_the_own_run_resumes_in_another_process(trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"method": {"name": "trap:Mine"}, "model": {"name": "trap:bare"}}
    fedtailor.run({**SETTINGS, **more}, folder=tmp_path / "run").close()
    forget(monkeypatch)
    fedtailor.resume(tmp_path / "run").close()
