from typing import ClassVar, Literal

from pydantic import Field

from fedtailor.methods.base import Card
from fedtailor.methods.bwa import BWA


class AdaptiveB(BWA):
    """BWA that adjusts only the batch size (Zhang et al., 2021, as compared by Bang et al., 2024).

    Exchanged, client and reward: those of BWA.
    Server: action a^t = b^t; w_0^{t+1} = sum_k n_k / n w_k^{t+1}.
    """

    name: ClassVar = "adaptive-b"

    controls: Literal["batch"] = Field("batch", description="what the agent decides; weights are by data size")


AdaptiveB.card = Card(
    paper="Zhang et al., Adaptive Federated Learning on Non-IID Data With Resource Constraint, IEEE Transactions "
    "on Computers",
    year=2021,
    exchanged=BWA.card.exchanged,
    server_state=BWA.card.server_state,
    cost=BWA.card.cost,
    limits=("one batch size: FedAvg with that batch size",),
    deviations=("state, reward and agent are BWA's, as in its comparison; the paper has its own",),
    only_sums=False,
)
