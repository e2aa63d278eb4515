"""What NCCL would choose, as Python and the command line tell it; what the numbers must be is tested in Rust."""

import json
from pathlib import Path

import command_line
import pytest

import nvcoll
from nvcoll._nvcoll import bus_factor, nccl_versions

MIB = 1 << 20


def cli(*arguments, status=0):
    done = command_line.done(*arguments)
    assert done.returncode == status, done.stderr
    return done


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"])
def test_the_chosen_is_first_and_the_fastest_and_rates_are_those_of_its_time(collective):
    answer = nvcoll.fabric("hgx-h100").nccl(collective, 64 * MIB)
    times = [one.microseconds for one in answer.candidates if one.microseconds is not None]
    chosen = answer.chosen
    assert times == sorted(times) and chosen.microseconds == times[0] and chosen.channels > 0
    assert chosen.algbw == pytest.approx(64 * MIB / chosen.microseconds / 1e3)
    assert chosen.busbw == pytest.approx(chosen.algbw * bus_factor(collective, 8))
    assert not answer.is_last_resort and answer.nbytes == 64 * MIB


def test_what_is_not_considered_comes_last_with_its_reason():
    candidates = nvcoll.fabric("hgx-a100").nccl("all_reduce", MIB).candidates
    considered = [one.why_disabled is None for one in candidates]
    assert considered == sorted(considered, reverse=True) and False in considered
    for one in candidates:
        assert (one.microseconds is None) == (one.busbw is None) == bool(one.why_disabled)
    assert "not considered" in repr(candidates[-1])


def test_a_sequence_of_sizes_is_answered_one_by_one():
    board, sizes = nvcoll.fabric("hgx-h100"), [1 << shift for shift in range(3, 33)]
    answers = board.nccl("all_reduce", sizes)
    assert [one.nbytes for one in answers] == sizes
    for size, one in zip(sizes, answers, strict=True):
        alone = board.nccl("all_reduce", size).chosen
        way = one.chosen
        assert (way.algorithm, way.protocol, way.microseconds) == (alone.algorithm, alone.protocol, alone.microseconds)
    ways = {(one.chosen.algorithm, one.chosen.protocol) for one in answers}
    assert len(ways) > 1, "small and large calls go different ways"
    assert board.nccl("all_reduce", ()) == []


def test_a_version_has_its_own_constants_and_none_means_the_newest():
    board = nvcoll.fabric("hgx-h100")
    old, new = (board.nccl("all_reduce", MIB, version=version) for version in ("2.18.5", None))
    assert old.tag.startswith("v2.18.5") and new.tag.startswith(f"v{nccl_versions()[-1]}")
    assert old.chosen.microseconds != new.chosen.microseconds


def test_a_last_resort_says_so():
    answer = nvcoll.fabric("rtx5090-8-staged").nccl("all_reduce", MIB)
    assert answer.is_last_resort and "means nothing" in repr(answer)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda one: one.nccl("all_shout", 1), "all_shout"),
        (lambda one: one.nccl("all_to_all", 1), "no cost model of all_to_all"),
        (lambda one: one.nccl("all_reduce", -1), "nbytes is -1"),
        (lambda one: one.nccl("all_reduce", 1.5), "nbytes is 1.5"),
        (lambda one: one.nccl("all_reduce", "1M"), "nbytes is '1'"),
        (lambda one: one.nccl("all_reduce", [1, 2**60]), "nbytes is"),
        (lambda one: one.nccl("all_reduce", 1, version="1.0"), "NCCL version"),
        (lambda one: one.nccl("all_reduce", 1, version="new"), "NCCL version"),
    ],
)
def test_what_nccl_does_not_know_is_a_typed_error(wrong, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        wrong(nvcoll.fabric("hgx-h100"))


def test_the_command_prints_the_choice_its_own_estimate_the_floor_and_the_trust():
    text = cli("predict", "all_reduce", "-b", "64K", "-e", "1G", "-f", "16", "--on", "hgx-h100,hgx-a100[0,3]").stdout
    assert "NCCL's own estimate" in text and "floor" in text and "not what the call would take" in text
    for name in ("hgx-h100", "hgx-a100[0,3]"):
        assert name in text and nvcoll.fabric(name).trust in text
    assert all(size in text for size in ("64 KiB", "1 MiB", "16 MiB", "256 MiB"))


def test_json_has_the_numbers_of_the_library():
    printed = json.loads(cli("predict", "all_gather", "-b", "1M", "--nccl", "2.27", "--json").stdout)
    (row,) = printed["predictions"]
    page = (Path(__file__).parent.parent / "docs" / "cli.md").read_text()
    assert all(f"`{key}`" in page for key in row)
    board = nvcoll.fabric("hgx-h100")
    chosen = board.nccl("all_gather", MIB, version="2.27").chosen
    assert (row["nccl_algorithm"], row["nccl_estimate_us"]) == (chosen.algorithm, chosen.microseconds)
    assert row["floor_us"] == board.floor("all_gather", MIB) and row["trust"] == board.trust
    assert row["times_floor"] == pytest.approx(chosen.microseconds / row["floor_us"])


def test_a_machine_that_nccl_does_not_know_has_a_floor_and_a_reason():
    text = cli("predict", "all_reduce", "--on", "hgx-h100,mi300x-8").stdout
    assert "no estimate: " in text and "NCCL does not run on" in text
    assert "NCCL does not run on" in cli("predict", "all_reduce", "--on", "mi300x-8", status=2).stderr


def test_machines_of_one_name_are_told_apart(tmp_path):
    bridge = """
gpu = "rtx3090"
abilities = { peer_access = true, multicast = false, switch_folds = false, gpu_direct = false }
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


def test_last_resorts_are_not_to_be_believed():
    assert "not to be believed" in cli("predict", "all_reduce", "--on", "rtx5090-8-staged").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["all_shout"], "all_shout"),
        (["all_to_all"], "no cost model"),
        (["all_reduce", "--on", "hgx-h900"], "hgx-h900"),
        (["all_reduce", "--on", ","], "--on names no machine"),
        (["all_reduce", "--gpu", "h200"], "--gpu is for files"),
        (["all_reduce", "--nccl", "1.0"], "NCCL version"),
        (["all_reduce", "-b", "2M", "-e", "1M"], "sweep"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(arguments, message):
    error = cli("predict", *arguments, status=2).stderr
    assert message in error and len(error.splitlines()) == 1
