"""A policy in a folder: its tensors, and a card that describes the training."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal

from fedtailor.errors import UserError
from fedtailor.messages.digests import digest
from fedtailor.messages.trees import pack, unpack

TENSORS = "policy.safetensors"
CARD = "policy.json"
BUILT_IN: Literal["built-in"] = "built-in"  # values of a method's setting `policy`, besides a folder
NO_POLICY: Literal["none"] = "none"
SHIPPED = Path(__file__).parents[1] / "policies"  # the policies of the package, a folder each


@dataclass(frozen=True)
class Policy:
    """What the agents of a run have learned. Another run can start with it."""

    method: str
    agents: Mapping[str, Any]  # by decision: the state of its agent
    parts: Mapping[str, Any]  # entries of server.state that belong to the policy
    shape: Mapping[str, int | str]  # properties that a run must share to use the policy
    scenario: Mapping[str, Any] = field(default_factory=dict)  # settings of the experiment that trained it
    settings: Mapping[str, Any] = field(default_factory=dict)  # the method's settings that it needs

    def write(self, folder: Path) -> None:
        """Write both files, the card last, so that a policy with a card is complete."""
        data = pack({"agents": dict(self.agents), "parts": dict(self.parts)})
        card = {"method": self.method, "shape": self.shape, "digest": digest(data), "scenario": self.scenario}
        card |= {"settings": self.settings} if self.settings else {}
        for name, content in ((TENSORS, data), (CARD, (json.dumps(card, indent=2) + "\n").encode())):
            draft = folder / f".{name}"
            draft.write_bytes(content)
            draft.replace(folder / name)


def read_policy(folder: Path) -> Policy:
    """Read the policy in a folder. Nothing in it is executed."""
    try:
        card = json.loads((folder / CARD).read_bytes())
        data = (folder / TENSORS).read_bytes()
        if digest(data) != card["digest"]:
            raise ValueError("its tensors do not match its card")
        tree = unpack(data)
        settings = card.get("settings", {})
        return Policy(card["method"], tree["agents"], tree["parts"], card["shape"], card["scenario"], settings)
    except OSError as error:
        if near := get_close_matches(str(folder).lower(), (BUILT_IN, NO_POLICY), n=1):
            raise UserError(f"policy = {str(folder)!r}: there is no such folder: did you mean {near[0]!r}?") from None
        raise UserError(
            f"{folder} holds no policy ({error.strerror}: {CARD} and {TENSORS}): write one with 'fedtailor pretrain'"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"the policy in {folder} is damaged: {error}") from None


@cache
def shipped_policies(method: str) -> Mapping[str, Mapping[str, Any]]:
    """The cards of the policies that the package has for a method, by the name of their folders."""
    cards = {card.parent.name: json.loads(card.read_bytes()) for card in sorted(SHIPPED.glob(f"*/{CARD}"))}
    return {name: card for name, card in cards.items() if card["method"] == method}


def misfit(policy: Policy, shape: Mapping[str, int | str]) -> str | None:
    """The first property of a run for which a policy was not trained."""
    return next((name for name, needed in shape.items() if policy.shape.get(name) != needed), None)


def check_method(policy: Policy, folder: Path, method: str) -> None:
    """Raise a `UserError` if the policy is for another method."""
    if policy.method != method:
        raise UserError(f"the policy in {folder} was trained for {policy.method}, but the method is {method}")


def check_shape(policy: Policy, folder: Path, shape: Mapping[str, int | str]) -> None:
    """Raise a `UserError` if the policy has another shape than the run."""
    if (name := misfit(policy, shape)) is not None:
        raise UserError(
            f"the policy in {folder} was trained with {name} = {policy.shape.get(name)}, this run has {shape[name]}: "
            "change the run, or pre-train a policy for it"
        )
