"""Takes part in a federation: this process does the node's work and keeps a SuperNode running."""

import fcntl
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedtailor.data.readers import Roles
from fedtailor.errors import UserError
from fedtailor.flower import programs
from fedtailor.flower.folders import TemporaryFolder
from fedtailor.flower.keys import NodeKeys
from fedtailor.flower.node.node import Node, listen
from fedtailor.flower.node.policy import Policy
from fedtailor.flower.node.supernode import SuperNodeThread


def join(
    coordinator: str,
    data: str,
    folder: Path,
    *,
    name: str | None = None,
    keys: Path | None = None,
    device: str = "cpu",
    allowed: tuple[str, ...] = (),
    roles: Roles = Roles(),
    policy: Policy = Policy(),
    once: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> None:
    """Take part in a federation until the user stops this process.

    Parameters
    ----------
    coordinator : str
        The coordinator's address, ``HOST:PORT``.
    data : str
        The node's data: a folder, a file, or ``module:function`` (see `fedtailor.flower.node.sources`).
    folder : Path
        Where the node keeps its states and its model.
    name : str or None
        The node's name; by default the name of the folder of keys, or of this machine.
    keys : Path or None
        The node's folder of keys. Without keys there is no TLS.
    device : str
        The torch device to train on.
    allowed : tuple of str
        Methods and networks (``module:Class``) that the coordinator may have this node import.
    roles : Roles
        What the columns of a CSV file are for.
    policy : Policy
        What this node's owner permits.
    once : bool
        Return when a run is finished, instead of waiting for the next.
    say : callable
        Receives a sentence about the connection and about each training.

    Raises
    ------
    UserError
        If the input is wrong or the coordinator refuses this node.

    Examples
    --------
    >>> join("coordinator.example:8000", "anna.npz", Path("state"), keys=Path("keys/nodes/anna"))  # doctest: +SKIP
    """
    programs.require()
    host, port = _parse_address(coordinator)
    node_keys = None if keys is None else NodeKeys(keys)
    name = name or (keys.resolve().name if keys else socket.gethostname())
    node = Node(name, data, folder, device=device, allowed=allowed, roles=roles, policy=policy, say=say)
    with _locked(folder), _stop_on_signals() as stop:
        say(f"{name}: {len(node.samples):,} samples, which stay here; states in {folder}")
        home = TemporaryFolder()
        supernode = SuperNodeThread(host, port, node_keys, home.path, stop, say)
        try:
            supernode.start()
            listen(node, supernode.socket, lambda: stop.is_set() or (once and node.finished))
        finally:
            stop.set()
            supernode.join()
            home.close()
        if supernode.refusal is not None:
            raise supernode.refusal


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Ensure that only one process at a time uses a folder of states."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
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
def _stop_on_signals() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C and SIGTERM set."""
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


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(f"--coordinator {text!r}: write HOST:PORT, as in coordinator.example:8000")
    return host.strip("[]"), int(port)
