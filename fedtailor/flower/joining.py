"""Take part in a federation: a node's process, which does the work and keeps a SuperNode running."""

import fcntl
import http.client
import os
import secrets
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedtailor.errors import UserError
from fedtailor.flower import programs
from fedtailor.flower.gateway import UNKNOWN_KEY
from fedtailor.flower.keys import NodeKeys
from fedtailor.flower.node import Node, listen

PATIENCE = 150.0  # seconds for which Flower may take this node for one that is still connected
ALREADY = "[code: 2004]"  # what Flower answers to a key that it takes for connected
WAITS = (1.0, 2.0, 4.0, 8.0, 15.0)  # seconds before another try


class Refused(UserError):
    """The coordinator does not let this node take part."""


def join(
    coordinator: str,
    data: str,
    folder: Path,
    *,
    name: str | None = None,
    keys: Path | None = None,
    device: str = "cpu",
    allowed: tuple[str, ...] = (),
    once: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> None:
    """Take part until told to stop, or, with ``once``, until a run is finished."""
    programs.require()
    host, port = _address(coordinator)
    held = None if keys is None else NodeKeys(keys)
    called = name or (keys.resolve().name if keys else socket.gethostname())
    node = Node(called, data, folder, device=device, allowed=allowed, say=say)
    with _alone(folder), _stopping() as stop:
        say(f"{called}: {len(node.samples):,} samples, which stay here; states in {folder}")
        home = Path(tempfile.mkdtemp(prefix="fedtailor-"))
        keeper = _Keeper(host, port, held, home, stop, say)
        try:
            keeper.start()
            listen(node, keeper.socket, lambda: stop.is_set() or (once and node.finished))
        finally:
            stop.set()
            keeper.join()
            shutil.rmtree(home, ignore_errors=True)
        if keeper.refusal is not None:
            raise keeper.refusal


class _Keeper(threading.Thread):
    """Keeps a SuperNode running, starts it again when it has ended, and says what is wrong."""

    def __init__(
        self,
        host: str,
        port: int,
        keys: NodeKeys | None,
        home: Path,
        stop: threading.Event,
        say: Callable[[str], None],
    ):
        super().__init__(daemon=True)
        self.host, self.port, self.keys, self.home, self.stop, self.say = host, port, keys, home, stop, say
        self.socket = home / "node.sock"
        self.refusal: Refused | None = None

    def run(self) -> None:
        try:
            self._keep()
        except Refused as refusal:
            self.refusal = refusal
        finally:
            self.stop.set()

    def _keep(self) -> None:
        tries, refused_since = 0, None
        while not self.stop.is_set():
            if self._reach():
                began = time.monotonic()
                reason = self._one_supernode()
                if self.stop.is_set():
                    return
                if f"'{UNKNOWN_KEY} " in reason:
                    raise Refused("the coordinator does not know this node's key: is it in the coordinator's --keys?")
                if ALREADY in reason:
                    refused_since = refused_since or began
                    if time.monotonic() - refused_since > PATIENCE:
                        raise Refused("another node takes part with this key: every node needs a key of its own")
                    self.say("the coordinator still takes this node for connected; trying again")
                else:
                    self.say(f"the connection ended ({_line(reason)}); trying again")
                if time.monotonic() - began > 2 * max(WAITS):
                    tries, refused_since = 0, None
            self.stop.wait(WAITS[min(tries, len(WAITS) - 1)])
            tries += 1

    def _reach(self) -> bool:
        """Whether somebody answers who is the coordinator, as far as can be told."""
        try:
            with socket.create_connection((self.host, self.port), 10) as plain:
                if self.keys is not None:
                    context = ssl.create_default_context(cafile=str(self.keys.authority))
                    context.wrap_socket(plain, server_hostname=self.host).close()
                    return True
            return self._speaks_http()
        except ssl.SSLCertVerificationError as error:
            raise Refused(
                f"{self.host}:{self.port} is not the coordinator of these keys ({error.verify_message}): "
                "check the address and ca.pem"
            ) from None
        except ssl.SSLError:
            raise Refused(f"{self.host}:{self.port} does not speak TLS: is that the coordinator's address?") from None
        except OSError as error:
            self.say(f"waiting for the coordinator at {self.host}:{self.port} ({error.strerror or error})")
            return False

    def _speaks_http(self) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        try:
            connection.request("POST", "/v1/fleet/", b"", {"Content-Length": "0"})
            connection.getresponse().read()
            return True
        except (http.client.HTTPException, ConnectionResetError):
            raise Refused(
                f"{self.host}:{self.port} does not answer without TLS: join with --keys, not with --insecure"
            ) from None
        finally:
            connection.close()

    def _one_supernode(self) -> str:
        """Run a SuperNode until it ends; why it did."""
        log = self.home / "supernode.log"
        log.unlink(missing_ok=True)
        secret = self.home / "secret"
        secret.touch(0o600)
        secret.write_bytes(secrets.token_bytes(32))
        port = programs.free_port()
        command = ["flower-supernode", "--superlink", f"{self.host}:{self.port}"]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        command += ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
        command += ["--node-config", f'socket="{self.socket}"']
        if self.keys is None:
            command.append("--insecure")
        else:
            command += ["--root-certificates", str(self.keys.authority.resolve())]
            command += ["--auth-supernode-private-key", str(self.keys.key.resolve())]
        program = programs.Program(command, self.home, log)
        connected, executor = False, None
        try:
            while not program.ended and not self.stop.is_set() and not (executor and executor.ended):
                if executor is None and _open(port):
                    own = [sys.executable, "-m", "fedtailor.flower.executor", f"127.0.0.1:{port}"]
                    executor = programs.Program(
                        [*own, str(secret), str(os.getpid())], self.home, self.home / "executor.log"
                    )
                if not connected and "SuperNode ID" in program.said(50):
                    connected = True
                    self.say(f"connected to {self.host}:{self.port}")
                self.stop.wait(0.2)
            return program.said(60)
        finally:
            program.stop()
            if executor is not None:
                executor.stop()


def _open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one process at a time uses a folder of states."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UserError(f"{folder} cannot be used: {error.strerror}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{folder} is in use by another node: name another folder with --state") from None
        yield
    finally:
        os.close(handle)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Set by Ctrl-C and SIGTERM."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {n: signal.signal(n, lambda *_: stop.set()) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(f"--coordinator {text!r}: write HOST:PORT, as in coordinator.example:8000")
    return host.strip("[]"), int(port)


def _line(text: str) -> str:
    """The most telling line of a log."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    coded = [line for line in lines if "code:" in line or "Error" in line or "error" in line]
    return (coded or lines or ["no reason given"])[-1][:200]
