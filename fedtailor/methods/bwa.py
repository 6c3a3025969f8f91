from typing import ClassVar, Literal

from pydantic import Field

from fedtailor.agents import PPOSettings
from fedtailor.learning import TrainingSettings
from fedtailor.methods.adjustment import ADJUSTMENT, Adjusted
from fedtailor.methods.base import Card, Method
from fedtailor.methods.fedavg import FedAvg
from fedtailor.parties import AgentTables


class BWAAgents(AgentTables):
    """The agent of BWA, which learns at the end of an episode (lines 16-23)."""

    rules: ClassVar = ()

    # Deviation: the critic (line 19) learns lambda-returns, whose values are fixed while it learns; with gae_lambda = 0
    # they are the paper's r + gamma V(s').
    adjustment: PPOSettings = PPOSettings(
        hidden=(256, 256), actor_lr=3e-3, critic_lr=3e-3, discount=0.0, standardise=True
    )


class BWA(Adjusted):
    """FedAvg whose batch size and aggregation weights an agent adjusts in every round (Bang et al., 2024).

    Exchanged: the model and the batch size b^t down; the model, its loss, accuracy and divergence up; then the new
    global model down, its loss and accuracy up.
    Client k: E epochs of SGD with batches of b^t (eq. 2, 3); scores of the trained w_k on its validation data.
    Server: state s^t = loss, accuracy and divergence ||w_j^{t+1} - w_0^t|| (eq. 5) of the global model, j = 0, and of
    every client; action a^t = (b^t, lambda^t) with b^t in [1, 64] and lambda^t on the simplex; w_0^{t+1} = sum_k
    lambda_k^t w_k^{t+1} (eq. 4); reward r^t = (phi^{t+1} - phi^t) / phi^t of its validation accuracy phi (eq. 8), times
    t where phi^{t+1} is the highest so far. An episode is a whole federation; PPO learns at its end (Alg. 1).
    `Adjusted` has lines 5 to 15 of Algorithm 1; the framework does the others.
    """

    name: ClassVar = "bwa"
    best_rules: ClassVar = {ADJUSTMENT: "uniform"}
    agents_use: ClassVar = frozenset({"smallest", "largest", "spread"})
    rewards_use: ClassVar = frozenset({"alpha", "reward"})

    reward: Literal["gain", "objective", "rise"] = Field(
        "gain",
        description="eq. 8 with its bonus; alpha^accuracy, a term of the objective (eq. 7); or the rise in accuracy, "
        "which sums to the final accuracy",
    )
    agents: BWAAgents = BWAAgents()

    def inert(self) -> str | None:
        agent = self.agents.adjustment
        if not agent.can_learn and agent.learns_with(self.has_policy):
            return "epochs = 0: the agent never learns"
        if not self.has_policy and agent.decider == "agent" and agent.learn != "always":
            return "without a policy it only explores, since it learns at the end of an episode: 'fedtailor pretrain'"
        return None

    def coincides(self, other: Method, training: TrainingSettings) -> str | None:
        if self.rule() != "uniform":
            return None
        as_usual = "the rule 'uniform' decides: the run's batch size, and "
        if self.controls == "batch" and not self.threshold and type(other) is FedAvg:
            return f"{as_usual}weights by data size"
        if not isinstance(other, BWA) or (other.rule(), other.threshold) != ("uniform", self.threshold):
            return None
        if (self.controls == "batch") != (other.controls == "batch"):
            return None
        return f"{as_usual}{'weights by data size' if self.controls == 'batch' else 'equal weights'}"

    def _reward(self, before: float, after: float, highest: float, round: int, samples: int) -> float:
        if self.reward == "objective":
            return self._objective(after)
        if self.reward == "rise":
            return after - before
        gain = (after - before) / max(before, 1 / samples)  # 13, eq. 8
        return gain * round if after > highest else gain


BWA.card = Card(
    paper="Bang, Woo and Lee, DRL-empowered joint batch size and weighted aggregation adjustment mechanism for "
    "federated learning on non-IID data, ICT Express",
    year=2024,
    exchanged="the model and a batch size down, the model and three numbers up (below the threshold only the "
    "numbers); the new model down, its loss and accuracy up",
    server_state="the global model; the agent: actor, critic, their moments; means and deviations of what it saw; "
    "six numbers of every client",
    cost="as FedAvg with the chosen batch size, plus two forward passes over the validation data",
    limits=(
        "one batch size and weights by data size: FedAvg with that batch size",
        "controls = batch: Adaptive-B; controls = weights: Adaptive-AW",
    ),
    deviations=(
        "loss and accuracy are those of validation data, the global model's pooled over the clients that answered; "
        "a reward compares both models on the same clients' data",
        "losses and divergences enter the agent as log(1 + x), all numbers standardised by those of past episodes",
        "the critic learns lambda-returns; the paper's loss takes the critic's next value (gae_lambda = 0)",
        "phi^t = 0 counts as one right sample, so that a reward is finite",
        "clients that do not answer are masked in state and action, and the weights of the others sum to one",
        "the batch size is a rounded logistic variable, one logit for 64 neighbouring values, by ratios: twice the "
        "batch is half the steps",
        "the rates, passes and discount of PPO are not in the paper: ours learn from a few hundred decisions, each "
        "for its own reward (discount 0), since a short episode says little about the distant future",
        "batch size and weights are clipped separately in PPO's objective",
        "the scale of the weights' logits (spread) is not in the paper",
    ),
    only_sums=False,
)
