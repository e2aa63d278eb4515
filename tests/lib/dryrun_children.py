"""Runs the child of a dry run by itself, and the same script on CPUs with real processes, to compare them."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
from dryrun_forks import Fork, environment

from nvcoll.dryrun.wire.rank_recording import RankRecording, Run
from nvcoll.dryrun.wire.spec import VARIABLES
from nvcoll.dryrun.wire.virtual_gpu import Kind

SCRIPTS = Path(__file__).parents[1] / "dryrun" / "scripts"
LIMIT_S = 280
"""How long ranks may take. Chosen: torch.compile takes a minute and more on a busy machine."""
PATIENT = pytest.mark.timeout(LIMIT_S + 20)


def needs_torch():
    """Skips the test without torch."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")


class Children:
    """Ranks of one dry run, side by side."""

    def __init__(self, folder):
        self.folder = folder
        needs_torch()
        (folder / "mail").mkdir()

    def run(self, script, *args, world_size=8, ranks=(0,), steps=2, is_module=False, cwd=None, **more):
        """Runs some ranks to their end. Returns output, `Run` and `RankRecording` (or None) of each."""
        children = [self._start(rank, script, args, world_size, ranks, steps, is_module, cwd, more) for rank in ranks]
        try:
            return [self._ended(rank, child) for rank, child in zip(ranks, children, strict=True)]
        finally:
            for child in children:
                child.kill()

    def _ended(self, rank, child):
        _, out = child.wait(LIMIT_S)
        result = self.folder / f"{rank}.recording"
        assert Run.beside(result).exists(), out
        return out, Run.load(result), RankRecording.load(result) if result.exists() else None

    def _start(self, rank, script, args, world_size, ranks, steps, is_module, cwd, more):
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
            "outside": dict.fromkeys(VARIABLES),
            "reads": str(self.folder / f"{rank}.reads"),
            "own": [f"{self.folder}/mail/"],
        }
        file = self.folder / f"{rank}.json"
        file.write_text(json.dumps(spec | more))
        return Fork(file, environment() | {"TMPDIR": str(self.folder)}, cwd)


@pytest.fixture
def children(tmp_path):
    """Starts children of dry runs."""
    return Children(tmp_path)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Returns the recording of rank 0 of a script. A script runs once for all tests of a file."""
    needs_torch()
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
    words = [str(SCRIPTS / "watched.py"), str(SCRIPTS / script), *args, "--cpu"]
    program = f"import runpy, sys; sys.argv = {words}; runpy.run_path(sys.argv[0], run_name='__main__')"
    variables = os.environ | {"WORLD_SIZE": str(world_size), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    variables |= {"RENDEZVOUS": str(folder / "rendezvous"), "OPERATORS": str(folder / "operators.json")}
    forks = [Fork(program, variables | dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))) for rank in range(world_size)]
    try:
        for fork in forks:
            status, out = fork.wait(LIMIT_S)
            assert status == 0, out
    finally:
        for fork in forks:
            fork.kill()
    return [(name, tuple(map(tuple, shapes))) for name, shapes in json.loads((folder / "operators.json").read_text())]
