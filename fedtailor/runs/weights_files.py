"""Reads the weights of a model from a file: safetensors, or a state_dict that torch saved. No code in it is run."""

from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from fedtailor.errors import UserError, one_line
from fedtailor.models import Network
from fedtailor.weights import Weights, finite

EXPORTED = "model.safetensors"  # in the folder of an exported model
SAVED = (".pt", ".pth", ".bin")  # by torch.save
NESTED = ("state_dict", "model_state_dict", "model")  # where training programs put the state_dict


def read_weights(path: Path) -> Weights:
    """The tensors of a file, or of the folder of an exported model, by name.

    Raises
    ------
    UserError
        If the file does not exist, or holds anything but named tensors.
    """
    file = path / EXPORTED if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"{path} is neither a run, nor an exported model, nor a file .safetensors, .pt or .pth")
    try:
        if file.suffix == ".safetensors":
            return safetensors.torch.load_file(file)
        if file.suffix not in SAVED:
            raise UserError(f"{path}: weights are in a file .safetensors, or .pt or .pth with a state_dict")
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (UserError, MemoryError):
        raise
    except (OSError, SafetensorError) as error:
        said = getattr(error, "strerror", None) or one_line(str(error))
        raise UserError(f"{file} cannot be read ({said})") from None
    except Exception as error:  # torch has many, and names the type that it refused
        said = one_line(str(error), 120)
        raise UserError(f"{file} cannot be read as tensors alone ({said}): save the model's state_dict()") from None
    for key in NESTED:
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not found or not all(isinstance(one, Tensor) for one in found.values()):
        raise UserError(f"{file} holds no state_dict: save it with torch.save(model.state_dict(), {file.name!r})")
    return {str(name): tensor for name, tensor in found.items()}


def fitted(found: Weights, network: Network, part: str, where: str, whole: bool) -> Weights:
    """The weights that a network takes over: those of a part, in the network's own types.

    Parameters
    ----------
    found
        Weights by name.
    network
        The network.
    part
        ``all``, ``body`` or ``head``.
    where
        Where the weights are from, for the error.
    whole
        Whether every tensor of the part must be there.

    Raises
    ------
    UserError
        If a name or a shape does not fit, or a value is not finite.
    """
    own, wanted = network.weights(), network.part(part)  # type: ignore[arg-type]
    advice = "" if part != "all" else "; start.part = 'body' takes only the body"
    if part == "all" and (strange := sorted(found.keys() - own.keys())):
        raise UserError(f"{where} has {_some(strange)}, and this run's model does not{_example(own)}")
    if whole and (missing := sorted(wanted - found.keys() - network.statistics)):
        raise UserError(f"{where} lacks {_some(missing)} of this run's model{advice}")
    used = {name: found[name] for name in network.names if name in wanted and name in found}
    if not used:
        raise UserError(f"{where} has no tensor of the {part} of this run's model{_example(own)}")
    for name, tensor in used.items():
        if tensor.shape != own[name].shape:
            shapes = f"{tuple(tensor.shape)}, and this run's model needs {tuple(own[name].shape)}"
            raise UserError(f"{where}: {name} has the shape {shapes}{advice}")
        if tensor.is_floating_point() != own[name].is_floating_point() or not finite(tensor):
            raise UserError(f"{where}: {name} has values that are not finite, or of another type")
    return {name: tensor.to(own[name].dtype).contiguous().clone() for name, tensor in used.items()}


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} other tensors"


def _example(own: Weights) -> str:
    return f" (whose tensors are {', '.join(list(own)[:3])}, ...)"
