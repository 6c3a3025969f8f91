"""Keys of a federation: a certificate authority, the coordinator's certificate, and a key pair for every node.

    keys/ca.pem          the authority; a node knows the coordinator by it
    keys/ca.key          signs certificates; stays with whoever made it
    keys/server.pem      the coordinator's certificate, with its key server.key
    keys/nodes/anna/     all that the node anna needs: ca.pem, node.key, node.pub

A node is known by its public key, which the coordinator registers with Flower when it starts.
"""

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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
    """The folder of keys, as the coordinator uses it."""

    folder: Path

    def __post_init__(self) -> None:
        for file in (self.authority, self.certificate, self.key):
            _needed(file, "make the keys with 'fedtailor keys init'")
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
        """The public keys of the nodes, by name."""
        return {file.parent.name: file for file in sorted(self.folder.glob("nodes/*/node.pub"))}


@dataclass(frozen=True)
class NodeKeys:
    """The folder of one node."""

    folder: Path

    def __post_init__(self) -> None:
        for file in (self.authority, self.key):
            _needed(file, "copy the node's folder from where the keys were made, keys/nodes/NAME")

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def key(self) -> Path:
        return self.folder / "node.key"


def init(folder: Path, hosts: Sequence[str], nodes: Sequence[str]) -> list[Path]:
    """Make the authority, the coordinator's certificate for these host names or addresses, and the nodes' keys."""
    if (folder / "ca.key").exists() or (folder / "ca.pem").exists():
        raise UserError(f"{folder} holds keys already: add nodes with 'fedtailor keys add', or name another folder")
    _check_names(nodes)
    names = _alternatives(hosts)
    folder.mkdir(parents=True, exist_ok=True)
    authority = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "FedTailor federation")])
    root = (
        _certificate(name, name, authority.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    server = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0] if hosts else "localhost")])
    certificate = (
        _certificate(subject, name, server.public_key(), SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    pem = serialization.Encoding.PEM
    written = [
        _write(folder / "ca.key", _private(authority), secret=True),
        _write(folder / "ca.pem", root.public_bytes(pem)),
        _write(folder / "server.key", _private(server), secret=True),
        _write(folder / "server.pem", certificate.public_bytes(pem)),
    ]
    return [*written, *(add(folder, node) for node in nodes)]


def add(folder: Path, node: str) -> Path:
    """Make the keys of another node; its folder."""
    _check_names([node])
    _needed(folder / "ca.pem", "make the keys with 'fedtailor keys init'")
    place = folder / "nodes" / node
    if place.exists():
        raise UserError(f"{place} exists: a node's keys are made once; remove the folder to make others")
    place.mkdir(parents=True)
    key = ec.generate_private_key(ec.SECP384R1())
    _write(place / "ca.pem", (folder / "ca.pem").read_bytes())
    _write(place / "node.key", _private(key, serialization.PrivateFormat.OpenSSH), secret=True)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(place / "node.pub", public + b"\n")
    return place


def public_key(file: Path) -> bytes:
    """A node's public key as Flower registers it."""
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    try:
        key = serialization.load_ssh_public_key(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is not a public key ({error}): make the node's keys again") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UserError(f"{file} is not a key of an elliptic curve: make it with 'fedtailor keys add'")
    return public_key_to_bytes(key)


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


def _alternatives(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """The names the certificate is for; the loopback is always one, for Flower's own connections."""
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


def _needed(file: Path, hint: str) -> None:
    if not file.is_file():
        raise UserError(f"{file} does not exist: {hint}")


def _check_names(nodes: Sequence[str]) -> None:
    for node in nodes:
        if not NAME.fullmatch(node):
            raise UserError(f"{node!r} is no name for a node: use letters, digits, dots, dashes, at most 64")
