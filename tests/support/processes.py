"""Processes of a test and their ports."""

import os
import socket
from pathlib import Path


def free_port() -> int:
    """Return a port of the loopback that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Return whether a program accepts connections on this port of the loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == pid:
                found += [int(entry.name), *descendants(int(entry.name))]
    return found


def listening_ports() -> dict[int, str]:
    """The TCP ports on which this process and those it started listen, with their addresses in hexadecimal."""
    inodes = set()
    for process in [os.getpid(), *descendants(os.getpid())]:
        try:
            links = [os.readlink(file) for file in Path(f"/proc/{process}/fd").iterdir()]
        except OSError:
            continue  # it has ended
        inodes |= {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:")}
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, _, port = fields[1].rpartition(":")
                found[int(port, 16)] = address
    return found
