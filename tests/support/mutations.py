"""Strategies that start from a true message and change some of it."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from hypothesis import strategies as st

NUMBERS = st.sampled_from([0, -1, 1, 2**31, 2**40, 2**63, -(2**63) - 1, 10**400, -(10**400), True]) | st.integers()
FLOATS = st.floats() | st.sampled_from([1e18, 1e38, 1e308, -0.0])
TEXTS = st.sampled_from(["", "²", "-", "\x1b[2J", "\ud800", "a" * 5000, "model", "train", "0", "$tensor"]) | st.text()
PLAIN = st.recursive(
    st.none() | NUMBERS | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    value = draw(st.sampled_from([0.0, 1.0, 1e18, 1e38, float("nan"), float("inf")]))
    return torch.full(shape, value).to(draw(st.sampled_from(DTYPES)))


def paths(tree: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places in a tree, the root first."""
    yield here
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            yield from paths(tree[key], (*here, key))


@st.composite
def changed(draw: st.DrawFn, true: Any, other: st.SearchStrategy[Any] = PLAIN) -> Any:
    """A tree with one to three places replaced, removed, renamed or filled."""
    tree = deepcopy(true)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(sorted(paths(tree), key=repr)))
        if not path:
            continue
        inner = tree
        for key in path[:-1]:
            inner = inner[key]
        how = draw(st.sampled_from(["replace", "remove", "rename", "more"]))
        if how == "replace":
            inner[path[-1]] = draw(other)
        elif how == "remove":
            del inner[path[-1]]
        elif isinstance(inner, dict):
            value = inner.pop(path[-1]) if how == "rename" else draw(other)
            inner[draw(TEXTS | st.integers(0, 9))] = value
        else:
            inner.append(draw(other))
    return tree


@st.composite
def damaged(draw: st.DrawFn, true: bytes) -> bytes:
    """Bytes with some of them changed, cut off, doubled or added."""
    data = bytearray(true)
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.just(len(data)) | st.integers(0, len(data)))
    return bytes(data[:cut]) + draw(st.just(b"") | st.binary(max_size=20))
