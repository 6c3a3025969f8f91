"""Loaded data and running workers, which several runs can share."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fedtailor.data import DataSettings, Federation, build, resolve
from fedtailor.data.federation import prepared
from fedtailor.data.partitions import Given
from fedtailor.engines import Engine, open_engine
from fedtailor.errors import UserError
from fedtailor.runs.settings import Experiment


@dataclass
class Resources:
    """The data and the engine of one run or of several, one after the other. Close it to end the workers."""

    given: Federation | None = None  # the caller's federation, which replaces that of the data settings
    engine: Engine | None = None
    _federation: tuple[Any, Federation] | None = None

    def federation(self, settings: Experiment) -> Federation:
        """The clients' data, with the labels of malicious clients."""
        clean = self._clean(settings)
        return clean if settings.attack is None else settings.attack.data(clean, settings.seed)

    def _clean(self, settings: Experiment) -> Federation:
        """The data; loaded again only if the settings ask for other data."""
        if self.given is not None:
            return self._given(settings)
        key = (settings.data, settings.partition_seed, settings.carves_validation, settings.evaluation.new_clients)
        if self._federation is None or self._federation[0] != key:
            self._federation = (key, build(*key[:2], needs_validation=key[2], new_clients=key[3]))
        return self._federation[1]

    def _given(self, settings: Experiment) -> Federation:
        """The caller's federation, pre-processed as the settings say; the nodes of a real one did it themselves."""
        assert self.given is not None
        share, preprocess = settings.evaluation.new_clients, settings.data.preprocess
        if share and settings.data.source == "nodes":
            raise UserError("evaluation.new_clients is for simulations: a new node joins with 'fedtailor join'")
        if share and self.given.samples.preprocessing is not None:
            raise UserError("evaluation.new_clients: this federation is pre-processed with the data of all its clients")
        if settings.data.source == "nodes" or self.given.samples.preprocessing is not None:
            return self.given
        key = (preprocess, share, settings.partition_seed)
        if self._federation is None or self._federation[0] != key:
            self._federation = (key, prepared(self.given.holding_out(share, key[2]), preprocess))
        return self._federation[1]

    def resolved(self, settings: Experiment) -> Experiment:
        """The settings as a run records them: with the data that it used, and all that these decided."""
        if settings.data.source == "nodes":
            return settings
        federation = self.federation(settings)
        if self.given is not None:
            data = DataSettings(
                source="python", clients=federation.everyone, partition=Given(), preprocess=settings.data.preprocess
            )
        else:
            data = resolve(settings.data, federation.samples)
        return settings.model_copy(update={"data": data})

    def engine_for(self, settings: Experiment) -> Engine:
        """The engine, opened at the first call; raises a `UserError` if it is unavailable."""
        if self.engine is None:
            self.engine = open_engine(settings.engine)
        return self.engine

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
        self.engine = None

    def __enter__(self) -> "Resources":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def again(settings: Experiment, given: Federation | None, sentence: str) -> Experiment:
    """The settings to read the data of a run again; ``sentence`` begins the error.

    The digest decides whether the data are the same, so the recorded number of clients is no demand.
    """
    if settings.data.source == "python" and given is None:
        raise UserError(
            f"{sentence}: it began with a federation given in Python, which is not stored; pass it as federation=..."
        )
    if not isinstance(settings.data.partition, Given):
        return settings
    return settings.model_copy(update={"data": settings.data.model_copy(update={"clients": None})})


@contextmanager
def own_or_given(resources: Resources | None, federation: Federation | None) -> Iterator[Resources]:
    """The caller's resources, which stay open, or new resources that close after one run."""
    if resources is not None:
        yield resources
        return
    with Resources(federation) as resources:
        yield resources
