"""Runs on devices: what is recorded follows from counted work and bytes, and whoever is late has not trained."""

from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

import fedtailor
from fedtailor import Ask, Method, Payload, UserError
from fedtailor.devices import Devices, virtual_clock
from fedtailor.methods import Client, Moment, Replies, Server, find
from fedtailor.models import TRAINING, count_flops
from fedtailor.runs import Callback, RoundReport, Run
from fedtailor.runs.store import Store

CLIENTS = 6
SETTINGS: dict[str, Any] = {
    "rounds": 4,
    "data": {"source": "digits", "clients": CLIENTS, "samples": 300},
    "training": {"epochs": 2, "batch_size": 16},
    "engine": {"kind": "inline"},
    "evaluation": {"every": 0, "final": False},
}


def run(folder: Path, method: str | Method = "fedavg", devices: Any = None, **more: Any) -> Run:
    values = {**SETTINGS, **more, **({} if devices is None else {"devices": devices})}
    made = fedtailor.experiment(values)
    made = made.model_copy(update={"method": find(method)() if isinstance(method, str) else method})
    return fedtailor.run(made, folder=folder)


def states(folder: Path) -> list[dict[str, Any]]:
    with Store(folder) as store:
        return store.rows("SELECT scope, key, digest FROM state ORDER BY scope, key")


# By hand


def test_the_times_of_a_run_by_hand(tmp_path: Path) -> None:
    """One linear layer: 64 pixels times 10 classes are 640 multiply-adds a sample, 650 numbers of 4 bytes a model.

    A fit of n samples takes 3 * 640 * 2 n / speed; its model takes 0.5 s a message and 2600 bytes each way (up with
    8 more for the number of samples) at 1000 bytes a second down and 500 up.
    """
    (tmp_path / "d.csv").write_text(
        "client,speed\n" + "".join(f"{k},{s}\n" for k, s in enumerate((1e-6, 2e-6, 4e-6, 5e-6, 8e-6, 1e-5)))
    )
    speeds = (1e3, 2e3, 4e3, 5e3, 8e3, 1e4)
    devices = {
        "profiles": {"kind": "csv", "file": str(tmp_path / "d.csv")},
        "noise": 0,
        "latency": 0.5,
        "down": 0.008,
        "up": 0.004,
    }
    with run(tmp_path / "run", devices=devices, model={"name": "linear"}) as done:
        sizes = done.federation().train.sizes.tolist()
        compute = [TRAINING * 640 * 2 * n / speed for n, speed in zip(sizes, speeds, strict=True)]
        transfer = 2 * 0.5 + 2600 / 1000 + 2608 / 500
        for row in done.times():
            assert row["compute"] == pytest.approx(compute[row["client"]])
            assert row["transfer"] == pytest.approx(transfer)
        assert len(done.times()) == 4 * CLIENTS
        whole = max(compute) + transfer
        for row in done.clock():
            assert row["begin"] == pytest.approx((row["round"] - 1) * whole)
            assert row["seconds"] == pytest.approx(whole)
            assert row["latency"] == pytest.approx(max(compute) - min(compute))
            assert row["idle"] == pytest.approx(sum(1 - (c + transfer) / whole for c in compute) / CLIENTS)
        clock = done.summary().clock
        assert clock is not None
        assert clock.seconds == pytest.approx(4 * whole)
        assert (clock.late, clock.dropped) == (0, 0)


def work(done: Run) -> dict[int, float]:
    """Multiply-adds of every client in the first round, from what its device took."""
    devices = done.experiment.devices
    assert devices is not None
    clock = virtual_clock(devices, done.federation().train.sizes.tolist(), 0)
    return {row["client"]: row["compute"] * clock.profiles[row["client"]].speed for row in done.times()[:CLIENTS]}


@pytest.mark.parametrize(
    ("method", "passes"),
    [
        ("fedavg", 2.0),
        ("fedprox", 2.0),
        ("ditto", 4.0),
        ("pfedme", 10.0),
        ("per-fedavg", 2.0),
        ("feddrl", 2 + 2 / 3),
        ("local", 2.0),
    ],
)
def test_the_work_of_every_method_is_what_it_computes(method: str, passes: float, tmp_path: Path) -> None:
    """In passes over the training data; FedDRL's losses before and after are a third each, validation data apart."""
    with run(tmp_path / "run", method, {"noise": 0}, rounds=1) as done:
        federation = done.federation()
        network, inputs = network_of(done)
        one = TRAINING * count_flops(network, inputs)
        for client, found in work(done).items():
            few = len(federation.val[client]) / 3 if method == "feddrl" else 0
            assert found == pytest.approx(one * (passes * len(federation.train[client]) + few))


def test_features_of_a_frozen_body_are_paid_once(tmp_path: Path) -> None:
    """FedRep: a forward pass of the body, five epochs of the head alone, two of body and head."""
    with run(tmp_path / "run", "fedrep", {"noise": 0}, rounds=1) as done:
        network, inputs = network_of(done)
        whole = count_flops(network, inputs)
        head = sum(w.numel() for name, w in network.parameters("head").items() if name.endswith("weight"))
        sizes = done.federation().train.sizes
        for client, found in work(done).items():
            assert found == pytest.approx(float(sizes[client]) * (whole - head + 3 * head * 5 + 3 * whole * 2))


def network_of(done: Run) -> Any:
    from fedtailor.learning.tensors import inputs_of
    from fedtailor.models import build

    inputs = inputs_of(done.federation().samples)
    return build(done.experiment.model, inputs, 0), inputs


# What does not change


def test_devices_that_leave_no_client_out_change_no_result(tmp_path: Path) -> None:
    evaluated = {"evaluation": {"every": 1, "final": True}, "participation": {"ratio": 0.5, "dropout": 0.2}}
    run(tmp_path / "without", "fedper", **evaluated).close()
    run(tmp_path / "with", "fedper", {"profiles": "log-normal"}, **evaluated).close()
    with Run(tmp_path / "without") as one, Run(tmp_path / "with") as other:
        assert states(one.folder) == states(other.folder)
        assert one.metrics() == other.metrics()
        assert one.events() == other.events() != []
        assert [row["cohort"] for row in one.rounds()] == [row["cohort"] for row in other.rounds()]
        assert one.clock() == one.times() == []
        assert one.summary().clock is None
        assert other.clock()


def test_looking_takes_no_time(tmp_path: Path) -> None:
    """FedALA's and Per-FedAvg's tests compute on clients; a method that asks is asked once more by the final pass."""
    for method in ("fedala", "per-fedavg", "feddrl"):
        for name, evaluation in (("blind", SETTINGS["evaluation"]), ("looking", {"every": 1, "final": True})):
            run(tmp_path / method / name, method, {}, evaluation=evaluation).close()
        with Run(tmp_path / method / "blind") as one, Run(tmp_path / method / "looking") as other:
            assert one.times() == other.times() != []
            assert one.clock() == other.clock()


def test_times_follow_the_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run(tmp_path / name, devices={}, seed=seed, data={**SETTINGS["data"], "seed": 0}).close()
    with Run(tmp_path / "a") as a, Run(tmp_path / "b") as b, Run(tmp_path / "c") as c:
        assert a.times() == b.times() != c.times()
        first, second = (a.times()[k * CLIENTS]["compute"] for k in (0, 1))
        assert first != second  # noise is new in every round


# Late, failed, not there


class Snapshots(Callback):
    """Every client's stored state after every round."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.after = folder, [{}]
        self.reports: list[RoundReport] = []

    def round_done(self, report: RoundReport) -> None:
        rows = states(self.folder)
        self.after.append({int(row["key"]): row["digest"] for row in rows if row["scope"] == "client"})
        self.reports.append(report)


@pytest.mark.parametrize("method", ["fedper", "scaffold"])
def test_a_late_client_is_as_it_was_before_the_round(method: str, tmp_path: Path) -> None:
    """Noise makes clients late now and then; round by round, only those that were in time have changed."""
    made = fedtailor.experiment({**SETTINGS, "rounds": 8, "method": {"name": method}})
    made = made.model_copy(update={"devices": Devices(speed=0.01, latency=0, noise=0.6, deadline=0.8)})
    callbacks = Snapshots(tmp_path / "run")
    with fedtailor.run(made, folder=tmp_path / "run", callbacks=callbacks) as done:
        late = {(e["round"], e["client"]) for e in done.events() if e["detail"].startswith("late: ")}
        over = {(row["round"], row["client"]) for row in done.times() if row["compute"] + row["transfer"] > 0.8}
        assert late == over
        assert done.summary().clock.late == len(late)
        clock = {row["round"]: row for row in done.clock()}
        assert all("deadline 0.8 s" in event["detail"] for event in done.events())
    kept = 0
    for round, (before, after) in enumerate(pairwise(callbacks.after), start=1):
        for client in range(CLIENTS):
            if (round, client) in late:
                assert before.get(client) == after.get(client)
                kept += client in before
            else:
                assert before.get(client) != after[client]
        if any(r == round for r, _ in late):
            assert clock[round]["seconds"] == 0.8
    assert kept > 0
    assert 0 < len(late) < 8 * CLIENTS


def test_a_late_client_has_no_influence(tmp_path: Path) -> None:
    """The server ends as in a federation in which the slow client drops out of every round."""
    (tmp_path / "d.csv").write_text(
        "client,speed\n" + "".join(f"{k},{1e-9 if k == 2 else 10}\n" for k in range(CLIENTS))
    )
    devices = {"profiles": {"kind": "csv", "file": str(tmp_path / "d.csv")}, "deadline": 5}
    run(tmp_path / "late", devices=devices).close()
    (tmp_path / "d.csv").write_text(
        "client,failure\n" + "".join(f"{k},{0.9999999 if k == 2 else 0}\n" for k in range(CLIENTS))
    )
    with run(tmp_path / "failed", devices=devices) as done:
        assert {(e["client"], e["detail"]) for e in done.events()} == {(2, "its device failed")}
        assert done.summary().clock.dropped == 4
        assert {row["client"] for row in done.times()} == set(range(CLIENTS)) - {2}
    assert states(tmp_path / "late") == states(tmp_path / "failed")


def test_who_is_not_there_when_a_round_begins_is_not_chosen(tmp_path: Path) -> None:
    """0 and 1 are there first, nobody in [30, 50), then 2 and 3; rounds of some seconds go through all of it."""
    rows = ["0,0,30", "1,0,30", "2,50,90", "3,60,100", "4,95,100"]
    (tmp_path / "a.csv").write_text("\n".join(["client,begin,end", *rows]))
    devices = {"availability": {"kind": "csv", "file": str(tmp_path / "a.csv")}, "latency": 4.0}
    with run(tmp_path / "run", devices=devices, rounds=20) as done:
        found = [(row["begin"], r["cohort"]) for row, r in zip(done.clock(), done.rounds(), strict=True)]
        ends = [row["begin"] + row["seconds"] for row in done.clock()]
    windows = [tuple(map(float, row.split(","))) for row in rows]
    waited = 0
    for k, (begin, cohort) in enumerate(found):
        assert cohort == sorted(int(c) for c, start, end in windows if start <= begin % 100 < end)
        assert cohort
        if k and begin != ends[k - 1]:
            assert begin % 100 == 50  # the first moment at which somebody is there again
            waited += 1
    assert waited > 0
    assert {client for _, cohort in found for client in cohort} == {0, 1, 2, 3, 4}


def test_a_cohort_is_drawn_among_the_available_clients(tmp_path: Path) -> None:
    devices = {"availability": {"kind": "daily", "share": 0.5, "day": 3.0}, "latency": 0.3}
    with run(tmp_path / "run", devices=devices, rounds=30, participation={"clients": 2}) as done:
        cohorts = [tuple(row["cohort"]) for row in done.rounds()]
        clock = virtual_clock(Devices(**devices), [1] * CLIENTS, 0)  # type: ignore[arg-type]
        for row, cohort in zip(done.clock(), cohorts, strict=True):
            assert set(cohort) <= set(clock.availability.first(row["begin"])[1])
            assert 1 <= len(cohort) <= 2
    assert len(set(cohorts)) > 5


# What a method sees


class Assessing(Method):
    """Asks for the time of an epoch, as HAPFL does, and looks at the times of training."""

    name: ClassVar = ""
    flops: int = 1_000_000

    def start_server(self, server: Server) -> None:
        server.state["seen"] = []

    def prepare(self, server: Server, cohort: Any) -> Any:
        replies = yield Ask("assess", dict.fromkeys(cohort, Payload()))
        assert server.clock is not None
        for client in cohort:
            work = TRAINING * self.flops * server.sizes[client]
            wanted = server.clock.task_time(client, work, 0, 0, "assess").compute
            assert replies.times[client].compute == pytest.approx(wanted)
        server.state["assessed"] = [replies.times[client].compute for client in cohort]
        return super().prepare(server, cohort)

    def assess(self, client: Client, payload: Payload) -> Payload:
        client.spend(TRAINING * self.flops * client.samples)
        return Payload()

    def finish(self, server: Server, replies: Replies) -> None:
        server.state["seen"].append([replies.times[client].compute for client in replies])
        super().finish(server, replies)


def test_a_method_learns_the_times_of_its_clients_and_they_are_part_of_the_round(tmp_path: Path) -> None:
    from fedtailor.messages.trees import unpack

    evaluated = {"every": 1, "final": True}
    with run(tmp_path / "run", Assessing(), {"deadline": 1e6}, evaluation=evaluated) as done:
        with Store(done.folder) as store:
            stored = {key: unpack(store.state("server", key) or b"")["value"] for key in ("seen", "assessed")}
        last = [row for row in done.times() if row["round"] == 4]
        assessed, trained = stored["assessed"], stored["seen"][-1]
        both = [a + b for a, b in zip(assessed, trained, strict=True)]
        assert [row["compute"] for row in last] == pytest.approx(both)
        assert done.clock()[-1]["latency"] == pytest.approx(max(both) - min(both))
        # the phases are barriers; all clients have the same bandwidths
        assert done.clock()[-1]["seconds"] == pytest.approx(max(assessed) + max(trained) + last[0]["transfer"])
        assert "final" in done.last()


def test_without_devices_there_is_no_clock(tmp_path: Path) -> None:
    class Looking(find("fedavg")):  # type: ignore[misc]
        name: ClassVar = ""

        def finish(self, server: Server, replies: Replies) -> None:
            assert server.clock is None
            assert replies.times == {}
            super().finish(server, replies)

    run(tmp_path / "run", Looking()).close()


def test_a_question_that_is_answered_late_leaves_the_client_out(tmp_path: Path) -> None:
    with run(tmp_path / "run", Assessing(flops=10**9), {"noise": 0, "deadline": 50}, rounds=2) as done:
        clock = virtual_clock(done.experiment.devices, done.federation().train.sizes.tolist(), 0).at(Moment(0, 0, 1))  # type: ignore[arg-type]
        slow = {client for client in range(CLIENTS) if clock.epoch_time(client, 10**9) + 0.1 > 50}
        assert 0 < len(slow) < CLIENTS
        assert {e["client"] for e in done.events()} == slow
        assert {row["client"] for row in done.tasks() if row["samples"]} == set(range(CLIENTS)) - slow


class Noting(Assessing):
    """A client notes that it was asked; the question is quick, the training slow."""

    def assess(self, client: Client, payload: Payload) -> Payload:
        client.state["asked"] = client.state.get("asked", 0) + 1
        return Payload()

    def prepare(self, server: Server, cohort: Any) -> Any:
        yield Ask("assess", dict.fromkeys(cohort, Payload()))
        return dict.fromkeys(cohort, Payload({"model": server.weights}))


def test_a_client_that_trained_too_long_forgets_that_it_was_asked(tmp_path: Path) -> None:
    devices = {"noise": 0, "speed": 0.01, "deadline": 0.6}
    with run(tmp_path / "run", Noting(), devices, rounds=2) as done:
        late = {event["client"] for event in done.events()}
    assert 0 < len(late) < CLIENTS
    kept = {int(row["key"]) for row in states(tmp_path / "run") if row["scope"] == "client"}
    assert kept == set(range(CLIENTS)) - late


# Going on


def test_a_run_stopped_at_any_round_resumes_with_the_same_times(tmp_path: Path) -> None:
    devices = {"deadline": 0.25, "failure": 0.2, "availability": {"kind": "daily", "day": 2.0, "share": 0.6}}

    class Stop(Callback):
        def round_done(self, report: RoundReport) -> None:
            if report.round == 3:
                raise KeyboardInterrupt

    run(tmp_path / "whole", devices=devices, rounds=6).close()
    made = fedtailor.experiment({**SETTINGS, "rounds": 6, "devices": devices})
    with pytest.raises(KeyboardInterrupt):
        fedtailor.run(made, folder=tmp_path / "cut", callbacks=Stop())
    fedtailor.resume(tmp_path / "cut").close()
    with Run(tmp_path / "whole") as one, Run(tmp_path / "cut") as other:
        assert one.times() == other.times()
        assert one.clock() == other.clock()
        assert one.events() == other.events() != []
    assert states(tmp_path / "whole") == states(tmp_path / "cut")


def test_a_run_does_not_resume_with_other_devices(tmp_path: Path) -> None:
    file = tmp_path / "d.csv"
    file.write_text("speed\n1\n2\n3\n")
    run(tmp_path / "run", devices={"profiles": {"kind": "csv", "file": str(file)}}).close()
    file.write_text("speed\n1\n2\n4\n")
    with pytest.raises(UserError, match=r"\[devices\] are not those it began with"):
        fedtailor.resume(tmp_path / "run")


def test_bad_devices_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.csv cannot be read"):
        run(tmp_path / "run", devices={"profiles": {"kind": "csv", "file": str(tmp_path / "none.csv")}})
    assert list(tmp_path.iterdir()) == []
