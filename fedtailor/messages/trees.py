"""Trees of tensors, numbers and strings as bytes, and back: the format of states, payloads and policies.

The bytes are a safetensors file: the tensors are numbered, the tree is JSON in the file's metadata. Nothing is
pickled, and unpacking runs no code. Numbers and tensors keep their bits.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

MAX_HEADER = 10**8  # bytes of the header of a file, as in safetensors
MAX_DEPTH = 64  # of a tree

_DTYPES = frozenset(
    (
        *(torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
)


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
    _separate(tensors)
    return safetensors.torch.save(tensors, metadata={"tree": outline})


def unpack(data: bytes, most: int = MAX_HEADER) -> Any:
    """Decode the bytes of `pack`; raise a ValueError for other bytes and for a header over ``most`` bytes.

    Tuples become lists, and objects become `Stored`.
    """
    try:
        size = int.from_bytes(data[:8], "little")
        if size > min(most, len(data) - 8):
            raise ValueError(f"a header of {size} bytes in {len(data)}, the limit is {most}")
        outline = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["tree"])
        # clone: torch aligns its own allocations, so kernels take the same path everywhere
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(data).items()}
        if any(tensor.dtype not in _DTYPES for tensor in tensors.values()):
            raise ValueError("a tensor of a type that is never stored")
        return _decode(outline, tensors)
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError, OverflowError, SafetensorError) as error:
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
        if value.layout != torch.strided or value.dtype not in _DTYPES:
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


def _separate(tensors: dict[str, torch.Tensor]) -> None:
    """Copy tensors that are a part of a storage, or share one: the file format has no views."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        whole = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
        if not whole or tensor.data_ptr() in seen:
            tensors[name] = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
        seen.add(tensor.data_ptr())


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
