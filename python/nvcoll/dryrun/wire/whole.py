"""Files that are there whole or not at all, as other processes may read them or write them at the same time."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: bytes, mode: int | None = None) -> None:
    """Writes a file by a draft beside it; no draft is left if it cannot be written.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        if mode is not None:
            draft.chmod(mode)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
