"""The commands of a federation with bad input: one sentence, exit code 2, nothing written."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.__main__ import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("serve", "name the folder of keys with --keys"),
        ("serve --keys none", "none/ca.pem does not exist"),
        ("serve missing.toml --insecure", "missing.toml does not exist"),
        ("join --coordinator x --data a --state s --insecure", "write HOST:PORT"),
        ("join --coordinator x:99999 --data a --state s --insecure", "write HOST:PORT"),
        ("join --coordinator x:1 --data none.npz --state s --insecure", "none.npz is neither"),
        ("join --coordinator x:1 --data os:getcwd --state s --insecure", "gives no data set"),
        ("join --coordinator x:1 --data nowhere:f --state s --insecure", "cannot be called"),
        ("join --coordinator x:1 --data a.npz --state s --keys none", "none/ca.pem does not exist"),
        ("keys init keys --node ../x", "not a name for a node"),
        ("keys init keys --host a/b", "neither a host name nor an address"),
        ("keys add keys anna", "make the keys with"),
        ("run --set engine.kind=flower", "fedtailor serve"),
    ],
)
def test_bad_input_is_one_sentence(command: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert words in said[-1]
    assert list(folder.iterdir()) == []


def test_insecure_is_said_aloud(capsys: pytest.CaptureFixture[str]) -> None:
    main(["join", "--coordinator", "x", "--data", "a", "--state", "s", "--insecure"])
    assert "warning: --insecure" in capsys.readouterr().err


def test_keys_are_made_once_and_are_private(folder: Path) -> None:
    assert main(["keys", "init", "keys", "--host", "example.org", "--node", "anna"]) == 0
    assert main(["keys", "add", "keys", "bert"]) == 0
    assert main(["keys", "init", "keys"]) == 2
    assert main(["keys", "add", "keys", "bert"]) == 2
    for file in ("ca.key", "server.key", "nodes/anna/node.key", "nodes/bert/node.key"):
        assert (folder / "keys" / file).stat().st_mode & 0o077 == 0, file
    for place in ("", "nodes", "nodes/anna", "nodes/bert"):
        assert (folder / "keys" / place).stat().st_mode & 0o077 == 0, place


def test_dealt_clients_are_a_federation_in_a_folder(folder: Path) -> None:
    assert main(["data", "deal", "--set", "data.clients=3", "--set", "data.samples=90", "--out", "clients"]) == 0
    assert len(list((folder / "clients").iterdir())) == 3
    assert main(["data", "deal", "--set", "data.clients=3", "--set", "data.samples=90", "--out", "clients"]) == 2
    again = "data show --set data.source=folder --set data.folder=clients --set data.partition=given"
    assert main([*again.split(), "--set", "data.split=official"]) == 0
