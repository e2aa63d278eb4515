"""``nvcoll run -n``: processes that are ranks, their output, their ends and the signals between."""

import contextlib
import io
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict

import pytest
from command_line import LIMIT_S, PROGRAM, refused
from hypothesis import given
from hypothesis import strategies as st
from left_open import assert_nothing_was_left, left_open
from processes import children, wait_for_ends

from nvcoll.cli.run import launcher
from nvcoll.ranks.rank_counts import Inbox
from nvcoll.text.lines import Lines

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="ranks are processes on Linux only")

RANK = """
import os, signal, sys, time
rank = int(os.environ['NVCOLL_RANK'])

def meet():
    def mark(rank):
        return f"{__file__}.{os.environ['NVCOLL_JOB']}.{rank}"
    open(mark(rank), "w").close()
    while not all(os.path.exists(mark(other)) for other in range(int(os.environ["NVCOLL_WORLD_SIZE"]))):
        time.sleep(0.01)

"""
"""What scripts begin with; `meet` waits for the other ranks, once."""

SLEEP = "time.sleep(600)\n"
"""What ranks do that are to be ended."""

GRACE = "from nvcoll.cli import main\nfrom nvcoll.ranks import processes\nprocesses.GRACE_S = 0.2\nmain()\n"
"""The program, with less patience."""


@pytest.fixture
def script(tmp_path):
    """Writes a script; returns its path."""

    def write(text):
        path = tmp_path / "script.py"
        path.write_text(RANK + text)
        return str(path)

    return write


def command(ranks, script, *options, program=PROGRAM):
    return [*program, "run", "-n", str(ranks), *options, script]


def start(ranks, script, *options, program=PROGRAM, **how):
    """Starts a job whose output is read while it runs."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
    return subprocess.Popen(command(ranks, script, *options, program=program), text=True, bufsize=1, **pipes)


def end(job, status):
    """Waits for the end of a job; returns the rest of its output."""
    out, err = job.communicate(timeout=LIMIT_S)
    assert job.returncode == status, (out, err)
    return out, err


def run(ranks, script, *options, status=0, given=b"", program=PROGRAM):
    """Runs a job; returns its outputs, as bytes."""
    words = command(ranks, script, *options, program=program)
    done = subprocess.run(words, input=given, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout, done.stderr


def by_rank(output):
    """The lines of each rank, without their ranks."""
    found = defaultdict(list)
    for line in output.decode().splitlines():
        rank, text = re.fullmatch(r"\[(\d+)\] (.*)", line).groups()
        found[int(rank)].append(text)
    return found


def told(job, count):
    """Reads some lines of a job; returns the numbers in them."""
    found = [re.search(r"(\d+)$", job.stdout.readline()) for _ in range(count)]
    return [int(match[1]) for match in found]


# the ranks


def test_every_rank_has_its_place_in_one_job_with_one_token(script):
    show = script("from nvcoll.ranks import job\nfound = job.settings()\nprint(found, found.token.hex())\n")
    jobs = []
    for _ in range(2):
        lines = by_rank(run(3, show)[0])
        found = {
            rank: re.fullmatch(
                r"JobSettings\((.*), job='(.*)', launcher='nvcoll', several_hosts=None, has_mpi=False\) (\w{64})",
                line[0],
            ).groups()
            for rank, line in lines.items()
        }
        assert {rank: place for rank, (place, _, _) in found.items()} == {
            rank: f"rank={rank}, world_size=3" for rank in range(3)
        }
        jobs.append({found[rank][1:] for rank in range(3)})
    assert len(jobs[0]) == len(jobs[1]) == 1 and jobs[0] != jobs[1]


def test_standard_input_goes_to_rank_0_alone(script):
    lines = by_rank(run(3, script("print(repr(sys.stdin.read()))\n"), given=b"one\ntwo\n")[0])
    assert lines == {0: [r"'one\ntwo\n'"], 1: ["''"], 2: ["''"]}


# their output


def test_lines_of_ranks_that_write_at_once_are_not_torn(script):
    pieces = "(f'{count} ', 'a' * count, ' end\\n')"
    write = f"for count in range(300):\n    for piece in {pieces}:\n        sys.stdout.write(piece)\n"
    lines = by_rank(run(4, script(write))[0])
    assert {rank: lines[rank] for rank in range(4)} == {
        rank: [f"{count} {'a' * count} end" for count in range(300)] for rank in range(4)
    }


def test_outputs_stay_apart_and_the_last_line_needs_no_end(script):
    out, err = run(2, script("print('out')\nprint('err', file=sys.stderr)\nsys.stdout.write('last')\n"))
    assert by_rank(out) == {rank: ["out", "last"] for rank in range(2)}
    assert by_rank(err) == {rank: ["err"] for rank in range(2)}


def test_what_is_not_text_arrives_as_it_is(script):
    data = bytes(range(256)) * 1000 + b"\xff\r\x0b\x0c\x1c"
    write = script(
        "if rank == 1:\n    sys.stdout.buffer.write(bytes(range(256)) * 1000 + b'\\xff\\r\\x0b\\x0c\\x1c')\n"
    )
    assert run(2, write, "--no-prefix")[0] == data
    assert run(2, write)[0].replace(b"[1] ", b"") == data + b"\n"


def test_a_single_rank_has_the_outputs_of_the_launcher(script):
    out, err = run(1, script("sys.stdout.write('out\\nlast')\nprint(sys.stdin.read(), file=sys.stderr)\n"), given=b"in")
    assert (out, err) == (b"out\nlast", b"in\n")


def test_a_question_is_shown_before_it_is_answered(script):
    job = start(2, script("if rank == 0:\n    print('you are', input('name? '))\n"), stdin=subprocess.PIPE)
    assert job.stdout.read(len("[0] name? ")) == "[0] name? "
    out, _ = end_with(job, "me\n")
    assert out == "you are me\n"


def end_with(job, text):
    out, err = job.communicate(text, timeout=LIMIT_S)
    assert job.returncode == 0, err
    return out, err


def test_lines_come_when_they_are_written_and_those_of_a_killed_rank_too(script):
    job = start(2, script(f"print('before', rank)\nif rank == 1:\n    {SLEEP}"))
    assert sorted(told(job, 2)) == [0, 1]
    job.terminate()
    end(job, 143)


@given(st.lists(st.tuples(st.integers(0, 2), st.text("ab\n", max_size=6)), max_size=30), st.booleans())
def test_pieces_become_lines_of_their_ranks(pieces, is_prefixed):
    with tempfile.TemporaryFile() as file:
        lines = Lines(file.fileno(), is_prefixed=is_prefixed)
        for rank, piece in pieces:
            lines.take(rank, piece.encode())
        lines.end()
        file.seek(0)
        written = file.read()
    texts = {rank: "".join(piece for of, piece in pieces if of == rank) for rank in range(3)}
    if is_prefixed:
        assert by_rank(written) == {rank: text.removesuffix("\n").split("\n") for rank, text in texts.items() if text}
    else:
        whole = sorted(line for text in texts.values() if text for line in text.removesuffix("\n").split("\n"))
        assert sorted(written.decode().removesuffix("\n").split("\n")) == (whole or [""])
        if len([text for text in texts.values() if text]) == 1:
            assert written.decode() == "".join(texts.values())


def test_a_line_that_is_shown_before_its_end_goes_on_and_others_begin_on_a_new_line(monkeypatch):
    monkeypatch.setattr("nvcoll.text.lines.PATIENCE_S", 0.0)
    with tempfile.TemporaryFile() as file:
        lines = Lines(file.fileno(), is_prefixed=True)
        for rank, piece in ((0, b"one"), (0, b" two"), (1, b"other\n"), (0, b" three\n")):
            lines.take(rank, piece)
            lines.pass_on_rests()
        lines.end()
        file.seek(0)
        assert file.read() == b"[0] one two\n[1] other\n[0]  three\n"


# their ends


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("sys.exit(3)", 3, "ended with status 3"),
        ("os._exit(4)", 4, "ended with status 4"),
        ("raise KeyError('lost')", 1, "ended with status 1"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was killed by signal 9 (SIGKILL)"),
        (
            "signal.signal(signal.SIGSEGV, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGSEGV)",
            139,
            "was killed by signal 11 (SIGSEGV)",
        ),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 1)", 128 + signal.SIGRTMIN + 1, "was killed by signal 35"),
    ],
)
def test_the_first_failure_ends_the_job_with_its_status_and_is_named(script, how, status, words):
    _, err = run(3, script(f"if rank == 2:\n    {how}\n{SLEEP}"), status=status)
    assert err.decode().splitlines()[-1] == f"nvcoll: rank 2 {words}"
    assert (b"KeyError: 'lost'" in err) == ("KeyError" in how)


def test_ranks_are_told_to_end_and_their_own_ends_are_no_failures(script):
    handle = "def ended(*_):\n    print('told')\n    sys.exit(9)\nsignal.signal(signal.SIGTERM, ended)\n"
    fail = "meet()\nif rank == 1:\n    sys.exit(3)\n"
    out, err = run(3, script(handle + fail + SLEEP), status=3)
    assert by_rank(out) == {0: ["told"], 2: ["told"]}
    assert err == b"nvcoll: rank 1 ended with status 3\n"


def test_ranks_that_do_not_end_are_killed_and_named(script):
    stay = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nmeet()\nif rank == 1:\n    sys.exit(3)\n"
    _, err = run(3, script(stay + SLEEP), status=3, program=[sys.executable, "-c", GRACE])
    said = "nvcoll: rank 1 ended with status 3; ranks 0 and 2 did not end within 0.2 s, and had to be killed\n"
    assert err.decode() == said


def test_a_rank_that_fails_ends_nothing_if_the_job_keeps_going(script):
    join = "import nvcoll\ncomm = nvcoll.init(timeout=60)\ncomm.barrier()\n"
    die = "if rank == 1:\n    os._exit(3)\n"
    survive = "try:\n    comm.barrier()\nexcept nvcoll.PeerLost:\n    print(comm.shrink().ranks)\n"
    out, errors = run(3, script(join + die + survive), "--keep-going", status=3)
    assert by_rank(out) == {0: ["(0, 2)"], 2: ["(0, 2)"]} and b"rank 1 ended with status 3" in errors


def test_a_killed_rank_is_named_though_others_fail_because_of_it(script):
    fail = "print(os.getpid())\nif rank == 0:\n    sys.stdin.readline()\n    sys.exit(1)\n"
    job = start(2, script(fail + SLEEP), stdin=subprocess.PIPE)
    lines = [re.fullmatch(r"\[(\d)\] (\d+)\n", job.stdout.readline()).groups() for _ in range(2)]
    os.kill(job.pid, signal.SIGSTOP)  # so that it sees both ends at once
    os.kill(int(dict(lines)["1"]), signal.SIGKILL)
    wait_for_ends([int(dict(lines)["1"])])
    job.stdin.write("\n")
    job.stdin.flush()
    wait_for_ends([int(dict(lines)["0"])])
    os.kill(job.pid, signal.SIGCONT)
    assert "rank 1 was killed by signal 9 (SIGKILL)" in end(job, 137)[1]


def test_what_ranks_have_started_ends_with_a_job_that_fails(script):
    started = "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\nprint(child.pid)\n"
    fail = "meet()\nif rank == 1:\n    os._exit(3)\n"
    job = start(2, script(started + fail + SLEEP))
    processes = told(job, 2)
    end(job, 3)
    wait_for_ends(processes)


# signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("to_the_group", [False, True], ids=["launcher", "terminal"])
def test_a_signal_reaches_every_rank_once(script, number, to_the_group):
    count = f"seen = []\nsignal.signal({number:d}, lambda *_: seen.append(1))\nprint('ready', rank)\n"
    wait = "while not seen:\n    time.sleep(0.01)\ntime.sleep(0.3)\nprint('seen', len(seen))\n"
    job = start(3, script(count + wait), start_new_session=True)
    assert sorted(told(job, 3)) == [0, 1, 2]
    (os.killpg if to_the_group else os.kill)(job.pid, number)
    out, err = end(job, 0)
    assert sorted(out.splitlines()) == [f"[{rank}] seen 1" for rank in range(3)] and err == ""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ranks_that_end_by_a_signal_end_the_job(script, number, status):
    job = start(2, script(f"print(os.getpid())\n{SLEEP}"))
    processes = told(job, 2)
    job.send_signal(number)
    err = end(job, status)[1]
    words = rf"nvcoll: rank \d was killed by signal {number:d} \({number.name}\), which nvcoll run has passed on"
    assert re.fullmatch(words, err.splitlines()[-1])
    assert err.count("KeyboardInterrupt") in ((1, 2) if number == signal.SIGINT else (0,))
    wait_for_ends(processes)


def test_ctrl_c_is_status_130_however_ranks_end_by_it(script):
    end_otherwise = "def ended(*_):\n    sys.exit(3)\nsignal.signal(signal.SIGINT, ended)\n"
    job = start(2, script(f"{end_otherwise}print('ready', rank)\n{SLEEP}"))
    told(job, 2)
    job.send_signal(signal.SIGINT)
    assert end(job, 130)[1] == "nvcoll: interrupted: nvcoll run has passed signal 2 (SIGINT) on to the ranks\n"


def test_ctrl_c_in_a_call_is_an_interrupt_on_every_rank(script):
    join = "import nvcoll, numpy\ncomm = nvcoll.init()\nprint('ready', rank)\n"
    job = start(3, script(f"{join}while True:\n    comm.all_reduce(numpy.ones(9))\n"))
    told(job, 3)
    job.send_signal(signal.SIGINT)
    err = end(job, 130)[1]
    assert "lost sys.stderr" not in err


def test_a_second_ctrl_c_kills_ranks_that_do_not_end(script):
    stay = "signal.signal(signal.SIGINT, lambda *_: print('told', rank))\nprint('ready', rank)\n"
    job = start(2, script(f"{stay}while True:\n    time.sleep(0.1)\n"))
    told(job, 2)
    job.send_signal(signal.SIGINT)
    told(job, 2)
    job.send_signal(signal.SIGINT)
    end(job, 130)


def test_a_signal_that_is_ignored_is_not_passed_on(script):
    ignoring = "import signal, sys\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom nvcoll.cli import main\nmain()\n"
    job = start(
        2, script("print('ready', rank)\nsys.stdin.read()\ntime.sleep(0.3)\n"), program=[sys.executable, "-c", ignoring]
    )
    told(job, 2)
    job.send_signal(signal.SIGHUP)
    end(job, 0)


def test_ranks_end_when_the_launcher_is_killed(script):
    job = start(3, script(f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(os.getpid())\n{SLEEP}"))
    processes = told(job, 3)
    job.kill()
    end(job, -signal.SIGKILL)
    wait_for_ends(processes)


def test_ranks_end_when_nobody_reads_the_output(script):
    job = start(2, script("while True:\n    print('x' * 1000, os.getpid())\n    time.sleep(0.001)\n"))
    processes = set()
    while len(processes) < 2:
        processes |= set(told(job, 1))
    job.stdout.close()
    assert job.wait(LIMIT_S) == 141
    job.stderr.close()
    wait_for_ends(processes)


# what cannot be done


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-n", "2", "nowhere.py"), "nowhere.py: No such file"),
        (("-n", "0", "x.py"), "-n is 0: there can be 1 to 1024 ranks"),
        (("-n", "two", "x.py"), "takes a number: pass one, as -n 4"),
        (("-n", "2", "--on", "nowhere", "x.py"), "nowhere"),
        (("--no-prefix", "x.py"), "--no-prefix is for the output of several ranks: pass -n too"),
        (("--keep-going", "x.py"), "--keep-going is for several ranks: pass -n too"),
        (("--nproc-per-node", "2", "x.py"), "pass -n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_run_is_one_line(arguments, message):
    assert message in refused("run", *arguments)


def test_a_job_for_which_there_are_too_few_descriptors_leaves_no_rank(script, tmp_path):
    mark = tmp_path / "processes"
    job = script(f"open({str(mark)!r}, 'a').write(f'{{os.getpid()}}\\n')\n{SLEEP}")
    words = command(40, job)
    limited = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))  # noqa: E731
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, preexec_fn=limited)
    assert done.returncode == 2
    assert re.fullmatch(r"nvcoll: rank \d+ cannot be started \(Too many open files\): .*\n", done.stderr)
    if mark.exists():
        wait_for_ends(map(int, mark.read_text().split()))


@pytest.mark.parametrize("how", ["pass", "sys.exit(3)", "os.kill(os.getpid(), 9)"])
def test_nothing_is_left_behind(script, how):
    words = [script(f"print(rank)\nif rank == 1:\n    {how}\n    sys.exit()\n")]

    def job():
        with contextlib.redirect_stdout(io.TextIOWrapper(open(os.devnull, "wb"))), Inbox() as inbox:
            failure = launcher.launch(words, 2, is_prefixed=True, inbox=inbox)
        assert (failure is None) == (how == "pass")

    job()
    handlers = [signal.getsignal(signal.Signals[name]) for name in launcher.PASSED_ON]
    before, mine = left_open(), children()
    for _ in range(3):
        job()
    assert_nothing_was_left(before, 3)
    assert children() == mine
    assert [signal.getsignal(signal.Signals[name]) for name in launcher.PASSED_ON] == handlers
