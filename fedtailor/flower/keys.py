"""Keys of a federation: a certificate authority, the coordinator's certificate, and a key pair for every node.

    keys/ca.pem          the authority's certificate; a node verifies the coordinator with it
    keys/ca.key          the authority's key, which signs certificates; keep it where the keys were made
    keys/server.pem      the coordinator's certificate; its key is server.key
    keys/nodes/anna/     the files of the node anna: ca.pem, node.key, node.pub

    keys/nodes/anna/expires   when anna's key stops being valid; without this file never

A node is identified by its public key. The coordinator follows this folder while it runs. A node may also make its key
itself (`request`), so that its private key never leaves it; an administrator approves the fingerprint (`approve`).
"""

import ipaddress
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedtailor.errors import UserError

AUTHORITY_DAYS, SERVER_DAYS = 3650, 825
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class ServerKeys:
    """The coordinator's folder of keys; raises a `UserError` if a file is missing or there is no node."""

    folder: Path

    def __post_init__(self) -> None:
        for file in (self.authority, self.certificate, self.key):
            _require_file(file, "make the keys with 'fedtailor keys init'")
        if not self.nodes:
            raise UserError(f"{self.folder} has no nodes: add one with 'fedtailor keys add {self.folder} NAME'")

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def certificate(self) -> Path:
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"

    @property
    def nodes(self) -> dict[str, Path]:
        """The files with the nodes' public keys, by name."""
        return {file.parent.name: file for file in sorted(self.folder.glob("nodes/*/node.pub"))}

    def public_keys(self) -> dict[str, bytes]:
        """Read the nodes' public keys that have not expired, by name, in the form that Flower registers."""
        return {name: _public_key(file) for name, file in self.nodes.items() if not _expired(file.parent)}


@dataclass(frozen=True)
class NodeKeys:
    """A node's folder of keys; raises a `UserError` if a file is missing."""

    folder: Path

    def __post_init__(self) -> None:
        for file in (self.authority, self.key):
            _require_file(file, "copy the node's folder from where the keys were made, keys/nodes/NAME")

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def key(self) -> Path:
        return self.folder / "node.key"


def init(folder: Path, hosts: Sequence[str], nodes: Sequence[str]) -> list[Path]:
    """Create an authority, the coordinator's certificate and the nodes' keys.

    Parameters
    ----------
    folder : Path
        Where to write; it must not hold keys.
    hosts : sequence of str
        The host names and addresses that the coordinator's certificate is for.
    nodes : sequence of str
        The names of the nodes.

    Returns
    -------
    list of Path
        The files of authority and coordinator, and each node's folder.
    """
    if (folder / "ca.key").exists() or (folder / "ca.pem").exists():
        raise UserError(f"{folder} already holds keys: add nodes with 'fedtailor keys add', or name another folder")
    _check_names(nodes)
    names = _alternative_names(hosts)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer, subject = _common_name("FedTailor federation"), _common_name(hosts[0] if hosts else "localhost")
    pem = serialization.Encoding.PEM
    written = [
        _write(folder / "ca.key", _private(authority), secret=True),
        _write(folder / "ca.pem", _authority_certificate(issuer, authority).public_bytes(pem)),
        _write(folder / "server.key", _private(server), secret=True),
        _write(
            folder / "server.pem",
            _server_certificate(subject, names, server.public_key(), issuer, authority).public_bytes(pem),
        ),
    ]
    return [*written, *(add(folder, node) for node in nodes)]


def add(folder: Path, node: str) -> Path:
    """Create the keys of another node and return its folder."""
    _check_names([node])
    _require_file(folder / "ca.pem", "make the keys with 'fedtailor keys init'")
    place = folder / "nodes" / node
    if place.exists():
        raise UserError(f"{place} exists: to make new keys for this node, remove the folder first")
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.mkdir(mode=0o700)
    _write(place / "ca.pem", (folder / "ca.pem").read_bytes())
    _write_pair(place)
    return place


def request(folder: Path) -> str:
    """Create a node's own key pair, on the node; return the fingerprint that its administrator approves."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (folder / "node.key").exists():
        raise UserError(f"{folder} already holds a key: name another folder")
    return fingerprint(_write_pair(folder))


def approve(folder: Path, public: Path, node: str, expected: str, days: int | None, replace: bool = False) -> Path:
    """Register a public key that a node made itself, if its fingerprint is the expected one.

    Parameters
    ----------
    folder : Path
        The folder of `init`.
    public : Path
        The node's file ``node.pub``.
    node : str
        Its name.
    expected : str
        The fingerprint that the node's owner told on another way than the file.
    days : int or None
        After how many days the key expires; None for never.
    replace : bool
        Whether the node may have a key already, which this one replaces.

    Returns
    -------
    Path
        The node's folder.
    """
    _check_names([node])
    _require_file(folder / "ca.pem", "make the keys with 'fedtailor keys init'")
    _require_file(public, "the node makes it with 'fedtailor keys request'")
    found = fingerprint(_public_key(public))
    if found != expected:
        raise UserError(f"{public} has the fingerprint {found}, not {expected}: it is not the key that was announced")
    place = folder / "nodes" / node
    if (place / "node.pub").exists() and not replace:
        raise UserError(f"{node} has a key already: replace it with --replace, or revoke it first")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file, data in (
        ("ca.pem", (folder / "ca.pem").read_bytes()),
        ("expires", (_in(days) if days else "never").encode()),
        ("node.pub", public.read_bytes()),  # last: a coordinator that runs takes it up
    ):
        (place / f".{file}").unlink(missing_ok=True)
        _write(place / f".{file}", data).replace(place / file)
    return place


def revoke(folder: Path, node: str) -> None:
    """Exclude a node; its public key is kept under another name."""
    public = folder / "nodes" / node / "node.pub"
    _check_names([node])
    _require_file(public, f"{folder} has no such node")
    public.replace(public.with_name(f"revoked-{datetime.now(UTC):%Y%m%dT%H%M%S}.pub"))


def fingerprint(public: bytes) -> str:
    """Return the fingerprint of a public key as ssh-keygen shows it; ``public`` has the form that Flower registers."""
    key = serialization.load_pem_public_key(public)
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    digest = sha256(b64decode(line.split()[1])).digest()
    return "SHA256:" + b64encode(digest).decode().rstrip("=")


def _in(days: int) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")


def _expired(place: Path) -> bool:
    file = place / "expires"
    text = file.read_text(encoding="utf-8").strip() if file.exists() else "never"
    try:
        return text != "never" and datetime.fromisoformat(text) <= datetime.now(UTC)
    except (ValueError, TypeError):
        raise UserError(f"{file} holds {text!r}: write 'never' or a time such as {_in(90)}") from None


def _write_pair(place: Path) -> bytes:
    """Write a new key pair; return the public key in the form that Flower registers."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write(place / "node.key", _private(key, serialization.PrivateFormat.OpenSSH), secret=True)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return _public_key(_write(place / "node.pub", public + b"\n"))


def _public_key(file: Path) -> bytes:
    """Read a node's public key in the form that Flower registers."""
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    try:
        key = serialization.load_ssh_public_key(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is not a public key ({error}): create the node's keys again") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UserError(f"{file} is not an elliptic-curve key: make it with 'fedtailor keys add'")
    return public_key_to_bytes(key)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _authority_certificate(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return (
        _certificate(name, name, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )


def _server_certificate(
    subject: x509.Name,
    names: list[x509.GeneralName],
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    authority: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    return (
        _certificate(subject, issuer, key, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
    )


def _alternative_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Return the names that the certificate is for; the loopback is always one, for Flower's own connections."""
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys([*hosts, "localhost", "127.0.0.1"]):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not re.fullmatch(r"[A-Za-z0-9.*-]+", host):
                raise UserError(f"--host {host!r} is neither a host name nor an address") from None
            names.append(x509.DNSName(host))
    return names


def _private(
    key: ec.EllipticCurvePrivateKey, kind: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8
) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


def _write(file: Path, data: bytes, secret: bool = False) -> Path:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644), "wb") as opened:
        opened.write(data)
    return file


def _require_file(file: Path, hint: str) -> None:
    if not file.is_file():
        raise UserError(f"{file} does not exist: {hint}")


def _check_names(nodes: Sequence[str]) -> None:
    for node in nodes:
        if not NAME.fullmatch(node):
            raise UserError(f"{node!r} is not a name for a node: use at most 64 letters, digits, dots and dashes")
