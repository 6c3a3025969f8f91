"""The app that coordinator and nodes run on Flower. Flower knows it as a file; its code is the installed package.

Flower would run the code of any app that reaches it. Ours never loads an app: the programs `coordinator.server_app` and
`node.executor` call the functions of this package, and refuse a task of an app with another digest.
"""

from functools import cache
from hashlib import sha256

DESCRIPTION = """
[project]
name = "fedtailor-federation"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedtailor"

[tool.flwr.app.components]
serverapp = "fedtailor.flower.coordinator.server_app:app"
clientapp = "fedtailor.flower.node.client_app:app"

[tool.flwr.app.config]
"""


@cache
def content() -> bytes:
    """Return the app as Flower's file; it is the same bytes on every machine."""
    from flwr.cli.build import build_fab_from_files

    made: bytes = build_fab_from_files({"pyproject.toml": DESCRIPTION.encode()})[0]
    return made


@cache
def digest() -> str:
    """Return the digest by which Flower names the app."""
    return sha256(content()).hexdigest()


def is_ours(file: bytes) -> bool:
    """Return whether Flower's file of an app is ours."""
    return sha256(file).hexdigest() == digest()
