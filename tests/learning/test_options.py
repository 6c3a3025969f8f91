"""Options of a training: an object that callers give as keywords."""

from dataclasses import dataclass
from inspect import signature

from fedtailor.learning import TrainingSettings, TrainOptions
from fedtailor.learning.options import keywords_of


@dataclass(frozen=True)
class Options:
    size: int = 1
    name: str = "a"


class Owner:
    @keywords_of(Options)
    def work(self, options: Options) -> tuple["Owner", Options]:
        """Works."""
        return self, options


def test_callers_give_the_fields_of_the_object() -> None:
    owner = Owner()
    assert owner.work(3, name="b") == (owner, Options(3, "b"))
    assert owner.work() == (owner, Options())


def test_help_shows_the_fields() -> None:
    assert str(signature(Owner.work)) == "(self, /, size: int = 1, name: str = 'a')"
    assert str(signature(Owner().work)) == "(size: int = 1, name: str = 'a')"
    assert Owner.work.__doc__ == "Works."


def test_options_replace_the_settings_that_they_name() -> None:
    settings = TrainingSettings(epochs=5)
    assert TrainOptions().duration(settings) == (5, None)
    assert TrainOptions(epochs=2).duration(settings) == (2, None)
    assert TrainOptions(steps=7).duration(settings)[1] == 7
