"""all_reduce as model servers make it: kernels, rules at their borders, refusals, and the table that is shipped."""

import json
import math
import statistics
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from command_line import cli

import nvcoll
from nvcoll import InvalidArgument

import servers

KIB, MIB = 1 << 10, 1 << 20
PAGE = Path(__file__).parents[2] / "docs" / "maintainers" / "how-predictions-are-judged.md"


@cache
def problem():
    return servers.Problem(servers.read())


@cache
def judged():
    return servers.judge(problem(), servers.folds())


def predicted(row):
    return servers.machine(row.fabric, row.ranks).predict("all_reduce", row.nbytes, as_=row.server)


def test_the_closed_form_is_near_the_median_of_every_kernel_on_every_gpu():
    ratios = defaultdict(list)
    for row in problem().rows:
        found = predicted(row)
        if found.algorithm == row.kernel:
            ratios[row.fabric, row.server, row.kernel].append(found.time_us / row.time_us)
    assert len(ratios) > 30
    for cell, found in ratios.items():
        assert 0.75 < statistics.median(found) < 1.3, cell


def test_the_tool_and_the_product_have_one_closed_form():
    times = problem().times(servers.shipped_kernels())
    for row, time in zip(problem().rows, times, strict=True):
        found = predicted(row)
        if found.algorithm == row.kernel:
            assert found.time_us == pytest.approx(max(time, found.floor_us), rel=1e-3), row


def test_errors_without_the_model_of_gpu_are_small_and_intervals_hold():
    errors = [abs(one.error) for one in judged()]
    assert statistics.median(errors) < 0.15
    for fabric in servers.folds():
        assert statistics.median(abs(one.error) for one in judged() if one.row.fabric == fabric) < 0.2, fabric
    assert 0.88 <= np.mean([one.is_inside for one in judged()]) <= 0.94


def test_the_page_has_todays_tables():
    page = PAGE.read_text(encoding="utf-8")
    for table in servers.tables(judged()):
        assert table in page


@pytest.mark.parametrize(
    ("machine", "server", "nbytes", "implementation"),
    [
        ("hgx-h100", "vllm", 256 * KIB - 16, "vLLM one_shot"),
        ("hgx-h100", "vllm", 256 * KIB, "vLLM symm_multicast"),
        ("hgx-h100", "vllm", 64 * MIB, "vLLM symm_multicast"),
        ("hgx-h100", "vllm", 64 * MIB + 16, "NCCL"),
        ("hgx-h100-4", "vllm", 512 * KIB, "vLLM two_shot"),
        ("hgx-h100-2", "vllm", 8 * MIB, "vLLM symm_two_shot"),
        ("hgx-b200", "vllm", MIB - 16, "vLLM two_shot"),
        ("hgx-b200", "vllm", MIB, "vLLM symm_multicast"),
        ("hgx-a100", "vllm", 8 * MIB - 16, "vLLM two_shot"),
        ("hgx-a100", "vllm", 8 * MIB, "NCCL"),
        ("hgx-h100", "sglang", 160 * KIB, "SGLang jit_one_shot"),
        ("hgx-h100", "sglang", 160 * KIB + 16, "SGLang jit_two_shot"),
        ("hgx-h100", "sglang", 16 * MIB + 16, "NCCL"),
        ("hgx-h100", "trtllm", MIB - 16, "TensorRT-LLM lamport_one_shot"),
        ("hgx-h100", "trtllm", MIB, "NCCL"),
        ("hgx-h100", "trtllm", 2 * MIB, "TensorRT-LLM lamport_two_shot"),
        ("hgx-h100", "vllm", 32 * KIB + 4, "vLLM symm_multicast"),
        ("hgx-h100", "sglang", 32 * KIB + 4, "NCCL"),
        ("hgx-h100[0-2]", "vllm", 32 * KIB, "NCCL"),
        ("rtxpro6000-server-2-p2p", "vllm", 32 * KIB, "vLLM one_shot"),
        ("rtxpro6000-server-2-p2p", "trtllm", 32 * KIB, "NCCL"),
        ("rtxpro6000-server-4-p2p", "vllm", 32 * KIB, "NCCL"),
        ("rtxpro6000-server-2-staged", "vllm", 32 * KIB, "NCCL"),
        ("dgx1-v100", "vllm", 32 * KIB, "NCCL"),
        ("gh200-4", "vllm", 16 * MIB, "NCCL"),
        ("hgx-h100x2+ib-ndr-8", "vllm", 32 * KIB, "NCCL"),
    ],
)
def test_a_server_chooses_by_size_link_and_number_of_gpus(machine, server, nbytes, implementation):
    fabric = nvcoll.fabric(machine)
    found = fabric.predict("all_reduce", nbytes, as_=server)
    assert found.implementation == implementation
    assert found.floor_us <= found.low_us <= found.time_us <= found.high_us
    assert found.time_us == pytest.approx(sum(us for _, us in found.parts))
    assert "the rule of" in found.choice
    by_nccl = fabric.predict("all_reduce", nbytes)
    assert by_nccl.implementation == "NCCL"
    if implementation == "NCCL":
        assert (found.time_us, found.algorithm) == (by_nccl.time_us, by_nccl.algorithm)


def test_small_calls_of_servers_are_some_times_faster_than_nccl():
    board = nvcoll.fabric("hgx-h100")
    times = {name: board.predict("all_reduce", "32K", as_=name).time_us for name in (None, "vllm", "sglang", "trtllm")}
    assert all(3 < times[None] / times[name] < 6 for name in ("vllm", "sglang", "trtllm"))


def test_a_gpu_without_rows_is_not_validated_and_has_a_wider_interval():
    known, volta = (
        nvcoll.fabric(name).predict("all_reduce", "32K", as_="vllm") for name in ("hgx-h100", "v100-4-mesh")
    )
    assert known.is_validated and known.trust == "validated on 2 GPU models of this generation"
    assert not volta.is_validated and volta.trust == "not validated"
    assert volta.high_us / volta.time_us == pytest.approx((known.high_us / known.time_us) ** 2)


@pytest.mark.parametrize(
    ("machine", "collective", "options", "words"),
    [
        ("hgx-h100", "all_gather", {"as_": "vllm"}, "for all_reduce only: leave out `as`"),
        ("hgx-h100", "all_reduce", {"as_": "tgi"}, "no server is called `tgi`: choose from vllm, sglang, trtllm"),
        ("hgx-h100", "all_reduce", {"as_": "vllm", "algorithm": "Ring"}, "leave out algorithm"),
        ("hgx-h100", "all_reduce", {"as_": "vllm", "launch": "framework"}, "in a CUDA graph"),
        ("mi300x-8", "all_reduce", {"as_": "vllm"}, "AMD GPUs"),
        ("gb200-8", "all_reduce", {"as_": "vllm"}, "across trays"),
    ],
)
def test_what_servers_do_not_do_is_refused_with_the_reason(machine, collective, options, words):
    with pytest.raises(InvalidArgument) as refused:
        nvcoll.fabric(machine).predict(collective, "32K", **options)
    assert words in str(refused.value)


def test_one_line_and_many_sizes_answer_as_the_fabric():
    table = nvcoll.predict("all_reduce", [32 * KIB, 1 << 30], on="hgx-h100", as_="sglang")
    assert [str(name) for name in table["algorithm"]] == ["jit_one_shot", "NVLS"]
    one = nvcoll.predict("all_reduce", "32K", on="hgx-h100", as_="sglang")
    assert one.time_us == table["time_us"][0] and "SGLang jit_one_shot" in str(one)


def test_the_command_names_what_runs():
    lines = cli("predict", "all_reduce", "-b", "32K", "--on", "hgx-h100,l40s-4-p2p", "--as", "vllm").stdout.splitlines()
    assert "as vllm runs it" in lines[0] and "vllm picks" in lines[1]
    fast, slow = lines[2:4]
    assert "vLLM one_shot" in fast and "NCCL Ring/" in slow
    assert any(line.endswith("the rule of vLLM 0.24: this size and number of GPUs") for line in lines)


def test_json_names_server_and_implementation():
    found = json.loads(cli("predict", "all_reduce", "-b", "32K", "--as", "trtllm", "--json").stdout)
    (row,) = found["predictions"]
    assert (found["as"], row["implementation"]) == ("trtllm", "TensorRT-LLM lamport_one_shot")
    assert json.loads(cli("predict", "all_reduce", "-b", "32K", "--json").stdout)["as"] is None


def test_another_collective_ends_the_command_with_the_reason():
    assert "for all_reduce only" in cli("predict", "all_gather", "--as", "vllm", status=2).stderr


def test_times_rise_with_bytes_while_the_kernel_stays():
    board = nvcoll.fabric("hgx-b200")
    for server in ("vllm", "sglang", "trtllm"):
        rows = board.predict("all_reduce", [1 << power for power in range(4, 28)], as_=server)
        for less, more in pairwise(rows):
            if less.implementation == more.implementation != "NCCL":
                assert less.time_us <= more.time_us and math.isfinite(more.high_us)
