"""The shape of the house: rooms with one-way imports, and what the package never does."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedtailor
import fedtailor.runs

HOUSE = Path(fedtailor.__file__).parent
FILES = sorted(HOUSE.rglob("*.py"))

# A room may import the rooms above it, never those below; rooms of one line do not know each other.
ORDER = [
    ("errors", "version", "seeding", "records"),
    ("imports",),
    ("weights",),
    ("robust",),
    ("messages",),
    ("data",),
    ("models",),
    ("learning",),
    ("agents",),
    ("parties",),
    ("methods",),
    ("devices",),
    ("engines",),
    ("runs",),
    ("flower",),
    ("environments",),
    ("views",),
    ("cli",),
    ("__main__",),
]
FLOOR = {room: floor for floor, rooms in enumerate(ORDER) for room in rooms}


def room_of(file: Path) -> str:
    return file.relative_to(HOUSE).parts[0].removesuffix(".py")


def imported(source: str, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every module that a source imports, wherever in the file, as the parts of its full name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            start = (*base, *(node.module.split(".") if node.module else ()))
            yield from ((*start, alias.name) for alias in node.names)


def imports_of(file: Path) -> list[tuple[str, ...]]:
    return list(imported(file.read_text(encoding="utf-8"), file.relative_to(HOUSE.parent).parts[:-1]))


def wrong_way(room: str, imports: list[tuple[str, ...]]) -> list[str]:
    """The imports of a room that do not point upward."""
    found = []
    for parts in imports:
        if parts[0] == "fedtailor":
            other = parts[1] if len(parts) > 1 and parts[1] in FLOOR else ""
            if other != room and (not other or FLOOR[other] >= FLOOR[room]):
                found.append(".".join(parts))
    return found


def test_every_file_belongs_to_a_room() -> None:
    assert {room_of(file) for file in FILES} - {"__init__"} <= FLOOR.keys()
    assert len(FILES) > 30


@pytest.mark.parametrize(
    "file", [f for f in FILES if room_of(f) != "__init__"], ids=lambda f: str(f.relative_to(HOUSE))
)
def test_imports_point_upward_only(file: Path) -> None:
    assert wrong_way(room_of(file), imports_of(file)) == []


@pytest.mark.parametrize(
    ("room", "line", "allowed"),
    [
        ("learning", "from fedtailor.models import Network", True),
        ("learning", "from fedtailor.learning.loop import train", True),
        ("learning", "from fedtailor.methods import Method", False),
        ("learning", "import fedtailor.runs.store", False),
        ("learning", "from fedtailor import runs", False),
        ("learning", "from fedtailor import UserError", False),
        ("learning", "import fedtailor", False),
        ("learning", "from ..runs import store", False),
        ("learning", "from . import loop", True),
        ("learning", "def late():\n    from fedtailor.views import report", False),
        ("errors", "from fedtailor.seeding import seed_of", False),
        ("learning", "import torch", True),
    ],
)
def test_the_rule_sees_every_way_to_import(room: str, line: str, allowed: bool) -> None:
    assert (wrong_way(room, list(imported(line, ("fedtailor", room)))) == []) is allowed


def test_the_front_door_opens_rooms_only_when_asked() -> None:
    tree = ast.parse((HOUSE / "__init__.py").read_text(encoding="utf-8"))
    eager = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert {module for module in eager if module.startswith("fedtailor")} == {"fedtailor.errors", "fedtailor.version"}


def in_a_fresh_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'pydantic', 'scipy', 'sklearn', 'matplotlib', 'fedtailor.runs'}"
    assert in_a_fresh_process(f"import sys, fedtailor; print(sorted({heavy} & sys.modules.keys()))").strip() == "[]"


def test_a_worker_waits_for_nothing_heavy_but_torch() -> None:
    heavy = "{'scipy', 'sklearn', 'matplotlib', 'ray', 'flwr', 'rich', 'fedtailor.runs', 'fedtailor.views'}"
    program = f"import sys, fedtailor.engines.process_worker; print(sorted({heavy} & sys.modules.keys()))"
    assert in_a_fresh_process(program).strip() == "[]"


def test_the_room_of_runs_opens_as_lazily_and_promises_what_it_has() -> None:
    assert set(fedtailor.runs._HOMES) == set(fedtailor.runs.__all__)
    for name in fedtailor.runs.__all__:
        assert getattr(fedtailor.runs, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = fedtailor.runs.nothing_like_this


def test_every_exported_name_exists() -> None:
    for name in fedtailor.__all__:
        assert getattr(fedtailor, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = fedtailor.nothing_like_this


def function_identities(source: str) -> list[str]:
    """Comparisons such as `type(method).receive is Method.receive`, in a source."""
    compared = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Compare)]
    sides = [(node.left, other) for node in compared for other in node.comparators]
    return [
        f"{left.attr} is {right.value.id}.{right.attr}"
        for left, right in sides
        if isinstance(left, ast.Attribute) and isinstance(right, ast.Attribute) and isinstance(right.value, ast.Name)
        if left.attr == right.attr and right.value.id[0].isupper()
    ]


def test_a_method_declares_what_it_changes() -> None:
    """`Method.changes` and the promises say it; no code compares functions."""
    assert function_identities("type(m).receive is Method.receive or m.kind == Other.name") == [
        "receive is Method.receive"
    ]
    assert {
        str(file): found for file in FILES if (found := function_identities(file.read_text(encoding="utf-8")))
    } == {}


UNSAFE = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def unsafe(source: str) -> list[str]:
    """What would unpickle something, in a source."""
    found = [".".join(parts) for parts in imported(source, ()) if parts[0] in UNSAFE or parts[:2] == ("torch", "load")]
    tree = ast.parse(source)
    weights_only = [  # torch then reads tensors alone and runs no code
        node.func
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and any(
            word.arg == "weights_only" and isinstance(word.value, ast.Constant) and word.value.value is True
            for word in node.keywords
        )
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node not in weights_only:
            found += [f"{node.value.id}.load"] if (node.value.id, node.attr) == ("torch", "load") else []
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found += [] if isinstance(node.value, ast.Constant) and node.value.value is False else ["allow_pickle"]
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(HOUSE)))
def test_nothing_is_ever_unpickled(file: Path) -> None:
    assert unsafe(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import cloudpickle",
        "torch.load(x)",
        "torch.load(x, weights_only=False)",
        "torch.load(x, weights_only=safe)",
        "from torch import load",
        "np.load(x, allow_pickle=True)",
    ],
)
def test_the_search_for_pickles_finds_one(line: str) -> None:
    assert len(unsafe(line)) == 1


def test_tensors_alone_may_be_loaded() -> None:
    assert unsafe("torch.load(x, weights_only=True)") == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    empty = {"utils", "util", "helpers", "helper", "misc", "common", "manager"}
    names = {part.removesuffix(".py") for path in HOUSE.rglob("*") for part in path.relative_to(HOUSE).parts}
    assert names & empty == set()


OLD_WORDS = {"watch", "watcher", "watching", "shelf", "door", "letter", "twin", "farewell", "workshop", "sides"}
OLD_WORDS |= {"fruit", "fruitless", "bench", "lane", "lanes", "deed", "deeds", "saying", "stranger", "strangers"}


def words_of(source: str) -> set[str]:
    """The words in the names of a file's classes, functions and constants."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name) and target.id.isupper()}
    return {word.lower() for name in found for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def test_words_of_names_are_found() -> None:
    assert words_of("MAX_TASKS = 3\nclass DiskWatch:\n    def _round_done(self): ...") == {
        *("max", "tasks", "disk", "watch", "round", "done")
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(HOUSE)))
def test_names_use_the_words_of_the_field(file: Path) -> None:
    """A callback observes, a worker works, a checked key is proven: no pictures in their place."""
    names = words_of(file.read_text(encoding="utf-8")) | {file.stem}
    assert names & OLD_WORDS == set()
