"""Malicious clients of a simulation, to measure what they can do and what a defence is worth."""

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedtailor.data import Federation
from fedtailor.errors import UserError
from fedtailor.messages.payload import Payload
from fedtailor.parties import Schema
from fedtailor.seeding import numpy_stream
from fedtailor.weights import Weights


class Attack(BaseModel):
    """Malicious clients: which part of all clients, and what they do.

    They have no test sets, so every measure is about the honest clients.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["sign-flip", "scale", "label-flip"] = Field(
        "sign-flip",
        description="sign-flip: send -factor times the change by training; scale: factor times; "
        "label-flip: train on class C - 1 - y instead of y",
    )
    share: float = Field(0.2, ge=0, lt=1, description="share of all clients that are malicious")
    factor: float = Field(10.0, gt=0, le=1e30, description="size of the change that sign-flip and scale send")

    def clients(self, clients: int, seed: int) -> frozenset[int]:
        """The malicious clients among ``clients``, drawn with the run's seed."""
        count = round(self.share * clients)
        return frozenset(numpy_stream(seed, "attack").permutation(clients)[:count].tolist())

    def data(self, federation: Federation, seed: int) -> Federation:
        """The federation with the malicious clients' labels; these clients have no test sets."""
        malicious = np.array(sorted(self.clients(federation.clients, seed)), dtype=np.int64)
        test = federation.test.keep(~np.isin(federation.test.owners, malicious))
        samples = federation.samples
        if self.kind == "label-flip":
            if not samples.classes:
                raise UserError("attack.kind = 'label-flip': the data have no classes; use 'sign-flip' or 'scale'")
            y = samples.y.copy()
            for shares in (federation.train, federation.val):
                rows = shares.indices[np.isin(shares.owners, malicious)]
                y[rows] = len(samples.classes) - 1 - samples.y[rows]
            samples = replace(samples, y=y)
        return replace(federation, samples=samples, test=test)

    def reply(self, honest: Payload, received: Payload, initial: Weights, schema: Schema) -> Payload:
        """What a malicious client sends instead of its honest reply.

        Models change in the opposite direction, or further, from the received one, or from the initial one where the
        client received none; changes are multiplied.
        """
        if self.kind == "label-flip":
            return honest
        factor = -self.factor if self.kind == "sign-flip" else self.factor
        groups = {}
        for name, tensors in honest.groups.items():
            start = received.groups.get(name, initial)
            declared = schema.groups.get(name)
            if declared is not None and declared.change:
                start = {n: torch.zeros_like(tensor) for n, tensor in tensors.items()}
            groups[name] = {n: _moved(tensor, start.get(n), factor) for n, tensor in tensors.items()}
        return Payload(groups, honest.numbers, honest.config)


def _moved(tensor: Tensor, start: Tensor | None, factor: float) -> Tensor:
    if start is None or not tensor.is_floating_point() or start.shape != tensor.shape:
        return tensor
    limit = torch.finfo(tensor.dtype).max
    return (start + factor * (tensor - start)).clamp(-limit, limit)
