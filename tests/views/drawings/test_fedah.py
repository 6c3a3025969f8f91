from pathlib import Path

import pytest

from fedtailor.runs import run
from fedtailor.views.drawings import drawings


@pytest.mark.parametrize("method", ["fedah", "fedala"])
def test_mixing_weights_are_drawn_with_their_means(method: str, tmp_path: Path) -> None:
    settings = {
        "rounds": 2,
        "data": {"clients": 3, "samples": 90},
        "model": {"name": "mlp"},
        "method": {"name": method},
    }
    with run({**settings, "engine": {"kind": "inline"}}, folder=tmp_path / "run") as found:
        axes = drawings(found)["mixing"](found).axes[0]
        mix = found.client_state(1)["mix"]
    assert axes.images[0].get_array()[1].tolist() == [float(tensor.mean()) for tensor in mix.values()]
    assert [label.get_text() for label in axes.get_xticklabels()] == list(mix)


def test_a_run_without_mixing_weights_has_no_such_picture(tmp_path: Path) -> None:
    """FedALA mixes from the second round of a client on."""
    settings = {"rounds": 1, "data": {"clients": 3, "samples": 90}, "method": {"name": "fedala"}}
    with run({**settings, "engine": {"kind": "inline"}}, folder=tmp_path / "run") as found:
        assert list(drawings(found)) == ["curves"]
