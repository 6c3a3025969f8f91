"""Whatever one node sends, the others finish with the right result, and the lie is in the records."""

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.data.readers import Roles
from fedtailor.data.roster import Entry
from fedtailor.errors import UserError
from fedtailor.flower.coordinator.link import Link, Reply
from fedtailor.flower.coordinator.nodes import Nodes
from fedtailor.flower.coordinator.serving import serve, serve_on
from fedtailor.flower.keys import ServerKeys
from fedtailor.flower.node.node import Node
from fedtailor.messages.frames import decode, encode
from fedtailor.runs import Callback, RoundReport
from fedtailor.runs.store import Store
from tests.support.federation import (
    HOST,
    Wire,
    events,
    nodes_of,
    outcome,
    place,
    settings,
    simulate,
    write_data,
)
from tests.support.lying import ANSWERS, HELLOS, Liar, Lie

SCALE: dict[str, Any] = {"data": {"clients": 3, "samples": 150}}
DATA = {"settings": {}, "seed": 0, "validation": False}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(settings(**SCALE), tmp_path_factory.mktemp("lies"))


def federation(files: Path, folder: Path, kind: type[Node] = Node) -> dict[int, Node]:
    """Three nodes; client 1 is of another kind."""
    return nodes_of(files, folder, 3, kind)


def test_each_lie_is_the_failure_of_its_node_alone(files: Path, tmp_path: Path) -> None:
    """One lie per round: the result is that of a simulation in which the liar is absent in all these rounds."""

    class Scripted(Liar):
        lies: Iterator[Lie] = iter(ANSWERS.values())

    rounds = len(ANSWERS) + 1
    made = settings("fedrep", rounds=rounds, **SCALE, evaluation={"every": 1, "models": ["held"], "final": False})
    serve_on(Wire(federation(files, tmp_path, Scripted)), made, tmp_path / "run").close()

    found = events(tmp_path / "run")
    assert [(event["round"], event["client"]) for event in found] == [(n + 1, 1) for n in range(len(ANSWERS))]
    for name, event in zip(ANSWERS, found, strict=True):
        assert event["detail"].isprintable(), name
        assert len(event["detail"]) < 400, name
    absent = made.participation.model_copy(update={"absent": tuple((n + 1, 1) for n in range(len(ANSWERS)))})
    simulate(made.model_copy(update={"participation": absent}), tmp_path / "inline").close()
    assert outcome(tmp_path / "run")["state"] == outcome(tmp_path / "inline")["state"]


def test_a_final_result_without_a_score_is_a_failure(files: Path, tmp_path: Path) -> None:
    class Silent(Node):
        def answer(self, request: bytes) -> bytes:
            header, blobs = decode(super().answer(request))
            for row in header.get("results", []):
                row["scores"] = {}
            return encode(header, blobs)

    made = settings(rounds=1, **SCALE, evaluation={"every": 0})
    with serve_on(Wire(federation(files, tmp_path, Silent)), made, tmp_path / "run") as run:
        assert run.finished
        assert run.last()["final"].clients == 2
    assert [(event["kind"], event["client"]) for event in events(tmp_path / "run")] == [("final", 1)]
    assert "final is missing" in events(tmp_path / "run")[0]["detail"]


def test_the_user_can_stop_a_run_while_no_node_is_connected(files: Path, tmp_path: Path) -> None:
    there = federation(files, tmp_path)

    class Cut(Wire):
        """Messages to nodes that are gone stay without an answer."""

        def push(self, messages: Sequence[tuple[int, bytes]], seconds: float, group: str) -> list[str]:
            return super().push(messages, seconds, group) if self.to else [f"lost-{node}" for node, _ in messages]

        def pull(self, ids: Iterable[str]) -> list[Reply]:
            return super().pull(name for name in ids if name in self.waiting)

    def say(sentence: str) -> None:
        if "no node is connected" in sentence:
            os.kill(os.getpid(), signal.SIGTERM)

    class Leaving(Callback):
        def round_done(self, report: RoundReport) -> None:
            there.clear()

    made = settings(rounds=3, **SCALE, engine={"deadline": 0.1}, evaluation={"every": 0, "final": False})
    with pytest.raises(KeyboardInterrupt):
        serve_on(Cut(there), made, tmp_path / "run", Leaving(), say)
    with Store(tmp_path / "run") as store:
        assert [row["round"] for row in store.rows("SELECT round FROM rounds")] == [1, 2]


class Described(Node):
    """A node that describes itself as the test says."""

    changes: dict[str, Any] = {}
    told: list[str] = []

    def answer(self, request: bytes) -> bytes:
        header, blobs = decode(super().answer(request))
        if header["kind"] == "hello":
            header["entry"] |= self.changes
        return encode(header, blobs)


def gathered(
    files: Path, tmp_path: Path, changes: dict[str, Any], names: dict[int, str] | None = None
) -> tuple[Nodes, list[str], list[str]]:
    """Nodes that gather two clients while client 1 lies; what the coordinator says, and what the liar is told."""
    said: list[str] = []
    told: list[str] = []
    there = federation(files, tmp_path, type("Changed", (Described,), {"changes": changes}))
    there[1].say = told.append
    wire = Wire(there)
    wire.names = names or {}
    found = Nodes(wire, DATA, said.append)
    found.gather(2, lambda names: None)
    return found, said, told


@pytest.mark.parametrize("name", HELLOS)
def test_a_node_that_lies_about_itself_is_refused_with_the_reason(name: str, files: Path, tmp_path: Path) -> None:
    found, said, told = gathered(files, tmp_path, HELLOS[name])
    assert [member.name for member in found.members] == ["client-0", "client-2"]
    assert len(said) == len(told) == 1
    assert "was turned away" in said[0]
    assert "the coordinator turned this node away" in told[0]


def test_one_node_with_another_shape_does_not_end_the_federation_of_the_others(files: Path, tmp_path: Path) -> None:
    found, said, told = gathered(files, tmp_path, {"shape": [28, 28, 1]})
    assert [member.name for member in found.members] == ["client-0", "client-2"]
    assert "the shape (28, 28, 1), not (8, 8, 1)" in told[0]
    assert any("client-1 was turned away" in sentence for sentence in said)


def test_a_node_with_numbers_where_others_have_words_is_refused(tmp_path: Path) -> None:
    there = {}
    for c, values in enumerate((("f", "m"), (1, 2), ("m", "x"))):
        rows = [f"{30 + n},{values[n % 2]},{'ab'[n % 2]},{n % 2}" for n in range(20)]
        (tmp_path / f"{c}.csv").write_text("\n".join(["age,sex,ward,died", *rows]), encoding="utf-8")
        file = str(tmp_path / f"{c}.csv")
        there[c] = Node(f"client-{c}", file, tmp_path / f"state-{c}", roles=Roles(label="died"))
    told: list[str] = []
    there[1].say = told.append
    wire = Wire(there)
    wire.names = {}
    found = Nodes(wire, DATA, lambda sentence: None)
    found.gather(2, lambda names: None)
    assert [member.name for member in found.members] == ["client-0", "client-2"]
    assert "the kind of column 'sex' numbers, not words" in told[0]


def test_a_federation_refuses_simulated_attackers(tmp_path: Path) -> None:
    made = settings(attack={"kind": "sign-flip"})
    with pytest.raises(UserError, match=r"remove the table \[attack\]"):
        serve(made, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("table", "values"), [("stopping", {}), ("checkpoints", {"every": 2}), ("start", {"path": "runs/first"})]
)
def test_a_federation_refuses_what_needs_earlier_states_of_nodes(table: str, values: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^{table}: nodes keep their latest .* remove the table \[{table}\]$"):
        serve(settings(**{table: values}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_class_named_by_a_superscript_is_a_name_and_no_number(files: Path, tmp_path: Path) -> None:
    from fedtailor.data.roster import federation_of

    found, _, told = gathered(files, tmp_path, {"classes": ["²", "1"]})
    assert told == []
    assert "²" in federation_of(found.members).samples.classes


def test_the_name_of_a_node_is_the_one_registered_with_its_key(files: Path, tmp_path: Path) -> None:
    names = {0: "anna", 1: "bert", 2: "carla"}
    found, _, _ = gathered(files, tmp_path, {"name": "anna"}, names)
    assert {*found.connected} <= {*names.values()}
    assert found.connected.get("anna", 0) == 0, "a node took the seat of another one"


def test_a_name_can_be_taken_once_where_there_are_no_keys(files: Path, tmp_path: Path) -> None:
    found, said, told = gathered(files, tmp_path, {"name": "client-0"})
    assert [member.name for member in found.members] == ["client-0", "client-2"]
    assert "already connected" in (said + told)[0]


def test_a_description_that_is_none_is_a_value_error(files: Path, tmp_path: Path) -> None:
    true = asdict(
        Entry.read(decode(federation(files, tmp_path)[0].answer(encode({"kind": "hello", "data": DATA})))[0]["entry"])
    )
    for facts in (None, [], "a", {}, *({key: value for key, value in true.items() if key != gone} for gone in true)):
        with pytest.raises(ValueError, match="description"):
            Entry.read(facts)


def test_a_real_node_that_lies_does_not_stop_the_others(tmp_path: Path) -> None:
    """Real processes over TLS: one node lies about its name and in two rounds, the other gets the right result."""
    lies = ["samples that take the mean over", "a header nested 50,000 deep"]
    scale = {"data": {"clients": 2, "samples": 100}, "rounds": 3, "evaluation": {"every": 0, "final": False}}
    made, said = settings("fedavg", **scale), list[str]()
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    with place(tmp_path, made) as here, Link(HOST, 0, ServerKeys(here.keys), 2**26) as link:
        for node in here.nodes:
            liar = {"program": "tests.support.lying", "LIES": ";".join(lies)} if node == "client-1" else {}
            more = ("--name", "client-0") if liar else ()
            here.join(node, link.port, *more, PYTHONPATH=paths, **liar)
        serve_on(link, made, tmp_path / "run", say=said.append).close()
    assert said[-1] == "2 of 2 nodes: client-0, client-1"
    assert [(event["round"], event["client"]) for event in events(tmp_path / "run")] == [(1, 1), (2, 1)]
    absent = made.participation.model_copy(update={"absent": ((1, 1), (2, 1))})
    simulate(made.model_copy(update={"participation": absent}), tmp_path / "inline").close()
    assert outcome(tmp_path / "run")["state"] == outcome(tmp_path / "inline")["state"]
