"""What would leave a node, without a connection: ``fedtailor join --dry-run``."""

from collections.abc import Iterator

from fedtailor.data import DataSettings, Samples
from fedtailor.data.federation import one_client
from fedtailor.data.readers import Roles
from fedtailor.data.roster import Entry
from fedtailor.errors import UserError
from fedtailor.flower.node.policy import Policy
from fedtailor.flower.node.sources import load_data
from fedtailor.learning.tensors import inputs_of
from fedtailor.methods import catalogue
from fedtailor.models import ModelSettings, Network, build
from fedtailor.parties import Tensors
from fedtailor.runs.environment import environment


def what_leaves(data: str, roles: Roles, policy: Policy) -> Iterator[str]:
    """Say what a node with these data would send: its description, replies and scores.

    The coordinator chooses the split, the method and the model. The lines below are for the default ones, and for
    every method that the owner names, or for all.
    """
    samples, rows = load_data(data, roles)
    settings = DataSettings()
    entry = Entry.of("this node", one_client(samples, rows, settings, 0, False), environment(), settings.preprocess)
    yield "nothing was sent; this would leave the machine with the default split and model:"
    yield f"once: numbers of samples: {entry.train} to train, {entry.val} to validate, {entry.test} to test"
    yield f"once: the shape of an input {entry.shape} and its type {entry.dtype}"
    if entry.classes:
        yield f"once: the names of {len(entry.classes)} classes: {', '.join(entry.classes)}"
    for name, categories in entry.columns:
        yield f"once: the column {name}" + (f", its categories {', '.join(categories)}" if categories else "")
    if entry.summary is not None:
        yield "once: sums of the training samples for pre-processing: counts, sums and squares of each column"
    yield "once: a keyed digest of the data, and the versions " + ", ".join(entry.environment)
    yield from _replies(samples, policy)
    yield "every evaluated round: how many test samples are classified correctly, the loss, and other measures"
    yield "at the end: the score of the personal model; the model, the data and all states stay here"


def _replies(samples: Samples, policy: Policy) -> Iterator[str]:
    """A line for the replies of each method."""
    network = build(ModelSettings(), inputs_of(samples), 0)
    for name, kind in sorted(catalogue().items()):
        if (policy.methods and name not in policy.methods) or (not policy.peers and kind.may_show_peers()):
            continue
        try:
            method = kind()
            schema = method.reply_schema(network, method.shared(network))
        except (UserError, ValueError):
            yield f"every round of {name}: depends on its settings"
            continue
        groups = [f"{group} ({_size(network, part):,} values)" for group, part in schema.groups.items()]
        yield f"every round of {name}: {', '.join([*groups, *schema.numbers])}"


def _size(network: Network, group: Tensors) -> int:
    tensors = network.weights() if group.like is None else group.like
    return sum(tensor.numel() for name, tensor in tensors.items() if name in group.names)
