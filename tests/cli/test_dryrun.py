"""`nvcoll dryrun` and `nvcoll price`: what they print, write and refuse. Ranks are replaced by their recordings."""

import json
import sys
from pathlib import Path

import pytest
from dryrun_recordings import Log, alone, layer
from typer.testing import CliRunner

import nvcoll.cli
from nvcoll.dryrun.parent import script
from nvcoll.dryrun.parent.failures import OutOfGpuMemory
from nvcoll.dryrun.parent.recording import Recording
from nvcoll.dryrun.wire.rank_recording import Assumption, Group, Run
from nvcoll.dryrun.wire.stamps import Note
from nvcoll.testing import dryrun

FOUR, OTHER = "hgx-h100x2+ib-ndr-8", "hgx-h100x2+roce-100-8"

MESSAGE = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.fixture(autouse=True)
def ran(monkeypatch, tmp_path):
    """Replaces the ranks by a recording; returns the requests. `does_not_fit` on GPUs of this name."""
    requests = []
    ran = type("Ran", (), {"requests": requests, "too_small": (), "groups": None, "is_alone": False})
    ran.noted = [Note("begun", "1")]

    def run(request, ranks, predicted=None, tell=None):
        requests.append((request, tuple(ranks), predicted))
        if request.gpu.name in ran.too_small:
            return [(None, Run(0, "failed", message=MESSAGE, line="t.py:4 forward"))]
        status = Run(0, "counted" if predicted is None else "ended", steps=2, seconds=3, peak_rss_bytes=10**9)
        status.noted = ran.noted
        more = {"assumed": [Assumption("topk picks experts in turn", 1, 3)], "unanswered": ["cuSomething"]}
        more |= {"versions": {"torch": "2.15.0"}, "world_size": request.world_size, "groups": ran.groups}
        if ran.is_alone:
            return [(alone(rank, request.world_size), status) for rank in ranks]
        return [(layer(rank, **more), status) for rank in ranks]

    monkeypatch.setattr(script, "run_ranks", run)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    return ran


def nvcoll_(*words, status=0):
    """Runs the command in this process; returns what it printed."""
    ended = CliRunner().invoke(nvcoll.cli.command_line(), [str(word) for word in words], prog_name="nvcoll")
    assert ended.exit_code == status, ended.output
    return ended.stdout if status in (0, 3) else ended.stderr


def test_groups_of_several_runs_and_of_unequal_distances_say_which_ranks(ran):
    ran.groups = {1: Group("mesh_dp_shard", (0, 1, 2, 3, 8, 9, 10, 11))}
    text = nvcoll_("dryrun", "--on", FOUR, "train.py")
    assert "\ngroups      shard 8 (ranks 0 to 3 and 8 to 11)\n" in text and "4 GPUs each of 2 nodes" in text
    ran.groups = {1: Group("mesh_dp_shard", (0, 1, 5))}
    text = " ".join(nvcoll_("dryrun", "--no-cache", "--on", FOUR, "train.py").split())
    assert "`mesh_dp_shard` of ranks at unequal distances, [0, 1, 5], costs what 3 ranks 2 apart would" in text


def test_one_machine_is_the_step_in_detail():
    text = nvcoll_("dryrun", "--on", FOUR, "train.py")
    lines = text.splitlines()
    assert lines[0] == "train.py: rank 0 of 16 on a virtual H100 SXM, 2 steps in 3 s with 1.0 GB"
    labels = {line[:12].strip() for line in lines}
    assert labels >= {
        "judged",
        "rank 0",
        "groups",
        "tokens",
        "step",
        "memory",
        "peak",
        "limit",
        "assumed",
        "unanswered",
    }
    assert "groups      shard 16 (ranks 0 to 15)" in lines
    assert "tokens      16,384 in a step: 1,024 that the embedding of a rank reads x 16 ranks" in lines
    assert "8.0 GiB in tensors, 9.0 reserved" in text and "peak        at m.py:3 f" in lines
    assert "assumed     topk picks experts in turn (t.py:4 forward), 3 times" in lines
    assert "cuSomething" in text and "where the time goes" in text and "shard all_gather" in text


def test_the_arguments_of_the_script_pass_through(ran):
    nvcoll_("dryrun", "--on", FOUR, "--world-size", "8", "train.py", "--on", "x", "-m", "--tokens=5", "--", "--json")
    request, ranks, _ = ran.requests[0]
    assert request.arguments == ("--on", "x", "-m", "--tokens=5", "--", "--json")
    assert (request.script, request.world_size, request.is_module, ranks) == ("train.py", 8, False, (0,))
    nvcoll_("dryrun", "--on", FOUR, "-m", "json.tool", "--x")
    request, *_ = ran.requests[1]
    assert (request.script, request.is_module, request.arguments) == ("json.tool", True, ("--x",))
    nvcoll_("dryrun", "--on", FOUR, "python", "-m", "json.tool", "--y")
    request, *_ = ran.requests[2]
    assert (request.script, request.is_module, request.arguments) == ("json.tool", True, ("--y",))
    nvcoll_("dryrun", "--on", FOUR, "python3.11", "train.py", "-m", "x")
    request, *_ = ran.requests[3]
    assert (request.script, request.is_module, request.arguments) == ("train.py", False, ("-m", "x"))


def test_options_of_machines_after_the_script_are_noted():
    words = ("dryrun", "--on", FOUR, "train.py", "--on", "x", "--world-size=5", "--on=y", "--ranks", "3")
    ended = CliRunner().invoke(nvcoll.cli.command_line(), list(words))
    notes = [line for line in ended.stderr.splitlines() if line.startswith("nvcoll: ")]
    assert ended.exit_code == 0 and notes == [
        "nvcoll: --on stands after the script and is passed to it",
        "nvcoll: --world-size stands after the script and is passed to it",
    ]


def test_options_reach_the_request(ran):
    how = (
        "--steps",
        "3",
        "--step-at",
        "train.py:1",
        "--response-tokens",
        "uniform:64-512",
        "--only-ranks",
        "8,0",
        "--gpus-per-node",
        "4",
        "--time-limit",
        "50",
        "--memory-limit",
        "2",
        "-q",
    )
    Path("train.py").write_text("pass")
    nvcoll_("dryrun", "--on", FOUR, *how, "--no-cache", "train.py")
    request, ranks, _ = ran.requests[0]
    assert (request.steps, request.gpus_per_node, request.time_limit_s) == (3, 4, 50)
    assert request.step_at == "train.py:1" and request.lengths() == [64, 512]
    assert (request.memory_limit_bytes, request.is_quiet, ranks) == (2e9, True, (0, 8))
    assert not (Path("cache") / "nvcoll").exists(), "--no-cache keeps nothing"


@pytest.mark.parametrize("length", ["0", "uniform:9-8", "normal:3-4", "3.5", "x"])
def test_a_length_of_responses_that_is_none_is_refused(ran, length):
    said = nvcoll_("dryrun", "--on", FOUR, "--response-tokens", length, "train.py", status=2)
    assert f"`{length}` is no length of responses: pass --response-tokens 256, or uniform:64-512" in said


def test_machines_with_the_same_gpu_share_a_recording(ran):
    text = nvcoll_("dryrun", "--on", f"{FOUR},{OTHER},hgx-b200x2+ib-ndr-8", "train.py")
    assert [request.gpu.name for request, *_ in ran.requests] == ["h100-sxm", "b200"]
    assert all(name in text for name in (FOUR, OTHER, "hgx-b200x2+ib-ndr-8")) and "vs best" in text
    assert text.count("on a virtual") == 2


def test_a_script_without_torch_distributed_is_one_gpu(ran):
    ran.is_alone = True
    lines = nvcoll_("dryrun", "--on", FOUR, "train.py").splitlines()
    assert lines[0].startswith("train.py: rank 0 of 1 on a virtual H100 SXM")
    assert lines[1] == "hint        the script does not call torch.distributed: one GPU"
    assert "tokens      1,024 in a step: 1,024 that the embedding of a rank reads x 1 rank" in lines
    assert not [line for line in lines if line.startswith("NCCL")], "no memory of NCCL"
    text = " ".join(nvcoll_("dryrun", "--on", FOUR, "--world-size", "4", "--clock", "train.py").split())
    assert "one GPU; the 4 ranks of -n do not communicate" in text
    assert dryrun("train.py", on=FOUR).recording.step.gpus == 1


def test_a_recording_that_is_not_kept_is_said(ran):
    ran.noted = None
    text = nvcoll_("dryrun", "--on", FOUR, "train.py")
    assert "hint        the script will run again next time: rank 0 could not note what the script reads" in text


def test_a_script_without_an_embedding_has_no_tokens(monkeypatch):
    log = Log()
    log.gemm(64, 64, 64)
    monkeypatch.setattr(
        script, "run_ranks", lambda *_, **__: [(log.recording(), Run(0, "counted", noted=[Note("begun", "1")]))]
    )
    for _ in range(2):
        assert "tokens      0 in a step: no embedding reads tokens" in nvcoll_("dryrun", "--on", FOUR, "train.py")


def test_a_rack_has_hosts_of_four_gpus(ran):
    nvcoll_("dryrun", "--on", "gb200-nvl72", "--world-size", "72", "train.py")
    assert ran.requests[0][0].gpus_per_node == 4 and ran.requests[0][0].gpu.name == "gb200"


def test_a_script_without_memory_does_not_fit_with_its_line_and_status_3(ran):
    ran.too_small = ("h100-sxm",)
    text = nvcoll_("dryrun", "--on", FOUR, "train.py", status=3)
    assert text == f"memory      {FOUR}: does not fit: rank 0 of 16, t.py:4 forward: {MESSAGE}\n"
    text = nvcoll_("dryrun", "--on", f"{FOUR},hgx-b200x2+ib-ndr-8", "train.py", status=3)
    assert "does not fit" in text and "where the time goes" in text
    found = json.loads(nvcoll_("dryrun", "--on", FOUR, "--json", "train.py", status=3))
    assert found["reports"] == [] and found["out_of_memory"][0]["line"] == "t.py:4 forward"


def test_a_step_above_a_limit_is_reported_and_ends_with_status_3(ran):
    found = json.loads(nvcoll_("dryrun", "--on", FOUR, "--json", "train.py"))["reports"][0]
    limits = {"--max-step": found["seconds"], "--max-memory": found["memory_gib"]}
    within = [f"{option}={limit * 1.01}" for option, limit in limits.items()]
    assert "where the time goes" in nvcoll_("dryrun", "--on", FOUR, *within, "train.py")
    for option, limit in limits.items():
        words = ["dryrun", "--on", f"{FOUR},{OTHER}", f"{option}={limit / 2}", "train.py"]
        ended = CliRunner().invoke(nvcoll.cli.command_line(), words, prog_name="nvcoll")
        assert ended.exit_code == 3 and FOUR in ended.stdout
        for name, line in zip((FOUR, OTHER), ended.stderr.splitlines(), strict=True):
            assert line.startswith(f"nvcoll: {name}: ") and f", more than {option} " in line


def test_a_recording_is_priced_without_the_script(ran):
    nvcoll_("dryrun", "--on", FOUR, "--save", "r.json.gz", "train.py")
    Path("train.py").unlink()
    first = json.loads(nvcoll_("price", "r.json.gz", "--on", FOUR, "--json"))
    there = json.loads(nvcoll_("price", "r.json.gz", "--on", f"{FOUR},{OTHER}", "--tokens", "7", "--json"))
    assert len(ran.requests) == 1 and len(there["reports"]) == 2
    assert first["command"] == "price" and first["recordings"]["h100-sxm"]["world_size"] == 16
    assert first["reports"][0]["seconds"] == there["reports"][0]["seconds"] > 0
    ratio = first["reports"][0]["tokens_per_second"] / there["reports"][0]["tokens_per_second"]
    assert ratio == pytest.approx(16384 / 7)


def test_a_recording_is_priced_on_its_own_machine(ran):
    nvcoll_("dryrun", "--on", f"{FOUR},{OTHER}", "--save", "r.json.gz", "train.py")
    found = json.loads(nvcoll_("price", "r.json.gz", "--json"))
    assert [one["machine"] for one in found["reports"]] == [FOUR]
    Recording.load("r.json.gz").with_facts(machine=None).save("old.json.gz")
    found = json.loads(nvcoll_("price", "old.json.gz", "--json"))
    said = "the recording of 16 GPUs (H100 SXM) does not name its machine: hgx-h100x2+ib-ndr-8; pass --on"
    assert found["assumed"][0] == said and found["reports"][0]["machine"] == FOUR
    assert f"assumed     {said}" in nvcoll_("price", "old.json.gz")


def test_traces_and_pages_are_written():
    nvcoll_("dryrun", "--on", FOUR, "--trace", "t.json", "--html", "p.html", "train.py")
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    assert any("shard all_gather" in event["name"] for event in events)
    assert "train.py on 16 GPUs" in Path("p.html").read_text()


def test_a_page_that_cannot_be_drawn_is_refused_before_the_script_runs(ran, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    said = nvcoll_("dryrun", "--on", FOUR, "--html", "p.html", "train.py", status=2)
    assert "pip install '.[page]'" in said and not ran.requests
    assert "pip install '.[page]'" in nvcoll_("plan", "llama3-8b", "--on", "hgx-h100", "--html", "p.html", status=2)


def test_a_second_pass_gets_the_times_of_each_record(ran):
    nvcoll_("dryrun", "--on", FOUR, "--clock", "train.py")
    (_, _, first), (request, ranks, predicted) = ran.requests
    assert first is None and ranks == (0,) and not request.is_quiet
    assert predicted.has_clock and predicted.period_ns > 0 and predicted.times.keys() == {0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("dryrun", "nothing.py"), "there is no script `nothing.py`"),
        (("dryrun", "--on", "mi300x-8", "train.py"), "cannot be a virtual GPU"),
        (("dryrun", "--only-ranks", "a", "train.py"), "--only-ranks a are no ranks"),
        (("dryrun", "--on", f"{FOUR},{OTHER}", "--trace", "x", "train.py"), "--trace takes one machine"),
        (("dryrun", "--on", f"{FOUR},{OTHER}", "--profile", "train.py"), "--profile takes one machine"),
        (("dryrun", "--on", f"{FOUR},hgx-b200", "--save", "x", "train.py"), "--save takes one model of GPU"),
        (("dryrun", "--on", "hgx-h100", "--world-size", "16", "train.py"), "hgx-h100 has 8 GPUs, and 16 ranks"),
        (("price", "train.py", "--on", "hgx-h100"), "train.py is empty: pass a trace or a recording"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_what_to_do(words, said):
    found = nvcoll_(*words, status=2)
    assert said in found and found.startswith("nvcoll: ") and len(found.splitlines()) == 1


def test_in_a_test_a_step_has_memory_and_exposed_share(nvcoll_dryrun, ran):
    assert nvcoll_dryrun is dryrun
    step = dryrun("train.py", "--layers", 2, on=FOUR)
    assert (step.peak_gib, step.reserved_gib, step.fits) == (8, 9, True)
    assert 9.5 < step.memory_gib < 20 and f", {step.memory_gib:.0f} of 79 with NCCL and CUDA" in str(step.report)
    assert 0 < step.exposed < 1 and step.seconds > 0 and step.tokens_per_second > 0
    assert [one.name for one in step.collectives] == ["shard all_gather", "shard reduce_scatter"]
    assert step.recording.facts["world_size"] == 16 and step.prediction.machine.name == FOUR
    assert ran.requests[0][0].arguments == ("--layers", "2")
    assert dryrun("train.py").prediction.machine.name == "hgx-h100", "the machine of the command"
    ran.too_small = ("h100-sxm",)
    with pytest.raises(OutOfGpuMemory, match=r"2\.00 GiB"):
        dryrun("train.py", on=FOUR, is_cached=False)
