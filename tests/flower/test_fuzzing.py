"""Random changes of true messages: no exception escapes, and what is accepted is within its bounds.

A few hundred examples always, ten thousand with `make test-slow`.
"""

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.data.folder import write_clients
from fedtailor.data.roster import MAX_SAMPLES, Entry, federation_of
from fedtailor.engines import Result, Task
from fedtailor.engines.codec import result_message
from fedtailor.engines.worker import Worker
from fedtailor.errors import UserError
from fedtailor.flower.coordinator.checking import read_hello, read_results
from fedtailor.flower.coordinator.link import Reply
from fedtailor.flower.coordinator.nodes import Nodes
from fedtailor.flower.node.node import Node
from fedtailor.messages.frames import decode, encode
from fedtailor.messages.payload import LARGEST, Payload
from fedtailor.messages.trees import pack, unpack
from fedtailor.methods import Moment, Replies
from fedtailor.runs import Resources
from fedtailor.runs.assembly import assemble, job_of
from fedtailor.runs.border import Border
from fedtailor.runs.flaws import flaw_of
from tests.support import mutations
from tests.support.federation import Wire
from tests.support.federation import settings as experiment

FEW, MANY = 75, 2500  # of each of four kinds
DATA = {"settings": {}, "seed": 0, "validation": True}
METHODS = ["fedavg", "fedfomo", "fedpac", "scaffold", "cfl", "hapfl", "apple", "ifca"]


@dataclass(frozen=True, repr=False)  # it is long, and in every report of an example
class World:
    """A run of one method, and what a true node of it sends."""

    border: Border
    server: Any
    method: Any
    entry: Entry
    tasks: dict[str, Task]
    answers: dict[str, tuple[dict[str, Any], list[bytes]]]  # by kind of task
    honest: Payload


@cache
def hello() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        write_clients(Resources().federation(experiment(data={"clients": 3, "samples": 90})), Path(place) / "clients")
        node = Node("client-1", str(Path(place) / "clients" / "client-1.npz"), Path(place) / "state")
        return decode(node.answer(encode({"kind": "hello", "data": DATA})))[0]["entry"]


@cache
def world(name: str) -> World:
    made = experiment(name, data={"clients": 3, "samples": 90})
    job = job_of(made, Resources())
    assembly = assemble(made, job)
    server, worker, sizes = assembly.server(), Worker(job), job.federation
    entry = replace(Entry.read(hello()), test=len(sizes.test[1]), digest="d")
    sent = assembly.method.prepare(server, [0, 1, 2]) if name != "hapfl" else {}  # which asks its clients first
    payload = (sent[1] if isinstance(sent, dict) and sent else Payload({"model": server.weights})).pack()
    tasks, answers = {}, {}
    for kind in ("fit", "final", "preview", "score"):
        more: dict[str, Any] = {"clients": (1,)} if kind == "score" else {"client": 1, "measure": ("held", "received")}
        data = pack(server.initial) if kind == "score" else payload
        tasks[kind] = Task(kind, 0, Moment(0, round=1, rounds=3), payload=data, **more)  # type: ignore[arg-type]
        result = worker.execute(tasks[kind])
        assert result.failure is None, result.details
        header, blobs = result_message([replace(result, state=b"0" * 32 if result.state else None)])
        answers[kind] = decode(encode({**header, "digest": "d"}, blobs))
    reply = worker.execute(replace(tasks["fit"], client=0)).reply
    assert reply is not None
    return World(Border(assembly), server, assembly.method, entry, tasks, answers, Payload.unpack(reply))


@st.composite
def answers(draw: st.DrawFn, kinds: tuple[str, ...]) -> tuple[World, Task, bytes]:
    """The answer to a task, changed in its header, its payload or its bytes."""
    made = world(draw(st.sampled_from(METHODS)))
    kind = draw(st.sampled_from(kinds))
    header, blobs = made.answers[kind]
    where = draw(st.sampled_from(["header", "payload", "payload", "bytes", "blob"]))
    if where == "header" or not blobs:
        header = draw(mutations.changed(header))
    elif where == "payload":
        tree = draw(mutations.changed(unpack(blobs[0]), mutations.PLAIN | mutations.tensors()))
        with suppress(TypeError, ValueError):  # a tree that cannot be packed is none that can be sent
            blobs = [pack(tree), *blobs[1:]]
    elif where == "blob":
        blobs = [draw(mutations.damaged(blobs[0])), *blobs[1:]]
    with suppress(TypeError, ValueError):
        sent = encode({str(key): value for key, value in header.items()}, blobs)
        return made, made.tasks[kind], draw(mutations.damaged(sent)) if where == "bytes" else sent
    return made, made.tasks[kind], encode({}, blobs)


def check_hello(entry: Any) -> None:
    """A description is refused by a ValueError or makes a federation of bounded size; the coordinator never fails."""
    try:
        data = encode({"kind": "hello", "entry": entry})
    except (TypeError, ValueError):
        return  # JSON cannot hold it
    nodes = Nodes(Wire({}), DATA, lambda sentence: json.dumps(sentence))
    nodes.link.push = lambda *_: [""]  # type: ignore[method-assign]
    nodes._admit(7, Reply("1", data))
    try:
        read = read_hello(data)
    except ValueError:
        return
    assert [*nodes.connected.values()] == [7]
    assert all(0 <= count <= MAX_SAMPLES for count in (read.train, read.val, read.test))
    with suppress(UserError):
        built = federation_of([Entry.read(hello()), read])
        assert sum(array.nbytes for array in built.arrays().values()) < 2**20


def check_answer(made: World, task: Task, data: bytes) -> list[Result]:
    """An answer is refused by a ValueError, or its numbers fit the tables of a run."""
    try:
        results = read_results(data, [task], made.entry, 10.0)
    except ValueError:
        return []
    for result in results:
        assert (result.index, result.client) == (0, 1)
        for number in (result.trace.steps, result.trace.samples):
            assert 0 <= number < 2**63
        assert result.failure is None or (result.failure.isprintable() and len(result.failure) < 400)
        assert result.state is None or len(result.state) == 32
        for score in result.scores.values():
            assert 0 <= score.correct <= score.samples == made.entry.test
    return results


def check_reply(made: World, task: Task, data: bytes) -> None:
    """A reply that is admitted can be used by the method together with an honest one."""
    for result in check_answer(made, task, data):
        read = made.border.admit(result, made.server)
        if read.value is None:
            assert read.reason
            assert read.reason.isprintable()
            assert read.details == "", read.details  # a check foresaw it
        elif made.method.name != "hapfl":  # whose finish needs what its prepare decided
            assert all(
                abs(n) <= LARGEST for v in read.value.numbers.values() for n in (v if isinstance(v, list) else [v])
            )
            server = copy(made.server)
            server.state, server.memory = unpack_state(server), server.memory.preview()
            made.method.start_server(server)
            made.method.finish(server, Replies({0: made.honest, 1: read.value}, {}))
            flaw_of(server)


def unpack_state(server: Any) -> dict[str, Any]:
    return {"model": dict(server.state["model"])}


@st.composite
def states(draw: st.DrawFn) -> tuple[World, Task, bytes]:
    """The answer to a training, with another place for its state, or another state."""
    made = world("scaffold")
    header, blobs = made.answers["fit"]
    state = draw(st.binary(max_size=40) | st.text("0123456789abcdef", min_size=31, max_size=33).map(str.encode))
    place = draw(st.just(len(blobs)) | mutations.NUMBERS | mutations.PLAIN)
    return (
        made,
        made.tasks["fit"],
        encode({**header, "results": [{**header["results"][0], "state": place}]}, [*blobs, state]),
    )


def check_score(made: World, task: Task, data: bytes) -> None:
    for result in check_answer(made, task, data):
        assert result.failure or len(result.scores) == 1


def check_state(made: World, task: Task, data: bytes) -> None:
    for result in check_answer(made, task, data):
        assert result.state is None or int(result.state, 16) >= 0


HELLOS = st.deferred(lambda: mutations.changed(hello()))
REPLIES, SCORES = answers(("fit",)), answers(("final", "preview", "score"))
KINDS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "hello": (HELLOS, check_hello),
    "reply": (REPLIES, lambda sent: check_reply(*sent)),
    "score": (SCORES, lambda sent: check_score(*sent)),
    "state": (states(), lambda sent: check_state(*sent)),
}


def fuzz(kind: str, examples: int) -> None:
    """Check so many examples of a kind of message; few ones are the same in every run."""
    strategy, check = KINDS[kind]
    bounds = settings(
        max_examples=examples,
        derandomize=examples == FEW,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    bounds(given(strategy)(check))()


@pytest.mark.parametrize("kind", KINDS)
def test_no_exception_escapes(kind: str) -> None:
    fuzz(kind, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_exception_escapes_in_ten_thousand_examples(kind: str) -> None:
    fuzz(kind, MANY)


@pytest.mark.parametrize("name", METHODS)
def test_a_true_answer_is_admitted(name: str) -> None:
    made = world(name)
    header, blobs = made.answers["fit"]
    (result,) = read_results(encode(header, blobs), [made.tasks["fit"]], made.entry, 10.0)
    assert made.border.admit(result, made.server).reason is None
