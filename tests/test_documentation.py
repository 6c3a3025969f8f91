"""What the documentation shows works, and what it quotes was written by a command."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fedtailor.__main__ import main
from fedtailor.methods import catalogue
from fedtailor.views.cards import method_facts, methods_document

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("methods/*.md"))]
SNIPPET = re.compile(r'```(python|toml|sh)(?: title="(.*?)")?\n(.*?)```', re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(r"^```(.*?)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [body for name, body in found if name == language]


def run_in_order(text: str, folder: Path, small: bool = False) -> str:
    """Run the snippets of a page in one process, as they stand; files are written where they appear.

    A file is a snippet with a title, or TOML whose first line is its name. With `small`, commands that train do so in
    this process and with few samples.
    """
    less = ["--engine", "inline", "--set", "data.samples=300"] if small else []
    program = ["import pathlib, sys", "from fedtailor.__main__ import main as fedtailor_main", "sys.path.insert(0, '')"]
    for language, title, body in SNIPPET.findall(text):
        name = title or (body.partition("\n")[0].removeprefix("# ") if language == "toml" else "")
        if name:
            program.append(f"pathlib.Path({name!r}).write_text({body!r})")
        elif language == "sh":
            for _, *words in (shlex.split(line, comments=True) for line in body.splitlines()):
                words += less if words[0] in ("run", "compare") else []
                program.append(f"assert fedtailor_main({words!r}) == 0, {words!r}")
        else:
            program.append(body)
    script = folder / "snippets.py"  # a file, because workers import the main module
    script.write_text(
        "if __name__ == '__main__':\n" + "\n".join(f"    {line}" for line in "\n".join(program).split("\n"))
    )
    done = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_of_the_readme_and_of_runs_runs_in_order(tmp_path: Path) -> None:
    code = [*blocks(ROOT / "README.md", "python"), *blocks(ROOT / "docs" / "runs.md", "python")]
    assert len(code) >= 3
    done = subprocess.run([sys.executable, "-c", "\n".join(code)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_snippet_of_bring_your_own_data_runs_in_order(tmp_path: Path) -> None:
    """Commands run where they stand, because they need the files of the snippets above them."""
    for package in ("PIL", "pandas", "datasets"):
        pytest.importorskip(package)
    page = (DOCS / "data.md").read_text(encoding="utf-8")
    shown = run_in_order(page[page.index("## Bring your own data") :], tmp_path)
    assert (tmp_path / "runs" / "risk" / "exports" / "cairo" / "card.json").exists()
    assert "cairo" in shown


@pytest.mark.parametrize(
    ("page", "left"),
    [
        pytest.param("index.md", "exports/client-3/card.json", marks=pytest.mark.slow),
        ("own-method.md", "runs/averaging/run.db"),
        ("own-model.md", "exports/client-3/card.json"),
    ],
)
def test_every_snippet_of_a_page_runs_in_order(page: str, left: str, tmp_path: Path) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert len(SNIPPET.findall(text)) == text.count("```") // 2, "a snippet that this test does not run"
    run_in_order(text, tmp_path, small=True)
    assert (tmp_path / left).exists()


def test_every_snippet_of_deploy_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    known: dict[str, object] = {}
    for language, text in re.findall(r"```(python|sh)\n(.*?)```", page, re.DOTALL):
        if language == "python":
            exec(text, known)
            continue
        for line in text.splitlines():
            words = shlex.split(line)[1:]
            inline = ["--engine", "inline", "--set", "data.samples=240"] if words[0] == "run" else []
            assert main([*words, *inline]) == 0, line
    assert len(list((tmp_path / "exports" / "everyone").iterdir())) == 4
    assert (tmp_path / "predictions.csv").read_text(encoding="utf-8").startswith("sample,prediction,probability of 0")


def test_every_snippet_of_tune_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "tune.md"
    for line in "".join(blocks(page, "sh")).splitlines():
        assert main([*line.split()[1:], "--engine", "inline", "--quiet"]) == 0, line
    (code,) = blocks(page, "python")
    exec(code, {})
    assert (tmp_path / "runs" / "prox-tune" / "best.toml").exists()


def test_every_snippet_of_advise_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "advise.md"
    for line in "".join(blocks(page, "sh")).splitlines():
        assert main([*line.split()[1:], "--engine", "inline", "--quiet"]) == 0, line
    (code,) = blocks(page, "python")
    exec(code, {})
    assert {"advice.md", "advice.csv", "advice.json", "advice.png", "best.toml"} <= {
        path.name for path in (tmp_path / "runs" / "experiment-advise").iterdir()
    }
    assert (tmp_path / "runs" / "sites-advise" / "best.toml").exists()


def test_the_commands_of_trackers_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("tensorboard", "mlflow"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    pytest.importorskip("pandas")
    (code,) = blocks(ROOT / "docs" / "trackers.md", "python")
    exec(code, {})
    (text,) = blocks(ROOT / "docs" / "trackers.md", "sh")
    for line in text.splitlines():
        assert main(line.split()[1:]) == 0, line
    assert {path.name for path in (tmp_path / "runs" / "tracked").iterdir()} >= {"tensorboard", "report.html"}
    assert list((tmp_path / "runs" / "mlflow-files").glob("*/artifacts/report.html"))


def test_every_command_of_the_readme_exists() -> None:
    text = "\n".join(blocks(ROOT / "README.md", ""))
    known = subprocess.run([sys.executable, "-m", "fedtailor", "--help"], capture_output=True, text=True).stdout
    used = set(re.findall(r"^fedtailor (\w+)", text, re.MULTILINE))
    assert used >= {"run", "show", "export", "new", "compare", "resume", "data"}
    assert {word for word in used if not re.search(rf"^│ {word} ", known, re.MULTILINE)} == set()


def test_the_table_of_the_readme_leads_to_every_method() -> None:
    linked = re.findall(r"\]\(docs/methods/(.*?)\.md\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(catalogue()), "README.md: the table of methods"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def map_of_the_house() -> list[tuple[str, str]]:
    """The rows of "Where does X live?": X and its places."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page[page.index("| X | place |") :].partition("\n\n")[0]
    return [(what, places) for what, places in re.findall(r"^\| (.+?) \| (.+) \|$", table, re.MULTILINE)][2:]


def test_the_map_says_where_at_least_twenty_things_live() -> None:
    assert len({what for what, _ in map_of_the_house()}) == len(map_of_the_house()) >= 20


@pytest.mark.parametrize(("what", "places"), map_of_the_house())
def test_every_path_and_name_of_the_map_exists(what: str, places: str) -> None:
    marked = re.findall(r"`(.+?)`", f"{what} {places}")
    paths = [word for word in marked if re.fullmatch(r"[\w./-]+(/|\.(py|js|json|toml))", word)]
    found = {path: [root / path for root in (ROOT / "fedtailor", ROOT) if (root / path).exists()] for path in paths}
    assert all(found.values()), f"{what}: {[path for path, places in found.items() if not places]} does not exist"
    assert paths or "<paper>" in places, what
    files = [places[0] for places in found.values() if places[0].suffix == ".py"]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    for name in (word for word in marked if re.fullmatch(r"[A-Z]\w+(\.\w+)?", word)):
        for part in name.split("."):
            assert re.search(rf"^\s*(class |def )?{part}\b", text, re.MULTILINE), (
                f"{what}: {name} is in none of {paths}"
            )


def test_the_map_has_every_room() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (ROOT / "fedtailor").glob("*/__init__.py")}
    assert rooms <= set(re.findall(r"^(\w+)/", page, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    defined = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    for path in re.findall(r"`(tests/[\w/]+\.py)`", text):
        assert (ROOT / path).exists(), f"{page.name} names {path}"
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in defined, f"{page.name} names {name}"
    for file in re.findall(r"`(test_\w+\.py)`", text):
        assert next((ROOT / "tests").rglob(file), None), f"{page.name} names {file}"


def test_the_constants_of_ray_are_those_of_the_measured_page() -> None:
    """The page of Ray names what is measured, and leaves the numbers to the page that the benchmark writes."""
    text = (DOCS / "ray.md").read_text(encoding="utf-8")
    section = text.partition("## What to expect of scaling")[2].partition("\n## ")[0]
    assert not re.search(r"\d (ms|s|MB)\b", section)
    measured = json.loads(blocks(DOCS / "results" / "ray-cost.md", "json")[0])
    table = "".join(line for line in section.splitlines() if line.startswith("|"))
    named = [*re.findall(r"`(\w+)`", table), "curve", "forecast", "processes"]
    assert len(named) == 13
    assert set(named) <= measured.keys()


def test_the_page_of_the_methods_is_what_the_command_writes() -> None:
    page = methods_document([method_facts(kind) for kind in catalogue().values()])
    assert (ROOT / "docs" / "methods.md").read_text(encoding="utf-8") == page, (
        "write it again: fedtailor methods --markdown > docs/methods.md"
    )
