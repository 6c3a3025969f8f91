"""A hospital engineer with six CSV files, from the files to a model; and what goes wrong on the way."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CITIES = ("aachen", "cairo", "lima", "oslo", "quito", "turin")
QUICK = ("--engine", "inline", "--rounds", "2", "--set", "model.name=linear", "--quiet")


def patients(seed: int, count: int) -> list[list[str]]:
    """Rows as a hospital has them: an id, numbers, categories, codes, gaps."""
    stream = np.random.RandomState(seed)
    rows = []
    for number in range(count):
        age, pressure = int(stream.randint(25, 90)), 110 + 30 * stream.random_sample()
        smoker, stage = ("yes", "no", "former")[stream.randint(3)], str(1 + stream.randint(3))
        died = "yes" if age + 20 * (smoker == "yes") + 5 * stream.standard_normal() > 68 else "no"
        gap = stream.random_sample() < 0.1
        rows.append([f"P{seed}{number:03}", str(age), "" if gap else f"{pressure:.1f}", smoker, stage, died, "remark"])
    return rows


HEADER = "patient,age,pressure,smoker,stage,died,remark"
SETTINGS = {"label": "died", "ignore": '["patient", "remark"]', "categorical": "stage", "preprocess.impute": "mean"}


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    place = tmp_path / "hospitals"
    place.mkdir()
    for seed, city in enumerate(CITIES):
        text = "\n".join([HEADER, *(",".join(row) for row in patients(seed, 24 + 4 * seed))])
        (place / f"{city}.csv").write_text(text + "\n")
    return place


def settings(place: Path, **changes: Any) -> list[str]:
    chosen = {"source": "folder", "folder": str(place), **SETTINGS, **changes}
    return [word for key, value in chosen.items() if value is not None for word in ("--set", f"data.{key}={value}")]


def test_six_files_are_six_clients_from_the_first_look_to_the_export(call: Callable[..., Any], hospitals: Path) -> None:
    shown = call("data", "show", *settings(hospitals), "--json")
    assert shown.code == 0, shown.err
    assert [row["name"] for row in shown.document["table"]] == list(CITIES)
    sizes = [row["train"] + row["test"] for row in shown.document["table"]]
    assert sizes == [24, 28, 32, 36, 40, 44]
    assert re.search(r"^ *cairo +21 ", call("data", "show", *settings(hospitals)).out, re.MULTILINE)

    done = call("run", *QUICK, *settings(hospitals), "--name", "risk", "--set", "participation.absent=[[1, 2]]")
    assert done.code == 0, done.err
    assert "client lima left out of round 1" in done.err
    assert "fedtailor export runs/risk --client aachen" in done.out
    page = call("show", "runs/risk", "--clients").out
    assert "6 clients" in page
    assert re.search(r"^ *oslo +9 ", page, re.MULTILINE)
    assert re.search(r"^ +1 +lima +1 +dropped out", page, re.MULTILINE)

    exported = call("export", "runs/risk", "--client", "cairo", "--json")
    assert Path(exported.document["folder"]).name == "cairo"
    same = call("export", "runs/risk", "--client", "1", "--out", "number", "--json")
    weights = [Path(found.document["folder"]) / "model.safetensors" for found in (exported, same)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    wrong = call("export", "runs/risk", "--client", "kairo")
    assert (wrong.code, "unknown client 'kairo': did you mean 'cairo'?" in wrong.err) == (2, True)


def _rename_a_column(place: Path) -> None:
    file = place / "oslo.csv"
    file.write_text(file.read_text().replace("pressure", "blood pressure", 1))


def _spell(place: Path) -> None:
    file = place / "oslo.csv"
    file.write_text(file.read_text().replace("former", "Former", 1))


def _leave_a_label_out(place: Path) -> None:
    file = place / "quito.csv"
    file.write_text(file.read_text().rstrip().replace(",no,remark", ",,remark", 1))


def _add_a_workbook(place: Path) -> None:
    (place / "wien.xlsx").write_bytes(b"PK")


def _nothing(place: Path) -> None: ...


@pytest.mark.parametrize(
    ("damage", "changes", "complaint"),
    [
        (_rename_a_column, {}, r"oslo\.csv has no column 'pressure', but .*aachen\.csv has"),
        (_spell, {}, "column 'smoker' has 'Former' and 'former'"),
        (_leave_a_label_out, {}, r"quito\.csv row \d+ has no label in 'died'"),
        (_add_a_workbook, {}, r"wien\.xlsx is not read here: save it as \.csv"),
        (_nothing, {"label": "dead"}, r"data\.label: unknown column .* 'dead'"),
        (_nothing, {"ignore": '["remark"]'}, "column 'patient' has 204 different values in 204 rows: leave it out"),
        (_nothing, {"clients": 20}, r"data\.clients = 20, but .* comes divided among 6 clients"),
        (_nothing, {"client": "patient"}, r"data\.client = 'patient', but .* has 6 files or folders"),
        (_nothing, {"folder": "nowhere"}, r"data\.folder nowhere is not a folder"),
        (_nothing, {"preprocess.impute": None}, r"values are missing.*data\.preprocess\.impute"),
        (_nothing, {"split": "official"}, "no test split of its own"),
        (_nothing, {"target": "number"}, r"in 'died': data\.target = 'number' needs numbers"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_nothing_is_written(
    damage: Callable[[Path], None], changes: dict[str, Any], complaint: str, call: Callable[..., Any], hospitals: Path
) -> None:
    damage(hospitals)
    for command in (("run", *QUICK, "--name", "risk"), ("data", "show")):
        done = call(*command, *settings(hospitals, **changes))
        assert done.code == 2, done.err
        assert re.search(complaint, " ".join(done.err.split())), done.err
        assert "Traceback" not in done.err
    assert sorted(path.name for path in Path().iterdir()) == ["hospitals"]


def test_a_node_chooses_only_how_its_table_is_read(call: Callable[..., Any], hospitals: Path) -> None:
    where = ("join", "--insecure", "--coordinator", "127.0.0.1:1", "--state", "state", "--data", hospitals / "oslo.csv")
    for key, complaint in (("model.name", "a node chooses only data.label, "), ("data.label", "unknown column")):
        done = call(*where, "--set", f"{key}=mlp")
        assert (done.code, complaint in " ".join(done.err.split())) == (2, True), done.err
    assert not Path("state").exists()
