"""Clients' data as Python objects: arrays, tensors, data sets, frames.

This module imports neither pandas nor Hugging Face datasets: a caller with such an object has imported them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedtailor.errors import UserError

from .readers import PARTS, Cells, Roles, Table, table_of_arrays, typed

KINDS = "(x, y), a data set of pairs, a pandas frame, a Hugging Face data set, or a mapping with 'x' and 'y'"
FEW = 20  # different whole numbers, written as floats, that may be classes


def tables_of(clients: Mapping[str, Any], roles: Roles, classes: Sequence[str]) -> tuple[list[str], list[Table]]:
    """The tables of all clients and the client of each; several if a client brings its own split."""
    if not isinstance(clients, Mapping) or not clients:
        raise UserError(f"clients must be a mapping from names to data, as in {{'anna': (x, y)}}, not {_kind(clients)}")
    names, found = [], []
    for name, value in clients.items():
        if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 64:
            raise UserError(f"{name!r} is no name of a client: use a text of at most 64 printable letters")
        for part, inner in _parts(name, value):
            names.append(name)
            found.append(_read(f"client {name!r}" + (f" ({part})" if part != "train" else ""), part, inner, roles))
    cells = [one for one in found if isinstance(one, Cells)]
    if cells and len(cells) < len(found):
        raise UserError(f"{found[0].where} and {found[-1].where} have different kinds of data: make them alike")
    if not cells and (unused := roles.named) not in ("", "target"):
        raise UserError(f"{unused} is about the columns of a table, and {found[0].where} has arrays: leave it out")
    tables = typed(cells, roles) if cells else [one for one in found if isinstance(one, Table)]
    return names, [_named(table, classes) for table in tables]


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The parts that a client brings: train alone, or with val and test."""
    if not isinstance(value, Mapping) or "x" in value:
        yield "train", value
        return
    parts = {"val" if key == "validation" else key: inner for key, inner in value.items()}
    if "train" not in parts or set(parts) - set(PARTS):
        keys = ", ".join(map(repr, list(value)[:5])) or "nothing"
        raise UserError(f"client {name!r} has {keys}: give it 'x' and 'y', or 'train' with 'val' and 'test'")
    yield from ((part, parts[part]) for part in PARTS if part in parts)


def _read(where: str, part: str, value: Any, roles: Roles) -> Table | Cells:
    """One object as a table."""
    try:
        if isinstance(value, Mapping):
            return table_of_arrays(where, {key: _array(inner) for key, inner in value.items()})
        if isinstance(value, tuple) and len(value) == 2:
            return _of_pair(where, part, *value, roles)
        if _is_frame(value):
            return _of_frame(where, part, value)
        if type(value).__module__.startswith("datasets."):
            return _of_hugging_face(where, part, value, roles)
        if hasattr(value, "__getitem__") and hasattr(value, "__len__") and not isinstance(value, str | bytes):
            return _of_data_set(where, part, value, roles)
    except UserError:
        raise
    except Exception as problem:  # an object of unknown origin may raise anything
        detail = " ".join(f"{type(problem).__name__}: {problem}".split())[:200]
        raise UserError(f"{where} has data that cannot be read ({detail}): give it {KINDS}") from problem
    lacks = " without a length" if hasattr(value, "__iter__") and not hasattr(value, "__len__") else ""
    raise UserError(f"{where} has {_kind(value)}{lacks}: give it {KINDS}")


def _of_pair(where: str, part: str, x: Any, y: Any, roles: Roles) -> Table | Cells:
    if _is_frame(x):
        label = roles.label or str(getattr(y, "name", None) or "label")
        if label in map(str, x.columns) or len(x) != len(y):
            raise UserError(f"{where} needs inputs and labels of the same length, and no input called {label!r}")
        return _of_frame(where, part, x.assign(**{label: y}))
    table = table_of_arrays(where, {"x": _channels_last(where, x), "y": _labels(where, _array(y), roles)})
    return Table(where, table.x, table.y, np.full(len(table.y), PARTS.index(part), np.int8))


def _of_data_set(where: str, part: str, value: Any, roles: Roles) -> Table | Cells:
    """A data set with a length whose items are pairs, such as ``torch.utils.data.Dataset``."""
    xs, ys = [], []
    for index in range(len(value)):
        item = value[index]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise UserError(f"{where} has {_kind(item)} as item {index}: each item must be a pair (x, y)")
        xs.append(_array(item[0]))
        ys.append(_array(item[1]))
        if xs[-1].shape != xs[0].shape or ys[-1].shape != ys[0].shape:
            raise UserError(f"{where} has items 0 and {index} of different shapes: make them alike")
    if not xs:
        raise UserError(f"{where} holds no samples: add some or remove it")
    x = np.stack(xs)
    tensors = hasattr(value[0][0], "detach")
    return _of_pair(where, part, _first_to_last(where, x) if tensors else x, np.stack(ys), roles)


def _of_frame(where: str, part: str, frame: Any) -> Cells:
    """A pandas frame: numbers are numbers, everything else are categories."""
    names = [str(name) for name in frame.columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{where} has two columns {twice!r}: give each column a name of its own")
    columns, words = {}, set()
    for place, name in enumerate(names):
        series = frame.iloc[:, place]
        kind = getattr(series.dtype, "kind", "O")
        pairs = zip(series.isna().tolist(), series.tolist(), strict=True)
        columns[name] = ["" if missing else _cell(where, name, value) for missing, value in pairs]
        if kind not in "iufM":
            words.add(name)
    return Cells(where, columns, part=part, words=frozenset(words))


def _of_hugging_face(where: str, part: str, value: Any, roles: Roles) -> Table | Cells:
    """A Hugging Face data set: images with labels, or a table."""
    features = getattr(value, "features", None)
    if not features or not hasattr(value, "to_pandas"):
        raise UserError(f"{where} has {_kind(value)}: give it one split in memory, as in data['train']")
    label = roles.label or next((name for name in ("label", "labels") if name in features), list(features)[-1])
    if label not in features:
        raise UserError(f"{where} has no column {label!r}: it has {', '.join(features)}")
    kinds = {name: type(feature).__name__ for name, feature in features.items()}
    if kinds[label] in ("List", "LargeList", "Sequence"):
        raise UserError(f"{where} has several labels per sample in {label!r}: multi-label data are not supported")
    pictures = [name for name, kind in kinds.items() if kind == "Image" and name not in roles.ignore]
    if pictures:
        x = np.stack([np.asarray(image) for image in value[pictures[0]]])
        y = np.asarray(_texts(features[label], value[label]))
        return _of_pair(where, part, x, y, Roles(target=roles.target))
    coded = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    frame = value.to_pandas()
    for name in coded:
        frame[name] = _texts(features[name], frame[name].tolist())
    frame = frame[[name for name in frame.columns if name != label] + [label]]
    return _of_frame(where, part, frame)


def _texts(feature: Any, codes: Sequence[Any]) -> list[Any]:
    """The names of classes, if the feature has names."""
    names = getattr(feature, "names", None)
    return [names[int(code)] for code in codes] if names else list(codes)


def _cell(where: str, name: str, value: Any) -> str:
    if isinstance(value, list | tuple | dict | set | np.ndarray):
        raise UserError(f"{where} has {_kind(value)} in column {name!r}: a cell holds one number or text")
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return repr(float(value)) if isinstance(value, float | np.floating) else str(value).strip()


def _array(value: Any) -> np.ndarray:
    """An array, tensor, list or image as an array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return value.numpy()  # type: ignore[no-any-return]
    array = np.asarray(value)
    texts = array.dtype.kind == "O" and array.size and all(isinstance(item, str) for item in array.flat)
    return array.astype(str) if texts else array


def _channels_last(where: str, x: Any) -> np.ndarray:
    return _first_to_last(where, _array(x)) if hasattr(x, "detach") else _array(x)


def _first_to_last(where: str, x: np.ndarray) -> np.ndarray:
    """Images of bytes as torch has them, channels first, with channels last."""
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[1] not in (1, 3, 4):
        return x
    if x.shape[-1] in (1, 3, 4):
        raise UserError(f"{where} has images of shape {x.shape[1:]}, with channels first or last: pass a numpy array")
    return x.transpose(0, 2, 3, 1)


def _labels(where: str, y: np.ndarray, roles: Roles) -> np.ndarray:
    """Labels of the kind that ``target`` says; refuses floats that may be classes."""
    if y.dtype.kind == "f" and y.ndim == 1 and len(y) and np.isfinite(y).all() and (y == np.round(y)).all():
        if roles.target == "class":
            return y.astype(np.int64)
        if roles.target is None and len(np.unique(y)) <= FEW:
            raise UserError(
                f"{where} has labels such as {y[0]}: set target to 'class', or to 'number' for a regression"
            )
    return y.astype(np.float32) if roles.target == "number" and y.dtype.kind in "iu" else y


def _named(table: Table, classes: Sequence[str]) -> Table:
    if not classes:
        return table
    if table.y.dtype.kind != "i" or table.classes:
        raise UserError(
            f"classes names the classes 0, 1, ..., but {table.where} has labels of another kind: leave it out"
        )
    return Table(**{**vars(table), "classes": tuple(str(name) for name in classes)})


def _is_frame(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns")


def _kind(value: Any) -> str:
    return f"an object of type {type(value).__name__}"
