"""The page on a package index: the README, with links that work anywhere. All else is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
RELATIVE = re.compile(r"(!?)(\[(?:[^\[\]]|\n)*\])\((?!https?:|#|mailto:)([^)\s]+)\)")


def long_description(version: str) -> str:
    """The README; a relative link leads to the repository at the version's tag, or at main before a release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    revision = "main" if "dev" in version else f"v{version}"

    def absolute(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        kind = "raw" if picture else "blob"
        return f"{picture}{text}({project['urls']['Homepage']}/{kind}/{revision}/{target})"

    return RELATIVE.sub(absolute, (ROOT / "README.md").read_text(encoding="utf-8"))


def version() -> str:
    found: dict[str, str] = {}
    exec((ROOT / "fedtailor" / "version.py").read_text(encoding="utf-8"), found)
    return found["__version__"]


setup(long_description=long_description(version()), long_description_content_type="text/markdown")
