"""The cache of recordings: a script is not run again if nothing changed that it read.

::

    key       script, arguments, environment, folder, world size, steps, ranks, GPU, Python with its flags, nvcoll
    KEY-n.inputs     what the script read (`parent.inputs`), for each of the last recordings of this key
    KEY-n.json.gz    the recording (`parent.recording`)

Both are in $XDG_CACHE_HOME/nvcoll/dryrun/recordings. A recording counts whose inputs are all as they were. Beyond
`MOST_BYTES` the least recently used recordings are removed. Kernels that torch.compile made are kept in the same cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nvcoll._nvcoll import __version__
from nvcoll.dryrun.parent.inputs import Inputs
from nvcoll.dryrun.parent.launch import HIDDEN, OTHER_LAUNCHERS, Request
from nvcoll.dryrun.parent.library import user_cache
from nvcoll.dryrun.parent.recording import HostTimes, Recording

MOST_BYTES = 512 << 20
"""The size of the cache of recordings. Chosen: hundreds of recordings."""

MOST_COMPILED_BYTES = 4 << 30
"""The size of the cache of compiled kernels, of all versions of torch. Chosen. Beyond it, all are removed."""

MOST_OF_KEY = 8
"""The most recordings of a key: of versions of a script. Chosen: each is compared, which takes 20 ms."""

VOLATILE = (
    *("_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "PS1", "LS_COLORS", "WINDOWID", "TMUX", "TMUX_PANE"),
    *("PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST_WORKER", "XDG_CACHE_HOME", "MAIL", "TMPDIR", "LESSOPEN"),
    *("INVOCATION_ID", "JOURNAL_STREAM"),
)
"""Variables that differ from shell to shell, and do not change what a script does. Chosen."""

VOLATILE_BEGINNINGS = ("SSH_", "XDG_SESSION", "DBUS_", "VSCODE_", "GPG_", *OTHER_LAUNCHERS)
"""Beginnings of the names of such variables."""


def key_of(request: Request) -> str:
    """Returns the name under which recordings of a request are kept."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    what = {
        "script": (request.script, request.is_module, request.arguments, dict(request.environment)),
        "place": (os.getcwd(), request.world_size, request.of_host, request.ranks),
        "steps": (request.steps, request.step_at, request.serves, request.loss, request.response_tokens),
        "gpu": tuple(request.gpu),
        "host": request.measures_host and platform.node(),  # times of one machine are not another's
        "environment": sorted(_environment()),
        "python": (platform.python_version(), sys.executable, sys.prefix, flags, os.cpu_count()),
        "nvcoll": _nvcoll(),
    }
    return hashlib.sha256(json.dumps(what, default=str).encode()).hexdigest()[:40]


def _environment() -> Iterator[tuple[str, str]]:
    for name, value in os.environ.items():
        if name not in VOLATILE and name not in HIDDEN and not name.startswith(VOLATILE_BEGINNINGS):
            yield name, value


def _nvcoll() -> tuple[str, ...]:
    """Returns an identification of this nvcoll: version and files, as a developer may change them."""
    files = (path for path in Path(__file__).parents[2].rglob("*") if path.suffix in (".py", ".so"))
    return __version__, *sorted(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files)


def folder() -> Path:
    """Returns the folder of recordings."""
    return user_cache() / "recordings"


def cached(key: str) -> Recording | None:
    """Returns the recording of a key whose inputs are as they were. A file that cannot be read counts as none."""
    for inputs in _of_key(key):
        recording = inputs.with_suffix(".json.gz")
        try:
            if not Inputs.load(inputs).changed():
                found = Recording.load(recording)
                os.utime(inputs)
                return found
        except Exception:  # whatever a damaged file makes Python raise
            _remove(inputs)
    return None


def keep(key: str, recorded: Recording, inputs: Inputs) -> None:
    """Keeps a recording. A cache that cannot be written keeps nothing."""
    with suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
        path = folder() / f"{key}-{inputs.digest()}.inputs"
        recorded.save(path.with_suffix(".json.gz"))
        inputs.save(path)
        for old in _of_key(key)[MOST_OF_KEY:]:
            _remove(old)
        _make_room(folder())
        compiled = user_cache() / "compiled"
        if sum(path.stat().st_size for path in compiled.rglob("*") if path.is_file()) > MOST_COMPILED_BYTES:
            shutil.rmtree(compiled, ignore_errors=True)


def _of_key(key: str) -> list[Path]:
    """Returns the files of inputs of a key, that which was used last first."""
    with suppress(OSError):
        return sorted(folder().glob(f"{key}-*.inputs"), key=lambda path: -path.stat().st_mtime_ns)
    return []


def _remove(inputs: Path) -> None:
    for path in (inputs, inputs.with_suffix(".json.gz"), HostTimes.beside(inputs.with_suffix(".json.gz"))):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _make_room(place: Path) -> None:
    used = 0
    for inputs in sorted(place.glob("*.inputs"), key=lambda path: -path.stat().st_mtime_ns):
        used += sum(path.stat().st_size for path in (inputs, inputs.with_suffix(".json.gz")) if path.exists())
        if used > MOST_BYTES:
            _remove(inputs)
