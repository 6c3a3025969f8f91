"""The two sides of a federation as a method sees them: the server and one client."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fedtailor.learning import Batch, Objective, Score, Trace, TrainingSettings, descend, evaluate, features, train
from fedtailor.models import Network, Part
from fedtailor.packing import pack, restore, unpack
from fedtailor.payload import Payload
from fedtailor.streams import torch_stream
from fedtailor.weights import Weights, select


@dataclass(frozen=True)
class Moment:
    """Where in a run something happens; it names every random stream."""

    seed: int
    episode: int = 0
    round: int = 0  # counts from 1; 0 is before the first
    rounds: int = 0

    def stream(self, *names: int | str) -> torch.Generator:
        return torch_stream(self.seed, self.episode, self.round, *names)


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
        twin: Callable[[], Network],
        greedy: bool = False,
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
        self._data = data
        self._twin = twin
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
        return len(self.data("train")[1])

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
    ) -> Trace:
        """Train a part of the model on the client's data, by the run's settings unless said otherwise.

        Each call restarts the batch stream. A part is body, head, all, or names of tensors. ``toward`` and
        ``pull`` add a proximal term, ``correction`` a control variate; ``objective`` replaces the loss, ``step``
        what is done with a mini-batch, ``until`` when to stop (see `fedtailor.learning.train`); ``rows`` chooses
        some of the samples.
        """
        x, y = self.data("train") if rows is None else self._rows(rows)
        trace = train(
            self.network,
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
        )
        seen = self.trace.samples + trace.samples
        loss = self.trace.loss * self.trace.samples + trace.loss * trace.samples
        self.trace = Trace(self.trace.steps + trace.steps, seen, loss / seen if seen else 0.0)
        return trace

    @property
    def lr(self) -> float:
        """The learning rate of this round."""
        return self.training.lr_in(self.round, self.rounds)

    def twin(self, weights: Mapping[str, Tensor]) -> Network:
        """A second network with these weights, in evaluation mode, for methods that need two at once."""
        network = self._twin()
        network.load(weights)
        network.module.eval()
        return network

    def features(self, network: Network | None = None, batch_statistics: bool = False) -> Tensor:
        """The features of the training data under the present body, or that of a twin, as flat rows.

        In evaluation mode, or with ``batch_statistics`` normalised as in training.  # (samples, features)
        """
        return features(network or self.network, self.data("train")[0], batch_statistics).flatten(1)

    def _rows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self.data("train")
        if x.dim() == 4:  # gathering whole rows keeps images channels-last
            return x.permute(0, 2, 3, 1)[rows].permute(0, 3, 1, 2), y[rows]
        return x[rows], y[rows]

    def evaluate(self, split: Literal["train", "val"] = "val") -> Score:
        """Score the model on the client's training or validation data."""
        x, y = self.data(split)
        return evaluate(self.network, x, y, self.training.loss)


class Memory(Mapping[int, dict[str, Any]]):
    """What the server keeps per client, a row each: read when asked for, written only when changed."""

    def __init__(self, fetch: Callable[[int], bytes | None], known: set[int]):
        self._fetch = fetch
        self._known = known
        self.loaded: dict[int, dict[str, Any]] = {}

    def __getitem__(self, client: int) -> dict[str, Any]:
        """The client's row to read and change; empty at first."""
        if client not in self.loaded:
            self.loaded[client] = self.peek(client)
        return self.loaded[client]

    def peek(self, client: int) -> dict[str, Any]:
        """The client's row to look at only: it is not kept, so that going through many rows takes the memory of one."""
        if client in self.loaded:
            return self.loaded[client]
        data = self._fetch(client) if client in self._known else None
        return {} if data is None else unpack(data)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._known | {client for client, row in self.loaded.items() if row}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, client: object) -> bool:
        return client in self._known or bool(self.loaded.get(client))  # type: ignore[call-overload]

    def settle(self) -> None:
        """Forget what is loaded: the rows are stored now."""
        self._known |= {client for client, row in self.loaded.items() if row}
        self.loaded = {}

    def preview(self) -> "Memory":
        """The same rows, to be changed without consequences."""
        return Memory(lambda client: pack(self.peek(client)), set(self))


class Server:
    """The server of a federation. Only ``state`` and ``memory`` outlive a call."""

    def __init__(
        self,
        network: Network,
        sizes: tuple[int, ...],
        training: TrainingSettings,
        moment: Moment,
        shared: frozenset[str],
        memory: Memory,
        greedy: bool = False,
        largest_cohort: int | None = None,
    ):
        self.network = network
        self.initial: Weights = network.weights()
        self.sizes = sizes  # training samples of every client
        self.training = training
        self.moment = moment
        self.shared = shared
        self.memory = memory
        self.greedy = greedy
        self.largest_cohort = len(sizes) if largest_cohort is None else largest_cohort  # clients in a round, at most
        self.state: dict[str, Any] = {"model": select(self.initial, shared)}

    @property
    def clients(self) -> int:
        return len(self.sizes)

    @property
    def round(self) -> int:
        return self.moment.round

    @property
    def rounds(self) -> int:
        return self.moment.rounds

    @property
    def weights(self) -> Weights:
        """The shared part of the global model."""
        model: Weights = self.state["model"]
        return model

    @weights.setter
    def weights(self, weights: Mapping[str, Tensor]) -> None:
        self.state["model"] = dict(weights)

    def stream(self, purpose: str) -> torch.Generator:
        """The server's random stream for a purpose in this round; each call starts it afresh."""
        return self.moment.stream("server", purpose)

    def restore(self, stored: dict[str, Any]) -> None:
        """Go on from a stored state."""
        self.state = restore(self.state, stored)

    def preview(self, start: Callable[["Server"], None]) -> "Server":
        """A copy that decides greedily and whose changes have no consequences."""
        copy = Server(
            self.network,
            self.sizes,
            self.training,
            self.moment,
            self.shared,
            self.memory.preview(),
            greedy=True,
            largest_cohort=self.largest_cohort,
        )
        copy.initial = self.initial
        start(copy)
        copy.restore(unpack(pack(self.state)))
        return copy

    def at(self, **place: int) -> None:
        """Move to another round or episode."""
        self.moment = replace(self.moment, **place)


class Replies(Mapping[int, Payload]):
    """The answers of a cohort in the order of client ids, and why the others did not answer."""

    def __init__(self, answers: Mapping[int, Payload], failed: Mapping[int, str]):
        self._answers = dict(sorted(answers.items()))
        self.failed = dict(sorted(failed.items()))

    def __getitem__(self, client: int) -> Payload:
        return self._answers[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)
