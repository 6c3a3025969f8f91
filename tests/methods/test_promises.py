"""What a method promises of its moments, and that an override without a promise is taken to change them."""

from typing import ClassVar

from fedtailor.methods import Client, Method, Payload, catalogue


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
