"""Messages as bytes and on a socket: what was sent comes back, and what is no message is refused."""

import json
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtailor.messages.frames import MAX_BYTES, MAX_HEADER, Closed, decode, encode, receive, send

HEADERS = st.dictionaries(st.text().filter(lambda key: key != "sizes"), st.integers() | st.text() | st.none())


def framed(text: bytes, more: bytes = b"") -> bytes:
    """Bytes that announce a header of the right length."""
    return len(text).to_bytes(8, "big") + text + more


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@given(header=HEADERS, blobs=st.lists(st.binary(max_size=50), max_size=4))
def test_a_message_comes_back_from_its_bytes(header: dict[str, object], blobs: list[bytes]) -> None:
    assert decode(encode(header, blobs)) == (header, blobs)


def test_the_bytes_are_a_length_a_header_that_counts_and_the_byte_strings() -> None:
    data = encode({"kind": "job"}, [b"ab", b""])
    text = json.dumps({"kind": "job", "sizes": [2, 0]}).encode()
    assert data == framed(text, b"ab")


def test_the_given_header_is_not_changed() -> None:
    header = {"kind": "job"}
    encode(header, [b"ab"])
    assert header == {"kind": "job"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 7,
        framed(b"{}"),  # no sizes
        framed(b"[]"),
        framed(b'{"sizes": 3}', b"abc"),
        framed(b'{"sizes": [true]}', b"a"),
        framed(b'{"sizes": [-1, 1]}'),
        framed(b'{"sizes": [1.0]}', b"a"),
        framed(f'{{"sizes": [{MAX_BYTES + 1}]}}'.encode()),
        framed(b'{"sizes": [3]}', b"ab"),
        framed(b'{"sizes": [1]}', b"ab"),
        framed(b"no json"),
        framed(b"\xff\xfe"),
        (2**63).to_bytes(8, "big") + b"{}",
        framed(b'{"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
        framed(b'{"sizes": [], "a": 1' + b"0" * 5000 + b"}"),  # Python reads whole numbers of up to 4300 digits
    ],
    ids=lambda data: repr(data[:30]),
)
def test_bytes_that_are_no_message_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


@given(data=st.binary(max_size=60))
def test_random_bytes_are_a_message_or_a_value_error(data: bytes) -> None:
    try:
        header, blobs = decode(data)
    except ValueError:
        return
    assert isinstance(header, dict)
    assert isinstance(blobs, list)


def test_messages_come_through_a_socket_one_after_the_other(pair: tuple[socket.socket, socket.socket]) -> None:
    """The second is larger than the socket holds, so that it arrives in pieces."""
    sent = [({"n": 1}, [b"a", b""]), ({"n": 2}, [bytes(3_000_000)])]
    writer = threading.Thread(target=lambda: [send(pair[0], *message) for message in sent])
    writer.start()
    assert [receive(pair[1]), receive(pair[1])] == sent
    writer.join()


def test_the_end_of_the_other_side_is_noticed_while_receiving(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].sendall(encode({"n": 1}, [b"abc"])[:-1])
    pair[0].close()
    with pytest.raises(Closed):
        receive(pair[1])


def test_the_end_of_the_other_side_is_noticed_while_sending(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].close()
    with pytest.raises(Closed):
        send(pair[0], {"n": 1}, [bytes(10_000_000)])


def test_a_socket_that_is_closed_here_is_closed(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].close()
    with pytest.raises(Closed):
        receive(pair[1])


def test_a_header_that_is_too_large_is_refused_before_anything_is_read(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    pair[0].sendall((MAX_HEADER + 1).to_bytes(8, "big"))
    with pytest.raises(ValueError, match=str(MAX_HEADER)):
        receive(pair[1])
