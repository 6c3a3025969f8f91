"""How much a client's model counts: values by hand and the ends of the range."""

import math

import pytest
import torch

from fedtailor.messages.payload import Payload, Rejected
from fedtailor.methods.entropy import entropy_accuracy_weights, label_entropy, reply_weights


def test_weights_and_entropy_by_hand() -> None:
    """softmax(0, 1) = (0.26894142, 0.73105858), softmax(1/2, 1/2) = (1/2, 1/2); labels 0, 0, 1, 2 have 3/2 bits."""
    assert entropy_accuracy_weights([0.0, 1.0], [0.5, 0.5]) == pytest.approx([0.38447071, 0.61552929], abs=1e-6)
    assert entropy_accuracy_weights([0.5, 0.5], [0.0, 1.0]) == pytest.approx([0.38447071, 0.61552929], abs=1e-6)
    assert label_entropy(torch.tensor([0, 0, 1, 2])) == pytest.approx(1.5)
    assert label_entropy(torch.tensor([3, 3])) == 0.0
    assert label_entropy(torch.tensor([[0.5], [1.5]])) == 0.0


def test_labels_that_are_equally_frequent_have_the_most_bits_and_none_have_no_bits() -> None:
    assert label_entropy(torch.arange(8)) == pytest.approx(3.0)
    assert label_entropy(torch.tensor([], dtype=torch.long)) == 0.0


def test_weights_of_equal_clients_are_equal_and_one_client_has_all() -> None:
    assert entropy_accuracy_weights([1.0] * 4, [0.5] * 4) == pytest.approx([0.25] * 4)
    assert entropy_accuracy_weights([3.0], [0.0]) == [1.0]


def test_weights_are_those_of_the_replies_by_client() -> None:
    """Entropies 0 and log 3: softmax (1/4, 3/4); accuracies are equal, so W = (3/8, 5/8)."""
    replies = {7: Payload(numbers={"entropy": 0.0, "of": 0.5}), 2: Payload(numbers={"entropy": math.log(3), "of": 0.5})}
    assert reply_weights(replies, "of") == {7: pytest.approx(3 / 8), 2: pytest.approx(5 / 8)}
    with pytest.raises(Rejected, match="the number other is missing"):
        reply_weights(replies, "other")
