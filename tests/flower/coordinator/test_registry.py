"""Keys that change while a coordinator runs."""

import http.client
import ssl
from base64 import b64encode
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from fedtailor.flower import audit, keys
from fedtailor.flower.coordinator.link import Link
from fedtailor.flower.protocol import UNKNOWN_KEY_STATUS
from tests.support.federation import HOST
from tests.support.waiting import PATIENCE, wait_until


def status(folder: Path, port: int, private: Path) -> int:
    """What the gateway answers to a node with this key."""
    key = serialization.load_ssh_private_key(private.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    when = now().isoformat()
    headers = {
        "flwr-public-key": b64encode(public_key_to_bytes(key.public_key())).decode(),
        "flwr-timestamp": when,
        "flwr-signature": b64encode(sign_message(key, when.encode())).decode(),
    }
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    connection = http.client.HTTPSConnection(HOST, port, context=context, timeout=PATIENCE)
    try:
        connection.request("POST", "/v1/fleet/send-node-heartbeat", b"", headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_keys_change_without_a_restart(tmp_path: Path) -> None:
    folder, said = tmp_path / "keys", list[str]()
    keys.init(folder, [HOST], ["anna", "bert"])
    mark = keys.request(tmp_path / "carla")
    anna, carla = folder / "nodes/anna/node.key", tmp_path / "carla/node.key"
    with Link(HOST, 0, keys.ServerKeys(folder), 2**20, said.append) as link:
        assert status(folder, link.port, anna) != UNKNOWN_KEY_STATUS
        assert status(folder, link.port, carla) == UNKNOWN_KEY_STATUS
        keys.revoke(folder, "anna")
        keys.approve(folder, tmp_path / "carla/node.pub", "carla", mark, 90)
        wait_until(lambda: "carla may take part now" in said, "the new key")
        assert "the key of anna is not valid any more" in said
        assert sorted(link.names.values()) == ["bert", "carla"]
        assert status(folder, link.port, anna) == UNKNOWN_KEY_STATUS
        assert status(folder, link.port, carla) != UNKNOWN_KEY_STATUS
    events = [(e["event"], e["who"]) for e in audit.verified(folder / audit.FILE)]
    assert events[:2] == [("registered", "anna"), ("registered", "bert")]
    assert ("revoked", "anna") in events
    assert ("registered", "carla") in events
    refused = [e for e in audit.verified(folder / audit.FILE) if e["event"] == "refused"]
    assert (refused[0]["key"], refused[0]["reason"]) == (mark, "has a key that is not registered")
