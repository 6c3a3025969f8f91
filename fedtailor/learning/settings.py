"""Settings of local training."""

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from fedtailor.learning.objectives import FOR_CLASSES, FOR_NUMBERS


class Constant(BaseModel):
    """The same learning rate in every round."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["constant"] = "constant"

    def factor(self, round: int, rounds: int) -> float:
        return 1.0


class Exponential(BaseModel):
    """The learning rate is multiplied by ``gamma`` after every global round."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["exponential"]
    gamma: float = Field(0.99, gt=0, le=1, description="factor per round")

    def factor(self, round: int, rounds: int) -> float:
        return self.gamma ** (round - 1)


class Step(BaseModel):
    """The learning rate is multiplied by ``gamma`` every ``every`` rounds."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["step"]
    every: int = Field(100, ge=1, description="rounds between two drops")
    gamma: float = Field(0.1, gt=0, le=1, description="factor per drop")

    def factor(self, round: int, rounds: int) -> float:
        return float(self.gamma ** ((round - 1) // self.every))


class Cosine(BaseModel):
    """The learning rate falls along half a cosine towards ``floor`` of its start.

    As in torch, it would reach the floor one round after the last: at a learning rate of zero, the last round and the
    final pass would train nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["cosine"]
    floor: float = Field(0.0, ge=0, le=1, description="lower limit of the learning rate, as a share of the first")

    def factor(self, round: int, rounds: int) -> float:
        rounds = max(1, rounds)
        done = (min(round, rounds) - 1) / rounds
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2


def _known_loss(name: str) -> str:
    if name != "auto" and ":" not in name and name not in (*FOR_CLASSES, *FOR_NUMBERS):
        raise ValueError(f"should be auto, {', '.join((*FOR_CLASSES, *FOR_NUMBERS))}, or module:function")
    return name


Precision = Literal["fp32", "bf16", "auto"]


class DPSGD(BaseModel):
    """Differentially private SGD (Abadi et al., 2016): clipped gradients of single samples, and noise on their sum."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    clip: float = Field(1.0, gt=0, description="longest gradient of a sample")
    noise: float = Field(1.0, ge=0, le=1e6, description="deviation of the noise on the sum of gradients, in clips")
    generator: Literal["seeded", "system"] = Field(
        "seeded", description="source of batches and noise: the run's streams, or the operating system's generator"
    )


Schedule = Annotated[Constant | Exponential | Step | Cosine, Field(discriminator="kind")]


class TrainingSettings(BaseModel):
    """Local training: the same for every method of a comparison."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(5, ge=0, le=10_000, description="passes over the client's data per round")
    steps: int | None = Field(None, ge=0, le=1_000_000, description="mini-batches per round, instead of epochs")
    batch_size: int = Field(10, ge=1, le=1_000_000, description="samples per mini-batch")
    optimiser: Literal["sgd", "adam"] = Field("sgd", description="its state is reset in every round")
    lr: float = Field(0.05, gt=0, le=100, description="learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum of SGD")
    weight_decay: float = Field(0.0, ge=0, le=10, description="L2 penalty, added to the gradient")
    schedule: Schedule = Field(Constant(), description="schedule of the learning rate over the rounds")
    clip: float | None = Field(None, gt=0, description="largest norm of the gradient; none by default")
    loss: Annotated[str, AfterValidator(_known_loss)] = Field(
        "auto",
        description="auto: cross-entropy for classes, mse for numbers; also weighted-, balanced- and "
        "binary-cross-entropy; huber, squared-error (half the squared distance); or module:function",
    )
    class_weights: tuple[Annotated[float, Field(ge=0)], ...] | None = Field(
        None, description="weighted-cross-entropy: the weight of every class, the same on all clients"
    )
    huber_delta: float = Field(1.0, gt=0, description="huber: the error at which the loss turns into a line")
    precision: Precision = Field(
        "fp32",
        description="bf16: forward and backward passes in bf16, weights and optimiser in fp32; "
        "auto: bf16 where the processor has it",
    )
    together: Literal["off", "on", "auto"] = Field(
        "off",
        description="on: small networks of several clients train in one stack, in the same steps with other last "
        "digits; auto: on where it is possible and faster",
    )

    dp_sgd: DPSGD | None = Field(None, description="hide single samples by differentially private SGD; none by default")

    @model_validator(mode="after")
    def _private_in_fp32(self) -> "TrainingSettings":
        if self.dp_sgd is not None and self.precision != "fp32":
            raise ValueError("dp_sgd needs precision = 'fp32'")
        if self.dp_sgd is not None and self.loss == "balanced-cross-entropy":
            raise ValueError("dp_sgd: the weights of balanced-cross-entropy count a client's labels, without noise")
        return self

    @model_validator(mode="after")
    def _weights_for_the_weighted_loss(self) -> "TrainingSettings":
        if (self.loss == "weighted-cross-entropy") != (self.class_weights is not None):
            raise ValueError("loss = 'weighted-cross-entropy' and class_weights need each other")
        return self

    def lr_in(self, round: int, rounds: int) -> float:
        """The learning rate of a round. Before round 1 it is that of the first, in the final pass that of the last."""
        return self.lr * self.schedule.factor(max(1, min(round, rounds)), rounds)
