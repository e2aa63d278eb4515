"""Why a dry run has no result. All are `nvcoll.errors.DryRunError`."""

from __future__ import annotations

from nvcoll.errors import DryRunError

OUT_OF_MEMORY = ("OutOfMemoryError", "CUDA out of memory")
"""What messages of torch say when the memory of a GPU is out."""


class CannotDryRun(DryRunError):
    """This machine or its torch cannot do a dry run; the message says what is missing."""


class DryRunLimit(DryRunError):
    """The limit of time or memory was reached."""


class ScriptFailed(DryRunError):
    """The script did not reach the step that counts; the message says why, with the line of the script."""


class OutOfGpuMemory(ScriptFailed):
    """The script needs more memory than the GPU has; the message is that of torch's allocator."""


def unknown_shape(op: str, shape: tuple[int, ...], dtype: str, line: str) -> DryRunError:
    """A shape depends on values that do not exist."""
    return DryRunError(
        f"{line}: the shape of `{op}` depends on the values of a tensor {shape} {dtype} that comes from large floats, "
        "which have no values in a dry run: make the shape depend on integers, or leave this line out of the dry run",
        line=line,
    )


def second_gpu(first: int, second: int, line: str) -> DryRunError:
    """One process works on two GPUs, and a recording is of one."""
    return DryRunError(
        f"{line}: this process uses cuda:{second} after cuda:{first}, and a dry run records one GPU of a process: use "
        "that of LOCAL_RANK alone, as with torchrun (DistributedDataParallel in place of DataParallel)",
        line=line,
    )


def no_peer(what: str, rank: int, line: str) -> DryRunError:
    """Another rank would say something, but it does not run."""
    return DryRunError(
        f"{line}: {what} of rank {rank} is needed, and this rank does not run: run it too (`roles`)",
        line=line,
        ranks=(rank,),
    )
