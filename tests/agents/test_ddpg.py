"""The agent does what its equations say, remembers everything, and learns."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedtailor.agents import DDPG, DDPGSettings, Simplex
from fedtailor.messages.trees import pack, unpack
from fedtailor.seeding import torch_stream

torch.set_num_threads(1)  # as in a run

SMALL = {"hidden": (16,), "batch": 8}


OPTIONS = ("prior", "exchangeable", "action_scale", "reward_scale")  # of the agent, not of its settings


def agent(slots: int = 3, features: int = 2, seed: int = 0, **changes: Any) -> DDPG:
    options = {name: changes.pop(name) for name in OPTIONS if name in changes}
    settings = DDPGSettings().model_copy(update={**SMALL, **changes})  # not checked: tests go beyond the limits
    return DDPG(slots, features, Simplex(), settings, torch_stream(seed, "weights"), **options)


def set_linear(network: Any, weights: list[list[float]], bias: list[float]) -> None:
    """Make a network without hidden layers compute this."""
    network.load_state_dict({"parameters": [torch.tensor(weights), torch.tensor(bias)]})


# The softmax over the present slots


def test_the_masked_softmax_by_hand() -> None:
    """exp(0) : exp(log 3) = 1 : 3 over the two slots that are present, whatever the empty one says."""
    logits = torch.tensor([1.0, 50.0, 3.0]).log()[:, None]
    weights = Simplex()(logits, torch.tensor([True, False, True]))
    assert weights.tolist() == pytest.approx([0.25, 0.0, 0.75], abs=1e-7)
    assert Simplex()(logits, torch.tensor([False, True, False])).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("noise", [0.0, 0.03, 1.0, 100.0, 1e6, 1e30])
@pytest.mark.parametrize("present", [1, 2, 5])
def test_no_noise_leaves_the_simplex(noise: float, present: int) -> None:
    made = agent(5, noise=noise)
    mask, stream = torch.arange(5) < present, torch_stream("noise")
    for _ in range(50):
        action = made.act(100 * torch.randn(5, 2, generator=stream), mask, stream)
        assert action.shape == (5,)
        assert float(action.min()) >= 0
        assert float(action.sum()) == pytest.approx(1, abs=1e-6)
        assert action[present:].tolist() == [0.0] * (5 - present)


def test_random_weights_are_draws_from_the_unit_interval_over_their_sum() -> None:
    """One of three has mean 1/3 and exceeds 1/2 where u > v + w, with probability 1/6 (uniform on the simplex: 1/4)."""
    stream, mask = torch_stream("r"), torch.tensor([True, True, False, True])
    drawn = torch.stack([Simplex().random(mask, stream) for _ in range(4000)])
    assert drawn[:, 2].abs().max() == 0
    assert drawn.sum(1).tolist() == pytest.approx([1.0] * 4000, abs=1e-6)
    assert drawn.mean(0)[[0, 1, 3]].tolist() == pytest.approx([1 / 3] * 3, abs=0.02)
    assert float((drawn[:, 0] > 0.5).float().mean()) == pytest.approx(1 / 6, abs=0.02)


@pytest.mark.parametrize("network", ["mlp", "attention"])
def test_what_stands_in_an_empty_slot_does_not_matter(network: str) -> None:
    made, mask = agent(network=network), torch.tensor([True, True, False])
    state, junk = torch.randn(3, 2, generator=torch_stream("s")), torch.zeros(3, 2)
    junk[2] = float("nan")
    action = made.act(state, mask)
    assert torch.equal(made.act(torch.where(mask[:, None], state, junk), mask), action)
    assert not torch.equal(made.act(state), action)


def test_a_decision_without_anyone_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one of 3 slots"):
        agent().act(torch.zeros(3, 2), torch.zeros(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="3 slots"):
        agent().act(torch.zeros(3, 2), torch.ones(2, dtype=torch.bool))


# The equations


def linear(**changes: Any) -> DDPG:
    """Two slots with one feature; actor and critic are linear in (s1, s2, m1, m2) and (s1, s2, m1, m2, a1, a2)."""
    made = agent(2, 1, hidden=(), **changes)
    set_linear(made.actor, [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], [0.0, 0.0])
    set_linear(made.critic, [[0.0, 0.0, 0.0, 0.0, 4.0, 8.0]], [1.0])
    return made


def test_the_target_of_a_single_step_is_the_reward() -> None:
    made = linear()
    assert set(made.networks) == {"actor", "critic"}  # no target networks that would do nothing
    made.observe(torch.zeros(2, 1), torch.tensor([0.5, 0.5]), -7.0)
    batch = made.replay.sample(4, torch_stream("b"))
    assert made.target(batch).tolist() == [-7.0] * 4


def test_the_target_of_many_steps_by_hand() -> None:
    """s' = (log 3, 0): mu'(s') = (3/4, 1/4), Q' = 1 + 4 * 3/4 + 8 * 1/4 = 6; r + 0.5 * 6 = 2 + 3 = 5.

    With the second slot of s' empty: mu' = (1, 0), Q' = 5, target 4.5; and at the end of an episode just r.
    """
    made = linear(discount=0.5)
    for name in ("actor", "critic"):
        made.networks[f"target_{name}"].load_state_dict(made.networks[name].state_dict())
    set_linear(made.critic, [[9.0] * 6], [9.0])  # the target must not look at the online networks
    set_linear(made.actor, [[9.0] * 4, [1.0] * 4], [9.0, 1.0])
    batch = {
        "reward": torch.tensor([2.0, 2.0, 2.0]),
        "next_state": torch.tensor([[3.0], [1.0]]).log().expand(3, 2, 1),
        "next_mask": torch.tensor([[True, True], [True, False], [True, True]]),
        "done": torch.tensor([0.0, 0.0, 1.0]),
    }
    assert made.target(batch).tolist() == pytest.approx([5.0, 4.5, 2.0], abs=1e-6)


def test_a_polyak_step_by_hand() -> None:
    """0.75 * 8 + 0.25 * 4 = 7."""
    one, other = linear().critic, linear().critic
    set_linear(one, [[8.0] * 6], [0.0])
    set_linear(other, [[4.0] * 6], [2.0])
    one.approach(other, 0.75)
    assert [p.flatten().tolist() for p in one.parameters] == [[7.0] * 6, [0.5]]
    assert [p.flatten().tolist() for p in other.parameters] == [[4.0] * 6, [2.0]]


def test_learning_moves_target_networks_by_polyak_towards_the_learned_ones() -> None:
    made = agent(discount=0.9, polyak=0.96)
    filled(made)
    before = {name: [p.detach().clone() for p in network.parameters] for name, network in made.networks.items()}
    made.learn(torch_stream("r"))
    for name in ("actor", "critic"):
        for old, new, target in zip(
            before[f"target_{name}"],
            made.networks[name].parameters,
            made.networks[f"target_{name}"].parameters,
            strict=True,
        ):
            torch.testing.assert_close(target, 0.96 * old + 0.04 * new)
            assert not torch.equal(target, new)


def test_one_step_moves_the_critic_to_the_target_and_the_actor_uphill() -> None:
    """The critic says 1 + 4 a1 + 8 a2 = 7 at a = (1/2, 1/2) and learns of a reward of 9: it says more now. It prefers
    the second slot, so the actor gives it more weight."""
    made = linear(actor_lr=0.1, critic_lr=0.01)
    state, even = torch.zeros(2, 1), torch.tensor([0.5, 0.5])
    assert made.value(state, even) == pytest.approx(7.0)
    assert made.act(state).tolist() == [0.5, 0.5]
    made.observe(state, even, 9.0)
    made.learn(torch_stream("r"))
    assert 7.0 < made.value(state, even) < 9.0
    assert float(made.act(state)[1]) > 0.54


def test_states_observed_one_after_another_form_a_chain() -> None:
    made = agent(2, 1, discount=0.9, capacity=10)
    for step in range(3):
        made.observe(torch.full((2, 1), float(step)), torch.tensor([0.5, 0.5]), float(step), done=step == 2)
    assert len(made.replay) == 3
    rows = made.state_dict()["replay"]["rows"]
    assert rows["reward"].tolist() == [0.0, 1.0, 2.0]
    assert rows["state"][:, 0, 0].tolist() == [0.0, 1.0, 2.0]
    assert rows["next_state"][:2, 0, 0].tolist() == [1.0, 2.0]
    assert rows["done"].tolist() == [0.0, 0.0, 1.0]
    made.observe(torch.full((2, 1), 7.0), torch.tensor([0.5, 0.5]), 0.0)  # a new episode: nothing to complete
    assert len(made.replay) == 3


def test_what_was_observed_is_a_snapshot() -> None:
    made = agent(2, 1, discount=0.9)
    state, action, mask = torch.zeros(2, 1), torch.tensor([0.5, 0.5]), torch.tensor([True, True])
    made.observe(state, action, 1.0, mask)
    for live in (state, action):
        live.fill_(5.0)
    mask.fill_(False)
    made.observe(torch.ones(2, 1), torch.tensor([0.5, 0.5]), 1.0)
    row = {name: rows[0] for name, rows in made.state_dict()["replay"]["rows"].items()}
    assert row["state"].abs().max() == 0
    assert row["action"].tolist() == [0.5, 0.5]
    assert row["mask"].all()


def test_it_learns_so_often_in_every_second_round() -> None:
    """Three steps with the round's stream in round 2, none in rounds 1 and 3; no stream is made for nothing."""
    made, by_hand = agent(updates=3, every=2), agent(updates=3, every=2)
    filled(made)
    filled(by_hand)
    asked: list[int] = []
    for round in (1, 2, 3):

        def draws(round: int = round) -> torch.Generator:
            asked.append(round)
            return torch_stream("replay", round)

        made.end_round(round, 3, draws)
    stream = torch_stream("replay", 2)
    for _ in range(3):
        by_hand.learn(stream)
    assert asked == [2]
    assert made.steps == 3
    assert pack(made) == pack(by_hand)


def test_what_is_not_given_changes_nothing() -> None:
    """No prior, no order of slots without a meaning, no scales."""
    made = agent()
    assert (made.prior, made.exchangeable, made.action_scale, made.reward_scale) == (None, 0, 1.0, 1.0)


# Slots in any order


def test_attention_gives_a_slot_the_same_wherever_it_stands() -> None:
    """Action and value do not depend on the order of the slots, nor on how many empty ones there are."""
    small, large = agent(4, network="attention"), agent(7, network="attention", seed=5)
    filled(small)
    go_on(small, 0, 3)
    large.load_state_dict(unpack(pack(small)).state)
    state, order = torch.randn(4, 2, generator=torch_stream("s")), torch.tensor([2, 0, 3, 1])
    action = small.act(state)
    assert action.unique().numel() == 4
    assert small.act(state[order]).tolist() == pytest.approx(action[order].tolist(), abs=1e-6)
    uneven = torch.tensor([0.1, 0.2, 0.3, 0.4])
    value = small.value(state, uneven)
    assert small.value(state[order], uneven[order]) == pytest.approx(value, abs=1e-6)
    assert abs(small.value(state, uneven[order]) - value) > 1e-6  # what is done to whom does count
    places = torch.tensor([5, 0, 3, 1])
    mask, wide, spread = torch.zeros(7, dtype=torch.bool), torch.zeros(7, 2), torch.zeros(7)
    mask[places], wide[places], spread[places] = True, state, uneven
    assert large.act(wide, mask)[places].tolist() == pytest.approx(action.tolist(), abs=1e-6)
    assert large.value(wide, spread, mask) == pytest.approx(value, abs=1e-6)


def test_exchangeable_slots_are_replayed_in_every_order_with_what_belongs_to_them() -> None:
    made = agent(4, 1, exchangeable=3, batch=600, discount=0.9)
    state, mask = torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([True, True, False, True])
    made.observe(state, state[:, 0] / 10, 7.0, mask)
    made.observe(state * 100, state[:, 0] / 10, 7.0, mask, done=True)
    batch = made._sample(torch_stream("r"))
    first = batch["state"][:, 3, 0] == 4  # of the two transitions; its last slot stays
    assert (batch["state"][~first, 3, 0] == 400).all()
    rows = {name: column[first] for name, column in batch.items()}
    orders = rows["state"][:, :, 0].unique(dim=0)
    assert orders.tolist() == [[a, b, c, 4] for a, b, c in itertools.permutations((0.0, 1.0, 2.0))]
    torch.testing.assert_close(rows["action"], torch.where(rows["mask"], rows["state"][..., 0], 3.0) / 10)
    assert torch.equal(rows["mask"], rows["state"][..., 0] > 0)
    assert torch.equal(rows["next_state"], rows["state"] * 100)
    assert torch.equal(rows["next_mask"], rows["mask"])
    assert rows["reward"].unique().tolist() == [7.0]


# Scales


def test_the_critic_sees_scaled_actions_and_learns_scaled_rewards() -> None:
    """1 + 4 * 10 a1 + 8 * 10 a2 = 61 at a = (1/2, 1/2), which is 61 / 2 in rewards; a reward of 3 is learned as 6."""
    made = linear(action_scale=10.0, reward_scale=2.0)
    even = torch.tensor([0.5, 0.5])
    assert made.value(torch.zeros(2, 1), even) == pytest.approx(30.5)
    made.observe(torch.zeros(2, 1), even, 3.0)
    assert made.target(made.replay.sample(1, torch_stream("b"))).tolist() == [6.0]
    chained = linear(reward_scale=2.0, discount=0.5)  # 2 * 3 + 0.5 * (1 + 4 * 1/2 + 8 * 1/2)
    for name in ("actor", "critic"):
        chained.networks[f"target_{name}"].load_state_dict(chained.networks[name].state_dict())
    for _ in range(2):
        chained.observe(torch.zeros(2, 1), even, 3.0)
    assert chained.target(chained.replay.sample(1, torch_stream("b"))).tolist() == pytest.approx([9.5])


def test_the_penalty_pulls_logits_of_present_slots_to_zero() -> None:
    """A critic that likes every action leaves the actor to the penalty; the logit of an empty slot is let alone."""
    made = linear(penalty=1.0, critic_lr=0.0, actor_lr=0.01)
    set_linear(made.critic, [[0.0] * 6], [0.0])
    set_linear(made.actor, [[0.0] * 4, [0.0] * 4], [2.0, -2.0])
    made.observe(torch.zeros(2, 1), torch.tensor([1.0, 0.0]), 0.0, torch.tensor([True, False]))
    for _ in range(10):
        made.learn(torch_stream("r"))
    first, second = made.actor.parameters[1].tolist()
    assert first < 1.95
    assert second == -2.0
    free = linear(critic_lr=0.0)
    set_linear(free.critic, [[0.0] * 6], [0.0])
    before = pack(free.actor)
    free.observe(torch.zeros(2, 1), torch.tensor([0.5, 0.5]), 0.0)
    free.learn(torch_stream("r"))
    assert pack(free.actor) == before


# Exactness


def filled(made: DDPG, count: int = 20) -> None:
    stream = torch_stream("filling")
    for _ in range(count):
        mask = torch.arange(made.slots) < int(torch.randint(1, made.slots + 1, (), generator=stream))
        state = torch.randn(made.slots, 2, generator=stream)
        made.observe(state, made.act(state, mask, stream), float(torch.randn((), generator=stream)), mask)


def go_on(made: DDPG, first: int, last: int) -> bytes:
    """Act, observe and learn; a stream for each step, as in the rounds of a run."""
    for step in range(first, last):
        state = torch.randn(made.slots, 2, generator=torch_stream(step, "state"))
        action = made.act(state, stream=torch_stream(step, "exploration"))
        made.observe(state, action, -float(action.square().sum()))
        made.learn(torch_stream(step, "replay"))
    return pack(made)


ATTENTION = {"network": "attention", "hidden": (8, 8), "exchangeable": 2, "penalty": 0.1, "reward_scale": 10.0}


@pytest.mark.parametrize("changes", [{}, {"discount": 0.9}, {"capacity": 21}, {"discount": 0.9, **ATTENTION}], ids=str)
def test_an_agent_that_is_restored_goes_on_to_the_bit(changes: dict[str, Any]) -> None:
    made = agent(**changes)
    filled(made)
    saved = go_on(made, 0, 5)
    end = go_on(made, 5, 10)
    restored = agent(seed=99, **changes)
    restored.load_state_dict(unpack(saved).state)
    assert pack(restored) == saved != end
    assert go_on(restored, 5, 10) == end


@pytest.mark.parametrize("lost", ["actor_optimiser", "critic_optimiser", "replay", "networks", "pending"])
def test_every_part_of_what_is_saved_is_needed(lost: str) -> None:
    made = agent(discount=0.9)
    filled(made)
    state = unpack(go_on(made, 0, 5)).state
    end = go_on(made, 5, 10)
    state[lost] = agent(discount=0.9).state_dict()[lost]
    without = agent(discount=0.9)
    without.load_state_dict(state)
    assert go_on(without, 5, 10) != end


def test_an_agent_draws_from_no_other_stream() -> None:
    before = torch.random.get_rng_state()
    made = agent()
    filled(made)
    go_on(made, 0, 3)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert pack(agent(seed=1)) == pack(agent(seed=1)) != pack(agent(seed=2))


# Learning


def target(state: Tensor, mask: Tensor) -> Tensor:
    """The best weights in a state: larger where the first feature is."""
    return (1.5 * state[:, 0]).masked_fill(~mask, -torch.inf).softmax(-1)


def bandit(slots: int, fewest: int, steps: int, seed: int = 0) -> tuple[float, float, float]:
    """The mean reward -|a - target|^2 of the greedy policy, of equal and of random weights after so much learning."""
    made = agent(slots, seed=seed, hidden=(64, 64), noise=0.5, batch=32)
    world, noise, draws = (torch_stream(seed, name) for name in ("world", "noise", "replay"))

    def context() -> tuple[Tensor, Tensor]:
        present = int(torch.randint(fewest, slots + 1, (), generator=world))
        return torch.randn(slots, 2, generator=world), torch.randperm(slots, generator=world) < present

    def reward(action: Tensor, state: Tensor, mask: Tensor) -> float:
        return -float((action - target(state, mask)).square().sum())

    for step in range(1200):
        state, mask = context()
        action = Simplex().random(mask, noise) if step < 100 else made.act(state, mask, noise)
        made.observe(state, action, reward(action, state, mask), mask)
        if step < steps:
            made.learn(draws)
    contexts = [context() for _ in range(300)]
    greedy = sum(reward(made.act(s, m), s, m) for s, m in contexts) / 300
    equal = sum(reward(m / m.sum(), s, m) for s, m in contexts) / 300
    chance = sum(reward(Simplex().random(m, noise), s, m) for s, m in contexts) / 300
    return greedy, equal, chance


@pytest.mark.parametrize(("slots", "fewest", "level"), [(3, 3, -0.02), (5, 2, -0.08)])
def test_it_learns_a_contextual_bandit_on_the_simplex(slots: int, fewest: int, level: float) -> None:
    """Squared distance from the best weights: learned well below that of equal weights, which beat random ones."""
    greedy, equal, chance = bandit(slots, fewest, steps=1200)
    assert greedy > level
    assert greedy > equal / 3 > equal > chance
    untaught, equal, _ = bandit(slots, fewest, steps=0)
    assert untaught == pytest.approx(equal, abs=0.01)  # an untaught policy gives nearly equal weights


def similarity(**changes: Any) -> float:
    """How far the greedy policy is from weighing slots by their likeness to the last one, and equal weights are 1."""
    made = agent(6, 9, batch=32, **changes)
    world, noise, draws = (torch_stream("alike", name) for name in ("world", "noise", "replay"))
    kind, everyone = F.normalize(torch.randn(1, 8, generator=world)), torch.ones(6, dtype=torch.bool)

    def context() -> Tensor:
        """Rows of length one, of either kind, and the mark of the last slot."""
        signs = torch.randint(2, (6, 1), generator=world) * 2.0 - 1
        rows = F.normalize(signs * kind + 0.05 * torch.randn(6, 8, generator=world))
        return torch.cat([rows, (torch.arange(6) == 5).float()[:, None]], 1)

    def distance(action: Tensor, state: Tensor) -> float:
        near = (F.cosine_similarity(state[:, :8], state[-1:, :8]) + 1) / 2
        return float((action - near / near.sum()).square().sum())

    for step in range(600):
        state = context()
        action = Simplex().random(everyone, noise) if step < 100 else made.act(state, stream=noise)
        made.observe(state, action, -distance(action, state))
        made.learn(draws)
    states = [context() for _ in range(200)]
    equal = torch.full((6,), 1 / 6)
    return sum(distance(made.act(state), state) for state in states) / sum(distance(equal, state) for state in states)


def test_it_learns_to_weigh_slots_by_likeness() -> None:
    """Plain, an MLP runs after the errors of its critic to a corner of the simplex; the settings keep it from that."""
    calm = {"exchangeable": 5, "penalty": 0.1, "reward_scale": 10.0, "noise": 0.3}
    assert similarity(network="attention", hidden=(32, 32), action_scale=6.0, critic_lr=4e-3, **calm) < 0.4
    assert similarity(hidden=(64, 64), action_scale=18.0, **calm) < 0.85
    assert similarity(hidden=(64, 64)) > 1.5


class Walk:
    """Two slots; what is put on slot 0 moves a point to the right and costs at once, and only being there pays."""

    def __init__(self) -> None:
        self.place = 0.0

    def state(self) -> Tensor:
        return torch.full((2, 1), self.place)

    def step(self, action: Tensor) -> float:
        reward = self.place - 0.5 * float(action[0])
        self.place = float(action[0])
        return reward


def walked(discount: float | None) -> float:
    """The weight on slot 0 in the greedy policy at place 0.5 after learning."""
    made = agent(2, 1, hidden=(32, 32), noise=0.7, batch=32, discount=discount)
    world, noise, draws = Walk(), torch_stream("noise"), torch_stream("replay")
    for _ in range(700):
        state = world.state()
        action = made.act(state, stream=noise)
        made.observe(state, action, world.step(action))
        made.learn(draws)
    return float(made.act(torch.full((2, 1), 0.5))[0])


def test_with_a_discount_it_looks_beyond_the_next_reward() -> None:
    """Moving right costs 0.5 now and pays 1 later: worth it for a discount of 0.9, never for a single step."""
    assert walked(0.9) > 0.8
    assert walked(None) < 0.2
