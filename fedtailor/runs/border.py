"""The border: every reply of a client is checked here, alone, before the method sees it. All engines use it."""

from dataclasses import replace

from fedtailor.engines import Result
from fedtailor.messages.admission import Admitted, admitted
from fedtailor.messages.payload import Rejected, check
from fedtailor.methods import Method, Payload, Schema, Server, catalogue, spec
from fedtailor.runs.assembly import Assembly


class Border:
    """Admits replies that fit the network, the method's schema and the client's numbers of samples.

    Parameters
    ----------
    made : Assembly
        The parts of the run.
    """

    def __init__(self, made: Assembly):
        self._made = made
        self._family = {name: network.weights() for name, network in made.family.items()}
        self._complete = _complete_groups(made)
        self._schemas: dict[str, Schema] = {}  # by question; empty for uploads
        federation = made.job.federation
        self._sizes = {"train": federation.train.sizes, "val": federation.val.sizes}

    def admit(self, result: Result, server: Server, question: str = "") -> Admitted[Payload]:
        """Read the reply in a result.

        Parameters
        ----------
        result : Result
            The result of a client's task.
        server : Server
            The server, which is not changed.
        question : str
            The name of the `Ask` that it answers; empty for the reply of ``upload``.

        Returns
        -------
        Admitted
            The reply, or the reason why it cannot be used.
        """
        if result.failure is not None:
            return Admitted(reason=result.failure, details=result.details)
        return admitted(lambda: self._read(result, server, question))

    def schema(self, question: str = "") -> Schema:
        """The form of the replies to a question, or of uploads."""
        if question not in self._schemas:
            self._schemas[question] = declared_schema(self._made, question)
        return self._schemas[question]

    def _read(self, result: Result, server: Server, question: str) -> Payload:
        if result.reply is None:
            raise Rejected("a reply is missing")
        reply, client = Payload.unpack(result.reply), result.client
        check(reply, server.initial, self._family)
        if not question:
            self._check_complete(reply)
        sizes = {split: int(counts[client]) for split, counts in self._sizes.items()}
        self.schema(question).check(reply, sizes)
        self._made.method.check_reply(server, client, reply, question)
        return reply

    def _check_complete(self, reply: Payload) -> None:
        """Reject a reply with a model in which an exchanged tensor is missing."""
        for group, names in self._complete.items():
            if group in reply.groups and not names <= reply[group].keys():
                raise Rejected(f"the {group} lacks {min(names - reply[group].keys())}")


def declared_schema(made: Assembly, question: str = "") -> Schema:
    """The schema that the method declares.

    Where an own method changes what it sends and declares nothing, the inherited schema holds for the names in it, and
    other names are allowed.
    """
    method, network, shared = made.method, made.network, made.shared
    schema = method.ask_schema(question, network, shared) if question else method.reply_schema(network, shared)
    if ":" not in spec(method) or declares(type(method), question):
        return schema
    return replace(
        schema,
        groups={name: replace(tensors, optional=True) for name, tensors in schema.groups.items()},
        numbers={name: replace(numbers, optional=True) for name, numbers in schema.numbers.items()},
        open=True,
    )


def declares(kind: type[Method], question: str = "") -> bool:
    """Whether the class that defines ``upload``, or the answer to a question, or one derived from it, has a schema.

    The methods of the catalogue do; a test compares what they send with what they declare.
    """
    schema, sender = ("ask_schema", question) if question else ("reply_schema", "upload")
    known = {*catalogue().values(), Method}
    nearest = next((base for base in kind.__mro__ if {schema, sender} & vars(base).keys()), Method)
    return schema in vars(nearest) or nearest in known


def _complete_groups(made: Assembly) -> dict[str, frozenset[str]]:
    """The names of the tensors that each model in a reply must have."""
    averaged = made.job.model.running_statistics == "averaged"
    family = {
        name: frozenset(network.names) - (frozenset() if averaged else network.statistics)
        for name, network in made.family.items()
    }
    return {"model": made.shared, **family}
