"""The command line in tests: ``nvcoll ARGUMENTS`` in a forked process. Commands that are refused run in this process.

To start Python and to import numpy, typer and rich takes a third of a second. So one process imports them and waits.
For every command it forks a child, which takes over the command's output, folder and environment and runs the module
as ``python -m nvcoll`` does. No command sees the effects of another.

A forked process does not read again what Python reads at its start. So a command with its own environment (``env=``) is
started in the usual way, if more than the width of the terminal differs, which is read when something is printed. The
same holds for commands on a terminal, for interrupted commands (`PROGRAM`), and for all commands on systems other than
Linux, where loaded libraries need not survive a fork.
"""

import functools
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile

PROGRAM = [sys.executable, "-m", "nvcoll"]

LIMIT_S = 100
"""How long a command may take. Chosen: below the limit of a test."""

MESSAGE_BYTES = 1 << 17
"""The longest command with its environment. Chosen; the system lets a message be a little longer."""

MINE = """
import nvcoll

@nvcoll.algorithm("all_reduce")
def ring(b):
    n = b.world_size
    for c in b.chunks(n):
        x = b.input(c, c)
        for hop in range(1, n):
            r = (c + hop) % n
            x = b.fold(x, b.input(r, c), into=b.output(r, c))
        for hop in range(n, 2 * n - 1):
            x = b.copy(x, into=b.output((c + hop) % n, c))

@nvcoll.algorithm("all_reduce")
def lazy(b):
    b.copy(b.input(0, 0), into=[b.output(r, 0) for r in range(b.world_size)])

@nvcoll.algorithm("all_gather")
def other(b):
    pass

@nvcoll.algorithm("all_reduce")
def outside(b):
    b.copy(b.input(0, 0), into=b.output(99, 0))

@nvcoll.algorithm("all_reduce")
def raising(b):
    raise LookupError("no such\\nthing")

def plain(b):
    pass

@nvcoll.algorithm("all_reduce")
def grouped(b, per_node=8, missing=0):
    whole = b.reduce_scatter(b.inputs, over=b.groups(per_node), algorithm="nvswitch")
    total = b.all_reduce(whole, over=b.groups(stride=per_node), algorithm="ring")
    ranks = [group[missing:] + group[:missing] for group in b.groups(per_node)]
    if not missing:
        b.all_gather(total, into=b.outputs, over=ranks)
"""
"""Algorithms of a user, right and wrong ones."""


def done(*arguments, env=None) -> "subprocess.CompletedProcess[str]":
    """Runs the command; returns its status and what it printed."""
    words = [str(argument) for argument in arguments]
    variables = os.environ if env is None else env
    changed = {name for name, _ in os.environ.items() ^ variables.items()}
    if changed - {"COLUMNS"} or not sys.platform.startswith("linux"):
        return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=LIMIT_S, env=env)
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        status = forked(words, variables, stdout.fileno(), stderr.fileno())
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(words, status, stdout.read(), stderr.read())


def cli(*arguments, status=0, env=None):
    """Runs the command, which ends with `status`; returns how it ended."""
    ended = done(*arguments, env=env)
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended


def run(*arguments, status=0, env=None):
    """Runs the command, which ends with `status`; returns its stdout and stderr."""
    ended = cli(*arguments, status=status, env=env)
    return ended.stdout, ended.stderr


def refused(*arguments, env=None):
    """Runs a command that cannot be done; returns its one message.

    It runs in this process, which is several times as fast, unless it has its own environment or needs the
    descriptor of standard output, as after an error of the system.
    """
    from typer.testing import CliRunner  # slow imports: ranks of tests import this module, and run no command

    import nvcoll.cli

    words, path = [str(argument) for argument in arguments], [*sys.path]
    ended = None if env is not None else CliRunner().invoke(nvcoll.cli.command_line(), words, prog_name="nvcoll")
    sys.path[:] = path
    if ended is None or isinstance(ended.exception, io.UnsupportedOperation):
        stdout, stderr = run(*words, status=2, env=env)
    else:
        assert ended.exit_code == 2, ended.output
        stdout, stderr = ended.stdout, ended.stderr
    assert stdout == "" and 1 <= len(stderr.splitlines()) <= 2 and stderr.startswith("nvcoll: ")
    return stderr


def file_of_mine(folder) -> str:
    """Writes `MINE` to a file; returns its path."""
    file = folder / "mine of two words.py"
    file.write_text(MINE)
    return str(file)


def forked(words, variables, stdout, stderr) -> int:
    """Has the waiting process run a command; returns its status."""
    process, door = waiting_process()
    message = json.dumps({"words": words, "folder": os.getcwd(), "environment": dict(variables)}).encode()
    assert len(message) <= MESSAGE_BYTES
    socket.send_fds(door, [message], [stdout, stderr])
    try:
        return int(door.recv(16))
    except (TimeoutError, ValueError):  # it takes too long, or the process has ended and the message is empty
        os.killpg(process.pid, signal.SIGKILL)
        waiting_process.cache_clear()
        raise


@functools.cache
def waiting_process() -> "tuple[subprocess.Popen[bytes], socket.socket]":
    """Starts the process that forks; it ends when its door closes, which it does when the tests end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(LIMIT_S)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # what hangs is killed with all that it started
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # a process with threads is no good to fork
        )
    return process, ours


def wait_for_commands(door: socket.socket) -> None:
    """Forks a child for each command. Returns in the child, which is ready to run it, and when the door has closed."""
    while True:
        message, descriptors, *_ = socket.recv_fds(door, MESSAGE_BYTES, 2)
        if not message:
            sys.exit()
        child = os.fork()
        if child == 0:
            door.close()
            return take_over(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        door.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def take_over(command, stdout, stderr) -> None:
    """Makes this process that of a command."""
    for descriptor, place in ((stdout, 1), (stderr, 2)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(command["environment"])
    os.chdir(command["folder"])
    sys.path[0] = command["folder"]
    sys.argv[1:] = command["words"]


if __name__ == "__main__":
    import nvcoll.cli  # noqa: F401

    wait_for_commands(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("nvcoll", run_name="__main__", alter_sys=True)
