"""Which ranks run, how often a dry run tries, and what failures become."""

import dataclasses

import pytest

import nvcoll
from dryrun.recordings import Log, layer
from nvcoll.dryrun import roles, script
from nvcoll.dryrun.failures import OutOfGpuMemory, ScriptFailed
from nvcoll.dryrun.installed import Torch
from nvcoll.dryrun.launch import Request
from nvcoll.dryrun.recording import Group, Run

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


@pytest.fixture(autouse=True)
def some_torch(monkeypatch, tmp_path):
    """Keys of the cache name torch, which is not needed here."""
    monkeypatch.setattr(script.cache, "torch_installed", lambda: Torch("2.15.0", "13.2", tmp_path))


@pytest.fixture
def attempts(monkeypatch):
    """Replaces the running of ranks: a function says what each rank of an attempt records; returns the attempts."""
    made = []

    def replace(of_rank):
        def run(request, ranks):
            made.append(tuple(ranks))
            return [of_rank(rank, tuple(ranks)) for rank in ranks]

        monkeypatch.setattr(script, "run_ranks", run)
        return made

    return replace


def request(**more):
    return Request(__file__, world_size=16, gpu=H100, **more)


def counted(recording):
    return recording, Run(recording.rank, "counted", steps=2)


def test_rank_0_is_enough_if_all_ranks_do_the_same(attempts):
    made = attempts(lambda rank, _: counted(layer(rank)))
    recordings, _ = script.recordings_of(request(), None)
    assert made == [(0,)] and roles.stand_for([0], 16) == [16] and roles.names_of([0], recordings) == ["all ranks"]


@pytest.mark.parametrize("name", ["PIPELINE_MODEL_PARALLEL_GROUP", "mesh_pp", "default_pg"])
def test_one_rank_of_each_stage_runs_side_by_side(attempts, name):
    group = Group(name, (0, 4, 8, 12))
    made = attempts(lambda rank, _: counted(stage(rank, group)))
    recordings, _ = script.recordings_of(request(), None)
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
    script.recordings_of(request(), None)
    assert made == [(0,), (0, 8)]


def test_given_ranks_run_as_they_are(attempts):
    made = attempts(lambda rank, _: counted(layer(rank)))
    script.recordings_of(request(), [3, 7, 11])
    assert made == [(3, 7, 11)] and roles.stand_for(made[0], 16) == [6, 5, 5]


def test_ranks_without_end_are_given_up(attempts):
    made = attempts(lambda rank, ranks: (None, Run(rank, "refused", wanted=[max(ranks) + 1])))
    with pytest.raises(ScriptFailed, match="pass --ranks"):
        script.recordings_of(request(), None)
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
    ],
)
def test_failures_say_the_line_and_what_to_do(attempts, run, kind, said):
    attempts(lambda rank, _: (None, run))
    with pytest.raises(ScriptFailed, match=said) as failed:
        script.recordings_of(request(), None)
    assert type(failed.value) is kind and failed.value.line == run.line


def test_the_cause_is_the_rank_that_failed_and_not_those_that_wait(attempts):
    waits = "DryRunError: rank 0 waits for rank 8 to say `send`, which ended"
    killed = Run(9, "failed", message="its process was killed by signal 9 (SIGKILL)")
    failed = Run(8, "failed", message="ValueError: no", line="t.py:9 f")
    runs = {0: Run(0, "refused", message=waits), 8: failed, 9: killed}
    attempts(lambda rank, _: (None, runs[rank]))
    with pytest.raises(ScriptFailed, match=r"rank 8 of 16, t.py:9 f: ValueError: no"):
        script.recordings_of(request(), [0, 8, 9])
    with pytest.raises(ScriptFailed, match=r"waits for rank 8"):
        script.recordings_of(request(), [0, 9])


def test_the_same_script_is_recorded_once(attempts, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import part\n")
    (tmp_path / "part.py").write_text("from other import thing\n")
    (tmp_path / "other.py").write_text("thing = 1\n")
    (tmp_path / "alien.py").write_text("")
    (tmp_path / "config.toml").write_text("layers = 2")
    made = attempts(lambda rank, _: counted(layer(rank)))
    of = Request("train.py", ("--config=config.toml",), world_size=16, gpu=H100)
    first = script.record(of)
    again = script.record(of)
    assert len(made) == 1 and again == first and first.runs and not again.runs
    (tmp_path / "alien.py").write_text("1")
    script.record(of)
    assert len(made) == 1, "a file that the script does not import"
    changes = [
        lambda: (tmp_path / "train.py").write_text("import part, part\n"),
        lambda: (tmp_path / "other.py").write_text("thing = 2\n"),
        lambda: (tmp_path / "config.toml").write_text("layers = 3"),
        lambda: monkeypatch.setenv("LAYERS", "3"),
    ]
    for nth, change in enumerate(changes, 2):
        change()
        script.record(of)
        assert len(made) == nth
    script.record(dataclasses.replace(of, world_size=8))
    script.record(of, is_cached=False)
    assert len(made) == len(changes) + 3


def test_the_cache_keeps_what_was_used_last(attempts, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    attempts(lambda rank, _: counted(layer(rank)))
    script.record(request())
    monkeypatch.setattr(script.cache, "MOST_BYTES", 1)
    script.record(request(steps=4))
    assert not list((tmp_path / "nvcoll/dryrun/recordings").iterdir())


def test_a_module_that_is_not_there_is_refused():
    with pytest.raises(nvcoll.InvalidArgument, match=r"there is no module `no\.such\.thing`"):
        script.record(Request("no.such.thing", is_module=True, gpu=H100))
