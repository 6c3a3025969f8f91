"""A node that lies: what it sends instead of its answer, by name.

``python -m tests.support.lying join ...`` is `fedtailor join` of such a node. $LIES names, separated by semicolons,
what it sends instead of its answers to tasks, one after the other; later answers are true.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fedtailor.flower.node.node import Node
from fedtailor.messages.frames import decode, encode
from fedtailor.messages.trees import pack, unpack

Header = dict[str, Any]
Lie = Callable[[Header, list[bytes]], bytes]

HUGE = 10**400
DEEP = b'{"kind": "results", "sizes": [], "results": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"


def replies(change: Callable[[dict[str, Any]], object]) -> Lie:
    """A lie in the payload of the first result."""

    def lie(header: Header, blobs: list[bytes]) -> bytes:
        place = header["results"][0]["reply"]
        tree = unpack(blobs[place])
        change(tree)
        return encode(header, [*blobs[:place], pack(tree), *blobs[place + 1 :]])

    return lie


def rows(change: Callable[[dict[str, Any]], object]) -> Lie:
    """A lie in the first result's row of the header."""

    def lie(header: Header, blobs: list[bytes]) -> bytes:
        change(header["results"][0])
        return encode(header, blobs)

    return lie


def framed(text: bytes) -> Lie:
    """Another header."""
    return lambda header, blobs: len(text).to_bytes(8, "big") + text


def first_tensor(tree: dict[str, Any], value: float) -> None:
    model = tree["groups"]["model"]
    model[next(iter(model))] = torch.full_like(next(iter(model.values())), value)


def resized(model: dict[str, torch.Tensor]) -> None:
    model.update(dict.fromkeys(model, torch.ones(1)))


ANSWERS: dict[str, Lie] = {  # to tasks that train
    "no model": replies(lambda tree: tree["groups"].pop("model")),
    "no samples": replies(lambda tree: tree["numbers"].pop("samples")),
    "samples in a list": replies(lambda tree: tree["numbers"].update(samples=[3])),
    "negative samples": replies(lambda tree: tree["numbers"].update(samples=-1e9)),
    "samples of 400 digits": replies(lambda tree: tree["numbers"].update(samples=HUGE)),
    "samples that take the mean over": replies(lambda tree: tree["numbers"].update(samples=10**12)),
    "groups with whole numbers as names": replies(lambda tree: tree.update(groups={7: tree["groups"]["model"]})),
    "tensors with whole numbers as names": replies(
        lambda tree: tree["groups"].update(model=dict(enumerate(tree["groups"]["model"].values())))
    ),
    "numbers in a list": replies(lambda tree: tree.update(numbers=[1, 2])),
    "a tensor twice": lambda header, blobs: encode(header, [blob.replace(b'"1"', b'"0"') for blob in blobs]),
    "a model of 1e38": replies(lambda tree: first_tensor(tree, 1e38)),
    "a model that is not finite": replies(lambda tree: first_tensor(tree, float("nan"))),
    "another shape": replies(lambda tree: resized(tree["groups"]["model"])),
    "more than was asked for": replies(lambda tree: tree["groups"].update(more={"w": torch.zeros(1)})),
    "a config": replies(lambda tree: tree.update(config={"size": "large"})),
    "a header nested 50,000 deep": framed(DEEP),
    "byte strings beyond int64": framed(b'{"kind": "results", "sizes": [%d]}' % 2**70),
    "seconds beyond float": rows(lambda row: row.update(seconds=HUGE)),
    "more seconds than have passed": rows(lambda row: row.update(seconds=1e308)),
    "a loss beyond float": rows(lambda row: row["trace"].update(loss=HUGE)),
    "steps beyond int64": rows(lambda row: row["trace"].update(steps=2**70)),
    "sizes beyond int64": rows(lambda row: row["trace"].update(samples=2**63)),
    "work beyond float": rows(lambda row: row.update(work=HUGE)),
    "a state without a digest": lambda header, blobs: encode(
        {**header, "results": [{**header["results"][0], "state": 0}]}, blobs
    ),
    "no score": rows(lambda row: row.update(scores={})),
    "results that are none": lambda header, blobs: encode({**header, "results": ["a"]}, blobs),
    "a failure that is a list": rows(lambda row: row.update(failure=[["x"]])),
    "a failure that clears the screen": rows(lambda row: row.update(failure="\x1b[2J\nDONE " + 10_000 * "x")),
    "bytes": lambda header, blobs: os.urandom(64),
}

HELLOS: dict[str, dict[str, Any]] = {  # changes of a description
    "2**40 samples": {"train": 2**40},
    "99,999 classes": {"classes": [str(number) for number in range(99_999)], "train": 2**20},
    "more classes than samples": {"classes": [str(number) for number in range(9_999)]},
    "the same class twice": {"classes": ["1", "1"]},
    "a shape of terabytes": {"shape": [2**20, 2**20]},
    "a vocabulary of terabytes": {"vocabulary": 2**40},
    "another type": {"dtype": "O"},
    "a mean of 400 digits": {"mean": [HUGE]},
    "samples of 400 digits": {"test": HUGE},
    "an environment that is a list": {"environment": [1]},
    "a name that is a list": {"name": ["a"]},
}


class Liar(Node):
    """A node that sends these lies, one after the other, instead of its answers to tasks that train."""

    lies: Iterator[Lie] = iter(())

    def answer(self, request: bytes) -> bytes:
        answer = super().answer(request)
        asked, _ = decode(request)
        trains = asked["kind"] == "tasks" and asked["tasks"][0]["kind"] == "fit"
        lie = next(self.lies, None) if trains else None
        return answer if lie is None else lie(*decode(answer))


if __name__ == "__main__":
    from fedtailor.__main__ import main
    from fedtailor.flower.node import joining

    Liar.lies = iter([ANSWERS[name] for name in os.environ["LIES"].split(";")])
    joining.Node = Liar  # type: ignore[misc]
    sys.exit(main())
