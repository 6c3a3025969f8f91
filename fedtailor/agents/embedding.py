"""Embeddings of model heads: short vectors, similar for similar heads, which an agent sees of a client.

A head is a list of matrices, one per layer; the bias is an additional column of the weight. Bases are fitted once to
the pooled heads of many clients, since embeddings in different bases could not be compared.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtailor.learning.optimisers import Adam

Matrices = Sequence[Tensor]  # a head: (outputs, inputs + 1) for each layer


class Embedding(Protocol):
    """The interface of both embeddings."""

    size: int

    def fit(self, heads: Sequence[Matrices]) -> None:
        """Fit the bases to these heads; learned parameters stay."""

    def fits(self, heads: Sequence[Matrices]) -> bool:
        """Whether bases are fitted to heads of these shapes; bases of heads that were all equal do not count."""

    def train(self, heads: Sequence[Matrices], steps: int, stream: torch.Generator) -> float:
        """Learn from these heads within the bases. Returns the loss before the last step, 0 without steps.

        Embeddings change with every call.
        """

    def __call__(self, heads: Sequence[Matrices]) -> Tensor:
        """The embeddings.  # (heads, size)"""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def matrices(weights: Mapping[str, Tensor]) -> list[Tensor]:
    """A head as matrices: the tensors of a layer side by side; a convolution's weight is (channels, all else)."""
    layers: dict[str, list[Tensor]] = {}
    for name, tensor in weights.items():
        if tensor.is_floating_point():
            layers.setdefault(name.rpartition(".")[0], []).append(tensor.detach().reshape(len(tensor), -1))
    return [torch.cat(tensors, 1) for tensors in layers.values()]


class MHAE:
    """The multi-head auto-encoder of pFedRLLA (section 3.1, appendix D).

    Each layer has its own "head", two bases R (outputs, side) and C (inputs + 1, side), which bring its matrix W to
    the uniform size R' W C. With M the mean of the heads that they are fitted to, R holds the first principal
    directions of the columns of all W - M, and C those of the rows of all R' (W - M). They hold zeros where a layer is
    smaller or clients do not differ. An LSTM reads the matrices of the layers in order, centred and scaled to a mean
    square of one. Its last state is the embedding, from which a second LSTM reconstructs the matrices. Both learn from
    the mean squared error: at 1 the embedding says nothing about how heads differ, at 0 everything.

    Deviation: the paper only says PCA. With a basis for each client, embeddings could not be compared. Without
    centring, bases and embeddings would mostly show the initial model, which all clients share. Heads move together
    during a run, so centre and scale follow them whenever the auto-encoder learns; the bases stay.
    """

    def __init__(self, stream: torch.Generator, size: int = 128, side: int = 16, lr: float = 1e-3, batch: int = 32):
        self.size, self.side, self.batch = size, side, batch
        self.rows: list[Tensor] = []  # R of each layer
        self.columns: list[Tensor] = []  # C of each layer
        self.centre, self.scale = torch.zeros(0), torch.ones(0)  # (layers, side, side), (layers, 1, 1)
        uniform = side * side
        self.encoder, self.decoder = _cell(uniform, size, stream), _cell(size, size, stream)
        self.output = [_drawn((uniform, size), stream), torch.zeros(uniform).requires_grad_()]
        self.parameters = [*self.encoder, *self.decoder, *self.output]
        self.optimiser = Adam(self.parameters, lr)

    def fit(self, heads: Sequence[Matrices]) -> None:
        bases = [_bases(layer, self.side) for layer in zip(*heads, strict=True)]
        self.rows, self.columns = [rows for rows, _ in bases], [columns for _, columns in bases]
        self.centre, self.scale = _standard(self._projected(heads))

    def fits(self, heads: Sequence[Matrices]) -> bool:
        return self._matches(heads) and any(bool(rows.any()) for rows in self.rows)

    def uniform(self, heads: Sequence[Matrices]) -> Tensor:
        """The layers of the heads at the uniform size.  # (heads, layers, side, side)"""
        return (self._projected(heads) - self.centre) / self.scale

    def __call__(self, heads: Sequence[Matrices]) -> Tensor:
        with torch.no_grad():
            return self._encode(self.uniform(heads))

    def train(self, heads: Sequence[Matrices], steps: int, stream: torch.Generator) -> float:
        projected = self._projected(heads)
        if len(heads) > 1:
            self.centre, self.scale = _standard(projected)
        layers, loss = (projected - self.centre) / self.scale, torch.zeros(())
        for _ in range(steps):
            loss = self.error(layers[torch.randperm(len(layers), generator=stream)[: self.batch]])
            self.optimiser.step(list(torch.autograd.grad(loss, self.parameters)))
        return float(loss.detach())

    def error(self, layers: Tensor) -> Tensor:
        """The mean squared error of reconstructing matrices of the uniform size (heads, layers, side, side)."""
        code = self._encode(layers)[:, None]  # the same input in every step
        decoded = _states(self.decoder, code, layers.shape[1])
        return F.mse_loss(F.linear(torch.stack(decoded, 1), *self.output), layers.flatten(2))

    def _encode(self, layers: Tensor) -> Tensor:
        return _states(self.encoder, layers.flatten(2), layers.shape[1])[-1]  # (heads, size)

    def _matches(self, heads: Sequence[Matrices]) -> bool:
        mine = tuple((len(rows), len(columns)) for rows, columns in zip(self.rows, self.columns, strict=True))
        return _shapes(heads) == {mine}

    def _projected(self, heads: Sequence[Matrices]) -> Tensor:
        if not self._matches(heads):
            raise ValueError(f"the embedding is not fitted to heads of the shapes {sorted(_shapes(heads))}")
        bases = list(zip(self.rows, self.columns, strict=True))
        return torch.stack(
            [torch.stack([r.T @ matrix @ c for (r, c), matrix in zip(bases, head, strict=True)]) for head in heads]
        )  # (heads, layers, side, side)

    def state_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "columns": self.columns,
            "centre": self.centre,
            "scale": self.scale,
            "parameters": self.parameters,
            "optimiser": self.optimiser.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows, self.columns = ([basis.clone() for basis in state[side]] for side in ("rows", "columns"))
        self.centre, self.scale = state["centre"].clone(), state["scale"].clone()
        with torch.no_grad():
            for own, stored in zip(self.parameters, state["parameters"], strict=True):
                own.copy_(stored)
        self.optimiser.load_state_dict(state["optimiser"])


class PCAEmbedding:
    """The principal components of the whole head as one long vector, centred and scaled to a mean square of one.

    There are fewer components than fitted heads; the rest of the embedding is zero. The basis takes as much memory as
    one head per component.
    """

    def __init__(self, size: int = 128):
        self.size = size
        self.shapes: list[list[int]] = []
        self.basis = torch.zeros(0, 0)  # (weights, components)
        self.centre, self.scale = torch.zeros(0), torch.ones(0)  # (1, components), (1, 1)

    def fit(self, heads: Sequence[Matrices]) -> None:
        flat = _flat(heads)
        self.basis = _directions(flat - _mean(flat), min(self.size, len(heads) - 1))
        self.shapes = [list(matrix.shape) for matrix in heads[0]]
        self.centre, self.scale = _standard((flat @ self.basis)[:, None])

    def fits(self, heads: Sequence[Matrices]) -> bool:
        return _shapes(heads) == {tuple(tuple(shape) for shape in self.shapes)} and bool(self.basis.any())

    def train(self, heads: Sequence[Matrices], steps: int, stream: torch.Generator) -> float:
        """Move the centre to these heads; nothing else is learned."""
        if len(heads) > 1:
            self.centre, self.scale = _standard((_flat(heads) @ self.basis)[:, None])
        return 0.0

    def __call__(self, heads: Sequence[Matrices]) -> Tensor:
        known = (_flat(heads) @ self.basis - self.centre) / self.scale
        return F.pad(known, (0, self.size - known.shape[1]))

    def state_dict(self) -> dict[str, Any]:
        return {"shapes": self.shapes, "basis": self.basis, "centre": self.centre, "scale": self.scale}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shapes = state["shapes"]
        self.basis, self.centre, self.scale = (state[name].clone() for name in ("basis", "centre", "scale"))


# Principal components


def _bases(layer: Sequence[Tensor], side: int) -> tuple[Tensor, Tensor]:
    """The bases R and C for one layer of these heads.  # (outputs, side), (inputs + 1, side)"""
    mean = _mean(layer)
    moment = torch.zeros(len(mean), len(mean), dtype=torch.double)
    for matrix in layer:  # one at a time: all heads may not fit into memory a second time
        moment += (matrix - mean) @ (matrix - mean).T
    rows = _leading(moment, side)
    seen = torch.cat([rows.T @ (matrix - mean) for matrix in layer])  # (heads * side, inputs + 1)
    return rows, _directions(seen, side)


def _directions(samples: Tensor, count: int) -> Tensor:
    """The first principal directions of centred samples (samples, dimensions), as columns."""
    if len(samples) >= samples.shape[1]:
        return _leading(samples.T @ samples, count)
    # the smaller of the two products gives the same directions
    return _signed(F.normalize(samples.T @ _leading(samples @ samples.T, count), dim=0))


def _leading(moment: Tensor, count: int) -> Tensor:
    """The eigenvectors of the largest eigenvalues as columns; zeros for eigenvalues within rounding.  # (n, count)"""
    values, vectors = torch.linalg.eigh(moment.double())
    values, vectors = values.flip(0)[:count], vectors.flip(1)[:, :count]
    vectors = _signed(vectors) * (values > 1e-6 * values[0])
    return F.pad(vectors, (0, count - vectors.shape[1])).float().contiguous()


def _signed(vectors: Tensor) -> Tensor:
    """Fix the sign of each column: its component of largest magnitude, the first of equals, is positive."""
    size = vectors.abs()
    largest = (size >= (1 - 1e-6) * size.amax(0)).int().argmax(0)
    return vectors * vectors.gather(0, largest[None]).sign()


# LSTM cells by hand: ``torch.nn`` would draw their weights from the global generator


def _cell(inputs: int, size: int, stream: torch.Generator) -> list[Tensor]:
    """Weights of input and state and the bias of the four gates; the forget gate starts open."""
    bias = torch.zeros(4, size)
    bias[1] = 1.0
    return [_drawn((4 * size, inputs), stream), _drawn((4 * size, size), stream), bias.flatten().requires_grad_()]


def _drawn(shape: tuple[int, int], stream: torch.Generator) -> Tensor:
    bound = shape[1] ** -0.5
    return torch.empty(shape).uniform_(-bound, bound, generator=stream).requires_grad_()


def _states(cell: Sequence[Tensor], inputs: Tensor, steps: int) -> list[Tensor]:
    """The states of an LSTM (Hochreiter and Schmidhuber, 1997) after each step.  # each (batch, size)

    The inputs are (batch, steps, features), or (batch, 1, features) if they are the same in all steps. One product
    computes their contribution to the gates of all steps, so that the large weights are read only once.
    """
    weight, recurrent, bias = cell
    given = F.linear(inputs, weight, bias).expand(-1, steps, -1).unbind(1)
    state = memory = recurrent.new_zeros(len(inputs), recurrent.shape[1])
    states = []
    for share in given:
        enter, keep, new, show = (share + F.linear(state, recurrent)).chunk(4, -1)
        memory = keep.sigmoid() * memory + enter.sigmoid() * new.tanh()
        state = show.sigmoid() * memory.tanh()
        states.append(state)
    return states


def _standard(projected: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of (heads, layers, ...) and the deviation from it in each layer; 1 where heads are equal."""
    centre = _mean(projected)
    spread = (projected - centre).square().mean((0, *range(2, projected.dim())), keepdim=True)[0].sqrt()
    return centre, torch.where(spread > 0, spread, 1.0)  # (layers, ...), (layers, 1, ...)


def _mean(tensors: Sequence[Tensor] | Tensor) -> Tensor:
    """The mean, exact where all heads are equal, so that rounding does not look like a difference between heads."""
    moved = torch.zeros_like(tensors[0])
    for tensor in tensors:
        moved += tensor - tensors[0]
    return tensors[0] + moved / len(tensors)


def _shapes(heads: Sequence[Matrices]) -> set[tuple[tuple[int, ...], ...]]:
    return {tuple(tuple(matrix.shape) for matrix in head) for head in heads}


def _flat(heads: Sequence[Matrices]) -> Tensor:
    return torch.stack([torch.cat([matrix.flatten() for matrix in head]) for head in heads])  # (heads, weights)
