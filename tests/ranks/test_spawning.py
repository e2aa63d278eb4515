"""``nvcoll.spawn``: a function in processes that are ranks. Whatever happens, no process and no descriptor is left."""

import os
import re
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import spawned_programs as programs
from left_open import assert_nothing_was_left, left_open
from processes import children, wait_for_ends, wait_until
from rank_threads import in_threads

import nvcoll
from nvcoll import spawn

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="ranks are processes on Linux only")

LIB = Path(__file__).parents[1] / "lib"
LIMIT_S = 100
"""How long ranks may take, so that a hang is a Timeout that says which rank. Chosen: below the limit of a test."""


def run(fn, nprocs=3, *args, timeout=LIMIT_S):
    return spawn(fn, nprocs, args, timeout=timeout)


def failure_of(fn, nprocs=3, *args, timeout=LIMIT_S):
    """What spawn raises."""
    with pytest.raises(BaseException) as raised:
        run(fn, nprocs, *args, timeout=timeout)
    assert not isinstance(raised.value, nvcoll.Timeout) or timeout < LIMIT_S, raised.value
    return raised.value


def notes(error):
    """The notes of an exception but the traceback, and the traceback."""
    found = getattr(error, "__notes__", [])
    return [note for note in found if not note.startswith("traceback")], [n for n in found if n.startswith("traceback")]


def numbers_in(path):
    """The processes that ranks have noted in a file."""
    return list(map(int, Path(path).read_text().split()))


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "processes")


# results


def test_results_come_by_rank_and_every_rank_is_a_process_of_its_own():
    found = run(programs.place, 3, "one", 2)
    assert [one[:2] for one in found] == [(0, 3), (1, 3), (2, 3)]
    assert {one[4:5] + one[7:] for one in found} == {("nvcoll", ("one", 2))}
    (job,), (token,) = {one[2] for one in found}, {one[3] for one in found}
    assert job.startswith("spawn-") and len(token) == 32
    processes, sessions = [one[5] for one in found], [one[6] for one in found]
    assert len({*processes, os.getpid()}) == 4 and sessions == processes
    assert run(programs.place, 1)[0][2:4] not in [(job, token)]


def test_results_may_be_large():
    found = run(programs.large, 2, 1_000_000)
    assert all(len(one) == 1_000_000 and (one == rank).all() for rank, one in enumerate(found))
    assert isinstance(found[0], np.ndarray)


def test_a_thread_may_spawn_beside_another():
    found = in_threads(*[lambda: run(programs.place, 2)] * 2)
    assert [[one[:2] for one in of] for of in found] == [[(0, 2), (1, 2)]] * 2
    assert found[0][0][2] != found[1][0][2]


# failures


def test_the_first_exception_is_raised_with_its_rank_its_traceback_and_those_of_others(path):
    error = failure_of(programs.fail_in_turn, 3, path)
    said, (trace,) = notes(error)
    if isinstance(error, ValueError):
        assert said == ["raised by rank 2", "rank 1 raised KeyError: 'one'"]
    else:  # the process of rank 1 was faster
        assert isinstance(error, KeyError) and said == ["raised by rank 1", "rank 2 raised ValueError: two"]
    assert "in fail_in_turn" in trace and "spawned.py" not in trace


def test_an_exception_ends_the_calls_of_others_and_is_raised_before_theirs():
    for _ in range(3):
        error = failure_of(programs.fail_while_others_reduce)
        assert isinstance(error, ValueError) and notes(error)[0] == ["raised by rank 1"]


def test_what_ranks_raise_alike_is_said_once():
    said, (trace,) = notes(failure_of(programs.fail_alike))
    assert said == ["raised by rank 0 and 2 others"] and trace.startswith("traceback of rank 0:\nTraceback")


def test_an_exception_keeps_its_notes():
    assert notes(failure_of(programs.with_a_note, 1))[0] == ["a note of the program", "raised by rank 0"]


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (programs.raise_telling_two, "TellingTwoError: 0 and 0"),
        (programs.raise_of_the_rank, "OfTheRankError: far away"),
    ],
)
def test_an_exception_that_cannot_be_pickled_comes_as_text(program, text):
    error = failure_of(program, 1)
    assert type(error) is nvcoll.Error and str(error) == text
    assert program.__name__ in notes(error)[1][0]


@pytest.mark.parametrize("program", [programs.fail_while_others_hang, programs.die_while_others_hang])
def test_the_other_ranks_and_what_they_have_started_are_killed(program, path):
    error = failure_of(program, 3, path)
    assert "ranks 0 and 2 had not ended 3 s later, and had to be killed" in notes(error)[0]
    assert ("boom" in str(error)) == (program is programs.fail_while_others_hang)
    assert len(numbers_in(path)) == 4
    wait_for_ends(numbers_in(path))


@pytest.mark.parametrize(
    ("number", "words"),
    [(9, "signal 9 (SIGKILL)"), (11, "signal 11 (SIGSEGV)"), (35, "signal 35")],
)
def test_a_rank_that_dies_by_a_signal_is_named(number, words):
    error = failure_of(programs.be_killed, 2, number)
    assert type(error) is nvcoll.Error and str(error) == f"rank 1 was killed by {words} before it returned"
    assert notes(error) == ([], [])


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("leave", [os._exit, sys.exit])
def test_a_rank_that_leaves_is_named(leave, status):
    assert str(failure_of(programs.leave, 2, leave, status)) == f"rank 1 ended with status {status} before it returned"


def test_the_exit_of_a_rank_is_raised_before_what_it_does_to_others():
    error = failure_of(programs.exit_while_others_reduce)
    assert type(error) is nvcoll.Error and str(error) == "rank 1 ended with status 3 before it returned"


def test_a_result_that_cannot_be_pickled_is_an_error_of_its_rank():
    error = failure_of(programs.generator, 1)
    assert isinstance(error, nvcoll.InvalidArgument) and notes(error)[0] == ["raised by rank 0"]
    assert "`fn` returned a generator, which cannot be pickled (TypeError" in str(error)


def test_a_result_that_cannot_be_unpickled_here_is_an_error_of_its_rank():
    error = failure_of(programs.of_the_rank, 1)
    assert isinstance(error, nvcoll.InvalidArgument)
    assert "what `fn` returned on rank 0 cannot be unpickled here (LookupError: not here)" in str(error)


def test_a_timeout_says_which_ranks_are_late_and_ends_them(path):
    error = failure_of(programs.hang, 3, path, (1, 2), timeout=5)
    assert isinstance(error, nvcoll.Timeout) and "`timeout` is 5 s" in str(error)
    if os.path.exists(path) and len(numbers_in(path)) == 6:
        assert "(not returned: ranks 1 and 2)" in str(error)
        wait_for_ends(numbers_in(path))


def test_a_rank_whose_process_does_not_end_is_late():
    error = failure_of(programs.stay_after_returning, 2, timeout=5)
    assert isinstance(error, nvcoll.Timeout)
    assert re.search(r"returned, but its process has not ended: rank 1\b|not (started|joined)", str(error))


# what cannot be spawned


@pytest.mark.parametrize(
    ("fn", "nprocs", "args", "message"),
    [
        (programs.asynchronous, 2, (), "`fn` is an async function"),
        (programs.nothing, 0, (), "`nprocs` is 0: pass 1 to 1024"),
        (programs.nothing, 1025, (), "`nprocs` is 1025"),
        (lambda comm: None, 2, (), "`fn` and `args` cannot be pickled"),
        (programs.place, 2, (threading.Lock(),), "cannot be pickled (TypeError"),
    ],
)
def test_what_cannot_be_spawned_is_refused_before_a_process_starts(fn, nprocs, args, message):
    before = children()
    with pytest.raises(nvcoll.InvalidArgument) as error:
        spawn(fn, nprocs, args)
    assert message in str(error.value) and children() == before


def script_of(tmp_path, text):
    file = tmp_path / "script.py"
    file.write_text(f"import sys\nsys.path.insert(0, {str(LIB)!r})\nimport nvcoll\n" + text)
    return [sys.executable, str(file)]


def test_a_function_of_a_script_below_its_guard_is_found(tmp_path):
    text = "import spawned_programs\ndef double(comm, x):\n    return comm.rank * x\n"
    main = "if __name__ == '__main__':\n    print(nvcoll.spawn(double, 3, (2,), timeout=90))\n"
    done = subprocess.run(script_of(tmp_path, text + main), capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.stdout, done.stderr) == ("[0, 2, 4]\n", "")


def test_a_script_without_its_guard_is_told_what_is_missing(tmp_path):
    text = "def program(comm):\n    pass\nnvcoll.spawn(program, 2, timeout=90)\n"
    done = subprocess.run(script_of(tmp_path, text), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1
    assert re.search(r"rank \d ended with status 1 before it began, and its output says why", done.stderr)
    assert '`if __name__ == "__main__":`' in done.stderr


def test_a_function_of_a_prompt_is_refused_or_sent_by_cloudpickle():
    text = f"import sys\nsys.path.insert(0, {str(LIB)!r})\nimport nvcoll, spawned_programs\n"
    text += "def program(comm):\n    print('rank', spawned_programs.place(comm)[0])\n"
    text += "nvcoll.spawn(program, 1, timeout=90)\n"
    for hide in ("", "import sys\nsys.modules['cloudpickle'] = None\n"):
        command = [sys.executable, "-c", hide + text]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        if hide or not find_spec("cloudpickle"):
            assert "`fn` is a function of a notebook or a prompt" in done.stderr
        else:
            assert done.stdout == "rank 0\n", done.stderr


# the end of this process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ranks_end_with_the_program_that_spawned_them(number, tmp_path, path):
    call = f"nvcoll.spawn(spawned_programs.hang, 2, ({path!r},))"
    text = f"import spawned_programs\nif __name__ == '__main__':\n    {call}\n"
    program = subprocess.Popen(script_of(tmp_path, text), stderr=subprocess.PIPE, text=True)
    wait_until(lambda: os.path.exists(path) and len(numbers_in(path)) == 4)
    ranks, started = numbers_in(path)[::2], numbers_in(path)[1::2]
    program.send_signal(number)
    assert program.wait(LIMIT_S) == -number
    wait_for_ends(ranks)
    if number == signal.SIGKILL:  # nobody is left to end what the ranks have started, which holds the pipe
        for process in started:
            os.kill(process, signal.SIGKILL)
    wait_for_ends(started)
    assert program.communicate(timeout=LIMIT_S)[1].count("KeyboardInterrupt") == (number == signal.SIGINT)


def test_ctrl_c_ends_ranks_that_have_not_begun_too():
    timer = threading.Timer(0.15, os.kill, [os.getpid(), signal.SIGINT])
    before = children()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(1000):
            run(programs.nothing, 2)
    timer.join()
    assert children() <= before


# nothing is left


def end_well(_path):
    run(programs.place, 2)


def end_by_an_exception(_path):
    failure_of(programs.fail_alike, 2)


def end_by_a_death(_path):
    failure_of(programs.be_killed, 2, 9)


def end_by_a_timeout(path):
    failure_of(programs.hang, 2, path, (0, 1), timeout=0.5)


def end_by_an_interruption(path):
    def interrupt():
        wait_until(lambda: os.path.exists(path) and len(numbers_in(path)) == 4)
        os.kill(os.getpid(), signal.SIGINT)

    if os.path.exists(path):
        os.unlink(path)
    thread = threading.Thread(target=interrupt)
    thread.start()
    assert isinstance(failure_of(programs.hang, 2, path), KeyboardInterrupt)
    thread.join()


ENDS = [
    end_well,
    end_by_an_exception,
    end_by_a_death,
    end_by_a_timeout,
    end_by_an_interruption,
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_no_process_descriptor_or_thread_is_left(end, path):
    before = children()
    end(path)
    opened = left_open()
    for _ in range(2):
        end(path)
    assert_nothing_was_left(opened, 2)
    assert children() <= before
    if os.path.exists(path):
        wait_for_ends(numbers_in(path))


def test_a_start_that_fails_leaves_nothing(path):
    run(programs.nothing, 1)
    text = f"""
import os, resource
import spawned_programs
from processes import children
if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    for _ in range(3):
        try:
            nvcoll.spawn(spawned_programs.hang, 40, ({path!r},))
        except OSError as error:
            print(error.strerror, len(children()), len(os.listdir("/proc/self/fd")))
"""
    done = subprocess.run(script_of(Path(path).parent, text), capture_output=True, text=True, timeout=LIMIT_S)
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and len({*lines}) == 1 and lines[0].startswith("Too many open files 0 "), done
    if os.path.exists(path):
        wait_for_ends(numbers_in(path)[::2])


@pytest.mark.parametrize(("arguments", "expected"), [(("scan",), 5.0), (("reduce", 7.0), 17.0), (("broadcast",), 2.0)])
def test_a_late_rank_needs_no_memory_of_one_that_leaves_after_the_call(arguments, expected):
    for _ in range(5):
        results = nvcoll.spawn(programs.be_late_to_a_call_of_one_that_leaves, args=arguments, nprocs=2)
        assert results[1] == (expected, expected)
