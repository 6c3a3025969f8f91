"""A client as a method sees it, in one task."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from fedtailor.learning import (
    Criterion,
    FeatureCache,
    Score,
    Trace,
    TrainingSettings,
    TrainOptions,
    evaluate,
    features,
    keywords_of,
    train,
)
from fedtailor.learning.precision import computing
from fedtailor.messages.payload import Payload
from fedtailor.models import Network, Part
from fedtailor.parties.moment import Moment
from fedtailor.weights import Weights


@dataclass(frozen=True, kw_only=True)
class ClientTrainOptions(TrainOptions):
    """The keywords of ``client.train``: those of `TrainOptions`, and two more.

    Parameters
    ----------
    rows
        Indices of the training samples to use; all by default.
    network
        The network to train; the client's own by default.
    """

    rows: Tensor | None = None
    network: Network | None = None


class Client:
    """One client in one task. Only ``state`` and the private part of the model outlive the task.

    At the start of a task the model holds the initial weights and the client's private part. A method has no access
    to test data.

    Attributes
    ----------
    id, name : int, str
        The client's number and name.
    state : dict[str, Any]
        What the client keeps between tasks. It may hold the same values as ``server.state``; ``start_client`` builds
        the objects in it.
    network : Network
        The client's model.
    payload : Payload
        What the server sent in this task.
    received : Weights
        The whole model after ``receive`` and before ``fit``.
    shared : frozenset[str]
        The names of the tensors that are exchanged.
    trace : Trace
        Steps, samples and loss of all trainings in this task.
    greedy : bool
        Whether decisions are greedy instead of exploratory.

    Examples
    --------
    >>> def fit(self, client: Client) -> None:
    ...     client.train("head", epochs=5)
    ...     client.train("body")
    ...     client.state["head"] = client.weights("head")
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
        name: str = "",
    ):
        self.id = id
        self.name = name or f"client-{id}"
        self.network = network
        self.training = training
        self.moment = moment
        self.shared = shared  # names of the tensors that are exchanged
        self.greedy = greedy  # whether decisions are greedy instead of exploratory
        self.state: dict[str, Any] = {}
        self.payload = Payload()  # what the server sent in this task
        self._received: Callable[[], Weights] = dict
        self.trace = Trace()  # sums over all trainings in this task
        self.spent = 0.0  # multiply-adds that the clock counts although the simulation does not do them
        self.measured = measured  # whether the time of this task is measured instead of computed
        self.statistics = statistics  # how running statistics are treated: averaged, local or reset
        self.family_networks: dict[str, Network] = {}  # networks of the method's family that this task uses
        self.deployed = ""  # name of the family's network that the client would deploy; empty: its own network
        self._cache = FeatureCache()
        self._data = data
        self._second_network = second_network
        self._family_network = family_network
        self._samples = samples
        self._task = task

    @cached_property
    def received(self) -> Weights:
        """The whole model after ``receive`` and before ``fit``."""
        return self._received()

    def on_received(self, copy: Callable[[], Weights]) -> None:
        """Have ``received`` made by a function when a method first reads it. The engine calls this, methods do not.

        Parameters
        ----------
        copy : callable
            Returns the weights that the client received.
        """
        self._received = copy
        self.__dict__.pop("received", None)

    @property
    def round(self) -> int:
        """The number of this round, from 1."""
        return self.moment.round

    @property
    def rounds(self) -> int:
        """The number of rounds of the run."""
        return self.moment.rounds

    @property
    def samples(self) -> int:
        """The number n_i of training samples."""
        return len(self.data("train")[1]) if self._samples is None else self._samples

    def data(self, split: Literal["train", "val"]) -> tuple[Tensor, Tensor]:
        """The client's inputs and targets.

        Parameters
        ----------
        split : {"train", "val"}
            The part of the data. A method has no access to test data.

        Returns
        -------
        tuple of Tensor
            The inputs, pre-processed, and the targets.

        Examples
        --------
        >>> x, y = client.data("train")
        >>> len(x) == len(y) == client.samples
        True
        """
        if split not in ("train", "val"):
            raise ValueError(f"a method has no access to {split!r} data")
        return self._data(split)

    def stream(self, purpose: str) -> torch.Generator:
        """The random stream of this client, task and purpose; each call restarts it.

        Parameters
        ----------
        purpose : str
            A name; streams of different purposes are independent.

        Returns
        -------
        torch.Generator
            A new generator at the start of the stream.

        Examples
        --------
        >>> order = torch.randperm(client.samples, generator=client.stream("order"))
        """
        return self.moment.stream(self.id, self._task, purpose)

    def weights(self, part: Part = "all") -> Weights:
        """A snapshot of the model, or of a part of it.

        Parameters
        ----------
        part : {"all", "body", "head", "adapter"} or names of tensors
            The tensors to copy.

        Returns
        -------
        dict of str to Tensor
            The tensors by name; later training does not change them.

        Examples
        --------
        >>> head = client.weights("head")
        """
        return self.network.weights(part)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Load these tensors into the model; the others stay unchanged.

        Parameters
        ----------
        weights : mapping of str to Tensor
            Some or all tensors of the model.

        Examples
        --------
        >>> client.load(client.received)
        """
        self.network.load(weights)

    @keywords_of(ClientTrainOptions)
    def train(self, options: ClientTrainOptions) -> Trace:
        """Train the model, or a part of it, on the client's data with the run's settings and these options.

        The keywords are the fields of `ClientTrainOptions`. Each call restarts the batch stream.

        Returns
        -------
        Trace
            Steps, samples and mean loss of this training; ``client.trace`` covers all trainings of the task.

        Examples
        --------
        >>> trace = client.train("head", epochs=5)
        >>> trace = client.train(toward=client.received, pull=0.1)
        """
        if options.lr is None:
            options = replace(options, lr=self.lr)
        x, y = self.data("train") if options.rows is None else self._rows(options.rows)
        network = options.network or self.network
        trace = train(network, x, y, self.training, self.stream("batches"), options, self._cache, self.criterion)
        seen = self.trace.samples + trace.samples
        loss = self.trace.loss * self.trace.samples + trace.loss * trace.samples
        self.trace = Trace(self.trace.steps + trace.steps, seen, loss / seen if seen else 0.0)
        return trace

    @cached_property
    def criterion(self) -> Criterion:
        """The run's loss, for `fedtailor.learning.objectives.mean_loss`; weights are those of this client's classes."""
        return Criterion.of(self.training, self.data("train")[1])

    @property
    def lr(self) -> float:
        """The learning rate of this round."""
        return self.training.lr_in(self.round, self.rounds)

    def spend(self, work: float) -> None:
        """Add multiply-adds that the simulation skips to the work of this task. Executed ones are counted anyway.

        Parameters
        ----------
        work : float
            The number of multiply-adds.

        Examples
        --------
        >>> client.spend(1e6)
        """
        self.spent += work

    def second_network(self, weights: Mapping[str, Tensor]) -> Network:
        """Return a second network with these weights, in evaluation mode, for methods that need two at once.

        Parameters
        ----------
        weights : mapping of str to Tensor
            The weights to load.

        Returns
        -------
        Network
            The same network at every call, so that only its latest weights count.

        Examples
        --------
        >>> teacher = client.second_network(client.received)
        """
        network = self._second_network()
        network.load(weights)
        network.module.eval()
        return network

    def network_of(self, name: str) -> Network:
        """A network of the method's family. At the first call in a task it has its initial weights.

        Parameters
        ----------
        name : str
            A name in ``method.family``.

        Returns
        -------
        Network
            The network.
        """
        if name not in self.family_networks:
            assert self._family_network is not None
            self.family_networks[name] = self._family_network(name)
        return self.family_networks[name]

    def shared_of(self, name: str) -> frozenset[str]:
        """The names of a family network's exchanged tensors: all, but running statistics only if they are averaged.

        Parameters
        ----------
        name : str
            A name in ``method.family``.

        Returns
        -------
        frozenset of str
            The names.
        """
        network = self.network_of(name)
        return frozenset(network.names) - (network.statistics if self.statistics != "averaged" else frozenset())

    def deploy(self, name: str) -> None:
        """Declare which network of the family this client would deploy. That network is tested and exported.

        Parameters
        ----------
        name : str
            A name in ``method.family``.
        """
        self.deployed = name

    @property
    def model(self) -> Network:
        """The network that the client would deploy."""
        return self.network_of(self.deployed) if self.deployed else self.network

    def features(self, network: Network | None = None, batch_statistics: bool = False) -> Tensor:
        """The features of the training data as flat rows, in evaluation mode.  # (samples, features)

        Parameters
        ----------
        network
            The network to use; the client's own by default.
        batch_statistics
            Whether layers normalise by batch statistics, as in training.

        Returns
        -------
        Tensor
            A row for each training sample.

        Examples
        --------
        >>> len(client.features()) == client.samples
        True
        """
        return features(network or self.network, self.data("train")[0], batch_statistics).flatten(1)

    def _rows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self.data("train")
        if x.dim() == 4:  # gathering whole rows keeps images channels-last
            return x.permute(0, 2, 3, 1)[rows].permute(0, 3, 1, 2), y[rows]
        return x[rows], y[rows]

    def evaluate(self, split: Literal["train", "val"] = "val", network: Network | None = None) -> Score:
        """Evaluate the model, or another network, on the client's training or validation data.

        Parameters
        ----------
        split : {"train", "val"}
            The part of the data.
        network : Network, optional
            The network to evaluate; the client's own by default.

        Returns
        -------
        Score
            Counts of correct predictions and of samples, and the sum of losses.

        Examples
        --------
        >>> score = client.evaluate("val")
        >>> accuracy = score.correct / max(score.samples, 1)
        """
        x, y = self.data(split)
        network = network or self.network
        with computing(network, self.training.precision):
            return evaluate(network, x, y, self.criterion)
