"""What the results of all searches have in common."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A finished search on validation data.

    Attributes
    ----------
    folder : Path
        Its folder.
    name : str
        The name of the experiment.
    measure : str
        The headline measure, on validation data.
    percent, less_is_better : bool
        Whether the measure is a share, and whether a lower value is better.
    model : str
        The model that was measured.
    rounds : int
        The rounds of a complete trial.
    seeds : tuple of int
        The seeds of complete trials.
    samples : tuple of int
        The numbers of samples for training and for validation, of all clients together.
    notes : tuple of str
        What a reader must know.
    """

    folder: Path
    name: str
    measure: str
    percent: bool
    less_is_better: bool
    model: str
    rounds: int
    seeds: tuple[int, ...]
    samples: tuple[int, int]
    notes: tuple[str, ...] = ()

    OBJECTS: ClassVar[tuple[str, ...]] = ()  # attributes that have a form of their own in JSON

    def plain(self) -> dict[str, Any]:
        """The attributes that JSON can hold."""
        values = {key: value for key, value in vars(self).items() if key not in self.OBJECTS}
        return {**values, "folder": str(self.folder)}
