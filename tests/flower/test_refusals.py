"""Who may not take part gets a clear answer, the coordinator hears of it, and nothing changes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.errors import UserError
from fedtailor.flower import keys
from fedtailor.flower.coordinator.link import Link
from fedtailor.flower.coordinator.serving import federated
from fedtailor.runs import Experiment
from tests.support.federation import HOST, Place, end, place, settings
from tests.support.waiting import PATIENCE, wait_until


class Coordinator:
    """A coordinator: its link, and the refusals that it reports."""

    def __init__(self, here: Place, link: Link, refused: list[str]):
        self.here, self.link, self.refused = here, link, refused

    def join(self, node: str, folder: str, *more: str) -> tuple[int, str]:
        """The exit code and the words of a node with the keys in a folder."""
        process = self.here.fedtailor(
            *("join", "--coordinator", f"{HOST}:{self.link.port}", "--data", "clients/client-0.npz"),
            *("--state", f"state/{node}", *(["--keys", folder] if folder else []), *more),
            log=f"{node}.log",
        )
        code = process.wait(PATIENCE)
        return code, self.here.said(f"{node}.log")


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    refused: list[str] = []
    folder = tmp_path_factory.mktemp("refusals")
    with (
        place(folder, settings()) as here,
        Link(HOST, 0, keys.ServerKeys(here.keys), 2**26, refused.append) as link,
    ):
        yield Coordinator(here, link, refused)


def wait_for_refusal(coordinator: Coordinator, words: str) -> None:
    wait_until(lambda: any(words in sentence for sentence in coordinator.refused), f"a refusal with {words!r}")


def test_a_node_that_is_not_registered(coordinator: Coordinator) -> None:
    shutil.copytree(coordinator.here.keys, coordinator.here.folder / "later")
    keys.add(
        coordinator.here.folder / "later", "stranger"
    )  # of the same authority, but the coordinator does not know it
    code, said = coordinator.join("stranger", "later/nodes/stranger")
    assert code == 2
    assert "error: the coordinator does not know this node's key" in said
    assert "Traceback" not in said
    wait_for_refusal(coordinator, "a key that is not registered")
    assert coordinator.link.nodes() == []


def test_a_node_of_another_authority(coordinator: Coordinator) -> None:
    keys.init(coordinator.here.folder / "others", [HOST], ["client-0"])
    code, said = coordinator.join("other", "others/nodes/client-0")
    assert code == 2
    assert "is not the coordinator of these keys" in said
    wait_for_refusal(coordinator, "authority")
    assert coordinator.link.nodes() == []


def test_a_node_without_tls(coordinator: Coordinator) -> None:
    code, said = coordinator.join("plain", "", "--insecure", "--name", "plain")
    assert code == 2
    assert "warning: --insecure" in said
    assert "does not answer without TLS" in said
    wait_for_refusal(coordinator, "it does not speak TLS")
    assert coordinator.link.nodes() == []


def test_a_key_is_good_for_one_node_at_a_time(coordinator: Coordinator) -> None:
    first = coordinator.here.join("client-0", coordinator.link.port)
    wait_until(lambda: len(coordinator.link.nodes()) == 1, "the first node's connection")
    (node,) = coordinator.link.nodes()
    second = coordinator.here.fedtailor(
        *("join", "--coordinator", f"{HOST}:{coordinator.link.port}", "--keys", "keys/nodes/client-0"),
        *("--data", "clients/client-1.npz", "--state", "state/thief"),
        log="thief.log",
    )
    wait_until(lambda: "still regards this node as connected" in coordinator.here.said("thief.log"), "a refusal")
    wait_for_refusal(coordinator, "Flower refused it")
    assert coordinator.link.nodes() == [node]
    assert first.poll() is None
    end(second)
    end(first)


def test_two_nodes_do_not_share_a_folder(coordinator: Coordinator, tmp_path: Path) -> None:
    first = coordinator.here.fedtailor(
        *("join", "--coordinator", f"{HOST}:1", "--keys", "keys/nodes/client-1"),
        *("--data", "clients/client-1.npz", "--state", "state/shared"),
        log="first.log",
    )
    wait_until(lambda: "waiting for the coordinator" in coordinator.here.said("first.log"), "the first node's start")
    code, said = coordinator.join("shared", "keys/nodes/client-2")
    assert code == 2
    assert "in use by another node" in said
    end(first)
    assert first.returncode == 0


def test_clients_on_machines_of_their_own_do_not_train_together() -> None:
    def made(together: str) -> Experiment:
        return federated(settings("fedavg", training={"together": together}))

    assert made("auto").training.together == made("off").training.together == "off"
    with pytest.raises(UserError, match=r"training\.together = 'on': the clients of a federation train on machines"):
        made("on")
