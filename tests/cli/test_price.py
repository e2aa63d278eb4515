"""`nvcoll price` of steps that other tools wrote: what it prints and refuses."""

import json
from pathlib import Path

import pytest
from command_line import cli, refused
from made_traces import of_two_layers

TRACES = Path(__file__).parents[1] / "traces"
DDP = TRACES / "ddp_two_a100.json.gz"


def traced(folder, ranks=1, **how):
    """Writes traces of some ranks; returns their folder."""
    for rank in range(ranks):
        (folder / f"rank{rank}.json").write_text(json.dumps(of_two_layers(rank, **how).document))
    return folder


def priced(*words):
    return json.loads(cli("price", *words, "--json").stdout)


def test_a_real_step_is_replayed_and_the_wrong_machine_is_noticed():
    found = priced(DDP, "--from", "hgx-a100")
    assert found["measured"]["replayed_s"] == pytest.approx(found["measured"]["seconds"], rel=1e-3)
    assert (found["reports"][0]["mfu"], found["reports"][0]["tflops"]) == (None, None), "a trace has no FLOPs"
    parts = [found["measured"][name] for name in ("computes_s", "exposed_s", "idle_s")]
    assert sum(parts) == pytest.approx(found["measured"]["seconds"])
    text = cli("price", DDP, "--from", "hgx-a100").stdout
    assert "times as long as hgx-a100 predicts: ranks came late to them, or it was traced on another machine" in text
    assert "assumed     waits of streams are derived from times" in text


def test_other_machines_get_other_collectives_and_keep_kernels(tmp_path):
    found = priced(traced(tmp_path), "--on", "hgx-a100,hgx-h100")
    rows = found["reports"]
    assert [one["machine"] for one in rows] == ["hgx-a100", "hgx-h100"] and found["measured"]["machine"] is None
    for one in rows:
        computing = sum(one["parts"].get(name, 0) for name in ("gemm", "elementwise", "optimizer"))
        assert computing == pytest.approx(2.301e-3) and one["collectives"][0]["count"] == 2
    assert rows[0]["collectives"][0]["seconds"] > 1.3 * rows[1]["collectives"][0]["seconds"]


def test_what_was_measured_stands_beside_what_is_predicted(tmp_path):
    text = cli("price", traced(tmp_path, milliseconds=0.4), "--from", "hgx-a100", "--on", "hgx-h100").stdout
    lines = text.splitlines()
    assert lines[0] == "step 1 of rank0.json, 8 GPUs"
    table = {line[:34].strip(): line[34:].split() for line in lines}
    assert table["the GPU computes"][:4] == ["2.30", "ms", "2.30", "ms"]
    assert any(line.startswith("all_reduce 38.15 MiB of dp, 2 x") for line in lines)
    assert "replayed    with measured collectives the step takes" in text
    heads = next(nth for nth, line in enumerate(lines) if "vs hgx-a100" in line)
    assert lines[heads + 1].split()[-1] == "1.00x" and lines[heads + 2].startswith("hgx-h100")
    assert lines[-1].startswith("accuracy")


def test_ranks_wait_for_the_one_that_comes_late(tmp_path):
    traced(tmp_path)
    late = of_two_layers(1)
    for event in late.events:
        if event["name"] == "gemm 1":
            event["dur"] += 5000
    (tmp_path / "rank1.json").write_text(json.dumps(late.document))
    alone, together = (priced(file, "--on", "hgx-h100")["reports"][0] for file in (tmp_path / "rank0.json", tmp_path))
    assert together["seconds"] > alone["seconds"] + 4e-3


def test_steps_are_written_as_json_and_priced_again(tmp_path):
    (folder := tmp_path / "traces").mkdir()
    words = "price", traced(folder), "--save", tmp_path / "step.json"
    first = json.loads(cli(*words, "--on", "hgx-a100", "--json").stdout)["reports"][0]
    for again in ("step.json",):
        found = json.loads(cli("price", tmp_path / again, "--on", "hgx-a100", "--json").stdout)
        assert found["reports"][0]["seconds"] == pytest.approx(first["seconds"], rel=1e-9)


def test_a_compiled_function_is_priced_on_machines(tmp_path):
    file = TRACES / "fsdp.hlo.gz"
    lines = cli("price", file, "--on", "hgx-h100", "--trace", tmp_path / "streams.json").stdout.splitlines()
    assert lines[0] == "jit_step, 8 GPUs" and lines[1].startswith("assumed") and lines[4].startswith("step")
    assert lines[3] == "machine     hgx-h100"
    assert json.loads((tmp_path / "streams.json").read_text())
    lines = cli("price", file, "--on", "hgx-h100,hgx-b200").stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[-2:]] == ["hgx-h100", "hgx-b200"] or "accuracy" in lines[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("price", TRACES / "fsdp.hlo.gz", "--from", "hgx-a100"), "is no trace of torch.profiler"),
        (("price", DDP, "--from", "hgx-a100", "--step", "7"), "has no ProfilerStep#7: it has 5"),
        (("price", DDP, "--from", "nowhere"), "nowhere"),
        (("price", TRACES / "README.md", "--on", "hgx-h100"), "has none of the formats that are read"),
        (("price", TRACES / "fsdp.hlo.gz", "--on", "hgx-h100,hgx-b200", "--trace", "x"), "--trace takes one machine"),
        (("price", DDP), "ddp_two_a100.json.gz does not name its machine: pass --on, or --from for the machine"),
        (("price", TRACES / "fsdp.hlo.gz"), "fsdp.hlo.gz does not name its machine: pass --on"),
        (("price", "gone.json"), "gone.json: No such file or directory"),
    ],
)
def test_what_is_no_trace_is_refused(words, said):
    assert said in refused(*words)
