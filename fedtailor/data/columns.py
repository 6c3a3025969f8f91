"""The columns of a table."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of a table: numbers or, with ``categories``, the index of a sample's category among them."""

    name: str
    categories: tuple[str, ...] = ()
