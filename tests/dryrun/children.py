"""Runs the child of a dry run by itself, and the same script on CPUs with real processes, to compare them."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nvcoll.dryrun.library import libraries
from nvcoll.dryrun.library import library as carried
from nvcoll.dryrun.recording import Kind, Recording, Run

SCRIPTS = Path(__file__).parent / "scripts"
GPU = "name=NVIDIA H100 80GB HBM3;cc=90;sms=132;memory=85028110336;devices=8;cuda=13"
LIMIT_S = 280
"""How long ranks may take. Chosen: torch.compile takes a minute and more on a busy machine."""
PATIENT = pytest.mark.timeout(LIMIT_S + 20)


def library():
    """The library of the virtual GPU: that of the wheel, or one that is named. Skips the test without torch."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    named = os.environ.get("NVCOLL_VGPU_LIBRARY")
    return Path(named) if named else carried()


class Children:
    """Ranks of one dry run, side by side."""

    def __init__(self, folder):
        self.folder, self.library, self.names = folder, library(), libraries()
        (folder / "mail").mkdir()

    def run(self, script, *args, world_size=8, ranks=(0,), steps=2, is_module=False, cwd=None):
        """Runs some ranks to their end. Returns output, `Run` and `Recording` (or None) of each."""
        children = [self._start(rank, script, args, world_size, ranks, steps, is_module, cwd) for rank in ranks]
        try:
            return [self._ended(rank, child) for rank, child in zip(ranks, children, strict=True)]
        finally:
            for child in children:
                child.kill()
                child.wait()

    def _ended(self, rank, child):
        out, _ = child.communicate(timeout=LIMIT_S)
        result = self.folder / f"{rank}.recording"
        assert Run.beside(result).exists(), out
        return out, Run.load(result), Recording.load(result) if result.exists() else None

    def _start(self, rank, script, args, world_size, ranks, steps, is_module, cwd):
        spec = {
            "rank": rank,
            "world_size": world_size,
            "result": str(self.folder / f"{rank}.recording"),
            "script": script if is_module else str(SCRIPTS / script),
            "args": list(args),
            "is_module": is_module,
            "steps": steps,
            "mail": str(self.folder / "mail"),
            "roles": list(ranks),
        }
        (self.folder / f"{rank}.json").write_text(json.dumps(spec))
        environment = os.environ | {
            "NVCOLL_VGPU": GPU,
            "LD_PRELOAD": str(self.library),
            "LD_LIBRARY_PATH": str(self.names),
            "TRITON_LIBCUDA_PATH": str(self.names),
            "TMPDIR": str(self.folder),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.Popen(
            [sys.executable, "-m", "nvcoll.dryrun.inside", "--spec", str(self.folder / f"{rank}.json")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=cwd,
        )


@pytest.fixture
def children(tmp_path):
    """Starts children of dry runs."""
    return Children(tmp_path)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Returns the recording of rank 0 of a script. A script runs once for all tests of a file."""
    library()
    known = {}

    def recording_of(script, *args, world_size=8):
        key = script, *args, world_size
        if key not in known:
            [(out, run, recording)] = Children(tmp_path_factory.mktemp("dry")).run(script, *args, world_size=world_size)
            assert run.status == "counted", out
            known[key] = recording
        return known[key]

    return recording_of


def of_kind(recording, kind):
    """The records of a kind that ran."""
    return recording.records[recording.records["kind"] == kind]


def gemm_flops(recording):
    """FLOPs of all GEMMs of the step."""
    return sum(2 * m * n * k * batch for m, n, k, batch, *_ in of_kind(recording, Kind.GEMM)["args"].tolist())


def collectives(recording):
    """Name, group and bytes (count x size) of each collective, in order."""
    return [
        (recording.names[name], recording.groups[args[2]].name, args[5])
        for name, args in zip(
            of_kind(recording, Kind.COLLECTIVE)["name"].tolist(),
            of_kind(recording, Kind.COLLECTIVE)["args"].tolist(),
            strict=True,
        )
    ]


def on_cpus(script, *args, world_size, folder):
    """Runs a script in real processes on CPUs with gloo. Returns names and shapes of rank 0 in its third step."""
    rendezvous = folder / "rendezvous"
    processes = []
    for rank in range(world_size):
        environment = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank)}
        environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "OPERATORS": str(folder / "operators.json")}
        environment |= {"RENDEZVOUS": str(rendezvous)}
        command = [sys.executable, str(SCRIPTS / "watched.py"), str(SCRIPTS / script), *args, "--cpu"]
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    try:
        for process in processes:
            out, _ = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0, out.decode()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [(name, tuple(map(tuple, shapes))) for name, shapes in json.loads((folder / "operators.json").read_text())]
