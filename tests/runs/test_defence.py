"""Clipping and rejecting replies, with values derived by hand."""

import torch

from fedtailor.messages.payload import Payload
from fedtailor.parties import Aggregation, Schema, Tensors
from fedtailor.runs.defence import Defence

SCHEMA = Schema({"model": Tensors(frozenset("ab"))})


def model(a: float, b: float, **numbers: float) -> Payload:
    return Payload({"model": {"a": torch.tensor([float(a)]), "b": torch.tensor([float(b)])}}, dict(numbers))


def values(payload: Payload) -> list[float]:
    return [tensor.item() for tensor in payload["model"].values()]


def filtered(replies, sent, schema=SCHEMA, statistics=(), **settings):
    return Defence(Aggregation(**settings), {"model", "large"}, statistics).filter(replies, sent, schema)


def test_a_long_change_is_shortened_to_the_median_length():
    """All start at (1, 1). The changes have the lengths 5, 10, 50: the last is divided by 5, the median is 10."""
    sent = dict.fromkeys((3, 5, 8), model(1, 1))
    replies = {3: model(4, 5, samples=7), 5: model(7, 9), 8: model(31, 41)}
    kept, reasons = filtered(replies, sent, clip=1.0)
    assert reasons == {}
    assert values(kept[3]) == [4, 5]
    assert values(kept[5]) == [7, 9]
    assert values(kept[8]) == [7, 9]
    assert kept[3].numbers == {"samples": 7}


def test_twice_the_median_length_is_allowed_with_clip_2():
    sent = dict.fromkeys((3, 5, 8), model(1, 1))
    kept, _ = filtered({3: model(4, 5), 5: model(7, 9), 8: model(31, 41)}, sent, clip=2.0)
    assert values(kept[8]) == [13, 17]


def test_every_client_is_measured_from_what_it_received():
    """The changes have the length 5 although the models are far apart."""
    sent = {1: model(0, 0), 2: model(100, 0), 3: model(0, 1000)}
    replies = {1: model(3, 4), 2: model(103, 4), 3: model(3, 1004)}
    kept, _ = filtered(replies, sent, clip=1.0)
    assert [values(kept[k]) for k in replies] == [values(replies[k]) for k in replies]


def test_a_reply_that_is_a_change_counts_from_zero():
    """FedNova sends changes: (3, 4), (3, 4), (30, 40). Counted from the sent model, the last would be the shortest."""
    schema = Schema({"model": Tensors(frozenset("ab"), change=True)})
    sent = dict.fromkeys((1, 2, 3), model(30, 40))
    kept, _ = filtered({1: model(3, 4), 2: model(3, 4), 3: model(30, 40)}, sent, schema, clip=1.0)
    assert values(kept[3]) == [3, 4]


def test_models_without_a_received_one_count_from_their_median():
    """The median is (1, 1), the distances from it 0, 1, 1, 2 and 90; the median of these is 1."""
    replies = {1: model(1, 1), 2: model(1, 2), 3: model(0, 1), 4: model(1, -1), 5: model(91, 1)}
    kept, _ = filtered(replies, dict.fromkeys(replies, Payload()), clip=1.0)
    assert values(kept[5]) == [2, 1]
    assert values(kept[4]) == [1, 0]
    assert values(kept[2]) == [1, 2]


def test_running_statistics_are_clipped_by_their_own_median():
    """b is a statistic: its changes are 1000, 1000 and 9000, those of a are 1, 1 and 1."""
    sent = dict.fromkeys((1, 2, 3), model(0, 0))
    replies = {1: model(1, 1000), 2: model(1, 1000), 3: model(1, 9000)}
    kept, _ = filtered(replies, sent, statistics={"b"}, clip=1.0)
    assert values(kept[3]) == [1, 1000]


def test_the_gate_rejects_a_change_in_the_opposite_direction():
    """The changes are (1, 1), (1, 0.5), (1, 0), (-1, -1); their median is (1, 0.25), with a negative cosine once."""
    sent = dict.fromkeys((1, 2, 3, 4), model(5, 5))
    replies = {1: model(6, 6), 2: model(6, 5.5), 3: model(6, 5), 4: model(4, 4)}
    kept, reasons = filtered(replies, sent, gate=0.0)
    assert sorted(kept) == [1, 2, 3]
    assert list(reasons) == [4]
    assert "cosine of -0.86" in reasons[4]  # -(1 + 0.25) / (sqrt(2) sqrt(1.0625))


def test_a_rejected_change_does_not_count_for_the_median_length():
    """Without the flipped one the lengths are 1, 2, 3 (median 2); with it 1, 2, 3, 100, 100 (median 3)."""
    sent = dict.fromkeys((1, 2, 3, 4, 5), model(0, 0))
    replies = {1: model(1, 0), 2: model(2, 0), 3: model(3, 0), 4: model(-100, 0), 5: model(-100, 0)}
    kept, reasons = filtered(replies, sent, gate=0.0, clip=1.0)
    assert sorted(reasons) == [4, 5]
    assert values(kept[3]) == [2, 0]


def test_two_clients_are_too_few_for_the_gate():
    sent = dict.fromkeys((1, 2), model(0, 0))
    kept, reasons = filtered({1: model(1, 0), 2: model(-1, 0)}, sent, gate=0.0)
    assert sorted(kept) == [1, 2]
    assert reasons == {}


def test_without_settings_replies_stay_the_same_objects():
    replies = {1: model(1, 0), 2: model(900, 0)}
    kept, reasons = filtered(replies, dict.fromkeys(replies, model(0, 0)))
    assert kept[1] is replies[1]
    assert kept[2] is replies[2]
    assert not reasons


def test_models_without_a_received_one_pass_the_gate_and_are_clipped():
    """Their median is (0, 0): deviations from it point anywhere, and none of them is against the others."""
    replies = {1: model(1, 0), 2: model(-1, 0), 3: model(0, 1), 4: model(0, -9), 5: model(0, 0)}
    kept, reasons = filtered(replies, dict.fromkeys(replies, Payload()), gate=0.5, clip=1.0)
    assert not reasons
    assert all(kept[k] is replies[k] for k in (1, 2, 3, 5))
    assert values(kept[4]) == [0, -1]


def test_groups_that_are_not_models_stay():
    replies = {k: Payload({"prototypes": {"a": torch.tensor([10.0**k])}}) for k in (1, 2, 3)}
    kept, _ = filtered(replies, dict.fromkeys(replies, Payload()), clip=1.0, gate=0.5)
    assert all(kept[k] is replies[k] for k in replies)


def test_replies_with_models_of_different_sizes_are_compared_by_size():
    """HAPFL: clients 1-3 send `large`, clients 4 and 5 only `model`."""

    def large(value):
        return Payload({**model(1, 1).groups, "large": {"c": torch.tensor([value])}})

    sent = {**dict.fromkeys((1, 2, 3), large(0.0)), 4: model(1, 1), 5: model(1, 1)}
    kept, _ = filtered({1: large(1.0), 2: large(2.0), 3: large(70.0), 4: model(1, 1), 5: model(1, 1)}, sent, clip=1.0)
    assert kept[3]["large"]["c"].item() == 2.0
    assert kept[4].groups.keys() == {"model"}
