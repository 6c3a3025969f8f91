"""The house in numbers, now and at an earlier revision: lines and settings of methods, sizes of files, hops of a round.

``python benchmarks/house.py REVISION`` writes docs/results/house.md. Lines of code do not count docstrings, imports,
comments and cards.
"""

import ast
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "house.md"
SYSTEMS = ("fedah", "fedalp", "hapfl", "bwa", "pfedrlla", "feddrl", "fedddrl")
SHARED = {  # what else a reader of the method reads
    "bwa": ("adjustment",),
    "hapfl": ("hapfl_models", "hapfl_state", "allocation"),
    "pfedrlla": ("head_mixing",),
}
LARGE = 450  # lines of a file
KINDS = ("py", "js", "css", "html")  # endings of the files of the package that are counted
COPY = 6  # lines of code that are a copy if they stand in two places


def main(revision: str) -> None:
    from fedtailor.views.provenance import made_by

    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), revision], cwd=ROOT, check=True)
        try:
            before, after = measured(tree), measured(ROOT)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    lines = [
        "# The house in numbers",
        "",
        f"Before: revision {revision}; after: this one. Lines of code do not count docstrings, imports, comments and "
        "cards. Settings are those of the method's own table; those of its agents and of its embedding are in tables "
        "below it.",
        "",
        "| method | lines before | lines after | with its helper module | settings before | after |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in SYSTEMS:
        old, new = before["methods"][name], after["methods"][name]
        cells = (old["lines"], new["lines"], new["with helpers"], old["settings"], new["settings"])
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    lines += ["", "| | before | after |", "| --- | ---: | ---: |"]
    lines += [f"| {what} | {before['counts'][what]} | {after['counts'][what]} |" for what in after["counts"]]
    lines += [
        "",
        f"Files of the package are those that end in {', '.join(KINDS)}. Copies of code are the lines of code in its "
        f"Python files that belong to {COPY} lines in a row which stand, but for spaces, in a second place too.",
        "",
        "A round of FedAH, from the command to its code and to the database (hops: functions on the way):",
        "",
    ]
    for end in ("fit", "insert"):
        for what, found in (("before", before), ("after", after)):
            way = found["hops"][end]
            lines.append(f"* {what}, {len(way)} hops to `{end}`: {' → '.join(way)}")
    lines += ["", made_by(f"python benchmarks/house.py {revision}", begin)]
    PAGE.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(PAGE)


def measured(tree: Path) -> dict[str, Any]:
    """The numbers of a tree, in a process that imports its package."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--measure", str(tree)]
    out = subprocess.run(
        command, env=environment, cwd=tempfile.gettempdir(), check=True, capture_output=True, text=True
    )
    return json.loads(out.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def measure(tree: Path) -> dict[str, Any]:
    from fedtailor.methods import catalogue

    package, methods = tree / "fedtailor", tree / "fedtailor" / "methods"
    files = [file for kind in KINDS for file in package.rglob(f"*.{kind}")]
    sizes = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    code = [code_lines(file) for file in files if file.suffix == ".py"]
    programs = list((tree / "recipes").rglob("*.py"))
    found = {}
    for name in SYSTEMS:
        own = len(code_lines(methods / f"{name}.py"))
        there = [methods / f"{module}.py" for module in SHARED.get(name, ())]
        found[name] = {
            "lines": own,
            "with helpers": own + sum(len(code_lines(file)) for file in there if file.exists()),
            "settings": len(catalogue()[name].model_fields),
        }
    counts = {
        f"files over {LARGE} lines": sum(size > LARGE for size in sizes.values()),
        "lines of the largest file": max(sizes.values()),
        "files of the package": len(sizes),
        "lines of code in its Python files": sum(map(len, code)),
        "copies of code, in lines": copies(code),
        "programs in recipes": len(programs),
        "lines of these programs": sum(len(file.read_text(encoding="utf-8").splitlines()) for file in programs),
    }
    return {"methods": found, "counts": counts, "hops": hops()}


def copies(files: Iterable[list[str]]) -> int:
    """The number of lines that belong to a block of ``COPY`` lines which stands in a second place too."""
    places = defaultdict(list)
    for file, lines in enumerate(files):
        even = [" ".join(line.split()) for line in lines]
        for at in range(len(even) - COPY + 1):
            places[tuple(even[at : at + COPY])].append((file, at))
    found = (place for where in places.values() if len(where) > 1 for place in where)
    return len({(file, at + further) for file, at in found for further in range(COPY)})


def code_lines(file: Path) -> list[str]:
    """Lines without docstrings, imports, comments, cards and blank ones."""
    text = file.read_text(encoding="utf-8")
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_card(node) or _is_docstring(node):
            skipped |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
    lines = enumerate(text.splitlines(), 1)
    return [line for at, line in lines if at not in skipped and line.strip() and not line.strip().startswith("#")]


def _is_card(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return getattr(target, "attr", getattr(target, "id", "")) == "card"


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def hops() -> dict[str, list[str]]:
    """The functions between the command and FedAH's training, and between the command and the stored round."""
    from typer.testing import CliRunner

    from fedtailor.cli import app
    from fedtailor.methods import find
    from fedtailor.runs.store import Store

    seen: dict[str, list[str]] = {}
    for owner, name in ((find("fedah"), "fit"), (Store, "insert")):
        original = getattr(owner, name)

        def wrapped(*args: Any, _original: Any = original, _name: str = name, **more: Any) -> Any:
            if _name == "fit" or args[1] == "rounds":
                places = [(Path(frame.filename).parts, frame.name) for frame in traceback.extract_stack()]
                way = [f"{'/'.join(p[-2:])}:{function}" for p, function in places if "fedtailor" in p[:-1]]
                seen.setdefault(_name, way)
            return _original(*args, **more)

        setattr(owner, name, wrapped)
    with tempfile.TemporaryDirectory() as folder:
        small = ["--set", "data.clients=3", "--set", "data.samples=200", "--out", folder]
        command = ["run", "--method", "fedah", "--rounds", "1", "--engine", "inline", "--quiet", *small]
        result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    return seen


if __name__ == "__main__":
    if sys.argv[1] == "--measure":
        print(json.dumps(measure(Path(sys.argv[2]))))
    else:
        main(sys.argv[1])
