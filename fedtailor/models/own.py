"""A network of the user's own, named 'module:Class'.

FedTailor calls the class, or a function that returns a module, with the `arguments` of the settings. Whether a name may
be imported at all, `fedtailor.imports` decides.
It also passes those of these parameters that the signature names:

    inputs      the `Inputs`: shape, outputs, vocabulary
    shape       the shape of one sample, such as (3, 32, 32)
    classes     the number of outputs (`outputs` means the same)
    vocabulary  the number of token ids

An argument in the settings takes precedence over these.

A module may declare an adapter, a part beside body and head, by an attribute with names of its layers:
``adapter_layers = ("adapter",)``.
"""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from fedtailor.errors import UserError
from fedtailor.imports import load
from fedtailor.models.evaluating import evaluating
from fedtailor.models.inputs import Inputs


def build_own(name: str, inputs: Inputs, arguments: Mapping[str, Any]) -> nn.Module:
    """Build the user's module, and check on one batch that its outputs have the right shape."""
    factory = load(name, "model", nn.Module)
    try:
        module = factory(**{**_offered(factory, inputs), **arguments})
    except Exception as error:
        raise UserError(f"model {name!r} cannot be built with {dict(arguments)}: {_reason(error)}") from error
    if not isinstance(module, nn.Module):
        raise UserError(f"model {name!r} gives a {type(module).__name__}, which is not a torch.nn.Module")
    _check_outputs(name, module, inputs)
    return module


def _offered(factory: Callable[..., Any], inputs: Inputs) -> dict[str, Any]:
    offers = {
        "inputs": inputs,
        "shape": inputs.shape,
        "classes": inputs.outputs,
        "outputs": inputs.outputs,
        "vocabulary": inputs.vocabulary,
    }
    wanted = signature(factory).parameters
    return {name: value for name, value in offers.items() if name in wanted}


def _check_outputs(name: str, module: nn.Module, inputs: Inputs) -> None:
    batch = inputs.example()
    try:
        with evaluating(module):
            outputs = module(batch)
    except Exception as error:
        raise UserError(f"model {name!r} fails on a batch of shape {tuple(batch.shape)}: {_reason(error)}") from error
    if not isinstance(outputs, Tensor):
        raise UserError(f"model {name!r} gives a {type(outputs).__name__}, which is not a tensor")
    if outputs.shape != torch.Size((len(batch), inputs.outputs)):
        raise UserError(
            f"model {name!r} gives {tuple(outputs.shape)} for a batch of {len(batch)} samples, "
            f"but this data needs {(len(batch), inputs.outputs)}"
        )


def _reason(error: Exception) -> str:
    """The first line of an error, because the user reads one sentence."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
