"""What `fedtailor data show` says about a federation."""

import io
from typing import Any

from rich.console import Console

from fedtailor.data import DataSettings, build
from fedtailor.data.statistics import duplicates, summary, table
from fedtailor.views.datasets import federation_page


def shown(settings: dict[str, Any], **more: Any) -> str:
    federation = build(DataSettings.model_validate(settings), 0)
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(federation_page({**summary(federation), **duplicates(federation), **more}, table(federation)))
    return console.export_text()


def test_test_samples_that_are_also_training_samples_are_a_warning() -> None:
    """One patient of heart-disease is in the files twice; digits have no image twice."""
    page = shown({"source": "heart-disease", "seed": 0})
    assert "warning: 1 of 231 test samples have the same input as a training sample (1 of them of the same" in page
    assert "warning" not in shown({"clients": 3})


def test_pre_processing_is_stated() -> None:
    prepared = {"standardise": True, "impute": "mean", "indicator": False, "categories": "codes"}
    page = shown({"clients": 3}, preprocessing={**prepared, "statistics": "client", "inputs": ["age", "sex"]})
    assert (
        "standardised, missing values replaced (mean), categories as codes, by the training samples of each client"
        in page
    )
    assert "2 inputs" in page
