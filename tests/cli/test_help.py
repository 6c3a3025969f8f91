"""Help teaches by example and answers at once."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from fedtailor.cli import app

HEAVY = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "pydantic"}


def commands(command: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command, as the words one types."""
    inner = getattr(command, "commands", {})
    return [path, *(found for name, one in inner.items() for found in commands(one, (*path, name)))]


@pytest.mark.parametrize("program", ["import fedtailor", "from fedtailor.__main__ import main; main(['--help'])"])
def test_nothing_heavy_is_imported_before_it_is_needed(program: str, environment: dict[str, str]) -> None:
    asked = f"{program}; import sys; print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    "words",
    ["show RUN", "show RUN --clients --json", "show RUN --profile", "list RUNS", "list RUNS --json", "diff RUN RUN"],
)
def test_what_only_reads_a_run_imports_nothing_heavy(finished: Path, environment: dict[str, str], words: str) -> None:
    places = {"RUN": str(finished), "RUNS": str(finished.parent)}
    arguments = [places.get(word, word) for word in words.split()]
    asked = f"import sys; from fedtailor.__main__ import main; code = main({arguments!r}); "
    asked += f"print(code, sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr.strip() == "0 []"
    assert len(done.stdout) > 5


@pytest.mark.parametrize("words", commands(typer.main.get_command(app)), ids=" ".join)
def test_every_command_ends_its_help_with_an_example(call, words: tuple[str, ...]) -> None:
    done = call(*words, "--help")
    assert done.code == 0
    last = done.out.strip().rpartition("\n\n")[2]
    assert "Example: fedtailor" in " ".join(done.out.strip().splitlines()[-3:]), last


# The examples in the order in which a user could type them; each finds what earlier ones wrote.
STORY = (
    *("version", "doctor", "methods", "models", "new", "data list", "data show", "data get", "data deal", "data"),
    *("devices", "run", "resume", "show", "list", "draw", "report", "track", "dashboard", "export", "predict"),
    *("pretrain", "adapt", "diff", "prune", "compare", "tune", "advise", "reproduce", ""),
    *("keys init", "keys add", "serve", "join", "keys"),
    *("keys request", "keys approve", "keys revoke", "keys audit"),
)
CHEAP = ["--engine", "inline", "--set", "rounds=1", "--set", "data.samples=240", "--set", "training.epochs=1"]
SMALL = "[data]\nclients = 4\nsamples = 240\n"


def examples(command: object, words: str) -> list[list[str]]:
    """The commands in the example of a command's help, without 'fedtailor'."""
    for word in words.split():
        command = command.commands[word]  # type: ignore[attr-defined]
    return [part.split()[1:] for part in (command.epilog or "").removeprefix("Example: ").split(", then: ")]


def test_every_example_runs(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what needs a network is replaced: downloads, and the two ends of a federation."""
    from fedtailor.data import downloads
    from fedtailor.flower.coordinator import serving
    from fedtailor.flower.node import joining
    from fedtailor.runs import Run
    from fedtailor.views.dashboard import server

    reached: list[str] = []
    monkeypatch.setattr(downloads, "get", lambda name, *_: reached.append(f"get {name}") or [])
    monkeypatch.setattr(joining, "join", lambda *_, **options: reached.append(f"join {options['keys']}"))
    monkeypatch.setattr(serving, "serve", lambda *_, **options: reached.append("serve") or Run("runs/experiment"))
    monkeypatch.setattr(server.Dashboard, "serve_forever", lambda _: reached.append("dashboard"))
    (tmp_path / "recipes").symlink_to(Path(__file__).parents[2] / "recipes")
    app_command = typer.main.get_command(app)
    assert {" ".join(words) for words in commands(app_command)} == set(STORY)
    for words in STORY:
        for example in examples(app_command, words):
            if "FINGERPRINT" in example:  # the one that the node's owner tells
                told = call("keys", "request", "told", "--json")
                shutil.copy(tmp_path / "told" / "node.pub", tmp_path / "my-key" / "node.pub")
                example = [json.loads(told.out)["fingerprint"] if w == "FINGERPRINT" else w for w in example]
            cheap = CHEAP if example[0] in ("run", "compare", "pretrain", "tune", "advise") else []
            done = call(*example, *cheap)
            assert done.code == 0, (example, done.err)
            if example[:1] == ["new"]:
                (tmp_path / "experiment.toml").write_text(SMALL)
            if example[:1] == ["compare"]:  # another comparison of the same name has other settings
                shutil.rmtree(tmp_path / "runs" / "experiment-comparison")
            if example[:1] == ["run"]:  # the name of the template's run, which other examples are about
                call("run", "experiment.toml", *CHEAP)
    assert reached == ["get mnist", "dashboard", "serve", "join keys/nodes/anna"]


def test_without_a_command_the_help_is_shown(call) -> None:
    for words in ((), ("data",)):
        done = call(*words)
        assert done.code == 0
        assert "Usage: fedtailor" in done.out
        assert done.err == ""


def test_version(call) -> None:
    from fedtailor.version import __version__

    assert call("--version").out == call("version").out == f"fedtailor {__version__}\n"


def test_a_new_experiment_is_valid_with_every_line_it_suggests(call, tmp_path: Path) -> None:
    from fedtailor.runs import experiment

    assert call("new").code == 0
    text = (tmp_path / "experiment.toml").read_text()
    head, _, body = text.partition("\n\n")
    assert head.startswith("#")
    assert experiment(tmp_path / "experiment.toml").method.name == "fedper"
    own = ('# source = "folder"', "# folder", "# label")  # of own data, in place of the line above them
    lines = [line.removeprefix("# ") for line in body.splitlines() if not line.startswith(own)]
    (tmp_path / "all.toml").write_text("\n".join(lines))
    assert experiment(tmp_path / "all.toml").participation.dropout == 0.1


def test_a_new_experiment_replaces_nothing(call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("rounds = 3")
    done = call("new", "mine.toml")
    assert done.code == 2
    assert done.err.startswith("error: mine.toml exists")
    assert (tmp_path / "mine.toml").read_text() == "rounds = 3"
