"""The cache of recordings: a script that did not change is not run again.

::

    key    script, modules of its folder that it imports, arguments and the files that they name, environment,
           folder, world size, steps, ranks, GPU, versions of Python, torch, frameworks and nvcoll
    value  a file of `nvcoll.dryrun.recorded`, in $XDG_CACHE_HOME/nvcoll/dryrun/recordings

Imports are found in the text, without running it. A file that a script opens by itself, and a module outside of its
folder, are not part of the key: ``--no-cache`` records again. Beyond `MOST_BYTES` the least recently used recordings
are removed. Kernels that torch.compile made are kept in the same cache.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from nvcoll._nvcoll import InvalidArgument, __version__
from nvcoll.dryrun.installed import torch_installed, versions
from nvcoll.dryrun.launch import HIDDEN, OTHER_LAUNCHERS, Request
from nvcoll.dryrun.library import user_cache
from nvcoll.dryrun.recorded import Recorded

MOST_BYTES = 512 << 20
"""The size of the cache of recordings. Chosen: hundreds of recordings."""

MOST_COMPILED_BYTES = 4 << 30
"""The size of the cache of compiled kernels, of all versions of torch. Chosen. Beyond it, all are removed."""

MOST_FILE_BYTES = 16 << 20
"""The largest file of an argument whose content is part of the key; larger files count by size and time. Chosen."""

MOST_MODULES = 2000
"""The most modules of a script's folder that are read. Chosen."""

VOLATILE = (
    *("_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "TERM", "TERM_PROGRAM", "COLORTERM", "DISPLAY", "PS1"),
    *("LS_COLORS", "WINDOWID", "TMUX", "TMUX_PANE", "PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST_WORKER"),
    *("XDG_CACHE_HOME", "HOSTNAME", "MAIL", "TMPDIR", "LESSOPEN", "INVOCATION_ID", "JOURNAL_STREAM"),
)
"""Variables that differ from shell to shell, and do not change what a script does. Chosen."""

VOLATILE_BEGINNINGS = ("SSH_", "XDG_SESSION", "DBUS_", "VSCODE_", "GPG_", *OTHER_LAUNCHERS)
"""Beginnings of the names of such variables."""


def key_of(request: Request, ranks: Sequence[int] | None) -> str:
    """Returns the name under which a recording is kept.

    Args:
        request: the request.
        ranks: the requested ranks; None: found by `nvcoll.dryrun.roles`.
    """
    digest = hashlib.sha256()
    for path in _files(request):
        digest.update(f"{path}\0".encode())
        digest.update(_content(path))
    rest = {
        "script": (request.script, request.is_module, request.arguments, dict(request.environment)),
        "place": (os.getcwd(), request.world_size, request.gpus_per_node, request.steps, ranks),
        "gpu": tuple(request.gpu),
        "environment": sorted(_environment()),
        "versions": (platform.python_version(), torch_installed().version, versions(), _nvcoll()),
    }
    digest.update(json.dumps(rest, default=str).encode())
    return digest.hexdigest()[:40]


def _environment() -> Iterator[tuple[str, str]]:
    for name, value in os.environ.items():
        if name not in VOLATILE and name not in HIDDEN and not name.startswith(VOLATILE_BEGINNINGS):
            yield name, value


def _nvcoll() -> tuple[str, ...]:
    """Returns an identification of this nvcoll: version and files, as a developer may change them."""
    here = Path(__file__).parent
    found = sorted(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in here.glob("*"))
    return __version__, *found


def _content(path: Path) -> bytes:
    try:
        found = path.stat()
        if found.st_size > MOST_FILE_BYTES:
            return f"{found.st_size} {found.st_mtime_ns}".encode()
        return path.read_bytes()
    except OSError:
        return b""


def _files(request: Request) -> Iterator[Path]:
    """Yields the files that decide the behaviour of a script."""
    if request.is_module:
        yield from _of_module(request.script)
    else:
        yield from _imported(Path(request.script), Path(request.script).resolve().parent)
    for word in request.arguments:
        path = Path(word.rpartition("=")[2] or ".")
        with suppress(OSError, ValueError):
            if path.is_file():
                yield path


def _of_module(name: str) -> Iterator[Path]:
    """Yields the files of a module in the current folder; of an installed module, its package and version."""
    sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path.pop(0)
    if spec is None or not spec.origin:
        raise InvalidArgument(f"there is no module `{name}` in this Python ({sys.executable}): pass another after -m")
    if Path(spec.origin).is_relative_to(os.getcwd()):
        yield from _imported(Path(spec.origin), Path.cwd())
        return
    with suppress(KeyError):
        for package in importlib.metadata.packages_distributions()[name.partition(".")[0]]:
            yield Path(f"{package}=={importlib.metadata.version(package)}")


def _imported(script: Path, folder: Path) -> Iterator[Path]:
    """Yields a script and the modules of a folder that it imports, directly or not, each once."""
    waiting, seen = [script.resolve()], {script.resolve()}
    while waiting and len(seen) <= MOST_MODULES:
        path = waiting.pop()
        yield path
        for name in _names(path):
            parts = name.split(".")
            for base in {folder, path.parent}:
                place = base.joinpath(*parts)
                for found in (place.with_suffix(".py"), place / "__init__.py"):
                    if found not in seen and found.is_file():
                        seen.add(found)
                        waiting.append(found)


def _names(path: Path) -> Iterator[str]:
    """Yields the names that a file imports, relative ones without their dots."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module:
                yield module
            yield from (f"{module}.{one.name}".strip(".") for one in node.names if one.name != "*")


def folder() -> Path:
    """Returns the folder of recordings."""
    return user_cache() / "recordings"


def cached(key: str) -> Recorded | None:
    """Returns the recording of a key. A file that cannot be read counts as none."""
    path = folder() / f"{key}.json.gz"
    try:
        found = Recorded.load(path)
        os.utime(path)
    except (OSError, InvalidArgument):
        return None
    return found


def keep(key: str, recorded: Recorded) -> None:
    """Keeps a recording. A cache that cannot be written keeps nothing."""
    with suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
        recorded.save(folder() / f"{key}.json.gz")
        _make_room(folder())
        compiled = user_cache() / "compiled"
        if sum(path.stat().st_size for path in compiled.rglob("*") if path.is_file()) > MOST_COMPILED_BYTES:
            shutil.rmtree(compiled, ignore_errors=True)


def _make_room(place: Path) -> None:
    files = sorted(((path.stat().st_mtime_ns, path) for path in place.glob("*.json.gz")), reverse=True)
    used = 0
    for _, path in files:
        used += path.stat().st_size
        if used > MOST_BYTES:
            path.unlink(missing_ok=True)
