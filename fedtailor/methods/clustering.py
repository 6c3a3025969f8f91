"""Clusters clients by the direction of their updates: similarity, Ward's tree, number of groups."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedtailor.weights import Weights

MOST = 50  # largest number of groups that `choose` tries: each try compares all pairs of clients


def similarity(updates: Sequence[Weights]) -> Tensor:
    """The cosine similarity of every two updates; an update of zeros has similarity 0 to all others.

    float64 (clients, clients), with ones on the diagonal.
    """
    products = torch.zeros(len(updates), len(updates), dtype=torch.float64)
    for name in updates[0]:
        rows = torch.stack([update[name].flatten() for update in updates])  # (clients, numel)
        products += rows @ rows.T
    lengths = products.diagonal().clamp(min=0).sqrt()
    scale = torch.where(lengths > 0, 1 / lengths, 0.0)
    return (products * scale[:, None] * scale).clamp(-1, 1).fill_diagonal_(1)


def ward(similar: Tensor, on: Literal["rows", "condensed"]) -> Tensor:
    """Ward's tree of at least two clients, as scipy's linkage matrix.  # float64 (clients - 1, 4)

    ``rows``: the coordinates of a client are its similarities to all clients, as Ward's method expects points;
    ``condensed``: the distance between two clients is 1 - cosine.
    """
    from scipy.cluster.hierarchy import linkage  # which every worker would wait for
    from scipy.spatial.distance import squareform

    # scipy treats a square matrix as observations and a condensed one as distances
    seen = similar.numpy() if on == "rows" else squareform(_distances(similar), checks=False)
    return torch.from_numpy(linkage(seen, "ward"))


def cut(tree: Tensor, groups: int) -> list[int]:
    """The group of every client when the tree is cut into ``groups``; the first client is in group 0."""
    from scipy.cluster.hierarchy import cut_tree

    labels = cut_tree(tree.numpy(), n_clusters=groups).ravel().tolist()
    numbers: dict[int, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]


def choose(similar: Tensor, tree: Tensor, by: Literal["silhouette", "gap"]) -> tuple[int, dict[int, float]]:
    """Choose the number of groups. Returns it, the smallest of equals, and the score of each number tried.

    ``silhouette``: the mean over clients of (b - a) / max(a, b), with a the mean distance to its own group and b to
    the nearest other one; if no number scores above 0, all clients form one group. ``gap``: how much higher the next
    merge is than the last one before the cut. With two clients, neither can distinguish two groups from one.
    """
    clients = len(similar)
    heights = [0.0, *tree[:, 2].tolist()]
    scores: dict[int, float] = {}
    for groups in range(2, min(clients - 1, MOST) + 1):
        if by == "silhouette":
            scores[groups] = _silhouette(_distances(similar), cut(tree, groups))
        else:
            scores[groups] = heights[clients - groups + 1] - heights[clients - groups]
    best = max(scores, key=lambda groups: scores[groups], default=1)
    return (best, scores) if scores.get(best, 0.0) > 0 else (1, scores)


def _distances(similar: Tensor) -> "np.ndarray[Any, np.dtype[np.float64]]":
    return 1 - similar.numpy()


def _silhouette(distances: Any, groups: Sequence[int]) -> float:
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(distances, groups, metric="precomputed"))
