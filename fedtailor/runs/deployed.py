"""The models that clients would deploy, stored by the final pass: exports hand out the models that were scored.

Equal models are stored once. The setting ``evaluation.keep_models`` limits how much they may take.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedtailor.data import Federation
from fedtailor.messages.digests import digest
from fedtailor.methods import Payload
from fedtailor.runs.assembly import Assembly
from fedtailor.runs.store import Store
from fedtailor.weights import nbytes


def largest_models(made: Assembly) -> int:
    """The bytes that the models of the final pass take at most."""
    return (len(made.tested) + len(made.tested_newcomers)) * max(
        nbytes(network.weights()) for network in (made.network, *made.family.values())
    )


def keep(store: Store, client: int, model: bytes) -> None:
    """Store the packed model of a client; its config has the name of its network in the method's family."""
    name, network = digest(model), Payload.unpack(model).config["network"]
    if not store.rows("SELECT 1 FROM models WHERE name = ?", [name]):
        store.insert_model(name, model)
    store.insert("deployed", [{"client": client, "network": network, "model": name}])


def kept(store: Store, client: int) -> Payload | None:
    """The stored model of a client; None if it was not stored."""
    rows = store.read("deployed", "WHERE client = ?", [client])
    return Payload.unpack(store.model(rows[0]["model"])) if rows else None


def outline(federation: Federation) -> dict[str, Any]:
    """What a run records about its samples, so that a model can be described without the data."""
    shapes = {name: [array.dtype.str, list(array.shape[1:])] for name, array in federation.arrays().items()}
    return {"outline": federation.outline(), "arrays": shapes}


def described(recorded: dict[str, Any], clients: int, sizes: Sequence[int] | None = None) -> Federation:
    """A federation without samples from its `outline`; ``sizes`` are the clients' numbers of training samples."""
    everyone = clients + recorded["outline"].get("new", 0)
    arrays = {name: np.zeros((0, *shape), np.dtype(kind)) for name, (kind, shape) in recorded["arrays"].items()}
    arrays |= {name: np.zeros(everyone + 1, np.int64) for name in arrays if name.endswith("_offsets")}
    if sizes is not None:
        arrays["train_offsets"][1:] = np.cumsum([*sizes, *[0] * (everyone - len(sizes))])
    return Federation.from_arrays(arrays, recorded["outline"])
