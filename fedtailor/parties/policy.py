"""What an agent has learned, in a folder: the tensors, and a card that says what it was trained on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedtailor.errors import UserError
from fedtailor.messages.trees import digest, pack, unpack

TENSORS = "policy.safetensors"
CARD = "policy.json"


@dataclass(frozen=True)
class Policy:
    """What an agent has learned, to start another run with."""

    method: str
    agents: Mapping[str, Any]  # the state of the agent of every decision
    parts: Mapping[str, Any]  # of server.state
    shape: Mapping[str, int | str]  # what another run must agree with to use it
    scenario: Mapping[str, Any] = field(default_factory=dict)  # the experiment it was trained on

    def write(self, folder: Path) -> None:
        """Write both files; the card comes last, so that a policy with a card is complete."""
        data = pack({"agents": dict(self.agents), "parts": dict(self.parts)})
        card = {"method": self.method, "shape": self.shape, "digest": digest(data), "scenario": self.scenario}
        for name, content in ((TENSORS, data), (CARD, (json.dumps(card, indent=2) + "\n").encode())):
            draft = folder / f".{name}"
            draft.write_bytes(content)
            draft.replace(folder / name)


def read_policy(folder: Path) -> Policy:
    """The policy in a folder; nothing in it is ever executed."""
    try:
        card = json.loads((folder / CARD).read_bytes())
        data = (folder / TENSORS).read_bytes()
        if digest(data) != card["digest"]:
            raise ValueError("its tensors are not those of its card")
        tree = unpack(data)
        return Policy(card["method"], tree["agents"], tree["parts"], card["shape"], card["scenario"])
    except OSError as error:
        raise UserError(
            f"{folder} holds no policy ({error.strerror}: {CARD} and {TENSORS}): write one with 'fedtailor pretrain'"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"the policy in {folder} is damaged: {error}") from None


def check_policy(policy: Policy, folder: Path, method: str, shape: Mapping[str, int | str]) -> None:
    """Refuse a policy of another method, or of another shape."""
    if policy.method != method:
        raise UserError(f"the policy in {folder} is one of {policy.method}, and the method is {method}")
    for name, needed in shape.items():
        if policy.shape.get(name) != needed:
            raise UserError(
                f"the policy in {folder} was trained with {name} = {policy.shape.get(name)}, this run has {needed}: "
                "change the run, or pre-train a policy for it"
            )
