"""Named random streams."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from fedtailor.seeding import numpy_stream, seed_of, torch_stream

NAMES = (7, 0, 3, 12, "fit", "batches")


def test_the_naming_scheme_is_the_one_that_stored_runs_were_made_with() -> None:
    """A change of these numbers changes every result: it needs a new version of the run's schema."""
    assert seed_of(*NAMES) == 4639715080483343997
    assert numpy_stream(*NAMES).randint(0, 1000, 4).tolist() == [574, 418, 152, 623]
    assert torch.randint(1000, (4,), generator=torch_stream(*NAMES)).tolist() == [922, 655, 867, 695]


def test_the_same_name_gives_the_same_numbers_in_a_fresh_process_whatever_ran_before() -> None:
    script = (
        "import json, random, numpy, torch\n"
        "torch.manual_seed(99); torch.rand(5); numpy.random.seed(5); random.seed(1)\n"
        "from fedtailor.seeding import numpy_stream, torch_stream, seed_of\n"
        f"names = {NAMES!r}\n"
        "torch_stream('other').initial_seed()\n"
        "print(json.dumps([seed_of(*names), numpy_stream(*names).random_sample(3).tolist(),"
        " torch.rand(3, generator=torch_stream(*names)).tolist()]))\n"
    )
    there = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    here = [
        seed_of(*NAMES),
        numpy_stream(*NAMES).random_sample(3).tolist(),
        torch.rand(3, generator=torch_stream(*NAMES)).tolist(),
    ]
    assert json.loads(there.stdout) == here


def test_different_names_give_different_streams() -> None:
    names = [
        (),
        (0,),
        ("0",),
        (0, 0),
        (1, 2),
        (12,),
        (2, 1),
        ("a", "b"),
        ("ab",),
        ("b", "a"),
        ("a", 1),
        ("a1",),
        (-1,),
        *itertools.product((0, 1), (0, 1), ("fit", "final"), ("batches", "mix")),
    ]
    assert len({seed_of(*name) for name in names}) == len(names)
    assert len({tuple(numpy_stream(*name).randint(0, 2**31, 3)) for name in names}) == len(names)
    assert len({tuple(torch.rand(3, generator=torch_stream(*name)).tolist()) for name in names}) == len(names)


def test_streams_of_neighbouring_clients_are_not_correlated() -> None:
    draws = np.stack([numpy_stream(0, 0, 1, client, "x").random_sample(2000) for client in range(8)])
    between = np.corrcoef(draws)[~np.eye(8, dtype=bool)]
    assert np.abs(between).max() < 0.1


def test_a_stream_starts_afresh_each_time_it_is_asked_for() -> None:
    one, two = torch_stream("a"), torch_stream("a")
    assert torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=two))
    assert not torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=torch_stream("a")))


def test_a_number_of_numpy_is_the_same_name_as_the_plain_number() -> None:
    assert seed_of(0, np.int64(3), "fit") == seed_of(0, 3, "fit")


def test_a_fraction_is_no_name() -> None:
    with pytest.raises(TypeError):
        seed_of(0.5)  # type: ignore[arg-type]


def test_seeds_fit_into_63_bits() -> None:
    seeds = [seed_of(number) for number in range(500)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) >= 2**62


def test_the_global_random_numbers_are_left_alone() -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    torch.rand(10, generator=torch_stream("a"))
    numpy_stream("a").random_sample(10)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
