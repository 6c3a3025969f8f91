"""A worker in which single clients take single rounds."""

from torch import Tensor

from fedtailor.data import DataSettings, build
from fedtailor.engines import Job, Result, Task
from fedtailor.engines.worker import Worker
from fedtailor.learning import TrainingSettings
from fedtailor.messages.trees import unpack
from fedtailor.methods import Method, Moment, Payload
from fedtailor.models import ModelSettings


class Bench:
    """A worker in which clients take their rounds one by one, each from where it left off."""

    def __init__(self, method: Method, model: ModelSettings | None = None, epochs: int = 1, batch_size: int = 10):
        federation = build(DataSettings.model_validate({"clients": 4, "samples": 200}), 0)
        training = TrainingSettings(lr=0.05, epochs=epochs, batch_size=batch_size)
        self.worker = Worker(Job(method, model or ModelSettings(), training, 0, federation))
        self.network, self.initial = self.worker.network, self.worker.initial
        self.states: dict[int, bytes | None] = {}

    def round(self, client: int, round: int = 1, weights: dict[str, Tensor] | None = None) -> Result:
        """Receive the initial weights, or these, and train."""
        given = self.initial if weights is None else weights
        payload = Payload({"model": {n: t for n, t in given.items() if n in self.worker.shared}}).pack()
        task = Task("fit", 0, Moment(0, round=round, rounds=3), client, payload, self.states.get(client))
        result = self.worker.execute(task)
        assert result.failure is None, result.details
        self.states[client] = result.state
        return result

    def private(self, client: int) -> dict[str, Tensor]:
        state = self.states[client]
        return unpack(state)["private"] if state else {}

    def moved(self) -> dict[str, Tensor]:
        """Other weights than the initial ones."""
        return {n: t + 0.1 if t.is_floating_point() else t for n, t in self.initial.items()}


RESNET = ModelSettings(name="resnet18-bn", arguments={"width": 2})
