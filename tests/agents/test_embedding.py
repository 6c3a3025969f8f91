"""Embeddings are comparable, stable to the bit, and near where heads are alike."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedtailor.agents import MHAE, Embedding, PCAEmbedding, matrices
from fedtailor.messages.trees import pack, unpack
from fedtailor.seeding import torch_stream

torch.set_num_threads(1)  # as in a run

SHAPES = ((20, 31), (5, 21))  # of the layers
Heads = list[list[Tensor]]


def heads(clients: int = 12, kinds: int = 3, shapes: Any = SHAPES, seed: int = 0, spread: float = 0.3) -> Heads:
    """One initial head, moved by each client in a direction of its kind (client modulo kinds) and a bit of its own."""
    stream = torch_stream(seed, "heads")

    def normal(shape: tuple[int, int]) -> Tensor:
        return torch.randn(shape, generator=stream)

    initial = [normal(shape) for shape in shapes]
    moves = [[normal((out, 1)) @ normal((1, into)) for out, into in shapes] for _ in range(kinds)]
    return [
        [
            start + 0.1 * (move + spread * normal(start.shape))
            for start, move in zip(initial, moves[k % kinds], strict=True)
        ]
        for k in range(clients)
    ]


def mhae(seed: int = 0, **changes: Any) -> MHAE:
    return MHAE(torch_stream(seed, "weights"), **{"size": 16, "side": 8, **changes})


def fitted(known: Heads, **changes: Any) -> MHAE:
    made = mhae(**changes)
    made.fit(known)
    return made


def alike(embedding: Embedding, known: Heads, kinds: int = 3) -> tuple[float, float]:
    """The smallest cosine within a kind and the largest between two kinds."""
    rows = embedding(known)
    cosines = F.cosine_similarity(rows[:, None], rows[None], -1)
    kind = torch.arange(len(known)) % kinds
    same = kind[:, None] == kind[None]
    return float(cosines[same].min()), float(cosines[~same].max())


# The uniform size


def test_the_uniform_size_by_hand() -> None:
    """Two heads that differ by 2 in one corner: R = C = (e1, 0), the centre is their mean, deviations are +1 and -1.

    At side 2 the mean square of X is 1/4 before scaling, so X = +-2 in the corner and 0 elsewhere, where heads are
    equal. The padded third row and column, of side 3, are zero: mean square 1/9, X = +-3.
    """
    low, high = torch.tensor([[4.0, 5.0], [6.0, 7.0]]), torch.tensor([[6.0, 5.0], [6.0, 7.0]])
    for side in (2, 3):
        known = fitted([[low], [high]], side=side).uniform([[low], [high], [(low + high) / 2]])
        corner = torch.zeros(side, side)
        corner[0, 0] = side
        torch.testing.assert_close(known[:, 0], torch.stack([-corner, corner, 0 * corner]))


def test_the_bases_hold_what_heads_differ_in() -> None:
    """Heads that differ in 3 directions of rank one are told by 3 x 3 numbers: W = M + R X C' scale, exactly."""
    known = heads(spread=0.0)
    made = fitted(known, side=3)
    told = made.uniform(known) * made.scale
    for layer, (rows, columns) in enumerate(zip(made.rows, made.columns, strict=True)):
        whole = torch.stack([head[layer] for head in known])
        torch.testing.assert_close(rows.T @ rows, torch.eye(3), atol=1e-5, rtol=0)
        torch.testing.assert_close(columns.T @ columns, torch.eye(3), atol=1e-5, rtol=0)
        torch.testing.assert_close(rows @ told[:, layer] @ columns.T, whole - whole.mean(0), atol=1e-4, rtol=0)


@pytest.mark.parametrize("clients", [12, 3])  # more samples than dimensions, and fewer
def test_the_largest_component_of_a_direction_is_positive(clients: int) -> None:
    made, plain = fitted(heads(clients)), PCAEmbedding(16)
    plain.fit(heads(clients))
    for basis in (*made.rows, *made.columns, plain.basis):
        largest = basis.gather(0, basis.abs().argmax(0, keepdim=True))
        assert (largest > 0).logical_or(basis.norm(dim=0) == 0).all()
        assert basis[:, :2].norm(dim=0).tolist() == pytest.approx([1, 1], abs=1e-5)


def test_the_order_of_the_fitted_heads_does_not_matter() -> None:
    known = heads()
    for one, other in ((mhae(), mhae()), (PCAEmbedding(16), PCAEmbedding(16))):
        one.fit(known)
        other.fit(known[::-1])
        torch.testing.assert_close(other(known), one(known), atol=1e-3, rtol=0)
        other.fit(known)
        assert torch.equal(other(known), one(known))


def test_mirrored_heads_have_the_same_bases() -> None:
    """M - D instead of M + D: the directions are those of D D' and have no sign but that of the convention."""
    known = heads()
    mean = [torch.stack(layer).mean(0) for layer in zip(*known, strict=True)]
    mirrored = [[2 * m - matrix for m, matrix in zip(mean, head, strict=True)] for head in known]
    one, other = fitted(known), fitted(mirrored)
    for mine, theirs in zip((*one.rows, *one.columns), (*other.rows, *other.columns), strict=True):
        torch.testing.assert_close(theirs, mine, atol=1e-3, rtol=0)
    torch.testing.assert_close(other.uniform(mirrored), -one.uniform(known), atol=1e-2, rtol=0)


def test_a_smaller_layer_is_padded_with_zeros() -> None:
    known = heads()
    uniform = fitted(known).uniform(known)
    assert uniform.shape == (12, 2, 8, 8)
    assert uniform[:, 1, 5:].abs().max() == 0  # the second layer has 5 outputs
    assert uniform[:, 1, :5].abs().min() > 0
    torch.testing.assert_close(uniform.square().mean((0, 2, 3)), torch.ones(2))


def test_equal_heads_have_equal_embeddings_and_leave_the_bases_open() -> None:
    """Clients that have not trained yet: no rounding error becomes a basis, and the next heads are fitted again."""
    known = heads(kinds=1, spread=0.0)
    for made in (mhae(), PCAEmbedding(16)):
        made.fit(known)
        assert not made.fits(known)
        made.train(known, 1, torch_stream("t"))
        rows = made(known)
        assert rows.shape == (12, 16)
        assert torch.equal(rows, rows[:1].expand(12, 16))
        assert rows.isfinite().all()
        made.fit(heads())
        assert made.fits(known)


def test_heads_that_differ_in_one_layer_alone_are_fitted() -> None:
    known = heads()
    same = [[first, known[0][1]] for first, _ in known]
    assert fitted(same).fits(same)


@pytest.mark.parametrize("kind", [mhae, lambda: PCAEmbedding(16)], ids=["mhae", "pca"])
def test_two_heads_are_enough_to_move_the_centre(kind: Any) -> None:
    known = heads()
    made = kind()
    made.fit(known)
    before = made.centre.clone()
    made.train(known[:1], 0, torch_stream("batches"))
    assert torch.equal(made.centre, before)
    made.train(known[:2], 0, torch_stream("batches"))
    assert not torch.equal(made.centre, before)


# The auto-encoder


def test_an_auto_encoder_by_default() -> None:
    made = MHAE(torch_stream("weights"))
    assert (made.size, made.side, made.batch) == (128, 16, 32)


def test_forget_gates_start_open() -> None:
    """The gates are in torch's order: input, forget, new memory, output."""
    for _, _, bias in (mhae().encoder, mhae().decoder):
        assert bias.reshape(4, -1).unique(dim=1).flatten().tolist() == [0.0, 1.0, 0.0, 0.0]


def test_the_lstm_is_that_of_torch() -> None:
    known = heads()
    made = fitted(known)
    with torch.no_grad():
        reference = torch.nn.LSTM(64, 16, batch_first=True)
        weight, recurrent, bias = made.encoder
        for own, drawn in zip(reference.parameters(), (weight, recurrent, bias, torch.zeros(64)), strict=True):
            own.copy_(drawn)
        states, _ = reference(made.uniform(known).flatten(2))
    torch.testing.assert_close(made(known), states[:, -1])


def test_the_error_falls_and_one_is_to_know_nothing() -> None:
    known = heads(spread=0.05)
    made = fitted(known, lr=1e-2)
    first = float(made.error(made.uniform(known)).detach())
    assert 0.9 < first < 1.2
    last = made.train(known, 150, torch_stream("batches"))
    assert last == pytest.approx(float(made.error(made.uniform(known)).detach()), abs=0.05)
    assert last < 0.2 * first


def test_all_of_the_auto_encoder_learns_and_the_gradient_is_the_slope() -> None:
    """The encoder through the embedding, the first layer through the state."""
    made = fitted(heads())
    layers = made.uniform(heads()).double()
    for parameter in made.parameters:
        parameter.data = parameter.data.double()
    stream = torch_stream("directions")
    gradients = torch.autograd.grad(made.error(layers), made.parameters)
    for parameter, gradient in zip(made.parameters, gradients, strict=True):
        direction = torch.randn(parameter.shape, generator=stream, dtype=torch.double)
        around = []
        for step in (-1e-5, 1e-5):
            with torch.no_grad():
                parameter.add_(step * direction)
                around.append(float(made.error(layers)))
                parameter.sub_(step * direction)
        slope = float((gradient * direction).sum())
        assert abs(slope) > 1e-5
        assert (around[1] - around[0]) / 2e-5 == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("steps", [0, 100])
def test_heads_of_one_kind_are_nearer_than_others(steps: int) -> None:
    known = heads()
    made = fitted(known)
    made.train(known, steps, torch_stream("batches"))
    within, between = alike(made, known)
    assert within > between + 0.3
    assert alike(made, heads(18))[0] > 0.8  # six heads that it has not seen


def test_principal_components_keep_the_distances_of_heads() -> None:
    """With as many components as heads less one nothing is lost: distances are those of the heads, up to the scale."""
    known = heads()
    made = PCAEmbedding(16)
    made.fit(known)
    flat = torch.stack([torch.cat([matrix.flatten() for matrix in head]) for head in known])
    torch.testing.assert_close(torch.pdist(made(known)) * made.scale.item(), torch.pdist(flat), atol=1e-3, rtol=0)
    assert made(known)[:, 11:].abs().max() == 0
    assert alike(made, known)[0] > alike(made, known)[1] + 0.3


def test_what_all_heads_share_does_not_make_them_alike() -> None:
    """Heads that have moved together look alike at first; learning takes the new mean as the centre."""
    known = heads()
    drift = heads(seed=5)[0]
    moved = [[matrix + 3 * d for matrix, d in zip(head, drift, strict=True)] for head in known]
    for made in (mhae(), PCAEmbedding(16)):
        made.fit(known)
        assert alike(made, moved)[1] > 0.9
        made.train(moved, 0, torch_stream("batches"))
        assert alike(made, moved)[1] < alike(made, moved)[0] - 0.3
        made.train(moved[:1], 0, torch_stream("batches"))  # one head says nothing of what is shared
        assert alike(made, moved)[1] < alike(made, moved)[0] - 0.3


def test_bases_are_refitted_for_other_shapes_and_what_was_learned_stays() -> None:
    known, other = heads(), heads(shapes=((6, 9), (40, 7)))
    made = fitted(known)
    made.train(known, 20, torch_stream("batches"))
    learned = [parameter.detach().clone() for parameter in made.parameters]
    assert made.fits(known)
    assert not made.fits(other)
    assert not made.fits([*known, *other])
    assert not mhae().fits(known)
    with pytest.raises(ValueError, match="not fitted to heads of the shapes"):
        made(other)
    made.fit(other)
    assert made.fits(other)
    assert made(other).shape == (12, 16)
    assert all(torch.equal(own, before) for own, before in zip(made.parameters, learned, strict=True))
    plain = PCAEmbedding(16)
    assert not plain.fits(known)
    plain.fit(known)
    assert plain.fits(known)
    assert not plain.fits(other)


# Exactness


@pytest.mark.parametrize("kind", [mhae, lambda seed=0: PCAEmbedding(16)], ids=["mhae", "pca"])
def test_a_restored_embedding_goes_on_to_the_bit(kind: Any) -> None:
    known = heads()
    made = kind()
    made.fit(known)
    made.train(known, 3, torch_stream(0, "batches"))
    saved, before = pack(made), made(known)
    restored = kind(seed=9)
    restored.load_state_dict(unpack(saved).state)
    assert pack(restored) == saved
    assert torch.equal(restored(known), before)
    assert restored.train(known[:7], 3, torch_stream(1, "batches")) == made.train(
        known[:7], 3, torch_stream(1, "batches")
    )
    assert pack(restored) == pack(made) != saved
    assert torch.equal(restored(known), made(known))


@pytest.mark.parametrize("lost", ["rows", "columns", "centre", "scale", "parameters", "optimiser"])
def test_every_part_of_what_is_saved_is_needed(lost: str) -> None:
    known = heads()
    made = fitted(known)
    made.train(known, 3, torch_stream(0, "batches"))
    state = unpack(pack(made)).state
    state[lost] = fitted(heads(seed=3), seed=3).state_dict()[lost]
    without = mhae()
    without.load_state_dict(state)
    for each in (made, without):
        each.train(known[:1], 2, torch_stream(1, "batches"))
    assert not torch.equal(without(known), made(known))


def test_a_saved_embedding_is_a_snapshot() -> None:
    known = heads()
    made = fitted(known)
    restored = mhae()
    restored.load_state_dict(made.state_dict())
    before = restored(known)
    made.train(known, 3, torch_stream("batches"))
    assert torch.equal(restored(known), before)


def test_it_draws_from_no_other_stream() -> None:
    before = torch.random.get_rng_state()
    made = fitted(heads())
    made.train(heads(), 2, torch_stream("batches"))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert pack(mhae(1)) == pack(mhae(1)) != pack(mhae(2))


def test_one_head_is_embedded_as_among_others() -> None:
    known = heads()
    made = fitted(known)
    torch.testing.assert_close(torch.cat([made([head]) for head in known]), made(known), atol=1e-5, rtol=0)


# Heads as matrices


def test_a_layer_is_its_weight_with_the_bias_as_one_more_column() -> None:
    weights = {
        "conv.weight": torch.arange(24.0).reshape(2, 3, 2, 2),
        "conv.bias": torch.tensor([1.0, 2.0]),
        "norm.steps": torch.tensor(5),
        "fc.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "fc.bias": torch.tensor([5.0, 6.0]),
        "last.weight": torch.tensor([[7.0]]),
    }
    conv, fc, last = matrices(weights)
    assert conv.shape == (2, 13)
    assert conv[:, -1].tolist() == [1.0, 2.0]
    assert fc.tolist() == [[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]]
    assert last.tolist() == [[7.0]]
