"""The declaration of a decision, the question with its slots filled, and the decision that was made."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, model_validator
from torch import Tensor

from fedtailor.agents import Agent, AgentSettings
from fedtailor.agents.actions import Kind
from fedtailor.errors import unknown
from fedtailor.parties.requests import Decide, Key

if TYPE_CHECKING:
    from fedtailor.parties.server import Server

SMALLEST = 1e-6  # smallest value of a feature, so that its logarithm exists

Decider = Callable[["Server", "Question"], Tensor]  # decides instead of an agent


class AgentTables(BaseModel):
    """The agents of a method, with a field for each decision: ``[method.agents.<decision>]``.

    A setting that the user leaves out has the method's own default, not that of the agent's class.

    Examples
    --------
    >>> class Agents(AgentTables):
    ...     size: PPOSettings = PPOSettings(actor_lr=0.02)
    >>> Agents.model_validate({"size": {"discount": 0.5}}).of("size").actor_lr
    0.02
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # The method's own rules that may replace an agent; None: not declared, so a decider is checked in a run only.
    rules: ClassVar[tuple[str, ...] | None] = None

    @model_validator(mode="after")
    def _known_deciders(self) -> Self:
        for name, table in self:
            known = known_deciders(table, self.rules or ())
            if self.rules is not None and table.decider not in known:
                raise ValueError(str(unknown(f"decider of {name.replace('_', '-')}", table.decider, known)))
        return self

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        tables = {str(name).replace("-", "_"): table for name, table in given.items()}
        for name, known in cls.model_fields.items():
            table = tables.get(name)
            if isinstance(table, dict):
                tables[name] = {**known.get_default(call_default_factory=True).model_dump(), **table}
        return tables

    def of(self, decision: str) -> AgentSettings:
        """The settings of the agent that makes a decision."""
        settings: AgentSettings = getattr(self, decision.replace("-", "_"))
        return settings

    def changed(self, **settings: Any) -> Self:
        """A copy with these settings changed in every table."""
        return self.model_copy(update={name: table.model_copy(update=settings) for name, table in self})


def known_deciders(agent: AgentSettings, rules: Iterable[str]) -> list[str]:
    """What may make a decision: its agent, if it has one, and the rules that may replace it."""
    return [*([] if type(agent) is AgentSettings else ["agent"]), "uniform", "random", *rules]


@dataclass(frozen=True)
class Feature:
    """Numbers that describe a slot to an agent.

    Parameters
    ----------
    name : str
        The name, in records and in the documentation.
    width : int
        How many numbers the feature has.
    scale : {"", "log", "log1p"}
        With a scale the agent sees the logarithm.

    Examples
    --------
    >>> Feature("seconds", scale="log"), Feature("shares of classes", width=10)
    (Feature(name='seconds', width=1, scale='log'), Feature(name='shares of classes', width=10, scale=''))
    """

    name: str
    width: int = 1
    scale: Literal["", "log", "log1p"] = ""


@dataclass(frozen=True)
class Decision:
    """The declaration of a decision.

    Parameters
    ----------
    name
        Its name in ``Decide``, in records and, with ``_`` for ``-``, in ``[method.agents]``.
    features
        The features of a slot that the agent sees.
    actions
        The kinds of action by name: one, or several that are decided together.
    agent
        The settings of its agent; their class determines the agent. With plain `AgentSettings` there is no agent, and a
        decider always decides.
    slots
        The largest number of clients that one decision is about.
    own
        Names of further slots with a fixed place, after those of the clients.
    deciders
        What can decide instead of the agent, besides ``uniform`` and ``random``: a function, or None if the question
        has the action in its ``context``.
    whole_federation
        Whether an episode is a whole federation; otherwise each decision is its own episode.
    endless
        Whether the agent of a whole federation learns as if it had no last round.
    rewarded_later
        Whether a reward may come in a later round; otherwise a decision without a reward is dropped after its round.
    warming
        The action in the first ``warmup`` rounds.
    options
        Arguments of the agent that users cannot set.

    Examples
    --------
    >>> features = [Feature("samples", scale="log"), Feature("loss")]
    >>> decision = Decision("size", features, {"size": Categorical(3)}, PPOSettings(), slots=5)
    >>> decision.width, decision.agent.decider
    (2, 'agent')
    """

    name: str
    features: Sequence[Feature]
    actions: Mapping[str, Kind]
    agent: AgentSettings
    slots: int
    own: tuple[str, ...] = ()
    deciders: Mapping[str, "Decider | None"] = field(default_factory=dict)
    whole_federation: bool = False
    endless: bool = False
    rewarded_later: bool = False
    warming: Literal["random", "neutral"] = "random"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = known_deciders(self.agent, self.deciders)
        if self.agent.decider not in known:
            raise unknown(f"decider of {self.name}", self.agent.decider, known)

    @property
    def width(self) -> int:
        """The number of features per slot."""
        return sum(feature.width for feature in self.features)

    @property
    def ends(self) -> bool:
        """Whether what the agent learns depends on which round is the last."""
        return (self.whole_federation and not self.endless) or getattr(self.agent, "buffer", 0) is None

    @property
    def all_slots(self) -> int:
        """The number of slots, with those of the client's own models."""
        return self.slots + len(self.own)

    def stream(self, use: Literal["start", "exploration", "learning"], about: int | None = None) -> str:
        """The name of a random stream of the agent."""
        return f"{use} of {self.name}" + ("" if about is None else f" for {about}")

    def build(self, stream: torch.Generator) -> Agent | None:
        """Build the untrained agent."""
        return self.agent.build(self.all_slots, self.width, self.actions, stream, **self.options)

    def shape(self) -> dict[str, int | str]:
        """The properties that must be equal in two runs that share a policy."""
        kinds = ", ".join(f"{name}: {kind.describe()}" for name, kind in self.actions.items())
        scales = ", ".join(f"{f.scale} {f.name}".strip() for f in self.features)
        shape: dict[str, int | str] = {"actions": kinds, "features": f"{scales} ({self.width} in all)"}
        shape |= self.agent.describe()
        return shape if self.agent.any_slots else {**shape, "slots": self.all_slots}

    def described(self) -> dict[str, Any]:
        """What a reader needs to understand its numbers: features and their widths, actions and their kinds."""
        actions = {name: {"per_slot": kind.per_slot, "kind": kind.describe()} for name, kind in self.actions.items()}
        return {"features": {feature.name: feature.width for feature in self.features}, "actions": actions}

    def seen(self, observation: Tensor) -> Tensor:
        """An observation (slots, features) as the agent sees it."""
        if not any(feature.scale for feature in self.features):
            return observation
        columns = torch.split(observation, [feature.width for feature in self.features], -1)
        return torch.cat([_scaled(x, f.scale) for x, f in zip(columns, self.features, strict=True)], -1)

    def split(self, action: Tensor) -> dict[str, Tensor]:
        """The numbers of an action, by the name of their kind."""
        if len(self.actions) == 1:
            return dict.fromkeys(self.actions, action)
        sizes = [self.all_slots if kind.per_slot else 1 for kind in self.actions.values()]
        return dict(zip(self.actions, action.split_with_sizes(sizes, -1), strict=True))


@dataclass(frozen=True)
class Question:
    """A `Decide` with its slots filled, which an agent, a decider or an environment answers."""

    declared: Decision
    about: int | None
    keys: tuple[Key, ...]  # keys of the rows, in the order of the request
    places: tuple[int, ...]  # the slot of each row
    observation: Tensor  # (slots, features)
    mask: Tensor  # (slots,)
    context: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.declared.name

    @classmethod
    def of(cls, declared: Decision, asked: Decide) -> "Question":
        """Put every row into its slot: clients in the order of the request, own slots at their fixed places."""
        own = {name: declared.slots + place for place, name in enumerate(declared.own)}
        clients = iter(range(declared.slots))
        keys = tuple(asked.rows)
        if (rows := sum(key not in own for key in keys)) > declared.slots:
            raise ValueError(f"the decision {declared.name} is about {declared.slots} clients at most, not {rows}")
        places = tuple(own[key] if key in own else next(clients) for key in keys)
        observation = torch.zeros(declared.all_slots, declared.width)
        mask = torch.zeros(declared.all_slots, dtype=torch.bool)
        for key, place in zip(keys, places, strict=True):
            observation[place] = torch.as_tensor(asked.rows[key])
            mask[place] = key not in asked.absent
        return cls(declared, asked.about, keys, places, observation, mask, asked.context)

    def slots(self) -> list[Key | None]:
        """What every slot stands for: a client, an own slot, or nothing."""
        found: list[Key | None] = [None] * len(self.mask)
        for key, place in zip(self.keys, self.places, strict=True):
            found[place] = key
        return found

    def placed(self, numbers: "Sequence[float] | Tensor") -> Tensor:
        """Put a number for each row, in the order of the rows, into the row's slot; 0 in empty slots."""
        action = torch.zeros(len(self.mask))
        action[list(self.places)] = torch.as_tensor(numbers, dtype=action.dtype)
        return action


@dataclass(frozen=True)
class Decided:
    """A decision that was made.

    ``decision["weights"]`` is ``{client: weight}``, or one number if the kind of action is shared by all.

    Attributes
    ----------
    question : Question
        The question, with its slots filled.
    action : Tensor
        The whole action, as the agent gave it.
    round : int
        The round of the decision.

    Examples
    --------
    >>> def finish(self, server: Server, replies: Replies) -> Steps:
    ...     decision = server.decisions["size", None]
    ...     yield Reward(decision, -max(decision["size"][client] for client in replies))
    """

    question: Question
    action: Tensor
    round: int

    @property
    def name(self) -> str:
        """The name of the decision."""
        return self.question.name

    @property
    def about(self) -> int | None:
        """The client that the decision is about, if it is about one."""
        return self.question.about

    @property
    def keys(self) -> tuple[Key, ...]:
        """What the rows stand for, in their order: clients, mostly."""
        return self.question.keys

    @property
    def context(self) -> Mapping[str, Any]:
        """What the method passed along with the question."""
        return self.question.context

    def numbers(self, action: str) -> Tensor:
        """The numbers in the order of the rows, or the one number for all."""
        own = self.question.declared.split(self.action)[action]
        return own[list(self.question.places)] if self.question.declared.actions[action].per_slot else own

    def __getitem__(self, action: str) -> Any:
        numbers = self.numbers(action).tolist()
        per_slot = self.question.declared.actions[action].per_slot
        return dict(zip(self.keys, numbers, strict=True)) if per_slot else numbers[0]

    def packed(self) -> dict[str, Any]:
        """The decision as a tree to store."""
        asked = self.question
        return {
            "name": self.name,
            "about": asked.about,
            "keys": list(asked.keys),
            "places": list(asked.places),
            "observation": asked.observation,
            "mask": asked.mask,
            "context": dict(asked.context),
            "action": self.action,
            "round": self.round,
        }

    @classmethod
    def unpacked(cls, tree: Mapping[str, Any], declared: Mapping[str, Decision]) -> "Decided":
        """The decision that `packed` turned into plain values."""
        keys, places = tuple(tree["keys"]), tuple(tree["places"])
        observation, mask, context = tree["observation"], tree["mask"], tree["context"]
        asked = Question(declared[tree["name"]], tree["about"], keys, places, observation, mask, context)
        return cls(asked, tree["action"], tree["round"])


def _scaled(x: Tensor, scale: str) -> Tensor:
    if scale == "log1p":
        return x.clamp(min=0).log1p()
    return x.clamp(min=SMALLEST).log() * (x > 0) if scale == "log" else x  # an empty slot stays 0
