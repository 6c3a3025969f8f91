"""What travels, and what is refused at the border."""

import math

import pytest
import torch

from fedtailor.messages.payload import Payload, Rejected, check
from fedtailor.messages.trees import pack

LIKE = {"w": torch.zeros(2, 3), "n": torch.tensor(0)}


def payload(**changes: torch.Tensor) -> Payload:
    return Payload({"model": {"w": torch.ones(2, 3), "n": torch.tensor(4), **changes}}, numbers={"samples": 5})


def test_a_payload_comes_back_from_its_bytes() -> None:
    sent = Payload(
        {"model": {"w": torch.randn(2, 3)}, "peer/7": {"w": torch.zeros(1)}},
        numbers={"samples": 5, "losses": [0.5, 1.0]},
        config={"batch_size": 16, "size": "lite"},
    )
    back = Payload.unpack(sent.pack())
    assert torch.equal(back["model"]["w"], sent["model"]["w"])
    assert back["peer/7"]["w"].tolist() == [0.0]
    assert (back.numbers, back.config) == (sent.numbers, sent.config)


def test_bytes_on_the_wire_are_tensors_numbers_and_the_text_of_the_config() -> None:
    assert Payload().nbytes == 0
    assert payload().nbytes == 24 + 8 + 8
    more = Payload({"a": {"x": torch.zeros(2)}, "b": {"x": torch.zeros(3)}}, {"p": 1, "q": [1, 2, 3]}, {"size": 16})
    assert more.nbytes == 20 + 8 * 4 + len("size") + len("16")


def test_a_number_is_one_number_that_is_there() -> None:
    sent = Payload(numbers={"samples": 5, "losses": [1.0]})
    assert sent.number("samples") == 5
    with pytest.raises(Rejected, match="losses is a list"):
        sent.number("losses")
    with pytest.raises(Rejected, match="the number other is missing"):
        sent.number("other")


def test_what_fits_is_accepted() -> None:
    check(payload(), LIKE)
    check(Payload(), LIKE)
    check(Payload({"model": {"n": torch.tensor(1)}, "other": {"anything": torch.zeros(7)}}), LIKE)
    check(Payload(numbers={"big": 10**18, "list": [], "flag": True}), LIKE)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_refused_in_any_group(value: float) -> None:
    poisoned = torch.ones(2, 3)
    poisoned[1, 2] = value
    with pytest.raises(Rejected, match="model/w holds values that are not finite"):
        check(payload(w=poisoned), LIKE)
    with pytest.raises(Rejected, match="prototypes/0 holds values that are not finite"):
        check(Payload({"prototypes": {"0": poisoned.bfloat16()}}), LIKE)
    with pytest.raises(Rejected, match="waves/0"):
        check(Payload({"waves": {"0": poisoned.to(torch.complex64)}}), LIKE)


def test_values_whose_norm_is_not_finite_are_refused() -> None:
    check(payload(w=torch.full((2, 3), 1e18)), LIKE)
    with pytest.raises(Rejected, match="model/w holds values that are too large"):
        check(payload(w=torch.full((2, 3), 1e38)), LIKE)
    half = torch.full((9,), 60_000, dtype=torch.float16)  # its norm is beyond float16, but that is not needed
    check(Payload({"prototypes": {"0": half}}), LIKE)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(10**19), 1e19])
def test_a_number_that_is_not_finite_or_absurd_is_refused(value: float) -> None:
    with pytest.raises(Rejected, match="the number samples"):
        check(Payload(numbers={"samples": value}), LIKE)
    with pytest.raises(Rejected, match="the number losses"):
        check(Payload(numbers={"losses": [1.0, value]}), LIKE)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.ones(3, 2), r"model/w is torch.float32 \(3, 2\), expected torch.float32 \(2, 3\)"),
        (torch.ones(1, 3), r"model/w is torch.float32 \(1, 3\)"),
        (torch.ones(6), r"model/w is torch.float32 \(6,\)"),
        (torch.ones(2, 3, dtype=torch.float64), "model/w is torch.float64"),
        (torch.ones(2, 3, dtype=torch.int64), "model/w is torch.int64"),
    ],
)
def test_a_model_of_another_shape_or_type_is_refused(tensor: torch.Tensor, message: str) -> None:
    with pytest.raises(Rejected, match=message):
        check(payload(w=tensor), LIKE)


def test_a_model_with_a_tensor_the_network_does_not_have_is_refused() -> None:
    with pytest.raises(Rejected, match="model/extra is not a tensor of this network"):
        check(payload(extra=torch.zeros(1)), LIKE)


def test_groups_under_model_are_checked_like_the_model_and_other_groups_are_not() -> None:
    name, tensor = next(iter(LIKE.items()))
    wrong = {name: torch.zeros(tensor.numel() + 1)}
    check(Payload({"peer/7": wrong}), LIKE)
    with pytest.raises(Rejected, match=f"model/control/{name} is .* expected"):
        check(Payload({"model/control": wrong}), LIKE)
    with pytest.raises(Rejected, match="model/control/nobody is not a tensor"):
        check(Payload({"model/control": {"nobody": tensor}}), LIKE)


@pytest.mark.parametrize(
    "tree",
    [
        {"groups": [], "numbers": {}, "config": {}},
        {"groups": {"model": [torch.zeros(1)]}, "numbers": {}, "config": {}},
        {"groups": {"model": {"w": 5}}, "numbers": {}, "config": {}},
        {"groups": {}, "numbers": {"samples": "many"}, "config": {}},
        {"groups": {}, "numbers": {"samples": None}, "config": {}},
        {"groups": {}, "numbers": {"samples": [[1]]}, "config": {}},
        {"groups": {}, "numbers": [1], "config": {}},
        {"groups": {}, "numbers": {}, "config": 3},
        {"groups": {3: {"w": torch.zeros(1)}}, "numbers": {}, "config": {}},
        {"groups": {"model": {3: torch.zeros(1)}}, "numbers": {}, "config": {}},
        {"groups": {}, "numbers": {1: 1}, "config": {}},
        {"groups": {}, "numbers": {"samples": 10**400}, "config": {}},
        {"groups": {}},
        {"groups": {}, "numbers": {}, "config": {}, "more": 1},
        [1, 2],
    ],
    ids=str,
)
def test_bytes_that_hold_something_else_are_refused_by_the_border_and_not_by_a_crash(tree: object) -> None:
    with pytest.raises(Rejected):
        check(Payload.unpack(pack(tree)), LIKE)


@pytest.mark.parametrize("data", [b"", b"garbage", payload().pack()[:-1]])
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Rejected, match="not a payload"):
        Payload.unpack(data)


def test_a_list_of_numbers_is_asked_for_by_name() -> None:
    sent = Payload(numbers={"samples": 5, "losses": [0.5, 1.0]})
    assert sent.several("losses") == [0.5, 1.0]
    with pytest.raises(Rejected, match="samples is one number"):
        sent.several("samples")
    with pytest.raises(Rejected, match="peers is missing"):
        sent.several("peers")
