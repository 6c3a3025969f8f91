"""The space of a search: settings and their ranges, from the settings' own limits or from the user."""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedtailor.errors import UserError, unknown
from fedtailor.methods import Method, catalogue, spec
from fedtailor.runs.mistakes import meant
from fedtailor.runs.settings import Experiment, experiment

TABLES = ("training", "method", "model", "aggregation", "participation")  # whose settings a search may change
SPAN = 30.0  # a decimal number whose limits are far apart is searched from value / SPAN to value * SPAN
WHOLE_SPAN = 4.0  # likewise for whole numbers
FAR = 0.02  # limits are far apart if the present value is below this share of the range
MOST = 3  # settings that are searched if the user names none


@dataclass(frozen=True)
class Dimension:
    """A setting of a search: a range of numbers, or choices."""

    key: str  # dotted, as in training.lr
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[Any, ...] = ()
    given: bool = False  # whether the user gave the range

    def __str__(self) -> str:
        if self.choices:
            return f"{self.key}: {', '.join(map(str, self.choices))}"
        return f"{self.key}: {self.low:.4g} to {self.high:.4g}{', by its logarithm' * self.log}"

    def contains(self, value: Any) -> bool:
        """Whether a value of the setting lies in the range."""
        if self.choices:
            return value in self.choices
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high

    def as_text(self) -> str:
        """The dimension as the user could write it."""
        if self.choices:
            return f"{self.key}={','.join(map(str, self.choices))}"
        return f"{self.key}={self.low!r}:{self.high!r}{':log' * self.log}"


def space_of(settings: Experiment, over: Sequence[str] = ()) -> list[Dimension]:
    """The dimensions that a user names, or those of the learning rate and the method's own settings.

    Parameters
    ----------
    settings
        The experiment; a range that the user does not give comes from its values and their limits.
    over
        Texts such as ``training.lr``, ``method.mu=0.001:1:log`` or ``training.batch_size=10,32,64``.

    Raises
    ------
    UserError
        If a setting is unknown, cannot be searched, or has no such value.
    """
    if over:
        found = [_named(settings, text) for text in over]
        keys = [dimension.key for dimension in found]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise UserError(f"--over names {twice[0]} twice")
        return found
    idle = settings.method.idle_settings()
    numbers = [name for name, value in settings.method if isinstance(value, int | float) and name not in idle]
    usual = (_usual(settings, key) for key in ("training.lr", *(f"method.{name}" for name in numbers)))
    return [dimension for dimension in usual if dimension is not None and not dimension.choices][:MOST]


def value_at(settings: Experiment, key: str) -> Any:
    """The present value of a setting."""
    return _look_up(settings, key)[1]


def _named(settings: Experiment, text: str) -> Dimension:
    key, equals, given = (part.strip() for part in text.partition("="))
    if not key:
        raise UserError(f"--over {text!r}: name a setting, as in --over training.lr")
    if key == "method.name":
        raise UserError("--over method.name: methods have settings of their own; tune several with --methods A,B")
    field, value = _look_up(settings, key)
    if not equals:
        found = _usual(settings, key)
        if isinstance(value, list | tuple | dict):
            raise UserError(
                f"--over {key}: it is a list or a table, and a search chooses numbers and words; tune once for each "
                f"value, with --set {key}=..."
            )
        if isinstance(value, str) and (found is None or not found.choices):
            raise UserError(f"--over {key}: name choices, as in --over {key}=A,B")
        if found is None:
            raise UserError(
                f"--over {key}: its limits do not say where to search around {value!r}; give a range, as in "
                f"--over {key}=0.001:1:log, or choices, as in --over {key}=1,2,3"
            )
        return found
    dimension = _choices(key, given) if ":" not in given else _range(key, given, field)
    for end in dimension.choices or (_typed(dimension, dimension.low), _typed(dimension, dimension.high)):
        experiment(settings, {key: end})  # raises if the setting cannot have this value
    return dimension


def _choices(key: str, text: str) -> Dimension:
    choices = tuple(dict.fromkeys(_parsed(part.strip()) for part in text.split(",") if part.strip()))
    if len(choices) < 2:
        raise UserError(f"--over {key}={text}: give at least two values, or a range such as {key}=0.001:1:log")
    return Dimension(key, choices=choices, given=True)


def _range(key: str, text: str, field: FieldInfo) -> Dimension:
    said = f"--over {key}={text}"
    low_text, high_text, *more = (part.strip() for part in text.split(":"))
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        raise UserError(f"{said}: write a range as LOW:HIGH or LOW:HIGH:log, in numbers") from None
    if more not in ([], ["log"]):
        raise UserError(f"{said}: write a range as LOW:HIGH or LOW:HIGH:log")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UserError(f"{said}: the range is empty; the first number must be the smaller one")
    if more and low <= 0:
        raise UserError(f"{said}: a logarithm needs numbers above 0")
    whole = _whole(field)
    if whole and (low != int(low) or high != int(high)):
        raise UserError(f"{said}: {key} is a whole number")
    return Dimension(key, low, high, bool(more), whole, given=True)


def _usual(settings: Experiment, key: str) -> Dimension | None:
    """The dimension that the limits and the present value of a setting suggest; None if they suggest none."""
    field, value = _look_up(settings, key)
    annotation = field.annotation
    if isinstance(value, bool):
        return Dimension(key, choices=(False, True))
    if get_origin(annotation) is Literal and len(get_args(annotation)) > 1:
        return Dimension(key, choices=get_args(annotation))
    if annotation not in (int, float) and not _optional_number(annotation):
        return None
    if not isinstance(value, int | float):
        return None
    whole = _whole(field)
    low, high, inside = _limits(field)
    if math.isfinite(high - low) and value >= low + FAR * (high - low):
        margin = 1.0 if whole else (high - low) / 100
        return Dimension(key, low + margin * inside[0], high - margin * inside[1], whole=whole)
    if value <= 0:
        return None
    span = WHOLE_SPAN if whole else SPAN
    low, high = max(low, value / span), min(high, value * span)
    if whole:
        return Dimension(key, max(1, math.floor(low)), math.ceil(high), log=True, whole=True)
    return Dimension(key, float(f"{low:.3g}"), float(f"{high:.3g}"), log=True)


def _limits(field: FieldInfo) -> tuple[float, float, tuple[bool, bool]]:
    """The limits of a setting, and whether it must lie inside of them."""
    low, high, open_low, open_high = -math.inf, math.inf, False, False
    for limit in field.metadata:
        if isinstance(limit, Ge):
            low = float(limit.ge)  # type: ignore[arg-type]
        elif isinstance(limit, Gt):
            low, open_low = float(limit.gt), True  # type: ignore[arg-type]
        elif isinstance(limit, Le):
            high = float(limit.le)  # type: ignore[arg-type]
        elif isinstance(limit, Lt):
            high, open_high = float(limit.lt), True  # type: ignore[arg-type]
    return low, high, (open_low, open_high)


def _look_up(settings: Experiment, key: str) -> tuple[FieldInfo, Any]:
    """The declaration of a setting, and its present value."""
    table, _, rest = key.partition(".")
    if table in Experiment.model_fields and (table not in TABLES or not rest):
        raise UserError(f"--over {key}: a search may change settings in {', '.join(TABLES)}")
    place: Any = settings
    parts = key.split(".")
    for depth, part in enumerate(parts):
        if isinstance(place, dict) and depth == len(parts) - 1:
            if part not in place:
                raise UserError(f"--over {key}: give it a value first, as in --set {key}=32")
            return FieldInfo(annotation=type(place[part])), place[part]  # an argument, of which only the value is known
        fields = type(place).model_fields if isinstance(place, BaseModel) else {}
        name = part if part in fields else part.replace("-", "_")
        if name not in fields:
            if isinstance(place, Method):
                raise _lacks(key, place, part)
            hint = meant(part)
            above = ".".join(parts[:depth])
            problem = f"did you mean {hint}?" if hint else str(unknown("setting", part, fields or TABLES))
            raise UserError(f"--over {key}: {problem}{f' in [{above}]' if above and not hint else ''}")
        field, place = fields[name], getattr(place, name)
    if isinstance(place, BaseModel):
        raise UserError(f"--over {key}: it is a table; name one of its settings: {', '.join(type(place).model_fields)}")
    return field, place


def _lacks(key: str, method: Method, name: str) -> UserError:
    """The error for a setting that a method does not have: its nearest one, or the methods that have it."""
    own = method.name or spec(method)
    fields = [field for field in type(method).model_fields if field not in ("agents", "policy")]
    having = [other for other, kind in catalogue().items() if name.replace("-", "_") in kind.model_fields]
    if near := get_close_matches(name, fields, n=1):
        return UserError(f"--over {key}: did you mean method.{near[0]}?")
    known = f" (it has {', '.join(fields)})" if fields else ", and no other one"
    others = f"; {', '.join(having)} {'have' if len(having) > 1 else 'has'} one" if having else ""
    return UserError(f"--over {key}: {own} has no setting {name!r}{known}{others}")


def _whole(field: FieldInfo) -> bool:
    """Whether the numbers that a setting may have are whole ones."""
    kinds = _kinds(field.annotation)
    return int in kinds and float not in kinds


def _kinds(annotation: Any) -> set[Any]:
    """The types in an annotation, whatever it is wrapped in."""
    inner = [part for part in get_args(annotation) if get_origin(annotation) is not Literal]
    return {annotation}.union(*map(_kinds, inner))


def _optional_number(annotation: Any) -> bool:
    return set(get_args(annotation)) in ({int, type(None)}, {float, type(None)})


def _typed(dimension: Dimension, value: float) -> float | int:
    return int(value) if dimension.whole else value


def _parsed(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text
