"""Downloads, from a real server on this machine that can be told to misbehave."""

import gzip
import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedtailor.data import downloads
from fedtailor.data.downloads import get
from fedtailor.data.files import File
from fedtailor.data.sources import SOURCES
from fedtailor.errors import UserError

CONTENT = bytes(range(256)) * 2000  # 512,000 bytes
PACKED = gzip.compress(b"1 2 3\n" * 5000)


@dataclass
class Server:
    address: str
    files: dict[str, bytes]
    ranges: bool = True
    cut_after: int | None = None  # bytes after which a response breaks off
    requests: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    facts = Server("", {"data.bin": CONTENT, "zip.gz": PACKED})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, wanted = self.path.rsplit("/", 1)[-1], self.headers.get("Range")
            facts.requests.append((name, wanted))
            if name not in facts.files:
                self.send_error(404)
                return
            content, start = facts.files[name], 0
            if wanted and facts.ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:][: facts.cut_after])
            if facts.cut_after is not None:
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        facts.address = f"http://127.0.0.1:{running.server_port}/mirror"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield facts
        running.shutdown()
        thread.join()


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> str:
    md5 = hashlib.md5(CONTENT).hexdigest()
    made = replace(SOURCES["usps"], canonical=(File("data.bin", md5=md5), File("zip.gz")), name="made-up")
    monkeypatch.setitem(SOURCES, "made-up", made)
    return "made-up"


def test_files_arrive_whole_and_are_not_fetched_twice(server: Server, source: str, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    paths = get(source, tmp_path, lambda *news: told.append(news), [server.address])
    assert [path.read_bytes() for path in paths] == [CONTENT, PACKED]
    assert paths[0] == tmp_path / "made-up" / "data.bin"
    assert told[0] == ("data.bin", 0, len(CONTENT))
    assert ("data.bin", len(CONTENT), len(CONTENT)) in told
    assert not list(tmp_path.rglob("*.part"))
    asked = len(server.requests)
    get(source, tmp_path, addresses=[server.address])
    assert len(server.requests) == asked
    paths[0].write_bytes(b"damaged later")
    get(source, tmp_path, addresses=[server.address])
    assert paths[0].read_bytes() == CONTENT


def test_a_part_is_continued(server: Server, source: str, tmp_path: Path) -> None:
    (tmp_path / source).mkdir()
    (tmp_path / source / "data.bin.part").write_bytes(CONTENT[:300_000])
    get(source, tmp_path, addresses=[server.address])
    assert server.requests[0] == ("data.bin", "bytes=300000-")
    assert (tmp_path / source / "data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("part", [CONTENT[:1000], b"of something else", CONTENT, CONTENT + b"too long"])
@pytest.mark.parametrize("ranges", [True, False])
def test_any_old_part_ends_well(part: bytes, ranges: bool, server: Server, source: str, tmp_path: Path) -> None:
    server.ranges = ranges
    begins_again = part not in (CONTENT[:1000], CONTENT)
    (tmp_path / source).mkdir()
    (tmp_path / source / "data.bin.part").write_bytes(part)
    get(source, tmp_path, addresses=[server.address])
    assert (tmp_path / source / "data.bin").read_bytes() == CONTENT
    asked = [name for name, _ in server.requests].count("data.bin")
    assert asked == (2 if ranges and begins_again else 1)


def test_a_broken_connection_is_taken_up_again(server: Server, source: str, tmp_path: Path) -> None:
    server.cut_after = 200_000
    get(source, tmp_path, addresses=[server.address])
    asked = [wanted for name, wanted in server.requests if name == "data.bin"]
    assert asked == [None, "bytes=200000-", "bytes=400000-"]
    assert (tmp_path / source / "data.bin").read_bytes() == CONTENT


def test_a_hopeless_connection_is_given_up_but_the_part_stays(server: Server, source: str, tmp_path: Path) -> None:
    server.cut_after = 1000
    with pytest.raises(UserError, match="the connection broke 5 times"):
        get(source, tmp_path, addresses=[server.address])
    assert (tmp_path / source / "data.bin.part").stat().st_size == 5000
    assert not (tmp_path / source / "data.bin").exists()
    server.cut_after = None
    get(source, tmp_path, addresses=[server.address])
    assert (tmp_path / source / "data.bin").read_bytes() == CONTENT


def test_wrong_content_is_never_kept(server: Server, source: str, tmp_path: Path) -> None:
    server.files["data.bin"] = b"<html>login page</html>"
    with pytest.raises(UserError, match=r"the checksum is .* instead of") as caught:
        get(source, tmp_path, addresses=[server.address])
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / source).iterdir())


def test_without_a_checksum_an_archive_must_be_intact(server: Server, source: str, tmp_path: Path) -> None:
    server.files["zip.gz"] = PACKED[:-9]
    with pytest.raises(UserError, match="the archive is damaged"):
        get(source, tmp_path, addresses=[server.address])


def test_mirrors_are_tried_in_turn(server: Server, source: str, tmp_path: Path) -> None:
    get(source, tmp_path, addresses=[closed_port(), server.address + "/x", server.address])
    assert (tmp_path / source / "data.bin").read_bytes() == CONTENT
    del server.files["data.bin"]
    with pytest.raises(UserError, match=r"Connection refused.*the server answers 404"):
        get(source, tmp_path / "other", addresses=[closed_port(), server.address])


def test_no_network_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    file = File("data.bin", (closed_port() + "/data.bin",))
    monkeypatch.setitem(SOURCES, source, replace(SOURCES[source], canonical=(file,)))
    with pytest.raises(UserError, match=r"data\.bin could not be downloaded .*check the network") as caught:
        get(source, tmp_path)
    assert "\n" not in str(caught.value)


def test_parts_are_downloaded_too_and_names_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def note(file: File, path: Path, *_: object) -> Path:
        asked.append(path.relative_to(tmp_path).as_posix())
        return path

    monkeypatch.setattr(downloads, "_get_file", note)
    get("mnist-star", tmp_path)
    assert "mnist/train-images-idx3-ubyte.gz" in asked
    assert {"usps/zip.train.gz", "mnist-m/BSR_bsds500.tgz"} < set(asked)
    assert get("digits", tmp_path) == []
    with pytest.raises(UserError, match=r"did you mean 'mnist'\?"):
        get("mnst", tmp_path)


def test_a_folder_that_cannot_be_written_is_named(server: Server, source: str, tmp_path: Path) -> None:
    (tmp_path / source).write_text("a file where the folder should be")
    with pytest.raises(UserError, match="cannot be written"):
        get(source, tmp_path, addresses=[server.address])


def closed_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"
