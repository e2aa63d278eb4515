"""`nvcoll dump`: what ranks of running jobs do, read from outside while they hang."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys

import json_schemas
import pytest
from command_line import refused, run
from processes import is_running, open_things, start, wait_until

import nvcoll
from nvcoll.cli import formats
from nvcoll.ranks import recorders

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="ranks that are processes need Linux"),
    pytest.mark.timeout(300),
]

HANGS = """
comm = nvcoll.init()
first, second = (comm.split(0 if comm.rank < 2 else None) for _ in range(2))
comm.barrier()
print("ready", flush=True)
if comm.rank == 2:
    signal.pause()
elif comm.rank == 0:
    first.all_reduce(np.ones(4, "f4"))
else:
    second.all_gather(np.ones(3, "i4"))
"""
"""Ranks 0 and 1 use two communicators in opposite order; rank 2 waits in its own code."""


@pytest.fixture
def hung():
    """A job that hangs, by its name, and its processes."""
    ranks = start(3, HANGS, "hung")
    try:
        for rank in ranks:
            assert rank.stdout.readline() == "ready\n", rank.stderr.read()
        yield f"hung-{os.getpid()}", ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def dump(*arguments: str) -> str:
    return run("dump", *arguments)[0]


def has_cycle(name: str) -> bool:
    return "they wait for each other" in dump(name)


def test_a_hung_job_is_told_from_outside_and_goes_on_hanging(hung):
    name, ranks = hung
    wait_until(lambda: has_cycle(name))
    pid = [rank.pid for rank in ranks]
    printed = json.loads(dump(name, "--json"))
    json_schemas.validate(formats.schema("dump"), printed)
    assert printed["jobs"][0]["cycle"] and printed["jobs"][0]["ranks"][0]["waits"]
    text = dump(str(pid[1]))
    lines = text.splitlines()
    assert lines[0] == f"job {name}: 3 ranks"
    assert [line for line in lines if line.startswith("rank ")] == [f"rank {n}, process {pid[n]}" for n in range(3)]
    one, other = "all_reduce of 4 float32, sum, in place, auto", "all_gather of 6 int32, out of place, auto"
    assert f"rank 0 waits in {one} of the communicator of ranks 0, 1, made by split in call 1, for rank 1" in lines[1]
    assert f"which waits in {other} of the communicator of ranks 0, 1, made by split in call 2, for rank 0" in lines[1]
    assert (
        f"  waits in call 1, {one}, of the communicator of ranks 0, 1, made by split in call 1, for rank 1, for "
        in text
    )
    assert text.count("  the communicator of all ranks: is between calls, after 3\n       3  barrier\n") == 3
    assert "made by split in call 1: is in call 1 and has not moved for 0.25 s\n" in text
    assert "made by split in call 2: is between calls, after 0\n" in text
    assert all(is_running(one) for one in pid)


def test_a_stopped_rank_is_told(hung):
    name, ranks = hung
    os.kill(ranks[2].pid, signal.SIGSTOP)
    wait_until(lambda: f"process {ranks[2].pid}, which is stopped" in dump(name))


def test_reading_leaves_nothing_open(hung):
    name, ranks = hung
    before = open_things()
    for _ in range(3):
        found, refused = recorders.jobs()  # those of other jobs too, of other versions perhaps
        assert name in [job.name for job in found]
        assert not [text for text in refused for rank in ranks if f"/proc/{rank.pid}/" in text]
        assert [rank.rank for job in found for rank in job.ranks if job.name == name] == [0, 1, 2]
        del found
    assert open_things() == before


def file_of_words(contents: bytes) -> int:
    descriptor = os.memfd_create("nvcoll words", os.MFD_ALLOW_SEALING)
    os.write(descriptor, contents)
    fcntl.fcntl(descriptor, 1033, 2 | 4)  # F_ADD_SEALS: the length
    return descriptor


@pytest.mark.parametrize("length", [0, 16])
def test_words_of_another_version_are_refused_by_name(hung, length):
    _, ranks = hung
    path = next(path for _, path in recorders.words_of(ranks[0].pid))
    words = bytearray(path.read_bytes())
    version = nvcoll.__version__.encode()
    at = words.index(version, 0, 64)
    words[at : at + len(version) + 4] = b"9.8.7" + bytes(len(version) - 1)
    descriptor = file_of_words(bytes(words) + bytes(length))
    try:
        said = refused("dump", str(os.getpid()))
        assert "is words of nvcoll 9.8.7 (layout " in said and f"this is nvcoll {nvcoll.__version__}" in said
    finally:
        os.close(descriptor)


def test_scribbled_words_are_told_wrongly_and_harmlessly(hung):
    name, ranks = hung
    for nth, path in enumerate([path for _, path in recorders.words_of(ranks[0].pid)]):
        words = bytearray(path.read_bytes())
        words[512:] = bytes((at * 7 + nth * 31) % 256 for at in range(len(words) - 512))
        descriptor = file_of_words(bytes(words))
        try:
            assert f"job {name}" in dump(name)
            recorder = nvcoll._nvcoll.Recorder(f"/proc/self/fd/{descriptor}")
            recorder.look()
        finally:
            os.close(descriptor)


def test_a_job_that_does_not_run_is_an_error_that_names_those_that_do(hung):
    name, _ = hung
    said = refused("dump", "no such job")
    assert "found no job or rank no such job" in said and name in said
