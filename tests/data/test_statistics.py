"""A federation in numbers: samples that are on two sides."""

import numpy as np

from fedtailor.data import Federation, Samples, Shares
from fedtailor.data.statistics import duplicates


def test_test_samples_that_are_also_training_samples_are_counted() -> None:
    """Client 0 tests 1, which it trains on, 2, which client 1 trains on, 3, which is new, and 4, which validates."""
    x = np.array([1, 2, 1, 2, 3, 4, 4, 9], np.float32)[:, None]
    samples = Samples(x, np.zeros(8, np.int64), ("a",), np.zeros(8, bool))

    def part(*owners: int) -> Shares:
        return Shares.from_owners(np.array(owners), 2)

    federation = Federation(
        samples,
        train=part(0, 1, -1, -1, -1, -1, -1, 1),
        val=part(-1, -1, -1, -1, -1, 1, -1, -1),
        test=part(-1, -1, 0, 0, 0, -1, 0, -1),
    )
    assert duplicates(federation) == {"duplicates": 3, "own_duplicates": 1}
