from typing import ClassVar, Literal

from pydantic import Field

from fedtailor.methods.base import Card
from fedtailor.methods.bwa import BWA


class AdaptiveAW(BWA):
    """BWA that adjusts only the aggregation weights (Guo et al., 2022, as compared by Bang et al., 2024).

    Exchanged, client and reward: those of BWA, with the run's batch size.
    Server: action a^t = lambda^t; w_0^{t+1} = sum_k lambda_k^t w_k^{t+1}.
    """

    name: ClassVar = "adaptive-aw"

    controls: Literal["weights"] = Field("weights", description="what the agent decides; the batch size is the run's")


AdaptiveAW.card = Card(
    paper="Guo et al., Auto-FedRL: Federated Hyperparameter Optimization for Multi-institutional Medical Image "
    "Segmentation, ECCV",
    year=2022,
    exchanged=BWA.card.exchanged.replace(" and a batch size", ""),
    server_state=BWA.card.server_state,
    cost="as FedAvg, plus two forward passes over the validation data",
    limits=("weights by data size: FedAvg",),
    deviations=(
        "state, reward and agent are BWA's, as in its comparison; the paper searches several hyper-parameters",
    ),
    only_sums=False,
)
