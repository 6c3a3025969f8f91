"""Groups of clients by the direction of their updates."""

import math

import pytest
import torch
from torch import Tensor

from fedtailor.methods import clustering
from fedtailor.methods.clustering import choose, cut, similarity, ward


def blocks(*sizes: int) -> Tensor:
    """Similarity 1 within a block of clients and 0 between blocks."""
    return torch.block_diag(*(torch.ones(size, size, dtype=torch.float64) for size in sizes))


def test_similarity_is_the_cosine_over_all_tensors_together() -> None:
    """(3, 0 | 4) and (0, 5 | 0) are orthogonal; (3, 0 | 4) and (3, 0 | 0) have cosine 9 / 15; zeros are like nobody."""
    updates = [
        {"a": torch.tensor([[3.0, 0.0]]), "b": torch.tensor([4.0])},
        {"a": torch.tensor([[0.0, 5.0]]), "b": torch.tensor([0.0])},
        {"a": torch.tensor([[3.0, 0.0]]), "b": torch.tensor([0.0])},
        {"a": torch.zeros(1, 2), "b": torch.zeros(1)},
    ]
    wanted = [[1, 0, 0.6, 0], [0, 1, 0, 0], [0.6, 0, 1, 0], [0, 0, 0, 1]]
    assert similarity(updates).tolist() == [pytest.approx(row, abs=1e-7) for row in wanted]


def test_ward_by_hand_on_rows_and_on_distances() -> None:
    """Two pairs. Rows (1, 1, 0, 0) and (0, 0, 1, 1) are 2 apart, the distance 1 - 0 is 1.

    Ward's height of two groups of 2 whose centres are d apart: sqrt(2 * 2 * 2 / (2 + 2)) d = sqrt(2) d.
    """
    assert ward(blocks(2, 2), "rows")[:, 2].tolist() == pytest.approx([0, 0, 2 * math.sqrt(2)])
    assert ward(blocks(2, 2), "condensed")[:, 2].tolist() == pytest.approx([0, 0, math.sqrt(2)])


def test_rows_and_distances_are_two_different_clusterings() -> None:
    """0 and 1 are the most similar two; 2 and 3 see all others alike: |rows|^2 is 0.72 for them, 1.78 for 0 and 1."""
    similar = torch.tensor(
        [[1.0, 0.5, 0.4, 0.4], [0.5, 1.0, -0.4, -0.4], [0.4, -0.4, 1.0, 0.4], [0.4, -0.4, 0.4, 1.0]],
        dtype=torch.float64,
    )
    assert cut(ward(similar, "condensed"), 3) == [0, 0, 1, 2]
    assert cut(ward(similar, "rows"), 3) == [0, 1, 2, 2]


def test_a_tree_is_cut_into_exactly_so_many_groups_that_count_from_the_first_client() -> None:
    similar = torch.block_diag(torch.ones(1, 1), torch.ones(2, 2), torch.ones(3, 3)).double()
    order = [3, 0, 4, 1, 5, 2]  # the block of three, then that of one, then that of two
    mixed = similar[order][:, order]
    for on in ("rows", "condensed"):
        assert cut(ward(mixed, on), 3) == [0, 1, 0, 2, 0, 2]  # type: ignore[arg-type]
        # ties within a block: still exactly five groups
        assert len(set(cut(ward(mixed, on), 5))) == 5  # type: ignore[arg-type]


def test_the_number_of_groups_is_chosen_by_silhouette_or_gap() -> None:
    """Two pairs: in two groups everybody has a = 0, b = 1, silhouette 1; in three, the two that are alone count 0."""
    tree = ward(blocks(2, 2), "condensed")
    assert choose(blocks(2, 2), tree, "silhouette") == (2, pytest.approx({2: 1.0, 3: 0.5}))
    assert choose(blocks(2, 2), tree, "gap") == (2, pytest.approx({2: math.sqrt(2), 3: 0.0}))
    assert choose(blocks(3, 2, 4), ward(blocks(3, 2, 4), "rows"), "silhouette")[0] == 3
    assert choose(blocks(3, 2, 4), ward(blocks(3, 2, 4), "rows"), "gap")[0] == 3
    nobody_alike = torch.eye(4, dtype=torch.float64)
    assert choose(nobody_alike, ward(nobody_alike, "condensed"), "silhouette")[0] == 1
    assert choose(blocks(2), ward(blocks(2), "rows"), "silhouette") == (1, {})


def test_similarity_does_not_depend_on_lengths_and_stays_between_minus_one_and_one() -> None:
    """Rounding makes the cosine of parallel updates a little more than 1, which would be a negative distance."""
    one = torch.randn(100, generator=torch.Generator().manual_seed(0))
    found = similarity([{"a": one * 1e-3}, {"a": one * 1e3}, {"a": -one}])
    assert found[0].tolist() == pytest.approx([1, 1, -1], abs=1e-6)
    assert float(found.abs().max()) <= 1
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, found.T, rtol=0, atol=1e-12)


def test_a_client_alone_is_like_itself_even_if_it_did_not_move() -> None:
    assert similarity([{"a": torch.zeros(3)}]).tolist() == [[1.0]]


def test_a_tree_is_cut_into_one_group_or_as_many_as_there_are_clients() -> None:
    tree = ward(blocks(2, 1), "condensed")
    assert cut(tree, 1) == [0, 0, 0]
    assert cut(tree, 2) == [0, 0, 1]
    assert cut(tree, 3) == [0, 1, 2]


@pytest.mark.parametrize("by", ["silhouette", "gap"])
def test_clients_that_are_all_alike_are_one_group(by: str) -> None:
    """All distances are 0, so nobody is nearer to its own group, and no merge is higher than the one before."""
    alike = blocks(4)
    chosen, scores = choose(alike, ward(alike, "condensed"), by)  # type: ignore[arg-type]
    assert chosen == 1
    assert scores == {2: 0.0, 3: 0.0}


def test_no_more_groups_are_tried_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "MOST", 2)
    pairs = blocks(2, 2, 2)
    chosen, scores = choose(pairs, ward(pairs, "rows"), "silhouette")
    assert (chosen, list(scores)) == (2, [2])  # three would be better
