"""Clients' data as Python objects: each kind gives the same federation."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from fedtailor.data import Column, Federation
from fedtailor.errors import UserError

STREAM = np.random.RandomState(0)
X = STREAM.random_sample((12, 3)).astype(np.float32)
Y = np.arange(12) % 3
IMAGES = STREAM.randint(0, 256, (12, 6, 5, 3)).astype(np.uint8)


class Pairs(Dataset[Any]):
    def __init__(self, x: Any, y: Any):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([])


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        (X.tolist(), Y.tolist()),
        (torch.from_numpy(X), torch.from_numpy(Y)),
        TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
        Pairs(X, Y.tolist()),
        [(row, label) for row, label in zip(X, Y.tolist(), strict=True)],
        {"x": X, "y": Y},
    ],
    ids=lambda data: type(data).__name__,
)
def test_every_kind_of_object_gives_the_same_federation(data: Any) -> None:
    expected = Federation.from_clients({"zoe": (X, Y), "anna": (X[:8], Y[:8])})
    federation = Federation.from_clients({"zoe": data, "anna": (X[:8], Y[:8])})
    assert federation.digest() == expected.digest()
    assert federation.names == ("zoe", "anna")  # in the caller's order
    assert (federation.train.sizes.tolist(), federation.test.sizes.tolist()) == ([9, 6], [3, 2])
    rows = [federation.samples.x[getattr(federation, part)[1]] for part in ("train", "test")]
    assert sorted(np.concatenate(rows).tolist()) == sorted(X[:8].tolist())


def test_images_of_torch_have_their_channels_moved_to_the_end() -> None:
    expected = Federation.from_clients({"a": (IMAGES, Y), "b": (IMAGES, Y)})
    first = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)
    assert Federation.from_clients({"a": (first, Y), "b": Pairs(first, Y)}).digest() == expected.digest()
    assert expected.samples.x.shape == (24, 6, 5, 3)


def test_a_client_may_bring_its_own_parts() -> None:
    parts = {"train": (X[:7], Y[:7]), "validation": (X[7:9], Y[7:9]), "test": (X[9:], Y[9:])}
    arrays = {"x": X[:7], "y": Y[:7], "x_test": X[7:], "y_test": Y[7:]}
    federation = Federation.from_clients({"anna": parts, "bert": arrays})
    assert (federation.train.sizes.tolist(), federation.val.sizes.tolist()) == ([7, 7], [2, 0])
    assert (federation.samples.x[federation.test[0]] == X[9:]).all()
    assert (federation.samples.x[federation.test[1]] == X[7:]).all()


def test_validation_samples_are_held_out_on_request() -> None:
    federation = Federation.from_clients({"anna": (X, Y), "bert": (X, Y)}, validation=True)
    assert federation.val.sizes.tolist() == [1, 1]
    shares = {"train": 0.5, "val": 0.25, "test": 0.25}
    assert Federation.from_clients({"a": (X, Y), "b": (X, Y)}, split=shares).val.sizes.tolist() == [3, 3]


def test_names_of_classes_and_kinds_of_targets() -> None:
    named = Federation.from_clients({"a": (X, Y), "b": (X, Y)}, classes=["cat", "dog", "eel", "fox"])
    assert named.samples.classes == ("cat", "dog", "eel", "fox")
    assert Federation.from_clients({"a": (X, Y), "b": (X, Y)}, target="number").samples.classes == ()
    floats = {"a": (X, Y.astype(float)), "b": (X, Y.astype(float))}
    assert Federation.from_clients(floats, target="class").samples.classes == ("0", "1", "2")
    assert Federation.from_clients(floats, target="number").samples.y.dtype == np.float32
    words = Federation.from_clients({"a": (X, np.array(["u", "v", "w"] * 4)), "b": (X, ["u"] * 12)})
    assert words.samples.classes == ("u", "v", "w")


def frame(pandas: Any, **changes: Any) -> Any:
    values = {"age": [61, None, 48, 50], "sex": ["f", "m", "f", None], "stage": [1, 2, 1, 2], "died": [0, 1, 1, 0]}
    return pandas.DataFrame({**values, **changes})


def test_frames_have_typed_columns() -> None:
    pandas = pytest.importorskip("pandas")
    other = frame(pandas, sex=pandas.Categorical(["x", "f", "f", "m"]))
    federation = Federation.from_clients({"anna": frame(pandas), "bert": other}, categorical="stage")
    samples = federation.samples
    assert samples.columns == (Column("age"), Column("sex", ("f", "m", "x")), Column("stage", ("1", "2")))
    np.testing.assert_array_equal(samples.x[:4, 0], np.array([61, np.nan, 48, 50], np.float32))
    np.testing.assert_array_equal(samples.x[:5, 1], np.array([0, 1, 0, np.nan, 2], np.float32))
    assert (samples.classes, samples.y[:4].tolist()) == (("0", "1"), [0, 1, 1, 0])
    table, labels = frame(pandas).drop(columns="died"), frame(pandas)["died"]
    assert Federation.from_clients({"anna": (table, labels), "bert": other}, categorical="stage").digest() == (
        federation.digest()
    )


def test_hugging_face_data_sets_are_tables_or_images() -> None:
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("PIL")
    features = datasets.Features(
        {
            "label": datasets.ClassLabel(names=["no", "yes"]),
            "age": datasets.Value("int64"),
            "sex": datasets.Value("string"),
        }
    )
    table = datasets.Dataset.from_dict({"label": [0, 1, 1], "age": [61, None, 48], "sex": ["f", "m", "f"]}, features)
    samples = Federation.from_clients({"anna": table, "bert": table}).samples
    assert samples.columns == (Column("age"), Column("sex", ("f", "m")))
    assert (samples.classes, samples.y[:3].tolist()) == (("no", "yes"), [0, 1, 1])
    pictures = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "eel"])})
    photos = datasets.Dataset.from_dict({"image": list(IMAGES), "label": Y.tolist()}, pictures)
    read = Federation.from_clients(
        {"anna": {"train": photos, "test": photos}, "bert": {"train": photos, "test": photos}}
    )
    assert (read.samples.x[:12] == IMAGES).all()
    assert read.samples.classes == ("cat", "dog", "eel")
    tags = datasets.Dataset.from_dict({"age": [1, 2], "label": [[0, 1], [1]]})
    with pytest.raises(UserError, match="several labels per sample in 'label': multi-label data are not supported"):
        Federation.from_clients({"anna": tags, "bert": tags})


@pytest.mark.parametrize(
    ("clients", "options", "complaint"),
    [
        ([], {}, r"a mapping from names to data, as in \{'anna': \(x, y\)\}, not an object of type list"),
        ({}, {}, "must be a mapping"),
        ({3: (X, Y)}, {}, "3 is no name of a client"),
        ({"a\nb": (X, Y)}, {}, "is no name of a client"),
        ({"anna": X}, {}, "'anna' has an object of type ndarray as item 0: each item must be a pair"),
        ({"anna": "mnist"}, {}, r"'anna' has an object of type str: give it \(x, y\), a data set of pairs"),
        ({"anna": Endless()}, {}, "'anna' has an object of type Endless without a length"),
        ({"anna": (X, Y[:5])}, {}, "'anna' needs arrays 'x' and 'y' of the same length"),
        ({"anna": (X, np.eye(12, 3, dtype=int))}, {}, "'anna' has 3 labels per sample: multi-label data are not"),
        ({"anna": (X, Y.astype(float))}, {}, r"'anna' has labels such as 0\.0: set target to 'class'"),
        ({"anna": (X[:, 0], Y)}, {}, r"'anna' has an x of type float32 and shape \(12,\)"),
        ({"anna": ([[1], [1, 2]], [0, 1])}, {}, "'anna' has data that cannot be read"),
        ({"anna": [(X[0], 0), (X[0, :2], 1)]}, {}, "items 0 and 1 of different shapes"),
        ({"anna": {"training": (X, Y)}}, {}, "'anna' has 'training': give it 'x' and 'y', or 'train'"),
        ({"anna": (X, Y), "bert": (X[:, :2], Y)}, {}, r"'bert' has samples of shape \(2,\)"),
        (
            {"anna": (X, Y), "bert": {"train": (X, Y), "test": (X, Y)}},
            {},
            "'bert' brings test samples and client 'anna'",
        ),
        ({"anna": (X, Y)}, {"split": {"train": 0.5}}, "split = .*give shares such as"),
        ({"anna": (X, Y)}, {"label": "died"}, "label is about the columns of a table, and client 'anna' has arrays"),
        ({"anna": (X, ["u", "v"] * 6)}, {"classes": ["a", "b"]}, "classes names the classes 0, 1, ..., but client"),
        ({"anna": (X, Y)}, {"classes": ["a", "b"]}, r"names 2 classes but has labels 0\.\.2"),
    ],
)
def test_everything_else_is_refused_with_the_client(clients: Any, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        Federation.from_clients(clients, **options)
    assert "\n" not in str(caught.value)
