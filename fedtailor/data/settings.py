"""The ``[data]`` settings of an experiment."""

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fedtailor.errors import unknown

from .partitions import Dirichlet, Partition
from .preprocessing import Preprocess
from .readers import Roles
from .sources import SOURCES

OWN_SOURCES = ("folder", "synthetic")  # sources that are not a known data set
RECORDED = ("python", "nodes")  # what a run records: a Federation given in Python, the nodes of a real federation


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fractions(Settings):
    """Train and test samples are pooled, dealt to the clients, then split within every client."""

    train: float = Field(0.75, gt=0, le=1, description="Share of a client's samples to train on.")
    val: float = Field(0.0, ge=0, lt=1, description="Share of a client's samples for validation.")
    test: float = Field(0.25, ge=0, lt=1, description="Share of a client's samples to be tested on.")
    by: Literal["random", "group", "time"] | None = Field(
        None,
        description="'random'; 'group': all samples of a patient, say, on one side; 'time': the last samples are for "
        "testing; default: what the data declare.",
    )

    @model_validator(mode="after")
    def _sum_to_one(self) -> "Fractions":
        if abs(self.train + self.val + self.test - 1) > 1e-6:
            raise ValueError("train, val and test must sum to 1")
        return self


class Synthetic(Settings):
    """Gaussian clouds around class centres, for source "synthetic"; any size."""

    samples: int = Field(2000, ge=1, description="Number of samples.")
    features: int = Field(20, ge=1, description="Number of features of a sample; not used with image.")
    image: tuple[int, int, int] | None = Field(
        None, description="Height, width, channels: makes 8-bit images instead of feature vectors."
    )
    classes: int = Field(10, ge=0, description="Number of classes; 0 makes a linear regression task.")
    clusters: int = Field(1, ge=1, description="Number of groups of samples (see partition by-domain).")
    heterogeneity: float = Field(
        0.0, ge=0, description="How far the groups' class centres are apart; 0: all groups are alike."
    )
    noise: float = Field(1.0, ge=0, description="Standard deviation around a centre; centres have 1.")
    test: float = Field(0.2, ge=0, lt=1, description="Share of samples that form the official test split.")

    @field_validator("image")
    @classmethod
    def _image_has_pixels(cls, image: tuple[int, int, int] | None) -> tuple[int, int, int] | None:
        if image is not None and min(image) < 1:
            raise ValueError("image needs a height, width and number of channels of at least 1")
        return image


DEFAULTS = {"clients": 20, "partition": Dirichlet(), "split": Fractions()}  # if samples do not come divided


class Shakespeare(Settings):
    """Windows of the roles' text, for source "shakespeare"."""

    window: int = Field(80, ge=1, le=10_000, description="Characters of an input; the next one is its label.")
    stride: int = Field(20, ge=1, description="Characters between the beginnings of two windows of a role.")
    min_characters: int = Field(2000, ge=1, description="Roles that speak less are left out.")


class DataSettings(Settings):
    """Which samples there are, and how they are divided.

    ``clients``, ``partition`` and ``split`` are None until something decides them: the settings, the data (a folder
    with a file for each client comes divided), or else their defaults.
    """

    source: str = Field("digits", description="A known data set, 'synthetic', or 'folder'.")
    dir: Path | None = Field(
        None,
        description="Folder of the data sets' files; default $FEDTAILOR_DATA or ~/.cache/fedtailor/data.",
    )
    clients: int | None = Field(
        None, ge=1, description="Number of clients; default 20, or those that the data come divided into."
    )
    partition: Partition | None = Field(
        None, description="How the samples are divided among clients; default 'given' if they are, else 'dirichlet'."
    )
    split: Literal["official"] | Fractions | None = Field(
        None,
        description="'official' keeps the data's own test samples for testing; or fractions. Default: 'official' for "
        "clients that bring test samples, else fractions of 0.75 and 0.25.",
    )
    val: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="With split 'official': share of a client's train samples for validation.",
    )
    samples: int | None = Field(
        None, ge=1, description="Maximum total number of samples, for small machines; default: all."
    )
    seed: int | None = Field(None, ge=0, description="Seed of the partition; default the experiment's.")
    synthetic: Synthetic = Field(Synthetic(), description="For source 'synthetic'.")
    shakespeare: Shakespeare = Field(Shakespeare(), description="For source 'shakespeare'.")
    folder: Path | None = Field(None, description="For source 'folder': the folder with your data.")
    label: str | None = Field(None, description="The column of a CSV file with the label; default: the last column.")
    client: str | None = Field(None, description="The column of a CSV file with the client of each row.")
    group: str | None = Field(
        None, description="The column of a CSV file with a patient, say, whose rows stay on one side of a split."
    )
    time: str | None = Field(None, description="The column of a CSV file with each row's time, for a split by time.")
    categorical: tuple[str, ...] = Field((), description="Columns of a CSV file whose numbers are codes of categories.")
    ignore: tuple[str, ...] = Field((), description="Columns of a CSV file to leave out.")
    target: Literal["class", "number"] | None = Field(
        None, description="What the label of a CSV file is; default: decimals are numbers to predict, the rest classes."
    )
    preprocess: Preprocess = Field(
        Preprocess(),
        description="Scales, missing values and categories; default: nothing, or what the data set needs.",
    )

    @model_validator(mode="before")
    @classmethod
    def _as_the_source_needs(cls, values: Any) -> Any:
        """A source that needs pre-processing sets it, unless the user did, so that the run records it."""
        source = values.get("source") if isinstance(values, dict) and "preprocess" not in values else None
        known = SOURCES.get(source) if isinstance(source, str) else None
        return {**values, "preprocess": dict(known.preprocess)} if known and known.preprocess else values

    @field_validator("categorical", "ignore", mode="before")
    @classmethod
    def _one_name_is_a_list(cls, names: Any) -> Any:
        return (names,) if isinstance(names, str) else names

    @field_validator("source")
    @classmethod
    def _source_exists(cls, source: str) -> str:
        if source not in SOURCES and source not in (*OWN_SOURCES, *RECORDED):
            raise unknown("data.source", source, [*SOURCES, *OWN_SOURCES])
        return source

    @model_validator(mode="after")
    def _validation_is_split_off(self) -> "DataSettings":
        official = self.split == "official" or (self.split is None and self.may_be_divided)
        if self.val and not official:
            raise ValueError(
                f"val = {self.val:g} is for split = 'official': with fractions it is data.split.val, and train, val "
                "and test sum to 1"
            )
        return self

    @property
    def may_be_divided(self) -> bool:
        """Whether only the data can say if they come divided among clients."""
        return self.source in ("folder", *RECORDED) or (self.source in SOURCES and SOURCES[self.source].divided)

    @property
    def filled(self) -> "DataSettings":
        """These settings with their defaults, as far as they do not depend on the data."""
        return self if self.may_be_divided else self.with_defaults()

    def with_defaults(self) -> "DataSettings":
        """These settings for samples that do not come divided among clients."""
        return self.model_copy(update={key: value for key, value in DEFAULTS.items() if getattr(self, key) is None})

    @property
    def shortest(self) -> "DataSettings":
        """The same settings without values that equal their defaults, for a digest that no new default changes."""
        if self.may_be_divided:
            return self
        return self.model_copy(update={key: None for key, value in DEFAULTS.items() if getattr(self, key) == value})

    @property
    def roles(self) -> Roles:
        """What the columns of a user's tables are for."""
        return Roles(self.label, self.client, self.group, self.time, self.categorical, self.ignore, self.target)

    @property
    def directory(self) -> Path:
        """The folder with the data sets' files."""
        return data_directory(self.dir)


def data_directory(chosen: Path | None = None) -> Path:
    """Return the chosen folder, else $FEDTAILOR_DATA, else the cache in the user's home."""
    place = chosen or os.environ.get("FEDTAILOR_DATA") or "~/.cache/fedtailor/data"
    return Path(place).expanduser()
