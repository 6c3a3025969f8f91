"""Tables of an experiment that concern the whole run: who takes part, what is evaluated and kept, where it starts."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from fedtailor.errors import unknown
from fedtailor.learning.measures import MEASURES

Measured = Literal["received", "held", "global"]
TrackerName = Literal["tensorboard", "mlflow", "wandb"]


def _known_measure(name: str) -> str:
    if ":" not in name and name not in MEASURES:
        raise ValueError(str(unknown("measure", name, [*MEASURES, "module:function"])))
    return name


MeasureName = Annotated[str, AfterValidator(_known_measure)]


class Participation(BaseModel):
    """The clients that take part in a round."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ratio: (
        Annotated[float, Field(gt=0, le=1)]
        | tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(gt=0, le=1)]]
    ) = Field(1.0, description="share of the clients in a cohort, rounded up, or [low, high]: drawn in every round")
    clients: int | None = Field(None, ge=1, description="number of clients in a cohort, instead of a ratio")
    dropout: float = Field(0.0, ge=0, lt=1, description="probability that a sampled client does not answer")
    absent: tuple[tuple[int, int], ...] = Field(
        (), description="pairs [round, client]: clients that do not answer in that round, to replay earlier failures"
    )

    @model_validator(mode="after")
    def _ordered(self) -> "Participation":
        if isinstance(self.ratio, tuple) and self.ratio[0] > self.ratio[1]:
            raise ValueError("ratio is [low, high]; the first is larger than the second")
        return self

    def absent_in(self, round: int) -> frozenset[int]:
        """The clients that do not answer in this round."""
        return frozenset(client for when, client in self.absent if when == round)


class Evaluation(BaseModel):
    """What is evaluated, and when. Evaluation never changes training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: int = Field(1, ge=0, description="rounds between two evaluations; 0: only at the end")
    clients: Literal["all", "cohort"] | Annotated[int, Field(ge=2)] = Field(
        "all",
        description="test the received models of all clients, only of the cohort, or of a number of clients that the "
        "seed draws: then only these are tested, in the final pass too, and results come with a 95 % interval",
    )
    models: tuple[Measured, ...] = Field(
        ("received", "held", "global"), description="models that are tested during the run"
    )
    measures: tuple[MeasureName, ...] = Field(
        (),
        description="measures beside accuracy and loss, or module:function; by default none for classes, and rmse, mae "
        "and r2 for numbers",
    )
    headline: MeasureName | None = Field(
        None, description="the measure of tables and curves; by default accuracy for classes, rmse for numbers"
    )
    final: bool = Field(True, description="at the end every client receives and trains once more")
    new_clients: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the clients, drawn by the seed, that take no part; at the end they receive and adapt "
        "the model",
    )
    keep_models: float = Field(
        256,
        ge=0,
        le=1_000_000,
        description="megabytes that the models of the final pass may take in the database; if all models together "
        "would take more, none is kept, and an export trains the client once more; 0: keep none",
    )
    together: bool = Field(
        True,
        description="test several clients in one batch, which is faster; a federation tests each separately",
    )

    @model_validator(mode="after")
    def _new_clients_at_the_end(self) -> "Evaluation":
        if self.new_clients and not self.final:
            raise ValueError("new_clients are tested at the end: set final = true")
        return self


class Checkpoints(BaseModel):
    """The rounds whose states a run keeps, besides its latest state."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: int = Field(..., ge=1, le=1_000_000, description="rounds between two states that are kept")
    keep: int = Field(3, ge=1, le=1000, description="number of states to keep; the oldest is deleted")


class Stopping(BaseModel):
    """The best round by validation data, whose models are deployed, and the early end of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    patience: int | None = Field(
        None, ge=1, description="rounds without a better one after which the run ends; without it, it never ends early"
    )
    min_rounds: int = Field(1, ge=1, description="rounds before which the run does not end")
    min_gain: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="how much better a round must be to count, in units of the headline"
    )


class Start(BaseModel):
    """The run or file of weights that a run starts from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(
        ..., min_length=1, description="a run's folder, an exported model's folder, or a file .safetensors, .pt or .pth"
    )
    round: Literal["last", "best"] | Annotated[int, Field(ge=1)] = Field(
        "last", description="the run's last round, its best round, or a round that it kept (checkpoints.every)"
    )
    carry: Literal["auto", "weights"] = Field(
        "auto",
        description="what is carried over: all states if method, model and clients are the same, otherwise the shared "
        "weights; or always the weights alone",
    )
    model: str | None = Field(None, description='the server\'s model, for a run that has several, such as "group/0"')
    part: Literal["all", "body", "head"] = Field("all", description="the part of the weights that is used")
    digest: str | None = Field(None, description="the digest that the start must have; a run records it")


class CompareSettings(BaseModel):
    """A comparison: methods times seeds, and the model of its headline."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    methods: tuple[str | dict[str, Any], ...] = Field(
        ("local", "fedavg", "fedper"),
        min_length=1,
        description='names, or tables such as {name = "fedprox", mu = 0.01}; label = "strong" in a table names its row',
    )
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**62)], ...] = Field(
        (0,), min_length=1, description="one run per method and seed"
    )
    model: Literal["received", "held", "global", "final"] = Field(
        "final", description="the model whose accuracy the table shows first"
    )
    pooled: bool = Field(False, description="average accuracies over samples instead of clients")
    baseline: str | None = Field(
        None, description="the method, by its label, that the others are compared with; default: the first"
    )

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("a seed appears twice, which would count one run as two")
        return seeds


class PretrainSettings(BaseModel):
    """Settings of pre-training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    episodes: int = Field(
        1, ge=1, le=1_000_000, description="number of federations to train on, one after the other, each from its start"
    )
    keep: Literal["last", "best"] = Field(
        "last",
        description="the policy to keep: the last one, or that in the middle of the three episodes in a row with the "
        "highest objective on validation data",
    )
