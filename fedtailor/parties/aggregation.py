"""The ``[aggregation]`` settings of an experiment: how the server protects itself against malicious clients."""

from pydantic import BaseModel, ConfigDict, Field

from fedtailor.robust import Rule


class Aggregation(BaseModel):
    """How replies are averaged, and what is done to them before."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: Rule = Field("mean", description="the mean of replies; all but `mean` withstand malicious clients")
    malicious: float = Field(
        0.2, ge=0, lt=0.5, description="share of malicious clients that trimmed-mean, krum and multi-krum expect"
    )
    clip: float = Field(
        0.0, ge=0, description="longest change of a client, in medians of the cohort's lengths; 0: no limit"
    )
    gate: float = Field(
        -1.0,
        ge=-1,
        lt=1,
        description="smallest cosine of a client's change with the cohort's median change; -1: no limit",
    )

    @property
    def filters(self) -> bool:
        """Whether replies are clipped or rejected before the method sees them."""
        return self.clip > 0 or self.gate > -1
