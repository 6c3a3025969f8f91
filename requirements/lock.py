"""Write the lock files of `make`: one version of every package, with the hashes of its files and no host.

    make lock                      # keeps the versions that still fit pyproject.toml
    make lock OPTIONS=--upgrade    # takes the newest ones

`core.lock` is what FedTailor needs; `dev.lock` is what its tests and its documentation need as well, in the same
versions. Both hold for Python 3.11 and newer on every platform. torch is not in them: which build of it is right, and
which CUDA packages it brings, depends on the machine. The Makefile names its version. Here it is resolved as the CPU
build, which uv must find in `UV_FIND_LINKS` (a folder with its wheel) or `UV_INDEX` (PyTorch's index of CPU builds).
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TORCH = "2.13.0"
HEADER = "# Written by `make lock`: do not edit. torch is installed first; see requirements/lock.py.\n"


def lock(name: str, arguments: list[str]) -> None:
    """Write one lock file; uv prefers the versions that it already holds."""
    file = HERE / f"{name}.lock"
    command = [*(sys.executable, "-m", "uv", "pip", "compile", "--universal", "--python-version", "3.11", "--quiet")]
    command += ["--generate-hashes", "--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links"]
    command += ["--no-emit-package", "torch", "--output-file", str(file), *arguments]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as override:
        override.write(f"torch=={TORCH}+cpu\n")
        override.flush()
        done = [*command, "--override", override.name, "pyproject.toml"]
        subprocess.run(done, cwd=HERE.parent, stdout=subprocess.DEVNULL, check=True)
    file.write_text(HEADER + file.read_text())


def main(options: list[str]) -> None:
    if not {"UV_FIND_LINKS", "UV_INDEX"} & set(os.environ):
        sys.exit(
            "set UV_INDEX to the address of PyTorch's index of CPU builds, or UV_FIND_LINKS to a folder with its wheel"
        )
    lock("dev", [*options, "--extra", "dev"])
    lock("core", [*options, "--constraint", "requirements/dev.lock"])


if __name__ == "__main__":
    main(sys.argv[1:])
