"""The `[model]` section of an experiment."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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
