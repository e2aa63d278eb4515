"""`Fabric.nccl`: what NCCL would choose, as Python tells it. Rust tests say what the numbers must be."""

import pytest

import nvcoll
from nvcoll._nvcoll import bus_factor, nccl_versions

MIB = 1 << 20


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"])
def test_the_chosen_is_first_and_the_fastest_and_rates_are_those_of_its_time(collective):
    answer = nvcoll.fabric("hgx-h100").nccl(collective, 64 * MIB)
    times = [one.time_us for one in answer.candidates if one.time_us is not None]
    chosen = answer.chosen
    assert times == sorted(times) and chosen.time_us == times[0] and chosen.channels > 0
    assert chosen.algbw == pytest.approx(64 * MIB / chosen.time_us / 1e3)
    assert chosen.busbw == pytest.approx(chosen.algbw * bus_factor(collective, 8))
    assert not answer.is_last_resort and answer.nbytes == 64 * MIB


def test_what_is_not_considered_comes_last_with_its_reason():
    candidates = nvcoll.fabric("hgx-a100").nccl("all_reduce", MIB).candidates
    considered = [one.why_disabled is None for one in candidates]
    assert considered == sorted(considered, reverse=True) and False in considered
    for one in candidates:
        assert (one.time_us is None) == (one.busbw is None) == bool(one.why_disabled)
    assert "not considered" in repr(candidates[-1])


def test_a_sequence_of_sizes_is_answered_one_by_one():
    board, sizes = nvcoll.fabric("hgx-h100"), [1 << shift for shift in range(3, 33)]
    answers = board.nccl("all_reduce", sizes)
    assert [one.nbytes for one in answers] == sizes
    for size, one in zip(sizes, answers, strict=True):
        alone = board.nccl("all_reduce", size).chosen
        way = one.chosen
        assert (way.algorithm, way.protocol, way.time_us) == (alone.algorithm, alone.protocol, alone.time_us)
    ways = {(one.chosen.algorithm, one.chosen.protocol) for one in answers}
    assert len(ways) > 1, "small and large calls go different ways"
    assert board.nccl("all_reduce", ()) == []


def test_a_version_has_its_own_constants_and_none_means_the_newest():
    board = nvcoll.fabric("hgx-h100")
    old, new = (board.nccl("all_reduce", MIB, version=version) for version in ("2.18.5", None))
    # 2.31.2 is known, by the text of an alpha, and for that reason is not the version without a wish.
    assert old.tag.startswith("v2.18.5") and new.tag.startswith(f"v{nccl_versions()[-2]}")
    assert old.chosen.time_us != new.chosen.time_us


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
        (lambda one: one.nccl("all_reduce", "1Q"), "1Q"),
        (lambda one: one.nccl("all_reduce", [1, 2**60]), "nbytes is"),
        (lambda one: one.nccl("all_reduce", 1, version="1.0"), "NCCL version"),
        (lambda one: one.nccl("all_reduce", 1, version="new"), "NCCL version"),
    ],
)
def test_what_nccl_does_not_know_is_a_typed_error(wrong, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        wrong(nvcoll.fabric("hgx-h100"))
