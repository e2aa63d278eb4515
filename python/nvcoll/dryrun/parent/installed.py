"""Finds the torch that a dry run would use, without importing it: version, CUDA, and whether a dry run can use it.

A dry run needs Linux on x86-64 and a build of torch for CUDA, as ``pip install torch`` installs there. The GPU, its
driver and NVIDIA's packages need not be there. torch is read as a file, because its import takes seconds.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

from nvcoll.dryrun.parent.failures import CannotDryRun

LEAST = (2, 11)
"""The oldest torch. Cited: the oldest with which nvcoll's backend is tested."""

INSTALL = "pip install torch, on Linux x86-64, installs the right one"


@dataclass(frozen=True)
class Torch:
    """The torch that is installed.

    Attributes:
        version: as ``2.15.0+cu132``.
        cuda: the version of CUDA for which it is built, as ``13.2``.
        folder: where its files are.
    """

    version: str
    cuda: str
    folder: Path

    @property
    def cuda_major(self) -> int:
        """The first number of the version of CUDA."""
        return int(self.cuda.partition(".")[0])


def torch_installed() -> Torch:
    """Returns the torch of this Python.

    Raises:
        CannotDryRun: the system is another one; torch is not installed, not built for CUDA, or too old.
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        here = f"{platform.system()} on {platform.machine()}"
        raise CannotDryRun(f"a dry run needs Linux on x86-64, and this is {here}: run it in a Linux container")
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        raise CannotDryRun(f"torch is not installed beside nvcoll ({sys.executable}): {INSTALL}")
    folder = Path(next(iter(found.submodule_search_locations)))
    version, cuda = _written(folder / "version.py")
    if not cuda:
        what = f"torch {version} is built without CUDA"
        raise CannotDryRun(f"{what}: {INSTALL}. It needs no GPU and none of NVIDIA's packages (--no-deps)")
    if tuple(map(int, version.split(".")[:2])) < LEAST:
        raise CannotDryRun(f"torch {version} is too old for a dry run: install {'.'.join(map(str, LEAST))} or newer")
    return Torch(version, cuda, folder)


def _written(file: Path) -> tuple[str, str]:
    """Reads the versions of torch and of its CUDA (empty: none) from the file that its build wrote."""
    try:
        found = runpy.run_path(str(file))
    except (OSError, SyntaxError) as error:
        raise CannotDryRun(f"torch has no version ({file}: {error}): install it again") from None
    if not re.match(r"\d+\.\d+", version := str(found.get("__version__"))):
        raise CannotDryRun(f"torch has no version that can be read ({file}): install it again")
    return version, found.get("cuda") or ""
