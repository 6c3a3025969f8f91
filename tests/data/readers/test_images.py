"""Images in folders of classes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtailor.data import DataSettings, build
from fedtailor.data.folder import folder
from fedtailor.errors import UserError

Image = pytest.importorskip("PIL.Image")


def draw(path: Path, grey: int, size: tuple[int, int] = (5, 4), mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, grey if mode in ("L", "I;16") else (grey, grey, grey)).save(path)


def clinics(place: Path) -> Path:
    for name in ("anna", "bert"):
        for number in range(4):
            draw(place / name / "cat" / f"{number}.png", 10 * number)
            draw(place / name / f"{'dog' if name == 'anna' else 'eel'}" / f"{number}.jpg", 200)
    return place


def read(place: Path, **settings: Any) -> Any:
    return build(DataSettings.model_validate({"source": "folder", "folder": place, **settings}), 0)


def test_a_folder_of_classes_per_client_is_the_federation(tmp_path: Path) -> None:
    federation = read(clinics(tmp_path))
    samples = federation.samples
    assert (federation.names, samples.classes) == (("anna", "bert"), ("cat", "dog", "eel"))
    assert (samples.x.shape, samples.x.dtype) == ((16, 4, 5, 1), np.uint8)
    assert samples.x[:4, 0, 0, 0].tolist() == [0, 10, 20, 30]
    assert samples.y.tolist() == [0] * 4 + [1] * 4 + [0] * 4 + [2] * 4


def test_folders_of_classes_alone_are_dealt_by_a_partition(tmp_path: Path) -> None:
    for number in range(6):
        draw(tmp_path / "cat" / f"{number}.png", 10)
        draw(tmp_path / "dog" / f"{number}.png", 20, mode="RGB")
    federation = read(tmp_path, partition="iid", clients=3)
    assert federation.samples.x.shape == (12, 4, 5, 3)
    assert federation.names == ("client-0", "client-1", "client-2")


def test_a_client_may_bring_its_own_split_of_images(tmp_path: Path) -> None:
    for name in ("anna", "bert"):
        for part, count in (("train", 3), ("test", 2)):
            for number in range(count):
                draw(tmp_path / name / part / "cat" / f"{number}.png", 10)
                draw(tmp_path / name / part / "dog" / f"{number}.png", 20)
    federation = read(tmp_path)
    assert (federation.train.sizes.tolist(), federation.test.sizes.tolist()) == ([6, 6], [4, 4])


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        ({"size": (9, 9)}, r"9x9 pixels but .*0\.png has 5x4: resize all images"),
        ({"mode": "I;16"}, "pixels of mode 'I;16': convert it to 8-bit"),
        ("", r"x\.png cannot be read .*: replace or remove it"),
    ],
)
def test_images_that_cannot_be_used(file: Any, complaint: str, tmp_path: Path) -> None:
    clinics(tmp_path)
    path = tmp_path / "anna" / "cat" / "x.png"
    draw(path, 1, **file) if file else path.write_bytes(b"not an image")
    with pytest.raises(UserError, match=complaint):
        folder(tmp_path)
    path.unlink()
    (tmp_path / "anna" / "cat" / "notes.txt").write_text("no")
    with pytest.raises(UserError, match=r"notes\.txt is not a PNG or JPEG image"):
        folder(tmp_path)
