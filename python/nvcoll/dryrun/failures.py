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
