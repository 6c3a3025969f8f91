"""Keeps the registered keys as the folder of keys has them, while a coordinator runs.

A key that is added takes part, a key that is removed, replaced or expired does not any more: no restart is needed.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from fedtailor.errors import UserError
from fedtailor.flower import audit, sockets
from fedtailor.flower.coordinator.gateway_process import GatewayProcess
from fedtailor.flower.keys import ServerKeys, fingerprint

POLL = 2.0  # seconds between two looks at the folder


class Registry:
    """Follows a folder of keys in a thread of its own.

    Parameters
    ----------
    keys : ServerKeys
        The folder.
    names : dict of int to str
        The name of each of Flower's node ids; it is kept up to date.
    upstream : Path
        The SuperLink's socket.
    gateway : GatewayProcess
        Is told which keys are known.
    say : callable
        Receives a sentence for each key that is added or removed.
    """

    def __init__(
        self,
        keys: ServerKeys,
        names: dict[int, str],
        upstream: Path,
        gateway: GatewayProcess,
        say: Callable[[str], None],
    ):
        self.keys, self.names, self.upstream, self.gateway, self.say = keys, names, upstream, gateway, say
        self._known = gateway.known
        self._closing = threading.Event()
        for name, key in self._known.items():
            self._record("registered", name, key)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._closing.wait(POLL):
            try:
                found = self.keys.public_keys()
            except UserError:  # a file that is being written
                continue
            if found != self._known:
                self._change(found)

    def _change(self, found: dict[str, bytes]) -> None:
        before, self._known = self._known, found
        self.gateway.set_keys(found)
        for name in [name for name in before if found.get(name) != before[name]]:
            self._control("unregister", name, b"")
            self._record("revoked", name, before[name])
            self.say(f"the key of {name} is not valid any more")
        for name in [name for name in found if found[name] != before.get(name)]:
            if self._control("register", name, found[name]):
                self._record("registered", name, found[name])
                self.say(f"{name} may take part now")

    def _control(self, call: str, name: str, key: bytes) -> bool:
        """Tell the SuperLink; return whether it agreed."""
        import httpx
        from flwr.proto.control_pb2 import RegisterNodeRequest, UnregisterNodeRequest
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        version = RuntimeVersionHttpInterceptor(component_name="flwr")
        control = ControlHttpClient.from_server_address("superlink", True, None, [version])
        sockets.redirect(control, self.upstream)
        try:
            if call == "register":
                self.names[control.RegisterNode(RegisterNodeRequest(public_key=key, name=name)).node_id] = name
            for node in [node for node, known in self.names.items() if known == name and call == "unregister"]:
                del self.names[node]
                control.UnregisterNode(UnregisterNodeRequest(node_id=node))
            return True
        except httpx.HTTPError as error:
            self.say(f"Flower does not {call} {name} ({type(error).__name__}): restart the coordinator")
            return False
        finally:
            control.close()

    def _record(self, event: str, name: str, key: bytes) -> None:
        try:
            audit.record(self.keys.folder / audit.FILE, event, who=name, key=fingerprint(key))
        except (OSError, ValueError, KeyError) as error:
            self.say(f"the audit log in {self.keys.folder} cannot be written: {error}")
