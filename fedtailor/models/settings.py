"""The `[model]` section of an experiment."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

LayerNames = Annotated[tuple[str, ...], Field(min_length=1)]


class ModelSettings(BaseModel):
    """The network that the clients train, and its head."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(
        "auto",
        min_length=1,
        description="a name of `fedtailor models`, 'module:Class' for a network of your own, "
        "or 'auto' for a sensible one for the data",
    )
    head: Literal["last", "linear"] | LayerNames = Field(
        "last",
        description="the head: 'last' linear layer, all 'linear' layers, or a list of layer names",
    )
    running_statistics: Literal["averaged", "local", "reset"] = Field(
        "averaged",
        description="running statistics of batch normalisation: 'averaged' with the weights, kept 'local' "
        "on each client, or 'reset' whenever a model is received",
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict,
        description="arguments of the network, such as {hidden = 256}",
    )


def model_family(models: Sequence[str | Mapping[str, Any]], **common: Any) -> dict[str, ModelSettings]:
    """The settings of several models by name; where a name occurs twice, its models have their place as an ending.

    >>> list(model_family(["small", {"name": "mlp"}, {"name": "mlp", "arguments": {"hidden": 80}}]))
    ['small', 'mlp-2', 'mlp-3']
    """
    tables: list[Mapping[str, Any]] = [{"name": model} if isinstance(model, str) else model for model in models]
    made = [ModelSettings.model_validate({**table, **common}) for table in tables]
    times = Counter(model.name for model in made)
    return {m.name if times[m.name] == 1 else f"{m.name}-{place}": m for place, m in enumerate(made, 1)}


def _check_family(models: tuple[str | dict[str, Any], ...]) -> tuple[str | dict[str, Any], ...]:
    model_family(models)
    return models


# Several models: names of 'fedtailor models', or tables as [model]
ModelFamily = Annotated[tuple[str | dict[str, Any], ...], AfterValidator(_check_family), Field(max_length=64)]
