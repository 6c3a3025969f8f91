from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtailor.messages.payload import Payload
from fedtailor.methods.base import Card, Method, Payloads
from fedtailor.methods.clustering import choose, cut, similarity, ward
from fedtailor.parties import Ask, Client, Replies, Server, State, Steps
from fedtailor.weights import Weights, cosine, delta, learned, mean, norm, select


class FedALP(Method):
    """Clusters clients into groups and mixes each group's model with the global one by layer (Xie et al., 2022).

    Exchanged: the model W of the client's group down (before there are groups the global model), its model up.
    Client: E epochs of SGD from the received model; the change is dw_k.
    Server: T_pre rounds of FedAvg. Then Ward's clustering of the clients by rho_ij = cos(dw_i, dw_j) (eqs. 3-4), and
    per group m and layer l the weight Psi_m^l = beta |D_m^l| / max_l |D_m^l| with D_m = sum_k gamma_k dw_k (eqs. 5-8).
    From then on W^l = Psi_m^l w_m^l + (1 - Psi_m^l) w_g^l (eq. 9), w_m += sum_k gamma_k dw_k over the group's clients
    of the round, and w_g += sum_k n_k / n dw_k over all of them. All w_m start as w_g.
    """

    name: ClassVar = "fedalp"

    beta: float = Field(
        0.6, ge=0, le=1, description="personalisation: Psi of a group's most changed layer; 0 is FedAvg"
    )
    groups: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = Field(
        "auto", description="number M of groups; 1 is FedAvg; auto: the best of 2 to 50 by the criterion `choose`"
    )
    choose: Literal["silhouette", "gap"] = Field(
        "silhouette",
        description="criterion of groups = auto: the largest mean silhouette, or the largest gap in the tree",
    )
    warmup: float = Field(
        0.5,
        gt=0,
        le=1,
        description="T_pre as a share of T (the paper: 0.4 to 0.7), from one round to one less than T; 1 is FedAvg",
    )
    ward: Literal["rows", "condensed"] = Field(
        "rows",
        description="input of Ward's clustering: rows of rho (as Fraboni et al.), or condensed distances 1 - rho",
    )

    def inert(self) -> str | None:
        if self.beta == 0:
            return "beta = 0 fuses nothing of the groups' models: this is FedAvg"
        if self.warmup == 1:
            return "warmup = 1 ends before there are groups: this is FedAvg"
        return "groups = 1 has a single group: this is FedAvg" if self.groups == 1 else None

    def total(self) -> str | None:
        return "its warm-up is a share of all rounds" if self.warmup < 1 else None

    def t_pre(self, rounds: int) -> int:
        """The number of warm-up rounds."""
        return rounds if self.warmup == 1 else max(1, min(rounds - 1, int(self.warmup * rounds + 0.5)))

    def start_server(self, server: Server) -> None:
        server.state["groups"], server.state["clustering"] = Groups(), Clustering()

    # Algorithm 1, with its line numbers; line 8 is the default

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads:
        member = _groups(server).member
        present = sorted({member[k] for k in cohort if k in member})
        fused = {m: Payload({"model": _mix_by_layer(server, m)}) for m in present}  # 6
        # For all clients in the warm-up; later (a deviation) for those that were absent when the groups were formed.
        unfused = Payload({"model": server.weights})
        return {k: fused[member[k]] if k in member else unfused for k in cohort}  # 7

    def welcome(self, server: Server, client: int) -> Steps:
        """A new client joins the group whose D_m has the largest cosine with its update of w_g."""
        groups, unfused = _groups(server), Payload({"model": server.weights})
        if not groups.models:
            return {client: unfused}
        probed: Replies = yield Ask("probe", {client: unfused})
        for k, reply in probed.items():
            groups.member[k] = _nearest(server, _change(server, reply, server.weights))[0]
        return self.prepare(server, list(probed))

    def finish(self, server: Server, replies: Replies) -> Steps:
        if _groups(server).member:
            self._train_groups(server, replies)
            return
        before = server.weights
        super().finish(server, replies)  # 1
        # If no client answers in round T_pre, a later round forms the groups.
        if self.warmup < 1 and server.round >= self.t_pre(server.rounds):
            absent = set(range(server.clients)) - set(replies) - set(replies.failed)
            asked: Replies = yield Ask("probe", dict.fromkeys(sorted(absent), Payload({"model": before})))
            self._form_groups(server, dict(sorted({**replies, **asked}.items())), before)  # 2, 3

    def _train_groups(self, server: Server, replies: Replies) -> None:
        """Update the models with the clients that answered; a group without replies is left unchanged."""
        w_g, groups = server.weights, _groups(server)
        fused = [_mix_by_layer(server, m) for m in range(len(groups.models))]
        sent = {k: fused[groups.member[k]] if k in groups.member else w_g for k in replies}
        changes = {k: _change(server, reply, sent[k]) for k, reply in replies.items()}  # 9
        for m, w_m in enumerate(groups.models):
            if present := {k: reply for k, reply in replies.items() if groups.member.get(k) == m}:
                groups.models[m] = _moved(server, w_m, present, changes)  # 10
        server.weights = _moved(server, w_g, replies, changes)  # 11
        for k in [k for k in replies if k not in groups.member]:
            # Deviation: its first update counts for w_g only, since it did not start from a group's model.
            groups.member[k], closeness = _nearest(server, changes[k])
            groups.joined.append(Joined(server.round, k, groups.member[k], closeness))

    # Algorithm 2, with its line numbers

    def _form_groups(self, server: Server, replies: Mapping[int, Payload], before: Weights) -> None:
        """Form the groups and the weights of their layers. The state keeps everything that they are computed from."""
        updates = {k: _change(server, reply, before) for k, reply in replies.items()}
        clients = list(updates)
        rho = similarity([updates[k] for k in clients])  # 1, eqs. 3-4; (clients, clients)
        tree = ward(rho, self.ward) if len(clients) > 1 else torch.zeros(0, 4)  # 1
        if self.groups == "auto":
            count, scores = choose(rho, tree, self.choose)
        else:
            count, scores = min(self.groups, len(clients)), {}
        numbers = cut(tree, count) if count > 1 else [0] * len(clients)  # 2
        members = [[k for k, number in zip(clients, numbers, strict=True) if number == m] for m in range(count)]
        means = [server.average({k: replies[k] for k in group}, values=updates) for group in members]  # 4, eq. 5
        psi = torch.stack([self._layers_weight(server, change) for change in means])  # 5; (groups, layers)
        chosen = f"by {self.choose}" if self.groups == "auto" else "by the settings"
        server.state["clustering"] = Clustering(
            server.round, clients, rho, tree, chosen, scores, means, psi, list(server.network.layers)
        )
        member = {k: m for m, group in enumerate(members) for k in group}
        server.state["groups"] = Groups(member, [server.weights] * count)  # 3 of Algorithm 1

    def _layers_weight(self, server: Server, change: Weights) -> Tensor:
        """Psi_m of a group with mean update D_m, eqs. 6-8; zeros if nothing has changed.  # float64 (layers,)"""
        layers = server.network.layers.values()  # 1
        lengths = torch.tensor([norm(select(change, names)) for names in layers], dtype=torch.float64)  # 2-4
        return self.beta * lengths / lengths.max() if lengths.max() > 0 else lengths  # 5

    # Beside the algorithms

    def probe(self, client: Client, payload: Payload) -> Payload:
        """The reply that the client would send if it were in the cohort; the client does not change."""
        kept = client.weights()
        self.receive(client, payload)
        self.fit(client)
        reply = self.upload(client)
        client.load(kept)
        return reply

    def models(self, server: Server) -> dict[str, Weights]:
        groups = range(len(_groups(server).models))
        # Deviation: W, the model that is trained, tested and used; the paper's output is w_m.
        return super().models(server) | {f"group/{m}": {**server.initial, **_mix_by_layer(server, m)} for m in groups}


@dataclass
class Joined(State):
    """A client that joined a group after the groups were formed."""

    round: int
    client: int
    group: int
    cosine: float


@dataclass
class Groups(State):
    """The groups of clients; empty in the warm-up."""

    member: dict[int, int] = field(default_factory=dict)  # client: group
    models: list[Weights] = field(default_factory=list)  # w_m
    joined: list[Joined] = field(default_factory=list)


@dataclass
class Clustering(State):
    """How the groups were formed; it does not change after that."""

    round: int = 0
    clients: list[int] = field(default_factory=list)  # the clients of the rows of similarity and linkage
    similarity: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # rho
    linkage: Tensor = field(default_factory=lambda: torch.zeros(0, 4))
    chosen: str = ""  # the criterion that chose the number of groups
    scores: dict[int, float] = field(default_factory=dict)  # score of each number of groups that was tried
    updates: list[Weights] = field(default_factory=list)  # D_m
    psi: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # (groups, layers)
    layers: list[str] = field(default_factory=list)


def _groups(server: Server) -> Groups:
    groups: Groups = server.state["groups"]
    return groups


def _clustering(server: Server) -> Clustering:
    clustering: Clustering = server.state["clustering"]
    return clustering


def _mix_by_layer(server: Server, m: int) -> Weights:
    """MixByLayer of Algorithm 1: in W, each layer's share of the group's model is Psi_m^l (eq. 9)."""
    w_m, w_g, psi = _groups(server).models[m], server.weights, _clustering(server).psi[m].tolist()
    fused: Weights = {}
    for share, names in zip(psi, server.network.layers.values(), strict=True):  # 1
        fused |= mean([select(w_m, names), select(w_g, names)], [share, 1 - share])  # 2
    return {name: fused[name] for name in w_g}


def _nearest(server: Server, update: Weights) -> tuple[int, float]:
    """The group whose mean update D_m has the largest cosine with an update, and that cosine."""
    closeness = [cosine(update, change) for change in _clustering(server).updates]
    return closeness.index(max(closeness)), max(closeness)


def _change(server: Server, reply: Payload, before: Weights) -> Weights:
    """dw_k: the change by training, without running statistics."""
    return delta(learned(reply["model"], server.network.statistics), before)


def _moved(server: Server, w: Weights, replies: Mapping[int, Payload], changes: Mapping[int, Weights]) -> Weights:
    """w + sum_k gamma_k dw_k; running statistics could become negative in this way, so they are averaged."""
    step = server.average(replies, values=changes)
    statistics = server.average(replies, names=w.keys() - step.keys())
    moved = {name: w[name] + change for name, change in step.items()} | statistics
    return {name: moved[name] for name in w}


FedALP.card = Card(
    paper="Xie et al., FedALP: An Adaptive Layer-Based Approach for Improved Personalized Federated Learning",
    year=2022,
    exchanged="the group's fused model down, the model up; in round T_pre every client outside the cohort too",
    server_state="the global model; a model, a mean update and the layers' weights Psi for each group; the "
    "group of each client; the similarities and Ward's tree they come from",
    cost="as FedAvg; in round T_pre every client trains once, at any participation",
    limits=(
        "beta = 0, one group or warmup = 1: FedAvg's global model",
        "beta = 1: in each group the layer with the largest change is the group's own, without a share of w_g",
        "the clustering holds one update of every client in memory at once and compares all pairs",
        "the local figure of the paper is `received`, the fused W: on clients with one label `held` and `final` "
        "are near 100 % for any method that trains locally",
    ),
    deviations=(
        "gamma_k is normalised over those of the group that answered, and the global model moves by the mean "
        "change of all that answered, which at full participation is the paper's mean of the w_m; so beta = 0 is "
        "FedAvg under any participation",
        "W is fused from the latest w_m and w_g; the indices of line 6 of Alg. 1 differ by one round",
        "groups = auto: the paper does not say how M is chosen",
        "a client without an update in round T_pre receives w_g, and joins the group whose D_m has the largest "
        "cosine with its first update after that",
        "running statistics, which the paper's networks do not have, are averaged over the group, over the "
        "cohort, and fused as their layer is; they do not count for rho and Psi",
        "a group's model that is tested and exported is W, which its clients use; the paper's output is w_m",
    ),
    only_sums=False,
)
