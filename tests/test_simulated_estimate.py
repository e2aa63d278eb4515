"""Predictions beside public measurements: every family left out in turn, and the intervals that follow."""

import math
from functools import cache
from pathlib import Path

import pytest

from nvcoll import intervals, simulated_estimate, validate
from nvcoll.validate import Judged, Prediction, Row, System

DATA = Path(__file__).parent.parent / "data" / "nccl-tests"


@cache
def left_out():
    rows = validate.healthy(validate.read(DATA))
    folds = simulated_estimate.folds(DATA / "folds.toml")
    return simulated_estimate.judge(simulated_estimate.calls(rows), lambda system: folds[system.family])


@pytest.mark.parametrize(
    ("where", "collective", "band", "bar"),
    [
        ("one node", "all_reduce", "<= 64 KiB", 0.15),
        ("one node", "all_reduce", "1 - 128 MiB", 0.10),
        ("one node", "all_reduce", ">= 128 MiB", 0.04),
        ("one node", "others", ">= 128 MiB", 0.10),
        ("several nodes", "all_reduce", ">= 128 MiB", 0.12),
    ],
)
def test_families_that_no_fit_has_seen_are_met(where, collective, band, bar):
    cell = validate.cells(left_out(), validate.by_scope)[where, collective, band]
    assert cell.median <= bar
    assert cell.coverage >= 0.8


def test_every_row_that_has_a_machine_and_a_form_is_judged():
    assert len(left_out()) > 2500
    assert len(validate.by_system(left_out())) >= 76


def test_classes_are_those_of_the_table():
    calls = simulated_estimate.calls(validate.healthy(validate.read(DATA)))
    assert all(call.trial.fabric_class == call.system.fabric_class for call in calls)


def measured(system, family, time_us, predicted_us=100.0, fabric_class="box"):
    owner = System(system, family, "f", "", 8, 1, fabric_class, "unknown", {})
    return Judged(Row(owner, "all_reduce", "", "", "f4", 1 << 20, time_us, True, "yes"), Prediction(predicted_us))


def test_an_interval_holds_what_others_missed_by_and_not_what_its_own_family_did():
    others = [measured(f"s{n}", f"f{n}", 100.0 * (1 + n / 100)) for n in range(10)]
    wild = measured("wild", "wild", 900.0)
    *bounded, own = intervals.with_intervals([*others, wild])
    assert own.prediction.high_us == pytest.approx(109.0) and not own.covered
    assert bounded[0].prediction.high_us == pytest.approx(900.0), "of ten others one is wild, and the tenth counts"


def test_a_quantile_weighs_systems_and_not_rows():
    many = [("a", 0.9)] * 50 + [(name, 0.1) for name in "bcdefghijklmnopqrst"]
    assert intervals.quantile(many) == 0.1


def test_few_systems_borrow_the_widest_of_their_scope():
    judged = [measured(f"s{n}", f"f{n}", 110.0) for n in range(6)]
    judged += [measured(f"t{n}", f"g{n}", 150.0, fabric_class=f"c{n}") for n in range(5)]
    widths = intervals.Widths.of(judged)
    assert widths.factor("box", "one node", "all_reduce", "1 - 128 MiB") == pytest.approx(1.1)
    assert widths.factor("c0", "one node", "all_reduce", "1 - 128 MiB") == pytest.approx(1.5)
    assert widths.factor("new", "several nodes", "others", "1 - 128 MiB") == pytest.approx(1.5)
    assert widths.factor("new", "one node", "others", "<= 64 KiB") == math.e, "nothing is known"


@pytest.mark.parametrize(
    ("text", "expected"), [("2.27.7", "2.27.7"), ("2.4.x", "2.8.4"), ("2.8.3", "2.8.4"), ("", None)]
)
def test_a_version_before_the_first_known_one_is_taken_for_it(text, expected):
    found = simulated_estimate.known_version(text)
    assert found is expected is None or found.startswith(expected)
