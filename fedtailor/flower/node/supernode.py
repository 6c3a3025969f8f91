"""Keeps a SuperNode running: Flower's program that connects a node to its coordinator."""

import http.client
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fedtailor.errors import UserError
from fedtailor.flower import programs, sockets
from fedtailor.flower.keys import NodeKeys
from fedtailor.flower.protocol import FLEET_PATH, UNKNOWN_KEY_STATUS

STALE_TIMEOUT = 150.0  # seconds for which Flower may still regard this node's last connection as open
ALREADY_CONNECTED = "[code: 2004]"  # Flower's answer to a key that it regards as connected
RETRY_DELAYS = (1.0, 2.0, 4.0, 8.0, 15.0)  # seconds before the next attempt
POLL = 0.2  # seconds between two looks at the programs


class Refused(UserError):
    """The coordinator does not let this node take part."""


class SuperNodeThread(threading.Thread):
    """Runs a SuperNode, restarts it when it ends, and reports what is wrong.

    Parameters
    ----------
    host, port : str, int
        The coordinator's address.
    keys : NodeKeys or None
        The node's keys; without keys there is no TLS.
    home : Path
        A private folder for sockets and logs; `socket` in it is where the node must listen.
    stop : threading.Event
        Ends the thread when set. The thread sets it itself when the coordinator refuses the node; `refusal` says why.
    say : callable
        Receives a sentence about the connection.
    """

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
            self._keep_running()
        except Refused as refusal:
            self.refusal = refusal
        finally:
            self.stop.set()

    def _keep_running(self) -> None:
        attempts, refused_since = 0, None
        while not self.stop.is_set():
            if self._coordinator_answers():
                began = time.monotonic()
                reason = self._run_supernode()
                if self.stop.is_set():
                    return
                if f"'{UNKNOWN_KEY_STATUS} " in reason:
                    raise Refused("the coordinator does not know this node's key: is it in the coordinator's --keys?")
                if ALREADY_CONNECTED in reason:
                    refused_since = refused_since or began
                    if time.monotonic() - refused_since > STALE_TIMEOUT:
                        raise Refused("another node takes part with this key: every node needs a key of its own")
                    self.say("the coordinator still regards this node as connected; trying again")
                else:
                    self.say(f"the connection ended ({_error_line(reason)}); trying again")
                if time.monotonic() - began > 2 * max(RETRY_DELAYS):
                    attempts, refused_since = 0, None
            self.stop.wait(RETRY_DELAYS[min(attempts, len(RETRY_DELAYS) - 1)])
            attempts += 1

    def _coordinator_answers(self) -> bool:
        """Return whether the coordinator can be reached; raise `Refused` if something else answers."""
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
            connection.request("POST", FLEET_PATH, b"", {"Content-Length": "0"})
            connection.getresponse().read()
            return True
        except (http.client.HTTPException, ConnectionResetError):
            raise Refused(
                f"{self.host}:{self.port} does not answer without TLS: join with --keys, not with --insecure"
            ) from None
        finally:
            connection.close()

    def _run_supernode(self) -> str:
        """Run a SuperNode and our executor until one of them ends; return the last lines of the SuperNode's log."""
        log, path = self.home / "supernode.log", self.home / "supernode.sock"
        log.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        supernode = programs.Program("Flower's SuperNode", self._command(path), self.home, log)
        connected, executor = False, None
        try:
            while not supernode.ended and not self.stop.is_set() and not (executor and executor.ended):
                if executor is None and sockets.answers(path):
                    executor = self._start_executor(path)
                if not connected and "SuperNode ID" in supernode.last_lines(50):
                    connected = True
                    self.say(f"connected to {self.host}:{self.port}")
                self.stop.wait(POLL)
            return supernode.last_lines(60)
        finally:
            supernode.stop()
            if executor is not None:
                executor.stop()

    def _command(self, path: Path) -> list[str]:
        command = [sys.executable, "-m", "fedtailor.flower.node.supernode_program", str(path)]
        command += ["--superlink", f"{self.host}:{self.port}", "--isolation", "process"]
        command += ["--node-config", f'socket="{self.socket}"']
        if self.keys is None:
            return [*command, "--insecure"]
        command += ["--root-certificates", str(self.keys.authority.resolve())]
        return [*command, "--auth-supernode-private-key", str(self.keys.key.resolve())]

    def _start_executor(self, path: Path) -> programs.Program:
        command = [sys.executable, "-m", "fedtailor.flower.node.executor", str(path), str(os.getpid())]
        return programs.Program("the executor", command, self.home, self.home / "executor.log")


def _error_line(text: str) -> str:
    """Return the last line of a log that names an error, or the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "code:" in line or "Error" in line or "error" in line]
    return (errors or lines or ["no reason given"])[-1][:200]
