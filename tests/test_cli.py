"""The command line, as a user types it: what it prints, what it refuses, and the status with which it ends."""

import errno
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import PROGRAM, refused, run

import nvcoll
from nvcoll.cli import sizes, tables
from nvcoll.cli.timing import Case, Reduction

ALGORITHMS = [name for collective, name, *_ in nvcoll._nvcoll.algorithms() if collective == "all_reduce"]
TIMED = [name for name, *_ in nvcoll._nvcoll.collectives() if nvcoll._nvcoll.bus_factor(name, 2) > 0]
DOCUMENTED = (Path(__file__).parent.parent / "docs" / "cli.md").read_text()

MINE = """
import nvcoll

@nvcoll.algorithm("all_reduce")
def ring(b):
    n = b.world_size
    for c in b.chunks(n):
        x = b.input(c, c)
        for hop in range(1, n):
            r = (c + hop) % n
            x = b.fold(x, b.input(r, c), into=b.output(r, c))
        for hop in range(n, 2 * n - 1):
            x = b.copy(x, into=b.output((c + hop) % n, c))

@nvcoll.algorithm("all_reduce")
def lazy(b):
    b.copy(b.input(0, 0), into=[b.output(r, 0) for r in range(b.world_size)])

@nvcoll.algorithm("all_gather")
def other(b):
    pass

@nvcoll.algorithm("all_reduce")
def outside(b):
    b.copy(b.input(0, 0), into=b.output(99, 0))

@nvcoll.algorithm("all_reduce")
def raising(b):
    raise LookupError("no such\\nthing")

def plain(b):
    pass

@nvcoll.algorithm("all_reduce")
def grouped(b, per_node=8, missing=0):
    whole = b.reduce_scatter(b.inputs, over=b.groups(per_node), algorithm="nvswitch")
    total = b.all_reduce(whole, over=b.groups(stride=per_node), algorithm="ring")
    ranks = [group[missing:] + group[:missing] for group in b.groups(per_node)]
    if not missing:
        b.all_gather(total, into=b.outputs, over=ranks)
"""


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "mine of two words.py"
    file.write_text(MINE)
    return str(file)


@pytest.fixture
def bench_json():
    return json.loads(run("bench", "-n", "3", "-b", "1000", "--rounds", "3", "--json")[0])


def test_bare_it_says_what_there_is_and_three_things_to_try():
    text, _ = run()
    assert len(text.splitlines()) == 8
    tried = re.findall(r"(nvcoll (?:bench|show|verify).*?)(?:  |$)", text, re.MULTILINE)
    assert len(tried) == 3
    for command in tried:
        run(*shlex.split(command)[1:3], "--help")


def test_the_installed_command_is_the_same_program():
    script = Path(sys.executable).parent / "nvcoll"
    if not script.exists():
        pytest.skip("the package is not installed, only importable")
    assert subprocess.run([script, "--version"], capture_output=True, text=True).stdout == run("--version")[0]


def test_help_names_every_status():
    text, _ = run("--help")
    assert all(word in text for word in ("0 done or proved", "1 refuted", "130 interrupted"))


# bench


def test_bench_prints_every_algorithm_beside_numpy_and_the_roofline_and_nothing_is_wrong():
    text, stderr = run("bench", "all_reduce", "-n", "3", "-b", "4K", "-b", "1000", "--rounds", "3")
    assert stderr == "", "there is no progress bar where there is no terminal"
    lines = text.splitlines()
    head = lines[2].split()
    assert set(head) >= {"size", *ALGORITHMS, "numpy", "roofline", "#wrong"}
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
    names = [name for name, *_ in (*nvcoll._nvcoll.dtypes(), *nvcoll._nvcoll.ops())]
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


def test_the_command_that_a_violation_prints_keeps_the_parameters(mine):
    refuted = run("verify", f"{mine}:grouped(per_node=2, missing=1)", "-n", "4", status=1)[0].splitlines()
    assert "grouped(per_node=2,missing=1)" in run_printed(refuted[-1]).splitlines()[0]
    _, stderr = run("bench", "-n", "4", "-b", "1K", "-a", f"{mine}:grouped(per_node=2, missing=1)", status=1)
    command = shlex.split(stderr.splitlines()[-1].removeprefix("nvcoll: see "))
    assert "grouped(per_node=2,missing=1)" in run(*command[1:], status=1)[0]


def test_bench_does_not_time_what_is_refuted_and_names_the_command_that_says_why(mine):
    stdout, stderr = run("bench", "-n", "2", "-b", "1K", "-a", f"{mine}:lazy", status=1)
    command = shlex.split(stderr.splitlines()[-1].removeprefix("nvcoll: see "))
    assert stdout == "" and command[0] == "nvcoll"
    assert "refuted" in run(*command[1:], status=1)[0]


def test_the_command_that_says_why_names_the_root(tmp_path):
    file = tmp_path / "rooted.py"
    file.write_text('import nvcoll\n@nvcoll.algorithm("broadcast")\ndef lazy(b):\n    pass\n')
    stderr = run("bench", "broadcast", "-n", "3", "-b", "1K", "-r", "1", "-a", f"{file}:lazy", status=1)[1]
    command = shlex.split(stderr.splitlines()[-1].removeprefix("nvcoll: see "))
    assert command[-2:] == ["--root", "1"]
    assert "it must be r1" in run(*command[1:], status=1)[0]


def test_auto_is_timed_as_auto_and_what_it_takes_is_named():
    text = run("bench", "all_reduce", "-n", "8", "-b", "64", "-b", "1M", "-a", "auto", "--rounds", "2")[0]
    node = nvcoll.Node(8)
    taken = [node.estimates("all_reduce", count, path="mapped")[0] for count in (16, 1 << 18)]
    assert f"auto    takes {taken[0]} at 64 B, {taken[1]} at 1 MiB" in text and "auto vs numpy" in text
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
    assert "unsteady" not in tables._beside(case, "numpy", "ring")
    assert tables._beside(case, "roofline", "ring").endswith(" unsteady")


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
        assert float(algbw) == pytest.approx(int(size) / float(time) / 1e3, abs=0.01 + 0.01 * float(algbw))
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

    documented = set(re.findall(r"^\| `(\w+)` \|", DOCUMENTED.split("--json holds")[1], re.MULTILINE))
    assert set(keys(bench_json)) == documented
    assert bench_json["schema"] == tables.JSON_SCHEMA and f"`{tables.JSON_SCHEMA}`" in DOCUMENTED


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
    from nvcoll.cli import bench, timing

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
    from nvcoll.cli import timing

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
    from nvcoll.cli import operands, timing

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
    names = {name for of, name, *_ in nvcoll._nvcoll.algorithms() if of == collective}
    folds = {name: folds != "nothing" for name, *_, folds in nvcoll._nvcoll.collectives()}[collective]
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
    from nvcoll.cli import baselines, operands, timing

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


def test_sentences_are_wrapped_on_a_narrow_terminal():
    text = on_terminal("bench", "-n", "2", "-b", "1K", "--rounds", "2", "-a", "ring", columns=50)
    prose = text.replace("\r", "").split("\nwhy ")[1].splitlines()
    assert max(map(len, prose)) <= 50


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


# verify and show


def test_verify_proves_names_files_and_text(mine, tmp_path):
    assert "proved" in run("verify", "all_reduce", "ring", "-n", "5")[0]
    assert "every element is (r0 + r1 + r2)" in run("verify", "all_reduce", "nvswitch", "-n", "3")[0]
    assert "order    own, of each chunk:" in run("verify", "all_reduce", "ring", "-n", "3")[0]
    assert "at the last rank every element is (r0 + r1)" in run("verify", "exscan", "-n", "3")[0]
    assert "order    none, chunks are copied:\nchunk 0  r1\n" in run("verify", "scatter", "-n", "3", "--root", "1")[0]
    assert "proved" in run("verify", f"{mine}:ring", "-n", "4", "--path", "staged", "--out-of-place")[0]
    text = tmp_path / "ring.txt"
    text.write_text(run("show", "all_reduce", "ring", "-n", "3", "--path", "staged")[0])
    assert "proved   all_reduce ring, 3 ranks, staged" in run("verify", str(text))[0]


def test_a_collective_may_stand_before_a_file_that_is_of_it(mine, tmp_path):
    assert "proved   all_reduce ring, 3 ranks" in run("verify", "all_reduce", f"{mine}:ring", "-n", "3")[0]
    text = tmp_path / "ring.txt"
    text.write_text(run("show", "all_reduce", f"{mine}:ring", "-n", "3", "--path", "mapped")[0])
    assert "proved   all_reduce ring, 3 ranks" in run("verify", "all_reduce", str(text))[0]
    assert f"`{mine}:ring` is of all_reduce: leave out `all_gather`" in refused("verify", "all_gather", f"{mine}:ring")


@pytest.mark.parametrize("collective", ["barrier", "split"])
def test_what_moves_no_data_is_explained_in_a_sentence(collective):
    text = run("explain", collective)[0]
    assert "auto takes direct: it is the only algorithm, and no data is moved" in text
    assert run("show", collective)[0]


def test_verify_all_proves_every_algorithm():
    text, _ = run("verify", "--all")
    assert all(
        re.search(rf"proved  {collective} +{name} ", text) for collective, name, *_ in nvcoll._nvcoll.algorithms()
    )


def test_a_violation_names_both_steps_what_is_missing_and_a_command_that_shows_them(tmp_path):
    text = tmp_path / "racy.txt"
    ring = run("show", "all_reduce", "ring", "-n", "2", "--path", "mapped")[0]
    text.write_text(ring.replace("after r1.enter r1.q0.0", "after r1.enter"))
    refuted = run("verify", str(text), status=1)[0].splitlines()
    assert [line.split()[0] for line in refuted] == ["refuted", "step", "step", "missing", "show"]
    assert refuted[1].split()[1] == "r0.q1.0" and refuted[2].split()[1] == "r1.q0.0"
    assert refuted[3].split()[1:] == ["r0.q1.0", "after", "r1.q0.0"]
    shown = run_printed(refuted[4])
    assert all(line.split(maxsplit=1)[1] in " ".join(shown.split()) for line in refuted[1:3])


@pytest.mark.parametrize(
    "options", [(), ("--path", "staged"), ("--out-of-place",), ("--path", "staged", "--out-of-place")]
)
def test_the_command_that_a_violation_prints_works_when_typed(mine, options):
    refuted = run("verify", f"{mine}:lazy", "-n", "3", *options, status=1)[0].splitlines()
    assert [line.split()[0] for line in refuted] == ["refuted", "step", "missing", "show"]
    assert refuted[2].endswith("the contributions of r1, r2")
    step = refuted[1].split(maxsplit=1)[1]
    assert step in " ".join(run_printed(refuted[3]).split())


def run_printed(line):
    label, program, *arguments = shlex.split(line)
    assert (label, program) == ("show", "nvcoll")
    return run(*arguments)[0]


def test_show_prints_before_and_after_lowering_with_dependencies_and_draws(tmp_path):
    file = tmp_path / "ring.svg"
    text, stderr = run("show", "all_reduce", "ring", "-n", "3", "--svg", str(file))
    before, after = text.split("\n\n")
    assert "path mapped" in before and "path staged" in after and "staging0[r" in after and "staging" not in before
    assert "after r0.enter r0.q1.1" in before and "@2" in after
    assert before.endswith("waits 5 on the longest chain")
    assert file.read_text().count('class="step"') == 12 and str(file) in stderr


def test_a_file_with_both_schedules_of_show_is_told_apart_from_one(tmp_path):
    file = tmp_path / "ring.txt"
    file.write_text(run("show", "all_reduce", "ring")[0] + "\n")
    assert "holds 2 schedules: print one" in refused("verify", str(file))
    file.write_text(run("show", "all_reduce", "ring", "--path", "staged")[0] + "\n")
    assert run("verify", str(file))[0].startswith("proved")


def test_a_terminal_that_knows_only_ascii_gets_question_marks():
    text, _ = run("verify", "all_reduce", "ring", "-n", "128", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert "(? r0 + r1" in text


def test_a_long_expression_is_shortened():
    assert max(map(len, run("verify", "all_reduce", "ring", "-n", "128")[0].splitlines())) < 200


# algorithms


def test_algorithms_prints_every_row_of_the_registry_with_its_cost():
    lines = run("algorithms", "-n", "5")[0].splitlines()
    can_be_in_place = {name: can for name, _, _, can, *_ in nvcoll._nvcoll.collectives()}
    for collective, name, order, summary, source in nvcoll._nvcoll.algorithms():
        rows = [re.split(r" {2,}", line) for line in lines if line.split()[:3] == [collective, name, order]]
        assert rows[0][-1] == f"{summary}; {source}"
        for path in ("mapped", "staged"):
            for in_place in (True, False) if can_be_in_place[collective] else (False,):
                calls = (path, f"{path}, {'in place' if in_place else 'out of place'}")
                (row,) = [row for row in rows if row[3] in calls]
                schedule = nvcoll.schedule(collective, name, world_size=5, path=path, in_place=in_place)
                moved, waits = schedule.cost()
                assert row[4].split()[0] == (f"{moved:.2f}" if schedule.chunks else "-")
                assert row[5:7] == [str(waits), str(len(schedule.steps))]


def test_algorithms_of_one_collective_as_a_table_and_as_json():
    names = [name for collective, name, *_ in nvcoll._nvcoll.algorithms() if collective == "all_reduce"]
    table, _ = run("algorithms", "all_reduce")
    assert "barrier" not in table and all(f"all_reduce  {name} " in table for name in names)
    document = json.loads(run("algorithms", "all_reduce", "-n", "4", "--json")[0])
    assert (document["schema"], document["ranks"]) == ("nvcoll.algorithms/1", 4)
    assert [row["algorithm"] for row in document["algorithms"]] == names
    ring = next(row for row in document["algorithms"] if row["algorithm"] == "ring")
    cost = {"path": "mapped", "in_place": True, "moved": 3.75, "busiest": 3.75, "waits": 7, "steps": 24}
    assert cost in ring["costs"] and len(ring["costs"]) == 4
    keys = {*document, *ring, *cost}
    described = DOCUMENTED.split("Of `nvcoll algorithms`")[1].split("Of `nvcoll bench`")[0]
    assert keys == {word for word in re.findall(r"`(\w+)`", described)}


def test_algorithms_as_markdown_is_the_page():
    page = (Path(__file__).parent.parent / "docs" / "ALGORITHMS.md").read_text()
    assert run("algorithms", "--markdown")[0] == page


# info


def test_info_says_what_the_machine_is_and_why_the_defaults_are_what_they_are():
    text, _ = run("info")
    facts = nvcoll._nvcoll.machine()
    assert facts["isa"] in text and f"{facts['usable_cpus']} of" in text
    assert all(nvcoll.Node(2, isa=name) for name in facts["isas"]) and ", ".join(facts["isas"]) in text
    for label in ("cpu", "usable", "caches", "kernels", "workers", "seats", "auto", "path"):
        assert re.search(rf"^{label} ", text, re.MULTILINE), label
    assert "pinned" in text or facts["usable_cpus"] == 1


# what cannot be done


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("verify", "all_reduce", "rong"), "no all_reduce algorithm is called `rong`: choose from nvswitch"),
        (("verify", "all_rong", "ring"), "choose from all_reduce"),
        (("verify", "all_reduce", "ring", "--path", "up"), "choose from mapped, staged, pushed"),
        (("verify",), "name a collective (all_reduce, "),
        (("show",), "name a collective (all_reduce, "),
        (("explain",), "name a collective (all_reduce, "),
        (("explain", "all_rong"), "choose from all_reduce"),
        (("verify", "--all", "all_reduce"), "leave out `all_reduce`"),
        (("verify", "--all", "-n", "4"), "leave out -n"),
        (("verify", "nothing.py:f"), "is not a file"),
        (("verify", "nothing.txt"), "cannot be read"),
        (("show", "all_reduce", "ring", "-n", "0"), "1 to 1024"),
        (("show", "all_reduce", "ring", "-n", "2000"), "1 to 1024"),
        (("show", "all_reduce", "ring", "-n", "two"), "integer"),
        (("show", "all_reduce", "ring", "--svg", "nowhere/ring.svg"), "No such file or directory"),
        (("show", "all_reduce", "ring", "--svg", "ring.png"), "end it in .svg"),
        (("bench", "all_reduce", "-n", "0"), "1 to 1024"),
        (("bench", "all_reduce", "-n", "2000"), "1 to 1024"),
        (("bench", "barrier"), "moves no data"),
        (("bench", "all_gather", "-o", "sum"), "folds nothing: leave out -o"),
        (("bench", "all_gather", "-r", "0"), "has no root: leave out --root"),
        (("bench", "broadcast", "-n", "2", "-r", "2"), "ranks are 0 to 1"),
        (("bench", "scan", "-o", "avg"), "scan has sum"),
        (("bench", "all_gather", "-n", "3", "-b", "47", "--nccl"), "pass at least 48"),
        (("bench", "all_rong"), "is not a collective"),
        (("bench", "all_reduce", "-a", "rong"), "no all_reduce algorithm is called `rong`: choose from nvswitch"),
        (("bench", "all_reduce", "-b", "lots"), "is not a size"),
        (("bench", "all_reduce", "-b", "9" * 400), "more than any machine has"),
        (("bench", "all_reduce", "-b", "2"), "less than one float32"),
        (("bench", "all_reduce", "-b", "1K", "-e", "1M", "-f", "1"), "only by a factor above 1"),
        (("bench", "all_reduce", "-b", "1K", "-e", "1M", "-f", "inf"), "only by a factor above 1"),
        (("bench", "all_reduce", "-b", "1K", "-e", "1G", "-i", "4"), "more than 1000 sizes"),
        (("bench", "all_reduce", "-b", "1K", "-f", "2"), "pass -e"),
        (("bench", "all_reduce", "-n", "1000", "-b", "1000G"), "use fewer ranks or a smaller size"),
        (("bench", "all_reduce", "-d", "float9"), "choose from float32"),
        (("bench", "all_reduce", "-o", "median"), "choose from sum"),
        (("bench", "all_reduce", "-d", "int32", "-o", "avg"), "is not defined on int32"),
        (("bench", "all_reduce", "--rounds", "0"), "'--rounds'"),
        (("bench", "all_reduce", "--nccl", "--json"), "pass one of them"),
        (("bench", "all_reduce", "--nccl", "-a", "ring", "-a", "tree"), "pass -a once"),
        (("bench", "all_reduce", "--plot", "nowhere/bench.svg"), "is not a directory"),
        (("bench", "all_reduce", "--plot", "bench.doc"), "end it in .svg"),
        (("bench", "--rong"), "--rong"),
        (("algorithms", "all_rong"), "choose from all_reduce"),
        (("algorithms", "-n", "0"), "1 to 1024"),
        (("algorithms", "all_reduce", "--markdown"), "prints the whole page"),
        (("rong",), "choose from bench"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_is_one_line_and_status_2(arguments, message):
    assert message in refused(*arguments)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (":nothing", "no algorithm `nothing`: it has ring, lazy"),
        (":plain", "`plain`, a function"),
        (":", "names no algorithm"),
        ("", "names no algorithm"),
        (":outside", ":25: rank 99"),
        (":raising", ":29: LookupError: no such thing"),
        (":grouped(per_node=3)", ":36: groups of 3 do not divide 4 ranks"),
        (":grouped(per_nod=3)", "grouped has no parameter `per_nod`: it takes per_node=8, missing=0"),
        (":grouped(per_node='3')", "`per_node` of grouped is '3': it must be a whole number"),
        (":grouped(3)", "`(3)` cannot be read: write (name=value, ..)"),
        (":grouped(per_node=nodes())", "cannot be read"),
        (":grouped(**{'per_node': 3})", "cannot be read"),
        (":grouped(per_node=3", "is not a file: write FILE.py:FUNCTION"),
        (":ring(per_node=3)", "ring has no parameter `per_node`: it takes none"),
    ],
)
@pytest.mark.parametrize("command", [("verify",), ("show",), ("bench", "-b", "1K", "-a")], ids=" ".join)
def test_what_is_wrong_in_a_file_is_said_with_its_line(mine, command, function, message):
    assert message in refused(*command, f"{mine}{function}", "-n", "4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", ":1: SyntaxError"),
        ("\nimport nothing_of_the_kind\n", ":2: ModuleNotFoundError"),
        ("exit(3)\n", ":1:"),
    ],
)
def test_a_file_that_cannot_be_run_is_one_line_with_its_line(tmp_path, text, message):
    file = tmp_path / "broken.py"
    file.write_text(text)
    assert message in refused("verify", f"{file}:f")


def test_an_algorithm_of_another_collective_is_not_timed(mine):
    assert "is an algorithm of all_gather" in refused("bench", "-b", "1K", "-a", f"{mine}:other")


@pytest.mark.parametrize("text", [b"", b"hello", b"\xff\xfe", b"schedule all_reduce x  world_size 2"])
def test_a_text_that_is_no_schedule_is_refused(tmp_path, text):
    file = tmp_path / "schedule.txt"
    file.write_bytes(text)
    assert str(file) in refused("show", str(file))


def test_options_that_a_text_file_would_ignore_are_refused(tmp_path):
    file = tmp_path / "ring.txt"
    file.write_text(str(nvcoll.schedule("all_reduce", "ring", world_size=2)))
    for options in (("-n", "2"), ("--path", "mapped"), ("--out-of-place",)):
        assert "is one schedule" in refused("verify", str(file), *options)


def test_without_matplotlib_a_plot_is_refused_before_anything_is_timed(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    message = refused("bench", "--plot", str(tmp_path / "bench.svg"), env={**os.environ, "PYTHONPATH": path})
    assert "pip install 'nvcoll[bench]'" in message


# how it ends


@pytest.mark.parametrize(
    "arguments", [("show", "all_reduce", "ring", "-n", "64"), ("verify", "--all"), ("info",)], ids=" ".join
)
def test_when_the_reader_goes_away_it_ends_quietly(arguments):
    process = subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=100) == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (2, f"nvcoll: {os.strerror(errno.ENOSPC)}\n")


def test_ctrl_c_ends_a_bench_with_130():
    arguments = ["bench", "-n", "2", "-b", "16M", "--rounds", "100000", "-a", "ring"]
    ours, theirs = pty.openpty()  # the bar says when it has begun
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # also where the tests ignore it
    with subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=theirs, **heard) as process:
        os.close(theirs)
        while b"16 MiB" not in os.read(ours, 1 << 16):
            pass
        process.send_signal(signal.SIGINT)
        stdout = process.stdout.read()
        rest = b""
        while piece := read_or_nothing(ours):
            rest += piece
        assert process.wait(timeout=60) == 130
    os.close(ours)
    assert stdout == b"" and b"Traceback" not in rest


def read_or_nothing(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


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


def test_show_and_verify_take_a_root():
    shown = run("show", "broadcast", "direct", "-n", "3", "--root", "2")[0]
    assert "output[r0].0 = input[r2].0" in shown and "root 2" in shown
    proved = run("verify", "gather", "-n", "5", "--root", "3")[0]
    assert "gather direct, 5 ranks, root 3, mapped, in place" in proved
    assert "all_reduce has no root" in refused("verify", "all_reduce", "--root", "3")
