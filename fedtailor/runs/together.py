"""Whether clients train together: what ``training.together`` means for a run."""

from fedtailor.data import Federation
from fedtailor.engines import Job
from fedtailor.errors import UserError
from fedtailor.learning.tensors import inputs_of
from fedtailor.learning.together import dense_layers, most_together, slow, unfit
from fedtailor.methods import spec
from fedtailor.models import Network, build
from fedtailor.runs.cohort import largest_cohort
from fedtailor.runs.settings import Experiment

FEWEST_CLIENTS = 4  # in a round: two for each of two workers


def with_together(settings: Experiment, federation: Federation, device: str) -> tuple[Experiment, int]:
    """The experiment with ``on`` or ``off``, and how many clients a worker trains at once, at most.

    ``on`` is refused where it is impossible. ``auto`` depends on the experiment and its data only, never on workers
    or the machine.
    """
    if settings.training.together == "off":
        return settings, 1
    network = build(settings.model, inputs_of(federation.samples), settings.seed)
    reason = _impossible(settings, network, federation, device)
    if settings.training.together == "on" and reason:
        raise UserError(f"training.together = 'on': {reason}: use 'off'")
    layers = dense_layers(network.module)
    if settings.training.together == "auto":
        reason = reason or slow(layers, settings.training) or _few(settings, federation)
    training = settings.training.model_copy(update={"together": "off" if reason else "on"})
    return settings.model_copy(update={"training": training}), 1 if reason else most_together(layers)


def together_note(asked: Experiment, job: Job) -> str | None:
    """A sentence about what ``auto`` means in this run; otherwise None."""
    if asked.training.together != "auto":
        return None
    network = build(job.model, inputs_of(job.federation.samples), job.seed)
    layers = dense_layers(network.module)
    begin = f"training.together = 'auto' means {job.training.together!r} here: "
    if job.training.together == "on":
        widths = [layers[0].inputs, *(layer.outputs for layer in layers)]
        shape = f"linear layers {'-'.join(map(str, widths))}, batches of {job.training.batch_size}"
        return f"{begin}{shape}, up to {job.together} clients in a stack"
    reason = _impossible(asked, network, job.federation, job.device)
    return begin + (reason or slow(layers, asked.training) or _few(asked, job.federation))


def _impossible(settings: Experiment, network: Network, federation: Federation, device: str) -> str:
    """Why clients cannot train together; empty if they can."""
    method = settings.method
    if "fit" in method.changes or method.family(settings.model):
        return f"{method.name or spec(method)} has its own way to train"
    if settings.engine.kind == "flower":
        return "the clients of a federation train on machines of their own"
    if device != "cpu":
        return f"the device is {device}"
    if not federation.samples.classes:
        return "the targets are no classes"
    return unfit(network.module, settings.training)


def _few(settings: Experiment, federation: Federation) -> str:
    """Why there is nothing to gain in this federation; empty if there is."""
    if (most := largest_cohort(settings, federation.clients)) < FEWEST_CLIENTS:
        return f"a round has {most} clients, fewer than {FEWEST_CLIENTS}"
    return ""
