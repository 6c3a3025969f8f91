"""Proximal policy optimisation: its equations by hand, its heads, its exactness, and that it learns."""

from collections.abc import Callable
from math import log
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, MultivariateNormal, Normal

from fedtailor.agents import (
    PPO,
    CategoricalHead,
    GaussianHead,
    Head,
    IntegerHead,
    Joint,
    MultiCategoricalHead,
    PerSlot,
    PPOSettings,
    SimplexHead,
    seen,
)
from fedtailor.agents.ppo import advantages, clipped, standardised
from fedtailor.learning.optimisers import Adam
from fedtailor.messages.trees import pack, unpack
from fedtailor.seeding import torch_stream

torch.set_num_threads(1)  # as in a run

SMALL = {"hidden": (16,), "batch": 8, "epochs": 3}
BOTH = {"batch": IntegerHead(1, 64), "weights": SimplexHead()}
EVERY = {
    "simplex": SimplexHead(0.7, unit=0.6),
    "integer": IntegerHead(1, 6),
    "categorical": CategoricalHead(4),
    "multi": MultiCategoricalHead(3),
    "gaussian": GaussianHead(2, 0.3),
}


def agent(
    slots: int = 3, features: int = 2, heads: dict[str, Head] | None = None, seed: int = 0, **changes: Any
) -> PPO:
    settings = PPOSettings(**{**SMALL, **changes})
    return PPO(slots, features, heads or BOTH, settings, torch_stream(seed, "weights"))


def drawn(*shape: int, name: str = "drawn") -> Tensor:
    return torch.randn(shape, generator=torch_stream(name))


def test_a_draw_is_the_mean_plus_the_deviation_times_the_streams_numbers() -> None:
    noise = torch.randn(2, generator=torch_stream("n"))
    found = EVERY["gaussian"].sample(torch.tensor([1.0, 2.0]), torch.ones(1, dtype=torch.bool), torch_stream("n"))
    torch.testing.assert_close(found, torch.tensor([1.0, 2.0]) + 0.3 * noise)


# The equations


def test_the_clipped_objective_by_hand() -> None:
    """With eps = 0.2: what is better gains up to 1.2, what is worse is spared nothing until its ratio is below 0.8."""
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5, 1.1], requires_grad=True)
    gain = clipped(ratio, torch.tensor([2.0, 2.0, -2.0, -2.0, 2.0]), 0.2)
    assert gain.tolist() == pytest.approx([2.4, 1.0, -3.0, -1.6, 2.2])
    (gradient,) = torch.autograd.grad(gain.sum(), ratio)
    assert gradient.tolist() == [0.0, 2.0, -2.0, 0.0, 2.0]


def test_advantages_by_hand() -> None:
    """Discount 1/2, lambda 1/2, r = (1, 2, 3), V = (1, 1, 2), V after it 4.

    delta = (1 + 1/2 - 1, 2 + 1 - 1, 3 + 2 - 2) = (1/2, 2, 3); A3 = 3, A2 = 2 + 3/4 = 2.75, A1 = 1/2 + 2.75/4 = 1.1875.
    If the second decision ends an episode, delta2 = 2 - 1 = 1 = A2 and A1 = 1/2 + 1/4.
    """
    reward, value = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 1.0, 2.0])
    going_on, ending = torch.zeros(3), torch.tensor([0.0, 1.0, 0.0])
    assert advantages(reward, value, going_on, 4.0, 0.5, 0.5).tolist() == [1.1875, 2.75, 3.0]
    assert advantages(reward, value, ending, 4.0, 0.5, 0.5).tolist() == [0.75, 1.0, 3.0]
    # lambda = 1: the discounted return 1 + (2 + (3 + 4/2)/2)/2 = 3.25 less the value; lambda = 0: delta
    assert advantages(reward, value, going_on, 4.0, 0.5, 1.0).tolist() == [2.25, 3.5, 3.0]
    assert advantages(reward, value, going_on, 4.0, 0.5, 0.0).tolist() == [0.5, 2.0, 3.0]
    # no discount of the future: every decision is an episode of its own
    assert advantages(reward, value, going_on, 4.0, 0.0, 0.95).tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("max_grad_norm", [0.02, 1e9])
@pytest.mark.parametrize("follows", [True, False])
def test_learning_is_that_of_a_textbook(max_grad_norm: float, follows: bool) -> None:
    """The same passes over a buffer with torch.distributions and torch's backward passes and cutting of gradients."""
    settings = {"buffer": 20, "epochs": 4, "batch": 8, "entropy": 0.05, "max_grad_norm": max_grad_norm, "discount": 0.9}
    rates = {"actor_lr": 0.03, "critic_lr": 0.05, "gae_lambda": 0.8, "clip": 0.1}
    made = agent(1, 3, {"kind": CategoricalHead(3), "size": GaussianHead(2, 0.5)}, hidden=(), **settings, **rates)
    weight, bias = (p.detach().clone().requires_grad_() for p in made.actor.parameters)
    spread = made.heads.parameters[0].detach().clone().requires_grad_()
    critic = [p.detach().clone().requires_grad_() for p in made.critic.parameters]
    states, ending = drawn(20, 1, 3), torch.tensor([1.0 if step in (7, 12) else 0.0 for step in range(20)])
    rewards, actions = drawn(20, name="rewards"), []
    for step in range(20):
        actions.append(made.act(states[step], stream=torch_stream(step)))
        made.observe(states[step], actions[step], float(rewards[step]), done=bool(ending[step]))
    following = drawn(1, 3, name="following") if follows else None
    x, action = torch.cat([states.flatten(1), torch.ones(20, 1)], 1), torch.stack(actions)

    def policy(rows: Tensor) -> tuple[Tensor, Tensor]:
        out = x[rows] @ weight.T + bias
        kind, size = Categorical(logits=out[:, :3]), Normal(out[:, 3:], spread.exp())
        chances = torch.stack([kind.log_prob(action[rows, 0]), size.log_prob(action[rows, 1:]).sum(1)], 1)
        return chances, kind.entropy() + size.entropy().sum(1)

    everything = torch.arange(20)
    with torch.no_grad():
        before = policy(everything)[0]
        values = (x @ critic[0].T + critic[1]).squeeze(1).tolist()
        after = float(torch.cat([following[0], torch.ones(1)]) @ critic[0][0] + critic[1]) if follows else 0.0
    gae = torch.zeros(20)
    for step in range(20):  # the definition: a sum over the rest of the episode
        factor = 1.0
        for later in range(step, 20):
            value = 0.0 if ending[later] else (values[later + 1] if later < 19 else after)
            gae[step] += factor * (rewards[later] + 0.9 * value - values[later])
            factor *= 0.9 * 0.8 * (1 - float(ending[later]))
    returns = gae + torch.tensor(values)
    learners = ([weight, bias, spread], Adam([weight, bias, spread], 0.03)), (critic, Adam(critic, 0.05))
    stream = torch_stream("passes")
    for _ in range(4):
        order = torch.randperm(20, generator=stream)
        for rows in (order[:8], order[8:16], order[16:]):
            advantage = ((gae[rows] - gae[rows].mean()) / (gae[rows].std() + 1e-8))[:, None]
            chances, openness = policy(rows)
            ratio = (chances - before[rows]).exp()  # of every head
            limited = torch.where(advantage > 0, ratio.clamp(max=1.1), ratio.clamp(min=0.9))
            losses = (
                -(advantage * limited).sum(1).mean() - 0.05 * openness.mean(),
                (x[rows] @ critic[0].T + critic[1] - returns[rows, None]).square().mean(),
            )
            for loss, (parameters, optimiser) in zip(losses, learners, strict=True):
                for parameter in parameters:
                    parameter.grad = None
                loss.backward()
                torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
                optimiser.step([parameter.grad for parameter in parameters])
    made.learn(torch_stream("passes"), following)
    assert made.steps == 1
    for own, reference in zip([*made._policy, *made.critic.parameters], [weight, bias, spread, *critic], strict=True):
        torch.testing.assert_close(own, reference, atol=2e-5, rtol=1e-4)


def test_standardised_advantages_by_hand() -> None:
    """Both below 0: one of them is good only by comparison."""
    bad = torch.tensor([-1.0, -7.0])
    assert standardised(bad, center=True).tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-6)
    assert standardised(bad, center=False).tolist() == pytest.approx([-0.2, -1.4], abs=1e-6)


def one_episode(made: PPO) -> None:
    for step in range(4):
        state = drawn(3, 2, name=f"state {step}")
        made.observe(state, made.act(state, stream=torch_stream(step)), float(step % 3), done=step == 3)


@pytest.mark.parametrize("changes", [{}, {"center_advantages": False}])
def test_an_episode_of_bad_decisions_makes_them_less_likely_unless_advantages_are_centred(
    changes: dict[str, Any],
) -> None:
    """The same reward, less than expected, for every decision: centred, there is nothing to be learned from it."""
    made = agent(critic_epochs=0, epochs=10, discount=0.0, actor_lr=0.01, **changes)
    with torch.no_grad():
        for parameter in made.critic.parameters:
            parameter.zero_()
    states = [drawn(3, 2, name=f"state {step}") for step in range(6)]
    actions = [made.act(state, stream=torch_stream(step)) for step, state in enumerate(states)]
    everyone = torch.ones(6, 3, dtype=torch.bool)
    before = made._log_probs(torch.stack(states), everyone, torch.stack(actions))
    for state, action in zip(states, actions, strict=True):
        made.observe(state, action, -1.0)
    made.learn(torch_stream("passes"))
    lost = before - made._log_probs(torch.stack(states), everyone, torch.stack(actions))
    assert (float(lost.detach().mean()) > 0.01) == (changes == {"center_advantages": False})


def test_the_critic_may_learn_alone_and_more_often() -> None:
    def moved(before: list[Tensor], now: list[Tensor]) -> bool:
        return any(not torch.equal(one, other) for one, other in zip(before, now, strict=True))

    def copies(parameters: list[Tensor]) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in parameters]

    made = agent(critic_first=2)
    for times in range(4):
        actor, critic = copies(made._policy), copies(made.critic.parameters)
        one_episode(made)
        made.learn(torch_stream(times))
        assert moved(actor, made._policy) == (times >= 2)
        assert moved(critic, made.critic.parameters)
    for passes, steps in ((None, 3), (0, 0), (1, 1), (5, 5)):  # SMALL has three
        made = agent(critic_epochs=passes)
        one_episode(made)
        made.learn(torch_stream("passes"))
        assert made.critic_optimiser.state_dict()["steps"] == steps
        assert made.actor_optimiser.state_dict()["steps"] == 3


def test_without_a_rate_of_its_own_the_critic_has_the_actors() -> None:
    assert agent(actor_lr=0.01).critic_optimiser.lr == 0.01
    assert agent(actor_lr=0.01, critic_lr=0.02).critic_optimiser.lr == 0.02


def test_an_episode_is_learned_from_at_its_end_or_when_the_next_begins() -> None:
    """Without a buffer's size the last round is the time; where that was not observed, the next episode's start."""
    made, streams = agent(), []

    def draws() -> torch.Generator:
        streams.append(torch_stream("passes"))
        return streams[-1]

    one_episode(made)
    for round in (1, 2, 3):
        made.end_round(round, 4, draws)
    assert (made.steps, len(streams)) == (0, 0)
    made.end_round(4, 4, draws)
    assert (made.steps, made._buffer) == (1, [])
    made.observe(drawn(3, 2), made.act(drawn(3, 2)), 1.0)
    made.begin_episode(draws)
    assert made.steps == 2
    made.begin_episode(draws)
    assert made.steps == 2  # there was nothing to learn from


def test_a_buffer_of_a_given_size_is_learned_from_when_it_is_full() -> None:
    made = agent(buffer=5)
    for round in range(1, 8):
        made.observe(drawn(3, 2), made.act(drawn(3, 2)), 1.0)
        made.begin_episode(lambda: torch_stream("passes"))
        made.end_round(round, 7, lambda: torch_stream("passes"))
        assert made.steps == int(round >= 5)


def test_states_are_standardised_by_those_of_past_episodes() -> None:
    """It sees states as they are until it has learned; then (x - mean) / deviation of the present slots before."""
    made, mask = agent(3, 1, standardise=True), torch.tensor([True, True, False])
    plain = agent(3, 1)
    first, second = torch.tensor([[1.0], [3.0], [99.0]]), torch.tensor([[5.0], [7.0], [99.0]])
    assert torch.equal(made.act(first, mask), plain.act(first, mask))
    made.observe(first, made.act(first, mask), 1.0, mask)
    assert made._buffer[0]["state"].flatten().tolist() == [1.0, 3.0, 0.0]
    made.learn(torch_stream("passes"))
    made.observe(second, made.act(second, mask), 1.0, mask)  # 1 and 3: mean 2, deviation 1
    assert made._buffer[0]["state"].flatten().tolist() == [3.0, 5.0, 0.0]
    made.learn(torch_stream("passes"))
    assert made.normaliser is not None
    assert made.normaliser.scale.flatten().tolist() == pytest.approx([4.0, 5.0**0.5])  # of 1, 3, 5, 7
    plain.actor.load_state_dict(made.actor.state_dict())
    assert torch.equal(made.act(second, mask), plain.act(made.normaliser(second), mask))
    restored = agent(3, 1, seed=9, standardise=True)
    restored.load_state_dict(unpack(pack(made)).state)
    assert pack(restored) == pack(made)


def test_a_policy_is_all_that_was_learned_and_nothing_that_was_observed() -> None:
    made = agent(standardise=True)
    one_episode(made)
    policy = made.policy()
    assert policy["buffer"] == {}
    assert {name: pack(value) for name, value in policy.items() if name != "buffer"} == {
        name: pack(value) for name, value in made.state_dict().items() if name != "buffer"
    }


# The heads


def logits_of(head: Head, slots: int) -> Tensor:
    return drawn(5, slots, head.outputs) if head.per_slot else drawn(5, head.outputs)


def masks(slots: int) -> Tensor:
    mask = torch.rand(5, slots, generator=torch_stream("masks")) < 0.6
    mask[:, 1] = True
    return mask


def test_the_softmax_of_a_gaussian_has_the_density_of_its_log_ratios() -> None:
    """log(w_i / w_n) of n weights is Gaussian with mean mu_i - mu_n and covariance sigma^2 (1 + [i = j]).

    From the coordinates of the n - 1 directions that sum to zero, in which our density is, to these ratios the volume
    grows by sqrt(n). The entropy is that of a Gaussian of n - 1 numbers.
    """
    head, slots = EVERY["simplex"], 4
    logits, mask = logits_of(head, slots), masks(slots)
    weights = head.sample(logits, mask, torch_stream("w")).detach()
    assert sorted({int(m.sum()) for m in mask}) != [slots]  # some are masked
    found, openness = head.log_prob(logits, mask, weights).detach(), head.entropy(logits, mask).detach()
    for row in range(5):
        mu, w = 0.6 * logits[row, mask[row], 0], weights[row, mask[row]]
        n = len(w)
        assert float(w.sum()) == pytest.approx(1, abs=1e-6)
        assert float(weights[row, ~mask[row]].abs().sum()) == 0
        if n == 1:
            assert found[row] == openness[row] == 0
            continue
        ratios = MultivariateNormal((mu - mu[-1])[:-1], 0.49 * (torch.eye(n - 1) + 1))
        expected = float(ratios.log_prob((w / w[-1]).log()[:-1]))
        assert float(found[row]) == pytest.approx(expected + log(n) / 2, abs=1e-4)
        assert float(openness[row]) == pytest.approx(float(ratios.entropy()) - log(n) / 2, abs=1e-5)


def test_the_choices_of_slots_have_the_probability_of_a_product() -> None:
    head = EVERY["multi"]
    logits, mask = logits_of(head, 4), masks(4)
    action = head.sample(logits, mask, torch_stream("a"))
    chances, openness = Categorical(logits=logits).log_prob(action), Categorical(logits=logits).entropy()
    torch.testing.assert_close(head.log_prob(logits, mask, action), (chances * mask).sum(1))
    torch.testing.assert_close(head.entropy(logits, mask), (openness * mask).sum(1))
    assert (action[~mask] == 0).all()


def test_one_choice_for_all() -> None:
    head, mask = EVERY["categorical"], masks(4)
    logits = logits_of(head, 4)
    action, reference = head.sample(logits, mask, torch_stream("a")), Categorical(logits=logits)
    assert action.shape == (5, 1)
    torch.testing.assert_close(head.log_prob(logits, mask, action), reference.log_prob(action[:, 0]))
    torch.testing.assert_close(head.entropy(logits, mask), reference.entropy())


def test_a_whole_number_by_hand() -> None:
    """sigmoid(z) < p has the odds (p / (1 - p))^(1/s) e^(-mu/s).

    1..6 with mu = 0 and s = 1: all alike. With mu = log 3, F(k/6) = k / (k + 3 (6 - k)) = 1/16, 2/14, 3/12, 4/10, 5/8,
    1; the median is 5. With mu = 0 and s = 1/2, F(k/6) = k^2 / (k^2 + (6 - k)^2) = 1/26, 4/20, 9/18, 16/20, 25/26, 1.
    """
    head, sharp, mask = IntegerHead(1, 6), IntegerHead(1, 6), torch.ones(3, dtype=torch.bool)
    with torch.no_grad():
        sharp.parameters[0].fill_(log(0.5))
    for which, logit, below in (
        (head, 0.0, [1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1]),
        (head, log(3), [1 / 16, 2 / 14, 3 / 12, 4 / 10, 5 / 8, 1]),
        (sharp, 0.0, [1 / 26, 4 / 20, 9 / 18, 16 / 20, 25 / 26, 1]),
    ):
        logits, values = torch.tensor([[logit]] * 6), torch.arange(1.0, 7.0)[:, None]
        chances = which.log_prob(logits, mask, values).exp().detach()
        assert chances.cumsum(0).tolist() == pytest.approx(below, abs=1e-6)
        entropy = Categorical(probs=chances).entropy()
        torch.testing.assert_close(which.entropy(logits, mask).detach(), entropy.expand(6))
    assert head.sample(torch.tensor([log(3)]), mask, None).tolist() == [5.0]


def test_a_whole_number_by_ratios_by_hand() -> None:
    """2, 3 and 4 by ratios: borders log(5/3) and log(7/3) of log(9/3) = 0.465, 0.771; the median 1/2 is a 3."""
    head, mask = IntegerHead(2, 4, ratios=True), torch.ones(1, dtype=torch.bool)
    logits, values = torch.zeros(3, 1), torch.tensor([[2.0], [3.0], [4.0]])
    chances = head.log_prob(logits, mask, values).exp().detach()
    assert chances.tolist() == pytest.approx([log(5 / 3) / log(3), log(7 / 5) / log(3), log(9 / 7) / log(3)], abs=1e-6)
    assert head.sample(torch.zeros(1), mask, None).tolist() == [3.0]


@pytest.mark.parametrize("ratios", [False, True])
def test_a_whole_number_stays_in_its_range(ratios: bool) -> None:
    head, mask = IntegerHead(1, 64, ratios), torch.ones(1, dtype=torch.bool)
    for logit, end in ((-50.0, 1.0), (50.0, 64.0)):
        logits = torch.tensor([logit], requires_grad=True)
        assert head.sample(logits.detach(), mask, None).tolist() == [end]
        assert head.sample(logits.detach(), mask, torch_stream("a")).tolist() == [end]
        chance = head.log_prob(logits, mask, torch.tensor([32.0]))
        gradients = torch.autograd.grad(chance, [logits, *head.parameters])
        assert torch.isfinite(torch.stack([chance, *(g.sum() for g in gradients)])).all()
        assert float(gradients[0]) * logit < 0  # it could come back


def test_any_numbers() -> None:
    head, mask = EVERY["gaussian"], masks(4)
    logits = logits_of(head, 4)
    action, reference = head.sample(logits, mask, torch_stream("a")), Normal(logits, 0.3)
    torch.testing.assert_close(head.log_prob(logits, mask, action), reference.log_prob(action).sum(1))
    torch.testing.assert_close(head.entropy(logits, mask), reference.entropy().sum(1))


@pytest.mark.parametrize("name", EVERY)
def test_draws_follow_the_probabilities(name: str) -> None:
    """Of many draws the mean of log p is minus the entropy; the greedy action is the likeliest, or the median."""
    head, slots = EVERY[name], 3
    logits = logits_of(head, slots)[:1].expand(4000, *logits_of(head, slots).shape[1:])
    mask = torch.tensor([True, False, True]).expand(4000, slots)
    draws = head.sample(logits, mask, torch_stream("draws"))
    chances = head.log_prob(logits, mask, draws).detach()
    assert float(chances.mean()) == pytest.approx(-float(head.entropy(logits, mask)[0].detach()), abs=0.06)
    assert float(chances.std()) > 0.1
    greedy = head.sample(logits[:1], mask[:1], None)
    if name == "integer":
        assert float((draws < greedy).float().mean()) < 0.52
        assert float((draws > greedy).float().mean()) < 0.52
    else:
        assert float(head.log_prob(logits[:1], mask[:1], greedy).detach()) >= float(chances.max()) - 1e-5


@pytest.mark.parametrize("name", EVERY)
def test_what_is_masked_has_no_gradient(name: str) -> None:
    head, mask = EVERY[name], torch.tensor([True, False, True])
    logits = drawn(*(3, head.outputs) if head.per_slot else (head.outputs,)).requires_grad_()
    action = head.sample(logits.detach(), mask, torch_stream("a")).detach()
    reached = head.log_prob(logits, mask, action) + head.entropy(logits, mask)
    (gradient,) = torch.autograd.grad(reached, logits)
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > 0
    if head.per_slot:
        assert gradient[1].abs().max() == 0
        assert (gradient[[0, 2]].abs().sum(1) > 0).all()


def test_weights_of_a_script_have_a_probability() -> None:
    """All on one slot: unlikely, but finite, and its gradient too."""
    head, logits = SimplexHead(), torch.zeros(3, 1, requires_grad=True)
    chance = head.log_prob(logits, torch.ones(3, dtype=torch.bool), torch.tensor([1.0, 0.0, 0.0]))
    assert torch.isfinite(chance)
    assert torch.isfinite(torch.autograd.grad(chance, logits)[0]).all()


def test_an_action_is_flat_and_splits_by_name() -> None:
    """[batch, weight 0, weight 1, weight 2]; the logits: those of slot 0, 1, 2, then the batch's."""
    joint, mask = Joint(3, BOTH), torch.ones(3, dtype=torch.bool)
    logits = torch.tensor([log(1), log(2), log(5), 0.0])
    action = joint.sample(logits, mask, None)
    assert action.tolist() == pytest.approx([33, 1 / 8, 2 / 8, 5 / 8])
    parts = joint.split(action)
    assert list(parts) == ["batch", "weights"]
    assert int(parts["batch"]) == 33
    assert parts["weights"].tolist() == action[1:].tolist()
    alone = (
        BOTH["batch"].log_prob(logits[3:], mask, action[:1]),
        BOTH["weights"].log_prob(logits[:3, None], mask, action[1:]),
    )
    assert float(joint.log_probs(logits, mask, action).sum(-1).detach()) == pytest.approx(float(sum(alone).detach()))


def test_heads_of_all_kinds_compose() -> None:
    joint, mask = Joint(4, EVERY), masks(4)
    assert (sum(joint.per_slot), sum(joint.shared), joint.numbers) == (1 + 3, 1 + 4 + 2, [4, 1, 1, 4, 2])
    rows, common = drawn(5, 4, 4, name="rows"), drawn(5, 7, name="common")
    logits = torch.cat([rows.flatten(1), common], 1)
    action = joint.sample(logits, mask, torch_stream("a"))
    assert action.shape == (5, 12)
    owns = [rows[..., :1], common[:, :1], common[:, 1:5], rows[..., 1:], common[:, 5:]]
    triples = list(zip(EVERY.values(), owns, joint.split(action).values(), strict=True))
    torch.testing.assert_close(
        joint.log_probs(logits, mask, action).sum(-1),
        sum(head.log_prob(own, mask, part) for head, own, part in triples),
    )
    torch.testing.assert_close(joint.entropy(logits, mask), sum(head.entropy(own, mask) for head, own, _ in triples))


# Slots


def test_the_network_per_slot_does_not_care_about_the_order() -> None:
    network = PerSlot(2, (16, 16), 3, 2, torch_stream("n"))
    state, mask = drawn(5, 2), torch.tensor([True, True, False, True, True])
    order = torch.tensor([3, 0, 4, 2, 1])
    straight, moved = network(seen(state, mask)), network(seen(state[order], mask[order]))
    torch.testing.assert_close(moved[:15].reshape(5, 3), straight[:15].reshape(5, 3)[order])
    torch.testing.assert_close(moved[15:], straight[15:])
    other = network(seen(state + torch.tensor([[1.0, 0.0]] + [[0.0, 0.0]] * 4), mask))
    assert (other[:15].reshape(5, 3)[[0, 1, 3, 4]] != straight[:15].reshape(5, 3)[[0, 1, 3, 4]]).all()  # sees all slots


@pytest.mark.parametrize("network", ["flat", "per-slot"])
def test_what_stands_in_an_empty_slot_does_not_matter(network: str) -> None:
    made, mask = agent(network=network), torch.tensor([True, True, False])
    state, junk = drawn(3, 2), drawn(3, 2)
    junk[2] = float("nan")
    junk[:2] = state[:2]
    action = made.act(state, mask, torch_stream("a"))
    assert torch.equal(made.act(junk, mask, torch_stream("a")), action)
    assert float(action[3]) == 0
    assert not torch.equal(made.act(state, stream=torch_stream("a")), action)
    assert made.value(junk, mask) == made.value(state, mask) != made.value(state)
    made.observe(junk, action, 1.0, mask, done=True)
    made.observe(junk, action, 2.0, mask, done=True)
    made.learn(torch_stream("l"))
    assert torch.isfinite(made.act(state)).all()


def test_a_policy_per_slot_moves_to_a_larger_federation() -> None:
    small, large = agent(3, network="per-slot"), agent(7, network="per-slot", seed=5)
    filled(small, 8)
    small.learn(torch_stream("l"))
    large.load_state_dict(unpack(pack(small)).state)
    state, mask = torch.zeros(7, 2), torch.tensor([False, True, False, False, True, True, False])
    state[mask] = drawn(3, 2)
    here, there = small.act(drawn(3, 2)), large.act(state, mask)
    assert there[0] == here[0]
    torch.testing.assert_close(there[1:][mask], here[1:])
    assert large.value(state, mask) == pytest.approx(small.value(drawn(3, 2)), abs=1e-6)


def test_a_decision_without_anyone_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one of 3 slots"):
        agent().act(torch.zeros(3, 2), torch.zeros(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="3 slots"):
        agent().act(torch.zeros(3, 2), torch.ones(2, dtype=torch.bool))


# The buffer


def test_it_is_ready_when_the_buffer_is_full_or_the_episode_over() -> None:
    sized, whole = agent(buffer=5), agent()
    for made, ends in ((sized, 9), (whole, 3)):
        told = []
        for step in range(5):
            filled(made, 1, done=step == ends)
            told.append(made.ready)
        assert told == ([False] * 4 + [True] if made is sized else [False] * 3 + [True, False])
    sized.learn(torch_stream("l"))
    assert not sized.ready
    assert sized.state_dict()["buffer"] == {}
    saved = pack(sized)
    sized.learn(torch_stream("l"))  # of nothing, nothing is learned
    assert pack(sized) == saved


def test_what_was_observed_is_a_snapshot() -> None:
    made = agent()
    state, action, mask = torch.ones(3, 2), torch.tensor([1.0, 0.5, 0.5, 0.0]), torch.tensor([True, True, False])
    made.observe(state, action, 1.0, mask)
    for live in (state, action):
        live.fill_(5.0)
    mask.fill_(False)
    kept = made.state_dict()["buffer"]
    assert kept["state"][0].tolist() == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    assert kept["action"][0].tolist() == [1.0, 0.5, 0.5, 0.0]
    assert kept["mask"][0].tolist() == [True, True, False]


# Exactness


def filled(made: PPO, count: int, done: bool = False) -> None:
    stream = torch_stream("filling", len(made._buffer))
    for _ in range(count):
        mask = torch.arange(made.slots) < int(torch.randint(1, made.slots + 1, (), generator=stream))
        state = torch.randn(made.slots, 2, generator=stream)
        action = made.act(state, mask, stream)
        made.observe(state, action, float(torch.randn((), generator=stream)), mask, done=done)


def go_on(made: PPO, first: int, last: int) -> bytes:
    """Act, observe and learn; a stream for each step, as in the rounds of a run."""
    for step in range(first, last):
        state = torch.randn(made.slots, 2, generator=torch_stream(step, "state"))
        action = made.act(state, stream=torch_stream(step, "exploration"))
        made.observe(state, action, -float(action.square().sum()), done=step % 4 == 3)
        if made.ready:
            made.learn(torch_stream(step, "passes"))
    return pack(made)


@pytest.mark.parametrize("changes", [{}, {"buffer": 5}, {"buffer": 5, "network": "per-slot"}], ids=str)
def test_an_agent_that_is_restored_in_the_middle_of_a_buffer_goes_on_to_the_bit(changes: dict[str, Any]) -> None:
    made = agent(**changes)
    saved = go_on(made, 0, 7)
    assert 0 < len(made._buffer) < 5
    assert made.steps == 1
    end = go_on(made, 7, 14)
    restored = agent(seed=99, **changes)
    restored.load_state_dict(unpack(saved).state)
    assert pack(restored) == saved != end
    assert go_on(restored, 7, 14) == end


@pytest.mark.parametrize("lost", ["actor", "critic", "heads", "actor_optimiser", "critic_optimiser", "buffer", "steps"])
def test_every_part_of_what_is_saved_is_needed(lost: str) -> None:
    made = agent(buffer=5)
    state = unpack(go_on(made, 0, 7)).state
    end = go_on(made, 7, 14)
    state[lost] = agent(buffer=5).state_dict()[lost]
    without = agent(buffer=5)
    without.load_state_dict(state)
    assert go_on(without, 7, 14) != end


def test_an_agent_draws_from_no_other_stream() -> None:
    before = torch.random.get_rng_state()
    go_on(agent(buffer=5, heads=EVERY), 0, 6)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert pack(agent(seed=1)) == pack(agent(seed=1)) != pack(agent(seed=2))


def test_two_agents_share_nothing() -> None:
    one, other = agent(buffer=5), agent(buffer=5)
    untouched = pack(other)
    go_on(one, 0, 6)
    assert pack(other) == untouched
    assert [float(head.parameters[0].detach().exp()) for head in BOTH.values()] == pytest.approx([1.0, 0.5])


# Learning


def test_imitation_has_steps_of_its_own_length_and_leaves_learning_as_it_was() -> None:
    made = agent(heads={"size": MultiCategoricalHead(2)}, network="per-slot")
    state, mask, action = drawn(8, 3, 2), torch.ones(8, 3, dtype=torch.bool), torch.ones(8, 3)
    before = pack([parameter.detach() for parameter in made.actor.parameters])
    made.imitate(state, mask, action, lr=0.0)
    assert pack([parameter.detach() for parameter in made.actor.parameters]) == before
    for _ in range(200):
        made.imitate(state, mask, action, lr=0.01)
    assert all(made.act(row).tolist() == [1.0] * 3 for row in state)
    assert made.actor_optimiser.lr == made.settings.actor_lr == 3e-4


Reward = Callable[[dict[str, Tensor], Tensor, Tensor], float]


def bandit(made: PPO, reward: Reward, decisions: int, fewest: int | None = None, speeds: bool = False) -> list[float]:
    """Rewards of the greedy policy in 200 contexts, after ``decisions`` decisions of one step each."""
    world, draws, passes = (torch_stream(name) for name in ("world", "draws", "passes"))

    def context() -> tuple[Tensor, Tensor]:
        present = int(torch.randint(fewest or made.slots, made.slots + 1, (), generator=world))
        mask = torch.randperm(made.slots, generator=world) < present
        if speeds:
            return torch.rand(made.slots, made.features, generator=world), mask
        return torch.randn(made.slots, made.features, generator=world), mask

    for _ in range(decisions):
        state, mask = context()
        action = made.act(state, mask, draws)
        made.observe(state, action, reward(made.split(action), state, mask), mask)
        if made.ready:
            made.learn(passes)
    contexts = [context() for _ in range(200)]
    return [reward(made.split(made.act(s, m)), s, m) for s, m in contexts]


def mean(rewards: list[float]) -> float:
    return sum(rewards) / len(rewards)


STUDENT = {"hidden": (32, 32), "actor_lr": 1e-2, "critic_lr": 1e-2, "buffer": 128, "batch": 32, "epochs": 6}


def student(slots: int, features: int, heads: dict[str, Head], **changes: Any) -> PPO:
    return agent(slots, features, heads, discount=0.0, **{**STUDENT, **changes})


def best_weights(state: Tensor, mask: Tensor) -> Tensor:
    """Larger where the first feature is."""
    return (1.5 * state[:, 0]).masked_fill(~mask, -torch.inf).softmax(-1)


def test_it_learns_weights() -> None:
    """Squared distance from the best weights, with clients that drop out: well below that of equal weights."""

    def reward(parts: dict[str, Tensor], state: Tensor, mask: Tensor) -> float:
        return -float((parts["weights"] - best_weights(state, mask)).square().sum())

    heads: dict[str, Head] = {"weights": SimplexHead()}
    equal = mean(bandit(student(4, 2, heads), reward, 0, fewest=2))  # nearly, before it is taught
    assert equal < -0.2
    assert mean(bandit(student(4, 2, heads, network="per-slot"), reward, 1280, fewest=2)) > equal / 10


def test_it_learns_a_batch_size() -> None:
    """The best batch size is 8 where the feature is negative and 48 where it is positive."""

    def reward(parts: dict[str, Tensor], state: Tensor, mask: Tensor) -> float:
        return -abs(float(parts["batch"]) - (48 if state[0, 0] > 0 else 8)) / 64

    made = student(1, 1, {"batch": IntegerHead(1, 64)})
    assert mean(bandit(made, reward, 1280)) > -3 / 64
    assert int(made.act(torch.tensor([[1.0]]))) == pytest.approx(48, abs=3)
    assert int(made.act(torch.tensor([[-1.0]]))) == pytest.approx(8, abs=3)


def test_it_learns_a_choice_for_all() -> None:
    def reward(parts: dict[str, Tensor], state: Tensor, mask: Tensor) -> float:
        return float(int(parts["kind"]) == int(state[0].argmax()))

    assert mean(bandit(student(1, 3, {"kind": CategoricalHead(3)}), reward, 1280)) > 0.9


def test_it_learns_numbers() -> None:
    def reward(parts: dict[str, Tensor], state: Tensor, mask: Tensor) -> float:
        return -float((parts["place"] - state[0]).square().mean())

    assert mean(bandit(student(1, 2, {"place": GaussianHead(2, 0.5)}), reward, 1280)) > -0.1


def test_it_learns_a_joint_decision() -> None:
    """A batch size by the mean of all slots and weights by each slot's feature, in one action."""

    def reward(parts: dict[str, Tensor], state: Tensor, mask: Tensor) -> float:
        best = 32 + 24 * float(state[mask, 1].mean().tanh())
        return -abs(float(parts["batch"]) - best) / 32 - 2 * float(
            (parts["weights"] - best_weights(state, mask)).square().sum()
        )

    untaught = mean(bandit(student(4, 2, BOTH, network="per-slot"), reward, 0, fewest=2))
    learned = mean(bandit(student(4, 2, BOTH, network="per-slot"), reward, 1280, fewest=2))
    assert learned > untaught / 5


@pytest.mark.parametrize("network", ["flat", "per-slot"])
def test_fast_clients_get_the_large_model(network: str) -> None:
    """A pass over the small model takes a client its time t in (1, 4), over the large one 2.5 t. Reward as in HAPFL:
    less the largest time over the smallest. With sizes by t < 1.75 it stays near 2; equal sizes reach 4."""

    def times(state: Tensor) -> Tensor:
        return 1 + 3 * state[:, 0]

    def reward(parts: dict[str, Tensor], state: Tensor, mask: Tensor) -> float:
        taken = (times(state) * (1 + 1.5 * parts["size"]))[mask]
        return -float(taken.max() / taken.min())

    made = student(4, 1, {"size": MultiCategoricalHead(2)}, network=network)
    untaught = mean(bandit(student(4, 1, {"size": MultiCategoricalHead(2)}), reward, 0, fewest=2, speeds=True))
    learned = mean(bandit(made, reward, 1280, fewest=2, speeds=True))
    assert untaught < -2
    assert learned > -1.6
    speeds = torch.tensor([[0.05], [0.1], [0.7], [0.9]])
    assert made.act(speeds).tolist() == [1.0, 1.0, 0.0, 0.0]


class Walk:
    """Moving right costs at once, and only being there pays."""

    def __init__(self) -> None:
        self.place = 0.0

    def step(self, right: float) -> float:
        reward, self.place = self.place - 0.5 * right, right
        return reward


@pytest.mark.parametrize(("discount", "right"), [(0.9, 1.0), (0.0, 0.0)])
def test_with_a_discount_it_looks_beyond_the_next_reward(discount: float, right: float) -> None:
    """Moving right costs 0.5 now and pays 1 later: worth it for a discount of 0.9, never for a single step."""
    made = agent(1, 1, {"right": CategoricalHead(2)}, **STUDENT | {"discount": discount})
    world, draws, passes = Walk(), torch_stream("draws"), torch_stream("passes")
    for _ in range(768):
        state = torch.full((1, 1), world.place)
        action = made.act(state, stream=draws)
        made.observe(state, action, world.step(float(action)))
        if made.ready:
            made.learn(passes, torch.full((1, 1), world.place))
    assert [float(made.act(torch.full((1, 1), place))) for place in (0.0, 1.0)] == [right, right]
