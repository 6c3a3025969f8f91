"""The list of methods, and the card of a method of one's own."""

import io
from typing import ClassVar

import pytest
from rich.console import Console

from fedtailor import Client, Method, Replies, Server, UserError
from fedtailor.methods import catalogue
from fedtailor.runs import experiment
from fedtailor.runs.assembly import assemble, job_of
from fedtailor.runs.resources import Resources
from fedtailor.views.cards import card_lines, method_facts, methods_page


class Mine(Method):
    """Shares the body."""

    shares: ClassVar = "body"


class Stateful(Mine):
    """Counts."""

    def fit(self, client: Client) -> None:
        client.state["rounds"] = client.state.get("rounds", 0) + 1
        client.train()

    def finish(self, server: Server, replies: Replies) -> None:
        server.state["cohort"] = len(replies)
        super().finish(server, replies)


def test_the_list_of_methods_fits_100_columns() -> None:
    printed = io.StringIO()
    Console(file=printed, width=160).print(methods_page([method_facts(kind) for kind in catalogue().values()]))
    assert max(len(line.rstrip()) for line in printed.getvalue().splitlines()) <= 100
    assert all(name in printed.getvalue() for name in catalogue())


def test_a_private_head_is_what_a_client_keeps() -> None:
    facts = method_facts(Mine)
    assert (facts["exchanged"], facts["client_state"]) == ("the body, down and up", "its head")
    assert facts["server_state"] == "the global body"
    assert "paper: none: this method has no card" in card_lines(facts)


def test_a_card_claims_nothing_that_a_class_does_not_tell() -> None:
    facts = method_facts(Stateful)
    assert facts["client_state"] == "its head and its entries of client.state"
    assert facts["server_state"] == "the global body and its entries of server.state"
    assert facts["cost"] == "not declared"
    assert "secure aggregation: not declared" in card_lines(facts)


WITH_AGENTS = sorted(name for name, kind in catalogue().items() if "agents" in kind.model_fields)


@pytest.mark.parametrize("name", WITH_AGENTS)
def test_the_deciders_of_a_card_are_those_of_the_decisions(name: str) -> None:
    small = {"data": {"clients": 3, "samples": 90}, "engine": {"kind": "inline"}}
    settings = experiment({**small, "method": name})
    declared = settings.method.decisions(assemble(settings, job_of(settings, Resources())).server())
    allowed = {key: one["allowed"].split(", ") for key, one in method_facts(type(settings.method))["settings"].items()}
    for decision in declared:
        shown = allowed[f"agents.{decision.name.replace('-', '_')}.decider"]
        assert set(decision.deciders) == set(shown) - {"agent", "uniform", "random"}


def test_a_decider_is_checked_even_if_this_run_does_not_declare_its_decision() -> None:
    table = {"name": "hapfl", "adapts": "sizes", "agents": {"intensity": {"decider": "serch"}}}
    with pytest.raises(UserError, match="unknown decider of intensity 'serch': did you mean 'search'"):
        experiment({"method": table})
