"""What a script reads while it runs: its recording is used again only while all of that is as it was.

::

    open for reading              read       a file; a .pyc stands for its source
    open for writing, mkdir, ...  made       a path that the script writes itself
    os.listdir, os.scandir        listed     a folder, with its names
    the same, by an import        searched   a folder, with the names that modules may have
    import                        sought     the name of a module
    os.stat                       asked      whether a path is a file, a folder or nothing
    socket.gethostname            host

Each is one line of JSON in a file, at its first time, with the stamp (`wire.stamps`) that the path had before it was
read. Forks of the rank have the same hook, and processes of multiprocessing get it (`inside.children`). The parent
reads the file (`parent.inputs`).

Files that an extension opens by itself are no event: files that are mapped at the end, and files that are arguments of
the script, are noted. Left out: the standard library, compiled modules, /proc, /sys and /dev, and the dry run's
own folders.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import source_from_cache

from nvcoll.dryrun.inside import events
from nvcoll.dryrun.inside.events import File
from nvcoll.dryrun.wire.stamps import STAT, Note, kind_of, may_be_imported, names_in, stamp_of

SYSTEM = ("/proc/", "/sys/", "/dev/")
"""Folders whose files are the state of this machine, and differ at each reading."""

FINDERS = ("<frozen importlib._bootstrap_external>", "/importlib/metadata/__init__.py")
"""Ends of the names of Python's files that list folders to find modules, and packages that are installed."""


class Reads:
    """Writes what this process and its forks read to a file.

    Args:
        file: the file, which other processes may write to at the same time, too.
        own: beginnings of the names of files that do not count.
    """

    def __init__(self, file: str, own: Sequence[str] = ()) -> None:
        self.file, self.own = file, tuple(own)
        self._installed = tuple({f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib")})
        self._standard = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
        self._seen: set[tuple[str, str]] = set()

    def begin(self, arguments: Sequence[str] = ()) -> None:
        """Notes what Python has read so far, files that are arguments, and all that is read from now on."""
        self._note(Note("begun", str(os.getpid())))
        for name in ("sitecustomize", "usercustomize", *list(sys.modules)):
            self._sought(name)
        for module in list(sys.modules.values()):
            if isinstance(file := getattr(module, "__file__", None), str):
                self._read(file)
        for folder in list(sys.path_importer_cache):
            self._listed("searched", folder)
        for folder in self._installed:
            for name in names_in(folder) or ():
                if name.endswith(".pth"):
                    self._read(folder + name)
        for word in arguments:
            path = word.rpartition("=")[2]
            if kind_of(path) == "file":
                self._read(path)
        for event, handler in (
            ("open", self._opened),
            ("import", self._sought),
            ("os.listdir", self._scanned),
            ("os.scandir", self._scanned),
            ("os.mkdir", self._made),
            ("os.rename", lambda _, to, *_rest: self._made(to)),
            ("os.link", lambda _, to, *_rest: self._made(to)),
            ("os.symlink", lambda _, to, *_rest: self._made(to)),
            ("ctypes.dlopen", lambda name: self._read(name) if isinstance(name, str) and "/" in name else None),
            ("socket.gethostname", lambda: self._note(Note("host", os.uname().nodename))),
        ):
            events.on(event, handler)
        self._watch_stat()

    def end(self) -> None:
        """Notes the files that are mapped into memory."""
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for path in dict.fromkeys(line.rstrip("\n").partition("/")[2] for line in maps):
                if path and not path.endswith(" (deleted)"):
                    self._read(f"/{path}")

    def _opened(self, file: File | int, _mode: object, flags: object) -> None:
        if isinstance(file, int) or not isinstance(flags, int):
            return
        writes = flags & os.O_ACCMODE == os.O_WRONLY or flags & os.O_TRUNC
        if writes or (flags & os.O_CREAT and not kind_of(_path(file))):
            self._made(file)
        else:
            self._read(file)

    def _read(self, file: File) -> None:
        path = _path(file)
        if path.endswith(".pyc"):
            with suppress(ValueError, NotImplementedError):
                source = source_from_cache(path)
                path = source if kind_of(source) else path
        if not self._is_aside("read", path):
            self._note(Note("read", path, stamp_of(path)))

    def _made(self, file: File | int, *_: object) -> None:
        if not isinstance(file, int) and not self._is_aside("made", path := _path(file)):
            self._note(Note("made", path, kind=kind_of(path)))

    def _sought(self, name: str, file: File | None = None, *_: object) -> None:
        if file is not None:
            self._read(file)
        if ("sought", last := name.rpartition(".")[2]) not in self._seen:
            self._note(Note("sought", last))

    def _scanned(self, folder: File | int | None = None) -> None:
        if not isinstance(folder, int):
            by_finder = sys._getframe(2).f_code.co_filename.endswith(FINDERS)
            self._listed("searched" if by_finder else "listed", folder or os.curdir)

    def _listed(self, what: str, folder: File) -> None:
        path = _path(folder)
        if self._is_aside(what, path):
            return
        with events.silence():
            stamp, names = stamp_of(path), names_in(path)
        if what == "searched" and names is not None:
            names = [name for name in names if may_be_imported(name)]
        self._note(Note(what, path, stamp, names))

    def _watch_stat(self) -> None:
        """Notes which paths the script asks for: `os.path.exists` and `pathlib` call `os.stat`, which is no event."""

        def stat_(path: File | int, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
            if not isinstance(path, int) and dir_fd is None and follow_symlinks:
                with suppress(TypeError, ValueError, OSError):
                    self._asked(path)
            return STAT(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)

        stat_.__name__ = stat_.__qualname__ = "stat"
        stat_.__module__ = "os"
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            able.add(stat_)
        os.stat = stat_

    def _asked(self, file: File) -> None:
        path = _path(file)
        if not self._is_aside("asked", path):
            self._note(Note("asked", path, kind=kind_of(path)))

    def _is_aside(self, what: str, path: str) -> bool:
        """Says whether a path does not count, or was noted before."""
        if (what, path) in self._seen or path.startswith((*SYSTEM, *self.own)) or "/__pycache__" in path:
            return True
        return f"{path}/".startswith(self._standard) and not f"{path}/".startswith(self._installed)

    def _note(self, note: Note) -> None:
        self._seen.add((note.what, note.path))
        line = json.dumps(note) + "\n"
        # opened for each line: a descriptor that stayed open might be closed by the script, and become another file's
        try:
            with events.silence():
                file = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)
        except OSError:  # what was read is not known: a file that does not begin with "begun" counts as none
            with suppress(OSError):
                os.unlink(self.file)


def _path(file: File) -> str:
    """Returns a path from the root, with the links that the script names."""
    name = os.fsdecode(file)
    path = name if name.startswith("/") else os.path.join(os.getcwd(), name)
    return path if ".." in path else os.path.normpath(path)  # a link before `..` leads elsewhere
