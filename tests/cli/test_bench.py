"""`nvcoll bench`: what it times, what it prints beside it, its sizes and its formats."""

import csv
import errno
import json
import os
import pty
import re
import subprocess

import pytest
from command_line import PROGRAM, run

import nvcoll
from nvcoll.cli import sizes
from nvcoll.cli.bench import tables as bench_tables
from nvcoll.cli.bench import timing
from nvcoll.cli.bench.timing import Case, Reduction

ALGORITHMS = [row.name for row in nvcoll._nvcoll.algorithms() if row.collective == "all_reduce"]
TIMED = [row.name for row in nvcoll._nvcoll.collectives() if nvcoll._nvcoll.bus_factor(row.name, 2) > 0]


@pytest.fixture
def bench_json():
    return json.loads(run("bench", "-n", "3", "-b", "1000", "--rounds", "3", "--json")[0])


@pytest.mark.parametrize("option", ["-d", "--datatype", "--dtype"])
def test_a_dtype_has_the_options_of_explain(option):
    assert "float16" in run("bench", "-n", "2", "-b", "1K", "--rounds", "1", "-a", "ring", option, "float16")[0]
    assert "float16" in run("explain", "all_reduce", "-n", "2", option, "float16")[0]


def test_bench_prints_every_algorithm_beside_numpy_and_the_roofline_and_nothing_is_wrong():
    text, stderr = run("bench", "all_reduce", "-n", "3", "-b", "4K", "-b", "1000", "--rounds", "3")
    assert stderr == "", "there is no progress bar where there is no terminal"
    lines = text.splitlines()
    head = lines[2].split()
    assert set(head) >= {"size", *ALGORITHMS, "numpy", "roofline", "#wrong"}
    assert "nvswitch vs numpy" in lines[2] and "nvswitch of roofline" in lines[2]
    assert [line.split()[0] for line in lines[3:5]] == ["4", "1000"] and all(line.endswith(" 0") for line in lines[3:5])
    assert re.search(r"\d+\.\dx \(\d+\.\d-\d+\.\d\)", lines[3]), "medians come with their quartiles"
    assert [line.split()[0] for line in lines[5:]] == ["why", "with", "next"]
    assert "nvswitch 2.0 N (the least possible)" in text


def test_bench_times_a_size_once_however_often_it_is_named():
    text, _ = run("bench", "-n", "2", "-b", "1K", "-b", "1k", "-b", "1024", "--rounds", "1", "-a", "ring")
    assert [line.split()[0] for line in text.splitlines()[3:5]] == ["1", "why"]


def test_help_of_bench_lists_every_dtype_and_op():
    text = " ".join(run("bench", "--help", env={**os.environ, "COLUMNS": "200"})[0].split())
    names = [row.name for row in (*nvcoll._nvcoll.dtypes(), *nvcoll._nvcoll.ops())]
    assert [name for name in names if name not in text] == []


def test_bench_times_an_algorithm_of_a_file_beside_ours(mine):
    columns = run("bench", "-n", "2", "-b", "1K", "--rounds", "2", "-a", "ring", "-a", f"{mine}:ring")[0]
    assert f"{mine}:ring" in columns.splitlines()[2] and " ring " in columns.splitlines()[2]


def test_every_verb_takes_parameters_and_shows_them(mine):
    two, four = (f"{mine}:grouped(per_node={per_node})" for per_node in (2, 4))
    head = run("bench", "-n", "4", "-b", "1K", "--rounds", "2", "-a", two, "-a", four)[0].splitlines()[2].split()
    assert {"grouped(per_node=2,missing=0)", "grouped(per_node=4,missing=0)"} <= set(head)
    document = json.loads(run("bench", "-n", "4", "-b", "1K", "--rounds", "1", "--json", "-a", two, "-a", four)[0])
    assert {name: cost["waits"] for name, cost in document["algorithms"].items()} == {
        "grouped(per_node=2,missing=0)": 5,
        "grouped(per_node=4,missing=0)": 2,
    }
    assert "grouped(per_node=2,missing=0)" in run("show", two, "--path", "mapped")[0].splitlines()[0]
    assert "proved   all_reduce grouped(per_node=4,missing=0), 8 ranks" in run("verify", four, "-n", "8")[0]
    spaced = f"{mine}:grouped( per_node = 4 , missing = 0 )"
    assert "grouped(per_node=4,missing=0)" in run("verify", spaced, "-n", "8")[0]


def test_auto_is_timed_as_auto_and_what_it_takes_is_named():
    text = run("bench", "all_reduce", "-n", "8", "-b", "64", "-b", "1M", "-a", "auto", "--rounds", "2")[0]
    node = nvcoll.Node(8)
    taken = [node.estimates("all_reduce", count, path="mapped").algorithm for count in (16, 1 << 18)]
    assert f"auto        chooses {taken[0]} at 64 B, {taken[1]} at 1 MiB" in text and "auto vs numpy" in text
    text = run("bench", "all_gather", "-n", "2", "-b", "1M", "--nccl", "--rounds", "2")[0]
    assert re.match(r"# nvcoll \S+ all_gather auto \(\w+(, \w+)*\), 2 thread ranks", text)


def test_a_ratio_to_times_that_are_far_apart_is_marked():
    case = Case(nvcoll.Node(2), "all_reduce", Reduction("float32", "sum", 2), 64, 0)
    case.add_algorithm("ring", "ring")
    case.add_baselines()
    for _ in range(3):
        case.round()
    case.candidates["numpy"].seconds = [1.0, 1.0, 1.0]
    case.candidates["roofline"].seconds = [1.0, 2.0, 9.0]
    assert "unsteady" not in bench_tables._beside(case, "numpy", "ring")
    assert bench_tables._beside(case, "roofline", "ring").endswith(" unsteady")


def test_a_small_ratio_has_two_digits():
    spread = timing.Spread(0.004, 0.0054, 0.0061)
    assert bench_tables._ratio(spread, 1, "x") == "0.0054x (0.0040-0.0061)"
    assert bench_tables._ratio(spread, 100, " %") == "0.54 % (0.40-0.61)"
    assert bench_tables._ratio(timing.Spread(0.5, 0.96, 1.5), 1, "x") == "1.0x (0.5-1.5)"


def test_bench_in_the_columns_of_nccl_tests():
    """Names, order and widths are as in nccl-tests: 10 (12 in rows), 12, 8, 6, 6, and twice 7, 6, 6, 6."""
    lines = run("bench", "-n", "2", "-b", "4K", "-e", "16K", "--rounds", "3", "--nccl", "-a", "ring")[0].splitlines()
    data = [line for line in lines if not line.startswith("#")]
    assert [line.split()[:5] for line in data] == [
        [str(4096 << k), str(1024 << k), "float", "sum", "-1"] for k in range(3)
    ]
    head = next(line for line in lines if "redop" in line)
    names = ["size", "count", "type", "redop", "root", *["time", "algbw", "busbw", "#wrong"] * 2]
    assert head.lstrip("#").split() == names and all(len(line) == len(head) == 118 for line in data)
    for line in data:
        assert [line[end - 1] != " " for end in (12, 26, 36, 44, 52, 61, 69, 77, 85, 94, 102, 110, 118)] == [True] * 13
        size, *_, time, algbw, busbw, wrong = line.split()[0:1] + line.split()[5:9]
        assert float(busbw) == float(algbw), "with 2 ranks busbw is algbw"
        rounded = 0.01 + float(algbw) * max(0.01, 0.01 / float(time))
        assert float(algbw) == pytest.approx(int(size) / float(time) / 1e3, abs=rounded)
        assert wrong == line.split()[12] == "0"
    assert any(line.startswith("# Out of bounds values : 0 OK") for line in lines)
    assert any(line.startswith("# Avg bus bandwidth    : ") for line in lines)


def test_json_holds_every_round_and_its_quartiles(bench_json):
    (row,) = bench_json["rows"]
    assert (row["nbytes"], row["count"], bench_json["rounds"]) == (1000, 250, 3)
    assert set(row["times_us"]) == {*ALGORITHMS, "numpy", "roofline"} and set(row["wrong"]) == set(ALGORITHMS)
    for name, seconds in row["times_us"].items():
        low, high = row["quartiles_us"][name]
        assert len(seconds) == 3 and low <= row["median_us"][name] <= high
        assert row["median_us"][name] == sorted(seconds)[1]
    assert set(row["wrong"].values()) == {0}


def test_a_wrong_element_is_counted_said_and_status_1(monkeypatch, capsys):
    from nvcoll import cli
    from nvcoll.cli.bench import timing

    class Broken(timing.Candidate):
        def run(self, is_counted):
            if self.expected is not None:
                self.expected = [x + 1 for x in self.expected]
            super().run(is_counted)

    monkeypatch.setattr(timing, "Candidate", Broken)
    monkeypatch.setattr("sys.argv", ["nvcoll", "bench", "-n", "2", "-b", "40", "-a", "ring", "--rounds", "1"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert "WRONG 40 elements of ring at 40 B in 2 calls" in capsys.readouterr().out


def test_every_round_times_in_an_order_of_its_own():
    from nvcoll.cli.bench import timing

    case = timing.Case(nvcoll.Node(2), "all_reduce", timing.Reduction("float32", "sum", 2), 16)
    for name in ALGORITHMS:
        case.add_algorithm(name, name)
    case.add_baselines()
    orders, order = set(), []
    for name, candidate in case.candidates.items():
        candidate.call = lambda name=name: order.append(name)
    for _ in range(20):
        order.clear()
        case.round()
        assert sorted(order) == sorted(case.candidates)
        orders.add(tuple(order))
    after_roofline = {order[order.index("roofline") + 1 :][:1] for order in orders}
    assert len(orders) > 10 and len(after_roofline) > 3


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("collective", TIMED)
def test_data_is_rewritten_before_every_call(collective, in_place):
    from nvcoll.cli import operands
    from nvcoll.cli.bench import timing

    in_place = in_place and operands.CAN_BE_IN_PLACE[collective]
    case = timing.Case(nvcoll.Node(3), collective, timing.Reduction("float32", "sum", 3), 16, root=0)
    arrays, seen = case.operands(in_place), []

    def call():
        seen.append([None if x is None else x.copy() for x in arrays.inputs])
        for x in [*arrays.inputs, *arrays.outputs]:
            if x is not None:
                x.fill(7)

    for name in "abc":
        case._add(name, arrays, call)
    case.round()
    assert len(seen) == 3
    for inputs in seen:
        for x, fresh in zip(inputs, case.data, strict=True):
            assert (x is None) == (fresh is None) and (x is None or (x == fresh).all())


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("collective", TIMED)
def test_bench_times_every_collective_beside_its_baseline_and_nothing_is_wrong(collective, ranks):
    arguments = ["bench", collective, "-n", str(ranks), "-b", "1000", "-b", "4", "--rounds", "2"]
    document = json.loads(run(*arguments, "--json")[0])
    names = {row.name for row in nvcoll._nvcoll.algorithms() if row.collective == collective}
    folds = {row.name: row.folds != "nothing" for row in nvcoll._nvcoll.collectives()}[collective]
    assert document["collective"] == collective and set(document["algorithms"]) == names
    assert document["baselines"][0] == ("numpy" if folds else "memcpy")
    assert document["op"] == ("sum" if folds else None)
    assert [(row["nbytes"], row["count"]) for row in document["rows"]] == [(1000, 250), (4, 1)]
    for row in document["rows"]:
        assert set(row["times_us"]) == names | set(document["baselines"])
        assert row["wrong"] == dict.fromkeys(names, 0)
    lines = run(*arguments, "-a", "auto")[0].splitlines()
    assert lines[0].startswith(f"{collective}  ") and all(line.endswith(" 0") for line in lines[3:5])


@pytest.mark.parametrize("collective", TIMED)
def test_a_baseline_gives_what_the_collective_promises(collective):
    """For float32 sums in rank order numpy's loop gives the oracle's bits, as a memcpy does."""
    from nvcoll.cli import operands
    from nvcoll.cli.bench import baselines, timing

    op = "sum" if operands.FOLDS[collective] else None
    root = 1 if operands.HAS_ROOT[collective] and op is None else 0
    for ranks, count in ((1, 5), (2, 64), (5, 1003)):
        reduction = timing.Reduction("float32", op, ranks)
        case = timing.Case(nvcoll.Node(ranks), collective, reduction, count, min(root, ranks - 1))
        for in_place in (True, False) if op is None and operands.CAN_BE_IN_PLACE[collective] else (case.in_place,):
            case.add_algorithm("direct", "auto", in_place)
            expected, arrays = case.candidates["direct"].expected, case.operands(in_place)
            arrays.rewrite()
            if op is None:
                baselines.memcpy(baselines.copies(arrays))
            else:
                reduction.by_numpy(arrays)
            assert sum(map(timing.count_unequal, arrays.results, expected)) == 0


@pytest.mark.parametrize(
    ("collective", "count", "redop", "root", "factor"),
    [
        ("all_reduce", 3072, "sum", "-1", 4 / 3),
        ("reduce_scatter", 1024, "sum", "-1", 2 / 3),
        ("all_gather", 1024, "none", "-1", 2 / 3),
        ("all_to_all", 1024, "none", "-1", 2 / 3),
        ("gather", 1024, "none", "2", 2 / 3),
        ("scatter", 1024, "none", "2", 2 / 3),
        ("broadcast", 3072, "none", "2", 1),
        ("reduce", 3072, "sum", "2", 1),
    ],
)
def test_counts_roots_and_bus_bandwidths_are_those_of_nccl_tests(collective, count, redop, root, factor):
    arguments = ["-r", root] if root != "-1" else []
    lines = run("bench", collective, "-n", "3", "-b", "12300", "--rounds", "2", "--nccl", *arguments)[0].splitlines()
    (line,) = (line for line in lines if not line.startswith("#"))
    cells = line.split()
    nbytes = 12300 if count == 3072 else 3 * 4096
    assert cells[:5] == [str(nbytes), str(nbytes // 4 if count == 3072 else count), "float", redop, root]
    *_, wrong = cells[5:9]
    assert wrong == "0" and cells[12] == ("N/A" if collective == "all_to_all" else "0")
    assert float(cells[7]) == pytest.approx(factor * float(cells[6]), abs=0.02)


def test_a_line_on_a_terminal_says_what_is_timed():
    arguments = ["bench", "-n", "2", "-b", "1M", "--rounds", "4", "-a", "ring"]
    ours, theirs = pty.openpty()
    settings = {**os.environ, "COLUMNS": "60", "TERM": "xterm-256color"}
    process = subprocess.Popen([*PROGRAM, *arguments], stdout=theirs, stderr=theirs, env=settings)
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError as error:
            assert error.errno == errno.EIO
            break
        if not piece:
            break
        text += piece
    os.close(ours)
    assert process.wait(timeout=100) == 0
    assert "timing 1 MiB, round 0 of 4" in text.decode()


def test_sizes_are_a_list_or_a_sweep_that_multiplies():
    assert sizes.of(["4K", "1K", "4096"], None, None, ()) == [4096, 1024]
    assert sizes.of(["8"], "64", None, ()) == [8, 16, 32, 64]
    assert sizes.of(["1"], "4", 1.1, ()) == [1, 2, 3, 4], "a factor near 1 still grows"
    assert sizes.of(None, None, None, [7]) == [7]


def test_csv_has_a_row_for_each_size_and_each_algorithm_or_baseline():
    printed = run("bench", "reducescatter", "-n", "2", "-b", "1K", "-b", "4K", "--rounds", "2", "-a", "ring", "--csv")[
        0
    ]
    rows = list(csv.DictReader(printed.splitlines()))
    assert [(row["nbytes"], row["name"]) for row in rows] == [
        (n, of) for n in ("1024", "4096") for of in ("ring", "numpy")
    ]
    for row in rows:
        assert (row["collective"], row["world_size"], row["op"]) == ("reduce_scatter", "2", "sum")
        assert float(row["low_us"]) <= float(row["median_us"]) <= float(row["high_us"])
        assert row["wrong"] == ("0" if row["name"] == "ring" else "")
