"""Runs programs in forks of a process that has imported torch with the virtual GPU, whose import takes seconds.

::

    a test  --JSON: program, environment, folder, file of output-->  python -m dryrun_forks
                                                                       fork: waits for its child, says how it ended
                                                                         fork: is the program

A fork is as good as a new process where torch was imported and nothing more: CUDA starts at its first use. Variables
that torch reads when it is imported need a new process.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path

from nvcoll.dryrun.parent.library import libraries, library

GPU = "name=NVIDIA H100 80GB HBM3;cc=90;sms=132;memory=85028110336;devices=8;cuda=13"

PYTHON = os.environ.get("NVCOLL_TEST_PYTHON", sys.executable)
"""A Python with another torch, for which `NVCOLL_VGPU` says the version of CUDA."""

LOADING = {"LD_PRELOAD", "PYTHONPATH", "PYTORCH_CUDA_ALLOC_CONF"}
"""Variables that are read when torch is loaded."""


def environment():
    """The variables of a program on the virtual GPU."""
    return os.environ | {
        "NVCOLL_VGPU": os.environ.get("NVCOLL_VGPU", GPU),
        "LD_PRELOAD": str(library()),
        "LD_LIBRARY_PATH": str(libraries()),
        "TRITON_LIBCUDA_PATH": str(libraries()),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # a pool of processes takes longer than a few kernels
    }


@cache
def _server():
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "dryrun_forks"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment() | {"PYTHONPATH": path}, text=True)


class Fork:
    """A program that runs: text of Python, or the file of a spec of `nvcoll.dryrun.inside.rank`."""

    def __init__(self, program, variables, cwd=None):
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name)
        row = {
            "program": str(program),
            "variables": variables,
            "cwd": str(cwd or Path.cwd()),
            "folder": str(self._path),
        }
        stdin = _server().stdin
        stdin.write(json.dumps(row) + "\n")
        stdin.flush()

    def wait(self, limit_s):
        """Waits for the end; returns the exit status and the output, or ends the program and raises."""
        end = time.monotonic() + limit_s
        try:
            while not (self._path / "status").exists():
                if time.monotonic() > end or _server().poll() is not None:
                    raise TimeoutError(f"no end after {limit_s} s: {(self._path / 'out').read_text()}")
                time.sleep(0.005)
            return int((self._path / "status").read_text()), (self._path / "out").read_text(errors="replace")
        finally:
            self.kill()

    def kill(self):
        """Ends the program, if it runs, and what it has started."""
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.killpg(int((self._path / "process").read_text()), signal.SIGKILL)
        self._folder.cleanup()


def run(program, limit_s, *flags, **variables):
    """Runs text of Python with the virtual GPU to its end; returns the exit status and the output.

    It runs in a new process if there are flags, another Python, or variables that are read when torch is loaded.
    """
    known = environment() | variables
    if sys.executable == PYTHON and not flags and not variables.keys() & LOADING:
        return Fork(program, known).wait(limit_s)
    ended = subprocess.run(
        [PYTHON, *flags, "-c", program],
        env=known,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
    )
    return ended.returncode, ended.stdout


def _serve():
    """Returns a row in each fork that is to be its program."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork():
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        row = json.loads(line)
        folder = Path(row["folder"])
        if child := os.fork():
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            (folder / "draft").write_text(str(status))
            with suppress(FileNotFoundError):
                (folder / "draft").rename(folder / "status")
            os._exit(0)
        os.setsid()
        (folder / "process").write_text(str(os.getpid()))
        output = os.open(folder / "out", os.O_WRONLY | os.O_CREAT)
        for file, number in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
            os.dup2(file, number)
        os.environ.clear()
        os.environ.update(row["variables"])
        os.chdir(row["cwd"])
        return row
    os._exit(0)


if __name__ == "__main__":
    import nvcoll.dryrun.inside.session  # noqa: F401 (imports torch, and what a rank needs)
    from nvcoll.dryrun.inside import rank as inside

    gc.freeze()
    row, tempfile.tempdir = _serve(), None
    if row["program"].endswith(".json"):
        inside.Child(inside.Spec.load(row["program"])).main()
    status = 0
    try:
        exec(compile(row["program"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as error:
        status = error.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    os._exit(status)  # the end of Python would take seconds: it clears all modules
