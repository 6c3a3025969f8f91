"""Partitions: which client gets which samples.

Each kind is a function from labels (or groups) to ``Shares`` and a small settings class of the same
name that calls it. All randomness comes from the stream that is passed in, and a partition returns
integers only, so it is the same on every machine.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from .base import PartitionSettings, Pool, Stream
from .by_class import Groups, Mixed, OneLabel, Pathological, groups, mixed, one_label, pathological
from .by_drawing import Resampled, resampled, resampled_tests
from .by_group import ByDomain, ByWriter, Given, by_domain, by_writer, given
from .by_proportion import Dirichlet, DirichletClients, Iid, dirichlet, dirichlet_clients, iid

__all__ = [
    "ByDomain",
    "ByWriter",
    "Dirichlet",
    "DirichletClients",
    "Given",
    "Groups",
    "Iid",
    "Mixed",
    "OneLabel",
    "Partition",
    "PartitionSettings",
    "Pathological",
    "Pool",
    "Resampled",
    "Stream",
    "by_domain",
    "by_writer",
    "dirichlet",
    "dirichlet_clients",
    "given",
    "groups",
    "iid",
    "mixed",
    "one_label",
    "pathological",
    "resampled",
    "resampled_tests",
]


def _from_name(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Partition = Annotated[
    Annotated[
        Iid
        | Pathological
        | Dirichlet
        | DirichletClients
        | Groups
        | OneLabel
        | Mixed
        | Resampled
        | ByWriter
        | ByDomain
        | Given,
        Field(discriminator="kind"),
    ],
    BeforeValidator(_from_name),
]
