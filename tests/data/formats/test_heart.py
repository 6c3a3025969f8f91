"""The patients of four hospitals, as they come with FedTailor."""

from pathlib import Path

import numpy as np

from fedtailor.data.formats.heart import COLUMNS, PLACE
from fedtailor.data.sources import SOURCES, read


def test_heart_disease_is_the_published_one() -> None:
    """Patients, sick ones and missing values per hospital as published, plus 172 + 1 zeros that mean missing."""
    samples = read("heart-disease", Path("/nonexistent"))
    assert samples.groups is not None
    assert samples.group_names == ("cleveland", "hungarian", "switzerland", "va")
    assert np.bincount(samples.groups).tolist() == [303, 294, 123, 200]
    assert np.bincount(samples.groups, samples.y).tolist() == [139, 106, 115, 149]
    missing = np.isnan(samples.x)
    zeros = [0, 0, 123, 50]  # cholesterol: all of Switzerland, 49 of the V.A., whose one blood pressure of 0 adds one
    published = np.array([6, 782, 273, 698])
    assert np.bincount(samples.groups, missing.sum(1)).astype(int).tolist() == (published + zeros).tolist()
    assert np.nanmin(samples.x[:, list(COLUMNS).index("cholesterol")]) == 85


def test_a_patient_reads_as_in_the_file() -> None:
    """63,1,1,145,233,1,2,150,0,2.3,3,0,6,0: a healthy man of 63."""
    samples = read("heart-disease", Path("/nonexistent"))
    shown = {
        column.name: column.categories[int(value)] if column.categories else value
        for column, value in zip(samples.columns, samples.x[0].tolist(), strict=True)
    }
    assert shown["age"] == 63
    assert shown["sex"] == "male"
    assert shown["chest pain"] == "typical angina"
    assert (shown["cholesterol"], shown["ST depression"]) == (233, np.float32(2.3))
    assert (shown["ST slope"], shown["thallium scan"]) == ("down", "fixed defect")
    assert samples.classes[samples.y[0]] == "healthy"


def test_licence_and_citation_come_with_the_files() -> None:
    said = (PLACE / "README.md").read_text(encoding="utf-8")
    assert SOURCES["heart-disease"].licence == "CC BY 4.0"
    assert "CC BY 4.0" in said
    assert SOURCES["heart-disease"].homepage in said
    assert all(name in said for name in ("Janosi", "Steinbrunn", "Pfisterer", "Detrano"))
