"""A network in which slots attend to each other."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtailor.agents.networks import MLP, Network


class Attention(Network):
    """One network for every slot, with attention over all slots: for any number and order of slots.

    h_k = relu(encoder(x_k)) of the features x_k of slot k; c_k = sum_j softmax_j(q_k . k_j / sqrt(width)) v_j over the
    present slots j, with q, k and v linear in h (Vaswani et al., 2017); an MLP f gives the outputs f(h_k, c_k,
    h_k * c_k). Similarity is a product, so the product is an input: ReLUs could only approximate it. A slot with a
    special role must say so in its features.

    The first ``per_slot`` outputs belong to a slot and move with it. The ``shared`` outputs are means over the present
    slots and do not depend on the order. ``hidden`` holds the width of h, q, k and v, then the hidden layers of f.
    Features are multiplied by the square root of their number, so that a row of norm one has entries of order one.
    """

    def __init__(self, features: int, hidden: Sequence[int], per_slot: int, shared: int, stream: torch.Generator):
        self.features, self.per_slot = features, per_slot
        width, *after = hidden
        self.encoder = MLP(features, (), width, stream, last=features**-0.5)
        self.look = MLP(width, (), 3 * width, stream, last=width**-0.5)  # q, k and v
        self.output = MLP(3 * width, after, per_slot + shared, stream)
        self.parameters = [p for part in (self.encoder, self.look, self.output) for p in part.parameters]

    def __call__(self, x: Tensor) -> Tensor:
        """Map `seen` states to flat outputs, as an `MLP` does: slot 0, slot 1, ..., then the shared outputs."""
        slots = x.shape[-1] // (self.features + 1)
        state, mask = x.split_with_sizes([slots * self.features, slots], -1)
        each, shared = self.outputs(state.reshape(*mask.shape, self.features), mask > 0)
        return torch.cat([each.flatten(-2), shared], -1)  # (..., slots * per_slot + shared)

    def outputs(self, state: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of each slot and the shared outputs, for states (..., slots, features) and masks (..., slots)."""
        own = F.relu(self.encoder(state * self.features**0.5))  # (..., slots, width)
        query, key, value = self.look(own).chunk(3, -1)
        scores = query @ key.transpose(-1, -2) * own.shape[-1] ** -0.5  # (..., slots, slots)
        found = scores.masked_fill(~mask.unsqueeze(-2), -torch.inf).softmax(-1) @ value
        every = self.output(torch.cat([own, found, own * found], -1))  # (..., slots, per_slot + shared)
        each, shared = every[..., : self.per_slot], every[..., self.per_slot :]
        present = mask.unsqueeze(-1)
        return each, (shared * present).sum(-2) / present.sum(-2)  # (..., slots, per_slot), (..., shared)
