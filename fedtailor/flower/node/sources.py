"""Where a node's data come from."""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fedtailor.data import Samples
from fedtailor.data.folder import client_of_arrays, one_client
from fedtailor.data.readers import Roles
from fedtailor.errors import UserError

Rows = dict[str, np.ndarray]


def load_data(data: str, roles: Roles = Roles()) -> tuple[Samples, Rows]:
    """Load the data of one client.

    Parameters
    ----------
    data : str
        A folder, a file, or ``module:function``. The function returns a mapping of arrays named as in a file, a pair
        (x, y), or a data set with a length whose items are such pairs.
    roles : Roles
        What the columns of a CSV file are for.

    Returns
    -------
    tuple
        The samples, and the rows of each split that the data name.
    """
    module, colon, function = data.partition(":")
    if not colon or Path(data).exists() or os.sep in module:
        return one_client(Path(data), roles)
    if roles.named:
        raise UserError(
            f"data.{roles.named} is about the columns of CSV files, and --data {data} is none: leave it out"
        )
    try:
        found = getattr(import_module(module), function)()
    except Exception as error:
        raise UserError(f"--data {data} cannot be called ({type(error).__name__}: {error})") from None
    try:
        arrays = _arrays(found)
    except Exception as error:
        raise UserError(f"--data {data} gives no data set ({type(error).__name__}: {error})") from None
    return client_of_arrays(arrays, data)


def _arrays(found: Any) -> Mapping[str, Any]:
    """Return a function's result as named arrays."""
    if isinstance(found, Mapping):
        return found
    if isinstance(found, tuple) and len(found) == 2:
        return {"x": found[0], "y": found[1]}
    pairs = [found[index] for index in range(len(found))]
    return {"x": np.stack([np.asarray(x) for x, _ in pairs]), "y": np.asarray([np.asarray(y) for _, y in pairs])}
