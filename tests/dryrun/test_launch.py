"""Ranks of a dry run as processes: what they are told, limits, and that nothing is left of them, however they end."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import nvcoll
from nvcoll.dryrun.parent import installed, launch
from nvcoll.dryrun.parent.failures import CannotDryRun, DryRunLimit
from nvcoll.dryrun.parent.installed import Torch, torch_installed
from nvcoll.dryrun.parent.launch import Request, run_ranks, spec_of, virtual_gpu
from nvcoll.dryrun.parent.library import libraries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a dry run needs Linux")

H100 = next(row for row in nvcoll._nvcoll.gpus() if row.name == "h100-sxm")

H100_BYTES = int(79.18 * 2**30)
"""The memory that PyTorch prints of it, 79.18 GiB."""

PATIENCE_S = 20
"""How long what must end has for that. Chosen: only a leak takes so long."""

CHILD = """
import json, os, subprocess, sys, time
from nvcoll.dryrun.wire.rank_recording import Run
spec = json.load(open(sys.argv[2]))
run = Run(spec["rank"], "ended", message=json.dumps([spec, dict(os.environ)]))
"""
"""The begin of a module that runs in place of `inside.rank`; the script's argument is a file for numbers."""

HANGS = """
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
open(spec["args"][0], "a").write(f"{child.pid} {os.getpid()} {os.path.dirname(spec['mail'])} ")
time.sleep(1000)
"""


def library():
    """A library whose preload changes nothing."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        return next(Path(line.split()[-1]) for line in maps if "libc.so" in line or "libc-" in line)


@pytest.fixture
def ranks_that(tmp_path, monkeypatch):
    """Returns a function that runs ranks of a script by another child."""

    def run(code, ranks=(0,), script="", imported="", **more):
        (tmp_path / "fake_inside.py").write_text(CHILD + code)
        (tmp_path / "train.py").write_text(script)
        (tmp_path / "imported.py").write_text(imported)
        monkeypatch.setattr(launch, "INSIDE", "fake_inside")
        monkeypatch.setattr(launch, "IMPORTED", "imported")
        monkeypatch.setattr(launch, "library", library)
        monkeypatch.setattr(launch, "libraries", lambda: tmp_path)
        monkeypatch.setattr(launch, "torch_installed", lambda: Torch("2.15.0+cu132", "13.2", tmp_path))
        request = Request(
            str(tmp_path / "train.py"),
            (str(tmp_path / "processes"),),
            world_size=16,
            gpu=H100,
            environment={"PYTHONPATH": str(tmp_path)},
            **more,
        )
        return run_ranks(request, ranks)

    return run


def assert_gone(words):
    """Fails if one of these processes runs, or one of these folders is there, after a while."""
    end = time.monotonic() + PATIENCE_S
    while left := [word for word in words if _is_there(word)]:
        assert time.monotonic() < end, f"{left} is left"
        time.sleep(0.02)


def _is_there(word):
    if "/" in word:
        return os.path.exists(word)
    try:
        return Path(f"/proc/{word}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_ranks_are_told_their_place_and_see_a_virtual_gpu(ranks_that, monkeypatch, tmp_path):
    for name in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "CUDA_VISIBLE_DEVICES", "NVCOLL_TORCH"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/lib")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ended = ranks_that("run.save(spec['result'])", ranks=(0, 9))
    for rank, (recording, run) in zip((0, 9), ended, strict=True):
        assert recording is None and run.status == "ended" and run.rank == rank
        spec, environment = json.loads(run.message)
        assert (spec["rank"], spec["world_size"], spec["roles"]) == (rank, 16, [0, 9])
        assert spec["script"] == str(tmp_path / "train.py") and spec["local_world_size"] == 8
        assert spec["memory"] == H100_BYTES and not spec["times"]
        assert not environment.keys() & {"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "CUDA_VISIBLE_DEVICES", "NVCOLL_TORCH"}
        assert environment["LD_PRELOAD"] == str(library())
        assert environment["LD_LIBRARY_PATH"] == f"{tmp_path}:/usr/lib"
        assert environment["PATH"] == f"{tmp_path}:{os.environ['PATH']}"
        assert environment["NVCOLL_VGPU"].startswith("name=NVIDIA H100 80GB HBM3;cc=90;sms=132;memory=")
        assert environment["NVCOLL_VGPU"].endswith(";devices=8;cuda=13")
        assert environment["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path / "cache"))
        assert not os.path.exists(environment["TMPDIR"]), "the folder is gone"


def test_nvidia_smi_shows_the_virtual_gpus(tmp_path, monkeypatch):
    monkeypatch.setattr("nvcoll.dryrun.parent.library.FILE", Path(__file__))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("NVCOLL_VGPU", virtual_gpu(H100, 2, 13))

    def printed(*words):
        return subprocess.run([libraries() / "nvidia-smi", *words], capture_output=True, text=True, check=True).stdout

    assert printed("-L").splitlines()[1].startswith("GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-6e76")
    table = printed()
    assert "CUDA Version: 13.2" in table and table.count("H100 80GB HBM3") == 2 and table.count("/ 81080MiB") == 2
    query = "--query-gpu=name,memory.total,count"
    assert printed(query, "--format=csv").splitlines() == [
        "name, memory.total [MiB], count",
        *["NVIDIA H100 80GB HBM3, 81080 MiB, 2"] * 2,
    ]
    assert printed(query, "--format=csv,noheader,nounits", "-i", "1") == "NVIDIA H100 80GB HBM3, 81080, 2\n"
    assert printed("--query-compute-apps=pid", "--format=csv,noheader").strip() == ""


def test_the_output_of_ranks_goes_to_standard_error(ranks_that, capfd):
    ranks_that("print('a line'); run.save(spec['result'])", ranks=(0, 9))
    found = capfd.readouterr()
    assert found.out == "" and sorted(found.err.splitlines()) == ["[0] a line", "[9] a line"]
    ranks_that("print('a line'); run.save(spec['result'])", is_quiet=True)
    assert capfd.readouterr() == ("", "")


def test_ranks_have_the_terminal_if_there_is_one(ranks_that):
    code = "run.message = str(os.isatty(0)); run.save(spec['result'])"
    kept, (master, terminal) = os.dup(0), pty.openpty()
    try:
        for given, expected in ((terminal, "True"), (os.open(os.devnull, os.O_RDONLY), "False")):
            os.dup2(given, 0)
            assert ranks_that(code)[0][1].message == expected
            os.close(given)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(master)


def test_a_rank_that_dies_says_how_with_its_last_lines(ranks_that):
    code = "print('about to die', file=sys.stderr); os.kill(os.getpid(), 11)"
    ((recording, run),) = ranks_that(code)
    assert recording is None and run.status == "failed"
    assert "11 (SIGSEGV)" in run.message and run.message.endswith("about to die")


def test_the_limit_of_time_leaves_nothing(ranks_that, tmp_path):
    with pytest.raises(DryRunLimit, match="after 2 s: pass a larger --time-limit"):
        ranks_that(HANGS, time_limit_s=2)
    words = (tmp_path / "processes").read_text().split()
    assert len(words) == 3
    assert_gone(words)


def test_the_limit_of_memory_leaves_nothing(ranks_that, tmp_path):
    with pytest.raises(DryRunLimit, match="pass a larger --memory-limit"):
        ranks_that(HANGS.replace("\ntime", "\nx = bytearray(300 << 20)\ntime"), memory_limit_bytes=200e6)
    assert_gone((tmp_path / "processes").read_text().split())


SEMAPHORES = """
from multiprocessing import get_context
semaphore = get_context("spawn").Semaphore()
name = f"/dev/shm/sem.{semaphore._semlock.name.lstrip('/')}"
assert os.path.exists(name)
open(spec["args"][0], "a").write(f"{name} ")
"""


@pytest.mark.parametrize("ends", ["run.save(spec['result']); os._exit(0)", "time.sleep(1000)"])
def test_semaphores_of_multiprocessing_are_removed(ranks_that, tmp_path, ends):
    with suppress(DryRunLimit):
        ranks_that(SEMAPHORES + ends, time_limit_s=3)
    words = (tmp_path / "processes").read_text().split()
    assert len(words) == 1
    assert_gone(words)


DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(spec["args"][0], "a").write(f"{os.getpid()} ")
        os.closerange(0, 3)
        time.sleep(1000)
    os._exit(0)
while not os.path.exists(spec["args"][0]):
    time.sleep(0.02)
"""


@pytest.mark.parametrize("ends", ["run.save(spec['result'])", "time.sleep(1000)"])
def test_a_daemon_of_the_script_ends_with_the_dry_run(ranks_that, tmp_path, ends):
    with suppress(DryRunLimit):
        ranks_that(DAEMON + ends, time_limit_s=3)
    words = (tmp_path / "processes").read_text().split()
    assert len(words) == 1
    assert_gone(words)


def test_the_limit_of_memory_counts_children_and_what_is_shared_once(ranks_that):
    own = "import threading\nx = bytearray(150 << 20)\nchildren = [os.fork() for _ in range(3)] if {} else []\n"
    shares = own.replace("{}", "True") + "if 0 in children: time.sleep(1000)\ntime.sleep(1.5); run.save(spec['result'])"
    ((_, run),) = ranks_that(shares, memory_limit_bytes=400e6)
    assert run.status == "ended"
    grows = "if os.fork() == 0:\n    x = bytearray(300 << 20)\ntime.sleep(1000)"
    with pytest.raises(DryRunLimit, match="pass a larger --memory-limit"):
        ranks_that(grows, memory_limit_bytes=200e6)


def test_stages_share_what_they_import_and_end_with_what_has_forked_them(ranks_that):
    large = "x = bytearray(b'1') * (150 << 20)"
    code = "import imported; run.message = str(os.getppid()); time.sleep(1.5); run.save(spec['result'])"
    ended = ranks_that(code, ranks=(0, 4, 8, 12), imported=large, memory_limit_bytes=400e6)
    assert [(run.rank, run.status) for _, run in ended] == [(rank, "ended") for rank in (0, 4, 8, 12)]
    (server,) = {run.message for _, run in ended}
    assert_gone([server])


def test_what_has_forked_the_stages_lives_when_it_is_asked_for_its_stack(ranks_that):
    code = "os.kill(os.getppid(), 43); time.sleep(0.5); run.save(spec['result'])"
    assert [run.status for _, run in ranks_that(code, ranks=(0, 4))] == ["ended", "ended"]


def test_an_import_that_fails_is_the_failure_of_the_first_stage(ranks_that):
    ((_, run),) = ranks_that("", ranks=(0, 4), imported="raise ImportError('no torch')")
    assert (run.rank, run.status) == (0, "failed") and "ImportError: no torch" in run.message


RUNS_SCRIPT = """
import runpy
from nvcoll.dryrun.wire import stacks
stacks.register(spec["result"])
runpy.run_path(spec["script"])
"""


def test_a_limit_names_the_line_of_the_script(ranks_that):
    sleeps = "import time, threading\n\ndef main():\n    time.sleep(1000)\n\nmain()\n"
    with pytest.raises(DryRunLimit, match=r"after 2 s; rank 0 is at train\.py:4 main: pass a larger --t") as caught:
        ranks_that(RUNS_SCRIPT, script=sleeps, time_limit_s=2)
    assert caught.value.line == "train.py:4 main"
    fills = "import threading\nx = bytearray(300 << 20)\nthreading.Event().wait()\n"
    with pytest.raises(DryRunLimit, match=r"rank 0 is at train\.py:[23] <module>: pass a larger --memory-limit$"):
        ranks_that(RUNS_SCRIPT, script=fills, memory_limit_bytes=200e6)
    with pytest.raises(DryRunLimit, match="or fewer --only-ranks"):
        ranks_that(RUNS_SCRIPT, ranks=(0, 9), script=fills, memory_limit_bytes=200e6)


def test_ranks_end_when_another_has_failed(ranks_that, tmp_path):
    code = "if spec['rank'] == 9: sys.exit(5)\n" + HANGS
    (_, first), (_, second) = ranks_that(code, ranks=(0, 9))
    assert "status 5" in second.message and "SIGKILL" in first.message
    assert_gone((tmp_path / "processes").read_text().split())


PARENT = """
import sys
from pathlib import Path
import nvcoll
from nvcoll.dryrun.parent import launch
from nvcoll.dryrun.parent.installed import Torch
folder, library = Path(sys.argv[1]), Path(sys.argv[2])
launch.INSIDE = "fake_inside"
launch.library, launch.libraries = lambda: library, lambda: folder
launch.torch_installed = lambda: Torch("2.15.0", "13.2", folder)
gpu = next(row for row in nvcoll._nvcoll.gpus() if row.name == "h100-sxm")
script, numbers = str(folder / "train.py"), str(folder / "processes")
launch.run_ranks(launch.Request(script, (numbers,), gpu=gpu, environment={"PYTHONPATH": str(folder)}), [0])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_death_of_the_parent_leaves_nothing(tmp_path, number):
    (tmp_path / "fake_inside.py").write_text(CHILD + HANGS)
    (tmp_path / "train.py").write_text("")
    numbers = tmp_path / "processes"
    numbers.write_text("")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), str(library())],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + PATIENCE_S
    while len(words := numbers.read_text().split()) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    assert len(words) == 3 and all(map(_is_there, words))
    parent.send_signal(number)
    assert parent.wait(PATIENCE_S) != 0
    assert_gone(words)


def test_a_gpu_is_described_by_its_row():
    found = virtual_gpu(H100, 4, 12)
    assert found == f"name=NVIDIA H100 80GB HBM3;cc=90;sms=132;memory={H100_BYTES};devices=4;cuda=12"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"world_size": 0}, "the world size is 0"),
        ({"steps": 0}, "0 steps cannot be recorded"),
        ({"script": "nothing.py"}, "there is no script `nothing.py`"),
        ({"gpu": next(row for row in nvcoll._nvcoll.gpus() if row.name == "mi300x")}, "cannot be a virtual GPU"),
    ],
)
def test_what_cannot_be_recorded_is_refused(more, said):
    words = {"script": __file__, "gpu": H100} | more
    with pytest.raises(nvcoll.InvalidArgument, match=said):
        Request(words.pop("script"), **words)


def test_a_rank_beyond_the_world_is_refused():
    with pytest.raises(nvcoll.InvalidArgument, match="rank 8 is not one of 8 ranks"):
        run_ranks(Request(__file__, gpu=H100), [0, 8])


def test_a_module_is_told_by_its_name_and_a_script_by_its_path(tmp_path):
    assert spec_of(Request("torch.nn", is_module=True, gpu=H100), 0, [0], tmp_path).script == "torch.nn"
    here = os.path.relpath(__file__)
    assert spec_of(Request(here, gpu=H100), 0, [0], tmp_path).script == os.path.abspath(__file__)


def of_version(folder, text):
    """A torch with some text as its version."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("raise ImportError('torch is not to be imported')")
    (folder / "torch" / "version.py").write_text(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("__version__ = '2.15.0+cpu'\ncuda: str | None = None\n", "is built without CUDA: pip install torch"),
        ("__version__ = '2.15.0+rocm7'\ncuda = None\nhip = '7.0'\n", "is built without CUDA"),
        ("__version__ = '2.4.1'\ncuda = '12.4'\n", "2.4.1 is too old for a dry run: install 2.11"),
        ("", "has no version that can be read"),
    ],
)
def test_a_torch_that_cannot_is_refused_without_its_import(tmp_path, monkeypatch, text, said):
    of_version(tmp_path, text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(CannotDryRun, match=said):
        torch_installed()


def test_a_torch_that_can_is_read_as_a_file(tmp_path, monkeypatch):
    of_version(tmp_path, "__version__ = '2.15.0+cu132'\ncuda: str | None = '13.2'\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    found = torch_installed()
    assert (found.version, found.cuda, found.cuda_major) == ("2.15.0+cu132", "13.2", 13)


def test_other_systems_and_no_torch_are_refused(monkeypatch):
    monkeypatch.setattr(installed.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CannotDryRun, match="torch is not installed"):
        torch_installed()
    monkeypatch.setattr(installed.platform, "machine", lambda: "aarch64")
    with pytest.raises(CannotDryRun, match="needs Linux on x86-64"):
        torch_installed()
