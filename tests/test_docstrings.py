"""Docstrings of the public functions are complete, and their examples are right."""

import doctest
import inspect
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import Field

import fedtailor
from fedtailor import Client, Method, Replies, Server
from fedtailor.agents import PPOSettings
from fedtailor.agents.actions import Categorical
from fedtailor.engines import Inline
from fedtailor.parties.requests import Steps

PUBLIC = {name: getattr(fedtailor, name) for name in fedtailor.__all__ if name != "__version__"}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
NAMES = {**PUBLIC, "fedtailor": fedtailor, "torch": torch, "Sequence": Sequence, "Steps": Steps}
NAMES |= {"Field": Field, "PPOSettings": PPOSettings, "Categorical": Categorical, "__name__": "examples"}

# In the order of a user's day: later examples use what earlier ones have written.
DAY: list[Any] = [
    fedtailor.UserError,
    fedtailor.Federation,
    fedtailor.Experiment,
    fedtailor.experiment,
    fedtailor.run,
    fedtailor.Callback,
    fedtailor.Run,
    fedtailor.Run.summary,
    fedtailor.resume,
    fedtailor.compare,
    fedtailor.Comparison,
    fedtailor.diff,
    fedtailor.picture,
    fedtailor.export_client,
    fedtailor.export_clients,
    fedtailor.export_global,
    fedtailor.export_server,
    fedtailor.load_model,
    fedtailor.load_onnx,
    fedtailor.predict,
    fedtailor.adapt,
    fedtailor.track,
    fedtailor.pretrain,
    fedtailor.tune,
    fedtailor.advise,
]
DECLARED: list[Any] = [
    fedtailor.AgentTables,
    fedtailor.Feature,
    fedtailor.Decision,
    fedtailor.Payload,
    fedtailor.Method,
]
DECLARED += [fedtailor.Payload.number, fedtailor.Payload.several, fedtailor.Payload.unpack]
IN_FIT: list[Any] = [Client, Client.train, Client.evaluate, Client.data, Client.stream, Client.weights, Client.load]
IN_FIT += [Client.spend, Client.second_network, Client.features]
IN_FINISH: list[Any] = [Server, Server.stream, Replies.computed, Server.average, Replies]
IN_FINISH += [fedtailor.Ask, fedtailor.Decide, fedtailor.Decided]
DESCRIBED = [Client, Replies, fedtailor.Payload, fedtailor.Callback]
IN_FINISH += [fedtailor.Reward]
NEEDS = {"load_onnx": ("onnxscript", "onnxruntime"), "track": ("tensorboard",), "tune": ("optuna",)}
FOR_METHODS = {"AgentMethod", "Card"}  # `Method` has the example


def check_examples(values: list[Any], known: dict[str, Any]) -> None:
    """Run the examples one after the other; all share these names."""
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for value in values:
        (found,) = finder.find(value, value.__qualname__, globs=known)
        assert found.examples, f"{value.__qualname__} has no example"
        assert runner.run(found).failed == 0, value.__qualname__


class Examined(Method):
    """Runs the examples of what a method works with where a method has it."""

    def fit(self, client: Client) -> None:
        client.train()
        check_examples(IN_FIT, {**NAMES, "client": client})

    def finish(self, server: Server, replies: Replies) -> None:
        check_examples(IN_FINISH, {**NAMES, "server": server, "replies": replies})
        super().finish(server, replies)


def test_every_public_name_has_an_example_that_runs() -> None:
    assert {value.__qualname__ for value in PUBLIC.values()} - FOR_METHODS <= {
        value.__qualname__ for value in (*DAY, *DECLARED, *IN_FIT, *IN_FINISH)
    }


def test_examples_of_a_user_s_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedtailor.runs.resources.open_engine", lambda settings: Inline())
    there = [value for value in DAY if all(map(find_spec, NEEDS.get(value.__qualname__, ())))]
    check_examples(there, dict(NAMES))


def test_examples_of_declarations() -> None:
    check_examples(DECLARED, dict(NAMES))


def test_examples_of_clients_and_servers(tmp_path: Path) -> None:
    data = {"clients": 2, "samples": 80, "split": {"train": 0.5, "val": 0.25, "test": 0.25}}
    settings = {"method": {"name": "tests.test_docstrings:Examined"}, "rounds": 1, "data": data}
    fedtailor.run({**settings, "engine": {"kind": "inline"}}, folder=tmp_path / "run").close()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_describes_its_parameters_and_its_result(name: str) -> None:
    text, signature = inspect.getdoc(FUNCTIONS[name]) or "", inspect.signature(FUNCTIONS[name])
    described = names_in(text, "Parameters")
    assert [one for one in signature.parameters if one not in described] == []
    assert "Returns\n-------" in text or signature.return_annotation in (None, "None")


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - FOR_METHODS))
def test_a_public_class_describes_its_fields(name: str) -> None:
    text = inspect.getdoc(CLASSES[name]) or ""
    fields = [one for one in getattr(CLASSES[name], "__dataclass_fields__", {}) if not one.startswith("_")]
    described = names_in(text, "Parameters") | names_in(text, "Attributes")
    assert [one for one in fields if one not in described] == []


@pytest.mark.parametrize("kind", DESCRIBED, ids=lambda kind: kind.__name__)
def test_functions_for_writers_of_methods_and_callbacks_describe_their_parameters(kind: type) -> None:
    for name, value in vars(kind).items():
        function = value.__func__ if isinstance(value, classmethod) else value
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        text, signature = inspect.getdoc(function) or "", inspect.signature(function)
        asked = [one for one in signature.parameters if one not in ("self", "cls")]
        if name != "train":  # its keywords are the fields of `ClientTrainOptions`
            assert [one for one in asked if one not in names_in(text, "Parameters")] == [], name
        assert not asked or "Returns\n-------" in text or signature.return_annotation in (None, "None"), name


def names_in(text: str, section: str) -> set[str]:
    """The names that a numpydoc section describes."""
    _, _, body = text.partition(f"{section}\n{'-' * len(section)}\n")
    body = body.partition("\n\n")[0]
    heads = [line.partition(" : ")[0] for line in body.splitlines() if line and not line[0].isspace()]
    return {name.strip() for head in heads for name in head.split(",")}
