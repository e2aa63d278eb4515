"""nvcoll without its engine, as on macOS and Windows: it plans, predicts, checks and verifies, and refuses to run."""

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import nvcoll
from nvcoll import _nvcoll

OF_ENGINE = {
    *(
        "Calls",
        "CallCounts",
        "Communicator",
        "Group",
        "Job",
        "Message",
        "Node",
        "Plan",
        "PremulSum",
        "Recorder",
        "Work",
    ),
    *("AutoChoice", "CandidateRow", "CoefficientRow", "CostModel", "Team", "_Passed"),
    *("auto_candidates", "cost_model", "handoff_ns", "machine", "memory", "premul_sum", "roofline"),
    *("arm", "_end_attaching", "_fold", "_read"),
}
"""Names of the extension that a build without the engine lacks."""

NOT_ON_WINDOWS = {
    "modules": ("fcntl", "grp", "posix", "pwd", "resource", "syslog", "termios"),
    "os": (
        "fork",
        "geteuid",
        "getuid",
        "killpg",
        "memfd_create",
        "pidfd_open",
        "register_at_fork",
        "sched_getaffinity",
    ),
    "signal": ("SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGSTOP", "SIGUSR1", "SIGUSR2", "pthread_sigmask"),
}
"""What Python does not have on Windows, as far as nvcoll could touch it."""

PRETEND = f"""
import importlib.machinery, os, signal, subprocess, sys, tempfile, typing

class Loader(importlib.machinery.ExtensionFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        for name in {sorted(OF_ENGINE)!r}:
            if name in vars(module):
                delattr(module, name)
        from nvcoll.without_engine import stand_in
        module.HAS_ENGINE, module.__getattr__ = False, stand_in

class Finder:
    def find_spec(name, path=None, target=None):
        if name == "nvcoll._nvcoll":
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            spec.loader = Loader(name, spec.origin)
            return spec

sys.meta_path.insert(0, Finder)
import numpy, typer.rich_utils, multiprocessing.connection, ctypes, pytest, _pytest.pathlib, rich.console
import hypothesis  # and what else a plugin of pytest imports: all that is not nvcoll's has its own code for Windows
with __import__("contextlib").suppress(ImportError):
    import platformdirs
for name in {NOT_ON_WINDOWS["modules"]!r}:
    sys.modules[name] = None
for module in (os, signal):
    for name in {NOT_ON_WINDOWS!r}[module.__name__]:
        vars(module).pop(name, None)
"""
"""Makes this interpreter one without the engine, and without what Windows lacks."""


def without_engine(program, status=0):
    """Runs a program in a build without the engine; returns its standard output and error."""
    ended = subprocess.run([sys.executable, "-c", PRETEND + program], capture_output=True, text=True, timeout=100)
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout, ended.stderr


def command(*words, status=0):
    return without_engine(f"import nvcoll.cli; sys.argv = ['nvcoll', *{words!r}]; nvcoll.cli.main()", status)


def test_the_names_of_the_engine_are_those_that_a_build_without_it_lacks():
    stub = ast.parse((Path(nvcoll.__file__).parent / "_nvcoll.pyi").read_text())
    declared = {item.name for item in stub.body if isinstance(item, ast.ClassDef | ast.FunctionDef)}
    assert declared >= OF_ENGINE
    assert declared - set(vars(_nvcoll)) == (set() if _nvcoll.HAS_ENGINE else OF_ENGINE)


@pytest.mark.skipif(not _nvcoll.HAS_ENGINE, reason="it is no pretence here")
def test_the_names_that_windows_lacks_are_names_of_linux():
    assert all(hasattr(os, name) for name in NOT_ON_WINDOWS["os"])
    assert all(hasattr(signal, name) for name in NOT_ON_WINDOWS["signal"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("predict all_reduce -b 1G --on hgx-h100", "hgx-h100"),
        ("plan llama3-8b --on hgx-h100", "tokens"),
        ("verify all_reduce ring -n 4", "proved"),
        ("show all_reduce ring -n 2", "r0"),
        ("fabric hgx-h100", "NVLink"),
        ("algorithms all_reduce", "ring"),
        ("compare ring tree --on hgx-h100", "ring"),
    ],
)
def test_commands_that_run_nothing_work(words, expected):
    assert expected in command(*words.split())[0]


@pytest.mark.parametrize(
    "words", [("run", "-n", "2", "x.py"), ("bench", "all_reduce"), ("explain", "all_reduce"), ("dump",)]
)
def test_commands_of_the_engine_are_refused_in_one_line(words):
    _, stderr = command(*words, status=2)
    line = f"nvcoll: this build of nvcoll has no engine, which nvcoll {words[0]} needs: use nvcoll on Linux"
    assert stderr.startswith(line) and stderr.count("\n") == 1


def test_help_and_info_say_what_is_missing():
    text = re.sub(r"\s+", " ", command("--help")[0])
    assert (
        "Missing in this build: the engine, which needs Linux: run, dump, bench, explain, and ranks in Python" in text
    )
    text, _ = command("info")
    assert text.startswith("missing     the engine, which needs Linux: run") and "\ndtypes " in text
    assert '"processor": null' in command("info", "--json")[0]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("nvcoll.Node(2)", "`Node`"),
        ("nvcoll.init()", "a job of ranks"),
        ("nvcoll.spawn(print, 2)", "a job of ranks"),
        ("nvcoll.premul_sum(2.0)", "`premul_sum`"),
        ("nvcoll.Group()", "`Group`"),
    ],
)
def test_python_says_what_needs_the_engine(call, name):
    stdout, _ = without_engine(f"import nvcoll\ntry:\n    {call}\nexcept nvcoll.NoEngine as error:\n    print(error)")
    assert stdout.startswith(f"this build of nvcoll has no engine, which {name} needs: use nvcoll on Linux")


def test_names_that_do_not_exist_are_refused_and_classes_can_be_compared():
    stdout, _ = without_engine(
        "import nvcoll\n"
        "print(hasattr(nvcoll._nvcoll, '__wrapped__'), isinstance(1, nvcoll.Communicator))\n"
        "print(nvcoll.Work is nvcoll._nvcoll.Work)"
    )
    assert stdout.split() == ["False", "False", "True"]


def test_a_marked_test_and_the_backend_of_torch_say_what_they_need(tmp_path):
    file = tmp_path / "test_it.py"
    file.write_text("import pytest\n\n@pytest.mark.ranks(2, backend='none')\ndef test_it():\n    pass\n")
    words = ["-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(file)]
    program = f"import pytest; sys.exit(pytest.main({words!r}))"
    stdout, _ = without_engine(program, status=1)
    assert "this build of nvcoll has no engine, which the mark `ranks` needs" in stdout
    stdout, _ = without_engine(
        "import nvcoll_autoload, nvcoll\n"
        "try:\n    nvcoll_autoload._create(None, None)\nexcept nvcoll.NoEngine as error:\n    print(error)"
    )
    assert "which the backend nvcoll of torch.distributed needs" in stdout
