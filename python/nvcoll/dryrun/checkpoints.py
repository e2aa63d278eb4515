"""Checkpoints that a script writes with `torch.save`: they take the place of no file but those of other dry runs.

Large floats have no values, so a checkpoint of a dry run holds zeros. It is written as the script says, as the script
may read it again, with one more record that marks it. A file without this mark is not overwritten, nor does a file
with the mark replace it (scripts write to a temporary file, and rename it).
"""

from __future__ import annotations

import os
import sys
import zipfile
from functools import wraps
from typing import Any

import torch

from nvcoll.dryrun import private
from nvcoll.dryrun.data import Data
from nvcoll.dryrun.failures import overwrites
from nvcoll.dryrun.lines import Lines
from nvcoll.dryrun.ops import Recorder

MARK = ".nvcoll-dryrun"
"""The end of the name of the record that marks a checkpoint of a dry run."""


def install(recorder: Recorder, data: Data, lines: Lines) -> None:
    """Watches `torch.save`, and files that are renamed."""

    def around(save: Any) -> Any:
        @wraps(save)
        def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(f, str | os.PathLike):
                return save(obj, f, *args, **kwargs)  # a stream, which the script has opened itself
            file = os.fspath(f)
            if _is_of_user(file):
                raise overwrites(file, lines.of_script())
            if recorder.is_on:
                recorder.saves.append(lines.of_script())
            data.assume(f"torch.save writes {file}, with zeros for large floats")
            save(obj, f, *args, **kwargs)
            _mark(file)

        return saved

    def renamed(event: str, args: tuple[Any, ...]) -> None:
        if event == "os.rename" and _is_of_dry_run(args[0]) and _is_of_user(args[1]):
            raise overwrites(os.fsdecode(args[1]), lines.of_script())

    private.wrap(torch, "save", around)
    sys.addaudithook(renamed)


def _is_of_user(file: Any) -> bool:
    """Says whether there is a file with content that no dry run wrote."""
    return os.path.isfile(file) and os.path.getsize(file) > 0 and not _is_of_dry_run(file)


def _is_of_dry_run(file: Any) -> bool:
    try:
        with zipfile.ZipFile(os.fsdecode(file)) as records:
            return any(name.endswith(MARK) for name in records.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _mark(file: str) -> None:
    """Adds the mark to a file; the older format of torch, which is no archive, gets none."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file, "a") as records:
            records.writestr(f"{records.namelist()[0].partition('/')[0]}/{MARK}", b"")
