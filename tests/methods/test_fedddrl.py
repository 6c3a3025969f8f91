"""Hand-derived values, mechanism and exactness of fedddrl."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtailor.methods import Question, Server, read_policy
from fedtailor.methods.fedddrl import EPOCHS, STOP
from fedtailor.runs import Callback, RoundReport, pretrain, resume, run
from tests.support.problem import judged


def both(**settings: Any) -> dict[str, Any]:
    """The tables of the agents, with the same settings in both."""
    return {STOP: settings, EPOCHS: settings}


W = "0.weight"
SCALAR: dict[str, Any] = {
    "rounds": 2,
    "model": {"name": "tests.support.problem:Scalar"},
    "training": {"lr": 0.5, "epochs": 2, "batch_size": 1000, "loss": "squared-error"},
    "method": {"name": "fedddrl"},
    "engine": {"kind": "inline"},
}
DIGITS: dict[str, Any] = {
    "seed": 6,  # the untrained agents let all clients continue
    "rounds": 4,
    "data": {"clients": 6, "samples": 300},
    "model": {"name": "linear"},
    "training": {"epochs": 2, "lr": 0.1},
    "devices": {"speed": 0.001, "profiles": {"kind": "uniform", "spread": 10}},
    "engine": {"kind": "inline"},
    "method": {"name": "fedddrl", "agents": both(warmup=0, updates=2)},
}


def changed(settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**settings, "method": {**settings["method"], **changes}}


def stops(server: Server, _question: Question) -> Tensor:
    return torch.tensor([[0.0, 0.0], [1.0, 0.0]][server.round - 1])


def numbers(server: Server, _question: Question) -> Tensor:
    return torch.tensor([[2.0, 0.0], [1.0, 1.0]][server.round - 1])


@pytest.mark.parametrize(("third", "rewards"), [("idle", [-0.1, -0.2]), ("uploads", [-0.2, -0.25])])
def test_hand_fedddrl(tmp_path: Path, third: str, rewards: list[float]) -> None:
    """f(x) = w x, w = 1; client 0 has one sample with target 0, client 1 three with 4; a step goes half of the way.

    Probing: 0.5 and 2.5. Round 1, E = 2: client 0 has 3 epochs: 0.25, 0.125, client 1 one: 2.5; the mean by data
    (0.125 + 3 * 2.5) / 4 = 1.90625. Times are samples without a clock: 3 and 3, FedAvg's round would take 2 * 3 = 6;
    nobody waits, both upload: reward -0.2 * 3 / 6, and with a price on uploads 0.1 less.
    Round 2: client 0 is stopped; client 1 probes to 2.953125 and trains to 3.4765625, which is the new model; reward
    -0.2 * 6 / 6, and 0.1 / 2 less. A regression has no accuracy to gain.
    """
    federation = judged(([0.0], [4.0, 4.0, 4.0]), ([1.0], [4.0]))
    settings, deciders = changed(SCALAR, third=third), {STOP: stops, EPOCHS: numbers}
    with run(settings, folder=tmp_path / "run", federation=federation, deciders=deciders) as done:
        assert float(done.server_state()["model"][W]) == pytest.approx(3.4765625, abs=1e-6)
        assert done.rewards() == {name: pytest.approx(rewards) for name in (STOP, EPOCHS)}
        assert [row["loss"] for row in done.scores("received", 2)] == pytest.approx([0.5 * 0.09375**2] * 2, abs=1e-6)
        state = done.decisions()[0]["observation"]
        # losses 1/2 and 9/2, times and samples relative to their mean 2, transfers that take none
        wanted = torch.tensor([[0.5, 0.5, 1.0, 0.5], [4.5, 1.5, 1.0, 1.5]])
        wanted[:, 0] += 1
        assert torch.allclose(state, wanted.log(), atol=1e-6)
        # down: the model, a number of epochs, the new model; up: four numbers, the model with two, and two
        up, down = 32 + (4 + 16) + 16, 4 + len("epochs3") + 4
        assert [(row["bytes_up"], row["bytes_down"]) for row in done.rounds()] == [
            (2 * up, 2 * down),
            (32 + 16 + up, 4 + 4 + down),
        ]


def test_waiting_for_the_last_client_costs_a_reward_by_hand(tmp_path: Path) -> None:
    """Clients with 1, 3 and 2 samples and E = 2 train 1, 2 and 3 epochs: they end after 1, 6 and 6; FedAvg takes 6.

    They wait 5, 0 and 0: the mean is 5/3, and the reward -0.2 * 6 / 6 - 0.1 * (5 / 3) / 6. A client that stops waits
    for nobody: without the third the mean is 5/2, without the first 0.
    """
    federation = judged(([0.0], [4.0] * 3, [4.0] * 2), ([1.0], [4.0], [4.0]))
    for stopped, idle in (((0.0, 0.0, 0.0), 5 / 18), ((0.0, 0.0, 1.0), 5 / 12), ((1.0, 0.0, 0.0), 0.0)):
        deciders = {
            STOP: lambda _s, _q, who=stopped: torch.tensor(who),
            EPOCHS: lambda _s, _q: torch.tensor([0.0, 1.0, 2.0]),
        }
        folder = tmp_path / str(stopped)
        with run({**SCALAR, "rounds": 1}, folder=folder, federation=federation, deciders=deciders) as done:
            assert done.rewards()[STOP] == pytest.approx([-0.2 - 0.1 * idle])


def test_a_stopped_client_uploads_nothing_and_takes_no_more_time(tmp_path: Path) -> None:
    def stop(_server: Server, question: Question) -> Tensor:
        return torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 0.0])

    with run(DIGITS, folder=tmp_path / "run", deciders={STOP: stop}) as done:
        tasks = [row for row in done.tasks() if row["round"] == 1]
        uploads = {row["client"]: row["bytes_up"] for row in tasks}
        assert uploads[1] == uploads[2] == 32 + 16
        assert min(uploads[k] for k in (0, 3, 4, 5)) > 2000
        assert {row["client"] for row in done.scores("held", 4)} == {0, 3, 4, 5}


def test_when_all_are_to_stop_the_fastest_goes_on(tmp_path: Path) -> None:
    with run(DIGITS, folder=tmp_path / "run", deciders={STOP: lambda _s, _q: torch.ones(6)}) as done:
        for row in done.rounds():
            times = {t["client"]: t["compute"] for t in done.times() if t["round"] == row["round"]}
            heavy = [t["client"] for t in done.tasks() if t["round"] == row["round"] and t["bytes_up"] > 2000]
            assert len(heavy) == 1
            assert times[heavy[0]] < 4 * min(times.values())


def test_the_first_rounds_are_fedavg_s(tmp_path: Path) -> None:
    with run(changed(DIGITS, agents=both(warmup=3, updates=2)), folder=tmp_path / "run") as done:
        actions = {(row["round"], row["name"]): row["action"].tolist() for row in done.decisions()}
        assert all(actions[r, STOP] == [0.0] * 6 and actions[r, EPOCHS] == [1.0] * 6 for r in (1, 2, 3))
        tasks = {row["samples"] for row in done.tasks() if row["round"] == 1}
        assert tasks == {2 * int(size) for size in done.federation().train.sizes}


def test_the_agents_learn_from_their_rewards(tmp_path: Path) -> None:
    """A price on uploads only: clients come to be stopped, until one is left."""
    agents = both(warmup=0, lr=0.01, updates=10, discount=0.0)
    settings = changed({**DIGITS, "rounds": 60}, w1=0.0, w2=0.0, w3=10.0, third="uploads", agents=agents)
    with pretrain(settings, folder=tmp_path / "policy") as done:
        rewards = done.rewards()[STOP]
        assert rewards[0] < -8  # at least five of the six go on
        assert sum(rewards[-10:]) / 10 > -3
    with run(changed(settings, policy=str(tmp_path / "policy")) | {"rounds": 1}, folder=tmp_path / "run") as done:
        found = next(row for row in done.decisions() if row["name"] == STOP)
        assert found["action"].sum() >= 5
        kept = read_policy(tmp_path / "policy").agents[STOP]["network"]["parameters"]
        assert torch.equal(kept[0], done.agents()[STOP]["network"]["parameters"][0])


FINGERPRINTS: list[dict[str, Any]] = [
    {},
    {"w1": 1.0},
    {"w2": 2.0},
    {"w3": 2.0},
    {"third": "uploads"},
    {"change": 1.0},
    {STOP: {"warmup": 10}},
    {EPOCHS: {"warmup": 10}},
    {STOP: {"epsilon": 1.0}},
    {EPOCHS: {"learn": "never"}},
    {STOP: {"updates": 5}},
    {EPOCHS: {"hidden": [8, 8]}},
    {STOP: {"lr": 0.1}},
    {EPOCHS: {"discount": 0.1}},
    {STOP: {"batch": 3}},
    {EPOCHS: {"capacity": 1}},
    {STOP: {"polyak": 0.1}},
]


def test_every_setting_matters(tmp_path: Path) -> None:
    seen: dict[tuple[float, ...], dict[str, Any]] = {}
    for i, changes in enumerate(FINGERPRINTS):
        own = {key: value for key, value in changes.items() if key not in (STOP, EPOCHS)}
        usual = {"warmup": 0, "updates": 2, "epsilon": 0.5}
        own["agents"] = {name: {**usual, **changes.get(name, {})} for name in (STOP, EPOCHS)}
        with run(changed(DIGITS, **own), folder=tmp_path / str(i)) as done:
            networks = [done.agents()[name]["network"]["parameters"] for name in (STOP, EPOCHS)]
            losses = [row["loss"] for row in done.scores("final")]
        facts = (*losses, *(float(p.double().sum()) for network in networks for p in network))
        assert facts not in seen, f"{changes} changes nothing over {seen[facts]}"
        seen[facts] = changes


def test_an_interrupted_run_goes_on_exactly(tmp_path: Path) -> None:
    class Stop(Callback):
        def round_done(self, report: RoundReport) -> None:
            if report.round == 2:
                raise KeyboardInterrupt

    one = run(DIGITS, folder=tmp_path / "one")
    with pytest.raises(KeyboardInterrupt):
        run(DIGITS, folder=tmp_path / "two", callbacks=Stop())
    two = resume(tmp_path / "two")
    assert [row["loss"] for row in one.scores("final")] == [row["loss"] for row in two.scores("final")]
    assert one.rewards() == two.rewards()
    one.close()
    two.close()
