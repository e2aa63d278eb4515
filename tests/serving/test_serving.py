"""`nvcoll.serving` and ``nvcoll serve``: what requests see of a model server."""

import gzip
import json
from pathlib import Path

import pytest
from command_line import cli, refused

import nvcoll
from nvcoll.serving import layouts, serve
from nvcoll.training.planning import Machine

RECORDED = Path(__file__).parents[2] / "docs" / "recordings" / "llama3-8b-vllm.json.gz"


@pytest.fixture(scope="module")
def h100():
    return Machine("hgx-h100", 8)


def test_a_planned_iteration_is_the_one_that_the_server_itself_makes():
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
    step = nvcoll.training.WorkStep.from_json(json.dumps(recorded["step"]))
    own = Machine("hgx-h100", 4).predict(step)
    how = {"tp": 4, "pp": 1, "copies": 1, "concurrency": 8, "input": 2049, "output": 8}
    planned = serve("llama3-8b", on="hgx-h100", gpus=4, overrides={"iteration_us": 0, "sequence_us": 0}, **how)
    report, _ = json.loads(planned.to_json())
    scale = 8 / planned.batch  # not all eight generate all the time
    flops = report["decode"]["tflops"] * report["decode"]["seconds"] * 4 * scale
    assert flops == pytest.approx(step.flops() / 1e12, rel=0.02)
    assert planned.decode["gemm"] == pytest.approx(own.parts["gemm"], rel=0.02)
    assert planned.decode["tensor"] == pytest.approx(own.parts["tensor"], rel=0.10)
    assert planned.cache_tokens == pytest.approx(recorded["facts"]["served"]["kv_tokens"], rel=0.03)


def test_without_a_layout_the_best_one_is_found(h100):
    found, refused_ = layouts("llama3-70b", on=h100, precision="fp8", concurrency=64)
    assert [one.tokens_per_second for one in found] == sorted((one.tokens_per_second for one in found), reverse=True)
    assert {one.gpus for one in found} == {8} and len({one.words for one in found}) == len(found) > 5
    assert serve("llama3-70b", on=h100, precision="fp8", concurrency=64).words == found[0].words
    assert sum(refused_.values()) > 0


def test_only_models_with_experts_have_layouts_of_experts(h100):
    dense, _ = layouts("llama3-8b", on=h100, pp=1)
    experts, _ = layouts("qwen3-30b-a3b", on=h100, pp=1)
    assert not any("EP" in one.words for one in dense)
    assert any("DP attention" in one.words for one in experts)


def test_nvlink_serves_faster_than_pcie():
    with_, without = (serve("llama3-8b", on=on, tp=4, pp=1, gpus=4) for on in ("hgx-h100", "l40s-8-p2p"))
    share = [one.exposed_s / one.tpot_s for one in (with_, without)]
    assert share[0] < share[1] and with_.tpot_s < without.tpot_s


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"server": "llama.cpp"}, "no server is called `llama.cpp`"),
        ({"speed": 3}, "no option of a server is called `speed`"),
        ({"tp": 3, "pp": 1}, "TP x PP x copies must be their number"),
        ({"tp": 8, "pp": 1, "input": 1e9}, "1 to 1e8 were expected"),
        ({"tp": 8, "pp": 1, "input": 1e7}, "tokens of cache"),
        ({"overrides": {"speed": 1}}, "speed"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(h100, how, says):
    with pytest.raises(nvcoll.InvalidArgument, match=says):
        serve("llama3-8b", on=h100, **how)


def test_one_layout_is_shown_in_detail():
    text = cli("serve", "llama3-8b", "--tp", "1", "-n", "1", "--concurrency", "4", "--dollars-per-gpu-hour", "2").stdout
    labels = [line[:12].strip() for line in text.splitlines()[1:7]]
    assert labels == ["layout", "TTFT", "TPOT", "tokens", "memory", "limit"]
    assert "dollars a million" in text and "matrix products" in text


def test_limits_leave_out_what_is_slower_and_the_fewest_gpus_come_first():
    words = ("serve", "llama3-70b", "--precision", "fp8", "-n", "2,4,8", "--pp", "1", "--json")
    all_ = json.loads(cli(*words).stdout)["found"]
    limit = sorted(one["tpot_s"] for one in all_)[len(all_) // 2]
    found = json.loads(cli(*words, "--tpot", f"{limit}s").stdout)
    assert 0 < len(found["found"]) < len(all_) and found["refused"]["slower than was asked"] > 0
    assert all(one["tpot_s"] <= limit for one in found["found"])
    assert [one["gpus"] for one in found["found"]] == sorted(one["gpus"] for one in found["found"])


def test_where_nothing_can_be_the_reason_is_all():
    lines = cli("serve", "llama3-70b", "--tp", "1", "--pp", "1", "-n", "1", status=1).stdout.splitlines()
    assert lines[1].startswith("refused     1 layout: TP 1 of llama3-70b") and "machine " not in "".join(lines)


def test_each_machine_has_rows_in_the_text():
    text = cli("serve", "qwen3-30b-a3b", "--on", "hgx-h100,hgx-h200,hgx-b200").stdout
    rows = [line.split()[0] for line in text.splitlines()[3:] if line.startswith("hgx-")]
    assert {rows.count(name) for name in ("hgx-h100", "hgx-h200", "hgx-b200")} == {4} and " more: pass --json" in text


def test_a_change_of_the_machine_is_a_machine_beside_it():
    text = cli("serve", "llama3-70b", "--tp", "8", "--precision", "fp8", "--what-if", "pcie").stdout
    assert "hgx-h100 with pcie" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--precision", "fp6"), "--precision fp6 is unknown"),
        (("--kv-cache", "int4"), "--kv-cache int4 is unknown"),
        (("--rate", "1", "--concurrency", "1"), "pass one of them"),
        (("--tpot", "fast"), "--tpot fast is no time"),
        (("-n", "x"), "is no number of GPUs"),
    ],
)
def test_the_command_refuses_in_one_line(words, says):
    assert says in refused("serve", "llama3-8b", *words)


def test_a_server_that_falls_behind_is_shown_with_the_reason():
    text = cli("serve", "llama3-8b", "-n", "1", "--tp", "1", "--rate", "100").stdout
    assert "limit       requests come faster than they are served" in text
    text = cli("serve", "llama3-8b", "-n", "1", "--tp", "1", "--rate", "100", "--ttft", "10000s").stdout
    assert "1 layout: slower than was asked" in text
