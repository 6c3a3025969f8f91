"""The digits that come with scikit-learn, read without it."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedtailor.data.formats import bundled


@pytest.mark.parametrize("file", [bundled.FILE, "not-there.csv.gz"])
def test_the_digits_are_those_of_scikit_learn(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "FILE", file)
    images, classes = bundled.digits()
    theirs = load_digits()
    np.testing.assert_array_equal(images, theirs.images)
    np.testing.assert_array_equal(classes, theirs.target)


def test_a_run_on_digits_waits_for_no_import_of_scikit_learn() -> None:
    program = "import sys, fedtailor.data.sources as s, pathlib; s.read('digits', pathlib.Path()); "
    program += "print(sorted({'sklearn', 'scipy', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
