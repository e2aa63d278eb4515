"""The command line, as a user types it: what there is, what it refuses, and the status with which it ends."""

import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from command_line import PROGRAM, refused, run

import nvcoll
from nvcoll.cli import hints
from nvcoll.cli.info import info

COMMANDS = [name for commands in nvcoll.cli.COMMANDS.values() for name in commands]
ALGORITHMS = [row.name for row in nvcoll._nvcoll.algorithms() if row.collective == "all_reduce"]


def test_bare_it_lists_every_command_by_purpose():
    text, _ = run(env={**os.environ, "COLUMNS": "100"})
    places = [text.index(f" {purpose} ─") for purpose in nvcoll.cli.COMMANDS]
    assert places == sorted(places) and all(f"│ {command} " in text for command in COMMANDS)
    assert text.index("│ plan ") < text.index("│ dryrun ") < text.index("│ predict ")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example(command):
    text, _ = run(command, "--help", env={**os.environ, "COLUMNS": "200"})
    assert f"Example: nvcoll {command}" in text


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("bench", "-g", "8"), "pass -n RANKS"),
        (("plan", "llama3-8b", "--gpus", "8"), "pass -n RANKS"),
        (("dryrun", "--ranks", "8", "x.py"), "pass -n RANKS"),
        (("predict", "all_reduce", "-n", "16"), "pass --on hgx-h100x2+ib-ndr-8"),
        (("predict", "all_reduce", "--world-size", "16"), "pass --on hgx-h100x2+ib-ndr-8"),
        (("predict", "all_reduce", "--algo", "Tree"), "pass --env NCCL_ALGO=Tree"),
        (("bench", "--algo", "ring"), "pass -a NAME"),
        (("plan", "llama3-8b", "--step", "x"), "pass --save FILE"),
        (("plan", "llama3-8b", "--dtype", "int4"), "a frozen base in few bits is --lora 16 --quantize nf4"),
        (("run", "-np", "2", "x.py"), "-n / --world-size takes a number: pass one, as -n 4"),
        (("bench", "--iters", "2"), "pass --rounds"),
        (("bench", "-d", "all"), "one dtype at a time"),
        (("bench", "-o", "all"), "one op at a time"),
        (("bench", "allredcue"), "did you mean all_reduce?"),
        (("algorithms", "bcast"), "did you mean broadcast?"),
        (("all_reduce_perf", "-b", "8"), "did you mean nvcoll bench all_reduce --nccl?"),
        (("allreduce",), "did you mean nvcoll bench all_reduce?"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_the_spelling_of_other_tools_is_refused_with_that_of_nvcoll(arguments, hint):
    assert hint in refused(*arguments)


@pytest.mark.parametrize("spelled", ["allreduce", "AllReduce", "all-reduce", "all_reduce_perf", "ncclAllReduce"])
def test_a_collective_in_the_spelling_of_other_tools_is_the_collective(spelled):
    assert run("predict", spelled)[0] == run("predict", "all_reduce")[0]
    assert run("algorithms", spelled)[0] == run("algorithms", "all_reduce")[0]


def test_the_installed_command_is_the_same_program():
    script = Path(sys.executable).parent / "nvcoll"
    if not script.exists():
        pytest.skip("the package is not installed, only importable")
    assert subprocess.run([script, "--version"], capture_output=True, text=True).stdout == run("--version")[0]


def test_help_names_every_status():
    words = " ".join(run("-h")[0].split())
    assert all(f"{status} {meaning}" in words for status, meaning in nvcoll.cli.STATUSES.items())


def test_help_shows_a_value_only_beside_options_that_take_one():
    for command in COMMANDS:
        text, _ = run(command, "-h", env={**os.environ, "COLUMNS": "200"})
        assert "<bool>" not in text and "<list[str]>" not in text.partition("─ Options")[2], command


def _options(command):
    return {option for one in command.params for option in one.opts}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_hint_names_only_options_that_the_command_has(command):
    has = _options(typer.main.get_command(nvcoll.cli.command_line()).commands[command])
    for option in hints.OPTIONS.keys() - has:
        hint = re.sub(r"^.*No such option: \S+( \(Possible.*\))?", "", refused(command, option))
        assert {word.rstrip(",:") for word in hint.split() if word.startswith("-")} <= has, hint


@pytest.mark.parametrize("command", ["run", "verify", "show", "algorithms", "bench", "explain", "plan", "dryrun"])
def test_the_number_of_ranks_is_the_same_option_in_every_command(command):
    commands = typer.main.get_command(nvcoll.cli.command_line()).commands
    assert {"-n", "--world-size"} <= _options(commands[command])
    for name, one in commands.items():
        assert not _options(one) & {"--ranks", "--gpus", "--step-file"}, name


# algorithms


def test_algorithms_prints_every_row_of_the_registry_with_its_cost():
    lines = run("algorithms", "-n", "5")[0].splitlines()
    can_be_in_place = {row.name: row.can_be_in_place for row in nvcoll._nvcoll.collectives()}
    for collective, name, order, summary, source in nvcoll._nvcoll.algorithms():
        rows = [re.split(r" {2,}", line) for line in lines if line.split()[:3] == [collective, name, order]]
        assert rows[0][-1] == f"{summary}; {source}"
        for path in ("mapped", "staged"):
            for in_place in (True, False) if can_be_in_place[collective] else (False,):
                (row,) = [row for row in rows if row[3] == f"{path}, {'in place' if in_place else 'out of place'}"]
                schedule = nvcoll.schedule(collective, name, world_size=5, path=path, in_place=in_place)
                moved, waits = schedule.cost()
                assert row[4].split()[0] == (f"{moved:.2f}" if schedule.chunks else "-")
                assert row[5:7] == [str(waits), str(len(schedule.steps))]


def test_algorithms_of_one_collective_as_a_table_and_as_json():
    names = [row.name for row in nvcoll._nvcoll.algorithms() if row.collective == "all_reduce"]
    table, _ = run("algorithms", "all_reduce")
    assert "barrier" not in table and all(f"all_reduce  {name} " in table for name in names)
    document = json.loads(run("algorithms", "all_reduce", "-n", "4", "--json")[0])
    assert (document["schema"], document["world_size"]) == ("nvcoll.algorithms/1", 4)
    assert [row["algorithm"] for row in document["algorithms"]] == names
    ring = next(row for row in document["algorithms"] if row["algorithm"] == "ring")
    cost = {"path": "mapped", "in_place": True, "moved": 3.75, "busiest": 3.75, "waits": 7, "steps": 24}
    assert cost in ring["costs"] and len(ring["costs"]) == 4


# info


def test_info_says_what_the_machine_is_and_why_the_defaults_are_what_they_are():
    text, _ = run("info")
    facts = nvcoll._nvcoll.machine()
    assert facts["isa"] in text and f"{facts['usable_cpus']} of" in text
    assert all(nvcoll.Node(2, isa=name) for name in facts["isas"]) and ", ".join(facts["isas"]) in text
    for label in ("cpu", "usable", "caches", "kernels", "workers", "pinning", "auto", "path"):
        assert re.search(rf"^{label} ", text, re.MULTILINE), label
    assert "pinned" in text or facts["usable_cpus"] == 1
    if sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1:
        assert re.search(r"^handoff +\d+ ns from CPU \d+ to CPU \d+", text, re.MULTILINE)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell less")
@pytest.mark.parametrize("limit", [None, 3 << 30])
def test_info_has_the_memory_of_the_engine_and_the_pages_that_it_gets(monkeypatch, capsys, limit):
    found = nvcoll._nvcoll.memory()
    assert found["available_bytes"] > 0 and found["has_huge_pages"] in (True, False)
    if found["group_left_bytes"] is not None:
        assert found["available_bytes"] <= found["group_left_bytes"]
    told = {"available_bytes": 2 << 30, "group_limit_bytes": limit, "group_left_bytes": limit and 2 << 30}
    assert 1 << 20 <= found["staging_bytes"][1] <= found["staging_bytes"][0] <= 4 << 20
    told |= {"has_huge_pages": True, "staging_bytes": [4 << 20, 1 << 20]}
    monkeypatch.setattr(nvcoll._nvcoll, "memory", lambda: told)
    info()
    text = capsys.readouterr().out
    assert "\nmemory      2 GiB available to ranks that are processes" in text
    assert ("the control group's limit is 3 GiB, and 2 GiB of it are left" in text) == (limit is not None)
    assert "\nstaging     4 MiB a rank in each communicator, 1 MiB if ranks are more than CPUs" in text
    assert "\nhuge pages  between processes: yes; /sys/kernel/mm" in text


# what cannot be done


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("verify", "all_reduce", "rong"), "no all_reduce algorithm is called `rong`: choose from nvswitch"),
        (("verify", "all_reduce", "ring", "--path", "up"), "choose from mapped, staged, pushed"),
        (("verify",), "name a collective (all_reduce, "),
        (("verify", "nothing.py:f"), "is not a file"),
        (("verify", "nothing.txt"), "nothing.txt: No such file or directory"),
        (("show", "all_reduce", "ring", "-n", "0"), "1 to 16384"),
        (("verify", "all_reduce", "ring", "-n", "2000"), "would have 7996000 steps"),
        (("show", "all_reduce", "ring", "-n", "two"), "-n / --world-size takes a number"),
        (("show", "all_reduce", "ring", "--svg", "nowhere/ring.svg"), "No such file or directory"),
        (("show", "all_reduce", "ring", "--svg", "ring.png"), "end its name in .svg"),
        (("bench", "all_reduce", "-n", "0"), "1 to 1024"),
        (("bench", "barrier"), "moves no data"),
        (("bench", "all_gather", "-o", "sum"), "reduces nothing: leave out -o"),
        (("bench", "all_gather", "-r", "0"), "has no root: leave out --root"),
        (("bench", "broadcast", "-n", "2", "-r", "2"), "ranks are 0 to 1"),
        (("bench", "scan", "-o", "avg"), "not defined for scan: choose from sum"),
        (("bench", "all_gather", "-n", "3", "-b", "47", "--nccl"), "pass at least 48"),
        (("bench", "all_rong"), "no collective is called `all_rong`"),
        (("bench", "--save", "tuned.toml"), "pass that too"),
        (("bench", "--tune", "--save", "nowhere/tuned.toml"), "nowhere/tuned.toml: No such file"),
        (("bench", "all_reduce", "-a", "rong"), "no all_reduce algorithm is called `rong`: choose from nvswitch"),
        (("bench", "all_reduce", "-b", "lots"), "is not a size"),
        (("bench", "all_reduce", "-b", "9" * 400), "more than any machine has"),
        (("bench", "all_reduce", "-b", "2"), "less than one float32"),
        (("bench", "all_reduce", "-b", "1K", "-e", "1M", "-f", "1"), "only by a factor above 1"),
        (("bench", "all_reduce", "-b", "1", "-e", "1G", "-f", "1.0001"), "more than 1000 sizes"),
        (("bench", "all_reduce", "-b", "1K", "-f", "2"), "pass -e"),
        (("bench", "all_reduce", "-n", "1000", "-b", "1000G"), "use fewer ranks or a smaller size"),
        (("bench", "all_reduce", "-d", "float9"), "choose from float32"),
        (("bench", "all_reduce", "-d", "int32", "-o", "avg"), "is not defined on int32"),
        (("bench", "all_reduce", "--nccl", "--json"), "pass one of them"),
        (("bench", "all_reduce", "--nccl", "-a", "ring", "-a", "tree"), "pass -a once"),
        (("show", "all_reduce", "ring", "-n", "64", "--svg", "ring.svg"), "draw fewer ranks (-n 8)"),
        (("algorithms", "all_rong"), "choose from all_reduce"),
        (("algorithms", "-n", "0"), "1 to 1024"),
        (("rong",), "choose from plan"),
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


def test_an_error_that_cannot_print_itself_is_one_line_with_its_line(tmp_path):
    file = tmp_path / "mute.py"
    file.write_text(
        "import nvcoll\nclass Mute(Exception):\n    def __str__(self):\n        raise ValueError\n"
        '@nvcoll.algorithm("all_reduce")\ndef mute(b):\n    raise Mute\n'
    )
    assert "mute.py:7: Mute: its text cannot be shown" in refused("verify", f"{file}:mute")


@pytest.mark.parametrize("suffix", [".toml", ".txt", ".xml"])
def test_a_machine_in_a_binary_file_is_one_line(tmp_path, suffix):
    file = tmp_path / f"machine{suffix}"
    file.write_bytes(b"\xff\xfe\x00")
    refused("fabric", str(file), *([] if suffix == ".toml" else ["--gpu", "h200"]))


def test_a_tuning_table_in_a_binary_file_is_one_line(tmp_path):
    file = tmp_path / "tuned.toml"
    file.write_bytes(b"\xff\xfe\x00")
    refused("explain", "all_reduce", env={**os.environ, "NVCOLL_TUNING": str(file)})


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


# how it ends


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "all_reduce", "ring", "-n", "64"),
        ("algorithms", "-n", "64"),
        ("info",),
        ("fabric",),
        ("predict", "reduce"),
    ],
    ids=" ".join,
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
    settings = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color"}  # a dumb terminal has no bar
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # also where the tests ignore it
    with subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=theirs, env=settings, **heard
    ) as process:
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


AMD_BOARDS = ["mi250x-8", "mi300x-8", "mi308x-8", "mi325x-8", "mi350x-8", "mi355x-8"]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("pre", ["predict"]),
        ("predict all", ["all_reduce", "all_gather", "all_to_all"]),
        ("predict all_reduce --on hgx-h100,mi", [f"hgx-h100,{board}" for board in AMD_BOARDS]),
        ("predict all_reduce --on hgx-h100x4+roce-800", ["hgx-h100x4+roce-800-4"]),
        ("run --on dgx-sp", ["dgx-spark"]),
        ("fabric mi", AMD_BOARDS),
        ("show all_gather recursive", ["recursive_doubling"]),
        ("verify allgather recursive", ["recursive_doubling"]),
        ("compare ring,tr", ["ring,tree"]),
        ("bench all_gather -a recursive", ["recursive_doubling"]),
        ("plan llama3-70", ["llama3-70b"]),
        ("plan llama3-8b --recompute se", ["selective"]),
        ("plan llama3-8b --dtype fp8", None),
        ("predict all_reduce --launch sin", ["single_process"]),
        ("bench mine.py", []),
        ("nothing is called", []),
    ],
)
def test_the_shell_completes_commands_and_names(typed, offered):
    words = f"nvcoll {typed}"
    asked = {"_NVCOLL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    found = run(env=os.environ | asked)[0].split()
    assert found == offered if offered is not None else found


@pytest.mark.parametrize("command", ["predict", "compare", "bench"])
def test_json_and_csv_at_once_are_refused(command):
    words = (command, "all_reduce") if command != "compare" else (command, "ring")
    assert "--json and --csv print different things" in refused(*words, "--json", "--csv")


def test_a_command_does_not_load_numpy_and_other_commands():
    words = ["nvcoll", "check", "--schema"]
    code = f"import atexit, sys; sys.argv = {words}; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    ended = subprocess.run([sys.executable, "-c", f"{code}from nvcoll.cli import main; main()"], capture_output=True)
    loaded = ended.stderr.decode().split()
    assert "nvcoll.cli.check" in loaded and not {"numpy", "nvcoll.training", "nvcoll.cli.fabric"} & {*loaded}
