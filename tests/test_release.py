"""What is released: the wheel, its extras, and the versions that `make` installs."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import fedtailor
from fedtailor.__main__ import main

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {
    "flower",
    "ray",
    "ui",
    "rl",
    "bo",
    "dp",
    "track",
    "export",
    "text",
    "notebook",
    "images",
    "docs",
    "all",
    "dev",
}
PIN = re.compile(r"^(\S+?)==(\S+)(?: ; (.*?))? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    """The versions of a lock file that hold on this machine."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    assert PIN.sub("", text).strip().count("\n") == 0, "every line is a pin with hashes, but for the first"
    found = {}
    for package, version, marker, _ in PIN.findall(text):
        if not marker or Requirement(f"{package} ; {marker}").marker.evaluate():
            found[canonicalize_name(package)] = version
    return found


def needed(extras: list[str]) -> list[Requirement]:
    """What the package declares, with what its extras declare through each other."""
    texts = [*PROJECT["dependencies"], *(text for one in extras for text in PROJECT["optional-dependencies"][one])]
    inner = [Requirement(text) for text in texts]
    own = sorted({extra for one in inner if one.name == "fedtailor" for extra in one.extras} - set(extras))
    return needed([*extras, *own]) if own else [one for one in inner if one.name != "fedtailor"]


@pytest.mark.parametrize(("lock", "extras"), [("core", []), ("dev", ["dev"])])
def test_a_lock_file_fits_the_declared_packages(lock: str, extras: list[str]) -> None:
    locked = pins(lock)
    assert "torch" not in locked, "its build depends on the machine"
    wrong = [
        str(one)
        for one in needed(extras)
        if one.name != "torch"
        and not one.specifier.contains(locked.get(canonicalize_name(one.name), "0"), prereleases=True)
    ]
    assert wrong == [], "write it again: make lock"


def test_what_runs_is_locked_in_the_versions_that_are_tested() -> None:
    assert pins("core").items() <= pins("dev").items()


def test_a_lock_file_holds_what_its_packages_need() -> None:
    """`make` installs without looking at dependencies, so that none may be missing."""
    locked = pins("core")
    for name in locked:
        for one in map(Requirement, metadata.requires(name) or ()):
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                assert canonicalize_name(one.name) in {*locked, "torch"}, f"{name} needs {one}"


def test_lock_files_name_no_host() -> None:
    for file in (ROOT / "requirements").glob("*.lock"):
        assert "://" not in file.read_text(encoding="utf-8")


def test_the_extras_are_those_that_the_documentation_names() -> None:
    assert set(PROJECT["optional-dependencies"]) >= EXTRAS
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `([a-z]+)` ", page, re.MULTILINE))
    assert named == set(PROJECT["optional-dependencies"]), "docs/install.md"


@pytest.mark.parametrize("file", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda file: file.name)
def test_a_workflow_is_marked_untried_and_calls_what_exists(file: Path) -> None:
    yaml = pytest.importorskip("yaml")
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# Untried: ")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}, "a job that needs more says so itself"
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for step in steps:
        for line in step.get("run", "").splitlines():
            program, *words = shlex.split(line)
            assert program != "make" or set(words) <= targets, line
            assert program != "fedtailor" or main([words[0], "--help"]) == 0, line


def test_the_commands_in_the_head_of_the_container_file_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    assert text.startswith("# Untried: ")
    commands = [shlex.split(line) for line in re.findall(r"fedtailor fedtailor (.*)", text)]
    assert {words[0] for words in commands} == {"serve", "join"}
    for words in commands:
        assert main([words[0], "--help"]) == 0
        shown = capsys.readouterr().out
        assert [word for word in words if word.startswith("--") and word not in shown] == []
    for source in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split())


def test_the_citation_has_the_version_and_the_five_papers() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {fedtailor.__version__}\n" in text
    assert re.findall(r"notes: (\w+)", text) == ["BWA", "FedAH", "FedALP", "HAPFL", "pFedRLLA"]


def test_the_changelog_and_the_citation_have_the_date_of_a_release() -> None:
    version, suffix = re.fullmatch(r"(\d+\.\d+\.\d+)(\.dev\d+)?", fedtailor.__version__).groups()
    (date,) = re.findall(rf"^## {re.escape(version)} \((.*)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = re.findall(r"^date-released: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    if suffix:
        assert (date, released) == ("unreleased", [])
    else:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)
        assert released == [date]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    source = out / "source"  # a copy, because a build leaves files that the next one would take along
    shutil.copytree(ROOT / "fedtailor", source / "fedtailor", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True, cwd=out)
    return next(out.glob("fedtailor-*.whl"))


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("fedtailor/")}
    listed = subprocess.run(["git", "ls-files", "fedtailor"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert inside == set(listed.stdout.split())


def test_the_page_on_a_package_index_has_no_relative_link(wheel: Path) -> None:
    """The README's links and pictures lead nowhere outside the repository."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [each for each in opened.namelist() if each.endswith(".dist-info/METADATA")]
        page = opened.read(name).decode()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)]+)\)", page)
    assert len(targets) == len(re.findall(r"\]\(([^)]+)\)", readme)) > 50
    assert [each for each in targets if not each.startswith("https://")] == []
    inside = [re.sub(r"^https://github.com/fedtailor/fedtailor/(?:blob|raw)/[^/]+/", "", each) for each in targets]
    assert [
        each for each in inside if not each.startswith("https://") and not (ROOT / each.split("#")[0]).exists()
    ] == []
    assert "![A run in the dashboard" in page
    assert "Description-Content-Type: text/markdown" in page


def closure(names: set[str]) -> set[str]:
    """Distributions with everything that they need on this machine, without extras."""
    found: set[str] = set()
    while names:
        name = canonicalize_name(names.pop())
        if name not in found:
            found.add(name)
            needs = map(Requirement, metadata.requires(name) or ())
            names |= {one.name for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})}
    return found


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment with the wheel and its declared dependencies: no extra, and no checkout.

    The packages are links to those of this environment, because installing torch again would take minutes.
    """
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    place = next((folder / "lib").glob("python*")) / "site-packages"
    for name in closure({Requirement(text).name for text in PROJECT["dependencies"]}):
        found = metadata.distribution(name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            target = place / top
            if not target.exists():
                target.symlink_to(Path(str(found.locate_file(top))).resolve())
    install = ["-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-index", str(wheel)]
    subprocess.run([sys.executable, *install], check=True)  # pip itself says whether a dependency is missing
    return folder / "bin"


def in_bare(bare: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    return subprocess.run([bare / words[0], *words[1:]], cwd=folder, env=environment, capture_output=True, text=True)


def test_the_wheel_works_with_nothing_but_what_it_declares(bare: Path, tmp_path: Path) -> None:
    assert not list(bare.parent.rglob("flwr")), "extras are out of sight"
    run = ["run", "--rounds", "1", "--set", "data.clients=3", "--set", "data.samples=60", "--workers", "1", "--quiet"]
    for words in (["--version"], ["doctor"], run, ["show", "runs/experiment", "--clients"]):
        done = in_bare(bare, tmp_path, "fedtailor", *words)
        assert done.returncode == 0, done.stderr
    assert {"run.db", "report.html", "curves.png"} <= {file.name for file in (tmp_path / "runs/experiment").iterdir()}
    where = in_bare(bare, tmp_path, "python", "-c", "import fedtailor.views.dashboard; print(fedtailor.__file__)")
    assert where.stdout.startswith(str(bare.parent)), where.stderr


def test_what_needs_an_extra_names_it_and_writes_nothing(bare: Path, tmp_path: Path) -> None:
    commands = {"flower": ["serve", "--insecure", "--port", "0"], "bo": ["tune", "--rounds", "1", "--trials", "1"]}
    for extra, words in commands.items():
        done = in_bare(bare, tmp_path, "fedtailor", *words)
        assert done.returncode == 2, done.stderr
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert f"fedtailor[{extra}]" in line
        assert list(tmp_path.iterdir()) == []


def test_without_torch_one_sentence_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    run = [sys.executable, "-m", "fedtailor", "methods"]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: torch is not installed: pip install torch (")
    call = [sys.executable, "-c", "import fedtailor; fedtailor.run"]
    done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("fedtailor.errors.UserError: torch is not installed")
