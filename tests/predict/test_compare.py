"""`nvcoll compare`: every algorithm in virtual time, who is the fastest where, and what does not run."""

import csv
import json
import math

import pytest
from command_line import cli

import nvcoll
from nvcoll._nvcoll import algorithms, fabrics, patterns
from nvcoll.cost.comparison import (
    FINER,
    LAUNCH,
    MOST_PAIRS,
    MOST_STEPS,
    PROTOCOLS,
    compare_schedules,
    protocols_on,
    timed,
    too_many_of,
)

KIB, MIB = 1 << 10, 1 << 20
MOVING = [row.name for row in patterns() if row.name != "sendrecv"]
ALL_REDUCES = [row.name for row in algorithms() if row.collective == "all_reduce"]

MINE = """
import nvcoll

@nvcoll.algorithm("all_reduce")
def star(b, per_node=2):
    ranks = range(b.world_size)
    b.fold([b.input(r, 0) for r in ranks], into=[b.output(r, 0) for r in ranks])

@nvcoll.algorithm("all_reduce")
def forgets(b):
    ranks = range(b.world_size - 1)
    b.fold([b.input(r, 0) for r in ranks], into=[b.output(r, 0) for r in range(b.world_size)])

@nvcoll.algorithm("broadcast")
def spread(b):
    b.push(b.input(0, 0), into=[b.output(r, 0) for r in range(b.world_size)])
"""


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return str(file)


def compared(fabric, sizes, names=ALL_REDUCES, collective="all_reduce"):
    one = nvcoll.fabric(fabric)
    return compare_schedules(
        one, collective, {n: nvcoll.schedule(collective, n, world_size=one.world_size) for n in names}, sizes
    )


def test_every_algorithm_has_a_time_or_a_reason_and_the_fastest_is_the_least():
    found = compared("hgx-a100", [KIB, MIB, 64 * MIB])
    assert {*found.algorithms, *found.absent} == {*ALL_REDUCES} and "switch" in found.absent["nvswitch"]
    for row in found.rows:
        assert row.fastest_us == row.times[row.fastest].time_us == min(one.time_us for one in row.times.values())
        second = sorted(one.time_us for one in row.times.values())[1]
        assert row.ahead == second / row.fastest_us >= 1


def test_ranges_are_the_fastest_of_each_size_put_together():
    found = compared("hgx-h100", [KIB << shift for shift in range(20)])
    by_size = {row.nbytes: row.fastest for row in found.rows}
    assert by_size == {n: r.algorithm for r in found.ranges() for n in by_size if r.first <= n <= r.last}
    assert all(a.algorithm != b.algorithm for a, b in zip(found.ranges(), found.ranges()[1:], strict=False))


def test_the_summary_speaks_of_the_sizes_that_were_tried_only():
    words = compared("hgx-h100", [MIB, 1 << 30]).summary()
    assert words == "of the sizes tried: halving_doubling at 1 MiB; nvswitch at 1 GiB"
    words = compared("hgx-h100", [512 << 20, 1 << 30]).summary()
    assert words == "of the sizes tried: nvswitch at 512 MiB to 1 GiB"


def test_an_algorithm_has_the_protocol_and_the_tiles_that_suit_it_best():
    board = nvcoll.fabric("hgx-h100")
    tree = nvcoll.schedule("all_reduce", "tree", world_size=8)
    small, large = (timed(board, tree, nbytes, protocols_on(board)) for nbytes in (KIB, 256 * MIB))
    assert (small.protocol, small.tiles, large.protocol) == ("ll", 1, "simple") and large.tiles > FINER
    for protocol in ("ll", "ll128", "simple"):
        one = board.simulate(tree, 256 * MIB, protocol=protocol, launch=LAUNCH)
        assert large.time_us <= one.time_us * 1.001


class Counting:
    """A fabric that counts the schedules it is asked to prepare, and the runs."""

    def __init__(self, fabric):
        self.fabric, self.prepared, self.runs = fabric, 0, 0

    def __getattr__(self, name):
        return getattr(self.fabric, name)

    def simulate(self, run, sizes, **options):
        self.prepared += 1
        self.runs += len(sizes)
        return self.fabric.simulate(run, sizes, **options)


def test_a_schedule_is_prepared_as_often_for_a_hundred_sizes_as_its_tiles_take_tries():
    board, ring = Counting(nvcoll.fabric("hgx-h100")), nvcoll.schedule("all_reduce", "ring", world_size=8)
    protocols = protocols_on(board.fabric)
    found = compare_schedules(board, "all_reduce", {"ring": ring}, [KIB * (1 + size) for size in range(100)])
    tries = 1 + math.ceil(math.log(MOST_STEPS / ring.step_count, FINER))
    assert len(found.rows) == 100 and board.prepared <= len(PROTOCOLS) + len(protocols) * tries
    alone = timed(board.fabric, ring, 70 * KIB, protocols)
    assert found.rows[69].times["ring"] == alone


def test_a_launch_costs_every_algorithm_the_same():
    board, ring = nvcoll.fabric("hgx-h100"), nvcoll.schedule("all_reduce", "ring", world_size=8)
    alone, framework, single = (
        timed(board, ring, 8, ["ll"], launch).time_us for launch in (LAUNCH, "framework", "single_process")
    )
    added = dict(board.predict("all_reduce", 8, launch="framework").parts)["launch"]
    assert framework == pytest.approx(alone + added)
    assert single == pytest.approx(board.predict("all_reduce", 8, launch="single_process").time_us)


def test_what_goes_through_the_switch_has_no_flags_in_it():
    for collective, name, is_there in (
        ("all_reduce", "nvswitch", True),
        ("all_reduce", "ring", False),
        ("all_gather", "nvswitch", True),
    ):
        assert nvcoll.schedule(collective, name, world_size=8).needs_switch == is_there
    found = compared("hgx-h100", [KIB, MIB], ["nvswitch"])
    assert {row.times["nvswitch"].protocol for row in found.rows} == {"simple"}
    assert "ll128" not in protocols_on(nvcoll.fabric("pcie4-8-staged"))
    assert protocols_on(nvcoll.fabric("mi300x-8")) == ["simple", "ll128", "ll"]


@pytest.mark.parametrize("fabric", [one.name for one in fabrics() if 1 < one.world_size <= 16])
def test_nothing_is_faster_than_the_floor(fabric):
    for collective in MOVING:
        names = [row.name for row in algorithms() if row.collective == collective]
        found = compared(fabric, [8, 64 * KIB, 16 * MIB], names, collective)
        for row in found.rows:
            for name, time in row.times.items():
                assert time.time_us >= row.floor_us > 0, (collective, name)


def test_a_collective_that_nccl_does_not_have_says_so():
    found = compared("hgx-h100", [MIB], ["chain"], "scan")
    assert "scan has no prediction" in found.why_no_nccl and found.rows[0].nccl is None
    text = cli("compare", "--collective", "scan", "-b", "1M").stdout
    assert "NCCL      " in text and "scan has no prediction" in text


def test_python_compares_as_the_command_does():
    def star(b):
        ranks = range(b.world_size)
        b.fold([b.input(r, 0) for r in ranks], into=[b.output(r, 0) for r in ranks])

    mine = nvcoll.algorithm("all_reduce")(star)
    found = nvcoll.compare("hgx-a100", ["ring", mine], sizes=[MIB, KIB])
    assert [row.nbytes for row in found.rows] == [KIB, MIB] and found.algorithms == ["ring", "star"]
    assert [row.times["ring"].time_us for row in found.rows] == [
        row.times["ring"].time_us for row in compared("hgx-a100", [KIB, MIB], ["ring"]).rows
    ]
    assert found.rows[0].fastest == "star" and found.rows[0].nccl_us > 0
    printed = cli("compare", "ring", "--on", "hgx-a100", "-b", "1K", "-b", "1M").stdout
    assert printed.startswith(str(nvcoll.compare(nvcoll.fabric("hgx-a100"), ["ring"], sizes=[KIB, MIB])))
    assert {*nvcoll.compare("hgx-h100", sizes=[KIB]).algorithms} == {*ALL_REDUCES}
    assert nvcoll.compare("hgx-h100", [nvcoll.schedule("broadcast", "direct", world_size=8)], sizes=[8]).collective == (
        "broadcast"
    )


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("hgx-h900",), {}, "no machine is called `hgx-h900`"),
        (("hgx-h100", "ring"), {}, "pass a list, as \\['ring'\\]"),
        (("hgx-h100", ["rong"]), {}, "no all_reduce algorithm is called `rong`"),
        (("hgx-h100",), {"sizes": []}, "`sizes` is empty"),
        (
            ("hgx-h100", [nvcoll.schedule("barrier", "auto", world_size=8)]),
            {"collective": "scan"},
            "of barrier: pass one of scan",
        ),
    ],
)
def test_what_python_cannot_compare_is_a_typed_error(arguments, options, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        nvcoll.compare(*arguments, **options)


def test_the_command_marks_the_fastest_and_says_what_does_not_run_there():
    lines = cli("compare", "--on", "hgx-h100,hgx-a100", "-b", "1K", "-e", "1M", "-f", "32").stdout.splitlines()
    rows = [line for line in lines if line.strip().startswith(("1 KiB", "32 KiB", "1 MiB"))]
    assert len(rows) == 6 and all(row.count("*") == 1 for row in rows)
    assert sum(line.startswith("fastest     of the sizes tried: ") for line in lines) == 2
    assert any(line.startswith("not here    nvswitch: hgx-a100: ") for line in lines)


@pytest.mark.parametrize(
    ("on", "is_said"),
    [("hgx-h100", False), ("hgx-a100-4", True), ("rtx3090-2-bridge", False), ("hgx-h100x2+ib-ndr-8", True)],
)
def test_where_nccl_lays_several_rings_the_table_says_so(on, is_said):
    assert ("NCCL lays several rings" in cli("compare", "ring", "--on", on, "-b", "1M").stdout) == is_said


def test_json_has_the_numbers_of_the_library():
    printed = json.loads(cli("compare", "ring,nvswitch", "--on", "hgx-a100", "-b", "1M", "-b", "64K", "--json").stdout)
    (machine,) = printed["machines"]
    assert printed["schema"] == "nvcoll.compare/1" and [row["nbytes"] for row in machine["rows"]] == [64 * KIB, MIB]
    found = compared("hgx-a100", [64 * KIB, MIB], ["ring", "nvswitch"])
    for at, row in enumerate(machine["rows"]):
        assert row["fastest"] == "ring" and row["floor_us"] == found.rows[at].floor_us
        assert row["times"]["ring"]["time_us"] == found.rows[at].times["ring"].time_us
    assert machine["ranges"] == [{"algorithm": "ring", "first": 64 * KIB, "last": MIB}]
    assert machine["absent"] == found.absent


def test_an_algorithm_of_a_file_is_compared_and_says_which_collective_it_is_of(mine):
    text = cli("compare", f"{mine}:star(per_node=4),ring", "--on", "hgx-a100", "-b", "1K").stdout
    assert "star(per_node=4)" in text and "all_reduce, simulated times in us" in text
    assert "broadcast, simulated times" in cli("compare", f"{mine}:spread", "--on", "hgx-a100", "-b", "1K").stdout


def test_what_is_refuted_is_not_timed(mine):
    text = cli("compare", f"ring,{mine}:forgets", "--on", "hgx-a100-4", "-b", "1K").stdout
    assert "not here    forgets: refuted: " in text and f"see nvcoll verify {mine}:forgets -n 4" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--launch", "graph"], "CUDA graph"),
        (["--launch", "slowly"], "no launch is called `slowly`"),
        (["rong"], "no all_reduce algorithm is called `rong`: choose from nvswitch, "),
        (["pat"], "no all_reduce algorithm is called `pat`"),
        (["--collective", "all_shout"], "no collective is called `all_shout`"),
        (["ring", "--on", "hgx-h900"], "hgx-h900"),
        (["nowhere.py:f"], "`nowhere.py` is not a file"),
        (["-e", "1M"], "-e ends a sweep"),
        (["nvswitch", "--on", "dgx1-v100"], "none runs on dgx1-v100"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_status_2(arguments, message):
    error = cli("compare", *arguments, status=2).stderr
    assert message in error and len(error.splitlines()) == 1


def test_an_algorithm_of_another_collective_is_refused(mine):
    error = cli("compare", f"ring,{mine}:spread", "--collective", "all_reduce", status=2).stderr
    assert "is an algorithm of broadcast: pass one of all_reduce" in error


def test_algorithms_whose_ranks_all_exchange_bytes_are_not_built_for_hundreds_of_ranks():
    everybody = {"one_shot", "two_shot", "nvswitch"}
    for row in nvcoll._nvcoll.algorithms():
        if row.collective == "all_reduce":
            assert (too_many_of("all_reduce", row.name, 512) is not None) == (row.name in {*everybody, "nvswitch"}), (
                row.name
            )
            assert too_many_of("all_reduce", row.name, 128) is None, row.name
    assert nvcoll.schedule("all_reduce", "one_shot", world_size=9).pairs == 72
    assert nvcoll.schedule("all_reduce", "ring", world_size=512).pairs == 512 <= MOST_PAIRS
    told = cli("compare", "one_shot,tree", "--on", "hgx-h100x64+ib-ndr-8", "-b", "1M").stdout
    assert "one_shot: 261,632 pairs of ranks exchange bytes, at most 16,384 are simulated" in " ".join(told.split())


def test_csv_has_a_row_for_each_machine_size_and_algorithm():
    asked = ("compare", "ring,nvswitch", "--on", "hgx-a100,hgx-h100", "-b", "1M", "-b", "64K")
    machines = json.loads(cli(*asked, "--json").stdout)["machines"]
    rows = list(csv.DictReader(cli(*asked, "--csv").stdout.splitlines()))
    expected = [
        (one["machine"], str(row["nbytes"]), name, str(time["time_us"]), row["fastest"], str(row["floor_us"]))
        for one in machines
        for row in one["rows"]
        for name, time in row["times"].items()
    ]
    keys = ("machine", "nbytes", "algorithm", "time_us", "fastest", "floor_us")
    assert [tuple(row[key] for key in keys) for row in rows] == expected and len(
        rows
    ) == 6  # nvswitch needs NVLS, which an A100 lacks


def test_settings_and_the_version_of_nccl_are_those_of_what_nccl_picks():
    found = nvcoll.compare("hgx-h100", ["ring"], sizes=["1G"], settings={"NCCL_ALGO": "Ring"}, version="2.20.5")
    plain = nvcoll.compare("hgx-h100", ["ring"], sizes=["1G"])
    assert found.rows[0].nccl.algorithm == "Ring" != plain.rows[0].nccl.algorithm
    words = ("compare", "ring", "-b", "1G", "--json", "--env", "NCCL_ALGO=Ring", "--nccl-version", "2.20.5")
    assert json.loads(cli(*words).stdout)["machines"][0]["rows"][0]["nccl_us"] == found.rows[0].nccl_us
