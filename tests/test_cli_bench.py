"""`nvcoll bench`: what it times, what it prints beside it, its sizes and its formats."""

import errno
import functools
import json
import os
import pty
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from command_line import PROGRAM, file_of_mine, refused, run
from process_ranks import Job

import nvcoll
from nvcoll.cli import sizes
from nvcoll.cli.bench import process_cases
from nvcoll.cli.bench import tables as bench_tables
from nvcoll.cli.bench.timing import Case, Reduction, baselines_of
from nvcoll.cli.operands import CAN_BE_IN_PLACE, FOLDS, HAS_ROOT

ALGORITHMS = [row.name for row in nvcoll._nvcoll.algorithms() if row.collective == "all_reduce"]
TIMED = [row.name for row in nvcoll._nvcoll.collectives() if nvcoll._nvcoll.bus_factor(row.name, 2) > 0]
DOCUMENTED = (Path(__file__).parent.parent / "docs" / "json.md").read_text()


@pytest.fixture
def mine(tmp_path):
    return file_of_mine(tmp_path)


@pytest.fixture
def bench_json():
    return json.loads(run("bench", "-n", "3", "-b", "1000", "--rounds", "3", "--json")[0])


@pytest.mark.parametrize("option", ["-d", "--datatype", "--dtype"])
def test_a_dtype_has_the_options_of_explain(option):
    assert "float16" in run("bench", "-n", "2", "-b", "1K", "--rounds", "1", "-a", "ring", option, "float16")[0]
    assert "float16" in run("explain", "all_reduce", "-n", "2", "--rounds", "0", option, "float16")[0]


def test_bench_prints_every_algorithm_beside_numpy_and_the_roofline_and_nothing_is_wrong():
    text, stderr = run("bench", "all_reduce", "-n", "3", "-b", "4K", "-b", "1000", "--rounds", "3")
    assert stderr == "", "there is no progress bar where there is no terminal"
    lines = text.splitlines()
    head = lines[2].split()
    assert set(head) >= {"size", *ALGORITHMS, "numpy", "roofline", "#wrong"}
    assert "nvswitch vs numpy" in lines[2] and "nvswitch of roofline" in lines[2]
    assert [line.split()[0] for line in lines[3:5]] == ["4", "1000"] and all(line.endswith(" 0") for line in lines[3:5])
    assert re.search(r"\d+\.\dx \(\d+\.\d-\d+\.\d\)", lines[3]), "medians come with their quartiles"
    assert [line.split()[0] for line in lines[5:]] == ["why", "bits", "with", "spread", "next"]
    assert "nvswitch 2.0 N (the least possible)" in text and "functools.reduce" in text


def test_bench_says_the_order_that_was_proved_at_this_world_size():
    def bits(ranks):
        text, _ = run("bench", "-n", str(ranks), "-b", "256", "--rounds", "1", "-a", "nvswitch", "-a", "two_level")
        return next(line for line in text.splitlines() if line.startswith("bits"))

    assert "two_level, nvswitch = functools.reduce" in bits(8) and "folds of folds" not in bits(8)
    assert "two_level: folds of folds" in bits(12)


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


def test_bench_does_not_time_what_is_refuted_and_names_the_command_that_says_why(mine):
    stdout, stderr = run("bench", "-n", "2", "-b", "1K", "-a", f"{mine}:lazy", status=1)
    command = shlex.split(stderr.splitlines()[-1].removeprefix("nvcoll: see "))
    assert stdout == "" and command[0] == "nvcoll"
    assert "refuted" in run(*command[1:], status=1)[0]


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


def test_bench_in_the_columns_of_nccl_tests():
    """Names, order and widths are those of nccl-tests: 10 (12 in rows), 12, 8, 6, 6, and twice 7, 6, 6, 6."""
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


def test_json_holds_the_documented_keys_and_no_other(bench_json):
    def keys(value):
        names_of_things = {*ALGORITHMS, "numpy", "roofline"}
        if isinstance(value, dict):
            yield from (key for key in value if key not in names_of_things)
            value = value.values()
        if not isinstance(value, str):
            for inner in value if hasattr(value, "__iter__") else ():
                yield from keys(inner)

    documented = set(re.findall(r"`(\w+)`", DOCUMENTED.split("## nvcoll bench")[1]))
    assert set(keys(bench_json)) == documented
    assert bench_json["schema"] == bench_tables.JSON_SCHEMA and f"`{bench_tables.JSON_SCHEMA}`" in DOCUMENTED


def test_json_holds_every_round_and_its_quartiles(bench_json):
    (row,) = bench_json["rows"]
    assert (row["bytes"], row["count"], bench_json["rounds"]) == (1000, 250, 3)
    assert set(row["seconds"]) == {*ALGORITHMS, "numpy", "roofline"} and set(row["wrong"]) == set(ALGORITHMS)
    for name, seconds in row["seconds"].items():
        low, high = row["quartile_seconds"][name]
        assert len(seconds) == 3 and low <= row["median_seconds"][name] <= high
        assert row["median_seconds"][name] == sorted(seconds)[1]
    assert set(row["wrong"].values()) == {0}


def test_a_wrong_element_is_counted_said_and_status_1(monkeypatch, capsys):
    from nvcoll.cli.bench import bench, timing

    class Broken(timing.Candidate):
        def run(self, is_counted):
            if self.expected is not None:
                self.expected = [x + 1 for x in self.expected]
            super().run(is_counted)

    monkeypatch.setattr(timing, "Candidate", Broken)
    with pytest.raises(bench.typer.Exit) as ended:
        bench.bench("all_reduce", ranks=2, begin=["40"], algorithm=["ring"], rounds=1)
    assert ended.value.exit_code == 1
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
    assert [(row["bytes"], row["count"]) for row in document["rows"]] == [(1000, 250), (4, 1)]
    for row in document["rows"]:
        assert set(row["seconds"]) == names | set(document["baselines"])
        assert row["wrong"] == dict.fromkeys(names, 0)
    lines = run(*arguments, "-a", "auto")[0].splitlines()
    assert lines[0].startswith(f"{collective}  ") and all(line.endswith(" 0") for line in lines[3:5])


@pytest.mark.parametrize("collective", TIMED)
def test_a_baseline_gives_what_the_collective_promises(collective):
    """For float32 sums in rank order numpy's loop gives the oracle's bits, as a memcpy does: of one thread or two."""
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
            for threads in (1, 2) if op is None else (1,):
                arrays.rewrite()
                if op is None:
                    memcpy = baselines.Memcpy(baselines.copies(arrays), threads)
                    memcpy()
                    memcpy.close()
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


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_plot_is_drawn(tmp_path, suffix):
    pytest.importorskip("matplotlib")
    file = tmp_path / f"bench.{suffix}"
    _, stderr = run("bench", "-n", "2", "-b", "1K", "-b", "2K", "--rounds", "2", "-a", "ring", "--plot", str(file))
    assert str(file) in stderr
    head = file.read_bytes()[:100]
    assert head.startswith(b"\x89PNG") if suffix == "png" else b"<?xml" in head


def test_the_progress_bar_is_drawn_on_a_terminal_only_and_without_colour_if_asked():
    for no_color in ({}, {"NO_COLOR": "1"}):
        text = on_terminal("bench", "-n", "2", "-b", "1M", "--rounds", "4", "-a", "ring", columns=60, **no_color)
        assert "timing" in text and "100%" in text
        assert ("\x1b[3" in text or "\x1b[9" in text) == (not no_color)


def on_terminal(*arguments, columns, **environment):
    """Runs the command with a pseudo-terminal as stdout and stderr."""
    ours, theirs = pty.openpty()
    settings = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color", **environment}
    if "NO_COLOR" not in environment:
        settings.pop("NO_COLOR", None)
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
    return text.decode()


def test_without_matplotlib_a_plot_is_refused_before_anything_is_timed(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    message = refused("bench", "--plot", str(tmp_path / "bench.svg"), env={**os.environ, "PYTHONPATH": path})
    assert "pip install 'nvcoll[bench]'" in message


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("4096", 4096),
        ("64K", 65536),
        ("64k", 65536),
        ("16MiB", 2**24),
        ("1.5G", 3 * 2**29),
        ("140GB", 140 * 10**9),
        ("8B", 8),
    ],
)
def test_sizes_are_binary_as_in_nccl_tests_and_decimal_with_a_b(text, nbytes):
    assert sizes.parse(text) == nbytes


def test_sweeps_multiply_or_add():
    assert list(sizes.sweep(8, 64, None, None)) == [8, 16, 32, 64]
    assert list(sizes.sweep(8, 40, None, 16)) == [8, 24, 40]
    assert list(sizes.sweep(1, 4, 1.1, None)) == [1, 2, 3, 4], "a factor near 1 still grows"


# ranks that are processes


@pytest.fixture(scope="module")
def job():
    if not hasattr(os, "pidfd_open"):
        pytest.skip("ranks are processes on Linux only")
    with Job(3) as job:
        yield job


def timed_job(collective, memory, *, op="sum", algorithms=("auto",), root=0):
    """A job of `nvcoll bench` with both forms of calls, as in the columns of nccl-tests, and the baselines."""
    reduction = Reduction("float32", op if FOLDS[collective] else None, 3)
    chosen = functools.partial(dict, {name: name for name in algorithms})
    columns = [("in" if form else "out", form) for form in {False, CAN_BE_IN_PLACE[collective]}]
    return process_cases.Job(collective, reduction, root, memory, chosen, columns, has_baselines=True)


@pytest.mark.parametrize("memory", ["private", "symmetric"])
@pytest.mark.parametrize("collective", TIMED)
def test_every_collective_is_timed_between_processes_and_nothing_is_wrong(job, collective, memory):
    one = timed_job(collective, memory, root=int(HAS_ROOT[collective]))
    first, *others = job.run(functools.partial(process_cases._times, job=one, counts=[100, 3], rounds=2))
    assert others == [first, first], "ranks agree"
    for times in first:
        assert set(times) == {column for column, _ in one.columns} | set(baselines_of(collective))
        assert all(len(seconds) == 2 and min(seconds) > 0 and wrong == 0 for seconds, wrong in times.values())


def with_a_flaw(comm, one):
    """Times a job in which the oracle of the last rank is told another first element, in every call."""
    known = process_cases.distinct

    def flawed(expected, *others):
        expected[0] += comm.rank == 2
        return known(expected, *others)

    process_cases.distinct = flawed
    try:
        return process_cases._times(comm, one, [5], 3)
    finally:
        process_cases.distinct = known


def test_a_wrong_element_of_any_process_is_counted(job):
    one = timed_job("all_reduce", "private", op="premul_sum", algorithms=("ring",))
    for (times,) in job.run(functools.partial(with_a_flaw, one=one)):
        assert {name: wrong for name, (_, wrong) in times.items()} == {"in": 4, "out": 4, "numpy": 0, "roofline": 0}


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="ranks are processes on Linux only")
@pytest.mark.parametrize(("option", "memory"), [("--processes", "private"), ("--symmetric", "symmetric")])
def test_the_table_of_processes_is_that_of_threads_and_says_what_memory_is_timed(mine, option, memory):
    arguments = ["bench", "-n", "2", "-b", "1000", "--rounds", "2", "-a", "nvswitch", "-a", f"{mine}:ring"]
    threads, processes = (run(*arguments, *options)[0].splitlines() for options in ([], [option]))
    assert "2 thread ranks" in threads[0] and "2 process ranks on " in processes[0]
    assert f", {memory} arrays" in processes[0]
    assert threads[2].split() == processes[2].split() and processes[3].endswith(" 0")
    moved = "nvswitch 2.0 N" if memory == "symmetric" else "nvswitch 4.0 N"
    assert moved in next(line for line in processes if line.startswith("why"))
    document = json.loads(run(*arguments, option, "--json")[0])
    assert (document["processes"], document["memory"]) == (True, memory)


def test_tables_of_auto_are_not_fitted_to_processes():
    assert "--tune is for thread ranks" in refused("bench", "--tune", "--processes", "-n", "2")
