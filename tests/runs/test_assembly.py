"""A run put together: what its server and its clients know of the federation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedtailor
from fedtailor.errors import UserError
from fedtailor.learning import precision
from fedtailor.methods import Client, Method, Payload, Replies, Server
from fedtailor.runs import episodes
from fedtailor.runs.assembly import with_precision
from tests.support.problem import targets

SHORT: dict[str, Any] = {"rounds": 1, "data": {"clients": 2, "samples": 100}, "engine": {"kind": "inline"}}


class Roll(Method):
    """Clients answer with the letters of their names; the server compares them with its own."""

    def upload(self, client: Client) -> Payload:
        reply = super().upload(client)
        return Payload(reply.groups, {**reply.numbers, "letters": [ord(letter) for letter in client.name]})

    def finish(self, server: Server, replies: Replies) -> None:
        super().finish(server, replies)
        called = {k: "".join(chr(int(code)) for code in reply.several("letters")) for k, reply in replies.items()}
        server.state["names"] = {"clients": called, "server": list(server.names)}


@pytest.mark.parametrize("labels", [(), ("north", "south")])
def test_server_and_clients_have_the_names_of_the_federation(labels: tuple[str, ...], tmp_path: Path) -> None:
    federation = replace(targets([0.0], [4.0, 4.0, 4.0]), labels=labels)
    settings = fedtailor.experiment(
        {
            "rounds": 1,
            "model": {"name": "tests.support.problem:Scalar"},
            "training": {"loss": "squared-error"},
            "engine": {"kind": "inline"},
        }
    )
    settings = settings.model_copy(update={"method": Roll()})
    with fedtailor.run(settings, folder=tmp_path / "run", federation=federation) as done:
        names = done.server_state()["names"]
    assert federation.names == (labels or ("client-0", "client-1"))
    assert names == {"clients": dict(enumerate(federation.names)), "server": list(federation.names)}


@pytest.mark.parametrize(("native", "meaning"), [(True, "bf16"), (False, "fp32")])
def test_the_precision_auto_is_resolved_once_and_recorded(
    native: bool, meaning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "native_bf16", lambda device: native)
    with fedtailor.run({**SHORT, "training": {"precision": "auto"}}, folder=tmp_path / "run") as run:
        assert run.experiment.training.precision == meaning
    assert f'precision = "{meaning}"' in (tmp_path / "run" / "experiment.toml").read_text(encoding="utf-8")


def test_the_device_auto_and_the_precision_auto_agree_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (precision, episodes):
        monkeypatch.setattr(module, "native_bf16", lambda device: device == "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    engine = {"kind": "inline", "device": "auto"}
    with fedtailor.run({**SHORT, "training": {"precision": "auto"}, "engine": engine}, folder=tmp_path / "run") as run:
        assert run.experiment.training.precision == "bf16"
        assert list(run.warnings) == ["engine.device = 'auto': torch finds no GPU here, so the CPU trains"]


@pytest.mark.parametrize(("kind", "device"), [("inline", "cuda"), ("ray", "cpu")])
def test_the_precision_auto_is_that_of_the_device_that_trains(
    kind: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(precision, "native_bf16", lambda asked: asked == device)
    values = {**SHORT, "training": {"precision": "auto"}, "engine": {"kind": kind, "device": "auto"}}
    assert with_precision(fedtailor.experiment(values)).training.precision == "bf16"


@pytest.mark.parametrize(("native", "warned"), [(True, 0), (False, 1)])
def test_emulated_bf16_is_a_warning_that_stays_with_the_run(
    native: bool, warned: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episodes, "native_bf16", lambda device: native)
    with fedtailor.run({**SHORT, "training": {"precision": "bf16"}}, folder=tmp_path / "run") as run:
        assert [sentence for sentence in run.warnings if "slow on this machine" in sentence] == list(run.warnings)
        assert len(run.warnings) == warned


def test_a_network_that_cannot_compute_in_bf16_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    training = {"precision": "bf16", "loss": "squared-error"}
    values = {**SHORT, "model": {"name": "tests.support.problem:Constant"}, "training": training}
    with pytest.raises(UserError, match=r"training\.precision = 'bf16': model .*Constant' fails in bf16 \(.*\): use"):
        fedtailor.run(values, folder=tmp_path / "run", federation=targets([0.0], [4.0]))
    assert not (tmp_path / "run").exists()
