"""When an agent learns, and which slots are present."""

import pytest
import torch

from fedtailor.agents.base import AgentSettings, present


@pytest.mark.parametrize(
    ("learn", "scratch", "policy"), [("auto", True, False), ("always", True, True), ("never", False, False)]
)
def test_an_agent_learns_as_its_settings_say(learn: str, scratch: bool, policy: bool) -> None:
    settings = AgentSettings.model_validate({"learn": learn})
    assert (settings.learns_with(policy=False), settings.learns_with(policy=True)) == (scratch, policy)
    assert (settings.learns(policy=False), settings.learns(policy=True)) == (scratch, policy)


def test_an_agent_that_a_rule_replaces_does_not_learn() -> None:
    settings = AgentSettings(decider="uniform", learn="always")
    assert settings.learns_with(policy=False)
    assert not settings.learns(policy=False)


def test_an_agent_that_has_nothing_to_learn_with_does_not_learn() -> None:
    class Idle(AgentSettings):
        @property
        def can_learn(self) -> bool:
            return False

    assert not Idle(learn="always").learns(policy=False)


def test_without_a_mask_all_slots_are_present() -> None:
    assert present(None, 3).tolist() == [True, True, True]
    assert present(torch.tensor([False, True]), 2).tolist() == [False, True]
