"""What the documentation shows works, and what it quotes was written by a command."""

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
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_the_python_of_the_readme_and_of_runs_runs_in_order(tmp_path: Path) -> None:
    code = [*blocks(ROOT / "README.md", "python"), *blocks(ROOT / "docs" / "runs.md", "python")]
    assert len(code) >= 3
    done = subprocess.run([sys.executable, "-c", "\n".join(code)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_snippet_of_bring_your_own_data_runs_in_order(tmp_path: Path) -> None:
    """Python in one process; commands where they stand, because they need the files of the snippets above them."""
    for package in ("PIL", "pandas", "datasets"):
        pytest.importorskip(package)
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    found = re.findall(r"```(python|toml|sh)\n(.*?)```", page[page.index("## Bring your own data") :], re.DOTALL)
    assert [language for language, _ in found].count("python") >= 8
    program = ["import pathlib", "from fedtailor.__main__ import main as fedtailor_main"]
    for language, text in found:
        if language == "toml":
            name = text.partition("\n")[0].removeprefix("# ")
            program.append(f"pathlib.Path({name!r}).write_text({text!r})")
        elif language == "sh":
            commands = [line.split()[1:] for line in text.splitlines()]
            program += [f"assert fedtailor_main({words!r}) == 0, {words!r}" for words in commands]
        else:
            program.append(text)
    script = tmp_path / "snippets.py"  # a file, because workers import the main module
    script.write_text(
        "if __name__ == '__main__':\n" + "\n".join(f"    {line}" for line in "\n".join(program).split("\n"))
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "risk" / "exports" / "cairo" / "card.json").exists()
    assert "cairo" in done.stdout


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_of_the_methods_is_what_the_command_writes() -> None:
    page = methods_document([method_facts(kind) for kind in catalogue().values()])
    assert (ROOT / "docs" / "methods.md").read_text(encoding="utf-8") == page, (
        "write it again: fedtailor methods --markdown > docs/methods.md"
    )


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Warnings are errors: links and anchors that lead nowhere among them. Nothing is loaded from another host."""
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="?https?://[^">]+', page) == []
    assert (tmp_path / "site" / "search" / "search_index.json").exists()
