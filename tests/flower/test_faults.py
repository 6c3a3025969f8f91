"""What goes wrong in a federation: the others finish the round, and the result is that of a simulation with the same
drop-outs, bit for bit.

A node that is killed and comes back, and a key that is revoked, run always; the rest with `make test-federation`.
"""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.flower import audit, keys
from fedtailor.flower.coordinator import engine
from fedtailor.flower.coordinator.link import Link
from fedtailor.flower.coordinator.serving import serve_on
from fedtailor.flower.keys import ServerKeys
from fedtailor.runs import Experiment
from fedtailor.runs.store import Store
from tests.support.federation import HOST, Place, kill, outcome, place, settings, simulate
from tests.support.processes import free_port
from tests.support.waiting import PATIENCE, wait_until

DEADLINE = 40.0
VICTIM = "client-1"


def experiment(rounds: int, **engine: Any) -> Experiment:
    return settings(
        "tests.support.misbehaving:Misbehaving",
        rounds=rounds,
        data={"clients": 3, "samples": 300},
        evaluation={"every": 0, "final": False},
        engine={"deadline": DEADLINE, **engine},
    )


class Federation:
    """Three nodes, each with a folder whose files say how it misbehaves."""

    def __init__(self, here: Place, link: Link, made: Experiment):
        self.here, self.link, self.made = here, link, made
        self.processes = {node: self.join(node) for node in here.nodes}

    def join(self, node: str, port: int | None = None) -> "subprocess.Popen[bytes]":
        orders = self.orders(node)
        orders.mkdir(exist_ok=True)
        paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        more = ("--allow", "tests.support.misbehaving:Misbehaving")
        return self.here.join(node, port or self.link.port, *more, MISBEHAVE=str(orders), PYTHONPATH=paths)

    def orders(self, node: str) -> Path:
        return self.here.folder / f"orders-{node}"

    def order(self, what: str, node: str = VICTIM) -> Path:
        file = self.orders(node) / what
        file.touch()
        return file

    def await_holding(self, where: str, node: str = VICTIM) -> None:
        wait_until((self.orders(node) / f"holding-{where}").exists, f"{node} at {where}")

    def serve(
        self, folder: Path, meanwhile: Callable[[], None], say: Callable[[str], None] = lambda sentence: None
    ) -> None:
        """Run the experiment; ``meanwhile`` happens beside it."""
        failed: list[BaseException] = []

        def guarded() -> None:
            try:
                meanwhile()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        serve_on(self.link, self.made, folder, say=say).close()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert not failed, failed

    def committed(self, folder: Path) -> int:
        if not folder.exists():
            return 0
        with Store(folder) as store:
            return len(store.rows("SELECT round FROM rounds"))


def absences(folder: Path) -> list[tuple[int, int]]:
    with Store(folder) as store:
        return [(row["round"], row["client"]) for row in store.rows("SELECT round, client FROM events ORDER BY id")]


def assert_replayed(made: Experiment, folder: Path, tmp_path: Path) -> None:
    """The simulation with the same drop-outs gives the same server, bit for bit."""
    participation = made.participation.model_copy(update={"absent": tuple(absences(folder))})
    simulate(made.model_copy(update={"participation": participation}), tmp_path / "replayed").close()
    ours, theirs = outcome(folder), outcome(tmp_path / "replayed")
    assert ours["state"] == theirs["state"]
    assert ours["state"]


@pytest.fixture
def federation(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Federation]:
    made = experiment(getattr(request, "param", 3))
    with place(tmp_path, made) as here, Link(HOST, 0, ServerKeys(here.keys), 2**26) as link:
        yield Federation(here, link, made)


class Incidents:
    """Three rounds: client 1 is killed in round 2 and comes back, the key of client 2 is revoked in round 3."""

    def __init__(self, folder: Path):
        self.run, self.made, self.folder = folder / "run", experiment(3, deadline=PATIENCE), folder
        self.said: list[str] = []
        with (
            place(folder, self.made) as here,
            Link(HOST, 0, ServerKeys(here.keys), 2**26, self.said.append) as link,
        ):
            self.keys, self.federation = here.keys, Federation(here, link, self.made)
            self.mark = keys.fingerprint(ServerKeys(here.keys).public_keys()["client-2"])
            self.federation.order("hold-fit-2")
            self.federation.order("hold-fit-3", "client-2")
            self.federation.serve(self.run, self._happen, self.said.append)
            self.code = self.federation.processes["client-2"].wait(PATIENCE)
            self.node_said = here.said("client-2.log")

    def _happen(self) -> None:
        self.federation.await_holding("fit-2")
        self.federation.processes[VICTIM].kill()  # its other programs notice, as when memory runs out
        (self.federation.orders(VICTIM) / "hold-fit-2").unlink()
        self.federation.processes[VICTIM].wait()
        self.federation.processes[VICTIM] = self.federation.join(VICTIM)
        self.federation.await_holding("fit-3", "client-2")
        keys.revoke(self.keys, "client-2")
        wait_until(lambda: "the key of client-2 is not valid any more" in self.said, "the revocation")
        (self.federation.orders("client-2") / "hold-fit-3").unlink()


@pytest.fixture(scope="module")
def incidents(tmp_path_factory: pytest.TempPathFactory) -> Incidents:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "RETURN_TIMEOUT", PATIENCE)  # no load makes the node too late
        return Incidents(tmp_path_factory.mktemp("incidents"))


def test_a_node_that_is_killed_and_comes_back_misses_nothing(incidents: Incidents) -> None:
    assert absences(incidents.run) == [(3, 2)], "the event is not that of the revoked key alone"
    assert any("client-1 was lost while it worked" in sentence for sentence in incidents.said)
    assert "client-1 is back and receives its tasks again" in incidents.said
    assert_replayed(incidents.made, incidents.run, incidents.folder)


def test_the_answer_of_a_key_that_was_revoked_in_the_round_is_refused(incidents: Incidents) -> None:
    with Store(incidents.run) as store:
        (event,) = store.rows("SELECT * FROM events")
        assert store.meta("finished")
    assert (event["round"], event["client"], event["detail"]) == (3, 2, "its key is not valid any more")
    assert incidents.code == 2
    assert "the coordinator does not know this node's key" in incidents.node_said
    log = audit.verified(incidents.keys / audit.FILE)
    revoked = next(number for number, line in enumerate(log) if line["event"] == "revoked")
    assert (log[revoked]["who"], log[revoked]["key"]) == ("client-2", incidents.mark)
    refused = [line for line in log[revoked:] if line["event"] == "refused" and line["key"] == incidents.mark]
    assert refused, "the audit log does not say that the node was refused"
    assert refused[0]["reason"] == "has a key that is not registered"


@pytest.mark.slow
@pytest.mark.parametrize("federation", [2], indirect=True)
def test_a_node_that_dies_while_it_trains_is_left_out(federation: Federation, tmp_path: Path) -> None:
    federation.order("hold-fit-2")

    def meanwhile() -> None:
        federation.await_holding("fit-2")
        kill(federation.processes[VICTIM])

    federation.serve(tmp_path / "run", meanwhile)
    assert absences(tmp_path / "run") == [(2, 1)]
    assert_replayed(federation.made, tmp_path / "run", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("federation", [20], indirect=True)
@pytest.mark.parametrize("where", ["before", "fit", "upload"])
def test_a_node_that_died_comes_back_with_a_consistent_state(
    federation: Federation, where: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    if where != "before":
        federation.order(f"hold-{where}-2")

    def meanwhile() -> None:
        if where == "before":
            wait_until(lambda: federation.committed(run) >= 1, "round 1")
        else:
            federation.await_holding(f"{where}-2")
        kill(federation.processes[VICTIM])
        for file in federation.orders(VICTIM).iterdir():
            file.unlink()
        federation.processes[VICTIM] = federation.join(VICTIM)

    federation.serve(run, meanwhile)
    missed = absences(run)
    assert missed, "the death was not noticed"
    assert {client for _, client in missed} == {1}
    assert max(round for round, _ in missed) < 20, "it did not come back"
    assert_replayed(federation.made, run, tmp_path)


@pytest.mark.slow
def test_a_slow_node_misses_its_round_and_no_other(federation: Federation, tmp_path: Path) -> None:
    held = federation.order("hold-fit-2")

    def meanwhile() -> None:
        federation.await_holding("fit-2")
        wait_until(lambda: federation.committed(tmp_path / "run") >= 2, "a round without it")
        held.unlink()

    federation.serve(tmp_path / "run", meanwhile)
    assert absences(tmp_path / "run")[0] == (2, 1)
    with Store(tmp_path / "run") as store:
        assert "no answer within 40 s" in store.rows("SELECT detail FROM events")[0]["detail"]
    assert_replayed(federation.made, tmp_path / "run", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("lie", "reason"), [("nan", "not finite"), ("shape", "expected")])
def test_a_node_that_sends_nonsense_is_left_out(federation: Federation, lie: str, reason: str, tmp_path: Path) -> None:
    federation.order(f"{lie}-2")
    federation.serve(tmp_path / "run", lambda: None)
    assert absences(tmp_path / "run") == [(2, 1)]
    with Store(tmp_path / "run") as store:
        assert reason in store.rows("SELECT detail FROM events")[0]["detail"]
    assert_replayed(federation.made, tmp_path / "run", tmp_path)


class Cable:
    """A connection to the coordinator that can be cut."""

    def __init__(self, port: int):
        self.target, self.cut = port, threading.Event()
        self._door = socket.create_server((HOST, 0))
        self.port: int = self._door.getsockname()[1]
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            if self.cut.is_set():
                near.close()
                continue
            far = socket.create_connection((HOST, self.target))
            self._ends += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                if self.cut.is_set():
                    break
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                end.close()

    def sever(self) -> None:
        self.cut.set()
        for end in self._ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self._ends = []

    def mend(self) -> None:
        self.cut.clear()

    def close(self) -> None:
        self.cut.set()
        self._door.close()


@pytest.mark.slow
def test_a_cut_of_twenty_seconds_is_survived(federation: Federation, tmp_path: Path) -> None:
    cable = Cable(federation.link.port)
    wait_until(lambda: len(federation.link.nodes()) == 3, "three nodes")
    kill(federation.processes[VICTIM])
    federation.processes[VICTIM] = federation.join(VICTIM, cable.port)
    federation.order("hold-fit-2")
    try:

        def meanwhile() -> None:
            federation.await_holding("fit-2")
            cable.sever()
            federation.order("hold-upload-2")
            (federation.orders(VICTIM) / "hold-fit-2").unlink()
            federation.await_holding("upload-2")
            (federation.orders(VICTIM) / "hold-upload-2").unlink()  # the answer is ready while the cable is cut
            time.sleep(20)
            cable.mend()

        federation.serve(tmp_path / "run", meanwhile)
    finally:
        cable.close()
    assert federation.committed(tmp_path / "run") == 3
    assert_replayed(federation.made, tmp_path / "run", tmp_path)


@pytest.mark.slow
def test_a_killed_coordinator_resumes_from_its_last_round(tmp_path: Path) -> None:
    made = settings(
        "tests.support.misbehaving:Misbehaving", rounds=4, data={"clients": 3, "samples": 300}, evaluation={"every": 2}
    )
    simulate(made, tmp_path / "uninterrupted")
    port = free_port()
    with place(tmp_path, made) as here:
        from fedtailor.runs import toml

        (tmp_path / "experiment.toml").write_text(toml.dumps({**made.as_dict(), "name": "run"}))
        paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])

        def serve() -> "subprocess.Popen[bytes]":
            command = ("serve", "experiment.toml", "--keys", "keys", "--host", HOST, "--port", str(port), "--out", ".")
            return here.fedtailor(*command, log="serve.log", PYTHONPATH=paths)

        first = serve()
        for node in here.nodes:
            orders = tmp_path / f"orders-{node}"
            orders.mkdir()
            here.join(
                node, port, "--allow", "tests.support.misbehaving:Misbehaving", MISBEHAVE=str(orders), PYTHONPATH=paths
            )
        (tmp_path / f"orders-{VICTIM}" / "hold-fit-3").touch()
        wait_until((tmp_path / f"orders-{VICTIM}" / "holding-fit-3").exists, "round 3")
        kill(first)
        (tmp_path / f"orders-{VICTIM}" / "hold-fit-3").unlink()
        again = serve()
        assert again.wait(PATIENCE) == 0, here.said("serve.log")
        with Store(tmp_path / "run") as store:
            assert [row["round"] for row in store.rows("SELECT round FROM rounds ORDER BY round")] == [1, 2, 3, 4]
            assert store.rows("SELECT * FROM events") == []
    assert outcome(tmp_path / "run") == outcome(tmp_path / "uninterrupted")
