"""Keeps the gateway running in its own process and reports the connections that it refuses."""

import json
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm

from fedtailor.errors import UserError
from fedtailor.flower import audit, programs
from fedtailor.flower.keys import ServerKeys, fingerprint

MAX_REFUSALS = 60  # in the audit log in a minute: a flood must not fill the disk
RETRY_DELAYS = (0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before the next attempt to start it again


class GatewayProcess:
    """A `gateway` that is started again, on the same port, whenever it ends.

    Parameters
    ----------
    host, port : str, int
        Where nodes connect; port 0 chooses a free one. `port` holds the actual port.
    upstream : Path
        The SuperLink's socket.
    keys : ServerKeys or None
        The certificate and the nodes that may connect; without keys there is no TLS.
    limit : int
        The largest request, in bytes.
    home : Path
        The folder for Flower's own files and the log.
    say : callable
        Receives a sentence for each refusal, once for the same one repeatedly, and when the gateway had to be started
        again.
    """

    def __init__(
        self,
        host: str,
        port: int,
        upstream: Path,
        keys: ServerKeys | None,
        limit: int,
        home: Path,
        say: Callable[[str], None],
    ):
        self.port, self._home, self._say = port, home, say
        self.known = {} if keys is None else keys.public_keys()
        self._audit = None if keys is None else keys.folder / audit.FILE
        self._settings = {"host": host, "upstream": str(upstream), "limit": limit, **_secrets(keys)}
        self._settings["known"] = _encoded(self.known)
        self._refusals = (0, 0)  # the minute, and how many it had
        self._closing = threading.Event()
        self._process = self._start()
        threading.Thread(target=self._supervise, daemon=True).start()

    def set_keys(self, keys: Mapping[str, bytes]) -> None:
        """Admit exactly these keys from now on."""
        self.known = dict(keys)
        self._settings["known"] = _encoded(keys)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it is started again with the new keys
            self._process.stdin.write(json.dumps({"known": self._settings["known"]}) + "\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End the process."""
        self._closing.set()
        _end(self._process)

    def _start(self) -> "subprocess.Popen[str]":
        """Start the gateway, and note the port on which it listens."""
        log = self._home / "gateway.log"
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "fedtailor.flower.coordinator.gateway"],
                env=programs.environment(self._home),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps({**self._settings, "port": self.port}) + "\n")
                process.stdin.flush()
            first = process.stdout.readline()
            if not first:
                reason = (log.read_text(encoding="utf-8").strip().splitlines() or ["no reason given"])[-1]
                place = f"{self._settings['host']}:{self.port}"
                raise UserError(f"cannot listen on {place} ({reason}): choose another --host or --port")
            self.port = json.loads(first)["listening"]
        except BaseException:
            _end(process)
            raise
        return process

    def _supervise(self) -> None:
        """Report refusals; start the gateway again when it ends."""
        while True:
            self._report_refusals()
            if self._closing.is_set():
                return
            _end(self._process)
            self._say("the gateway ended unexpectedly; it is started again")
            for delay in (*RETRY_DELAYS, *[RETRY_DELAYS[-1]] * 10_000):
                if self._closing.wait(delay):
                    return
                try:
                    self._process = self._start()
                    break
                except UserError as error:
                    self._say(str(error))
            if self._closing.is_set():  # closed while it started
                _end(self._process)

    def _report_refusals(self) -> None:
        last = ""
        assert self._process.stdout is not None
        with suppress(ValueError):  # the file is closed
            for line in iter(self._process.stdout.readline, ""):
                facts = json.loads(line)
                sentence = f"refused {facts['refused']}: {facts['reason']}"
                if sentence != last:
                    last = sentence
                    self._say(sentence)
                    self._record(facts)

    def _record(self, facts: Mapping[str, str]) -> None:
        """Write a refusal to the audit log, unless there are too many in this minute."""
        minute = int(time.monotonic() // 60)
        self._refusals = (minute, self._refusals[1] + 1) if self._refusals[0] == minute else (minute, 1)
        if self._audit is None or self._refusals[1] > MAX_REFUSALS:
            return
        more = " (more of this minute are not recorded)" if self._refusals[1] == MAX_REFUSALS else ""
        try:
            key = fingerprint(b64decode(facts.get("key", ""), validate=True))
        except (ValueError, TypeError, UnsupportedAlgorithm):  # no key, or anything else
            key = ""
        try:
            audit.record(self._audit, "refused", who=facts["refused"], key=key, reason=facts["reason"] + more)
        except (OSError, ValueError, KeyError) as error:
            self._say(f"the audit log {self._audit} cannot be written: {error}")


def _secrets(keys: ServerKeys | None) -> dict[str, object]:
    if keys is None:
        return {"certificate": "", "key": ""}
    return {"certificate": str(keys.certificate.resolve()), "key": str(keys.key.resolve())}


def _encoded(keys: Mapping[str, bytes]) -> list[str]:
    return [b64encode(key).decode() for key in keys.values()]


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
