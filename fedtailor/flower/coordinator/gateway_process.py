"""Starts the gateway in its own process and reports the connections that it refuses."""

import json
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from fedtailor.errors import UserError
from fedtailor.flower import programs
from fedtailor.flower.keys import ServerKeys


class GatewayProcess:
    """A running `gateway`.

    Parameters
    ----------
    host, port : str, int
        Where nodes connect; port 0 chooses a free one. `port` holds the actual port.
    upstream : int
        The SuperLink's port on the loopback.
    keys : ServerKeys or None
        The certificate and the nodes that may connect; without keys there is no TLS.
    limit : int
        The largest request, in bytes.
    home : Path
        The folder for Flower's own files.
    refused : callable
        Receives a sentence for each refusal; the same one repeatedly is reported once.
    """

    def __init__(
        self,
        host: str,
        port: int,
        upstream: int,
        keys: ServerKeys | None,
        limit: int,
        home: Path,
        refused: Callable[[str], None],
    ):
        self._refused = refused
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fedtailor.flower.coordinator.gateway"],
            env=programs.environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            self.port = self._configure({"host": host, "port": port, "upstream": upstream, "limit": limit}, keys)
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._report_refusals, args=[self._process.stdout], daemon=True).start()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _configure(self, settings: dict[str, Any], keys: ServerKeys | None) -> int:
        """Send the settings and return the port on which the gateway listens."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        settings["known"] = [] if keys is None else [b64encode(key).decode() for key in keys.public_keys().values()]
        for name in ("certificate", "key", "authority"):
            settings[name] = "" if keys is None else str(getattr(keys, name).resolve())
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        first = process.stdout.readline()
        if not first:
            reason = (process.stderr.read().strip().splitlines() or ["no reason given"])[-1]
            place = f"{settings['host']}:{settings['port']}"
            raise UserError(f"cannot listen on {place} ({reason}): choose another --host or --port")
        port: int = json.loads(first)["listening"]
        return port

    def _report_refusals(self, lines: IO[str]) -> None:
        last = ""
        for line in iter(lines.readline, ""):
            facts = json.loads(line)
            sentence = f"refused {facts['refused']}: {facts['reason']}"
            if sentence != last:
                last = sentence
                self._refused(sentence)
