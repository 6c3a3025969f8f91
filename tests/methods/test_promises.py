"""What a method promises of its moments, and that an override without a promise is taken to change them."""

from typing import ClassVar

from fedtailor.methods import Card, Client, Method, Payload, catalogue, find


class Receiving(Method):
    def receive(self, client: Client, payload: Payload) -> None: ...


class Declared(Method):
    received_from_payload: ClassVar[bool] = True

    def receive(self, client: Client, payload: Payload) -> None: ...


class Below(Declared):
    pass


class Again(Declared):
    def start_client(self, client: Client) -> None: ...


class Mixin:
    def prepare(self, server: object, cohort: object) -> dict[int, Payload]:
        return {}


class Mixed(Mixin, Method):
    pass


def test_an_override_breaks_a_promise_unless_the_class_repeats_it() -> None:
    kinds = (Method, Receiving, Declared, Below, Again, Mixed)
    assert [kind.received_from_payload for kind in kinds] == [True, False, True, True, False, True]
    assert [kind.pure_prepare for kind in kinds] == [True] * 5 + [False]


def test_the_promises_of_the_catalogue() -> None:
    plain = {name for name, kind in catalogue().items() if kind.received_from_payload}
    assert plain >= {"fedavg", "fedper", "fedrep", "scaffold"}
    assert not plain & {"fedala", "fedah", "ifca", "apfl", "ditto"}
    pure = {name for name, kind in catalogue().items() if kind.pure_prepare}
    assert pure >= {"fedavg", "fedper", "fedala"}
    assert not pure & {"scaffold", "bwa", "hapfl", "pfedla"}


def test_a_class_says_what_it_changes() -> None:
    assert [name in Mixed.changes for name in ("prepare", "receive")] == [True, False]
    assert {"receive", "start_client"} <= Again.changes
    assert not Method.changes


class Quiet(Mixed):
    pass


Quiet.card = Card(paper="", year=0, exchanged="the model, down and up")


class Louder(Quiet):
    """It has no card of its own, so the inherited one says nothing of its prepare."""


def test_peers_may_show_unless_something_says_that_they_do_not() -> None:
    kinds = (Method, Receiving, Mixed, Quiet, Louder, find("apple"), find("fedavg"))
    assert [kind.may_show_peers() for kind in kinds] == [False, False, True, False, True, True, False]
