"""Another account, or another app, on the machine of a coordinator: neither reaches Flower."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from flwr.proto.control_pb2 import ListRunsRequest
from flwr.supercore.control import ControlHttpClient

from fedtailor.flower import keys, sockets
from fedtailor.flower.coordinator.link import Link
from tests.support.attacks import as_nobody, evil_app, submit
from tests.support.federation import HOST
from tests.support.processes import answers, listening_ports
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("superlink")
    keys.init(made / "keys", [HOST], ["anna"])
    return made


@pytest.fixture(scope="module")
def link(folder: Path) -> Iterator[Link]:
    with Link(HOST, 0, keys.ServerKeys(folder / "keys"), 2**20) as made:
        yield made


def test_only_the_gateway_has_a_port(link: Link) -> None:
    assert set(listening_ports()) == {link.port}


def test_another_app_is_refused_wherever_it_is_submitted(link: Link, folder: Path) -> None:
    app, authority = evil_app(folder), folder / "keys" / "ca.pem"
    accepted = [
        *(port for port in listening_ports() if submit(app, port=port, authority=authority)),
        *(path for path in link.home.glob("*.sock") if submit(app, path=path)),
    ]
    assert accepted == []
    assert link.nodes() == []  # the run goes on
    assert not list(folder.glob("ran-*"))


def test_of_the_control_interface_only_what_a_start_needs_is_served(link: Link) -> None:
    control = ControlHttpClient.from_server_address("superlink", True, None, [])
    sockets.redirect(control, link.home / "superlink.sock")
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        control.ListRuns(ListRunsRequest())
    control.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another account")
def test_another_account_does_not_reach_the_socket(link: Link) -> None:
    path = link.home / "superlink.sock"
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
    said = subprocess.run(as_nobody(code), capture_output=True, text=True, check=False)
    assert "PermissionError" in said.stderr
    assert path.stat().st_mode & 0o077 == 0
    assert link.home.stat().st_mode & 0o077 == 0


def test_a_gateway_that_ends_is_started_again(folder: Path) -> None:
    said: list[str] = []
    with Link(HOST, 0, keys.ServerKeys(folder / "keys"), 2**20, said.append) as link:
        gateway, port = link._gateway, link.port
        assert gateway is not None
        first = gateway._process
        first.kill()
        wait_until(lambda: gateway._process is not first and answers(port), "the next gateway")
        assert said[0] == "the gateway ended unexpectedly; it is started again"
