from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedtailor.messages.payload import Payload, Rejected
from fedtailor.methods.base import Card, Method, Payloads
from fedtailor.methods.ifca import choose_cluster
from fedtailor.models import Network
from fedtailor.parties import Client, Range, Replies, Schema, Server, State
from fedtailor.weights import Weights, cosine, delta, learned, norm


class CFL(Method):
    """FedAvg that splits a cluster of clients when their updates disagree (Sattler et al., 2021).

    Exchanged: the model of the client's cluster down, its model up.
    Client: E epochs of SGD from the received model.
    Server: FedAvg inside each cluster. If |sum_i n_i / n dw_i| < eps1 and max_i |dw_i| > eps2, the model of the cluster
    is stationary but suits some clients badly. The cluster is then split in two by the cosine similarity of the
    updates dw_i, such that the largest similarity a across the groups is small, if sqrt((1 - a) / 2) > gamma.
    """

    name: ClassVar = "cfl"

    eps1: float = Field(
        0.4, ge=0, le=1e6, description="a cluster with a shorter mean update is stationary; 0 never splits"
    )
    eps2: float = Field(1.6, ge=0, le=1e6, description="a client with a longer update is not at its optimum")
    relative: bool = Field(False, description="eps1 and eps2 are relative to the longest mean update so far")
    gamma: float = Field(0.0, ge=0, le=1, description="smallest sqrt((1 - a) / 2) worth a split; 0 takes every split")
    linkage: Literal["complete", "single"] = Field(
        "complete", description="linkage of the clustering by 1 - cosine, which is cut into two groups"
    )
    quorum: float = Field(1.0, gt=0, le=1, description="share of a cluster's members that must answer to split it")

    def inert(self) -> str | None:
        return "eps1 = 0 never splits: this is FedAvg" if self.eps1 == 0 else None

    def idle_settings(self) -> frozenset[str]:
        return frozenset({"eps2", "relative", "gamma", "linkage", "quorum"}) if self.eps1 == 0 else frozenset()

    def start_server(self, server: Server) -> None:
        server.state["clusters"] = Clusters([server.weights], dict.fromkeys(range(server.clients), 0))

    def prepare(self, server: Server, cohort: Sequence[int]) -> Payloads:
        clusters: Clusters = server.state["clusters"]
        own = [Payload({"model": model}) for model in clusters.models]
        every = Payload({f"cluster/{c}": model for c, model in enumerate(clusters.models)})
        return {i: own[clusters.member[i]] if i in clusters.member else every for i in cohort}

    def receive(self, client: Client, payload: Payload) -> None:
        if "model" in payload.groups:
            super().receive(client, payload)
        else:
            # Deviation: in the paper the client follows its updates down the tree of splits, one split per round.
            client.state["cluster"] = choose_cluster(client, payload)

    def upload(self, client: Client) -> Payload:
        reply = super().upload(client)
        chosen = {"cluster": client.state["cluster"]} if "cluster" in client.state else {}
        return Payload(reply.groups, {**reply.numbers, **chosen})

    def reply_schema(self, network: Network, shared: frozenset[str]) -> Schema:
        chosen = {"cluster": Range(0, whole=True, optional=True)}
        return super().reply_schema(network, shared).extended(numbers=chosen)

    def check_reply(self, server: Server, client: int, reply: Payload, question: str = "") -> None:
        clusters: Clusters = server.state["clusters"]
        if client not in clusters.member and not reply.number("cluster") < len(clusters.models):
            raise Rejected(f"there is no cluster {reply.number('cluster')}")

    def finish(self, server: Server, replies: Replies) -> None:
        clusters: Clusters = server.state["clusters"]
        for i, reply in replies.items():
            if i not in clusters.member:
                clusters.member[i] = int(reply.number("cluster"))
        for c, before in enumerate(list(clusters.models)):
            if present := {i: reply for i, reply in replies.items() if clusters.member[i] == c}:
                remaining, *split_off = self._split(server, c, present, before)
                clusters.models[c] = server.average({i: replies[i] for i in remaining})
                for group in split_off:
                    clusters.member.update(dict.fromkeys(group, len(clusters.models)))
                    clusters.models.append(server.average({i: replies[i] for i in group}))

    def models(self, server: Server) -> dict[str, Weights]:
        return {f"cluster/{c}": {**server.initial, **model} for c, model in enumerate(server.state["clusters"].models)}

    def _split(self, server: Server, c: int, present: Mapping[int, Payload], before: Weights) -> list[list[int]]:
        """Group the clients that answered: one group, or two after a split, which is recorded."""
        clusters: Clusters = server.state["clusters"]
        clients = list(present)
        members = [i for i, cluster in clusters.member.items() if cluster == c]
        updates = {i: delta(learned(reply["model"], server.network.statistics), before) for i, reply in present.items()}
        together = norm(server.average(present, values=updates))
        clusters.longest = max(clusters.longest, together)
        unit = clusters.longest if self.relative else 1.0
        restless = together < self.eps1 * unit and max(map(norm, updates.values())) > self.eps2 * unit
        if not restless or len(clients) < 2 or len(clients) < self.quorum * len(members):
            return [clients]
        similar = np.array([[cosine(one, other) for other in updates.values()] for one in updates.values()])
        sides = self._bipartition(similar)
        across = float(max(similar[a, b] for a in sides[0] for b in sides[1]))
        if np.sqrt((1 - across) / 2) <= self.gamma:
            return [clients]
        groups = [[clients[k] for k in side] for side in sides]
        absent = sorted(set(members) - set(clients))
        for i in absent:
            del clusters.member[i]
        clusters.splits.append(Split(server.round, c, groups, absent, across))
        return groups

    def _bipartition(self, similar: Any) -> list[list[int]]:
        """Cut into two groups of positions; the first group holds the first position."""
        from scipy.cluster.hierarchy import linkage, to_tree  # which every worker would wait for
        from scipy.spatial.distance import squareform

        # the condensed form: scipy treats a square matrix as observations
        distances = squareform(1 - similar, checks=False)
        root = to_tree(linkage(distances, self.linkage))
        return sorted(sorted(side.pre_order()) for side in (root.left, root.right))


@dataclass
class Split(State):
    """The record of a split."""

    round: int
    cluster: int
    groups: list[list[int]]
    absent: list[int]  # members that did not answer in that round
    similarity: float  # largest similarity across the two groups


@dataclass
class Clusters(State):
    """The clusters, and the splits that made them."""

    models: list[Weights]
    member: dict[int, int]  # client: cluster
    splits: list[Split] = field(default_factory=list)
    longest: float = 0.0  # length of the longest mean update so far


CFL.card = Card(
    paper="Sattler et al., Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization "
    "Under Privacy Constraints, IEEE TNNLS",
    year=2021,
    exchanged="the cluster's model down, the model up; all clusters' models down to a client without a cluster",
    client_state="nothing, or the number of the cluster that it chose",
    server_state="a model for each cluster, the cluster of each client, and the splits so far",
    cost="as FedAvg; a client without a cluster also evaluates every cluster's model",
    limits=(
        "before the first split, or eps1 = 0: FedAvg",
        "full participation is intended: with quorum = 1 a cluster splits only in a round in which all of its "
        "members answered, so under partial participation this is FedAvg",
    ),
    deviations=(
        "complete linkage, the usual form; with linkage = single the bipartition minimises the largest similarity "
        "across the groups",
        "with quorum < 1 members that were absent at a split, and clients that join later, choose the cluster of "
        "lowest training loss, as in IFCA; the paper sends them down the tree of splits",
        "eps1 and eps2 may be relative to the largest mean update so far, since absolute ones depend on the model",
    ),
    only_sums=False,
)
