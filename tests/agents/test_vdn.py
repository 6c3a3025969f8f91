"""Value decomposition: hand-derived targets, masks, and a toy it must solve."""

import pytest
import torch

from fedtailor.agents.vdn import VDN, VDNSettings
from fedtailor.messages.trees import pack, unpack
from fedtailor.seeding import torch_stream


def agent(slots: int = 3, features: int = 1, options: int = 2, **changes: float) -> VDN:
    return VDN(slots, features, options, VDNSettings(hidden=(16,), **changes), torch_stream(0))  # type: ignore[arg-type]


def test_empty_slots_have_no_option_and_no_value() -> None:
    state, mask = torch.randn(3, 1, generator=torch_stream(1)), torch.tensor([True, False, True])
    assert agent(epsilon=1.0).act(state, mask, torch_stream(2))[1] == 0
    other = state.clone()
    other[1] = 99.0
    learned = []
    for rows in (state, other):
        made = agent(lr=0.1, updates=1)
        made.observe(rows, torch.zeros(3), 1.0, mask)
        made.follow(rows, mask, lambda: torch_stream(3))
        learned.append(pack(made.network))
    assert learned[0] == learned[1] != pack(agent().network)


def test_learning_is_double_q_learning_by_hand() -> None:
    """q = (1, 2) everywhere by the network and (2.5, 2.25) by the target: the goal is r + 0.5 (2.25 + 2.25).

    Options are those of the network, 1, values those of the target, 2.25; with r = 1 that is 3.25, and the value of the
    options 0 and 1 that were chosen is 3. The loss of the difference 1/4 has slope -1/4 in each of the two values; with
    the target's own options it would be 1/2, with the network's values 0.
    """
    made = agent(slots=2, discount=0.5, batch=1, updates=1)
    for network, values in ((made.network, [1.0, 2.0]), (made.target, [2.5, 2.25])):
        for parameter in network.parameters[:-1]:
            parameter.data.zero_()
        network.parameters[-1].data.copy_(torch.tensor(values))
    steps: list[torch.Tensor] = []
    made.optimiser.step = lambda gradients: steps.append(gradients[-1])  # type: ignore[assignment, method-assign]
    both = torch.tensor([True, True])
    made.observe(torch.zeros(2, 1), torch.tensor([0.0, 1.0]), 1.0, both)
    made.follow(torch.zeros(2, 1), both, lambda: torch_stream(0))
    assert steps[0].tolist() == [-0.25, -0.25]
    assert made.target.parameters[-1].tolist() == pytest.approx([0.96 * 2.5 + 0.04 * 1, 0.96 * 2.25 + 0.04 * 2])


def test_it_finds_the_best_option_of_every_slot() -> None:
    """Slots with a positive number should have option 1, others 0; the reward is the number of right ones."""
    made = agent(discount=0.0, lr=0.01, epsilon=0.5, updates=1)
    draws = torch_stream(5)
    mask = torch.ones(3, dtype=torch.bool)
    for _ in range(150):
        state = torch.randn(3, 1, generator=draws)
        action = made.act(state, mask, draws)
        right = float((action == (state[:, 0] > 0)).sum())
        made.observe(state, action, right, mask)
        made.follow(state, mask, lambda: draws)
    state = torch.tensor([[-1.0], [0.5], [1.5]])
    assert made.act(state, mask).tolist() == [0.0, 1.0, 1.0]


def test_a_stored_agent_goes_on_as_if_it_had_not_been_stored() -> None:
    one, mask = agent(), torch.ones(3, dtype=torch.bool)
    state = torch.randn(3, 1, generator=torch_stream(1))
    for _ in range(2):
        one.observe(state, torch.ones(3), 1.0, mask)
        one.follow(state, mask, lambda: torch_stream(7))
    one.observe(state, torch.zeros(3), 2.0, mask)  # waits for the state after it
    other = agent()
    other.load_state_dict(unpack(pack(one.state_dict())))
    for made in (one, other):
        made.follow(2 * state, mask, lambda: torch_stream(8))
        assert len(made.replay) == 3
    assert pack(one) == pack(other)


def test_a_transition_waits_for_the_state_after_it_in_the_same_episode() -> None:
    made, mask = agent(updates=2), torch.ones(3, dtype=torch.bool)
    made.follow(torch.zeros(3, 1), mask, lambda: torch_stream(0))
    assert len(made.replay) == 0  # nothing was observed yet
    made.observe(torch.zeros(3, 1), torch.ones(3), 1.0, mask)
    assert len(made.replay) == 0
    made.begin_episode(lambda: torch_stream(0))  # the next state is another federation's
    made.follow(torch.zeros(3, 1), mask, lambda: torch_stream(0))
    assert len(made.replay) == 0
    made.observe(torch.zeros(3, 1), torch.ones(3), 1.0, mask)
    made.follow(torch.full((3, 1), 5.0), mask, lambda: torch_stream(0))
    (row,) = made.replay.take_changed().values()
    assert row["following"].flatten().tolist() == [5.0] * 3
    assert made.policy()["pending"] is None
    assert made.policy()["replay"]["rows"] == {}


def test_it_learns_during_rounds_and_never_at_their_end() -> None:
    one = agent()
    assert not any(one.due(round, 3) for round in (1, 2, 3))
