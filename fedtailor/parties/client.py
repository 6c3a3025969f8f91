"""A client as a method sees it, in one task."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from fedtailor.learning import (
    Batch,
    FeatureCache,
    Objective,
    Score,
    Trace,
    TrainingSettings,
    descend,
    evaluate,
    features,
    train,
)
from fedtailor.messages.payload import Payload
from fedtailor.models import Network, Part
from fedtailor.parties.moment import Moment
from fedtailor.weights import Weights


class Client:
    """One client in one task. Only ``state`` (and the private part of the model) outlives the task.

    The model is in ``network``: the initial weights with the client's private part laid over them.
    Test data are out of reach.
    """

    def __init__(
        self,
        id: int,
        network: Network,
        data: Callable[[str], tuple[Tensor, Tensor]],
        training: TrainingSettings,
        moment: Moment,
        task: str,
        shared: frozenset[str],
        second_network: Callable[[], Network],
        greedy: bool = False,
        family_network: Callable[[str], Network] | None = None,
        statistics: Literal["averaged", "local", "reset"] = "averaged",
        samples: int | None = None,
        measured: bool = False,
    ):
        self.id = id
        self.network = network
        self.training = training
        self.moment = moment
        self.shared = shared  # names of the tensors that travel
        self.greedy = greedy  # whether decisions are final, not exploratory
        self.state: dict[str, Any] = {}
        self.payload = Payload()  # what the server sent in this task
        self.received: Weights = {}  # the whole model between receive and fit
        self.trace = Trace()  # of all trainings in this task
        self.spent = 0.0  # multiply-adds of this task that only the clock sees
        self.measured = measured  # whether the time of this task is measured, not computed
        self.statistics = statistics  # what becomes of running statistics
        self.family_networks: dict[str, Network] = {}  # those of the method's family that this task uses
        self.deployed = ""  # the name of that which the client would deploy; its own network without one
        self._cache = FeatureCache()
        self._data = data
        self._second_network = second_network
        self._family_network = family_network
        self._samples = samples
        self._task = task

    @property
    def round(self) -> int:
        return self.moment.round

    @property
    def rounds(self) -> int:
        return self.moment.rounds

    @property
    def samples(self) -> int:
        """The number n_i of training samples."""
        return len(self.data("train")[1]) if self._samples is None else self._samples

    def data(self, split: Literal["train", "val"]) -> tuple[Tensor, Tensor]:
        """The client's inputs and targets."""
        if split not in ("train", "val"):
            raise ValueError(f"a method has no access to {split!r} data")
        return self._data(split)

    def stream(self, purpose: str) -> torch.Generator:
        """The random stream of this client, task and purpose; each call starts it afresh."""
        return self.moment.stream(self.id, self._task, purpose)

    def weights(self, part: Part = "all") -> Weights:
        """A snapshot of the model, or of a part of it."""
        return self.network.weights(part)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Put these tensors into the model; the others stay."""
        self.network.load(weights)

    def train(
        self,
        part: Part | frozenset[str] = "all",
        *,
        epochs: int | None = None,
        steps: int | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        toward: Mapping[str, Tensor] | None = None,
        pull: float = 0.0,
        correction: Mapping[str, Tensor] | None = None,
        objective: Objective | None = None,
        step: Callable[[Batch], Tensor] = descend,
        until: Callable[[Sequence[float]], bool] | None = None,
        rows: Tensor | None = None,
        network: Network | None = None,
    ) -> Trace:
        """Train a part of the model on the client's data, by the run's settings unless said otherwise.

        Each call restarts the batch stream. A part is body, head, all, or names of tensors. ``toward`` and
        ``pull`` add a proximal term, ``correction`` a control variate; ``objective`` replaces the loss, ``step``
        what is done with a mini-batch, ``until`` when to stop (see `fedtailor.learning.train`); ``rows`` chooses
        some of the samples, ``network`` another network than the client's own.
        """
        x, y = self.data("train") if rows is None else self._rows(rows)
        trace = train(
            network or self.network,
            x,
            y,
            self.training,
            self.stream("batches"),
            lr=self.lr if lr is None else lr,
            part=part,
            epochs=epochs,
            steps=steps,
            batch_size=batch_size,
            toward=toward,
            pull=pull,
            correction=correction,
            objective=objective,
            step=step,
            until=until,
            cache=self._cache,
        )
        seen = self.trace.samples + trace.samples
        loss = self.trace.loss * self.trace.samples + trace.loss * trace.samples
        self.trace = Trace(self.trace.steps + trace.steps, seen, loss / seen if seen else 0.0)
        return trace

    @property
    def lr(self) -> float:
        """The learning rate of this round."""
        return self.training.lr_in(self.round, self.rounds)

    def spend(self, work: float) -> None:
        """Let the clock count multiply-adds that the simulation need not do; the others are counted by themselves."""
        self.spent += work

    def second_network(self, weights: Mapping[str, Tensor]) -> Network:
        """Return a second network with these weights, in evaluation mode, for methods that need two at once."""
        network = self._second_network()
        network.load(weights)
        network.module.eval()
        return network

    def network_of(self, name: str) -> Network:
        """A network of the method's family: with its initial weights, and within a task always the same one."""
        if name not in self.family_networks:
            assert self._family_network is not None
            self.family_networks[name] = self._family_network(name)
        return self.family_networks[name]

    def shared_of(self, name: str) -> frozenset[str]:
        """The names of its tensors that travel: all, but running statistics only if they are averaged."""
        network = self.network_of(name)
        return frozenset(network.names) - (network.statistics if self.statistics != "averaged" else frozenset())

    def deploy(self, name: str) -> None:
        """Say that the model this client would deploy, which is tested and exported, is that one of the family."""
        self.deployed = name

    @property
    def model(self) -> Network:
        """The network that the client would deploy."""
        return self.network_of(self.deployed) if self.deployed else self.network

    def features(self, network: Network | None = None, batch_statistics: bool = False) -> Tensor:
        """The features of the training data under the present body, or that of another network, as flat rows.

        In evaluation mode, or with ``batch_statistics`` normalised as in training.  # (samples, features)
        """
        return features(network or self.network, self.data("train")[0], batch_statistics).flatten(1)

    def _rows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self.data("train")
        if x.dim() == 4:  # gathering whole rows keeps images channels-last
            return x.permute(0, 2, 3, 1)[rows].permute(0, 3, 1, 2), y[rows]
        return x[rows], y[rows]

    def evaluate(self, split: Literal["train", "val"] = "val", network: Network | None = None) -> Score:
        """Score the model, or another network, on the client's training or validation data."""
        x, y = self.data(split)
        return evaluate(network or self.network, x, y, self.training.loss)
