"""The path of the library of the virtual GPU, and the names of NVIDIA's libraries that link to it.

The wheel for Linux on x86-64 contains the library. A child of a dry run preloads it. Libraries that the child opens by
name are links to it in a folder: all links name the same file, so the dynamic linker loads it once.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from nvcoll.dryrun.parent.failures import CannotDryRun
from nvcoll.dryrun.wire.whole import write_whole

FILE = Path(__file__).parents[1] / "libnvcoll_vgpu.so"

SMI = Path(__file__).parents[1] / "inside" / "smi.py"

DRIVER_NAMES = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so", "libnvidia-ml.so.1")
"""Libraries that come with NVIDIA's driver: programs open them while they run."""

CUDNN = "adv cnn engines_precompiled engines_runtime_compiled graph heuristic ops"
"""Parts of cuDNN: torch is linked to the whole, Transformer Engine to each part."""

WHEELS: dict[tuple[int, ...], tuple[str, ...]] = {
    (12, 13): ("cublas", "cublasLt", "cudart", "cupti", "nvJitLink", "nvrtc"),
    (11, 12): ("cufft", "cusolver"),
    **{(0,): ("cufile", "cusparseLt"), (2,): ("nccl",), (3,): ("nvshmem_host",)},
    (9,): ("cudnn", *(f"cudnn_{part}" for part in CUDNN.split())),
    **{(10,): ("curand",), (12,): ("cusparse",)},
}
"""Libraries in NVIDIA's wheels by their versions, for CUDA 12 and 13: torch is linked to them, and finds nvcoll's."""

WHEEL_NAMES = tuple(f"lib{name}.so.{one}" for versions, names in WHEELS.items() for name in names for one in versions)


def library() -> Path:
    """Returns the library that a child preloads.

    Raises:
        CannotDryRun: this wheel contains none.
    """
    if not FILE.is_file():
        raise CannotDryRun(
            f"this nvcoll has no virtual GPU ({FILE} does not exist): install its wheel for Linux on x86-64"
        )
    return FILE


def user_cache() -> Path:
    """Returns the folder in which a dry run keeps recordings, compiled kernels and the names of libraries."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "nvcoll" / "dryrun"


def libraries() -> Path:
    """Returns a folder with links to the library under the names of NVIDIA's libraries.

    The folder is in the user's cache, one for each nvcoll that is installed: Triton compiles anew for each folder.

    Raises:
        CannotDryRun: this wheel contains no library.
        OSError: the folder cannot be made.
    """
    target = library().resolve()
    folder = user_cache() / "libraries" / sha256(os.fsencode(target)).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*DRIVER_NAMES, *WHEEL_NAMES):
        with suppress(FileExistsError):
            (folder / name).symlink_to(target)
    smi = folder / "nvidia-smi"
    program = f'#!/bin/sh\nexec {shlex.join([sys.executable, "-I", str(SMI)])} "$@"\n'.encode()
    if not smi.exists() or smi.read_bytes() != program:
        write_whole(smi, program, mode=0o755)
    return folder


def wheel_names(folder: Path) -> list[str]:
    """Returns the names of NVIDIA's libraries in a folder, for a child to preload, too.

    The dynamic linker loads one library per name. So the child does not load NVIDIA's own libraries where their wheels
    are installed, and needs 250 MB less.
    """
    return [name for name in WHEEL_NAMES if (folder / name).exists()]
