"""The line that says how a page was made."""

import re
import time

import pytest

from fedtailor.version import RESULTS, __version__
from fedtailor.views.provenance import made_by


def test_a_page_says_by_which_command_version_seeds_and_time_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 175.0)
    said = made_by("python recipes/a/b.py", 50.0, range(3))
    begins = r"Written by `python recipes/a/b.py` on \d{4}-\d\d-\d\d in 2 min 05 s, seeds 0, 1, 2; "
    assert re.match(begins, said)
    assert f"results version {RESULTS}, fedtailor {__version__}, python 3" in said
    assert "torch 2" in said
    assert "seeds" not in made_by("x", 50.0)
