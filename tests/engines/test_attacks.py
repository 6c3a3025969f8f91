"""Malicious clients of a simulation, and what a defence does about them."""

import numpy as np
import pytest
import torch

import fedtailor
from fedtailor.data import DataSettings, build
from fedtailor.engines import Attack
from fedtailor.errors import UserError
from fedtailor.messages.payload import Payload
from fedtailor.parties import Schema, Tensors

START = {"w": torch.tensor([1.0, 2.0])}
TRAINED = Payload({"model": {"w": torch.tensor([2.0, 4.0]), "n": torch.tensor(3)}}, {"samples": 9})
ANY = Schema(open=True)


def sent(attack, schema=ANY, received=None):
    received = Payload({"model": START}) if received is None else received
    return attack.reply(TRAINED, received, {"w": torch.zeros(2)}, schema)


def test_sign_flip_sends_the_opposite_change():
    """The change is (1, 2): instead of (2, 4) the client sends (1, 2) - (1, 2)."""
    found = sent(Attack(kind="sign-flip", factor=1))
    assert found["model"]["w"].tolist() == [0.0, 0.0]
    assert found["model"]["n"] == 3
    assert found.numbers == {"samples": 9}


def test_scale_multiplies_the_change():
    assert sent(Attack(kind="scale", factor=10))["model"]["w"].tolist() == [11.0, 22.0]


def test_without_a_received_model_the_change_counts_from_the_initial_one():
    assert sent(Attack(kind="scale", factor=10), received=Payload())["model"]["w"].tolist() == [20.0, 40.0]


def test_a_reply_that_is_a_change_is_multiplied():
    schema = Schema({"model": Tensors(frozenset("wn"), change=True)})
    assert sent(Attack(kind="sign-flip", factor=1), schema)["model"]["w"].tolist() == [-2.0, -4.0]


def test_a_huge_factor_stays_finite():
    assert sent(Attack(kind="scale", factor=1e30), received=Payload())["model"]["w"].isfinite().all()


def test_label_flip_changes_the_labels_of_malicious_clients_only():
    federation = build(DataSettings(clients=10), 0)
    attack = Attack(kind="label-flip", share=0.3)
    poisoned, malicious = attack.data(federation, 7), attack.clients(10, 7)
    assert len(malicious) == 3
    for client in range(10):
        rows = federation.train[client]
        before, after = federation.samples.y[rows], poisoned.samples.y[rows]
        assert np.array_equal(after, 9 - before if client in malicious else before)


@pytest.mark.parametrize("kind", ["sign-flip", "label-flip"])
def test_malicious_clients_have_no_test_set(kind):
    federation = build(DataSettings(clients=10), 0)
    attack = Attack(kind=kind, share=0.3)
    poisoned = attack.data(federation, 7)
    tested = {client for client in range(10) if len(poisoned.test[client])}
    assert tested == set(range(10)) - attack.clients(10, 7)
    for client in tested:
        assert np.array_equal(poisoned.test[client], federation.test[client])
        assert np.array_equal(poisoned.samples.y[poisoned.test[client]], federation.samples.y[federation.test[client]])


def test_the_malicious_clients_follow_the_seed():
    attack = Attack(share=0.2)
    assert attack.clients(100, 1) == attack.clients(100, 1)
    assert attack.clients(100, 1) != attack.clients(100, 2)
    assert len(attack.clients(100, 1)) == 20


def test_label_flip_needs_classes():
    federation = build(DataSettings(source="synthetic", synthetic={"classes": 0}, partition={"kind": "iid"}), 0)
    with pytest.raises(UserError, match="label-flip"):
        Attack(kind="label-flip").data(federation, 0)


SETTINGS = {
    "rounds": 6,
    "data": {"clients": 10, "partition": "iid"},
    "training": {"epochs": 2, "lr": 0.1},
    "evaluation": {"models": ["global"], "every": 6, "final": False},
    "engine": {"kind": "inline"},
}


def accuracy(tmp_path, name, **tables):
    run = fedtailor.run({**SETTINGS, **tables}, folder=tmp_path / name)
    return run.summary().metrics["global"].accuracy


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return accuracy(tmp_path_factory.mktemp("honest"), "run")


SCALED = {"kind": "scale", "factor": 1e6, "share": 0.2}
DEFENCES = [{"clip": 1.0}, *({"rule": r} for r in ("median", "trimmed-mean", "krum", "multi-krum", "geometric-median"))]


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda d: next(iter(map(str, d.values()))))
def test_a_defence_withstands_scaled_replies(tmp_path, honest, defence):
    assert accuracy(tmp_path, "defended", attack=SCALED, aggregation=defence) > honest - 0.1


def test_without_a_defence_scaled_replies_ruin_the_model(tmp_path, honest):
    assert accuracy(tmp_path, "open", attack=SCALED) < honest - 0.3


def test_the_gate_leaves_sign_flippers_out_and_records_why(tmp_path):
    settings = {**SETTINGS, "attack": {"kind": "sign-flip", "share": 0.2}, "aggregation": {"gate": 0.0}}
    run = fedtailor.run(settings, folder=tmp_path / "gated")
    malicious = Attack(share=0.2).clients(10, 0)
    events = [event for event in run.events() if event["kind"] == "failed"]
    assert {event["client"] for event in events} == set(malicious)
    assert all("cosine" in event["detail"] for event in events)


@pytest.mark.parametrize("method", ["pfedrlla", "fedamp", "scaffold", "hapfl", "fedalp", "fednova", "fedpac"])
def test_methods_work_with_clipping_the_gate_and_a_robust_mean(tmp_path, method):
    settings = {
        **SETTINGS,
        "method": {"name": method},
        "rounds": 2,
        "attack": {"kind": "scale", "factor": 1e8, "share": 0.2},
        "aggregation": {"rule": "median", "clip": 2.0, "gate": -0.9},
        "evaluation": {"models": ["received"], "every": 2, "final": False},
    }
    run = fedtailor.run(settings, folder=tmp_path / method)
    assert run.summary().received.loss < 2.4  # log(10) = 2.3 is chance; undefended, most of them are above 1e25


def test_processes_give_the_same_bits(tmp_path):
    tables = {"attack": SCALED, "aggregation": {"rule": "multi-krum", "clip": 2.0, "gate": -0.5}}
    found = []
    for engine in ({"kind": "inline"}, {"kind": "processes", "workers": 2}):
        run = fedtailor.run({**SETTINGS, **tables, "rounds": 2, "engine": engine}, folder=tmp_path / engine["kind"])
        found.append([(m["model"], m["round"], m["loss"]) for m in run.metrics()])
    assert found[0] == found[1]


@pytest.mark.parametrize(("method", "said"), [("fedamp", True), ("pfedrlla", True), ("fedavg", False)])
def test_a_rule_that_a_method_does_not_use_is_a_footnote(tmp_path, method, said):
    settings = {**SETTINGS, "rounds": 1, "method": {"name": method}, "aggregation": {"rule": "median"}}
    run = fedtailor.run(settings, folder=tmp_path / "run")
    assert any("aggregation.rule = 'median' does nothing" in sentence for sentence in run.warnings) == said
