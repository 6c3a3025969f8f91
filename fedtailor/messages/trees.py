"""Trees of tensors, numbers and strings as bytes, and back: the format of states, payloads and policies.

The bytes are a safetensors file: the tensors are numbered, the tree is JSON in the file's metadata. Nothing is
pickled, and unpacking runs no code. Numbers and tensors keep their bits.
"""

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import safetensors
import safetensors.torch
import torch

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
    return safetensors.torch.save(tensors, metadata={"tree": outline})


def unpack(data: bytes) -> Any:
    """Decode the bytes of `pack`; raise a ValueError for other bytes.

    Tuples become lists, and objects become `Stored`.
    """
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        outline = json.loads(header["__metadata__"]["tree"])
        # clone: torch aligns its own allocations, so kernels take the same path everywhere
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(data).items()}
        return _decode(outline, tensors)
    except (ValueError, KeyError, TypeError, RecursionError, safetensors.SafetensorError) as error:
        raise ValueError(f"damaged bytes ({type(error).__name__}: {error})") from None


def digest(data: bytes) -> str:
    """Return a digest of 32 hexadecimal digits; equal digests mean equal bytes."""
    return blake2b(data, digest_size=16).hexdigest()


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


def plain(tree: Any) -> Any:
    """Return an unpacked tree for display, with each `Stored` replaced by its state."""
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [plain(value) for value in tree]
    return plain(tree.state) if isinstance(tree, Stored) else tree


def _encode(value: Any, tensors: dict[str, torch.Tensor], where: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        name = str(len(tensors))
        if value.layout != torch.strided or value.dtype not in _DTYPES:
            raise TypeError(f"{where} holds a tensor of {value.dtype}, {value.layout}, which cannot be stored")
        tensor = value.detach().cpu()
        # one storage per tensor: the file format has no views
        tensors[name] = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
        return {"$tensor": name}
    if isinstance(value, list | tuple):
        return [_encode(item, tensors, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        encoded = [(key, _encode(item, tensors, f"{where}[{key!r}]")) for key, item in value.items()]
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return dict(encoded)
        if all(isinstance(key, int | str) for key in value):
            return {"$pairs": encoded}
        raise TypeError(f"{where}: a key must be a string or a whole number")
    if isinstance(value, Stored):
        return {"$object": _encode(value.state, tensors, where)}
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return {"$object": _encode(value.state_dict(), tensors, where)}
    raise TypeError(
        f"{where} holds a {type(value).__name__}; state and payloads hold tensors, numbers, strings, "
        "lists, dicts and objects with state_dict()/load_state_dict()"
    )


def _decode(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "$tensor" in value:
        return tensors[value["$tensor"]]
    if "$pairs" in value:
        return {key: _decode(item, tensors) for key, item in value["$pairs"]}
    if "$object" in value:
        return Stored(_decode(value["$object"], tensors))
    return {key: _decode(item, tensors) for key, item in value.items()}


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
