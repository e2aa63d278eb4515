"""Compiled functions of JAX as recorded steps."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from made_traces import HLO

import nvcoll
from nvcoll.traces import hlo, opened

TRACES = Path(__file__).parent
LAYERS, WIDTH, HIDDEN, BATCH = 4, 256, 1024, 64


def ops_of(found):
    return json.loads(found.steps[0].to_json())["streams"]["ranks"][0]["issued"]


def with_line(line):
    """What the module of `HLO` does with a line more."""
    return hlo.read("f.hlo", HLO.replace("LINE", line), "h100-sxm")


def flops(ops):
    return sum(2 * op["m"] * op["n"] * op["k"] * op.get("batch", 1) for op in ops if op["work"] == "gemm")


def collectives(found):
    groups = json.loads(found.steps[0].to_json())["groups"]
    rows = [op for op in ops_of(found) if op["work"] == "collective"]
    shapes = {name: (group["size"], group["stride"]) for name, group in groups.items()}
    return Counter((op["pattern"], op["bytes"], *shapes[op["group"]]) for op in rows)


def test_a_scan_has_the_flops_and_bytes_of_the_closed_form_in_bf16(file="scan_bf16.hlo.gz", folder=TRACES):
    found = opened([folder / file])
    ops = ops_of(found)
    assert flops(ops) == LAYERS * 3 * 2 * 2 * (BATCH // 2) * WIDTH * (HIDDEN // 4)
    assert {op["dtype"] for op in ops if op["work"] == "gemm"} == {"bf16"}
    activations, gradients = 2 * (BATCH // 2) * WIDTH, 2 * 2 * WIDTH * HIDDEN // 4
    made = collectives(found)
    assert made["all_reduce", activations, 4, 1] == 2 * LAYERS
    assert made["all_reduce", gradients, 2, 4] == LAYERS
    assert sum(made.values()) == 3 * LAYERS + 1 and any("widens" in note for note in found.notes)


def test_gradients_of_sharded_parameters_are_scattered_and_parameters_gathered_in_bf16():
    found = opened([TRACES / "fsdp.hlo.gz"])
    layers, width, hidden, tokens = 32, 4096, 14336, 65536
    one = 2 * width * hidden
    made = collectives(found)
    assert made == {
        ("all_gather", one, 8, 1): 4 * layers,
        ("reduce_scatter", 2 * one, 8, 1): layers,
        ("all_reduce", 4, 8, 1): 1,
    }
    assert flops(ops_of(found)) == layers * 3 * 2 * 2 * (tokens // 8) * width * hidden


def test_each_collective_has_its_bytes_as_nccl_tests_counts_and_its_ranks():
    found = opened([TRACES / "collectives.hlo.gz"])
    shard = 32 * 512 * 2
    assert collectives(found) == {
        ("all_gather", 4 * shard, 4, 1): 1,
        ("reduce_scatter", 4 * shard, 4, 1): 1,
        ("sendrecv", shard, 2, 4): 1,
        ("all_to_all", shard, 4, 1): 1,
        ("all_reduce", 2, 8, 1): 1,
    }
    assert [op["batch"] for op in ops_of(found) if op["work"] == "gemm" and "batch" in op] == [4], "the costly branch"


def test_convolutions_are_products_of_as_many_flops():
    ops = ops_of(opened([TRACES / "convolution.hlo.gz"]))
    assert flops(ops) == 2 * 2 * (3 * 3 * 64) * (4 * 16 * 16) * 128
    assert {op["dtype"] for op in ops if op["work"] == "gemm"} == {"tf32"}


def test_todays_jax_gives_the_same(tmp_path):
    pytest.importorskip("jax")
    subprocess.run([sys.executable, TRACES / "make_hlo.py", tmp_path], check=True, timeout=100)
    test_a_scan_has_the_flops_and_bytes_of_the_closed_form_in_bf16(folder=tmp_path)
    for name in ("fsdp", "collectives", "convolution"):
        there, here = (opened([folder / f"{name}.hlo.gz"]) for folder in (tmp_path, TRACES))
        assert collectives(there) == collectives(here) and flops(ops_of(there)) == flops(ops_of(here))


@pytest.mark.parametrize(
    ("groups", "ranks"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", (4, 1)),
        ("[2,4]<=[8]", (4, 1)),
        ("[4,2]<=[2,4]T(1,0)", (2, 4)),
        ("[2,4]<=[4,2]T(1,0)", (4, 2)),
        ("mesh['axis_0'=2,'axis_1'=1,'axis_2'=4] {'axis_0'}", (2, 4)),
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", (4, 1)),
        ("{}", (8, 1)),
    ],
)
def test_groups_in_all_forms(groups, ranks):
    found = with_line(f"%r = f32[128,512]{{1,0}} all-reduce(%x), replica_groups={groups}, to_apply=%add")
    assert [*collectives(found)] == [("all_reduce", 4 * 128 * 512, *ranks)]


def test_ranks_in_runs_are_a_group_and_ranks_at_unequal_distances_are_said():
    line = "%r = f32[128,512]{{1,0}} all-reduce(%x), replica_groups={}, to_apply=%add"
    found = with_line(line.format("[2,4]<=[2,2,2]T(1,0,2)"))
    [group] = json.loads(found.steps[0].to_json())["groups"].values()
    assert group == {"kind": "dp", "size": 4, "stride": 1, "runs": 2, "apart": 4} and found.notes == []
    found = with_line(line.format("{{0,1,5},{2,3,7}}"))
    assert any("[0, 1, 5]" in note for note in found.notes)


def test_what_starts_and_ends_apart_runs_beside_computing():
    started = (
        "%s = (f32[128,512]{1,0}, f32[512,512]{1,0}) all-gather-start(%x), replica_groups=[2,4]<=[8], dimensions={0}"
    )
    product = "%p = f32[128,64]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    ops = ops_of(with_line(f"{started}\n  {product}\n  %d = f32[512,512]{{1,0}} all-gather-done(%s)"))
    assert [op["work"] for op in ops] == ["collective", "record", "gemm", "stream_wait", "gemm"]
    assert (ops[0].get("stream"), ops[0]["bytes"], ops[3].get("stream", 0)) == (1, 4 * 4 * 128 * 512, 0)


def test_asynchronous_wrappers_are_read():
    inner = "%async (p: f32[128,512]) -> f32[32,512] {\n  %p = f32[128,512]{1,0} parameter(0)\n"
    inner += (
        "  ROOT %i = f32[32,512]{1,0} reduce-scatter(%p), replica_groups=[2,4]<=[8], dimensions={0}, to_apply=%add\n"
    )
    inner += "}\n\nENTRY"
    line = "%s = ((f32[128,512]{1,0}), f32[32,512]{1,0}) async-start(%x), calls=%async\n"
    line += "  %e = f32[32,512]{1,0} async-done(%s)"
    text = HLO.replace("ENTRY", inner).replace("LINE", line)
    ops = ops_of(hlo.read("f.hlo", text, "h100-sxm"))
    assert [op["work"] for op in ops] == ["collective", "record", "stream_wait", "gemm"] and ops[0][
        "bytes"
    ] == 4 * 128 * 512


def test_products_of_cublas_count_as_products():
    line = '%c = (bf16[128,64]{1,0}, s8[4]{0}) custom-call(%x, %w), custom_call_target="__cublas$gemm", backend_config='
    line += '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}'
    ops = ops_of(with_line(line))
    assert [(op["m"], op["n"], op["k"]) for op in ops if op["work"] == "gemm"] == [(128, 64, 512)] * 2


def test_slices_and_updates_in_place_move_what_they_touch():
    line = "%d = f32[1,512]{1,0} dynamic-slice(%x, %w, %w), dynamic_slice_sizes={1,512}"
    assert [op["bytes"] for op in ops_of(with_line(line)) if op["work"] == "move"] == [2 * 4 * 512]
    line += "\n  %u = f32[128,512]{1,0} dynamic-update-slice(%x, %d, %w, %w)"
    assert [op["bytes"] for op in ops_of(with_line(line)) if op["work"] == "move"] == [2 * 4 * 512] * 2


LOOP = """
%body (p: f32[128,512]) -> f32[128,512] {
  %p = f32[128,512]{1,0} parameter(0)
  ROOT %n = f32[128,512]{1,0} negate(%p)
}

ENTRY"""


def test_loops_are_unrolled_and_those_without_an_end_are_refused():
    text = HLO.replace("ENTRY", LOOP)
    line = '%l = f32[128,512]{1,0} while(%x), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"5"}}'
    ops = ops_of(hlo.read("f.hlo", text.replace("LINE", line), "h100-sxm"))
    assert [op["bytes"] for op in ops if op["work"] == "move"] == [2 * 4 * 128 * 512] * 5
    with pytest.raises(nvcoll.InvalidArgument, match=r"f.hlo:12: the loop `l` has no known number of rounds"):
        hlo.read("f.hlo", text.replace("LINE", line.split(", backend")[0]), "h100-sxm")
    with pytest.raises(nvcoll.InvalidArgument, match="loops make more than"):
        hlo.read("f.hlo", text.replace("LINE", line.replace('"5"', '"5000000"')), "h100-sxm")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%r = f32[8]{0} all-reduce(%x), replica_groups=what, to_apply=%add", "are in no form that is read"),
        ("%r = f32[8]{0} fusion(%x), kind=kLoop, calls=%none", "`fusion` has no computation `calls`"),
        ("%r = f32[8]{0} dot(%x, %gone), lhs_contracting_dims={1}", "no operand 1 that the text defines"),
        ("%r = f32[8]{0} dot(%x, %w), lhs_contracting_dims={7}", "contracts dimensions"),
        ("%r = what", "is no instruction"),
    ],
)
def test_texts_that_are_wrong_are_refused_with_their_line(line, said):
    with pytest.raises(nvcoll.InvalidArgument, match=rf"f.hlo:6: .*{said}"):
        with_line(line)


def test_a_text_that_is_cut_is_refused():
    with pytest.raises(nvcoll.InvalidArgument, match="is cut"):
        hlo.read("f.hlo", HLO[:-3], "h100-sxm")
