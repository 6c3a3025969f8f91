"""A coordinator that sends an app of its own: the node runs nothing of it, and says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.flower import programs
from tests.support.attacks import evil_app, submit
from tests.support.federation import HOST, Place, place, settings
from tests.support.processes import answers, free_port, listening_ports
from tests.support.waiting import wait_until


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    with place(tmp_path, settings(data={"clients": 1, "samples": 60})) as made:
        yield made


def test_a_node_does_not_run_the_code_of_another_app(here: Place, tmp_path: Path) -> None:
    port, home = free_port(), tmp_path / "flower"
    home.mkdir()
    command = ["flower-superlink", "--insecure", "--host", HOST, "--port", str(port)]
    superlink = programs.Program("SuperLink", command, home, tmp_path / "superlink.log")
    try:
        wait_until(lambda: answers(port), "the SuperLink")
        here.fedtailor(
            *("join", "--insecure", "--coordinator", f"{HOST}:{port}", "--name", "anna"),
            *("--data", "clients/client-0.npz", "--state", "state"),
            log="anna.log",
        )
        assert submit(evil_app(tmp_path), port=port)
        wait_until((tmp_path / "reply").exists, "the node's answer")
        assert (tmp_path / "ran-on-the-coordinator").exists()  # the app works
        assert "this node runs the app of FedTailor only" in (tmp_path / "reply").read_text()
        assert not (tmp_path / "ran-on-the-node").exists()
        assert set(listening_ports()) == {port}  # the coordinator's; nobody can take a port before the node does
    finally:
        superlink.stop()
