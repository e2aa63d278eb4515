"""Errors by which a rank refuses what the script does: each says which line does it, and what to do."""

from __future__ import annotations

from nvcoll.errors import DryRunError


def unknown_shape(op: str, shape: tuple[int, ...], dtype: str, line: str, place: str) -> DryRunError:
    """Returns the error of a shape that depends on values that do not exist."""
    what = f"the shape of `{op}` depends on the values of a tensor {shape} {dtype} that comes from large floats"
    advice = "make the shape depend on integers, or leave this line out of the dry run"
    return DryRunError(f"{place}: {what}, which have no values in a dry run: {advice}", line=line)


def second_gpu(first: int, second: int, line: str) -> DryRunError:
    """Returns the error of a process that uses two GPUs."""
    what = f"this process uses cuda:{second} after cuda:{first}, and a dry run records one GPU per process"
    advice = "use only the GPU of LOCAL_RANK, as with torchrun (DistributedDataParallel in place of DataParallel)"
    return _refused(f"{what}: {advice}", line)


def loses(file: str, verb: str, line: str) -> DryRunError:
    """Returns the error of a checkpoint that would be overwritten or deleted."""
    what = f"the script would {verb} {file}, which no dry run wrote, and floats of a dry run are zeros"
    return _refused(f"{what}: give the script another folder for its output, or move the file", line)


def no_peer(what: str, rank: int, line: str) -> DryRunError:
    """Returns the error of a rank that waits for an object of a rank that does not run."""
    return _refused(f"{what} of rank {rank} is needed, and this rank does not run: add it to --only-ranks", line, rank)


def no_stages(group: str, line: str) -> DryRunError:
    """Returns the error of a rank that makes the group of a pipeline whose other stages do not run."""
    return _refused(f"the group `{group}` is a pipeline, and its other stages do not run: pass --only-ranks", line)


def _refused(text: str, line: str, *ranks: int) -> DryRunError:
    return DryRunError(f"{line}: {text}", line=line, ranks=ranks)
