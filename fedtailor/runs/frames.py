"""Rows of a run or comparison as a pandas frame."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedtailor.errors import UserError


def frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A frame with a column for every key. Raises a `UserError` without pandas."""
    try:
        import pandas
    except ImportError:
        raise UserError("frames need pandas: pip install 'fedtailor[notebook]'") from None
    return pandas.DataFrame(list(rows))
