"""Where the library of the virtual GPU lies, and the names under which a program looks for it.

The wheel for Linux on x86-64 carries the library. A child of a dry run preloads it. Libraries that the child opens by
name are links to it in a folder: a link has the same file behind it, so the dynamic linker loads it once.
"""

from __future__ import annotations

import os
import tempfile
from hashlib import sha256
from pathlib import Path

from nvcoll.dryrun.failures import CannotDryRun

FILE = "libnvcoll_vgpu.so"

DRIVER_NAMES = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so", "libnvidia-ml.so.1")
"""Libraries that come with NVIDIA's driver: programs open them while they run."""

WHEEL_NAMES = (
    "libcublas.so.12",
    "libcublas.so.13",
    "libcublasLt.so.12",
    "libcublasLt.so.13",
    "libcudart.so.12",
    "libcudart.so.13",
    "libcudnn.so.9",
    "libcufft.so.11",
    "libcufft.so.12",
    "libcufile.so.0",
    "libcupti.so.12",
    "libcupti.so.13",
    "libcurand.so.10",
    "libcusolver.so.11",
    "libcusolver.so.12",
    "libcusparse.so.12",
    "libcusparseLt.so.0",
    "libnccl.so.2",
    "libnvJitLink.so.12",
    "libnvJitLink.so.13",
    "libnvrtc.so.12",
    "libnvrtc.so.13",
    "libnvshmem_host.so.3",
)
"""Libraries in NVIDIA's wheels, for CUDA 12 and 13: torch is linked to them, and finds ours without the wheels."""


def library() -> Path:
    """Returns the library that a child preloads.

    Raises:
        CannotDryRun: this wheel carries none.
    """
    path = Path(__file__).parent / FILE
    if not path.is_file():
        raise CannotDryRun(
            f"this nvcoll has no virtual GPU ({path} is not there): only its wheel for Linux on x86-64 carries one"
        )
    return path


def user_cache() -> Path:
    """Returns the folder in which a dry run keeps recordings, compiled kernels and the names of libraries."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "nvcoll" / "dryrun"


def libraries() -> Path:
    """Returns a folder in which the library has the names of NVIDIA's libraries.

    The folder is in the user's cache, and is made once for each place where nvcoll is installed.

    Raises:
        CannotDryRun: this wheel carries no library.
        OSError: the folder cannot be made.
    """
    target = library().resolve()
    names = (*DRIVER_NAMES, *WHEEL_NAMES)
    key = sha256("\n".join([str(target), *names]).encode()).hexdigest()[:16]
    folder = user_cache() / "libraries" / key
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        for name in names:
            (made / name).symlink_to(target)
        try:
            made.rename(folder)
        except OSError:  # another process made it meanwhile
            for name in names:
                (made / name).unlink()
            made.rmdir()
    return folder


def wheel_names(folder: Path) -> list[str]:
    """Returns the names of libraries of NVIDIA's wheels that a folder has, for a child to preload, too.

    A library that is loaded under a name is not loaded again under it. So NVIDIA's own libraries stay out of the child
    where their wheels are installed, and it needs 250 MB less.
    """
    return [name for name in WHEEL_NAMES if (folder / name).exists()]
