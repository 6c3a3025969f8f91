"""The two sides of a federation as a method sees them: the server and one client."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from fedtailor.methods.clock import Clock, Duration
from fedtailor.models import Network, Part
from fedtailor.packing import pack, restore, unpack
from fedtailor.payload import Payload
from fedtailor.streams import seed_of, torch_stream
from fedtailor.weights import Weights, select


@dataclass(frozen=True)
class Moment:
    """Where in a run something happens; it names every random stream."""

    seed: int
    episode: int = 0
    round: int = 0  # counts from 1; 0 is before the first
    rounds: int = 0

    @property
    def network_seed(self) -> int:
        """Of the initial model, which every episode draws anew."""
        return seed_of(self.seed, self.episode, "network") if self.episode else self.seed

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
        relative: Callable[[str], Network] | None = None,
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
        self.relatives: dict[str, Network] = {}  # networks of the method's family that this task uses
        self.deployed = ""  # the name of that which the client would deploy; its own network without one
        self._cache = FeatureCache()
        self._data = data
        self._twin = twin
        self._relative = relative
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

    def twin(self, weights: Mapping[str, Tensor]) -> Network:
        """A second network with these weights, in evaluation mode, for methods that need two at once."""
        network = self._twin()
        network.load(weights)
        network.module.eval()
        return network

    def network_of(self, name: str) -> Network:
        """A network of the method's family: with its initial weights, and within a task always the same one."""
        if name not in self.relatives:
            assert self._relative is not None
            self.relatives[name] = self._relative(name)
        return self.relatives[name]

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
        """The features of the training data under the present body, or that of a twin, as flat rows.

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


class Memory(Mapping[int, dict[str, Any]]):
    """What the server keeps per client, a row each: read when asked for, written only when changed."""

    KEPT = 2**26  # bytes of rows that are kept for a second look in a round

    def __init__(self, fetch: Callable[[int], bytes | None], known: set[int]):
        self._fetch = fetch
        self._known = known
        self._seen: dict[int, dict[str, Any]] = {}  # rows that were only looked at
        self._room = self.KEPT
        self.loaded: dict[int, dict[str, Any]] = {}

    def __getitem__(self, client: int) -> dict[str, Any]:
        """The client's row to read and change; empty at first."""
        if client not in self.loaded:
            self.loaded[client] = self.peek(client)
        return self.loaded[client]

    def peek(self, client: int) -> dict[str, Any]:
        """The client's row to look at only: few are kept, so that going through many takes little memory."""
        for rows in (self.loaded, self._seen):
            if client in rows:
                return rows[client]
        data = self._fetch(client) if client in self._known else None
        row: dict[str, Any] = {} if data is None else unpack(data)
        if data is not None and len(data) <= self._room:
            self._seen[client], self._room = row, self._room - len(data)
        return row

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._known | {client for client, row in self.loaded.items() if row}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, client: object) -> bool:
        return client in self._known or bool(self.loaded.get(client))  # type: ignore[call-overload]

    def settle(self) -> None:
        """Forget what is loaded: the rows are stored now."""
        self._known |= {client for client, row in self.loaded.items() if row}
        self.loaded, self._seen, self._room = {}, {}, self.KEPT

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
        clock: Clock | None = None,
        family: Mapping[str, Network] | None = None,
    ):
        self.network = network
        self.family = dict(family or {})  # the method's other networks, with their initial weights
        self.initial: Weights = network.weights()
        self.sizes = sizes  # training samples of every client
        self.training = training
        self.moment = moment
        self.shared = shared
        self.memory = memory
        self.greedy = greedy
        self.largest_cohort = len(sizes) if largest_cohort is None else largest_cohort  # clients in a round, at most
        self._clock = clock
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
    def clock(self) -> Clock | None:
        """What tasks take on the clients' devices in this round; None where nothing is known of devices."""
        return None if self._clock is None else self._clock.at(self.moment)

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

    def adopt(self, parts: Mapping[str, Any]) -> None:
        """Take over some of a stored state; the rest stays as it is at the start."""
        self.state |= restore({key: self.state.get(key) for key in parts}, dict(parts))

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
            clock=self._clock,
            family=self.family,
        )
        copy.initial = self.initial
        start(copy)
        copy.restore(unpack(pack(self.state)))
        return copy

    def at(self, **place: int) -> None:
        """Move to another round or episode."""
        self.moment = replace(self.moment, **place)


class Replies(Mapping[int, Payload]):
    """The answers of a cohort in the order of client ids, and why the others did not answer.

    ``times`` is what this phase took every client that was not dropped, where there is a clock (else empty).
    """

    def __init__(
        self, answers: Mapping[int, Payload], failed: Mapping[int, str], times: Mapping[int, Duration] | None = None
    ):
        self._answers = dict(sorted(answers.items()))
        self.failed = dict(sorted(failed.items()))
        self.times = dict(sorted((times or {}).items()))

    def computed(self, client: int, work: float) -> float:
        """The seconds a client computed in this phase; without a clock its work, as if all devices were equal."""
        return self.times[client].compute if client in self.times else work

    def __getitem__(self, client: int) -> Payload:
        return self._answers[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)
