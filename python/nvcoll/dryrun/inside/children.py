"""Processes that a script starts: processes of multiprocessing belong to their rank, programs do not, training does.

| started by | sees the virtual GPU | what it reads is noted |
|---|---|---|
| `os.fork`, multiprocessing with fork | as torch allows: not at all | yes |
| multiprocessing with spawn or forkserver | yes: torch needs its libraries. Nothing is computed there | yes |
| multiprocessing, with a rank as argument | this rank's runs in this process, those of others do not run | yes |
| `subprocess`, `os.system`, ... | no: it has the environment of ``nvcoll dryrun`` | no, which is noted |
| the same, `nvidia-smi` | the dry run has one (`inside.smi`) | it reads nothing |
| the same, or `os.exec...`, a training script | it runs in this process, in place of the rest of the script | yes |

A rank needs the variables of the virtual GPU when it starts, and no longer: `begin` takes them out of its environment,
so that nothing inherits them but what multiprocessing starts.

A command starts training if it is a launcher's, or if Python runs the same script again, or a file that steps.
accelerate's launcher itself runs in the rank: its configuration decides between DDP, FSDP and DeepSpeed.
"""

from __future__ import annotations

import importlib.util
import inspect
import multiprocessing.process
import multiprocessing.util
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, takewhile
from pathlib import Path
from threading import Lock
from traceback import walk_stack
from typing import Any, NamedTuple

from nvcoll.dryrun.inside import events
from nvcoll.dryrun.inside.events import File
from nvcoll.dryrun.inside.reads import Reads

OURS = ("from multiprocessing.spawn ", "from multiprocessing.forkserver ")
"""Beginnings of programs of Python's multiprocessing that run functions of the script."""

HERE = ("", "localhost", "127.0.0.1", "::1", "0.0.0.0")
"""Names of this machine."""

ACCELERATE = "accelerate.commands.launch"

LAUNCHERS = (
    *("torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch"),
    *("deepspeed.launcher.runner", "deepspeed.launcher.launch", ACCELERATE),
)
"""Programs and modules that start training scripts."""

TELLING = re.compile(r"deepspeed|torch\.distributed\.launch$"), re.compile(r"--(no_local_rank|use[_-]env)$")
"""Launchers that pass each rank its number on the host as an argument, and options with which they do not."""

LAUNCHING = ("/torch/distributed/run.py", "/accelerate/commands/launch.py")
"""Files of launchers that run in a rank: what they start trains."""

BEFORE = re.compile(r"-|python|\w+=|(env|exec|time|nohup|uv|poetry|run)$")
"""Words of a command before its launcher."""

SHELL = re.compile(r"[;|&]+|\d*[<>].*")
"""A word of a shell that ends a command."""

HIDDEN = "CUDA_VISIBLE_DEVICES"
"""The variable by which launchers give each process its GPU: a rank takes the GPU of LOCAL_RANK."""

RANK = re.compile(r"(\w+_)?rank|gpu(_id)?$")
"""Names of parameters that take the number of a process on its host."""

STEPS = re.compile(r"\.(step|backward|train|fit)\(")
"""What a training script calls."""


class Training(NamedTuple):
    """A training script that a command starts."""

    script: str
    args: list[str]
    is_module: bool
    has_launcher: bool


def training_of(words: Sequence[str]) -> Training | None:
    """Returns the script of Python that a command runs, by itself or by a launcher; None: there is none."""
    names = [os.path.basename(word) for word in words]
    first = next((nth for nth, name in enumerate(names) if not BEFORE.match(name)), len(words))
    has_launcher = first < len(words) and names[first] in LAUNCHERS
    python = next((nth for nth, name in enumerate(names[:first]) if name.startswith("python")), None)
    if not has_launcher and python is None:
        return None
    rest = list(words[first + 1 :] if python is None or has_launcher else words[python + 1 :])
    if has_launcher and (names[first], *rest[:1]) == ("accelerate", "launch"):
        names[first] = ACCELERATE
        del rest[0]
    if has_launcher and names[first] == ACCELERATE and importlib.util.find_spec("accelerate") is not None:
        return Training(ACCELERATE, rest, True, has_launcher)  # it reads its configuration, and starts the script
    told: list[str] = []
    if has_launcher and TELLING[0].match(names[first]):
        told = [f"--local{'_' if names[first].startswith('deepspeed') else '-'}rank={os.environ.get('LOCAL_RANK', 0)}"]
    for nth, word in enumerate(rest):
        if word == "-c":
            return None
        if TELLING[1].match(word):
            told = []
        if word in ("-m", "--module") and nth + 1 < len(rest):
            return Training(rest[nth + 1], [*told, *rest[nth + 2 :]], True, has_launcher)
        if word.endswith(".py") or not (has_launcher or word.startswith("-")):
            return Training(word, [*told, *rest[nth + 1 :]], False, has_launcher)
    return None


def _trains(found: Training, folder: str, own: str) -> bool:
    """Says whether a script trains.

    Args:
        found: the script.
        folder: the folder in which it would start.
        own: the script of this rank.
    """
    if found.has_launcher or found.script == own:
        return True
    spec = importlib.util.find_spec(found.script) if found.is_module else None
    file = spec.origin if spec is not None and spec.origin else os.path.join(folder, found.script)
    if os.path.realpath(file) == os.path.realpath(own):
        return True
    with events.silence():
        text = Path(file).read_text(errors="replace")
    return "torch" in text and STEPS.search(text) is not None


def begin(outside: Mapping[str, str | None], reads: str, own: Sequence[str], notes: bool = True) -> None:
    """Makes this process one of a rank.

    Args:
        outside: the variables as programs that the script starts get them; None: they have none.
        reads: the file in which processes note what they read; empty: they note nothing.
        own: as of `Reads`.
        notes: whether this process does not note yet what it reads.
    """
    inside = {name: os.environ.get(name) for name in outside}
    _set(outside)
    if reads and notes:
        Reads(reads, own).begin()
    plain, lock = multiprocessing.util.spawnv_passfds, Lock()
    first = f"from nvcoll.dryrun.inside.children import begin; begin({dict(outside)!r}, {reads!r}, {list(own)!r}); "

    def started(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
        words = [os.fsdecode(word) for word in args]
        at = next((nth for nth, word in enumerate(words) if word.startswith(OURS)), None)
        if at is None:
            return plain(path, args, passfds)
        with lock:
            _set(inside)
            try:
                return plain(path, [*words[:at], first + words[at], *words[at + 1 :]], passfds)
            finally:
                _set(outside)

    multiprocessing.util.spawnv_passfds = started


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def listen(assume: Callable[[str], None], own: str, become: Callable[[Training], object]) -> list[str]:
    """Notes programs that the script starts, and hosts that it asks for: what they say is no input of a recording.

    Args:
        assume: notes an assumption.
        own: the script of this rank.
        become: runs a training script in place of the rest of this one.

    Returns:
        The other commands that run a script of Python, to which they are added.
    """
    started: list[str] = []

    def program(
        words: File | Sequence[File], folder: File | None = None, variables: Mapping[Any, Any] | None = None
    ) -> None:
        texts = [os.fsdecode(word) for word in ([words] if isinstance(words, str | bytes | os.PathLike) else words)]
        if texts[1:2] == ["-c"] and texts[0].endswith("sh"):
            texts = _split(texts[2])
        at = os.fsdecode(folder or ".")
        for part in _commands(texts):
            found = training_of(part)
            if part[0] == "cd":
                at = os.path.join(at, *part[1:2])
            elif found is not None and ((is_launched := _is_of_launcher()) or _trains(found, at, own)):
                if not is_launched:
                    assume(f"`{shlex.join(part)}` runs here, as one rank")
                os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in (variables or {}).items()})
                os.environ.update(word.partition("=")[::2] for word in takewhile(re.compile(r"\w+=").match, part))
                os.environ.pop(HIDDEN, None)
                os.chdir(at)
                become(found)
            elif found is not None:
                started.append(shlex.join(part))
        name = os.path.basename(texts[0]) if texts else "a program"
        if name != "nvidia-smi" and not _is_of_torch():  # which is of the dry run
            assume(f"the script starts `{name}`, without the virtual GPU: its reads are not compared in later runs")

    def host(name: object) -> None:
        text = os.fsdecode(name) if isinstance(name, str | bytes) else ""
        if text not in (*HERE, os.uname().nodename) and not _is_of_torch():
            assume(f"the script asks {text}: its answers are not compared in later runs")

    events.on("subprocess.Popen", lambda file, args, folder, variables: program(args or [file], folder, variables))
    for event in ("os.posix_spawn", "os.exec"):
        events.on(event, lambda _file, args, variables: program(args, None, variables))
    events.on("os.system", lambda command: program(_split(os.fsdecode(command))))
    events.on("socket.getaddrinfo", lambda name, *_: host(name))
    return started


def run_as_rank(assume: Callable[[str], None]) -> None:
    """Makes processes of multiprocessing that a script starts for ranks run as this rank, or not at all.

    Args:
        assume: notes an assumption.
    """
    process = multiprocessing.process.BaseProcess
    start, join = process.start, process.join

    def started(this: multiprocessing.process.BaseProcess) -> None:
        rank = _rank_of(this)
        if rank is None:
            start(this)
        elif rank == int(os.environ["LOCAL_RANK"]):
            assume("a process of multiprocessing runs here, as one rank")
            this.run()
            sys.exit(0)

    def joined(this: multiprocessing.process.BaseProcess, timeout: float | None = None) -> None:
        if this.pid is not None:
            join(this, timeout)

    for name, new in (("start", started), ("join", joined)):
        setattr(process, name, new)


def _rank_of(process: multiprocessing.process.BaseProcess) -> int | None:
    """Returns the rank that is an argument of a process's function, or None."""
    of_process: dict[str, Any] = vars(process)
    if of_process.get("_target") is None:
        return None
    try:
        given = inspect.signature(of_process["_target"]).bind(*of_process["_args"], **of_process["_kwargs"]).arguments
    except (TypeError, ValueError):  # a builtin, or wrong arguments
        return None
    return next((each for name, each in given.items() if RANK.fullmatch(name) and isinstance(each, int)), None)


def _commands(texts: Sequence[str]) -> list[list[str]]:
    """Returns the commands of a shell's words, without redirections."""
    parts = (list(part) for is_end, part in groupby(texts, lambda word: bool(SHELL.fullmatch(word))) if not is_end)
    return [part for part in parts if part]


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command.replace("; ", " ; "))
    except ValueError:
        return command.split()


def _is_of_launcher() -> bool:
    return any(frame.f_code.co_filename.endswith(LAUNCHING) for frame, _ in walk_stack(sys._getframe(1)))


def _is_of_torch() -> bool:
    """Says whether torch or Triton is at work: they compile kernels by programs."""
    aside = ("<", f"{sysconfig.get_path('stdlib')}/", f"{Path(__file__).parents[2]}/")
    installed = sysconfig.get_path("purelib")
    for frame, _ in walk_stack(sys._getframe(1)):
        file = frame.f_code.co_filename
        if not file.startswith(aside) or file.startswith(installed):
            return "/site-packages/torch/" in file or "/site-packages/triton/" in file
    return False
