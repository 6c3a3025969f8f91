"""Results change only together with the results version."""

import json
from pathlib import Path

import pytest

from fedtailor.methods import catalogue
from fedtailor.version import RESULTS
from tests.support.results import FILE, digest_of, digests, here

KNOWN = json.loads(FILE.read_text(encoding="utf-8"))


def test_the_digests_are_those_of_this_results_version() -> None:
    assert KNOWN["results"] == RESULTS
    assert set().union(*(one["methods"] for one in KNOWN["machines"])) == catalogue().keys()


@pytest.mark.parametrize("name", list(catalogue()))
def test_a_short_run_gives_the_bits_of_its_results_version(name: str, tmp_path: Path) -> None:
    if name not in digests():
        processors = [one["environment"] for one in KNOWN["machines"]]
        pytest.skip(f"bits are known for {processors}, and this is {here()}")
    assert digest_of(name, tmp_path / "run") == digests()[name], (
        f"{name} gives other results: raise fedtailor.version.RESULTS and run python -m tests.support.results"
    )
