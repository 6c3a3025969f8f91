"""The two models of HAPFL's clients: which there are, and how they travel."""

from typing import Annotated, Literal, Self

from pydantic import Field

from fedtailor.messages.payload import Payload
from fedtailor.methods.base import AgentMethod, Formerly
from fedtailor.models import Inputs, ModelFamily, ModelSettings, Network, build, model_family, narrower
from fedtailor.parties import Client, Range, Schema, Server, Tensors
from fedtailor.weights import Weights, select

ASSESSED = Schema(numbers={"samples": Range("train", "train", whole=True)})
NUMBERS = {"entropy": Range(0), "lite accuracy": Range(0, 1), "local accuracy": Range(0, 1)}


class LiteAndLocal(AgentMethod):
    """Clients have the run's model, which is the LiteModel, and a local model of a size that the server names.

    A payload and a reply have the LiteModel in the group ``model`` and the local model in the group of its size. The
    server keeps the models of all sizes in ``server.state["hapfl"]``.
    """

    sizes: Annotated[ModelFamily | Literal["pair"], Formerly(())] = Field(
        "pair",
        description="the local models, smallest first; `pair`: the run's own model and one of half its width; empty: "
        "one like the run's own model",
    )

    # Which models there are

    def family(self, model: ModelSettings) -> dict[str, ModelSettings]:
        return model_family(self._named, running_statistics=model.running_statistics) or {"local": model}

    def completed(self, model: ModelSettings, inputs: Inputs) -> Self:
        smaller = narrower(model.name, model.arguments, inputs) if self.sizes == "pair" else None
        own = model.model_dump(mode="json", exclude={"running_statistics"}, exclude_defaults=True)
        pair = ({**own, **smaller}, {"name": model.name, **own}) if smaller else self._named
        return self.model_copy(update={"sizes": pair})

    @property
    def _named(self) -> ModelFamily:
        return () if self.sizes == "pair" else self.sizes  # a run knows the pair; elsewhere there is one size

    @property
    def size_count(self) -> int:
        return 2 if self.sizes == "pair" else len(self.sizes)

    @property
    def assumes_devices(self) -> bool:
        return self.sizes == "pair"  # users who name sizes have equal devices by default

    def passes(self, epochs: int) -> float:
        return 2.0 * epochs  # of the LiteModel and of the local model

    # How they travel

    def models(self, server: Server) -> dict[str, Weights]:
        sizes = server.state["hapfl"].sizes
        return super().models(server) | {name: {**server.family[name].weights(), **sizes[name]} for name in sizes}

    def receive(self, client: Client, payload: Payload) -> None:
        client.load(payload["model"])
        size = payload.config.get("size", next(iter(self.family(ModelSettings()))))
        client.deploy(size)
        client.model.load({**payload.groups.get(size, {}), **client.state.get(f"statistics of {size}", {})})

    def keep_statistics(self, client: Client) -> None:
        """Keep the running statistics of the local model, if clients do not send them."""
        local = client.model
        if client.statistics == "local" and local.statistics:
            client.state[f"statistics of {client.deployed}"] = select(local.weights(), local.statistics)

    def trained(self, client: Client) -> dict[str, Weights]:
        """The groups of a reply: the tensors of both models that are exchanged."""
        local = select(client.model.weights(), client.shared_of(client.deployed))
        return {"model": select(client.weights(), client.shared), client.deployed: local}

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        """The LiteModel and the model of one size, without running statistics if clients keep them."""
        family = {name: build(model, network.inputs, 0) for name, model in model_family(self._named).items()}
        groups = {
            name: Tensors(frozenset(local.names), optional=True, may_lack=local.statistics)
            for name, local in (family or {"local": network}).items()
        }
        return Schema({"model": Tensors(shared), **groups}, NUMBERS)

    def ask_schema(self, name: str, network: Network, shared: frozenset[str]) -> Schema:
        return ASSESSED
