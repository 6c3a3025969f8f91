"""The embedding of heads in pFedRLLA: its settings, what it has learned, and similarities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedtailor.agents.embedding import MHAE, PCAEmbedding, matrices
from fedtailor.parties import Server, State
from fedtailor.weights import Weights, select


class EmbeddingSettings(BaseModel):
    """Settings of the embedding of heads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["mhae", "pca"] = Field("mhae", description="the auto-encoder, or plain PCA")
    size: int = Field(128, ge=1, le=10_000, description="length of an embedding")
    side: int = Field(
        16, ge=1, le=1000, description="for the auto-encoder: rows and columns of a layer after its PCA; the paper: 32"
    )
    steps: int = Field(10, ge=0, le=100_000, description="learning steps of the auto-encoder per training")

    def build(self, stream: torch.Generator) -> MHAE | PCAEmbedding:
        """The embedding before it has seen any head."""
        return MHAE(stream, self.size, self.side) if self.kind == "mhae" else PCAEmbedding(self.size)

    def describe(self) -> str:
        """A text that must be equal in two runs that share a policy."""
        return f"{self.kind} of size {self.size}" + (f" from {self.side} x {self.side}" if self.kind == "mhae" else "")


@dataclass
class Learned(State):
    """What the next episode keeps: ``server.state["learned"]``."""

    embedding: MHAE | PCAEmbedding
    running: float | None = None  # running mean accuracy: the target of the reward if the settings give none

    def embed(self, heads: Mapping[Any, list[Tensor]]) -> dict[Any, Tensor]:
        """The embeddings of all heads, computed at one time. The first heads that differ fix the bases."""
        if not heads:
            return {}
        every = list(heads.values())
        if not self.embedding.fits(every):
            self.embedding.fit(every)
        return dict(zip(heads, self.embedding(every), strict=True))

    def train(self, heads: list[list[Tensor]], steps: int, stream: torch.Generator) -> None:
        """Train the embedding, if its bases fit these heads."""
        if heads and self.embedding.fits(heads):
            self.embedding.train(heads, steps, stream)


def head_of(server: Server, model: Weights) -> list[Tensor]:
    """The head of a model as matrices, one for each layer."""
    return matrices(select(model, server.network.part("head")))


def similarity(embeddings: Tensor) -> Tensor:
    """V_k of eq. 2 for the embeddings of a view, the target last: (cos + 1) / 2, normalised."""
    near = (F.cosine_similarity(embeddings, embeddings[-1:], dim=1) + 1) / 2
    near[-1] = 1.0
    return near / near.sum()
