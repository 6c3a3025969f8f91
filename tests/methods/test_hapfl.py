"""Hand-derived values, identities, mechanism and exactness of hapfl, and of models of several sizes in a run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import fedtailor
from fedtailor.engines import Processes
from fedtailor.methods import Client, Method, Payload, Question, Replies, Server, catalogue, find, read_policy, spec
from fedtailor.methods.entropy import entropy_accuracy_weights, label_entropy
from fedtailor.methods.hapfl import HAPFL, INTENSITY, SIZE
from fedtailor.runs import (
    Callback,
    Resources,
    RoundReport,
    Run,
    export_client,
    export_global,
    load_model,
    pretrain,
    resume,
    run,
)
from fedtailor.views.drawings.hapfl import turns
from fedtailor.weights import mean
from tests.support.allocation import DIGITS, SEARCH, SIZES, both, changed
from tests.support.problem import targets

W = "0.weight"
SCALAR: dict[str, Any] = {
    "rounds": 2,
    "model": {"name": "tests.support.problem:Scalar"},
    "training": {"lr": 0.5, "epochs": 2, "batch_size": 1000, "loss": "squared-error"},
    "method": {"name": "hapfl", "sizes": ["tests.support.problem:Scalar", "tests.support.problem:Scalar"]},
    "devices": {"profiles": {"kind": "uniform", "spread": 1}, "noise": 0, "speed": 1e-9},  # a multiply-add a second
    "engine": {"kind": "inline"},
}

# Hand-derived values


def sized(server: Server, _question: Question) -> Tensor:
    return torch.tensor([[1.0, 0.0], [0.0, 0.0]][server.round - 1] if server.round < 3 else [0.0, 0.0])


def paced(server: Server, _question: Question) -> Tensor:
    return torch.tensor([1.0, 0.0] if server.round == 1 else [0.0, 1.0])


def test_hand_hapfl(tmp_path: Path) -> None:
    """f(x) = w x for the LiteModel w and for both sizes v, all 1 at the start; client 0 has target 0, client 1 has 4.

    A step with learning rate 1/2 moves v by -(0.4 (v - a) + 0.6 (v - w)) / 2, w by -(0.5 (w - a) + 0.5 (w - v)) / 2.
    Without devices times are work: T^d = 3 and 9 (one multiply-add, three passes, 1 and 3 samples), so client 0 has
    the first slot. Four epochs in all, one each and two to divide.
    Round 1: client 0 trains the second size for 3 epochs: v = 0.8, 0.625, 0.485 and w = 0.75, 0.575, 0.44375; client 1
    the first for one: v = 1.6, w = 1.75. A regression has neither accuracy nor entropy, so W = 1/2: lite
    (0.44375 + 1.75) / 2 = 1.096875. An epoch takes 6 and 18: reward 10 - 3; training takes 18 and 18: reward 0.
    Round 2: both train the first size, 1.6, for 1 and 3 epochs. Client 0: v = 1.1290625, w = 0.9484375; client 1:
    v = 1.9290625, 2.3490625, 2.7114765625 and w = 1.9484375, 2.456484375, 2.8155078125. Means 1.92026953 and
    1.88197266; the second size stays 0.485. Training takes 6 and 54: reward (6 - 54) / 6, the unit being 2 epochs of 3.
    """
    deciders = {SIZE: sized, INTENSITY: paced}
    federation = targets([0.0], [4.0, 4.0, 4.0])
    with run(SCALAR, folder=tmp_path / "run", federation=federation, deciders=deciders) as done:
        state = done.server_state()
        assert float(state["model"][W]) == pytest.approx(1.88197265625, abs=1e-6)
        sizes = {name: float(weights[W]) for name, weights in state["hapfl"]["sizes"].items()}
        assert sizes == pytest.approx(
            {"tests.support.problem:Scalar-1": 1.92026953125, "tests.support.problem:Scalar-2": 0.485}, abs=1e-6
        )
        assert done.rewards() == {SIZE: pytest.approx([7.0, 7.0]), INTENSITY: pytest.approx([0.0, -8.0])}
        seen = {(row["round"], row["name"]): row["observation"][:, 0].tolist() for row in done.decisions()}
        assert seen == {(r, name): pytest.approx([m, 3 * m]) for r in (1, 2) for name, m in ((SIZE, 1), (INTENSITY, 2))}
        # what a client receives, and holds, is its local model: (v - a)^2 / 2
        assert [row["loss"] for row in done.scores("received", 2)] == pytest.approx([1.28, 3 * 2.88], abs=1e-5)
        assert [row["loss"] for row in done.scores("held", 1)] == pytest.approx([0.485**2 / 2, 3 * 2.88], abs=1e-5)
        # down: the flops, two models, size and epochs; up: the samples, two models, entropy and two accuracies
        config = len("size") + len("tests.support.problem:Scalar-1") + len("epochs") + 1
        assert [(row["bytes_up"], row["bytes_down"]) for row in done.rounds()] == [(2 * 40, 2 * (16 + config))] * 2


def test_a_size_group_is_weighted_by_the_accuracy_of_its_own_models_by_hand() -> None:
    """Eq. 38 with equal entropies: accuracies 1 and 0 of the local models, 0 and 1 of the LiteModels.

    softmax(1, 0) = (0.73105858, 0.26894142), so W = (0.61552929, 0.38447071) for the size, and the reverse for lite.
    """
    given: dict[str, dict[int, float]] = {}

    def average(_replies: Any, group: str = "model", *, weights: dict[int, float]) -> dict[str, Tensor]:
        given[group] = weights
        return {}

    replies = {
        k: Payload({"model": {}, "small": {}}, {"entropy": 1.0, "lite accuracy": lite, "local accuracy": 1 - lite})
        for k, lite in enumerate((0.0, 1.0))
    }
    server: Any = SimpleNamespace(
        family={"small": None}, state={"hapfl": SimpleNamespace(sizes={})}, average=average, weights=None
    )
    HAPFL()._aggregate(server, Replies(replies, {}), dict.fromkeys(replies, "small"))
    assert given == {
        "model": pytest.approx({0: 0.38447071, 1: 0.61552929}),
        "small": pytest.approx({0: 0.61552929, 1: 0.38447071}),
    }


# Identities


class Weighted(Method):
    """FedAvg with HAPFL's weights."""

    needs_validation = True

    def upload(self, client: Client) -> Payload:
        score = client.evaluate("val")
        numbers = {"entropy": label_entropy(client.data("train")[1]), "accuracy": score.correct / score.samples}
        return Payload({"model": client.weights()}, numbers)

    def finish(self, server: Server, replies: Replies) -> None:
        facts = [[reply.number(name) for reply in replies.values()] for name in ("entropy", "accuracy")]
        server.weights = mean([reply["model"] for reply in replies.values()], entropy_accuracy_weights(*facts))


def test_without_its_ideas_it_is_fedavg_of_lite_models_by_entropy_and_accuracy(tmp_path: Path) -> None:
    alone = changed({**DIGITS, "devices": None}, adapts="neither", lambda3=1.0, lambda4=0.0, sizes=[])
    plain = fedtailor.experiment({**alone, "method": {"name": "fedavg"}}).model_copy(update={"method": Weighted()})
    with run(alone, folder=tmp_path / "one") as one, run(plain, folder=tmp_path / "two") as two:
        found, wanted = one.server_state()["model"], two.server_state()["model"]
        for name, tensor in wanted.items():
            assert torch.allclose(found[name], tensor, atol=1e-6)
        assert [row["correct"] for row in one.scores("global", 3)] == [
            row["correct"] for row in two.scores("global", 3)
        ]


def test_with_equal_clients_everybody_gets_the_same(tmp_path: Path) -> None:
    settings = {**changed(DIGITS, agents=SEARCH), "participation": {}}
    settings["data"] = {"clients": 4, "samples": 240, "partition": "iid"}
    settings["devices"] = {"profiles": {"kind": "uniform", "spread": 1}, "noise": 0}
    with run(settings, folder=tmp_path / "run") as done:
        rows = turns(done.server_state()["timeline"]["latest"])
        assert {(row["size"], row["epochs"]) for row in rows} == {("mlp-2", 2)}
        assert len(rows) == 4
        assert [row["latency"] for row in done.clock()] == pytest.approx([0.0] * 3)


def test_the_ids_of_clients_do_not_matter(tmp_path: Path) -> None:
    """The same clients under other ids: the same models; each has its own time, so each has its own slot."""
    clients = [[0.0], [4.0, 4.0, 4.0], [1.0, 2.0], [3.0] * 5]
    models = []
    for place, order in enumerate(([0, 1, 2, 3], [3, 1, 0, 2])):
        settings = changed(SCALAR, agents=both(learn="never", hidden=[8, 8]))
        federation = targets(*(clients[k] for k in order))
        with run(settings, folder=tmp_path / str(place), federation=federation) as done:
            state = done.server_state()
            models.append([float(w[W]) for w in (state["model"], *state["hapfl"]["sizes"].values())])
            rows = {order[row["client"]]: (row["size"], row["epochs"]) for row in turns(state["timeline"]["latest"])}
            models[-1] += [rows[k] for k in range(4)]
    assert models[0][3:] == models[1][3:]
    assert models[0][:3] == pytest.approx(models[1][:3], abs=1e-6)


def test_aggregation_does_not_grow_the_weights(tmp_path: Path) -> None:
    """With next to no learning the models stay where they are; eq. 39 as printed would double them every round."""
    settings = {**changed(DIGITS, adapts="neither"), "rounds": 4, "training": {"epochs": 1, "lr": 1e-9}}
    with (
        run({**settings, "rounds": 1}, folder=tmp_path / "one") as one,
        run(settings, folder=tmp_path / "four") as four,
    ):
        first, last = one.server_state(), four.server_state()
        for name, tensor in first["model"].items():
            assert torch.allclose(last["model"][name], tensor, atol=1e-5)
        for name, tensor in first["hapfl"]["sizes"]["mlp-2"].items():
            assert torch.allclose(last["hapfl"]["sizes"]["mlp-2"][name], tensor, atol=1e-5)


# Mechanism


FINGERPRINTS: list[dict[str, Any]] = [
    {},
    {"adapts": "sizes"},
    {"adapts": "intensities"},
    {"adapts": "neither"},
    {"agents": {"size": {"decider": "search"}}},
    {"agents": {"intensity": {"decider": "search"}}},
    {"agents": {"size": {"learn": "never"}}},
    {"agents": {"intensity": {"learn": "never"}}},
    {"lambda1": 1.0},
    {"lambda2": 0.0},
    {"lambda3": 1.0},
    {"lambda4": 0.0},
    {"sizes": SIZES[:1]},
    {"sizes": [*SIZES, "linear"]},
    {"agents": {"size": {"hidden": [32]}}},
    {"agents": {"intensity": {"network": "per-slot"}}},
    {"state": "log"},
    {"warm": 3},
]


def test_every_setting_of_the_method_matters(tmp_path: Path) -> None:
    seen: dict[tuple[float, ...], dict[str, Any]] = {}
    for i, changes in enumerate(FINGERPRINTS):
        with run(changed({**DIGITS, "rounds": 2}, policy="none", **changes), folder=tmp_path / str(i)) as done:
            losses, times = done.scores("final"), done.clock()
            actions = [number for row in done.decisions() for number in row["action"].tolist()]
            facts = (*(row["loss"] for row in losses), *(row["seconds"] for row in times), *actions)
        assert facts not in seen, f"{changes} changes nothing over {seen[facts]}"
        seen[facts] = changes


def test_every_setting_of_the_agents_matters(tmp_path: Path) -> None:
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    changes: list[dict[str, Any]] = [
        {},
        {"md": 5.0},
        {"size": {"actor_lr": 0.1}},
        {"intensity": {"actor_lr": 0.1}},
        {"size": {"critic_lr": 0.1}},
        {"intensity": {"critic_lr": 0.1}},
        {"size": {"epochs": 3}},
        {"intensity": {"clip": 0.01}},
        {"size": {"buffer": 2}},
    ]
    for i, change in enumerate(changes):
        own = {name: table for name, table in change.items() if name != "md"}
        agents = {name: {"actor_lr": 0.05, **own.get(name, {})} for name in (SIZE, INTENSITY)}
        settings = changed({**DIGITS, "rounds": 11}, md=change.get("md", 10.0), agents=agents)
        with pretrain(settings, folder=tmp_path / str(i)) as done:
            known = done.agents()
        facts = tuple(
            float(p.double().sum())
            for agent in (SIZE, INTENSITY)
            for part in ("actor", "critic")
            for p in known[agent][part]["parameters"]
        )
        assert facts not in seen, f"{change} changes nothing over {seen[facts]}"
        seen[facts] = change


def test_both_models_learn_from_each_other(tmp_path: Path) -> None:
    """With labels for one of them only, the other one still learns."""
    for place, lambdas in enumerate(({"lambda1": 0.0, "lambda2": 1.0}, {"lambda3": 0.0, "lambda4": 1.0})):
        settings = {**changed(DIGITS, adapts="neither", **lambdas), "rounds": 8}
        settings["data"] = {"clients": 6, "samples": 600, "partition": "iid"}
        with run(settings, folder=tmp_path / str(place)) as done:
            assert done.last()["global"].pooled > 0.5
            assert done.last()["mlp-2"].pooled > 0.5


def test_a_policy_that_gives_fast_clients_the_large_model_is_recovered(tmp_path: Path) -> None:
    """Two clients five times as fast as two others, the large model about five times the work of the small one."""
    settings = {**changed(DIGITS, adapts="sizes"), "rounds": 100, "participation": {}}
    settings["data"] = {"clients": 4, "samples": 240, "partition": "iid"}
    tiers = [{"share": 0.5, "speed": 1.0}, {"share": 0.5, "speed": 0.2}]
    settings["devices"] = {"profiles": {"kind": "tiers", "tiers": tiers}}
    with pretrain(settings, folder=tmp_path / "policy") as done:
        rewards = done.rewards()[SIZE]
        assert sum(task["steps"] for task in done.tasks()) == 0  # nothing was trained for it
    assert sum(rewards[-20:]) / 20 > sum(rewards[:20]) / 20 + 2
    used = changed({**settings, "rounds": 2}, policy=str(tmp_path / "policy"))
    with run(used, folder=tmp_path / "run") as done:
        for row in done.decisions():
            assert row["action"].tolist() == [1.0, 1.0, 0.0, 0.0]
        first, second = read_policy(tmp_path / "policy").agents[SIZE], done.agents()[SIZE]
        assert torch.equal(first["actor"]["parameters"][0], second["actor"]["parameters"][0])


def test_pre_training_goes_on_from_a_policy(tmp_path: Path) -> None:
    settings = {**changed(DIGITS, agents=both(buffer=1)), "rounds": 2}
    pretrain(settings, folder=tmp_path / "policy").close()
    with pretrain(changed(settings, policy=str(tmp_path / "policy")), folder=tmp_path / "more") as done:
        assert {name: agent["steps"] for name, agent in done.agents().items()} == {SIZE: 4, INTENSITY: 4}


def test_the_rehearsal_is_found_by_its_name_but_not_listed() -> None:
    rehearsal = HAPFL(sizes=("small", "large")).rehearsal()
    assert find(spec(rehearsal)) is type(rehearsal)
    assert type(rehearsal) not in catalogue().values()
    assert rehearsal.rehearses is HAPFL


def test_worker_processes_rehearse_to_the_bit(tmp_path: Path) -> None:
    pretrain(DIGITS, folder=tmp_path / "one").close()
    with Resources(engine=Processes(2)) as resources:
        pretrain(DIGITS, folder=tmp_path / "two", resources=resources).close()
    with Run(tmp_path / "one") as one, Run(tmp_path / "two") as two:
        assert str(one.agents()) == str(two.agents())
        assert one.rewards() == two.rewards()


def test_times_are_those_of_the_assessment_and_of_the_training_of_both_models(tmp_path: Path) -> None:
    """A client's computing time is T^d (1 + tau M(a)) but for the validation of its models, a forward pass."""
    settings = changed({**DIGITS, "rounds": 1, "devices": {**DIGITS["devices"], "noise": 0.0}}, agents=SEARCH)
    lite, flops = 64 * 10, {"mlp-1": 8 * 74, "mlp-2": 80 * 74}
    with run(settings, folder=tmp_path / "run") as done:
        total = {row["client"]: row["compute"] for row in done.times()}
        rows = turns(done.server_state()["timeline"]["latest"])
        sizes, validation = done.federation().train.sizes, done.federation().val.sizes
        assert len({row["size"] for row in rows}) == 2
        for row in rows:
            k, ratio = row["client"], 1 + flops[row["size"]] / lite
            forward = validation[k] / sizes[k] / 3
            assert row["training"] == pytest.approx(row["assessment"] * ratio * (row["epochs"] + forward))
            assert total[k] == pytest.approx(row["assessment"] + row["training"])


def test_a_late_client_is_left_out_and_stays_as_it_was(tmp_path: Path) -> None:
    """The deadline lies between the training of the slowest client and of all others, whom the rewards are about."""
    settings = {**changed(DIGITS, adapts="neither", sizes=["tests.support.problem:Normalised"]), "participation": {}}
    settings["model"] = {"name": "linear", "running_statistics": "local"}
    settings["devices"] = {**DIGITS["devices"], "noise": 0, "latency": 0, "down": 1e6, "up": 1e6}
    with run(settings, folder=tmp_path / "one") as done:
        training = {row["client"]: row["training"] for row in turns(done.server_state()["timeline"]["latest"])}
    *_, other, slow = sorted(training, key=training.__getitem__)
    deadline = (training[other] + training[slow]) / 2
    settings["devices"] |= {"deadline": deadline}
    with run(settings, folder=tmp_path / "two") as done:
        events = [(event["round"], event["client"]) for event in done.events()]
        assert events == [(1, slow), (2, slow), (3, slow)]
        kept = {k for k in range(6) if done._store.state("client", k) is not None}
        assert kept == set(range(6)) - {slow}
        assert {row["client"] for row in turns(done.server_state()["timeline"]["latest"])} == kept
    # as in a federation in which it fails before it has begun
    lines = [f"{k},{0.9999999 if k == slow else 0}" for k in range(6)]
    (tmp_path / "devices.csv").write_text("\n".join(["client,failure", *lines]), encoding="utf-8")
    settings["devices"] = {"profiles": {"kind": "csv", "file": str(tmp_path / "devices.csv")}}
    with run(settings, folder=tmp_path / "three") as third, Run(tmp_path / "two") as second:
        for name in ("model", "hapfl"):
            found, wanted = second.server_state()[name], third.server_state()[name]
            assert str(found) == str(wanted)


def test_without_devices_it_warns_and_runs(tmp_path: Path) -> None:
    class Listen(Callback):
        heard: list[str] = []

        def warning(self, sentence: str) -> None:
            self.heard.append(sentence)

    settings = {**DIGITS, "rounds": 1, "devices": None}
    run(settings, folder=tmp_path / "one", callbacks=Listen()).close()
    assert [said for said in Listen.heard if "[devices]" in said]
    run(changed(settings, sizes=[]), folder=tmp_path / "two", callbacks=Listen()).close()
    assert [said for said in Listen.heard if "one size" in said]


# Models of several sizes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hapfl") / "run"
    run(changed(DIGITS, sizes=["small", "large"], agents=SEARCH), folder=folder).close()
    return folder


def assert_same(one: Path, other: Path) -> None:
    """Everything that was recorded, but measured times."""
    with Run(one) as first, Run(other) as second:
        for query in ("scope, key, data FROM state", "* FROM scores", "* FROM metrics", "* FROM times"):
            rows = [found._store.rows(f"SELECT {query} ORDER BY 1, 2, 3") for found in (first, second)]
            assert rows[0] == rows[1], query
            assert rows[0]


def predictions(folder: Path, run: Run, clients: list[int]) -> int:
    """How many test samples of these clients an exported model gets right."""
    federation, model = run.federation(), load_model(folder)
    samples = federation.samples
    right = 0
    for k in clients:
        found = model.predict(samples.x[federation.test[k]])
        right += sum(name == samples.classes[y] for name, y in zip(found, samples.y[federation.test[k]], strict=True))
    return right


def test_models_of_every_size_are_measured_and_exported(whole: Path, tmp_path: Path) -> None:
    with Run(whole) as done:
        assert {"global", "small", "large", "received", "held", "final"} <= {row["model"] for row in done.metrics()}
        final = {row["client"]: row["correct"] for row in done.scores("final")}
        chosen = set()
        for k in final:
            card = load_model(export_client(whole, k, tmp_path / f"client-{k}")).card
            chosen.add(card["model"]["name"])
            assert predictions(tmp_path / f"client-{k}", done, [k]) == final[k]
        assert chosen == {"small", "large"}
        for name, network in {"global": "linear", "small": "small", "large": "large"}.items():
            assert load_model(export_global(whole, tmp_path / name, name)).card["model"]["name"] == network
            right = sum(row["correct"] for row in done.scores(name, 3))
            assert predictions(tmp_path / name, done, list(final)) == right


def test_worker_processes_give_the_same_models_to_the_bit(whole: Path, tmp_path: Path) -> None:
    with Resources(engine=Processes(2)) as resources:
        run(
            changed(DIGITS, sizes=["small", "large"], agents=SEARCH), folder=tmp_path / "run", resources=resources
        ).close()
    assert_same(whole, tmp_path / "run")


def test_an_interrupted_run_goes_on_exactly(tmp_path: Path) -> None:
    settings = {**changed(DIGITS, agents=both(buffer=2)), "rounds": 4}

    class Stop(Callback):
        def round_done(self, report: RoundReport) -> None:
            if report.round == 3:
                raise KeyboardInterrupt

    run(settings, folder=tmp_path / "one").close()
    with pytest.raises(KeyboardInterrupt):
        run(settings, folder=tmp_path / "two", callbacks=Stop())
    resume(tmp_path / "two").close()
    assert_same(tmp_path / "one", tmp_path / "two")


class Hostile(HAPFL):
    """Client 0 sends a local model that does not fit."""

    name = ""
    how: str = "shape"

    def upload(self, client: Client) -> Payload:
        reply = super().upload(client)
        if client.id == 0:
            group = reply.groups[client.deployed]
            name = next(iter(group))
            broken = {"shape": group[name][..., :1], "nan": group[name] * float("nan")}
            if self.how == "missing":
                del group[name]
            else:
                group[name] = broken[self.how]
        return reply


@pytest.mark.parametrize(
    ("how", "said"),
    [("shape", "expected"), ("nan", "not finite"), ("missing", "lacks")],
    ids=["shape", "nan", "missing"],
)
def test_a_local_model_that_does_not_fit_is_refused(how: str, said: str, tmp_path: Path) -> None:
    settings = {**DIGITS, "rounds": 1, "participation": {}}
    experiment = fedtailor.experiment(settings).model_copy(
        update={"method": Hostile.model_validate({"how": how, "sizes": SIZES, "agents": SEARCH})}
    )
    with run(experiment, folder=tmp_path / "run") as done:
        assert [(event["client"], said in event["detail"]) for event in done.events()] == [(0, True)]


class Meddling(HAPFL):
    """Every client also sends a model of the size that it was not given."""

    name = ""

    def upload(self, client: Client) -> Payload:
        reply = super().upload(client)
        other = {"mlp-1": "mlp-2", "mlp-2": "mlp-1"}[client.deployed]
        weights = client.network_of(other).weights()
        return Payload({**reply.groups, other: {name: 1000 + w for name, w in weights.items()}}, reply.numbers)


def test_a_model_of_a_size_that_a_client_was_not_given_is_left_aside(tmp_path: Path) -> None:
    experiment = fedtailor.experiment(changed({**DIGITS, "rounds": 1}, agents=SEARCH))
    sizes = []
    for kind in (HAPFL, Meddling):
        method = kind.model_validate({"sizes": SIZES, "agents": SEARCH})
        with run(experiment.model_copy(update={"method": method}), folder=tmp_path / kind.__name__) as done:
            assert not done.events()
            sizes.append(done.server_state()["hapfl"]["sizes"])
    for name, weights in sizes[0].items():
        assert all(torch.equal(sizes[1][name][key], tensor) for key, tensor in weights.items())


def test_a_local_model_that_diverges_leaves_the_client_out(tmp_path: Path) -> None:
    settings = {**DIGITS, "rounds": 1, "training": {"epochs": 5, "lr": 100.0}}
    settings = changed(settings, lambda1=1000.0, lambda2=0.0, lambda3=1e-12, lambda4=0.0, adapts="neither")
    with run(settings, folder=tmp_path / "run") as done:
        assert done.events()
        assert all("fc" in event["detail"] for event in done.events() if event["kind"] == "failed")


def test_an_unknown_size_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(fedtailor.UserError, match="lage"):
        run(changed(DIGITS, sizes=["small", "lage"]), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_decider_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(fedtailor.UserError, match="unknown decider of size 'serach': did you mean 'search'"):
        run(changed(DIGITS, agents={"size": {"decider": "serach"}}), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("statistics", ["averaged", "local", "reset"])
def test_running_statistics_of_local_models_travel_stay_or_start_afresh(statistics: str, tmp_path: Path) -> None:
    settings = {**changed(DIGITS, adapts="neither", sizes=["tests.support.problem:Normalised"]), "participation": {}}
    settings["model"] = {"name": "linear", "running_statistics": statistics}
    with run(settings, folder=tmp_path / "run") as done:
        model = done.server_state()["hapfl"]["sizes"]["tests.support.problem:Normalised"]
        assert ("1.running_mean" in model) == (statistics == "averaged")
        kept = done._store.state("client", 0)
        assert (kept is not None) == (statistics == "local")
        if kept is not None:
            assert b"running_mean" in kept
