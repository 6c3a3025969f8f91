"""Samples to predict from are read in the form of the training data, or refused in one sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtailor.data.columns import Column
from fedtailor.data.readers.inputs import Form, read_inputs
from fedtailor.errors import UserError

COLUMNS = (Column("age"), Column("sex", ("f", "m")), Column("grade", ("1", "2")))
TABLE = Form(np.dtype(np.float32), (3,), COLUMNS, gaps=True)
STRICT = Form(np.dtype(np.float32), (3,), COLUMNS)
NUMBERS = Form(np.dtype(np.float32), (2,))
IMAGES = Form(np.dtype(np.uint8), (2, 3, 1))
TEXT = Form(np.dtype(np.int32), (2,), vocabulary=5)


def written(folder: Path, text: str) -> Path:
    (folder / "data.csv").write_text(text, encoding="utf-8")
    return folder / "data.csv"


def test_columns_are_found_by_name_and_coded_as_in_training(tmp_path: Path) -> None:
    """Another order, a label and an id more, a missing value, codes such as 2.0, and a category nobody knows."""
    place = written(tmp_path, "id;grade;sex;age;died\n7;2.0;m;31;yes\n8;1;x;?;no\n9;;f;44.5;no\n")
    found = read_inputs(place, TABLE)
    expected = np.array([[31, 1, 1], [np.nan, -1, 0], [44.5, 0, np.nan]], np.float32)
    np.testing.assert_array_equal(found.x, expected)
    assert found.names == ("1", "2", "3")
    assert found.notes[0] == "left out: id, died"
    assert found.notes[1] == "1 sample has a category of 'sex' that the model does not know, such as 'x'"


def test_numbers_without_names_are_read_in_order(tmp_path: Path) -> None:
    found = read_inputs(written(tmp_path, "1,2\n3,4\n"), NUMBERS)
    assert found.x.tolist() == [[1, 2], [3, 4]]
    assert read_inputs(written(tmp_path, "1,2\n3,4\n"), TEXT).x.dtype == np.int32


def test_arrays_are_put_into_the_order_of_the_model(tmp_path: Path) -> None:
    columns, categories = ["sex", "age", "grade"], ['["m", "f", "d"]', "[]", '["1", "2"]']
    x = np.array([[0, 30, 1], [2, 40, np.nan]])
    np.savez(tmp_path / "a.npz", x=x, columns=np.array(columns), categories=np.array(categories))
    found = read_inputs(tmp_path / "a.npz", TABLE)
    np.testing.assert_array_equal(found.x, np.array([[30, 1, 1], [40, -1, np.nan]], np.float32))
    np.savez(tmp_path / "b.npz", x=np.arange(12, dtype=np.uint8).reshape(2, 2, 3))
    assert read_inputs(tmp_path / "b.npz", IMAGES).x.shape == (2, 2, 3, 1)


def test_images_are_read_from_a_file_a_folder_and_folders_of_classes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "cat").mkdir()
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    for name in ("b.png", "a.PNG", "cat/c.png"):
        image.fromarray(pixels).save(tmp_path / name, format="png")
    found = read_inputs(tmp_path, IMAGES)
    assert found.names == ("a.PNG", "b.png", "cat/c.png")
    assert found.x.shape == (3, 2, 3, 1)
    assert read_inputs(tmp_path / "b.png", IMAGES).x.tolist() == pixels[None, ..., None].tolist()
    assert read_inputs(tmp_path, Form(np.dtype(np.uint8), (2, 3, 3))).x.shape == (3, 2, 3, 3)
    with pytest.raises(UserError, match=r"a.PNG has 3x2 pixels, but the model takes 2x3: resize it"):
        read_inputs(tmp_path, Form(np.dtype(np.uint8), (3, 2, 1)))
    with pytest.raises(UserError, match="holds images, but the model takes 2 numbers"):
        read_inputs(tmp_path, NUMBERS)


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        ("sex,age\nm,3\n", TABLE, "has no column 'grade': the model takes rows with the columns age, sex, grade"),
        ("1,2\n", TABLE, "has no names of columns"),
        ("age,sex,grade\nold,m,1\n", TABLE, "row 2 has 'old' in 'age': the model takes a number there"),
        ("age,sex,grade\n,m,1\n", STRICT, "has no value in sample 1 in 'age', and the model was trained without"),
        ("age,sex,grade\n3,m,\n", STRICT, "has no value in sample 1 in 'grade'"),
        ("age,sex,grade\n1e60,m,1\n", TABLE, "has a value in sample 1 that is not finite"),
        ("1,2,3\n", NUMBERS, "has 3 columns, but the model takes 2 numbers: remove labels"),
        ("1,9\n", TEXT, r"must have token ids 0..4"),
        ("1,1.5\n", TEXT, r"must have token ids 0..4"),
        (
            "1,2\n",
            IMAGES,
            r"is a table, but the model takes 2 x 3 pixels with 1 channels \(uint8 of shape \(n, 2, 3, 1\)\)",
        ),
        ("", NUMBERS, "holds no samples"),
        ("1,2\n3\n", NUMBERS, "row 2 has 1 cells instead of 2"),
    ],
)
def test_a_wrong_table_is_one_sentence(text: str, form: Form, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said) as error:
        read_inputs(written(tmp_path, text), form)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arrays", "form", "said"),
    [
        ({"y": [1]}, NUMBERS, "has no array 'x'"),
        ({"x": np.zeros((2, 3))}, NUMBERS, r"has samples of shape \(3,\) .* but the model takes 2 numbers"),
        ({"x": np.zeros((2, 2, 3))}, IMAGES, "but the model takes 2 x 3 pixels"),
        ({"x": np.zeros((0, 2))}, NUMBERS, "holds no samples"),
        ({"x": np.array([["a", "b"]])}, NUMBERS, "it must hold numbers"),
        ({"x": np.array([[1, 7]])}, TEXT, r"token ids 0..4"),
        ({"x": np.array([[1.0, np.nan]])}, NUMBERS, "has no value in sample 1, and"),
        ({"x": np.zeros((1, 2)), "columns": np.array(["age", "sex"])}, TABLE, "has no column 'grade'"),
    ],
)
def test_wrong_arrays_are_one_sentence(arrays: dict[str, Any], form: Form, said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(UserError, match=said):
        read_inputs(tmp_path / "data.npz", form)


def test_a_place_that_holds_nothing_readable_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "data.xlsx").write_text("no")
    (tmp_path / "empty").mkdir()
    for name, said in (("gone.csv", "does not exist"), ("data.xlsx", "is not read here"), ("empty", "holds no PNG")):
        with pytest.raises(UserError, match=said):
            read_inputs(tmp_path / name, IMAGES)
