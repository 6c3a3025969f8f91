"""Changes the code in small ways and asks whether the tests notice: ``python -m tests.support.mutants [COUNT]``.

A mutant is one change in one function of a method, an agent, the local training or the round loop: another operator,
another comparison, a number that is one more, a condition that is negated, a statement that is left out. COUNT (500)
mutants are drawn with a fixed seed over all places that can be changed. Each runs against the tests of its own module,
in a process of its own; a mutant that fails them, or takes much longer, is caught. What survives in a method then runs
against the tests of what all methods declare, ``tests/methods/test_base.py``. Every result is kept in
``tests/support/mutants.jsonl`` at once, so the command resumes; results of a module that has changed since are made
again. ``tests/support/mutants.toml`` has the reasons for survivors, by module and change. The page is
``docs/results/mutants.md``.
"""

import ast
import copy
import hashlib
import json
import os
import random
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
HOUSE, TESTS = ROOT / "fedtailor", ROOT / "tests"
RECORD, REASONS = TESTS / "support" / "mutants.jsonl", TESTS / "support" / "mutants.toml"
PAGE = ROOT / "docs" / "results" / "mutants.md"
SEED = 2026
LONGEST = 300  # seconds of processor time: an endless loop is caught, however busy the machine is
WAITING = 3600  # seconds: so is endless waiting
ROUND = ("loop", "phases", "cohort", "evaluation", "scoring", "measures", "ledger", "defence")

# Modules whose tests have other names than the module.
TESTED_BY = {
    "agents/actions": ("agents/test_actions", "agents/test_ppo", "agents/test_ddpg"),
    "agents/base": ("agents/test_base", "agents/test_ppo", "agents/test_ddpg", "agents/test_vdn"),
    "agents/heads": ("agents/test_ppo",),
    "agents/networks": ("agents/test_networks", "agents/test_ppo", "agents/test_ddpg"),
    "learning/evaluation": ("learning/test_evaluation", "learning/test_measures"),
    "learning/features": ("learning/test_training",),
    "learning/loop": ("learning/test_training", "learning/test_precision"),
    "learning/objectives": ("learning/test_evaluation", "learning/test_training"),
    "learning/options": ("learning/test_options", "learning/test_training"),
    "learning/steps": ("learning/test_steps", "learning/test_optimisers"),
    "learning/settings": ("learning/test_schedules", "learning/test_training"),
    "methods/adjustment": ("methods/test_bwa", "methods/test_adaptive_aw", "methods/test_adaptive_b"),
    "methods/hapfl_models": ("methods/test_hapfl", "methods/test_reply_schema"),
    "methods/hapfl_rehearsal": ("methods/test_hapfl",),
    "methods/hapfl_state": ("methods/test_hapfl",),
    "methods/base": ("methods/test_bwa", "parties/test_decisions"),
    "methods/candidates": ("methods/test_candidates", "methods/test_tailor"),
    "methods/head_embedding": ("methods/test_pfedrlla", "methods/test_pfedrlla_after"),
    "methods/head_mixing": ("methods/test_pfedrlla", "methods/test_pfedrlla_after"),
    "runs/loop": ("exactness/test_contract", "runs/test_evaluation_rules", "runs/test_cohorts"),
    "runs/phases": ("exactness/test_contract", "runs/test_evaluation_rules"),
    "runs/cohort": ("runs/test_cohorts",),
    "runs/evaluation": ("runs/test_evaluation_rules", "exactness/test_contract"),
    "runs/ledger": ("exactness/test_contract", "runs/test_evaluation_rules", "runs/test_store"),
}

SHARED = {"methods": ("methods/test_base",)}  # by room: tests that hold all its modules against what they declare


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str  # methods/fedavg
    place: int  # number of the place among those of the module
    line: int
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line} {self.change}"

    @property
    def change(self) -> str:
        return f"`{self.before}` -> `{self.after}`"


def modules() -> list[str]:
    """The modules that are changed, by their names in the package."""
    rooms = [path for room in ("methods", "agents", "learning") for path in sorted((HOUSE / room).glob("*.py"))]
    rooms += [HOUSE / "runs" / f"{name}.py" for name in ROUND]
    found = [path.relative_to(HOUSE).with_suffix("").as_posix() for path in rooms if path.stem != "__init__"]
    return [module for module in found if tests_of(module)]


def tests_of(module: str) -> list[Path]:
    room, name = module.split("/")
    files = [TESTS / f"{test}.py" for test in TESTED_BY.get(module, (f"{room}/test_{name}",))]
    return [file for file in files if file.exists()]


def shared_tests_of(module: str) -> list[Path]:
    return [TESTS / f"{test}.py" for test in SHARED.get(module.split("/")[0], ())]


# Places and changes

SWAPS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "len"}


def changes(node: ast.AST) -> Iterator[Callable[[ast.AST], ast.AST | None]]:
    """The changes of a node: functions that change a copy of it, or return what stands in its place."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in SWAPS:
        yield lambda n: _set(n, op=SWAPS[type(n.op)]())  # type: ignore[attr-defined]
    if isinstance(node, ast.BoolOp):
        yield lambda n: _set(n, op=SWAPS[type(n.op)]())  # type: ignore[attr-defined]
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield lambda n: _set(n, ops=[SWAPS[type(n.ops[0])](), *n.ops[1:]])  # type: ignore[attr-defined]
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield lambda n: _set(n, value=n.value + 1)  # type: ignore[attr-defined]
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield lambda n: _set(n, value=not n.value)  # type: ignore[attr-defined]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield lambda n: n.operand  # type: ignore[attr-defined]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield lambda n: _set(n, test=ast.UnaryOp(ast.Not(), n.test))  # type: ignore[attr-defined]
    if isinstance(node, ast.Name) and node.id in NAMES and isinstance(node.ctx, ast.Load):
        yield lambda n: _set(n, id=NAMES[n.id])  # type: ignore[attr-defined]
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) and not _is_text(node):
        yield lambda n: ast.Pass()


def _set(node: ast.AST, **values: object) -> ast.AST:
    for name, value in values.items():
        setattr(node, name, value)
    return node


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def places(tree: ast.Module) -> list[ast.AST]:
    """The nodes inside functions that can be changed, without annotations and without what only makes messages."""
    found: list[ast.AST] = []

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            return
        if isinstance(node, ast.FunctionDef):
            if any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list):
                return
            for child in [*node.args.defaults, *node.args.kw_defaults, *node.body]:
                if child is not None:
                    visit(child, True)
            return
        if isinstance(node, ast.AnnAssign):
            if node.value is not None and inside:
                visit(node.value, inside)
            return
        if isinstance(node, ast.ClassDef | ast.Module) or inside:
            if inside and next(changes(node), None) is not None:
                found.append(node)
            for child in ast.iter_child_nodes(node):
                visit(child, inside)

    visit(tree, False)
    return found


def mutants_of(module: str) -> list[Mutant]:
    tree = ast.parse((HOUSE / f"{module}.py").read_text(encoding="utf-8"))
    found, place = [], 0
    for node in places(tree):
        for change in changes(node):
            other = change(copy.deepcopy(node))
            assert other is not None
            before, after = (_line(part) for part in (node, other))
            found.append(Mutant(module, place, getattr(node, "lineno", 0), before, after))
            place += 1
    return found


def _line(node: ast.AST) -> str:
    text = " ".join(ast.unparse(ast.fix_missing_locations(node)).split())
    return text if len(text) <= 90 else text[:87] + "..."


def mutated(module: str, place: int) -> ast.Module:
    """The module's tree with one change."""
    tree = ast.parse((HOUSE / f"{module}.py").read_text(encoding="utf-8"))
    count = 0
    for node in places(tree):
        for change in changes(node):
            if count == place:
                return ast.fix_missing_locations(_Replace(node, change).visit(tree))
            count += 1
    raise IndexError(place)


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, change: Callable[[ast.AST], ast.AST | None]):
        self.target, self.change = target, change

    def visit(self, node: ast.AST) -> ast.AST:
        if node is not self.target:
            return super().generic_visit(node)
        other = self.change(node)
        assert other is not None
        return other if other is node else ast.copy_location(other, node)


# Running one mutant


def judge(mutant: Mutant, tests: list[Path]) -> str:
    """Run tests on the mutant in a child process: ``caught``, ``survived`` or ``slow`` (caught too)."""
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST + 10))
        _run_tests(mutant, tests)
    end = time.monotonic() + WAITING
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return "survived" if code == 0 else "slow" if code == -signal.SIGXCPU else "caught"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "slow"


def _run_tests(mutant: Mutant, tests: list[Path]) -> None:
    """Import the changed module in place of the original, and run its tests; never returns."""
    import importlib.abc
    import importlib.util

    import pytest

    name = f"fedtailor.{mutant.module.replace('/', '.')}"
    file = str(HOUSE / f"{mutant.module}.py")
    code = compile(mutated(mutant.module, mutant.place), file, "exec")

    class Changed(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
        def find_spec(self, fullname: str, path: object = None, target: object = None) -> object:
            return importlib.util.spec_from_file_location(name, file, loader=self) if fullname == name else None

        def get_source(self, fullname: str) -> str:
            return Path(file).read_text(encoding="utf-8")

        def exec_module(self, module: object) -> None:
            exec(code, vars(module))

    sys.meta_path.insert(0, Changed())  # type: ignore[arg-type]
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    options = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow"]
    try:
        result = int(pytest.main([*options, *map(str, tests)]))
    except BaseException:
        result = 9
    os._exit(0 if result == 0 else 1)


# All of them


def digest(module: str, tests: list[Path]) -> str:
    """A digest of the code of the module and its tests: a result counts for as long as both stay.

    Comments, docstrings and layout are left out.
    """
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in [HOUSE / f"{module}.py", *tests])
    code = "".join(ast.dump(_Bare().visit(tree)) for tree in trees)
    return hashlib.blake2b(code.encode(), digest_size=8).hexdigest()


class _Bare(ast.NodeTransformer):
    """Leaves out docstrings."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if _is_text(node) else node


def drawn(count: int) -> list[Mutant]:
    everything = [mutant for module in modules() for mutant in mutants_of(module)]
    return sorted(
        random.Random(SEED).sample(everything, min(count, len(everything))), key=lambda m: (m.module, m.place)
    )


def known() -> dict[str, dict[str, object]]:
    lines = RECORD.read_text(encoding="utf-8").splitlines() if RECORD.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def judged(mutant: Mutant, row: dict[str, object]) -> dict[str, object]:
    """The mutant's row: the known one if it still counts; otherwise what its tests say now."""
    own, shared = tests_of(mutant.module), shared_tests_of(mutant.module)
    narrow, wide = digest(mutant.module, own), digest(mutant.module, own + shared)
    made, result = row.get("digest"), str(row.get("result"))
    if made == wide or (made == narrow and result != "survived"):
        return row
    if made != narrow:
        made, result = narrow, judge(mutant, own)
    if result == "survived" and shared:
        made, result = wide, judge(mutant, shared)
    return {"name": mutant.name, **asdict(mutant), "digest": made, "result": result}


def main(count: int) -> None:
    import numpy  # noqa: F401, loaded once for all children
    import torch

    torch.set_num_threads(1)
    chosen, rows, begin = drawn(count), known(), time.monotonic()
    for number, mutant in enumerate(chosen, 1):
        row = judged(mutant, rows.get(mutant.name, {}))
        if row == rows.get(mutant.name):
            continue
        rows[mutant.name] = row
        with RECORD.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{number}/{len(chosen)} {time.monotonic() - begin:.0f} s {row['result']} {mutant.name}", flush=True)
    publish(chosen, [rows[mutant.name] for mutant in chosen])


def publish(chosen: list[Mutant], rows: list[dict[str, object]]) -> None:
    """Write the page, and the record without the results of other mutants."""
    RECORD.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8")) if REASONS.exists() else {}
    survivors = [mutant for mutant, row in zip(chosen, rows, strict=True) if row["result"] == "survived"]
    reason = {mutant: reasons.get(f"{mutant.module} {mutant.change}", "") for mutant in survivors}
    equal = [mutant for mutant in survivors if reason[mutant].startswith("Equal:")]
    counted = len(chosen) - len(equal)
    caught = len(chosen) - len(survivors)
    lines = [
        "# Mutants",
        "",
        "Written by `python -m tests.support.mutants`, which says what a mutant is. Each was run against the tests of",
        "its own module; those of a method that survived, against the tests of what all methods declare too.",
        "",
        f"{len(chosen)} mutants with seed {SEED} of {len({m.module for m in chosen})} modules: **{caught} caught, "
        f"{len(survivors)} survived**, of which {len(equal)} change nothing that can be seen (marked Equal). Caught "
        f"of those that change something: **{100 * caught / counted:.1f} %**.",
        "",
        "| room | mutants | survived |",
        "| --- | ---: | ---: |",
    ]
    for room in ("methods", "agents", "learning", "runs"):
        of = [row for row in rows if str(row["module"]).startswith(f"{room}/")]
        lines.append(f"| {room} | {len(of)} | {sum(row['result'] == 'survived' for row in of)} |")
    lines += ["", "## Survivors", ""]
    lines += [f"* {mutant.name}: {reason[mutant] or '**no reason given yet**'}" for mutant in survivors]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
