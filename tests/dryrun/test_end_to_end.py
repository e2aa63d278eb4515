"""`nvcoll dryrun` from the command line to its report, with the real child, torch and the virtual GPU."""

import json
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from command_line import done
from dryrun_children import PATIENT, SCRIPTS, needs_torch

from nvcoll.testing import dryrun

pytestmark = [PATIENT, pytest.mark.skipif(sys.platform != "linux", reason="a dry run needs Linux")]

EIGHT, SIXTEEN = "hgx-h100", "hgx-h100x2+ib-ndr-8"


def ranks_of(recording):
    """The ranks of a recorded step, as JSON has them."""
    return json.loads(recording.step.to_json())["streams"]["ranks"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Gives each test a cache of its own, and skips it where torch is not installed."""
    needs_torch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def nvcoll_(*words, status=0):
    """Runs the command; returns standard output and standard error."""
    ended = done(*words, env=os.environ | {"XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]})
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout, ended.stderr


def test_two_recordings_of_a_script_are_the_same_to_the_byte(tmp_path, monkeypatch):
    how = {"on": SIXTEEN, "is_cached": False, "steps": 2}
    with ThreadPoolExecutor() as pool:
        one, two = pool.map(lambda _: dryrun(SCRIPTS / "fsdp2.py", "--bf16", "--hybrid", **how), range(2))
    one.recording.save(tmp_path / "one")
    monkeypatch.setattr(time, "time", lambda: 1.0)  # which a header of gzip would have
    two.recording.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes() and one.seconds == two.seconds
    assert one.recording.runs[0].seconds > 0
    assert json.loads(one.recording.step.to_json())["groups"] == {
        "copies": {"kind": "copies", "size": 4, "stride": 4},
        "shard": {"kind": "shard", "size": 4, "stride": 1},
    }
    assert 0 < one.peak_gib <= one.reserved_gib < 1 and one.fits and 0 < one.exposed < 1
    assert one.recording.step.tokens == 16 * 2 * 256


def test_buckets_of_ddp_overlap_with_the_backward_pass_where_the_backend_lets_them(monkeypatch):
    """ProcessGroupNCCL2 of torch 2.15 makes the stream wait when DDP asks for a bucket's future: train/dryrun.md."""
    monkeypatch.setenv("TORCH_DIST_USE_NCCL2", "0")
    recording = dryrun(SCRIPTS / "ddp.py", on=SIXTEEN, is_cached=False).recording
    ops = ranks_of(recording)[0]["issued"]
    assert not recording.facts["ddp_waits"]
    buckets = [index for index, op in enumerate(ops) if op["work"] == "collective"]
    recorded = next(op["event"] for op in ops[buckets[0] :] if op["work"] == "record" and op["stream"] != 0)
    waited = next(index for index, op in enumerate(ops) if op["work"] == "stream_wait" and op["event"] == recorded)
    assert len(buckets) > 2 and waited > buckets[-1]


def test_a_cuda_graph_costs_the_processor_one_launch():
    graph, eager = (dryrun(SCRIPTS / "graphed.py", *how, on=EIGHT, is_cached=False) for how in ((), ("--eager",)))
    kernels = [op for op in ranks_of(graph.recording)[0]["issued"] if op["work"] in ("gemm", "move", "attention")]
    alone = [op["name"] for op in kernels if not op.get("by_graph")]
    assert len(kernels) > 50 and alone == ["aten::embedding"], "the first of the graph"
    assert not any(op.get("by_graph") for op in ranks_of(eager.recording)[0]["issued"])
    assert graph.prediction.parts["host"] < 2e-5 and eager.prediction.parts["host"] > 0.5 * eager.seconds


def test_the_stages_of_a_pipeline_run_side_by_side():
    step = dryrun(SCRIPTS / "pipeline.py", on="hgx-h100[0-3]", is_cached=False, steps=2)
    assert [row["name"] for row in ranks_of(step.recording)] == ["stage 0", "stage 1", "stage 2", "stage 3"]
    assert step.prediction.parts["bubble"] > 0 and len(step.prediction.roles) == 4
    assert "pp" in json.loads(step.recording.step.to_json())["groups"]


def test_the_first_stage_of_a_pipeline_reads_the_tokens_of_all_stages():
    script = SCRIPTS.parent / "frameworks" / "scripts" / "pipeline.py"
    step = dryrun(script, on="hgx-h100[0-3]", is_cached=False, steps=2)
    assert step.recording.step.tokens == 8 * 1024


def test_a_script_that_is_too_large_ends_with_the_message_of_torch_and_its_line():
    text, shown = nvcoll_("dryrun", "--on", EIGHT, SCRIPTS / "too_large.py", status=3)
    assert re.match(r"memory +hgx-h100: does not fit: rank 0 of 8, too_large.py:11 one_more: .* Tried to alloc", text)
    assert "OutOfMemoryError" in shown, "the script's own traceback is shown"


def test_in_a_second_pass_events_clock_and_profiler_show_the_prediction(tmp_path):
    trace = tmp_path / "trace.json"
    how = ("--clock", "--on", SIXTEEN, "--json", "--no-cache")
    text, shown = nvcoll_("dryrun", *how, SCRIPTS / "timed.py", trace)
    found = json.loads(text)
    ms = 1e3 * found["reports"][0]["seconds"]
    timed = [json.loads(line.partition("timed ")[2]) for line in shown.splitlines() if line.startswith("timed ")]
    assert len(timed) == 11
    assert [row["events"] for row in timed[3:7]] == pytest.approx([ms] * 4, rel=0.02)
    passed = timed[6]["begin"] - timed[3]["begin"]
    assert passed == pytest.approx(3 * ms, abs=1.1 * ms), "within a step the clock is the real one, up to its end"
    kernels = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("cat") == "kernel"]
    products = sorted(event["dur"] for event in kernels if "gemm" in event["name"].lower())
    assert len(products) >= 4 and products[0] == pytest.approx(products[-1], rel=0.2)
    assert any("nccl" in event["name"].lower() for event in kernels)


def test_where_a_silent_script_is_goes_to_standard_error_with_an_open_line_ended(tmp_path):
    script = tmp_path / "silent.py"
    script.write_text("import time\nprint('begin', end='')\nfor _ in range(130):\n    time.sleep(0.1)\nprint('end')\n")
    _, told = nvcoll_("dryrun", "--no-cache", "-n", "4", "--on", EIGHT, str(script), status=2)
    assert re.search(r"begin\nnvcoll: rank 0 of 4 at silent\.py:[34] <module>, \d\.\d GB, \d+ s\n(.*\n)*end\n", told), (
        told
    )
