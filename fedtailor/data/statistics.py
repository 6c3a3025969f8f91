"""A federation in numbers: a row per client, a summary, and the label counts."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np

from .federation import Federation
from .shares import Shares

TOP = 3  # largest classes that a row names


def table(federation: Federation) -> list[dict[str, Any]]:
    """One row per client: its numbers of samples, its number of classes, and its largest classes."""
    counts = label_counts(federation)
    names = federation.samples.classes
    largest = np.argsort(-counts, axis=1, kind="stable")[:, :TOP]
    sizes = zip(*(shares.sizes.tolist() for shares in shares_by_part(federation).values()), strict=True)
    return [
        {
            "client": client,
            **({"name": federation.labels[client]} if federation.labels else {}),
            "train": train,
            "val": val,
            "test": test,
            "classes": int(np.count_nonzero(counts[client])),
            "top": {names[k]: int(counts[client, k]) for k in largest[client] if counts[client, k]},
        }
        for client, (train, val, test) in enumerate(sizes)
    ]


def summary(federation: Federation) -> dict[str, Any]:
    """The federation in a few numbers, ready for JSON; ``skew`` is the `label_skew`."""
    counts = label_counts(federation)
    parts = shares_by_part(federation)
    sizes = sum(shares.sizes for shares in parts.values())
    return {
        "clients": federation.everyone,
        "samples": len(federation.samples),
        "shape": list(federation.samples.x.shape[1:]),
        "classes": len(federation.samples.classes),
        **{name: len(shares.indices) for name, shares in parts.items()},
        "size": _spread(sizes),
        "classes_per_client": _spread(np.count_nonzero(counts, axis=1)),
        "skew": label_skew(counts),
        "clients_without_test": int(np.count_nonzero(federation.test.sizes == 0)),
    }


def label_skew(counts: np.ndarray) -> float:
    """The mean total variation distance between a client's label distribution and that of all clients together.

    It is 0 if all are alike, and near 1 if every client has a class of its own; ``counts`` are (clients, classes).
    """
    own = counts / np.maximum(1, counts.sum(1, keepdims=True))
    everyone = counts.sum(0) / max(1, counts.sum())
    return float(np.abs(own - everyone).sum(1).mean() / 2)


def duplicates(federation: Federation) -> dict[str, int]:
    """How many test samples have the input of a training sample: of any client, and of their own client.

    A model may know the answer to such a sample by heart. Validation samples count as training samples, because they
    choose the model.
    """
    seen: dict[bytes, set[int]] = {}
    for shares in (federation.train, federation.val):
        for key, client in zip(_keys(federation, shares), shares.owners.tolist(), strict=True):
            seen.setdefault(key, set()).add(client)
    owners = [seen.get(key, set()) for key in _keys(federation, federation.test)]
    own = sum(client in known for client, known in zip(federation.test.owners.tolist(), owners, strict=True))
    return {"duplicates": sum(bool(known) for known in owners), "own_duplicates": own}


def _keys(federation: Federation, shares: Shares) -> Iterator[bytes]:
    """A digest of the input of every sample in the shares."""
    x = federation.samples.x
    for row in shares.indices.tolist():
        yield blake2b(np.ascontiguousarray(x[row]).tobytes(), digest_size=16).digest()


def label_counts(federation: Federation) -> np.ndarray:
    """int64 (clients, classes): the number of samples of each class in all parts of a client."""
    samples = federation.samples
    counts = np.zeros((federation.everyone, len(samples.classes)), np.int64)
    if samples.classes:
        for shares in shares_by_part(federation).values():
            cells = shares.owners * counts.shape[1] + samples.labels[shares.indices]
            counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
    return counts


def shares_by_part(federation: Federation) -> dict[str, Shares]:
    """The shares of ``train``, ``val`` and ``test``."""
    return {"train": federation.train, "val": federation.val, "test": federation.test}


def _spread(values: Any) -> dict[str, float]:
    return {
        "min": float(np.min(values)),
        "median": float(np.median(values)),
        "mean": float(np.mean(values)),
        "max": float(np.max(values)),
    }
