"""Flower's SuperNode on a Unix socket instead of a port.

``python -m fedtailor.flower.node.supernode_program SOCKET ...`` takes the socket and the arguments of Flower's own
program ``flower-supernode``.
"""

import sys
import threading
from pathlib import Path

from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode.cli.flower_supernode import _parse_supernode_lifespan_config
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import start_client_internal

from fedtailor.flower import sockets


def main(path: Path) -> None:
    """Run a SuperNode until this process is told to end."""
    config = _parse_supernode_lifespan_config()
    state = NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    served = create_app(state_factory=state)
    threading.Thread(target=sockets.serve, args=[served, path], daemon=True).start()
    start_client_internal(
        state_factory=state,
        server_address=config.server_address,
        root_certificates=config.root_certificates,
        insecure=config.insecure,
        authentication_keys=config.authentication_keys,
        max_retries=config.max_retries,
        max_wait_time=config.max_wait_time,
        node_config=config.node_config,
        isolation=config.isolation,
    )


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
