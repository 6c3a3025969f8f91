"""A damaged export gives one sentence that names it."""

import json
from pathlib import Path
from typing import Any

import pytest

import fedtailor
from fedtailor.errors import UserError


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    data = {"source": "digits", "clients": 2, "samples": 60}
    fedtailor.run({"rounds": 1, "data": data, "engine": {"kind": "inline"}}, folder=folder / "run").close()
    return fedtailor.export_global(folder / "run", folder / "model")


@pytest.mark.parametrize(
    "change",
    [
        lambda card: [],
        lambda card: "a card",
        lambda card: {},
        lambda card: {**card, "model": 3},
        lambda card: {**card, "inputs": {"shape": "large"}},
        lambda card: {**card, "inputs": {**card["inputs"], "outputs": 3}},
        lambda card: {**card, "inputs": None},
    ],
)
def test_a_damaged_card_is_one_sentence(change: Any, export: Path, tmp_path: Path) -> None:
    for file in export.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    fedtailor.load_model(tmp_path)
    card = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))
    (tmp_path / "card.json").write_text(json.dumps(change(card)), encoding="utf-8")
    with pytest.raises(UserError, match=r"damaged model|does not describe"):
        fedtailor.load_model(tmp_path)
