"""The tests mirror the house: the name of a room, method or module tells the file of its tests."""

import re
from pathlib import Path

import pytest

import fedtailor
from fedtailor.methods import catalogue

HERE = Path(__file__).parent
HOUSE = Path(fedtailor.__file__).parent
FOLDERS = sorted(path for path in HERE.rglob("*") if path.is_dir() and path.name != "__pycache__")

# Folders that cross rooms, and files that are about more than one module of their folder.
ACROSS = {"exactness", "support"}
OF_SEVERAL = {
    ".": {"architecture", "docstrings", "documentation", "mirror", "release", "site"},
    "agents": {"ppo_against_sb3"},
    "cli": {"bad_ends", "bad_input", "errors", "help", "own_data", "results"},
    "devices": {"device_runs"},
    "environments": {"bwa", "hapfl", "heads"},
    "flower": {"bf16", "every_method", "faults", "fuzzing", "lies", "parity", "refusals"},
    "methods": {"contract_of_all_methods", "promises", "reply_schema"},
    "models": {"adapters"},
    "runs": {"labels", "older_plan"},
    "runs/exporting": {"example"},
    "views": {"tutorials"},
    "views/dashboard": {"accessibility", "method", "mishaps", "scale"},
    "views/drawings": {"drawings"},
}
ROOMS = [folder for folder in FOLDERS if folder.relative_to(HERE).parts[0] not in ACROSS]


def subjects(folder: Path) -> set[str]:
    """What the test files of a folder are about, by their names."""
    return {file.stem.removeprefix("test_") for file in folder.glob("test_*.py")}


def modules(folder: Path) -> set[str]:
    return {path.stem for path in folder.iterdir()}


def name_of(folder: Path) -> str:
    return str(folder.relative_to(HERE))


def file_of(method: str) -> Path:
    """The file with the tests of a method."""
    return HERE / "methods" / f"test_{method.replace('-', '_')}.py"


@pytest.mark.parametrize("method", sorted(catalogue()))
def test_every_method_has_a_file_with_values_derived_by_hand(method: str) -> None:
    file = file_of(method)
    assert file.exists(), f"the tests of {method} belong to tests/methods/{file.name}"
    wanted = f"test_hand_{method.replace('-', '_')}"
    assert re.search(rf"def {wanted}\(", file.read_text(encoding="utf-8")), f"{file.name} has no {wanted}"


@pytest.mark.parametrize("folder", [HERE, *ROOMS], ids=name_of)
def test_every_file_is_about_a_module_of_its_folder_or_declared_to_be_about_several(folder: Path) -> None:
    methods = {name.replace("-", "_") for name in catalogue()} if folder.name == "methods" else set()
    here = modules(HOUSE / folder.relative_to(HERE)) | methods
    assert subjects(folder) - here == OF_SEVERAL.get(name_of(folder), set())


def test_every_folder_is_that_of_a_room() -> None:
    assert {folder.relative_to(HERE).parts[0] for folder in FOLDERS} - modules(HOUSE) - ACROSS == set()


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_every_folder_is_a_package_so_that_names_of_files_may_repeat(folder: Path) -> None:
    assert (folder / "__init__.py").exists()


def test_helpers_live_in_support() -> None:
    here = {"__init__.py", "conftest.py"}
    strays = [file for file in HERE.rglob("*.py") if not file.name.startswith("test_") and file.name not in here]
    assert {file.relative_to(HERE).parts[0] for file in strays} == {"support"}
