"""Arithmetic on named tensors."""

import pytest
import torch

from fedtailor.weights import Sum, clone, cosine, delta, dot, finite, learned, mean, nbytes, norm, select


def model(first: float, second: float, count: int) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor([first, second]), "n": torch.tensor(count)}


def test_the_mean_is_weighted_by_normalised_shares() -> None:
    result = mean([model(1.0, 4.0, 10), model(5.0, 0.0, 20)], [30, 10])
    assert result["w"].tolist() == [2.0, 3.0]  # 3/4 * 1 + 1/4 * 5, 3/4 * 4


@pytest.mark.parametrize(("shares", "expected"), [([1, 1], 2), ([3, 1], 1), ([1, 3], 2)])
def test_counters_are_rounded_and_keep_their_type(shares: list[float], expected: int) -> None:
    result = mean([{"n": torch.tensor(1)}, {"n": torch.tensor(2)}], shares)["n"]  # 1.5 (to even), 1.25, 1.75
    assert result.dtype == torch.int64
    assert result.item() == expected


def test_the_mean_of_one_model_is_that_model_to_the_bit() -> None:
    one = {"w": torch.randn(100), "n": torch.tensor(7)}
    result = mean([one], [0.3])
    assert torch.equal(result["w"], one["w"])
    assert result["n"] == 7


def test_a_share_of_zero_leaves_a_model_out() -> None:
    assert mean([model(1.0, 2.0, 3), model(9.0, 9.0, 9)], [2, 0])["w"].tolist() == [1.0, 2.0]


def test_the_mean_is_summed_in_the_order_given() -> None:
    large, small, zero = ({"w": torch.tensor([value])} for value in (2.0**28, 4.0, 0.0))
    minus = {"w": -large["w"]}
    assert mean([large, small, minus, zero], [1, 1, 1, 1])["w"].item() == 0.0  # small is lost beside large
    assert mean([large, minus, small, zero], [1, 1, 1, 1])["w"].item() == 1.0


def test_the_mean_keeps_half_precision_and_doubles() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        result = mean([{"w": torch.ones(2, dtype=dtype)}, {"w": torch.full((2,), 3.0, dtype=dtype)}], [1, 1])["w"]
        assert result.dtype == dtype
        assert result.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("models", "shares"),
    [(0, []), (2, [1]), (1, [1, 1]), (2, [0, 0]), (2, [1, -1]), (2, [float("nan"), 1])],
)
def test_shares_that_make_no_mean_are_refused(models: int, shares: list[float]) -> None:
    with pytest.raises(ValueError, match="shares"):
        mean([model(1.0, 2.0, 3)] * models, shares)


def test_nothing_changes_or_shares_the_tensors_it_was_given() -> None:
    a, b = model(1.0, 2.0, 3), model(5.0, 6.0, 7)
    kept = {name: tensor.clone() for name, tensor in (*a.items(), *((f"b{k}", v) for k, v in b.items()))}
    for result in (mean([a, b], [1, 3]), mean([a], [1]), delta(a, b), clone(a)):
        for tensor in result.values():
            tensor.fill_(99)
    assert all(torch.equal(a[name], kept[name]) for name in a)
    assert all(torch.equal(b[name], kept[f"b{name}"]) for name in b)


def test_delta_is_after_minus_before_for_the_names_of_after() -> None:
    result = delta({"w": torch.tensor([3.0])}, {"w": torch.tensor([1.0]), "other": torch.tensor([1.0])})
    assert list(result) == ["w"]
    assert result["w"].item() == 2.0


def test_select_keeps_the_order_of_the_weights() -> None:
    weights = {name: torch.zeros(1) for name in "cab"}
    assert list(select(weights, {"a", "b", "c"})) == ["c", "a", "b"]
    assert list(select(weights, ["b", "c", "unknown"])) == ["c", "b"]


def test_what_is_learned_has_neither_counters_nor_running_statistics() -> None:
    weights = {"w": torch.zeros(1), "mean": torch.zeros(1), "count": torch.tensor(1)}
    assert list(learned(weights, {"mean"})) == ["w"]


def test_a_clone_forgets_gradients() -> None:
    weights = {"w": torch.nn.Parameter(torch.ones(2))}
    assert not clone(weights)["w"].requires_grad


def test_bytes_are_counted_by_type_and_number() -> None:
    weights = {
        "a": torch.zeros(3, 4),
        "b": torch.zeros(5, dtype=torch.float16),
        "c": torch.tensor(1),
        "d": torch.zeros(0),
        "view": torch.zeros(10)[::5],
    }
    assert nbytes(weights) == 48 + 10 + 8 + 0 + 8
    assert nbytes({}) == 0


def test_inner_products_and_lengths_leave_counters_out() -> None:
    a, b = model(3.0, 4.0, 100), model(4.0, -3.0, 100)
    assert norm(a) == pytest.approx(5.0)
    assert dot(a, b) == 0.0
    assert dot(a, {**b, "other": torch.ones(1)}) == 0.0
    assert norm({"n": torch.tensor(7)}) == norm({}) == 0.0


def test_the_cosine_does_not_depend_on_lengths() -> None:
    a, b = model(1.0, 0.0, 1), model(1.0, 1.0, 9)
    assert cosine(a, b) == pytest.approx(0.5**0.5)
    assert cosine({"w": a["w"] * 1e-3}, {"w": b["w"] * 1e3}) == pytest.approx(0.5**0.5)
    assert cosine(a, {"w": -a["w"]}) == -1.0
    assert cosine(a, {"w": torch.zeros(2)}) == 0.0


def test_a_sum_takes_models_one_by_one_with_a_share_for_each_tensor() -> None:
    total = Sum()
    total.add(model(1.0, 2.0, 3), 0.5)
    total.add(model(10.0, 20.0, 4), {"w": 0.1, "n": 0.5})
    result = total.total()
    assert result["w"].tolist() == pytest.approx([1.5, 3.0])
    assert result["n"].dtype == torch.int64
    assert result["n"].item() == 4  # 1.5 + 2 = 3.5, to even
    result["w"].fill_(9.0)
    assert total.total()["w"].tolist() == pytest.approx([1.5, 3.0])
    assert Sum().total() == {}


def test_a_sum_changes_no_model_it_was_given() -> None:
    one, total = model(1.0, 2.0, 3), Sum()
    total.add(one, 1.0)
    total.add(one, 1.0)
    assert one["w"].tolist() == [1.0, 2.0]
    assert total.total()["w"].tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, -2.0], True),
        ([], True),
        ([3e38, 3e38], True),  # though their sum is not
        ([1.0, float("nan")], False),
        ([1.0, float("inf")], False),
        ([float("inf"), float("-inf")], False),
    ],
)
def test_finite_is_what_has_no_value_that_is_infinite_or_not_a_number(values: list[float], expected: bool) -> None:
    assert finite(torch.tensor(values)) is expected
    assert finite(torch.complex(torch.zeros(len(values)), torch.tensor(values))) is expected


def test_counters_are_finite() -> None:
    assert finite(torch.tensor([2**62, 2**62]))
