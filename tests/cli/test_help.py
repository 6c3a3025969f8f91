"""Help teaches by example and answers at once."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer

from fedtailor.cli import app

HEAVY = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "pydantic"}


def commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command, as the words one types."""
    inner = getattr(command, "commands", {})
    return [path, *(found for name, one in inner.items() for found in commands(one, (*path, name)))]


@pytest.mark.parametrize("program", ["import fedtailor", "from fedtailor.__main__ import main; main(['--help'])"])
def test_nothing_heavy_is_imported_before_it_is_needed(program: str, environment: dict[str, str]) -> None:
    asked = f"{program}; import sys; print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("words", commands(typer.main.get_command(app)), ids=" ".join)
def test_every_command_ends_its_help_with_an_example(call, words: tuple[str, ...]) -> None:
    done = call(*words, "--help")
    assert done.code == 0
    last = done.out.strip().rpartition("\n\n")[2]
    assert "Example: fedtailor" in " ".join(done.out.strip().splitlines()[-3:]), last


def test_examples_use_options_that_exist() -> None:
    command = typer.main.get_command(app)
    for words in commands(command):
        one: click.Command = command
        for word in words:
            one = one.commands[word]  # type: ignore[attr-defined]
        example = (one.epilog or "").removeprefix("Example: fedtailor ").partition(", then:")[0].split()
        target: click.Command = command
        while example and example[0] in getattr(target, "commands", {}):
            target = target.commands[example.pop(0)]  # type: ignore[attr-defined]
        known = {option for param in target.params for option in param.opts}
        assert {word for word in example if word.startswith("--")} <= known, (words, example)


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
    lines = [line.removeprefix("# ") for line in body.splitlines()]
    (tmp_path / "all.toml").write_text("\n".join(lines))
    assert experiment(tmp_path / "all.toml").participation.dropout == 0.1


def test_a_new_experiment_replaces_nothing(call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("rounds = 3")
    done = call("new", "mine.toml")
    assert done.code == 2
    assert done.err.startswith("error: mine.toml exists")
    assert (tmp_path / "mine.toml").read_text() == "rounds = 3"
