"""A user's own data in a folder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtailor.data import Column, DataSettings, build, resolve
from fedtailor.data.folder import folder, write_clients
from fedtailor.errors import UserError

PARTS = {"train": 0.75, "test": 0.25}


def write(path: Path, count: int = 12, seed: int = 0, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = np.random.RandomState(seed)
    arrays: dict[str, Any] = {"x": stream.random_sample((count, 3)), "y": np.arange(count) % 3, **more}
    np.savez(path, **arrays)


def settings_of(place: Path, **more: Any) -> DataSettings:
    return DataSettings.model_validate({"source": "folder", "folder": place, **more})


def test_one_file_per_client_is_the_federation(tmp_path: Path) -> None:
    write(tmp_path / "bert.npz", 8)
    write(tmp_path / "anna.npz", 12)
    write(tmp_path / "carl" / "data.npz", 5)
    federation = build(settings_of(tmp_path), 0)
    assert federation.names == ("anna", "bert", "carl")
    assert (federation.train.sizes + federation.test.sizes).tolist() == [12, 8, 5]
    samples = federation.samples
    owned = [samples.groups[federation.train[client]] for client in range(3) if samples.groups is not None]
    assert [set(groups.tolist()) for groups in owned] == [{0}, {1}, {2}]
    assert resolve(settings_of(tmp_path), samples) == settings_of(tmp_path, partition="given", clients=3, split=PARTS)


def test_samples_of_clients_are_dealt_anew_only_if_a_partition_says_so(tmp_path: Path) -> None:
    for name in ("anna", "bert", "carl"):
        write(tmp_path / f"{name}.npz")
    dealt = build(settings_of(tmp_path, partition="iid", clients=4), 0)
    assert dealt.names == ("client-0", "client-1", "client-2", "client-3")
    assert build(settings_of(tmp_path, partition="iid"), 0).clients == 20
    assert build(settings_of(tmp_path, clients=3), 0).names == ("anna", "bert", "carl")
    for partition in ({}, {"partition": "given"}):
        with pytest.raises(UserError, match=r"data\.clients = 4, but .* among 3 clients \(anna, bert, carl\): leave"):
            build(settings_of(tmp_path, clients=4, **partition), 0)


def test_clients_that_bring_test_samples_are_tested_on_all_of_them(tmp_path: Path) -> None:
    """Also on those of a class that a client does not train on."""
    test = {"x_test": np.full((4, 3), 7.0), "y_test": np.array([0, 1, 2, 3])}
    write(tmp_path / "anna.npz", 12, **test, x_val=np.full((2, 3), 5.0), y_val=np.array([0, 1]))
    write(tmp_path / "bert.npz", 8, **{**test, "y_test": np.array([3, 3, 3, 0])})
    federation = build(settings_of(tmp_path), 0)
    assert resolve(settings_of(tmp_path), federation.samples).split == "official"
    sizes = (federation.train.sizes.tolist(), federation.val.sizes.tolist(), federation.test.sizes.tolist())
    assert sizes == ([12, 8], [2, 0], [4, 4])
    assert (federation.samples.x[federation.test.indices] == 7).all()
    assert (federation.samples.x[federation.val.indices] == 5).all()
    assert not np.isin(federation.samples.x[federation.train.indices], [5, 7]).any()
    pooled = build(settings_of(tmp_path, split=PARTS), 0)
    assert (pooled.train.sizes + pooled.test.sizes).tolist() == [18, 12]


@pytest.mark.parametrize(
    ("anna", "bert", "split", "complaint"),
    [
        ("test", "", None, "'anna' brings test samples and client 'bert' does not"),
        ("val", "", None, "'anna' brings validation samples but no test samples"),
        ("", "", "official", "no test split of its own"),
        ("test", "", "official", "'bert' brings no test samples"),
    ],
)
def test_a_split_that_the_clients_do_not_bring_is_refused(
    anna: str, bert: str, split: str | None, complaint: str, tmp_path: Path
) -> None:
    for name, part in (("anna", anna), ("bert", bert)):
        more: dict[str, Any] = {f"x_{part}": np.zeros((2, 3)), f"y_{part}": np.zeros(2, int)} if part else {}
        write(tmp_path / f"{name}.npz", 12, **more)
    with pytest.raises(UserError, match=complaint):
        build(settings_of(tmp_path, split=split), 0)


def test_one_table_is_split_by_a_partition(tmp_path: Path) -> None:
    write(tmp_path / "data.npz", 60, y=np.array(["cat", "dog", "eel"] * 20))
    federation = build(DataSettings(source="folder", folder=tmp_path, clients=4, partition="iid"), 0)
    assert federation.clients == 4
    assert federation.samples.classes == ("cat", "dog", "eel")
    write(tmp_path / "data.npz", 60, client=np.repeat(["b", "a"], 30), classes=["u", "v", "w"])
    federation = build(settings_of(tmp_path), 0)
    assert federation.names == ("a", "b")
    assert federation.samples.classes == ("u", "v", "w")


@pytest.mark.parametrize("header", ["", "width,height,kind\n"])
def test_csv_has_the_label_in_its_last_column(header: str, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(header + "1.5,2,cat\n3,4e1,dog\n-1,0,cat\n")
    samples = folder(tmp_path)
    assert samples.x.tolist() == [[1.5, 2], [3, 40], [-1, 0]]
    assert samples.y.tolist() == [0, 1, 0]
    assert samples.classes == ("cat", "dog")
    (tmp_path / "data.csv").write_text(header + "1.5,2,0.5\n3,4e1,2\n")
    targets = folder(tmp_path)
    assert targets.classes == ()
    assert targets.y.dtype == np.float32


def test_images_tokens_and_targets_are_recognised(tmp_path: Path) -> None:
    write(tmp_path / "data.npz", x=np.full((12, 5, 6), 255, np.uint8))
    images = folder(tmp_path)
    assert images.x.shape == (12, 5, 6, 1)
    assert (images.mean, images.std) == ((0.5,), (0.25,))  # constants, whatever the images are
    write(tmp_path / "data.npz", x=np.ones((12, 4), np.int64), vocabulary=9)
    tokens = folder(tmp_path)
    assert tokens.x.dtype == np.int32
    assert tokens.vocabulary == 9
    write(tmp_path / "data.npz", y=np.linspace(0, 1, 12))
    assert folder(tmp_path).y.dtype == np.float32


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"y": np.arange(11)}, "'x' and 'y' of the same length"),
        ({"x": np.full((12, 3), np.inf)}, "sample 0 of x that is not finite"),
        ({"x": np.full((12, 3, 2), np.nan)}, "sample 0 of x that is not finite"),
        ({"x": np.full((12, 3), 1e39)}, "sample 0 of x that is not finite"),
        ({"y": np.eye(12, 3, dtype=int)}, "3 labels per sample: multi-label data are not supported"),
        ({"y": np.eye(12, 3)}, "3 labels per sample: multi-label data are not supported"),
        ({"y": np.zeros((12, 1), int)}, r"y of type int64 and shape \(12, 1\)"),
        ({"columns": ["a", "b"]}, "names 2 columns for an x of shape"),
        ({"columns": ["a", "b", "c"], "categories": ["[]", "[]", '["u"]']}, "code in column 'c'"),
        ({"group": np.arange(11)}, "'x' and 'group' of the same length"),
        ({"time": np.full(12, np.nan)}, "one finite number or date per sample in 'time'"),
        ({"y": np.full(12, np.inf)}, "y that is not finite"),
        ({"x": np.zeros(12)}, "x of type float64"),
        ({"x": np.array([[{}]] * 12)}, "cannot be read"),
        ({"y": np.array([None] * 12)}, "cannot be read"),
        ({"x_test": np.zeros((2, 3))}, "'x_test' and 'y_test' of the same length"),
        ({"x_test": np.zeros((2, 4)), "y_test": np.zeros(2, int)}, "samples of different shapes"),
        ({"x": np.full((12, 3), 9), "vocabulary": 9}, r"token ids 0\.\.8"),
        ({"classes": ["only", "two"]}, "names 2 classes but has labels"),
        ({"x": np.zeros((0, 3)), "y": np.zeros(0, int)}, "holds no samples"),
    ],
)
def test_what_is_wrong_is_said_with_the_path(arrays: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    write(tmp_path / "data.npz", **arrays)
    with pytest.raises(UserError, match=complaint) as caught:
        folder(tmp_path)
    assert str(tmp_path / "data.npz") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"set data\.folder"):
        build(DataSettings(source="folder"), 0)
    with pytest.raises(UserError, match="is not a folder"):
        folder(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"neither \.npz nor \.csv files nor images in folders"):
        folder(tmp_path)
    (tmp_path / "anna.npz").write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(UserError, match=r"anna\.npz cannot be read"):
        folder(tmp_path)
    write(tmp_path / "anna.npz")
    write(tmp_path / "bert.npz", x=np.zeros((12, 4)))
    with pytest.raises(UserError, match=r"bert\.npz has samples of shape \(4,\).*make them alike"):
        folder(tmp_path)
    write(tmp_path / "bert.npz", y=np.linspace(0, 1, 12))
    with pytest.raises(UserError, match="different kinds of y"):
        folder(tmp_path)
    (tmp_path / "data.csv").write_text("1,2,a\n1,b\n")
    with pytest.raises(UserError, match=r"holds data\.csv and files of clients"):
        folder(tmp_path)


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        (["anna.npz", "bert.xlsx"], r"bert\.xlsx is not read here: save it as \.csv or \.npz"),
        (["anna.npz", "bert.csv"], "are files of different kinds: make them alike"),
        (["anna.npz", "anna.csv"], "two files or folders for client 'anna'"),
        (["anna.npz", "bert/notes.txt"], "bert holds neither data.npz nor data.csv"),
        (["anna/test.csv"], "anna has test.csv but no train.csv"),
        (["anna.npz", "cat/1.png"], "holds images in cat and data in anna"),
        (["notes.txt"], "holds neither .npz nor .csv files"),
    ],
)
def test_a_folder_that_holds_something_else_is_refused(files: list[str], complaint: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name) if name.endswith(".npz") else (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=complaint):
        folder(tmp_path)


def test_a_single_client_is_no_federation_unless_it_is_dealt_out(tmp_path: Path) -> None:
    write(tmp_path / "anna.npz")
    with pytest.raises(UserError, match="has a single client, 'anna'"):
        build(settings_of(tmp_path), 0)
    assert build(settings_of(tmp_path, partition="iid", clients=3), 0).clients == 3


def test_clients_with_numbers_as_names_are_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    for number in range(11):
        write(tmp_path / f"{number}.npz", seed=number)
    assert build(settings_of(tmp_path), 0).names == tuple(str(number) for number in range(11))


def test_what_was_dealt_is_read_again_with_names_columns_and_splits(tmp_path: Path) -> None:
    for name, sex in (("cairo", "m"), ("lima", "f")):
        rows = "".join(f"{40 + row},{sex},{row % 2}\n" for row in range(8))
        (tmp_path / f"{name}.csv").write_text(f"age,sex,died\n{rows}")
    federation = build(settings_of(tmp_path), 0, needs_validation=True)
    written = write_clients(federation, tmp_path / "dealt")
    assert [path.name for path in written] == ["cairo.npz", "lima.npz"]
    again = build(settings_of(tmp_path / "dealt"), 0)
    assert again.samples.columns == (Column("age"), Column("sex", ("f", "m")))
    for part in ("train", "val", "test"):
        for client in (0, 1):
            one, other = (f.samples.x[getattr(f, part)[client]] for f in (federation, again))
            assert (one == other).all()
