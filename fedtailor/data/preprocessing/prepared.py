"""Fitted pre-processing: what is done to every sample, in training, in testing and after export."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedtailor.data.columns import Column
from fedtailor.errors import UserError

from .settings import Preprocess
from .summary import table

UNKNOWN = -1  # the code of a category that no training sample has
EMPTY = ("", "?", "na", "nan", "none", "null")  # cells that hold no value, in small letters
STATISTICS = ("fill", "mean", "scale")


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """The agreed coding of columns, and what replaces, shifts and scales the values.

    A feature is a column of a table, a channel of images, or a place in an input of more dimensions, which has no
    columns. The statistics have a row for each client, or one for all clients; none where they are unknown, as the
    clients' own are to a coordinator.
    """

    settings: Preprocess
    image: bool  # whether the features are the channels of images
    columns: tuple[Column, ...]
    kept: tuple[tuple[int, ...], ...]  # by column: the categories that training samples have
    missing: tuple[int, ...]  # the features with missing values among the training samples
    fill: np.ndarray  # float64 (rows, features); of a column with categories, a code
    mean: np.ndarray
    scale: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """What each input of the network means: numbers, then categories, then indicators of missing values."""
        names = [column.name for column in self.columns if not column.categories]
        for column, kept in zip(self.columns, self.kept, strict=True):
            if column.categories and self.settings.categories == "codes":
                names.append(column.name)
            elif column.categories:
                names += [f"{column.name} = {column.categories[code]}" for code in kept]
        return (*names, *(f"{self.columns[j].name} is missing" for j in self.indicated))

    @property
    def indicated(self) -> tuple[int, ...]:
        """The features of which an input says whether they are missing."""
        return self.missing if self.settings.indicator else ()

    def row(self, client: int) -> int:
        """The row of the statistics of a client; a `UserError` if there is none."""
        if not len(self.mean):
            raise UserError(
                "these inputs are prepared with each client's own statistics, which this model does not have: export "
                "the model of a client"
            )
        return client if len(self.mean) > 1 else 0

    def shape(self, given: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a sample after pre-processing."""
        return (len(self.names),) if self.columns else given

    def of(self, client: int) -> "Preprocessing":
        """The same with the statistics of one client only."""
        if len(self.mean) < 2:
            return self
        return replace(self, **{name: getattr(self, name)[client : client + 1] for name in STATISTICS})

    def without_statistics(self) -> "Preprocessing":
        """The same without any client's statistics: it can describe inputs, but not prepare them."""
        return replace(self, **{name: getattr(self, name)[:0] for name in STATISTICS})

    def channels(self, client: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of the channels of a client's images, for values scaled to 0..1."""
        row = self.row(client)
        return tuple(self.mean[row].tolist()), tuple(self.scale[row].tolist())

    def apply(self, x: np.ndarray, client: int = 0) -> np.ndarray:
        """The inputs of the network, float32, for raw samples of a client that are not images."""
        row, values = self.row(client), table(x)
        absent = np.isnan(values)
        numbers = np.where(absent, self.fill[row], values)
        if self.settings.standardise:
            numbers = (numbers - self.mean[row]) / self.scale[row]
        if not self.columns:
            return numbers.astype(np.float32).reshape(x.shape)
        blocks = [numbers[:, np.array([not column.categories for column in self.columns])]]
        blocks += [self._coded(values[:, j], j, row) for j, column in enumerate(self.columns) if column.categories]
        blocks.append(absent[:, np.array(self.indicated, np.int64)])
        return np.concatenate(blocks, 1).astype(np.float32)

    def codes(self, rows: Any) -> np.ndarray:
        """Rows of numbers and category names, as a table holds them, as raw samples; an empty cell is missing."""
        cells = np.asarray(rows, object)
        if cells.ndim != 2 or cells.shape[1] != len(self.columns):
            raise UserError(f"these samples have shape {cells.shape}, but the model takes {len(self.columns)} columns")
        made = np.full(cells.shape, np.nan, np.float32)
        for j, column in enumerate(self.columns):
            place = {name: code for code, name in enumerate(column.categories)}
            for row, cell in enumerate(cells[:, j]):
                text = str(cell).strip()
                if text.lower() not in EMPTY or text in place:
                    made[row, j] = place.get(text, UNKNOWN) if column.categories else float(text)
        return made

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            "settings": self.settings.model_dump(mode="json"),
            "image": self.image,
            "columns": [[column.name, list(column.categories)] for column in self.columns],
            "kept": [list(codes) for codes in self.kept],
            "missing": list(self.missing),
            "features": self.mean.shape[1],
            **{name: getattr(self, name).tolist() for name in STATISTICS},
        }

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "Preprocessing":
        """Read what `as_dict` gave."""
        return cls(
            settings=Preprocess.model_validate(facts["settings"]),
            image=bool(facts["image"]),
            columns=tuple(Column(name, tuple(categories)) for name, categories in facts["columns"]),
            kept=tuple(tuple(codes) for codes in facts["kept"]),
            missing=tuple(facts["missing"]),
            **{name: np.array(facts[name], np.float64).reshape(-1, facts["features"]) for name in STATISTICS},
        )

    def _coded(self, codes: np.ndarray, j: int, row: int) -> np.ndarray:
        """The inputs of a column with categories; a category that is missing or unknown is replaced, if it can be."""
        kept = np.array(self.kept[j], np.float64)  # ascending
        replaced = self.fill[row, j] if self.settings.impute != "none" else UNKNOWN
        codes = np.where(np.isin(codes, kept), codes, replaced)
        if self.settings.categories == "one-hot":
            ones: np.ndarray = np.equal.outer(codes, kept)
            return ones
        mean: float = self.mean[row, j]
        number: np.ndarray = np.where(np.isin(codes, kept), np.searchsorted(kept, codes), mean)[:, None]
        return (number - mean) / self.scale[row, j] if self.settings.standardise else number
