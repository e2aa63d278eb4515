"""Errors by which a rank refuses what the script does: each says which line does it, and what to do."""

from __future__ import annotations

from nvcoll.errors import DryRunError


def unknown_shape(op: str, shape: tuple[int, ...], dtype: str, line: str) -> DryRunError:
    """Returns the error of a shape that depends on values that do not exist."""
    return DryRunError(
        f"{line}: the shape of `{op}` depends on the values of a tensor {shape} {dtype} that comes from large floats, "
        "which have no values in a dry run: make the shape depend on integers, or leave this line out of the dry run",
        line=line,
    )


def second_gpu(first: int, second: int, line: str) -> DryRunError:
    """Returns the error of a process that uses two GPUs."""
    return DryRunError(
        f"{line}: this process uses cuda:{second} after cuda:{first}, and a dry run records one GPU per process: use "
        "that of LOCAL_RANK alone, as with torchrun (DistributedDataParallel in place of DataParallel)",
        line=line,
    )


def loses(file: str, verb: str, line: str) -> DryRunError:
    """Returns the error of a checkpoint that would be overwritten or deleted."""
    return DryRunError(
        f"{line}: the script would {verb} {file}, which no dry run wrote, and floats of a dry run are zeros: give the "
        "script another folder for its output, or move the file",
        line=line,
    )


def no_peer(what: str, rank: int, line: str) -> DryRunError:
    """Returns the error of a rank that waits for an object of a rank that does not run."""
    return DryRunError(
        f"{line}: {what} of rank {rank} is needed, and this rank does not run: add it to --only-ranks",
        line=line,
        ranks=(rank,),
    )
