"""Trees of tensors, numbers and strings as bytes, and back: the format of states, payloads and policies.

The bytes are a safetensors file: the tensors are numbered, the tree is JSON in the file's metadata. Nothing is
pickled, and unpacking runs no code. Numbers and tensors keep their bits.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

MAX_HEADER = 10**8  # bytes of the header of a file, as in safetensors
MAX_DEPTH = 64  # of a tree

# The types that can be stored, by their names in a safetensors file, in the order in which it holds their tensors.
_TYPES = {
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "F32": torch.float32,
    "U32": torch.uint32,
    "I32": torch.int32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "U16": torch.uint16,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_ORDER = {dtype: place for place, dtype in enumerate(_NAMES)}
_ALIGNMENT = 8  # bytes of which the length of a header is a multiple


@dataclass(frozen=True)
class Stored:
    """The unpacked state of an object with ``state_dict()/load_state_dict()``; `restore` loads it into the object."""

    state: Any


def pack(tree: Any) -> bytes:
    """Encode a tree of dicts, lists, tensors, numbers, strings, None and objects with a ``state_dict``.

    Examples
    --------
    >>> unpack(pack({"round": 3, "losses": (0.5, 0.25)}))
    {'round': 3, 'losses': [0.5, 0.25]}
    """
    tensors: dict[str, torch.Tensor] = {}
    outline = json.dumps(_encode(tree, tensors, "state"), separators=(",", ":"))
    header: dict[str, Any] = {"__metadata__": {"tree": outline}}
    parts: list[Any] = []  # written by hand: safetensors itself takes several times as long
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (_ORDER[item[1].dtype], item[0])):
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [begin, end]}
        parts.append(_bytes_of(tensor.contiguous()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def unpack(data: bytes, most: int = MAX_HEADER) -> Any:
    """Decode the bytes of `pack`; raise a ValueError for other bytes and for a header over ``most`` bytes.

    Tuples become lists, and objects become `Stored`.
    """
    try:
        size = int.from_bytes(data[:8], "little")
        if size > min(most, len(data) - 8):
            raise ValueError(f"a header of {size} bytes in {len(data)}, the limit is {most}")
        header = json.loads(data[8 : 8 + size])
        outline = json.loads(header.pop("__metadata__")["tree"])
        return _decode(outline, _tensors(header, np.frombuffer(data, np.uint8, offset=8 + size)))
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError, OverflowError) as error:
        # RuntimeError: torch's own, and RecursionError
        raise ValueError(f"damaged bytes ({type(error).__name__}: {error})") from None


def restore(fresh: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """Return the ``stored`` state, with each `Stored` loaded into the object of the same place in ``fresh``."""
    return {key: _restore(fresh.get(key), value, key) for key, value in stored.items()}


def has_objects(tree: Any) -> bool:
    """Return whether an unpacked tree contains the state of objects."""
    if isinstance(tree, dict):
        return any(has_objects(value) for value in tree.values())
    if isinstance(tree, list):
        return any(has_objects(value) for value in tree)
    return isinstance(tree, Stored)


def tensors_of(tree: Any, where: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of a tree, each with its place. The tree may hold objects with a ``state_dict``."""
    if isinstance(tree, torch.Tensor):
        yield where, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from tensors_of(value, f"{where}/{key}" if where else str(key))
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from tensors_of(value, where)
    elif isinstance(tree, Stored):
        yield from tensors_of(tree.state, where)
    elif hasattr(tree, "state_dict"):
        yield from tensors_of(tree.state_dict(), where)


def plain(tree: Any) -> Any:
    """Return an unpacked tree for display, with each `Stored` replaced by its state."""
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [plain(value) for value in tree]
    return plain(tree.state) if isinstance(tree, Stored) else tree


def _encode(value: Any, tensors: dict[str, torch.Tensor], where: str, depth: int = MAX_DEPTH) -> Any:
    if depth == 0:
        raise TypeError(f"{where} is nested too deeply: {MAX_DEPTH} levels can be stored")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        name = str(len(tensors))
        if value.layout != torch.strided or value.dtype not in _NAMES:
            raise TypeError(f"{where} holds a tensor of {value.dtype}, {value.layout}, which cannot be stored")
        tensors[name] = value.detach().cpu()
        return {"$tensor": name}
    if isinstance(value, list | tuple):
        return [_encode(item, tensors, f"{where}[{i}]", depth - 1) for i, item in enumerate(value)]
    if isinstance(value, dict):
        encoded = [(key, _encode(item, tensors, f"{where}[{key!r}]", depth - 1)) for key, item in value.items()]
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return dict(encoded)
        if all(isinstance(key, int | str) for key in value):
            return {"$pairs": encoded}
        raise TypeError(f"{where}: a key must be a string or a whole number")
    if isinstance(value, Stored):
        return {"$object": _encode(value.state, tensors, where, depth - 1)}
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return {"$object": _encode(value.state_dict(), tensors, where, depth - 1)}
    raise TypeError(
        f"{where} holds a {type(value).__name__}; state and payloads hold tensors, numbers, strings, "
        "lists, dicts and objects with state_dict()/load_state_dict()"
    )


def _tensors(header: dict[str, Any], data: Any) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, whose data must follow each other without a gap."""
    tensors: dict[str, torch.Tensor] = {}
    at = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        (begin, end), shape, dtype = entry["data_offsets"], entry["shape"], _TYPES[entry["dtype"]]
        if begin != at or end - begin != math.prod(shape) * dtype.itemsize or end > len(data):
            raise ValueError("the bytes of a tensor are not where its type and shape say")
        # copied: torch aligns its own allocations, so kernels take the same path everywhere
        tensors[name] = torch.empty(shape, dtype=dtype)
        _bytes_of(tensors[name])[...] = data[begin:end]
        at = end
    if at != len(data):
        raise ValueError(f"{len(data)} bytes of tensors where the header announces {at}")
    return tensors


def _bytes_of(tensor: torch.Tensor) -> Any:
    """The memory of a contiguous tensor as an array of bytes."""
    return tensor.view(-1).view(torch.uint8).numpy()


def _decode(value: Any, tensors: dict[str, torch.Tensor], depth: int = MAX_DEPTH) -> Any:
    """Build the tree of an outline. Every tensor is in it at most once, as `pack` writes it."""
    if depth == 0:
        raise ValueError("the tree is nested too deeply")
    if isinstance(value, list):
        return [_decode(item, tensors, depth - 1) for item in value]
    if not isinstance(value, dict):
        return value
    if "$tensor" in value:
        return tensors.pop(value["$tensor"])
    if "$pairs" in value:
        pairs = {key: _decode(item, tensors, depth - 1) for key, item in value["$pairs"]}
        if not all(isinstance(key, int | str) for key in pairs):
            raise ValueError("a key is neither a text nor a whole number")
        return pairs
    if "$object" in value:
        return Stored(_decode(value["$object"], tensors, depth - 1))
    return {key: _decode(item, tensors, depth - 1) for key, item in value.items()}


def _restore(fresh: Any, stored: Any, where: str) -> Any:
    if isinstance(stored, Stored):
        if not hasattr(fresh, "load_state_dict"):
            raise TypeError(f"state[{where!r}] was an object, but start_server or start_client did not build one")
        fresh.load_state_dict(stored.state)
        return fresh
    if isinstance(stored, dict) and has_objects(stored):
        built = fresh if isinstance(fresh, dict) else {}
        return {key: _restore(built.get(key), value, f"{where}.{key}") for key, value in stored.items()}
    if isinstance(stored, list) and has_objects(stored):
        built_list = [*fresh[: len(stored)]] if isinstance(fresh, list | tuple) else []
        built_list += [None] * (len(stored) - len(built_list))
        return [_restore(f, s, f"{where}[{i}]") for i, (f, s) in enumerate(zip(built_list, stored, strict=True))]
    return stored
