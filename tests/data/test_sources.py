"""Known sources: the real files where they are, and small files of the same formats."""

import csv
import gzip
import hashlib
import io
import os
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fedtailor.data import SOURCES, DataSettings, Samples, build
from fedtailor.data import federation as federations
from fedtailor.data.formats import cifar, omniglot
from fedtailor.data.formats.news import hashed_tokens
from fedtailor.data.formats.opcodes import read_plain_pickle
from fedtailor.data.sources import read
from fedtailor.errors import UserError

REAL = Path(os.environ.get("FEDTAILOR_DATA", "/nonexistent"))


def real(*folders: str) -> pytest.MarkDecorator:
    there = all((REAL / folder).is_dir() for folder in folders)
    return pytest.mark.skipif(not there, reason=f"FEDTAILOR_DATA has no {', '.join(folders)}")


@cache
def real_samples(name: str) -> Samples:
    """Large sets are read once for all tests that look at them."""
    return read(name, REAL)


def groups_of(samples: Samples) -> np.ndarray:
    assert samples.groups is not None
    return samples.groups


def test_importing_the_room_is_cheap() -> None:
    heavy = "torch sklearn scipy matplotlib PIL"
    code = f"import sys, fedtailor.data; sys.exit([m for m in '{heavy}'.split() if m in sys.modules] or 0)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_every_source_says_where_it_comes_from() -> None:
    for name, source in SOURCES.items():
        assert name == source.name
        assert all([source.title, source.licence, source.homepage, source.citation])
        for file in source.canonical:
            assert len(set(file.addresses)) == len(file.addresses) >= 1
            assert all(address.endswith("/" + file.name) for address in file.addresses)
            assert file.md5 is None or len(file.md5) == 32
            assert file.sha256 is None or len(file.sha256) == 64
        assert all(file.sha256 and file.size for file in source.compact)


# ---- the real files -------------------------------------------------------------------------------


@real("mnist")
def test_mnist_is_mnist() -> None:
    samples = read("mnist", REAL)
    train = ~samples.official_test
    assert np.bincount(samples.y[train]).tolist() == [
        *(5923, 6742, 5958, 6131, 5842),
        *(5421, 5918, 6265, 5851, 5949),
    ]
    assert samples.x.shape == (70000, 28, 28, 1)
    assert (samples.x[train] / 255).mean() == pytest.approx(samples.mean[0], abs=5e-5)
    assert (samples.x[train] / 255).std() == pytest.approx(samples.std[0], abs=5e-5)


@real("fashion-mnist")
def test_fashion_mnist_is_balanced() -> None:
    samples = read("fashion-mnist", REAL)
    assert np.bincount(samples.y[samples.official_test]).tolist() == [1000] * 10
    assert samples.classes[9] == "ankle boot"
    assert (samples.x[:60000] / 255).mean() == pytest.approx(samples.mean[0], abs=5e-5)


@real("cifar10")
def test_cifar10_has_the_published_means() -> None:
    samples = read("cifar10", REAL)
    train = samples.x[:50000]
    assert train.mean((0, 1, 2)) / 255 == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=1e-6)
    assert samples.mean == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=5e-5)
    assert np.bincount(samples.y[:50000]).tolist() == [5000] * 10


@real("cifar100")
def test_cifar100_is_a_subset_and_says_so() -> None:
    samples = read("cifar100", REAL)
    assert np.bincount(samples.y[samples.official_test]).tolist() == [40] * 100
    with np.load(REAL / "cifar100" / "cifar100_subset.npz") as archive:
        assert samples.classes == tuple(archive["class_names"])
    assert "subset" in SOURCES["cifar100"].note


@real("usps")
def test_usps_reads_the_same_from_text_and_from_the_compact_file(tmp_path: Path) -> None:
    compact = read("usps", REAL)
    assert np.bincount(compact.y[compact.official_test]).tolist() == [
        *(359, 264, 198, 166, 200),
        *(160, 170, 147, 166, 177),
    ]
    for name, rows in (("zip.train.gz", slice(0, 50)), ("zip.test.gz", slice(7291, 7300))):
        grey = compact.x[rows].reshape(-1, 256) / 255 * 2 - 1
        lines = np.column_stack([compact.y[rows], grey])
        with gzip.open(tmp_path / name, "wt") as file:
            np.savetxt(file, lines, fmt="%.4f")
    text = read("usps", tmp_path)
    assert np.array_equal(text.x, np.concatenate([compact.x[:50], compact.x[7291:7300]]))
    assert text.official_test.sum() == 9
    (tmp_path / "zip.test.gz").write_bytes(gzip.compress(b"1.0 0.5 0.5\n"))
    with pytest.raises(UserError, match=r"zip\.test\.gz is damaged or not the USPS.*fedtailor data get usps"):
        read("usps", tmp_path)


@real("mnist", "mnist-m", "usps")
def test_mnist_star_is_made_of_its_three_parts() -> None:
    samples = real_samples("mnist-star")
    blended = samples.x[samples.groups == 2]
    digest = hashlib.sha256(blended[:60000].tobytes()).hexdigest()
    assert digest == "fde3d8bbc0f1360bff6ab5c5404b1fb1c02cffb402870257691342320f3ed798"
    digest = hashlib.sha256(blended[60000:].tobytes()).hexdigest()
    assert digest == "76faf9448ebfda794c6c30f91a8eacad1283ebf0c4bc172c83c802a902bf6496"
    assert np.bincount(groups_of(samples)).tolist() == [70000, 9298, 70000]
    assert samples.x[70000:79298, :6].max() == 0  # the frame around USPS digits


@real("mnist", "mnist-m", "usps")
def test_by_domain_keeps_train_and_test_in_the_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federations, "load", lambda *_: real_samples("mnist-star"))
    settings = DataSettings(source="mnist-star", clients=10, samples=5000, split="official", partition="by-domain")
    federation = build(settings, 0)
    for client, domain in enumerate([0] * 4 + [1] * 4 + [2] * 2):
        for part in (federation.train, federation.test):
            assert set(groups_of(federation.samples)[part[client]]) == {domain}


@real("omniglot")
def test_omniglot_has_twenty_drawers_with_all_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = real_samples("omniglot")
    assert samples.x.shape == (32460, 35, 35, 1)
    assert np.bincount(groups_of(samples)).tolist() == [1623] * 20
    assert len(samples.classes) == 50
    monkeypatch.setattr(federations, "load", lambda *_: samples)
    federation = build(DataSettings(source="omniglot", partition="by-writer"), 0)
    assert federation.clients == 20
    assert all(len(set(groups_of(samples)[federation.train[client]])) == 1 for client in range(20))


@real("ag_news")
def test_ag_news_is_read_as_tokens() -> None:
    samples = read("ag-news", REAL)
    assert np.bincount(samples.y[~samples.official_test]).tolist() == [6396, 4809, 4736, 6321]
    assert samples.x.dtype == np.int32
    assert samples.x.shape[1] == 64
    assert 0 < samples.x.max() < samples.vocabulary == 32768


@real("mnist", "fashion-mnist", "cifar10", "omniglot")
@pytest.mark.parametrize(
    ("source", "folder", "file"),
    [
        ("mnist", "mnist", "train-images-idx3-ubyte.gz"),
        ("cifar10", "cifar10", "data_batch_3.npz"),
        ("omniglot", "omniglot", "omniglot.npz"),
        ("usps", "usps", "usps.npz"),
        ("ag-news", "ag_news", "train_subset.csv.gz"),
    ],
)
def test_a_truncated_file_is_named(source: str, folder: str, file: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    for path in (REAL / folder).iterdir():
        (tmp_path / folder / path.name).symlink_to(path)
    broken = tmp_path / folder / file
    broken.unlink()
    broken.write_bytes((REAL / folder / file).read_bytes()[:-1000])
    with pytest.raises(UserError, match="is damaged or not") as caught:
        read(source, tmp_path)
    assert str(broken) in str(caught.value)
    assert f"fedtailor data get {source}" in str(caught.value)
    assert "\n" not in str(caught.value)


@real("mnist")
def test_files_of_mnist_are_not_taken_for_fashion_mnist(tmp_path: Path) -> None:
    for path in (REAL / "mnist").iterdir():
        (tmp_path / path.name).symlink_to(path)
    assert len(read("mnist", tmp_path)) == 70000
    with pytest.raises(UserError, match="belongs to MNIST, not to fashion-mnist"):
        read("fashion-mnist", tmp_path)


# ---- small files of the same formats --------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def small_mnist(folder: Path, packed: bool = False) -> None:
    folder.mkdir(parents=True)
    for part, count in (("train", 30), ("t10k", 10)):
        x = np.arange(count * 784, dtype=np.uint32).astype(np.uint8).reshape(count, 28, 28)
        y = (np.arange(count) % 10).astype(np.uint8)
        for kind, array in (("images-idx3", x), ("labels-idx1", y)):
            name = f"{part}-{kind}-ubyte"
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (folder / name).write_bytes(idx(array))


@pytest.mark.parametrize("place", ["mnist", "MNIST/raw", "."])
def test_idx_files_are_found_in_their_usual_places(place: str, tmp_path: Path) -> None:
    small_mnist(tmp_path / "root" / place, packed=place == "mnist")
    samples = read("mnist", tmp_path / "root")
    assert samples.x.shape == (40, 28, 28, 1)
    assert samples.official_test.sum() == 10
    assert samples.x[0, 0, 5, 0] == 5


def test_damaged_idx_files(tmp_path: Path) -> None:
    small_mnist(tmp_path / "mnist")
    labels = tmp_path / "mnist" / "train-labels-idx1-ubyte"
    good = labels.read_bytes()
    for bad in (b"", b"hello", good[:-1], idx(np.zeros(29, np.uint8)), idx(np.full(30, 11, np.uint8))):
        labels.write_bytes(bad)
        with pytest.raises(UserError, match="train-labels-idx1-ubyte is damaged or not"):
            read("mnist", tmp_path)
    labels.unlink()
    with pytest.raises(UserError, match="does not exist: run 'fedtailor data get mnist'"):
        read("mnist", tmp_path)


@pytest.mark.parametrize("name", [name for name, source in SOURCES.items() if source.canonical or source.parts])
def test_a_missing_source_names_the_command_that_gets_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not exist: run 'fedtailor data get [\w-]+' to download it"):
        build(DataSettings(source=name, dir=tmp_path), 0)


def cifar_images(count: int) -> tuple[np.ndarray, np.ndarray]:
    stream = np.random.RandomState(count)
    return stream.randint(256, size=(count, 32, 32, 3)).astype(np.uint8), stream.randint(10, size=count)


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def planes(x: np.ndarray) -> np.ndarray:
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


def python2_pickle(x: np.ndarray, y: list[int], key: bytes = b"labels") -> bytes:
    """The opcodes of a CIFAR batch, as Python 2 with numpy wrote them."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x05cnumpy\nndarray\nq\x06K\x00\x85"
        + (text(b"b") + b"\x87R(K\x01")
        + (b"M" + struct.pack("<H", x.shape[0]) + b"M" + struct.pack("<H", x.shape[1]) + b"\x86")
        + (b"cnumpy\ndtype\nq\x07" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|"))
        + (b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89")
        + (b"T" + struct.pack("<I", x.size) + x.tobytes() + b"tb")
    )
    numbers = b"](" + b"".join(b"K" + bytes([value]) for value in y) + b"e"
    return b"\x80\x02}q\x01(" + text(b"data") + array + text(key) + numbers + b"u."


def test_cifar10_reads_the_same_from_both_archives(tmp_path: Path) -> None:
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    parts = [cifar_images(count) for count in range(3, 9)]
    for kind in ("binary", "python"):
        (tmp_path / kind).mkdir()
        with tarfile.open(tmp_path / kind / f"cifar-10-{kind}.tar.gz", "w:gz") as tar:
            for name, (x, y) in zip(names, parts, strict=True):
                if kind == "binary":
                    records = np.column_stack([y.astype(np.uint8), planes(x)])
                    add(tar, f"cifar-10-batches-bin/{name}.bin", records.tobytes())
                else:
                    add(tar, f"cifar-10-batches-py/{name}", python2_pickle(planes(x), y.tolist()))
    binary, python = (read("cifar10", tmp_path / kind) for kind in ("binary", "python"))
    assert np.array_equal(binary.x, np.concatenate([x for x, _ in parts]))
    assert np.array_equal(binary.y, np.concatenate([y for _, y in parts]))
    assert np.array_equal(binary.x, python.x)
    assert np.array_equal(binary.y, python.y)
    assert binary.official_test.sum() == 8


def test_cifar100_takes_the_fine_label(tmp_path: Path) -> None:
    x, _ = cifar_images(5)
    fine = np.array([99, 0, 7, 42, 1], np.uint8)
    records = np.column_stack([np.full(5, 3, np.uint8), fine, planes(x)]).tobytes()
    path = tmp_path / "cifar-100-binary.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        add(tar, "cifar-100-binary/train.bin", records)
        add(tar, "cifar-100-binary/test.bin", records)
    samples = read("cifar100", tmp_path)
    assert samples.y[:5].tolist() == fine.tolist()
    assert np.array_equal(samples.x[5:], x)
    assert samples.classes == cifar.HUNDRED
    with tarfile.open(path, "w:gz") as tar:
        add(tar, "cifar-100-binary/train.bin", records[:-1])
    with pytest.raises(UserError, match="not a whole number of records"):
        read("cifar100", tmp_path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match="is damaged or not the CIFAR archive"):
        read("cifar100", tmp_path)


def test_a_pickle_that_wants_to_run_code_is_refused() -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, ("/this-must-never-run",)

    for protocol in range(5):
        with pytest.raises((ValueError, LookupError)):
            read_plain_pickle(pickle.dumps({"data": Evil()}, protocol))
    with pytest.raises(ValueError, match="not uint8"):
        read_plain_pickle(python2_pickle(np.zeros((1, 4), np.uint8), [1]).replace(b"U\x02u1", b"U\x02O8"))


def png(ink: np.ndarray, filters: str = "0") -> bytes:
    """A 1-bit PNG, 1 = paper, with the given line filters in turn."""
    lines = np.packbits(1 - ink, axis=1).astype(int)
    before = np.zeros(lines.shape[1] + 1, int)
    raw = b""
    for row, line in enumerate(lines):
        now = np.r_[0, line]
        left, up, corner = now[:-1], before[1:], before[:-1]
        guess = left + up - corner
        near = np.stack([left, up, corner])
        paeth = np.take_along_axis(near, np.abs(guess - near).argmin(0)[None], 0)[0]
        kind = int(filters[row % len(filters)])
        predicted = (0 * up, left, up, (left + up) // 2, paeth)[kind]
        raw += bytes([kind]) + ((line - predicted) % 256).astype(np.uint8).tobytes()
        before = now
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 105, 105, 1, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(raw)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


@pytest.mark.parametrize("filters", ["0", "01234"])
def test_omniglot_archives(filters: str, tmp_path: Path) -> None:
    ink = (np.random.RandomState(0).random_sample((6, 105, 105)) < 0.3).astype(np.uint8)
    places = [
        ("background", "Latin", 1),
        ("background", "Latin", 2),
        ("background", "Greek", 1),
        ("evaluation", "Tengwar", 1),
        ("evaluation", "Tengwar", 2),
        ("evaluation", "Tengwar", 3),
    ]
    for part in ("background", "evaluation"):
        with zipfile.ZipFile(tmp_path / f"images_{part}.zip", "w") as zipped:
            for number, (which, alphabet, drawer) in enumerate(places):
                if which == part:
                    name = f"images_{part}/{alphabet}/character01/{number:04}_{drawer:02}.png"
                    zipped.writestr(name, png(ink[number], filters))
    samples = read("omniglot", tmp_path)
    order = [2, 0, 1, 3, 4, 5]  # by name
    expected = np.floor(ink.reshape(6, 35, 3, 35, 3).mean((2, 4)) * 255 + 0.5)
    assert np.array_equal(samples.x[..., 0], expected[order])
    assert [samples.classes[label] for label in samples.y] == [places[i][1] for i in order]
    assert groups_of(samples).tolist() == [places[i][2] - 1 for i in order]
    with zipfile.ZipFile(tmp_path / "images_evaluation.zip", "w") as zipped:
        zipped.writestr("images_evaluation/Latin/character01/0001_01.png", png(ink[0])[:60])
    with pytest.raises(UserError, match=r"images_evaluation.zip is damaged"):
        read("omniglot", tmp_path)


@real("omniglot")
def test_the_compact_omniglot_shrinks_like_the_archives() -> None:
    with np.load(REAL / "omniglot" / "omniglot.npz") as archive:
        packed = archive["x_packed"][:20]
    ink = np.unpackbits(packed, axis=2)[:, :, :105]
    pixels = np.stack([255 - omniglot._one_bit_png(png(each)) for each in ink])
    assert np.array_equal(omniglot._shrink(pixels), omniglot._shrink(packed))


def test_ag_news_canonical_files(tmp_path: Path) -> None:
    rows = [["3", "Fears for T N pension", 'Unions say "no"'], ["1", "Änderung\\heute", "2,5 %"]]
    for name in ("train.csv", "test.csv"):
        with (tmp_path / name).open("w", encoding="utf8", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    samples = read("ag-news", tmp_path)
    assert samples.y.tolist() == [2, 0, 2, 0]
    assert np.count_nonzero(samples.x[0]) == 8
    assert samples.x[1, 0] == zlib.crc32("änderung".encode()) % 32767 + 1
    text = (tmp_path / "train.csv").read_text(encoding="utf8")
    for bad in (text[:-4], "5,a,b\n", "1\n", ""):
        (tmp_path / "train.csv").write_text(bad, encoding="utf8")
        with pytest.raises(UserError, match=r"train.csv is damaged or not AG News"):
            read("ag-news", tmp_path)


def test_tokens_depend_on_the_word_alone() -> None:
    first, second = hashed_tokens(["The cat, the DOG!", "dog " * 100])
    assert first[0] == first[2]
    assert first[3] == second[0]
    assert first[4:].max() == 0
    assert second.min() > 0


def test_tiny_imagenet_archive(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs pillow")

    def jpeg(value: int, mode: str = "RGB") -> bytes:
        out = io.BytesIO()
        image.new(mode, (64, 64), value if mode == "L" else (value,) * 3).save(out, "JPEG")
        return out.getvalue()

    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w") as zipped:
        base = "tiny-imagenet-200"
        zipped.writestr(f"{base}/wnids.txt", "n02\nn01\n")
        zipped.writestr(f"{base}/words.txt", "n01\tgoldfish, Carassius\nn02\tbullfrog\nn03\tunused\n")
        zipped.writestr(f"{base}/val/val_annotations.txt", "val_0.JPEG\tn02\t0\t0\t9\t9\n")
        zipped.writestr(f"{base}/train/n01/images/n01_0.JPEG", jpeg(10))
        zipped.writestr(f"{base}/train/n01/n01_boxes.txt", "n01_0.JPEG\t0\t0\t9\t9\n")
        zipped.writestr(f"{base}/train/n02/images/n02_0.JPEG", jpeg(200, "L"))
        zipped.writestr(f"{base}/val/images/val_0.JPEG", jpeg(250))
        zipped.writestr(f"{base}/test/images/test_0.JPEG", jpeg(0))
    samples = read("tiny-imagenet", tmp_path)
    assert samples.x.shape == (3, 64, 64, 3)
    assert samples.classes == ("goldfish", "bullfrog")
    assert samples.y.tolist() == [0, 1, 1]
    assert samples.official_test.tolist() == [False, False, True]


def test_photos_without_pillow_name_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with tarfile.open(tmp_path / "BSR_bsds500.tgz", "w:gz") as tar:
        add(tar, "BSR/BSDS500/data/images/train/1.jpg", b"...")
    small_mnist(tmp_path / "mnist")
    with pytest.raises(UserError, match="install the Python package 'pillow'"):
        read("mnist-m", tmp_path)


def test_mnist_m_can_be_made_from_the_photo_archive(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs pillow")
    small_mnist(tmp_path / "mnist")
    with tarfile.open(tmp_path / "BSR_bsds500.tgz", "w:gz") as tar:
        for number in (2, 1):
            out = io.BytesIO()
            image.new("RGB", (481, 321), (number * 50, 0, 0)).save(out, "JPEG", quality=100)
            add(tar, f"BSR/BSDS500/data/images/train/{number}.jpg", out.getvalue())
    samples = read("mnist-m", tmp_path)
    assert samples.x.shape == (40, 28, 28, 3)
    assert set(np.unique(samples.x[:, 0, 0, 0])) <= set(range(256))
    assert len(samples.mean) == 3
