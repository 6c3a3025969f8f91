"""The data of a client that meets a federation: its classes, columns and pre-processing are those of the federation."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedtailor.errors import UserError

from .columns import Column
from .preprocessing import Preprocessing, with_own
from .samples import Samples

COORDINATOR = "the coordinator does not know the {what} {name!r}"


def relabelled(samples: Samples, outline: Mapping[str, Any], sentence: str = COORDINATOR) -> Samples:
    """The samples with the classes and categories of the whole federation, which may have more of them.

    Parameters
    ----------
    samples : Samples
        Those of the client.
    outline : mapping
        That of the federation, `Federation.outline`.
    sentence : str
        The error about a class or category that the federation does not have.
    """
    classes = tuple(outline["classes"])
    if classes != samples.classes:
        samples = replace(samples, classes=classes, y=_places("class", samples.classes, classes, sentence)[samples.y])
    columns = tuple(Column(name, tuple(categories)) for name, categories in outline.get("columns", ()))
    if columns != samples.columns:
        x = samples.x.copy()
        for j, (own, agreed) in enumerate(zip(samples.columns, columns, strict=True)):
            known = ~np.isnan(x[:, j])
            if own.categories:
                places = _places(f"category of {own.name!r},", own.categories, agreed.categories, sentence)
                x[known, j] = places[x[known, j].astype(np.int64)]
            elif agreed.categories and known.any():
                raise UserError(f"the column {own.name!r} holds numbers here and words on other nodes: make them alike")
        samples = replace(samples, columns=columns, x=x)
    return samples


def prepared_alike(samples: Samples, outline: Mapping[str, Any], train: np.ndarray) -> Samples:
    """The samples with the pre-processing of the federation, and with their own statistics if it says so."""
    facts = outline.get("preprocessing")
    if facts is None:
        return samples
    preprocessing = Preprocessing.from_dict(facts)
    if preprocessing.settings.statistics == "client":
        preprocessing = with_own(preprocessing, samples, train)
    return replace(samples, preprocessing=preprocessing)


def made_alike(samples: Samples, outline: Mapping[str, Any], like: np.ndarray, where: str) -> Samples:
    """The samples of a new client in the form of a federation's; ``like`` is an array of the federation's samples.

    Raises
    ------
    UserError
        If the samples have another form, another kind of label, or a class or category that is unknown.
    """
    agreed = [name for name, _ in outline.get("columns", ())]
    if agreed and not samples.columns:
        names = ", ".join(agreed[:4]) + (", ..." if len(agreed) > 4 else "")
        raise UserError(f"{where} has no names of columns, and the run has {names}: name them")
    samples = _ordered(samples, agreed, where)
    x = samples.x
    if x.shape[1:] != like.shape[1:] or (x.dtype == np.uint8) != (like.dtype == np.uint8):
        raise UserError(
            f"{where} has samples of {_form(x)}, but the run was trained on samples of {_form(like)}: make them alike"
        )
    if bool(samples.classes) != bool(outline["classes"]):
        kinds = ("classes", "numbers") if samples.classes else ("numbers", "classes")
        raise UserError(f"{where} has {kinds[0]} as labels, but the run was trained on {kinds[1]}: make them alike")
    if samples.vocabulary > outline["vocabulary"]:
        raise UserError(f"{where} has token ids up to {samples.vocabulary - 1}: the run knows {outline['vocabulary']}")
    for column, (name, categories) in zip(samples.columns, outline.get("columns", ()), strict=False):
        if column.categories and not categories:
            odd = next((word for word in column.categories if not _is_number(word)), column.categories[0])
            raise UserError(f"{where} has {odd!r} in the column {name!r}, where the run has numbers: correct it")
        if categories and not column.categories and not np.isnan(samples.x[:, agreed.index(name)]).all():
            raise UserError(f"{where} has numbers in the column {name!r}, where the run has words: correct them")
    sentence = f"{where} has the {{what}} {{name!r}}, which the run was not trained on: correct or remove it"
    samples = relabelled(samples, outline, sentence)
    return replace(
        samples,
        x=samples.x.astype(like.dtype, copy=False),
        mean=tuple(outline["mean"]),
        std=tuple(outline["std"]),
        vocabulary=outline["vocabulary"],
    )


def _ordered(samples: Samples, agreed: list[str], where: str) -> Samples:
    """The samples with their columns in the order of the federation's, where both have names."""
    own = [column.name for column in samples.columns]
    if not own or not agreed or own == agreed:
        return samples
    for names, others, lacks in ((agreed, own, "lacks"), (own, agreed, "has")):
        if odd := [name for name in names if name not in others]:
            unknown = "" if lacks == "lacks" else ", which the run was not trained on"
            raise UserError(f"{where} {lacks} the column {odd[0]!r}{unknown}: make its columns those of the run")
    places = [own.index(name) for name in agreed]
    return replace(samples, x=samples.x[:, places], columns=tuple(samples.columns[place] for place in places))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _form(x: np.ndarray) -> str:
    if x.dtype == np.uint8 and x.ndim == 4:
        height, width, channels = x.shape[1:]
        return f"{height} x {width} pixels with {channels} channels (uint8 of shape (n, {height}, {width}, {channels}))"
    return f"{x.shape[1]} features" if x.ndim == 2 else f"shape {tuple(x.shape[1:])}"


def _places(what: str, own: tuple[str, ...], agreed: tuple[str, ...], sentence: str) -> np.ndarray:
    """The place of each of our names among those of the whole federation."""
    missing = set(own) - set(agreed)
    if missing:
        raise UserError(sentence.format(what=what, name=min(missing)))
    return np.array([agreed.index(name) for name in own], np.int64)
