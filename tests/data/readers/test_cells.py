"""Tables of text: what a column is, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtailor.data import Column, DataSettings, Federation, build
from fedtailor.data.folder import folder
from fedtailor.errors import UserError

ANNA = "age,sex,smoker,pulse,died\n61,f,yes,70.5,no\n,m,?,81,yes\n48,f,no,NA,no\n"
BERT = "age,sex,smoker,pulse,died\n55,x,no,64,no\n70,,yes,99,yes\n"


def hospitals(place: Path, *texts: str) -> Path:
    for name, text in zip(("anna", "bert", "carl"), texts, strict=False):
        (place / f"{name}.csv").write_text(text, encoding="utf-8")
    return place


def read(place: Path, **settings: Any) -> Federation:
    return build(DataSettings.model_validate({"source": "folder", "folder": place, **settings}), 0)


def test_numbers_categories_and_missing_values_are_coded_alike_for_all_clients(tmp_path: Path) -> None:
    samples = folder(hospitals(tmp_path, ANNA, BERT))
    yes_no = ("no", "yes")
    assert samples.columns == (Column("age"), Column("sex", ("f", "m", "x")), Column("smoker", yes_no), Column("pulse"))
    nan = np.nan
    expected = [[61, 0, 1, 70.5], [nan, 1, nan, 81], [48, 0, 0, nan], [55, 2, 0, 64], [70, nan, 1, 99]]
    np.testing.assert_array_equal(samples.x, np.array(expected, np.float32))
    assert (samples.y.tolist(), samples.classes) == ([0, 1, 0, 0, 1], yes_no)
    assert samples.group_names == ("anna", "bert")


def test_columns_are_found_by_name_whatever_their_order_and_separator(tmp_path: Path) -> None:
    shuffled = "died;pulse;smoker;sex;age\nno;64;no;x;55\nyes;99;yes;;70\n"
    samples = folder(hospitals(tmp_path, ANNA, "\ufeff" + shuffled), DataSettings(label="died").roles)
    (tmp_path / "same").mkdir()
    same = folder(hospitals(tmp_path / "same", ANNA, BERT))
    np.testing.assert_array_equal(samples.x, same.x)
    assert samples.columns == same.columns


def test_label_ignored_and_categorical_columns_are_settings(tmp_path: Path) -> None:
    text = "patient,died,stage,age\np1,1,2,60\np2,0,1.0,50\np3,1,1,40\n"
    roles = DataSettings(label="died", ignore="patient", categorical=("stage",)).roles
    samples = folder(hospitals(tmp_path, text, text), roles)
    assert samples.columns == (Column("stage", ("1", "2")), Column("age"))
    assert samples.x[:3].tolist() == [[1, 60], [0, 50], [0, 40]]
    assert (samples.y[:3].tolist(), samples.classes) == ([1, 0, 1], ("0", "1"))


def test_one_table_with_a_column_of_clients_is_the_federation(tmp_path: Path) -> None:
    rows = "".join(f"{'cairo' if row < 6 else 'lima'},{row},{row % 2}\n" for row in range(10))
    (tmp_path / "patients.csv").write_text(f"hospital,age,died\n{rows}")
    for place in (tmp_path, tmp_path / "patients.csv"):
        federation = read(place, client="hospital")
        assert federation.names == ("cairo", "lima")
        assert (federation.train.sizes + federation.test.sizes).tolist() == [6, 4]
        assert federation.samples.columns == (Column("age"),)


def test_patients_and_times_decide_the_split(tmp_path: Path) -> None:
    rows = "".join(f"{row // 3},2024-01-{row + 1:02},{row},{row // 3 % 2}\n" for row in range(24))
    place = hospitals(tmp_path, *[f"patient,visit,age,died\n{rows}"] * 2)
    by_patient = read(place, group="patient", ignore=("visit",))
    patients = by_patient.samples.units
    assert patients is not None
    for client in (0, 1):
        train, test = (set(patients[part[client]].tolist()) for part in (by_patient.train, by_patient.test))
        assert train
        assert test
        assert not train & test
    by_time = read(place, time="visit", ignore=("patient",))
    ages = by_time.samples.x[:, 0]
    assert ages[by_time.train[0]].max() < ages[by_time.test[0]].min()


def test_a_client_may_bring_its_own_split(tmp_path: Path) -> None:
    for name in ("anna", "bert"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.csv").write_text("age,sex,died\n61,f,no\n62,m,yes\n63,f,no\n")
        (tmp_path / name / "test.csv").write_text("age,sex,died\n55,x,no\n56,m,yes\n")
    federation = read(tmp_path)
    assert (federation.train.sizes.tolist(), federation.test.sizes.tolist()) == ([3, 3], [2, 2])
    assert federation.samples.x[federation.test[1], 0].tolist() == [55, 56]
    assert federation.samples.columns[1].categories == ("f", "m", "x")


@pytest.mark.parametrize(
    ("labels", "target", "classes", "values"),
    [
        (["0", "1", "10", "2"], None, ("0", "1", "2", "10"), [0, 1, 3, 2]),
        (["0.5", "1", "10", "2"], None, (), [0.5, 1, 10, 2]),
        (["1", "2", "3", "4"], "number", (), [1, 2, 3, 4]),
        (["1.0", "0.0", "1", "0"], "class", ("0", "1"), [1, 0, 1, 0]),
    ],
)
def test_the_label_decides_between_classes_and_numbers(
    labels: list[str], target: Any, classes: tuple[str, ...], values: list[float], tmp_path: Path
) -> None:
    text = "age,y\n" + "".join(f"1,{label}\n" for label in labels)
    samples = folder(hospitals(tmp_path, text, text), DataSettings(target=target).roles)
    assert (samples.classes, samples.y[:4].tolist()) == (classes, values)


LONG = "note,y\n" + "".join(f"text {row},{row % 2}\n" for row in range(30))
MANY = "age,y\n" + "".join(f"1,{row}\n" for row in range(120))


@pytest.mark.parametrize(
    ("texts", "settings", "complaint"),
    [
        ((ANNA, BERT.replace("pulse", "puls")), {}, r"bert\.csv has no column 'pulse', but .*anna\.csv has"),
        ((ANNA, BERT.replace("55,x", "55")), {}, r"bert\.csv row 2 has 4 cells instead of 5"),
        ((ANNA, BERT.replace("64,no", "64,")), {}, r"bert\.csv row 2 has no label in 'died'"),
        (
            (ANNA, BERT.replace("yes\n", "Yes\n")),
            {},
            "the label 'died' has 'Yes' and 'yes': write them in the same way",
        ),
        ((ANNA, BERT.replace(",x,", ",M,")), {}, "column 'sex' has 'M' and 'm': write them in the same way"),
        ((ANNA, BERT.replace("64", '"64,5"')), {}, r"row 2 has '64,5' in 'pulse': write numbers with a point"),
        ((ANNA, BERT.replace("64", "inf")), {}, r"row 2 has 'inf' in 'pulse': it is not finite"),
        ((ANNA, BERT), {"label": "dead"}, r"data\.label: unknown column of .*anna\.csv 'dead'"),
        ((ANNA, BERT), {"client": "hospital"}, r"data\.client = 'hospital', but .* has 2 files or folders"),
        ((ANNA, BERT), {"ignore": ["died"]}, "name column 'died' twice"),
        ((ANNA, BERT), {"ignore": ["age", "sex", "smoker", "pulse"]}, "no column besides the label 'died'"),
        ((ANNA, BERT), {"target": "number"}, "row 2 has 'no' in 'died': data.target = 'number' needs numbers"),
        ((ANNA, BERT), {"time": "pulse"}, "row 4 has 'NA' in 'pulse': write times as"),
        ((ANNA, BERT), {"group": "smoker"}, r"row 3 has no group in 'smoker'"),
        ((LONG, LONG.replace("text", "more")), {}, "column 'note' has 60 different values in 60 rows"),
        ((MANY, MANY), {}, r"the label 'y' has 120 different values in 240 rows: .*data\.target to 'number'"),
        (("age,y\n1,1.0\n2,0.0\n",) * 2, {}, r"numbers such as 1\.0 in the label 'y': set data\.target"),
        (("age,age,y\n1,2,0\n",) * 2, {}, "has two columns 'age'"),
        (("age,7,y\n1,2,0\n",) * 2, {}, "has '7' in its first row: give each column a name"),
        (("",) * 2, {}, r"anna\.csv holds no samples"),
        (("age,y\n",) * 2, {}, r"anna\.csv holds no samples"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_file_row_and_column(
    texts: tuple[str, ...], settings: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        folder(hospitals(tmp_path, *texts), DataSettings.model_validate(settings).roles)
    assert "\n" not in str(caught.value)


def test_a_file_in_another_encoding_and_roles_for_arrays_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_bytes("größe,y\n1,0\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"data\.csv cannot be read .*: save it as CSV in UTF-8"):
        folder(tmp_path)
    (tmp_path / "data.csv").unlink()
    np.savez(tmp_path / "data.npz", x=np.zeros((3, 2)), y=np.arange(3))
    with pytest.raises(UserError, match=r"data\.label is about the columns of CSV files, and .*data\.npz is none"):
        folder(tmp_path, DataSettings(label="y").roles)
