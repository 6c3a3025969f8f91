"""A node's own key: requested, approved by its fingerprint, replaced, expired, revoked."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.__main__ import main
from fedtailor.errors import UserError
from fedtailor.flower import keys


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keys.init(tmp_path / "keys", [], ["bert"])
    return tmp_path / "keys"


def test_a_key_is_approved_by_its_fingerprint(folder: Path, tmp_path: Path) -> None:
    mark = keys.request(tmp_path / "anna")
    public = tmp_path / "anna" / "node.pub"
    with pytest.raises(UserError, match="it is not the key that was announced"):
        keys.approve(folder, public, "anna", "SHA256:another", None)
    assert "anna" not in keys.ServerKeys(folder).public_keys()
    keys.approve(folder, public, "anna", mark, None)
    known = keys.ServerKeys(folder).public_keys()
    assert keys.fingerprint(known["anna"]) == mark
    assert not (folder / "nodes" / "anna" / "node.key").exists()
    assert (tmp_path / "anna" / "node.key").stat().st_mode & 0o077 == 0
    with pytest.raises(UserError, match="already holds a key"):
        keys.request(tmp_path / "anna")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_fingerprint_is_that_of_ssh_keygen(tmp_path: Path) -> None:
    mark = keys.request(tmp_path / "anna")
    said = subprocess.run(
        ["ssh-keygen", "-lf", tmp_path / "anna" / "node.pub"], capture_output=True, text=True, check=True
    )
    assert mark in said.stdout.split()


def test_a_key_is_replaced_only_on_demand(folder: Path, tmp_path: Path) -> None:
    before = keys.ServerKeys(folder).public_keys()["bert"]
    mark = keys.request(tmp_path / "bert")
    with pytest.raises(UserError, match="has a key already"):
        keys.approve(folder, tmp_path / "bert" / "node.pub", "bert", mark, None)
    keys.approve(folder, tmp_path / "bert" / "node.pub", "bert", mark, None, replace=True)
    assert keys.ServerKeys(folder).public_keys()["bert"] != before


def test_a_key_expires(folder: Path) -> None:
    expires = folder / "nodes" / "bert" / "expires"
    for text, valid in (("never", True), ("2999-01-01T00:00:00+00:00", True), ("2020-01-01T00:00:00+00:00", False)):
        expires.write_text(text)
        assert ("bert" in keys.ServerKeys(folder).public_keys()) == valid
    expires.write_text("soon")
    with pytest.raises(UserError, match="write 'never' or a time"):
        keys.ServerKeys(folder).public_keys()


def test_the_commands(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "request", str(tmp_path / "anna")]) == 0
    mark = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("SHA256:"))
    command = ["keys", "approve", str(folder), str(tmp_path / "anna" / "node.pub"), "--name", "anna", "--days", "90"]
    assert main([*command, "--fingerprint", mark]) == 0
    assert "anna" in keys.ServerKeys(folder).public_keys()
    assert main(["keys", "revoke", str(folder), "anna"]) == 0
    assert "anna" not in keys.ServerKeys(folder).public_keys()
    assert main(["keys", "revoke", str(folder), "anna"]) == 2
    assert main(["keys", "audit", str(folder)]) == 0  # no coordinator has run: no events
    assert main(["keys", "audit", str(folder / "nowhere")]) == 2
