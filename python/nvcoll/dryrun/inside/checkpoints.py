"""Checkpoints of the user: no dry run replaces them by its own, whose large floats are zeros.

The script writes its checkpoints as usual, as it may read them again; checkpoints of torch and safetensors get a mark.
What is guarded is the file that would be lost, whoever would write there:

| the script | refused if the file |
|---|---|
| writes to a path with torch or safetensors | has content without the mark |
| opens a file for writing, or truncates it | is a checkpoint without the mark |
| renames a file to another | is a checkpoint without the mark, or has content, and a marked file would replace it |
| removes a file, or a folder | is a checkpoint without the mark, or one is in the folder |

A checkpoint is an archive or an older file of torch, or a file of safetensors, by its first bytes. In the last two rows
and in the second, a file that this run has made needs no mark. Not seen are programs that the script starts, writers
that are not Python's (but torch.jit's and safetensors'), mapped files, and other formats.

A distributed checkpoint (torch.distributed.checkpoint) has the parts of the ranks that run, and is read like a whole.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any

from nvcoll.dryrun.inside import events, private
from nvcoll.dryrun.inside.data import Data
from nvcoll.dryrun.inside.events import File
from nvcoll.dryrun.inside.imports import OnFirstUse
from nvcoll.dryrun.inside.lines import Lines
from nvcoll.dryrun.inside.ops import Operators
from nvcoll.dryrun.inside.refusals import loses
from nvcoll.dryrun.wire.stamps import kind_of

MARK = ".nvcoll-dryrun"
"""The end of the name of the record of an archive that marks it; the last bytes of an older file, a name in the header
of safetensors."""

OLDER = bytes.fromhex("80028a0a6cfc9c46f9206aa85019")
"""The first bytes of torch's older format: its magic number, pickled."""

MOST_FILES = 10_000
"""The most files of a folder that are looked at before it is removed. Chosen."""

WRITES = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Checkpoints:
    """The checkpoints that a script would lose or makes."""

    def __init__(self, recorder: Operators, data: Data, lines: Lines) -> None:
        self._recorder, self._data, self._lines = recorder, data, lines
        self._made: set[str] = set()
        self._by_torch: set[str] = set()

    def install(self) -> None:
        """Watches writers of checkpoints, and files that are opened, renamed and removed."""
        private.wrap(private.serialization, "_open_zipfile_writer", self._opening)
        private.wrap(private.serialization, "_open_file_like", self._opening)
        private.wrap(private.serialization, "_save", self._saving)
        private.wrap(private.serialization, "_legacy_save", self._saving)
        private.wrap(private.scripted, "save", self._scripted)
        sys.meta_path.insert(0, OnFirstUse("safetensors.torch", self._install_safetensors))
        sys.meta_path.insert(0, OnFirstUse("torch.distributed.checkpoint.state_dict_saver", self._install_distributed))
        for event, handler in (
            ("open", lambda file, _mode, flags: self._opened(file, flags)),
            ("os.truncate", lambda file, _length: self._opened(file, WRITES)),
            ("os.rename", self._renamed),
            ("os.mkdir", lambda folder, _mode, at: self._make(_whole(folder, at))),
            ("os.remove", lambda file, at: self._keep(_whole(file, at, False), "delete")),
            ("shutil.rmtree", self._removed),
        ):
            events.on(event, handler)

    # ---- writers ----

    def _opening(self, plain: Callable[..., object]) -> Callable[..., object]:
        @wraps(plain)
        def opening(file: object, mode: str = "wb") -> object:
            if mode == "wb" and isinstance(file, str | os.PathLike):
                self._written_by_torch(os.fspath(file), "torch.save")
            return plain(file) if plain.__name__ == "_open_zipfile_writer" else plain(file, mode)

        return opening

    def _written_by_torch(self, file: str, writer: str) -> None:
        path = _whole(file)
        with events.silence():
            if _has_content(path) and not _is_marked(path):
                raise loses(path, "overwrite", self._lines.of_script())
        self._by_torch.add(path)
        if self._recorder.is_on:
            self._recorder.saves.append(self._lines.of_script())
        self._data.assume(f"{writer} writes {file}, with zeros for large floats")
        sys.audit("open", file, "wb", WRITES)  # which torch's and safetensors' own code does not do

    def _saving(self, plain: Callable[..., object]) -> Callable[..., object]:
        @wraps(plain)
        def saving(obj: object, file: Any, *args: object, **kwargs: object) -> None:
            plain(obj, file, *args, **kwargs)
            if plain.__name__ == "_save":
                file.write_record(MARK, b"", 0)
            elif isinstance(name := getattr(file, "name", None), str) and _whole(name) in self._by_torch:
                file.write(MARK.encode())  # not in a stream of the script, in which more may follow

        return saving

    def _scripted(self, plain: Callable[..., object]) -> Callable[..., object]:
        @wraps(plain)
        def saved(module: object, file: File, *, _extra_files: Mapping[str, str] | None = None) -> object:
            self._written_by_torch(os.fsdecode(file), "torch.jit.save")
            return plain(module, file, _extra_files={**(_extra_files or {}), MARK: "zeros"})

        return saved

    def _install_safetensors(self) -> None:
        def around(write: Callable[..., None]) -> Callable[..., None]:
            def written(tensors: object, filename: File, metadata: dict[str, str] | None = None) -> None:
                self._written_by_torch(os.fsdecode(filename), "safetensors")
                write(tensors, filename, metadata={**(metadata or {}), MARK: "zeros"})

            return written

        private.wrap(sys.modules["safetensors"], "serialize_file", around)

    def _install_distributed(self) -> None:
        def of_running(dedup: Callable[..., object]) -> Callable[..., object]:
            def planned(plans: list[Any], *args: object, **kwargs: object) -> object:
                first = {id(plan): nth for nth, plan in reversed(list(enumerate(plans)))}
                mine = (plan if first[id(plan)] == nth else replace(plan, items=[]) for nth, plan in enumerate(plans))
                return dedup(list(mine), *args, **kwargs)

            return planned

        def partial(validate: Callable[..., object]) -> Callable[..., object]:
            def validated(*args: object) -> object:
                self._data.assume("a distributed checkpoint has the parts of the ranks that run")
                if self._recorder.is_on:
                    self._recorder.saves.append(self._lines.of_script())
                return True if isinstance(validate(*args), bool) else []  # torch 2.11: whether it is whole; else errors

            return validated

        private.wrap(private.checkpoint("default_planner"), "dedup_save_plans", of_running)
        private.wrap(private.checkpoint("default_planner"), "_validate_global_plan", partial)
        thread = private.checkpoint("_async_thread_executor")._ThreadBasedAsyncCheckpointExecutor
        private.replace(private.checkpoint("_async_process_executor"), "_ProcessBasedAsyncCheckpointExecutor", thread)

    # ---- what would be lost ----

    def _opened(self, file: File | int, flags: object) -> None:
        if isinstance(file, int) or not isinstance(flags, int):
            return
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            path = _whole(file)
            self._keep(path, "overwrite")
            self._make(path)
        elif flags & os.O_CREAT:
            self._make(_whole(file))

    def _renamed(self, source: File, target: File, source_at: int, target_at: int) -> None:
        old, new = _whole(source, source_at, False), _whole(target, target_at, False)
        with events.silence():
            if _has_content(new) and _is_marked(old) and not _is_marked(new):
                raise loses(new, "overwrite", self._lines.of_script())
        self._keep(new, "overwrite")
        if self._is_ours(old):
            self._make(new)

    def _removed(self, folder: File, at: int | None = None) -> None:
        path = _whole(folder, -1 if at is None else at, False)
        with events.silence():
            files = [str(file) for file in islice(Path(path).rglob("*"), MOST_FILES)]
        for file in files:
            self._keep(file, "delete")

    def _keep(self, path: str, verb: str) -> None:
        """Refuses to lose a checkpoint of the user.

        Raises:
            DryRunError: the file is one.
        """
        with events.silence():
            if not self._is_ours(path) and _is_checkpoint(path) and not _is_marked(path):
                raise loses(path, verb, self._lines.of_script())

    def _make(self, path: str) -> None:
        if not kind_of(path):
            self._made.add(path)

    def _is_ours(self, path: str) -> bool:
        """Says whether there is no such file, or this run has made it, or its folder."""
        if kind_of(path) != "file" or os.path.islink(path):
            return True
        return path in self._made or any(str(parent) in self._made for parent in Path(path).parents)


def _whole(file: File, folder: int = -1, is_followed: bool = True) -> str:
    """Returns the real path of a file.

    Args:
        file: its name.
        folder: the descriptor of the folder in which it is; -1: the current one.
        is_followed: whether a link stands for what it leads to, as where it is written to.
    """
    name = os.fsdecode(file)
    if folder != -1:
        name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
    if is_followed:
        return os.path.realpath(name)
    return os.path.join(os.path.realpath(os.path.dirname(name) or "."), os.path.basename(name))


def _has_content(file: str) -> bool:
    return kind_of(file) == "file" and not os.path.islink(file) and os.path.getsize(file) > 0


def _is_checkpoint(file: str) -> bool:
    try:
        with open(file, "rb") as content:
            begin = content.read(len(OLDER))
    except OSError:
        return False
    if begin.startswith(b"PK\x03\x04"):
        return any(name.endswith("/data.pkl") for name in _records(file))
    return begin == OLDER or (begin[8:10] == b'{"' and begin[6:8] == b"\0\0")


def _is_marked(file: str) -> bool:
    if _records(file):
        return any(name.endswith(MARK) for name in _records(file))
    try:
        with open(file, "rb") as content:
            header = content.read(8)
            if content.read(2) == b'{"' and header[6:] == b"\0\0":
                return f'"{MARK}"'.encode() in content.read(int.from_bytes(header, "little"))
            content.seek(-len(MARK), os.SEEK_END)
            return content.read() == MARK.encode()
    except OSError:
        return False


def _records(file: str) -> list[str]:
    try:
        with zipfile.ZipFile(file) as records:
            return records.namelist()
    except (OSError, zipfile.BadZipFile):
        return []
