"""A node without Flower: what it answers to messages, and what it keeps on its disk."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedtailor.data.folder import write_clients
from fedtailor.data.roster import Entry, federation_of, union
from fedtailor.engines import Job, Result, Task
from fedtailor.engines.codec import job_header, result_message, results_from, task_message
from fedtailor.errors import UserError
from fedtailor.flower.coordinator.checking import read_results
from fedtailor.flower.node.node import Node
from fedtailor.flower.node.sources import load_data
from fedtailor.flower.node.states import StateStore
from fedtailor.learning import Score, Trace
from fedtailor.learning.tensors import inputs_of
from fedtailor.messages.frames import decode, encode
from fedtailor.methods import Moment, Payload
from fedtailor.models import build
from fedtailor.runs import Resources
from tests.support.federation import settings

DATA = {"settings": {}, "seed": 0, "validation": False}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_clients(Resources().federation(settings()), tmp_path / "clients")
    return tmp_path / "clients"


@pytest.fixture
def node(files: Path, tmp_path: Path) -> Node:
    return Node("client-1", str(files / "client-1.npz"), tmp_path / "state")


def ask(node: Node, **header: Any) -> dict[str, Any]:
    answer, _ = decode(node.answer(encode(header)))
    return answer


def framed(node: Node, method: str = "fedah", **more: Any) -> dict[str, Any]:
    """What comes with every message, for client 1 of 4."""
    entry = Entry.read(ask(node, kind="hello", data=DATA)["entry"])
    federation = federation_of([entry] * 4)
    made = settings(method)
    job = Job(made.method, made.model, made.training, 0, federation)
    facts = {"run": "test", "rounds": 3, "client": 1, "clients": 4, "limit": 2**26, "data": DATA}
    return {**facts, "job": job_header(job, None), "outline": federation.outline(), **more}


def fit(node: Node, round: int, state: bytes | None, **more: Any) -> Result:
    frame = framed(node, **more)
    made = settings()
    entry = Entry.read(ask(node, kind="hello", data=DATA)["entry"])
    network = build(made.model, inputs_of(federation_of([entry] * 4).samples), 0)
    payload = Payload({"model": network.weights()}).pack()
    task = Task("fit", 0, Moment(0, round=round, rounds=3), 1, payload, state)
    header, blobs = task_message([task])
    answer, data = decode(node.answer(encode({**header, **frame}, blobs)))
    assert answer["kind"] == "results", answer
    (result,) = results_from(answer, data)
    return result


def test_the_dealt_files_hold_exactly_the_simulation_s_samples(files: Path, tmp_path: Path) -> None:
    federation = Resources().federation(settings())
    samples, rows = load_data(str(files / "client-2.npz"))
    for part in ("train", "val", "test"):
        mine = getattr(federation, part)[2]
        assert len(mine)
        assert np.array_equal(samples.x[rows[part]], federation.samples.x[mine])
        assert np.array_equal(samples.y[rows[part]], federation.samples.y[mine])
    assert (samples.mean, samples.std) == (federation.samples.mean, federation.samples.std)
    assert samples.classes == federation.samples.classes


def test_a_description_contains_numbers_and_no_sample(node: Node) -> None:
    entry = ask(node, kind="hello", data=DATA)["entry"]
    federation = Resources().federation(settings())
    assert (entry["train"], entry["val"], entry["test"]) == (
        len(federation.train[1]),
        len(federation.val[1]),
        len(federation.test[1]),
    )
    assert set(entry) == set(asdict(Entry.read(entry)))
    assert len(str(entry)) < 1500


def test_a_node_splits_data_that_are_not_split(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 255, (40, 8, 8), np.uint8)
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(40) % 4)
    made = Node("me", str(tmp_path / "mine.npz"), tmp_path / "state")
    entry = ask(made, kind="hello", data={**DATA, "validation": True})["entry"]
    assert (entry["train"] + entry["val"], entry["test"]) == (30, 10)
    assert entry["val"] > 0


def test_a_state_stays_on_the_node_and_only_its_digest_travels(node: Node, tmp_path: Path) -> None:
    first = fit(node, 1, None)
    assert first.failure is None
    assert len(first.state or b"") == 32
    second = fit(node, 2, first.state)
    assert second.failure is None
    assert second.state != first.state


def test_a_round_that_was_not_completed_is_done_again_from_the_acknowledged_state(node: Node) -> None:
    first = fit(node, 1, None)
    once = fit(node, 2, first.state)
    again = fit(node, 2, first.state)  # the coordinator died before it had stored round 2
    assert (once.reply, once.state) == (again.reply, again.state)
    assert fit(node, 3, again.state).failure is None


def test_a_node_survives_its_own_death(node: Node, files: Path, tmp_path: Path) -> None:
    first = fit(node, 1, None)
    after = fit(node, 2, first.state)
    risen = Node("client-1", str(files / "client-1.npz"), tmp_path / "state")
    assert fit(risen, 2, first.state).reply == after.reply


def test_a_lost_state_is_said_and_not_made_up(node: Node) -> None:
    assert "not in state" in (fit(node, 2, b"0" * 32).failure or "")


def test_states_are_forgotten_only_when_a_later_one_is_acknowledged(tmp_path: Path) -> None:
    states = StateStore(tmp_path / "states")

    def at(round: int) -> Moment:
        return Moment(0, round=round)

    first = states.save(b"one", at(1))
    asked = states.save(b"two, of a question in round 2", at(2))
    assert states.load(asked, at(2)) == b"two, of a question in round 2"
    assert states.load(first, at(2)) == b"one", "round 2 is not acknowledged yet"
    assert states.load(asked, at(3)) is not None
    assert states.load(first, at(3)) is None


def test_other_files_among_the_states_are_left_alone(tmp_path: Path) -> None:
    states = StateStore(tmp_path / "states")
    kept = states.save(b"one", Moment(0, round=1))
    for name in ("a-b-c", "1-2-notes", "²-1-" + "0" * 32, "1-1-x.part"):
        (tmp_path / "states" / name).write_bytes(b"mine")
    assert states.load(kept, Moment(0, round=2)) == b"one"
    states.start_over(Moment(0, round=3))
    assert len(list((tmp_path / "states").iterdir())) == 4


def test_a_damaged_state_is_said_and_not_used(node: Node, tmp_path: Path) -> None:
    state = fit(node, 1, None).state
    (file,) = (tmp_path / "state" / "test" / "states").iterdir()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    task = Task("fit", 0, Moment(0, round=2, rounds=3), 1, b"", state)
    header, blobs = task_message([task])
    answer, _ = decode(node.answer(encode({**header, **framed(node)}, blobs)))
    assert answer["kind"] == "refusal"
    assert f"its state {file.name} is damaged" in answer["reason"]


def test_the_personal_model_stays_on_the_node(node: Node, tmp_path: Path) -> None:
    import fedtailor

    state = fit(node, 1, None).state
    frame = framed(node)
    network = build(settings().model, inputs_of(node.samples), 0)
    task = Task("final", 0, Moment(0, round=4, rounds=3), 1, Payload({"model": network.weights()}).pack(), state)
    header, blobs = task_message([task])
    answer, data = decode(node.answer(encode({**header, **frame}, blobs)))
    (result,) = results_from(answer, data)
    assert result.reply is None
    assert data == []
    card = fedtailor.load_model(tmp_path / "state" / "test" / "model").card
    assert card["node"] == "client-1"


def test_a_task_of_another_client_is_refused(node: Node) -> None:
    header, blobs = task_message([Task("fit", 0, Moment(0, round=1), 2, b"")])
    answer, _ = decode(node.answer(encode({**header, **framed(node)}, blobs)))
    assert "another client" in answer["reason"]


@pytest.mark.parametrize(("part", "name"), [("method", "os:system"), ("model", "os:system")])
def test_code_that_the_owner_did_not_allow_is_not_imported(node: Node, part: str, name: str) -> None:
    frame = framed(node)
    if part == "method":
        frame["job"]["method"][0] = name
    else:
        frame["job"]["model"]["name"] = name
    header, blobs = task_message([Task("fit", 0, Moment(0, round=1), 1, b"")])
    answer, _ = decode(node.answer(encode({**header, **frame}, blobs)))
    assert "--allow os:system" in answer["reason"]


def test_a_method_s_other_networks_pass_the_same_gate(node: Node, tmp_path: Path) -> None:
    written = tmp_path / "written"
    network = {"name": "os:system", "arguments": {"command": f"touch {written}"}}
    frame = framed(node, method="hapfl")
    frame["job"]["method"][1] |= {"sizes": ["small", network]}
    header, blobs = task_message([Task("score", 0, Moment(0, round=1), -1, b"", network="os:system", clients=(1,))])
    answer, _ = decode(node.answer(encode({**header, **frame}, blobs)))
    assert "--allow os:system" in str(answer), answer["results"][0]["failure"]
    assert not written.exists()


@pytest.mark.parametrize("request_bytes", [b"", b"x" * 100, encode({"kind": "tasks"}), encode({"no": "kind"})])
def test_anything_gets_an_answer_and_no_crash(node: Node, request_bytes: bytes) -> None:
    answer, _ = decode(node.answer(request_bytes))
    assert answer["kind"] == "refusal"


def test_the_name_of_a_run_leads_nowhere_else(node: Node, tmp_path: Path) -> None:
    fit(node, 1, None, run="../../elsewhere")
    assert not (tmp_path.parent / "elsewhere").exists()
    assert (tmp_path / "state" / "elsewhere").is_dir()


def test_an_answer_over_the_limit_is_not_sent(node: Node) -> None:
    header, blobs = task_message([Task("fit", 0, Moment(0, round=1), 1, b"")])
    answer, _ = decode(node.answer(encode({**header, **framed(node, limit=10)}, blobs)))
    assert "the limit is 10" in answer["reason"]


# What a coordinator makes of what nodes say


def entry(**changes: Any) -> Entry:
    facts = {
        "name": "a",
        "train": 5,
        "val": 0,
        "test": 2,
        "shape": [8, 8, 1],
        "dtype": "|u1",
        "targets": [],
        "classes": ["0", "1"],
        "mean": [0.5],
        "std": [0.25],
        "vocabulary": 0,
        "digest": "d",
        "environment": {},
    }
    return Entry.read({**facts, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"train": 0},
        {"train": -1},
        {"train": True},
        {"train": 1 << 60},
        {"name": "x" * 100},
        {"name": "a\nb"},
        {"shape": [1] * 20},
        {"mean": [float("nan")]},
        {"classes": "ab"},
        {"classes": ["x"] * 200_000},
        {"environment": 3},
    ],
)
def test_a_description_is_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"description|train"):
        entry(**changes)


def test_nodes_must_have_alike_data() -> None:
    with pytest.raises(UserError, match="'a' and 'b' have data of different shape"):
        federation_of([entry(), entry(name="b", shape=[9, 9, 1])])


def test_nothing_is_allocated_by_the_number_of_samples_that_a_node_claims() -> None:
    federation = federation_of([entry(train=2**31), entry(name="b")])
    assert federation.train.sizes.tolist() == [2**31, 5]
    assert sum(array.nbytes for array in federation.arrays().values()) < 1000


def test_classes_are_those_of_all_nodes() -> None:
    assert union([("b", "a"), ("b", "a")]) == ("b", "a")
    assert union([("0", "2"), ("10", "1")]) == ("0", "1", "2", "10")
    assert federation_of([entry(), entry(name="b", classes=["1", "7"])]).samples.classes == ("0", "1", "7")


def test_labels_are_those_of_the_whole_federation(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((8, 8, 8), np.uint8), y=np.array([7] * 4 + [9] * 4))
    made = Node("me", str(tmp_path / "mine.npz"), tmp_path / "state")
    frame = {**framed(made, method="fedavg"), "outline": {"classes": ["1", "7", "9"]}}
    worker = made._worker_for(frame)
    y = torch.cat([worker._tensors(1, part)[1] for part in ("train", "test")])
    assert sorted(set(y.tolist())) == [1, 2]


# What a coordinator accepts of an answer

TASK = Task("fit", 0, Moment(0), 1, measure=("held",))


def good() -> Result:
    return Result(0, 1, b"reply", b"a" * 32, {"held": Score(1, 0.5, 2)}, Trace(3, 4, 0.5), seconds=1.0)


def read(result: Result, task: Task = TASK, passed: float = 2.0, digest: str = "d") -> Result:
    header, blobs = result_message([result])
    (found,) = read_results(encode({**header, "digest": digest}, blobs), [task], entry(), passed)
    return found


def test_a_good_answer_is_accepted() -> None:
    assert read(good()) == good()


@pytest.mark.parametrize(
    "changes",
    [
        {"reply": None},
        {"state": b"short"},
        {"state": b"x" * 32},
        {"seconds": float("inf")},
        {"seconds": -1.0},
        {"seconds": 100.0},
        {"trace": Trace(1, 2, float("nan"))},
        {"trace": Trace(-1, 2, 0.5)},
        {"trace": Trace(1, 2**63, 0.5)},
        {"scores": {}},
        {"scores": {"held": Score(3, 0.5, 2)}},
        {"scores": {"held": Score(1, 0.5, 200)}},
        {"scores": {"held": Score(1, float("nan"), 2)}},
        {"scores": {"held": Score(1, 0.5, 2, {"auc": float("inf")})}},
        {"scores": {"held": Score(1, 0.5, 2, {}, {"auc": [10**400]})}},
        {"work": 1e30},
        {"work": True},
        {"index": 5},
    ],
)
def test_a_bad_answer_is_not(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        read(Result(**{**vars(good()), **changes}))


def test_an_answer_is_that_of_the_client_it_was_asked_of() -> None:
    assert read(Result(**{**vars(good()), "client": 0})).client == 1


def test_only_what_was_asked_for_is_taken() -> None:
    more = Result(**{**vars(good()), "details": "secret", "scores": {**good().scores, "final": Score(0, 0.0, 2)}})
    assert read(more) == good()
    asked = read(good(), Task("final", 0, Moment(0), 1), digest="other")
    assert asked.failure == "its data changed since the run began"


def test_a_failure_always_has_a_reason() -> None:
    assert read(Result(**{**vars(good()), "failure": ""})).failure == "no reason given"


# A node's own disk


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can grow, as on a full disk; the error is that of the operating system."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_node_with_a_full_disk_says_so_and_leaves_nothing(node: Node, tmp_path: Path) -> None:
    said: list[str] = []
    node.say = said.append
    fit(node, 1, None)
    with full_disk():
        result = fit(node, 2, None)
    assert result.failure == "it cannot write to state (File too large)"
    assert result.state is None
    assert said[-1] == f"round 2 of 3: fit, {result.failure}"
    assert not list((tmp_path / "state").rglob("*.part"))


def test_drafts_of_a_killed_node_are_removed(node: Node, tmp_path: Path) -> None:
    fit(node, 1, None)
    draft = tmp_path / "state" / "test" / "states" / "0-1-abc.part"
    draft.touch()
    fit(node, 2, None)
    assert not draft.exists()


def test_states_are_for_this_account_only(node: Node, tmp_path: Path) -> None:
    fit(node, 1, None)
    states = tmp_path / "state" / "test" / "states"
    assert states.stat().st_mode & 0o077 == 0
    assert {file.stat().st_mode & 0o077 for file in states.iterdir()} == {0}
