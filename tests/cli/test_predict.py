"""`nvcoll predict`: what the command prints, draws, traces and refuses."""

import csv
import json
import tracemalloc

import pytest
from command_line import cli

import nvcoll
from nvcoll.cli.predict.rows import Question, ask_all
from nvcoll.text.formatting import duration

MIB = 1 << 20


def test_one_size_is_a_line_per_machine_with_three_answers_kept_apart():
    lines = cli("predict", "all_reduce", "-b", "1G", "--on", "hgx-h100,rtx4090-4-staged").stdout.splitlines()
    head = lines[1].split()
    assert head[-7:] == ["|", "NCCL", "est.", "lower", "bound", "x", "bound"], (
        "the other two answers stand behind a bar"
    )
    fast, slow = lines[2:4]
    assert "NVLS/Simple" in fast and " 450 " in fast and " 1.0x" in fast
    assert "Ring/Simple" in slow
    for name, line in (("hgx-h100", fast), ("rtx4090-4-staged", slow)):
        found = nvcoll.fabric(name).predict("all_reduce", 1 << 30)
        assert duration(found.time_us / 1e6) in line and duration(found.low_us / 1e6, found.high_us / 1e6) in line
        assert line.split("|")[1].split()[-3:-1] == duration(found.floor_us / 1e6).split()
        assert any(found.bottleneck in line for line in lines)
        assert any(line.endswith(found.trust) for line in lines)
    assert any(line.startswith("bottleneck  ") for line in lines) and any(
        line.startswith("accuracy    ") for line in lines
    )


def test_a_sweep_is_a_table_per_machine():
    text = cli("predict", "all_reduce", "-b", "64K", "-e", "1G", "-f", "16", "--on", "hgx-h100,hgx-a100[0,3]").stdout
    for name in ("hgx-h100", "hgx-a100[0,3]"):
        assert f"\n{name}   " in f"\n{text}" and nvcoll.fabric(name).predict("all_reduce", MIB).trust in text
    assert all(text.count(f"{size}  ") >= 2 for size in (" 64 KiB", "  1 MiB", " 16 MiB", "256 MiB"))
    assert text.count("bottleneck  ") == 2


def test_sends_and_receives_are_predicted_and_have_a_floor():
    lines = cli("predict", "sendrecv", "-b", "1G").stdout.splitlines()
    found = nvcoll.fabric("hgx-h100").predict("sendrecv", 1 << 30)
    assert "SendRecv/" in lines[2] and duration(found.floor_us / 1e6) in lines[2]
    assert "no NCCL     hgx-h100: NCCL has no cost model of sendrecv" in lines


def test_what_holds_for_all_machines_is_said_once():
    text = cli("predict", "all_to_all", "--on", "hgx-h100,hgx-a100,dgx1-v100").stdout
    assert text.count("no cost model of all_to_all") == 1
    assert "no NCCL     hgx-h100, hgx-a100, dgx1-v100: NCCL has no cost model of all_to_all" in text


def test_a_wrong_collective_is_answered_with_those_that_have_a_prediction():
    error = cli("predict", "all_redcue", status=2).stderr
    assert "all_reduce" in error and "sendrecv" in error and "barrier" not in error and "scan" not in error


def test_the_version_whose_model_is_used_is_printed():
    newest = nvcoll.fabric("hgx-h100").nccl("all_reduce", 1).tag
    assert f"model       hgx-h100: NCCL {newest}\n" in cli("predict", "all_reduce").stdout
    assert "NCCL v2.27.7-1\n" in cli("predict", "all_reduce", "--nccl-version", "2.27").stdout
    last = nvcoll.fabric("hgx-h100").nccl("all_reduce", 1, version="9.9").tag
    assert f"NCCL {last}, the newest that is known and" in cli("predict", "all_reduce", "--nccl-version", "9.9").stdout


def test_repeated_machines_are_all_predicted():
    printed = json.loads(cli("predict", "all_reduce", "--on", "hgx-h100,dgx2", "--on", "hgx-a100", "--json").stdout)
    assert [row["machine"] for row in printed["predictions"]] == ["hgx-h100", "dgx2", "hgx-a100"]


def test_a_machine_has_aliases_and_a_gpu_is_answered_with_its_machine():
    assert (
        nvcoll.fabric("dgx-h100").name == "hgx-h100"
        and nvcoll.fabric("DGX-A100x2+ib-hdr-8").name == "hgx-a100x2+ib-hdr-8"
    )
    assert nvcoll.fabric("h100").name == "hgx-h100"
    assert nvcoll.fabric("l40s").world_size == 1, "a model that is sold as a card"
    with pytest.raises(nvcoll.InvalidArgument, match=r"`8xV100`: choose from "):
        nvcoll.fabric("8xV100")


def test_the_size_from_which_a_prediction_is_validated_is_said():
    text = cli("predict", "all_reduce", "--on", "gb200-nvl72", "-b", "1M", "-e", "1G").stdout
    assert "accuracy    gb200-nvl72: not validated; from 128 MiB validated on" in text


def test_spaces_and_capitals_in_a_list_of_machines_do_not_matter():
    assert [one.name for one in nvcoll.machines("HGX-H100, hgx-a100[0,3] ,hgx-h100X2+ib-ndr-8")] == [
        "hgx-h100",
        "hgx-a100[0,3]",
        "hgx-h100x2+ib-ndr-8",
    ]


def test_only_columns_that_are_shown_are_explained():
    asked = ("predict", "all_reduce", "-b", "256M", "--on", "hgx-h100,rtx4090-8")
    narrow, wide = (cli(*asked, env={"COLUMNS": width}).stdout for width in ("80", "300"))
    assert "x bound = time / lower bound" in wide and "link = line rate" in wide
    assert "x bound =" not in narrow and "link =" not in narrow and "`| cat` shows all" in " ".join(narrow.split())


def test_what_limits_successive_sizes_is_said_once():
    text = cli("predict", "all_reduce", "-b", "32M", "-e", "1G", "--on", "hgx-h100").stdout
    assert "bottleneck  32 MiB to 1 GiB: GPU ports (NVLS: a port carries 1.125 x the size each way)" in text


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ((28.04e-6,), "28.0 us"),
        ((999e-6,), "999 us"),
        ((3.8e-3, 4.304e-3), "3.80 to 4.30 ms"),
        ((0.907, 1.226), "0.907 to 1.23 s"),
        ((0.9999,), "1,000 ms"),
        ((1226,), "1,226 s"),
        ((9.0,), "9.00 s"),
        ((0,), "0 us"),
    ],
)
def test_times_have_three_digits_in_the_unit_of_the_last(times, text):
    assert duration(*times) == text


def test_json_has_the_numbers_of_the_library():
    printed = json.loads(cli("predict", "all_gather", "-b", "1M", "--nccl-version", "2.27", "--json").stdout)
    (row,) = printed["predictions"]
    board = nvcoll.fabric("hgx-h100")
    chosen = board.nccl("all_gather", MIB, version="2.27").chosen
    assert (row["nccl_algorithm"], row["nccl_estimate_us"]) == (chosen.algorithm, chosen.time_us)
    found = board.predict("all_gather", MIB, version="2.27")
    assert (row["algorithm"], row["protocol"], row["channels"]) == (found.algorithm, found.protocol, found.channels)
    assert (row["time_us"], row["low_us"], row["high_us"]) == (found.time_us, found.low_us, found.high_us)
    assert (row["busbw"], row["trust"], row["parts"]) == (found.busbw, found.trust, dict(found.parts))
    assert row["floor_us"] == board.floor("all_gather", MIB) and row["link_gbps"] == 450
    assert row["times_floor"] == pytest.approx(found.time_us / row["floor_us"]) and row["vs_best"] == 1
    assert row["network_gbps"] is None and printed["schema"] == "nvcoll.predict/1"


@pytest.mark.parametrize(
    ("name", "link", "network"),
    [
        ("hgx-h100", 450, None),
        ("hgx-h100[0]", 63, None),
        ("dgx1-v100", 150, None),
        ("mi300x-8", 448, None),
        ("a100-pcie-8-bridge", 31.5, None),
        ("rtx3090-2-bridge", 56.25, None),
        ("hgx-h100x2+ib-ndr-8", 450, 50),
        ("hgx-h100x2+ib-ndr-4", 450, 25),
    ],
)
def test_the_rate_of_links_is_that_of_what_joins_gpus(name, link, network):
    assert nvcoll.fabric(name).port_rates() == (pytest.approx(link, rel=1e-3), network)


def test_answers_about_a_large_cluster_build_no_list_of_its_links():
    question = Question("all_reduce", [1 << 30], "process_per_gpu", None)

    def peak(nodes):
        machine = nvcoll.fabric(f"hgx-h100x{nodes}+ib-ndr-8")
        tracemalloc.start()
        try:
            ((answer,),) = ask_all(question, [machine])
            assert answer.to_json(None)["network_gbps"] == 50
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(4)
    few = peak(8)
    assert 0 < peak(1024) < 2 * few


def test_a_machine_that_nccl_does_not_know_has_a_prediction_and_a_reason():
    text = cli("predict", "all_reduce", "--on", "hgx-h100,mi300x-8").stdout
    assert "choice      mi300x-8: rings, since" in text and "no NCCL     mi300x-8: NCCL does not run on" in text


def test_a_machine_without_prediction_says_why_and_has_a_floor():
    text = cli("predict", "all_reduce", "--on", "hgx-h100,hgx-h100[0]").stdout
    assert "no time     hgx-h100[0]: one GPU has nobody to talk to" in text
    assert "nobody to talk to" in cli("predict", "all_reduce", "--on", "hgx-h100[0]", status=2).stderr


def test_machines_of_one_name_are_told_apart(tmp_path):
    bridge = """
gpu = "rtx3090"
abilities = { peer_access = true, multicast = false, switch_reduction = false, gpu_direct = false }
sources = ["none"]
[[machines]]
name = "two"
title = "two cards"
[[devices]]
names = "gpu[0-1]"
kind = "gpu"
[[links]]
from = "gpu0"
to = "gpu1"
medium = "nvlink3-bridge"
lanes = LANES
"""
    files = [tmp_path / name for name in ("narrow.toml", "wide.toml")]
    for file, lanes in zip(files, "14", strict=True):
        file.write_text(bridge.replace("LANES", lanes))
    printed = cli("predict", "all_reduce", "-b", "1G", "--on", ",".join(map(str, files)), "--json").stdout
    narrow, wide = (row["floor_us"] for row in json.loads(printed)["predictions"])
    assert narrow > 3 * wide


def test_of_a_last_resort_there_is_no_estimate():
    text = cli("predict", "all_reduce", "--on", "rtx5090-8-staged").stdout
    assert "last resort" in text and text.splitlines()[2].split("|")[1].split()[0] == "-"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["all_shout"], "all_shout"),
        (["scan"], "scan has no prediction"),
        (["all_reduce", "--launch", "graph"], "CUDA graph"),
        (["all_reduce", "-f", "2"], "-f is the factor of a sweep: pass -e"),
        (["all_reduce", "--nccl", "2.27"], "pass --nccl-version VERSION"),
        (["allredcue"], "no collective is called `allredcue`: did you mean all_reduce?"),
        (["all_reduce", "-b", "140Gb"], "`140Gb` is bits: write 140GB for bytes"),
        (["all_reduce", "--on", "hgx-h900"], "hgx-h900"),
        (["all_reduce", "--on", ","], "no machine is named"),
        (["all_reduce", "--gpu", "h200"], "`gpu` is for files"),
        (["all_reduce", "--nccl-version", "1.0"], "NCCL version"),
        (["all_reduce", "-b", "2M", "-e", "1M"], "the sweep goes from"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(arguments, message):
    error = cli("predict", *arguments, status=2).stderr
    assert message in error and len(error.splitlines()) == 1


def test_csv_has_a_row_for_each_machine_and_size_with_the_values_of_json():
    asked = ("predict", "alltoall", "-b", "1K", "-b", "1M", "--on", "hgx-h100,rtx5090-2-p2p")
    document = json.loads(cli(*asked, "--json").stdout)
    rows = list(csv.DictReader(cli(*asked, "--csv").stdout.splitlines()))
    for row, told in zip(rows, document["predictions"], strict=True):
        assert (row["collective"], row["launch"]) == (document["collective"], document["launch"])
        same = {key: "" if value is None else str(value) for key, value in told.items() if key != "parts"}
        assert row == {"collective": "all_to_all", "launch": "process_per_gpu"} | same
