"""Which ranks run, how often a dry run tries, and what failures become."""

import dataclasses
import gzip
import os

import pytest
from dryrun_recordings import Log, layer

import nvcoll
from nvcoll.dryrun.parent import roles, script
from nvcoll.dryrun.parent.failures import OutOfGpuMemory, ScriptFailed
from nvcoll.dryrun.parent.launch import Request
from nvcoll.dryrun.wire.rank_recording import NO_GPU, Group, Run
from nvcoll.dryrun.wire.stamps import Note, stamp_of

H100 = next(row for row in nvcoll._nvcoll.gpus() if row.name == "h100-sxm")


def stage(rank, group, **more):
    """A rank of a pipeline: it sends to its neighbours and receives from them."""
    log = Log()
    log.gemm(64, 64, 64)
    me = group.ranks.index(rank)
    for peer in (me - 1, me + 1):
        if 0 <= peer < len(group.ranks):
            log.call("send", 1, 128, peer=peer)
            log.call("recv", 1, 128, peer=peer)
    return log.recording(rank, groups={1: group}, **more)


@pytest.fixture
def attempts(monkeypatch):
    """Replaces the running of ranks: a function says what each rank of an attempt records; returns the attempts."""
    made = []

    def replace(of_rank):
        def run(request, ranks, tell=None):
            made.append(tuple(ranks))
            return [of_rank(rank, tuple(ranks)) for rank in ranks]

        monkeypatch.setattr(script, "run_ranks", run)
        return made

    return replace


def request(**more):
    return Request(__file__, world_size=16, gpu=H100, **more)


def counted(recording, *files):
    """A rank that has read some files."""
    noted = [Note("begun", "1"), *(Note("read", os.path.abspath(file), stamp_of(file)) for file in files)]
    return recording, Run(recording.rank, "counted", steps=2, noted=noted)


def test_the_stages_are_those_of_the_whole_group_where_pairs_have_communicators_too():
    log = Log()
    log.gemm(64, 64, 64)
    for communicator in (2, 1):  # messages without a batch come first, then those of batches
        for call in ("send", "recv"):
            log.call(call, communicator, 128, peer=1)
    stages = Group("default_pg", (0, 1, 2, 3))
    assert roles.pipeline_of(log.recording(0, groups={1: stages, 2: Group("default_pg", (0, 1))})) == stages


def test_rank_0_is_enough_if_all_ranks_do_the_same(attempts):
    made = attempts(lambda rank, _: counted(layer(rank)))
    recordings, _ = script.recordings_of(request())
    assert made == [(0,)] and roles.stand_for([0], 16) == [16] and roles.names_of([0], recordings) == ["all ranks"]


@pytest.mark.parametrize("name", ["PIPELINE_MODEL_PARALLEL_GROUP", "mesh_pp", "default_pg"])
def test_one_rank_of_each_stage_runs_side_by_side(attempts, name):
    group = Group(name, (0, 4, 8, 12))
    made = attempts(lambda rank, _: counted(stage(rank, group)))
    recordings, _ = script.recordings_of(request())
    assert made == [(0,), (0, 4, 8, 12)]
    assert roles.names_of(made[-1], recordings) == ["stage 0", "stage 1", "stage 2", "stage 3"]
    assert roles.stand_for(made[-1], 16) == [4, 4, 4, 4]


def test_a_ring_and_an_exchange_are_no_pipeline():
    ring, exchange = Log(), Log()
    ring.call("send", 1, 128, peer=1)
    ring.call("recv", 1, 128, peer=3)
    for peer in range(3):
        exchange.call("send", 1, 128, peer=peer, together=1)
        exchange.call("recv", 1, 128, peer=peer, together=1)
    groups = {1: Group("default_pg", (0, 1, 2))}
    assert roles.pipeline_of(exchange.recording(groups=groups)) is None
    assert roles.pipeline_of(ring.recording(groups={1: Group("default_pg", (0, 1, 2, 3))})) is None
    both = Log()
    both.call("send", 1, 128, peer=1)
    both.call("recv", 1, 128, peer=1)
    assert roles.pipeline_of(both.recording(groups={1: Group("mesh_cp", (0, 1))})) is None


def test_ranks_for_which_others_wait_run_too(attempts):
    def of_rank(rank, ranks):
        if 8 not in ranks:
            return None, Run(rank, "refused", message="DryRunError: recv of rank 8 is needed", wanted=[8])
        return counted(layer(rank))

    made = attempts(of_rank)
    script.recordings_of(request())
    assert made == [(0,), (0, 8)]


def test_given_ranks_run_as_they_are(attempts):
    made = attempts(lambda rank, _: counted(layer(rank)))
    script.recordings_of(request(ranks=(3, 7, 11)))
    assert made == [(3, 7, 11)] and roles.stand_for(made[0], 16) == [6, 5, 5]


def test_ranks_without_end_are_given_up(attempts):
    made = attempts(lambda rank, ranks: (None, Run(rank, "refused", wanted=[max(ranks) + 1])))
    with pytest.raises(ScriptFailed, match="pass --only-ranks"):
        script.recordings_of(request())
    assert len(made) == roles.ATTEMPTS


MESSAGE = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. Process 7 has 0 bytes memory in use. "
    "Of the allocated memory 78.48 GiB is allocated by PyTorch. If reserved but unallocated memory is large try "
)


@pytest.mark.parametrize(
    ("run", "kind", "said"),
    [
        (
            Run(0, "failed", message=MESSAGE, line="t.py:4 forward"),
            OutOfGpuMemory,
            r"t.py:4 forward: .* GiB\. Of .* PyTorch\.$",
        ),
        (Run(0, "failed", message="ValueError: no"), ScriptFailed, "rank 0 of 16, ValueError: no"),
        (Run(0, "refused", message="t.py:4 f: the shape"), ScriptFailed, "rank 0 of 16, t.py:4 f: the shape"),
        (Run(0, "ended", message="the script ended"), ScriptFailed, "the script ended: have it do more"),
        (Run(0, "ended", message=f"it ended, and {NO_GPU}"), ScriptFailed, "on a GPU: pass the option that makes it"),
        (
            Run(0, "ended", message="the script left", exit_status=2),
            ScriptFailed,
            "the script left: its output says why$",
        ),
        (
            Run(0, "failed", message="ValueError", read="it reads (t.py:4 f)"),
            ScriptFailed,
            r"ValueError\. Before this, it reads \(t.py:4 f\)$",
        ),
    ],
)
def test_failures_say_the_line_and_what_to_do(attempts, run, kind, said):
    attempts(lambda rank, _: (None, run))
    with pytest.raises(ScriptFailed, match=said) as failed:
        script.recordings_of(request())
    assert type(failed.value) is kind and failed.value.line == run.line


def test_the_cause_is_the_rank_that_failed_and_not_those_that_wait(attempts):
    waits = "DryRunError: rank 0 waits for rank 8 to say `send`, which ended"
    killed = Run(9, "failed", message="its process was killed by signal 9 (SIGKILL)", follows="killed")
    failed = Run(8, "failed", message="ValueError: no", line="t.py:9 f")
    runs = {0: Run(0, "refused", message=waits, follows="ended"), 8: failed, 9: killed}
    attempts(lambda rank, _: (None, runs[rank]))
    with pytest.raises(ScriptFailed, match=r"rank 8 of 16, t.py:9 f: ValueError: no"):
        script.recordings_of(request(ranks=(0, 8, 9)))
    with pytest.raises(ScriptFailed, match=r"waits for rank 8"):
        script.recordings_of(request(ranks=(0, 9)))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a script and a cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import part")
    (tmp_path / "part.py").write_text("")
    return tmp_path


def test_a_script_is_recorded_again_if_something_that_it_reads_or_that_decides_changes(attempts, here, monkeypatch):
    made = attempts(lambda rank, _: counted(layer(rank), "train.py", "part.py"))
    of = Request("train.py", ("--layers=2",), world_size=16, gpu=H100)
    first = script.record(of)
    again = script.record(of)
    assert len(made) == 1 and again == first and first.runs and not again.runs
    monkeypatch.setenv("COLUMNS", "70")
    (here / "alien.py").write_text("1")
    script.record(of)
    assert len(made) == 1, "what the script does not read"
    changes = [
        lambda: (here / "train.py").write_text("import part, part\n"),
        lambda: (here / "part.py").unlink(),
        lambda: monkeypatch.setenv("LAYERS", "3"),
        lambda: monkeypatch.setenv("DISPLAY", ":7"),
        lambda: monkeypatch.setattr("subprocess._args_from_interpreter_flags", lambda: ["-O"]),
    ]
    for nth, change in enumerate(changes, 2):
        change()
        script.record(of)
        script.record(of)
        assert len(made) == nth
    script.record(dataclasses.replace(of, world_size=8))
    script.record(dataclasses.replace(of, is_cached=False))
    assert len(made) == len(changes) + 3


@pytest.mark.parametrize("ending", [".inputs", ".json.gz"])
@pytest.mark.parametrize("damage", ["a byte", "half", "all", "other", "a name", "unreadable"])
def test_a_damaged_file_of_the_cache_counts_as_none(attempts, here, ending, damage):
    made = attempts(lambda rank, _: counted(layer(rank), "train.py"))
    first = script.record(request())
    (file,) = (here / "cache/nvcoll/dryrun/recordings").glob(f"*{ending}")
    content = file.read_bytes()
    if damage == "a name":
        text = gzip.decompress(content).replace(b'"script"', b'"skript"').replace(b'"host"', b'"hosts"')
        content = gzip.compress(text)
    elif damage == "unreadable":
        file.unlink()
        file.mkdir()
    else:
        content = {
            "a byte": content[:40] + bytes([content[40] ^ 255]) + content[41:],
            "half": content[: len(content) // 2],
            "all": b"",
            "other": gzip.compress(b'{"schema": "nvcoll.recorded/2", "step": {"streams": 0}, "facts": {}}'),
        }[damage]
    if damage != "unreadable":
        file.write_bytes(content)
    assert script.record(request()).step == first.step
    assert len(made) == 2


def test_versions_of_a_script_are_kept_side_by_side(attempts, here, monkeypatch):
    made = attempts(lambda rank, _: counted(layer(rank), "train.py"))
    for text in ("1", "2", "1", "2"):
        (here / "train.py").write_text(text)
        script.record(request())
    assert len(made) == 2
    monkeypatch.setattr(script.cache, "MOST_OF_KEY", 1)
    (here / "train.py").write_text("3")
    script.record(request())
    assert len(list((here / "cache/nvcoll/dryrun/recordings").iterdir())) == 2, "one recording and its inputs"


def test_a_recording_whose_inputs_are_not_known_is_not_kept(attempts, here):
    made = attempts(lambda rank, _: (layer(rank), Run(rank, "counted")))
    assert script.record(request()).not_kept == "rank 0 could not note what the script reads"
    stale = Note("read", str(here / "train.py"), (1, 2, 3, 4))
    made = attempts(lambda rank, _: (layer(rank), Run(rank, "counted", noted=[Note("begun", "1"), stale])))
    for _ in range(2):
        assert script.record(request()).not_kept == f"{here / 'train.py'} changed while the script ran"
    assert len(made) == 3 and not (here / "cache").exists()


def test_the_cache_keeps_what_was_used_last(attempts, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    attempts(lambda rank, _: counted(layer(rank)))
    script.record(request())
    monkeypatch.setattr(script.cache, "MOST_BYTES", 1)
    script.record(request(steps=4))
    assert not list((tmp_path / "nvcoll/dryrun/recordings").iterdir())
