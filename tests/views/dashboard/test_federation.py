"""The page of a real federation: what its coordinator stored, and the audit log."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from fedtailor.errors import UserError
from fedtailor.flower import audit
from fedtailor.runs.store import Store
from fedtailor.views.dashboard.access import Access
from fedtailor.views.dashboard.federation import federation_document
from fedtailor.views.dashboard.server import Dashboard
from tests.support.browser import opened
from tests.views.conftest import EVIL


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder of keys with a log: a node was registered, then somebody with its name refused."""
    folder = tmp_path / "keys"
    folder.mkdir()
    audit.record(folder / audit.FILE, "registered", who=EVIL[0], key="SHA256:abc")
    audit.record(folder / audit.FILE, "refused", who=EVIL[0], key="", reason="<b>unknown key")
    return folder


@pytest.fixture
def federated(named_run: Path, tmp_path: Path) -> Path:
    """A real run with the description of nodes that a coordinator stores."""
    folder = tmp_path / "runs" / "real"
    shutil.copytree(named_run, folder)
    with Store(folder, write=True) as store, store.transaction():
        store.set_meta("nodes", [{"name": name, "environment": {"fedtailor": "9.9"}} for name in EVIL])
    return folder


def test_nodes_have_key_last_answer_version_bytes_and_refusals(federated: Path, keys: Path) -> None:
    found = federation_document(federated, keys)
    first, second = found["nodes"]["rows"][:2]
    assert first[:4] == [EVIL[0], "SHA256:abc", "round 3 of 3", "9.9"]
    assert (first[5:], second[1], second[5:]) == (["0", "1"], "–", ["0", "0"])
    with Store(federated) as store:
        sent = sum(row["bytes_down"] + row["bytes_up"] for row in store.read("tasks", "WHERE client = 0"))
    assert float(first[4].split()[0]) == pytest.approx(sent / 1000, abs=0.06)
    assert found["audit"]["whole"]
    assert federation_document(federated, None)["audit"] is None


def test_a_changed_log_is_called_broken(federated: Path, keys: Path) -> None:
    file = keys / audit.FILE
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([json.dumps({**json.loads(lines[0]), "who": "eve"}), lines[1]]) + "\n", encoding="utf-8")
    found = federation_document(federated, keys)["audit"]
    assert not found["whole"]
    assert "line 1" in found["said"]


def test_a_simulation_has_no_nodes(named_run: Path) -> None:
    with pytest.raises(UserError, match="is a simulation"):
        federation_document(named_run, None)


def test_a_browser_shows_the_federation(federated: Path, keys: Path, browser: Any) -> None:
    dashboard = Dashboard(federated.parent, Access(), keys=keys)
    thread = threading.Thread(target=dashboard.serve_forever)
    thread.start()
    try:
        with opened(browser, dashboard.address) as page:
            page.get_by_role("link", name="real").click()
            page.get_by_role("link", name="4 nodes").click()
            page.wait_for_selector("#chain:has-text('The chain is whole')")
            assert EVIL[0] in page.inner_text("table >> nth=0")
    finally:
        dashboard.stop()
        thread.join()
