"""Errors of dry runs. All are `nvcoll.errors.DryRunError`."""

from __future__ import annotations

from nvcoll.errors import DryRunError

OUT_OF_MEMORY = ("OutOfMemoryError", "CUDA out of memory")
"""Texts in torch's messages when a GPU runs out of memory."""


class CannotDryRun(DryRunError):
    """This machine or its torch cannot do a dry run; the message says what is missing."""


class DryRunLimit(DryRunError):
    """The limit of time or memory was reached."""


class ScriptFailed(DryRunError):
    """The script did not reach the counted step; the message says why, with the line of the script."""


class OutOfGpuMemory(ScriptFailed):
    """The script needs more memory than the GPU has; the message is from torch's allocator."""
