import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from fedtailor.messages.payload import Payload
from fedtailor.methods.base import Card, Method, Payloads
from fedtailor.parties import Ask, Client, Replies, Server, Steps
from fedtailor.weights import Sum, Weights, cosine, delta, learned, norm, select


class FedAMP(Method):
    """Clients with similar models attract each other: attentive message passing (Huang et al., 2021).

    Exchanged: the client's own cloud model u_i down, its model w_i up.
    Client: minimises f_i(w) + lambda / (2 alpha) |w - u_i|^2, whose gradient is lambda / alpha (w - u_i).
    Server: keeps every client's last model; u_i = (1 - sum_j xi_ij) w_i + sum_{j != i} xi_ij w_j with
    xi_ij = alpha A'(|w_i - w_j|^2) = alpha / sigma exp(-|w_i - w_j|^2 / sigma), from A(x) = 1 - exp(-x / sigma);
    or, as HeurFedAMP, xi_ij = (1 - xi_ii) softmax_j(sigma cos(w_i, w_j)).
    """

    name: ClassVar = "fedamp"
    averages: ClassVar = False

    lam: float = Field(
        5e-7,
        ge=0,
        le=1e6,
        description="lambda; the pull to the cloud model is lambda / alpha. The default is pFedRLLA's; the paper tunes "
        "it per data set; PFLlib: 1",
    )
    alpha: float = Field(
        5e-3,
        gt=0,
        le=1e6,
        description="step alpha_k of the message passing, the same in every round; pFedRLLA's, PFLlib: 1",
    )
    sigma: float = Field(
        0.1,
        gt=0,
        le=1e9,
        description="norm: width of the attention, in squared weights; cosine: its sharpness; pFedRLLA's, PFLlib: 1",
    )
    attention: Literal["norm", "cosine"] = Field("norm", description="norm is FedAMP, cosine is HeurFedAMP")
    self_weight: float | None = Field(
        None, ge=0, le=1, description="xi_ii of HeurFedAMP; by default 1 / number of models, as in an average"
    )
    start: Literal["cloud", "own"] = Field("cloud", description="where local training starts: u_i or the last w_i")

    def inert(self) -> str | None:
        if self.lam == 0 and self.start == "own":
            return "lambda = 0 with start = own never uses the cloud model: this is Local-only"
        return None

    def idle_settings(self) -> frozenset[str]:
        return frozenset({"self_weight"}) if self.attention == "norm" else frozenset()

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads:
        own = {i: server.memory.peek(i).get("model", server.weights) for i in cohort}
        attention = self._attention(server, own)
        clouds = {i: Sum() for i in cohort}
        for i, cloud in clouds.items():
            cloud.add(own[i], 1 - sum(attention[i].values()))
        for j in server.memory:
            if near := [i for i in cohort if attention[i].get(j)]:
                model = server.memory.peek(j)["model"]
                for i in near:
                    clouds[i].add(model, attention[i][j])
        return {i: Payload({"model": cloud.total()}) for i, cloud in clouds.items()}

    def welcome(self, server: Server, client: int) -> Steps:
        """A new client trains alone first, so that the others' models can be compared with its own."""
        trained: Replies = yield Ask("introduce", {client: Payload({"model": server.weights})})
        for i, reply in trained.items():
            server.memory[i]["model"] = reply["model"]
        return self.prepare(server, list(trained))

    def introduce(self, client: Client, payload: Payload) -> Payload:
        """Train alone, from the initial model."""
        client.load(payload["model"])
        client.train()
        return self.upload(client)

    def adapt(self, client: Client) -> None:
        client.train(toward=client.received, pull=self.lam / self.alpha)

    def fit(self, client: Client) -> None:
        if self.start == "own":
            client.load(client.state.get("model", {}))
        client.train(toward=client.received, pull=self.lam / self.alpha)
        if self.start == "own":
            client.state["model"] = select(client.weights(), client.shared)

    def finish(self, server: Server, replies: Replies) -> None:
        for i, reply in replies.items():
            server.memory[i]["model"] = reply["model"]

    def models(self, server: Server) -> dict[str, Weights]:
        return {}

    def _attention(self, server: Server, own: Mapping[int, Weights]) -> dict[int, dict[int, float]]:
        """xi_ij for every i of the cohort and every other j that has trained."""
        closeness: dict[int, dict[int, float]] = {i: {} for i in own}
        for j in server.memory:
            model = learned(server.memory.peek(j)["model"], server.network.statistics)
            for i, w_i in own.items():
                if i != j:
                    similar = cosine(model, w_i) if self.attention == "cosine" else -(norm(delta(model, w_i)) ** 2)
                    closeness[i][j] = similar
        scale = self._softmax if self.attention == "cosine" else self._kernel
        return {i: scale(row) for i, row in closeness.items()}

    def _kernel(self, closeness: Mapping[int, float]) -> dict[int, float]:
        xi = {j: self.alpha / self.sigma * math.exp(minus / self.sigma) for j, minus in closeness.items()}
        # Deviation: a sum above 1 would push u_i away from w_i; the paper assumes a small enough alpha.
        excess = max(1.0, sum(xi.values()))
        return {j: value / excess for j, value in xi.items()}

    def _softmax(self, closeness: Mapping[int, float]) -> dict[int, float]:
        if not closeness:
            return {}
        largest = max(closeness.values())
        weights = {j: math.exp(self.sigma * (value - largest)) for j, value in closeness.items()}
        rest = 1 - (1 / (len(weights) + 1) if self.self_weight is None else self.self_weight)
        total = sum(weights.values())
        return {j: rest * value / total for j, value in weights.items()}


FedAMP.card = Card(
    paper="Huang et al., Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI",
    year=2021,
    exchanged="the client's cloud model down, its model up",
    client_state="nothing; with start = own its model",
    server_state="the last model of every client, stored by row; in memory the cohort's and up to 64 MB of rows",
    cost="as FedAvg; on the server |cohort| x |clients| distances and a reading of all stored models, or two "
    "where they take more than 64 MB",
    limits=(
        "one client, or models much further apart than sqrt(sigma): Local-only, held near its own last model",
        "lambda = 0 and start = own: Local-only",
        "only attention = cosine is free of the scale of the weights: sigma must fit |w_i - w_j|^2",
        "at the defaults, those of pFedRLLA, a peer weighs at most alpha / sigma = 5 % and one at a distance of 1 "
        "nothing: networks then train almost as Local-only",
    ),
    deviations=(
        "where sum_j xi_ij > 1 the attention is scaled to sum to 1: the paper assumes an alpha small enough",
        "clients that have never trained attract no other client; in the paper every client takes part in every round",
        "a few epochs of SGD instead of the exact minimiser, so the start matters: u_i, or the client's own model",
    ),
    only_sums=False,
    keeps_models=True,
)
