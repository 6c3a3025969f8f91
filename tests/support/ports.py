"""Ports of the loopback, for tests and benchmarks that talk to one."""

import socket


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
