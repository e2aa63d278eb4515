"""Intervals of predictions follow from how far predictions of held-out families were off."""

import math

import pytest
from held_out import left_out, rows

import nvcoll

import intervals
import judging
import nvcoll_estimate
from judging import Judged, Prediction, Row, System


def test_every_row_that_has_a_machine_and_a_form_is_judged():
    assert len(left_out()) > 2500
    assert len(judging.by_system(left_out())) >= 76


def test_classes_are_those_of_the_table():
    calls = nvcoll_estimate.calls(rows())
    assert all(call.trial.fabric_class == call.system.fabric_class for call in calls)


def measured(system, family, time_us, predicted_us=100.0, fabric_class="box", nbytes=1 << 20, collective="all_reduce"):
    owner = System(system, family, "f", "", 8, 1, fabric_class, "unknown", {})
    return Judged(Row(owner, collective, "", "", "f4", nbytes, time_us, True, "yes"), Prediction(predicted_us))


def test_an_interval_holds_what_others_missed_by_and_not_what_its_own_family_did():
    others = [measured(f"s{n}", f"f{n}", 110.0) for n in range(10)]
    wild = measured("wild", "wild", 900.0)
    *bounded, own = intervals.with_intervals([*others, wild])
    assert own.prediction.high_us == pytest.approx(110.0) and not own.covered
    assert all(item.covered and item.prediction.systems == 10 for item in bounded)


def test_a_quantile_weighs_systems_and_not_rows():
    many = [("a", "a", 0.9)] * 50 + [(name, name, 0.1) for name in "bcdefghijklmnopqrst"]
    assert intervals.quantile(many) == 0.1


def test_a_quantile_is_raised_until_families_that_are_left_out_are_held():
    assert intervals.quantile([("a", "a", 0.1)]) == 0.1, "nobody is left to say how far it would be off"
    steady = [(f"s{n}", f"f{n}", 0.1 + n / 1000) for n in range(20)]
    assert 0.117 < intervals.quantile(steady) <= 0.119
    siblings = [(f"s{n}", f"f{n // 4}", 0.1 * (1 + n // 4)) for n in range(20)]
    assert intervals.quantile(siblings) == 0.5, "four systems of one family count for each other only"


def test_few_systems_borrow_the_width_of_their_scope():
    judged = [measured(f"s{n}", f"f{n}", 110.0) for n in range(9)]
    judged += [measured(f"t{n}", f"g{n}", 150.0, fabric_class=f"c{n}") for n in range(5)]
    widths = intervals.Widths.of(judged)
    band = "1 - 128 MiB"
    assert widths.factor("box", "one node", "all_reduce", band) == pytest.approx(1.1)
    assert widths.factor("c0", "one node", "all_reduce", band) == pytest.approx(1.5)
    assert widths.factor("new", "several nodes", "others", band) == pytest.approx(1.5)
    assert widths.factor("new", "one node", "others", "<= 64 KiB") == math.e, "nothing is known"
    assert [widths.stands_on(name, "all_reduce", band) for name in ("box", "c0", "new")] == [9, 0, 0]


def test_eight_systems_are_no_surer_than_their_scope():
    judged = [measured(f"s{n}", f"f{n}", 110.0) for n in range(8)]
    judged += [measured(f"t{n}", f"g{n}", 150.0, fabric_class="far") for n in range(9)]
    widths = intervals.Widths.of(judged)
    assert widths.factor("box", "one node", "all_reduce", "1 - 128 MiB") == pytest.approx(1.5)
    assert widths.stands_on("box", "all_reduce", "1 - 128 MiB") == 8


def test_few_systems_borrow_from_other_collectives_of_their_class_too():
    judged = [measured(f"s{n}", f"f{n}", 190.0, fabric_class="odd") for n in range(6)]
    judged += [measured(f"t{n}", f"g{n}", 110.0, collective="all_gather") for n in range(6)]
    widths = intervals.Widths.of(judged)
    assert widths.factor("odd", "one node", "others", "1 - 128 MiB") == pytest.approx(1.9)
    assert widths.factor("box", "one node", "others", "1 - 128 MiB") == pytest.approx(1.1), "its own"


def test_a_class_of_many_systems_does_not_make_its_scope_sure_of_other_classes():
    judged = [measured(f"s{n}", f"f{n}", 110.0) for n in range(90)]
    judged += [measured("t", "g", 200.0, fabric_class="far")]
    judged += [measured("u", "h", 190.0, fabric_class="farther")]
    widths = intervals.Widths.of(judged)
    assert widths.factor("new", "one node", "all_reduce", "1 - 128 MiB") == pytest.approx(2.0)


def test_a_scope_of_one_class_says_nothing_of_others():
    judged = [measured(f"s{n}", f"f{n}", 110.0 + n) for n in range(20)]
    assert not intervals.Widths.of(judged).scopes


def test_intervals_of_several_nodes_hold_nine_tenths_of_what_was_left_out():
    for band in intervals.bands():
        rows_of = [item for item in left_out() if (item.row.system.scope, item.row.band) == ("several nodes", band)]
        assert 0.88 <= sum(bool(item.covered) for item in rows_of) / len(rows_of) <= 0.95, band


def test_a_band_of_few_systems_is_not_validated_by_another():
    judged = [measured(f"s{n}", f"f{n}", 110.0) for n in range(6)]
    judged += [measured(f"s{n}", f"f{n}", 120.0, nbytes=8) for n in range(3)]
    found = intervals.covered(intervals.with_intervals(judged), intervals.cell_of)
    large, small = (found["box", "all_reduce", band] for band in ("1 - 128 MiB", "<= 64 KiB"))
    assert (large.is_validated, large.own, large.own_part, large.borrowed) == (True, 6, 1.0, 0)
    assert (small.is_validated, small.own, small.borrowed) == (False, 0, 3)
    validated = intervals.validated(intervals.with_intervals(judged))
    assert {item.row.band for item in validated} == {"1 - 128 MiB"}


def test_what_calls_itself_validated_is_covered_as_it_says():
    found = intervals.validated(left_out())
    assert {item.row.system.fabric_class for item in found} >= {
        "multinode_ib",
        "multinode_roce",
        "nvswitch_hopper_nvls",
    }


def test_trust_is_said_of_the_size_that_is_predicted():
    widths = intervals.Widths.of(left_out())
    board, sizes = nvcoll.fabric("hgx-h100"), (8, 1 << 19, 1 << 26, 1 << 30)
    for nbytes, band in zip(sizes, intervals.bands(), strict=True):
        systems = widths.systems["nvswitch_hopper_nvls", "all_reduce", band]
        expected = f"validated on {systems} systems" if systems >= intervals.FEWEST_SYSTEMS else "not validated"
        assert board.predict("all_reduce", nbytes).trust == expected, band
    assert board.predict("all_reduce", 1 << 30).trust == board.trust == "validated on 18 systems"


@pytest.mark.parametrize(
    ("text", "expected"), [("2.27.7", "2.27.7"), ("2.4.x", "2.8.4"), ("2.8.3", "2.8.4"), ("", None)]
)
def test_a_version_before_the_first_known_one_is_taken_for_it(text, expected):
    found = nvcoll_estimate.known_version(text)
    assert found is expected is None or found.startswith(expected)


def test_sends_of_versions_before_the_first_known_one_are_not_predicted():
    judged = [item.row for item in left_out() if item.row.system.system_id == "a100_2of8_abhivijay96"]
    assert {row.collective for row in judged} == {"all_reduce", "all_gather", "broadcast"}
    assert [nvcoll_estimate.is_older(text) for text in ("2.7.3", "2.8.4", "2.27.7", "")] == [True, False, False, False]
