"""What a dry run refuses, with the line of the script that asked for it."""

from __future__ import annotations

from nvcoll.errors import DryRunError

__all__ = ["DryRunError", "no_peer", "second_gpu", "unknown_shape"]


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
