"""Finds what makes a server's state useless: values that are not finite, or too large to compute with."""

from fedtailor.messages.trees import tensors_of
from fedtailor.methods import Server
from fedtailor.weights import finite, sound


def flaw_of(server: Server) -> str | None:
    """A sentence that names a useless tensor of the server's state, or of the rows that this round changed."""
    places = {"the server's": server.state}
    places |= {f"the server's row of {server.names[client]}": row for client, row in server.memory.loaded.items()}
    for whose, tree in places.items():
        for where, tensor in tensors_of(tree):
            if not sound(tensor):
                how = "too large to compute with" if finite(tensor) else "not finite"
                return f"{whose} {where} is {how}"
    return None
