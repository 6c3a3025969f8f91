"""The ``[data.preprocess]`` settings of an experiment."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Preprocess(BaseModel):
    """What is done to samples before a network sees them. Only training samples define means and the like."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    standardise: bool = Field(
        False, description="Numbers, or the channels of images, get mean 0 and deviation 1 over the training samples."
    )
    impute: Literal["none", "mean", "median", "most-frequent"] = Field(
        "none",
        description="What replaces a missing number; a missing category becomes the most frequent one. 'none' refuses "
        "data with missing values.",
    )
    indicator: bool = Field(
        False, description="Adds an input of 0 or 1 for each column with missing values: whether the value is missing."
    )
    categories: Literal["one-hot", "codes"] = Field(
        "one-hot", description="A category becomes an input of its own, or the column becomes its number."
    )
    statistics: Literal["federation", "client"] = Field(
        "federation",
        description="Whose training samples define means, deviations and what replaces missing values: those of all "
        "clients together, from sums and counts, or each client's own.",
    )

    @model_validator(mode="after")
    def _possible(self) -> "Preprocess":
        if self.impute == "median" and self.statistics == "federation":
            raise ValueError(
                "the median of all clients needs their values, and only sums travel: set impute = 'mean' or "
                "statistics = 'client'"
            )
        if self.indicator and self.impute == "none":
            raise ValueError("indicator needs impute, which says what replaces a missing value")
        return self
