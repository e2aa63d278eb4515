"""`nvcoll check --baseline`: a log beside the log of a sister machine."""

import json
from dataclasses import replace

import pytest
from check_logs import MIB, table
from command_line import cli, done

import nvcoll
from nvcoll import InvalidArgument
from nvcoll.check import baseline, nccl_tests
from nvcoll.check.verdict import CANNOT_TELL, HEALTHY, SICK, SUSPICIOUS, examined

SIZES = [MIB << power for power in range(11)]


def log(share=1.0, sizes=SIZES, **options):
    """Returns a log whose busbw is a share of that of `log()`."""
    (found,) = nccl_tests.read("log", table({size: size / 1e4 / share for size in sizes}, **options))
    return found


def verdict(one, *baselines, require=None):
    return examined(one, None, require, "no machine", baseline.times_us(one, baselines))


@pytest.mark.parametrize(
    ("share", "said"), [(1.3, HEALTHY), (0.97, HEALTHY), (0.93, SUSPICIOUS), (0.82, SUSPICIOUS), (0.75, SICK)]
)
def test_the_share_of_the_baseline_decides_without_a_machine(share, said):
    found = verdict(log(share), log())
    assert found.verdict == said and found.of_baseline == pytest.approx(share, rel=0.01)
    assert f"{100 * share:.0f} % of the baseline's busbw (5 sizes from 64 MiB)" in found.reasons[0]


def test_require_sets_the_share_of_the_baseline():
    assert verdict(log(0.93), log(), require=0.9).verdict == HEALTHY
    assert verdict(log(0.88), log(), require=0.9).verdict == SICK


def test_only_sizes_of_both_logs_are_compared():
    found = verdict(log(0.9), log(sizes=[64 * MIB, 128 * MIB, 3 * MIB]))
    assert [one.row.nbytes for one in found.rows if one.of_baseline] == [64 * MIB, 128 * MIB]
    assert "2 sizes from 64 MiB" in found.reasons[0]


def test_of_several_baselines_the_median_counts():
    assert verdict(log(), log(0.9), log(1.0), log(1.1)).of_baseline == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("other", [{"sizes": [1000]}, {"ranks": 4}, {"collective": "all_gather"}])
def test_a_baseline_without_a_size_of_the_log_is_refused(other):
    with pytest.raises(InvalidArgument, match=r"no size of log .all_reduce, 8 ranks. is in the baseline: log"):
        baseline.times_us(log(), [log(**other)])


def test_sizes_from_64_kib_on_are_compared_if_there_are_no_larger_ones():
    sizes = [65536, 131072, 262144]
    assert verdict(log(0.7, sizes=sizes), log(sizes=sizes)).verdict == SICK
    assert verdict(log(sizes=sizes), log(sizes=sizes)).verdict == HEALTHY


def test_small_sizes_alone_tell_nothing():
    small = log(sizes=[1024, 2048])
    assert verdict(small, small).verdict == CANNOT_TELL


@pytest.mark.parametrize(("slow", "said"), [(4, SUSPICIOUS), (1, HEALTHY)])
def test_several_slow_sizes_below_the_large_ones_are_suspicious(slow, said):
    sizes = [65536 << power for power in range(12)]
    rows = [replace(row, out_of_place_us=2 * row.time_us, in_place_us=None) for row in log(sizes=sizes).rows[:slow]]
    found = verdict(replace(log(sizes=sizes), rows=[*rows, *log(sizes=sizes).rows[slow:]]), log(sizes=sizes))
    assert found.verdict == said
    assert any("4 of 10 sizes below 64 MiB have less than 80 %" in reason for reason in found.reasons) == (slow == 4)


def test_a_healthy_prediction_does_not_hide_a_slower_sister(tmp_path):
    found = nvcoll.fabric("hgx-h100x2+roce-400-8").predict("all_reduce", SIZES)
    for name, share in (("good", 1.0), ("bad", 0.85)):
        text = table({one.nbytes: one.time_us / share for one in found}, ranks=16)
        (tmp_path / name).write_text(text, encoding="utf-8")
    bad, on = tmp_path / "bad", ("--on", "hgx-h100x2+roce-400-8")
    assert "verdict     healthy" in cli("check", bad, *on).stdout
    both = cli("check", bad, *on, "--baseline", tmp_path / "good", status=1).stdout
    assert "verdict     suspicious" in both and "of baseline" in both
    (one,) = json.loads(cli("check", bad, "--baseline", tmp_path / "good", "--json", status=1).stdout)["logs"]
    assert one["of_baseline"] == pytest.approx(0.85, rel=0.01) and one["rows"][0]["baseline_us"]
    (tmp_path / "empty").write_text("", encoding="utf-8")
    assert "is in the baseline" in done("check", bad, "--baseline", tmp_path / "empty").stderr
