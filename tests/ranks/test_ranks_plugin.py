"""Tests with the mark ``ranks``: every outcome of a test on several ranks, and what pytest shows of it.

The inner sessions run tests of nvcoll alone, so that they need no torch. `tests/torch/backend` runs tests of torch so.
"""

import os
import re

import pytest
from processes import children, wait_for_ends

pytest_plugins = "pytester"
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="ranks are processes on Linux only"),
    pytest.mark.timeout(240),
]

HEAD = "import os, signal, time\nimport numpy as np\nimport pytest\n"


@pytest.fixture
def session(pytester):
    """Runs a file of tests; returns the result of the session. Nothing of it is left."""

    def run(text, *options):
        pytester.makepyfile(HEAD + text)
        before = set(children())
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--ranks-backend", "none", *options)
        wait_for_ends(set(children()) - before)
        return result

    return run


def text_of(result):
    return "\n".join(result.outlines)


def ended_on_rank_1(session, name, end):
    """Runs a test whose rank 1 ends by a statement before a collective, and one more behind it."""
    return session(f"""
@pytest.mark.ranks(2)
def {name}(comm):
    comm.barrier()
    if comm.rank == 1:
        {end}
    comm.all_reduce(np.ones(7))

@pytest.mark.ranks(2)
def test_behind_it(comm):
    comm.barrier()
""")


def test_a_test_runs_on_every_rank_with_its_fixtures_and_parameters(session):
    result = session("""
@pytest.fixture
def value(request):
    return 10 * request.param

@pytest.mark.ranks(3)
@pytest.mark.parametrize("value", [1, 2], indirect=True)
def test_sum(comm, value, tmp_path, monkeypatch):
    monkeypatch.setenv("SEEN", str(comm.rank))
    (tmp_path / "file").write_text("x")
    x = np.full(4, float(comm.rank + value))
    comm.all_reduce(x)
    assert x[0] == 3 * value + 3
    assert os.environ["RANK"] == str(comm.rank) and os.environ["WORLD_SIZE"] == "3"

class TestInClass:
    @pytest.mark.ranks(2)
    def test_two(self, comm):
        assert comm.world_size == 2 and "SEEN" not in os.environ

def test_of_this_process():
    assert "NVCOLL_PYTEST_WORKER" not in os.environ
""")
    result.assert_outcomes(passed=4)


def test_processes_stay_from_test_to_test(session):
    result = session("""
SEEN = []

@pytest.mark.ranks(2)
@pytest.mark.parametrize("number", range(5))
def test_many(comm, number):
    SEEN.append(os.getpid())
    assert len(SEEN) == number + 1 and len(set(SEEN)) == 1
""")
    result.assert_outcomes(passed=5)


def test_a_failure_names_the_rank_and_shows_the_last_calls(session):
    result = session("""
@pytest.mark.ranks(3)
def test_one_fails(comm):
    comm.barrier()
    print("words of rank", comm.rank)
    if comm.rank == 1:
        assert [1, 2] == [1, 3]
    comm.all_reduce(np.ones(7))

@pytest.mark.ranks(3)
def test_behind_it(comm):
    comm.barrier()
""")
    result.assert_outcomes(failed=1, passed=1)
    text = text_of(result)
    assert "this is rank 1 of 3" in text and "At index 1 diff: 2 != 3" in text
    assert "rank 0: nvcoll.Aborted: rank 1 failed" in text
    assert "rank 0: call 2, all_reduce of 7 float64" in text and "rank 1: call 1, barrier" in text
    assert "words of rank 0" in text and "Captured stdout call, rank 0" in text


def test_a_hang_ends_with_the_stacks_of_all_ranks(session):
    result = session("""
@pytest.mark.ranks(2, timeout=2)
def test_hangs(comm):
    if comm.rank == 1:
        time.sleep(1000)
    comm.all_reduce(np.ones(7))

@pytest.mark.ranks(2)
def test_behind_it(comm):
    comm.barrier()
""")
    result.assert_outcomes(failed=1, passed=1)
    text = text_of(result)
    assert "rank 0 waits for rank 1; ranks 0 and 1: no end within 2 s" in text
    assert "stacks of rank 1" in text and "in test_hangs" in text and "/_pytest/" not in text
    assert re.search("rank 0: waits in call 1, all_reduce of 7 float64.* for rank 1\nrank 0: call 1, all_red", text)


def test_a_hang_shows_no_call_of_a_test_before_that_failed(session):
    result = session("""
KEPT = []

@pytest.mark.ranks(2)
def test_fails(comm):
    KEPT.append(comm)
    comm.all_reduce(np.ones(5))
    assert comm.rank == 0

@pytest.mark.ranks(2, timeout=2)
def test_hangs(comm):
    if comm.rank == 1:
        time.sleep(1000)
    comm.all_reduce(np.ones(7))
""")
    result.assert_outcomes(failed=2)
    behind = text_of(result).partition("no end within 2 s")[2]
    assert "rank 0: call 1, all_reduce of 7 float64" in behind and "of 5 float64" not in behind


@pytest.mark.parametrize("death", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(3)", "os.abort()"])
def test_a_death_names_rank_and_signal_and_the_next_test_has_new_processes(session, death):
    result = ended_on_rank_1(session, "test_dies", death)
    result.assert_outcomes(failed=1, passed=1)
    how = {"os._exit(3)": "ended with status 3", "os.abort()": "killed by signal 6"}.get(death, "killed by signal 9")
    assert re.search(f"rank 1: its process .*{how}", text_of(result))


@pytest.mark.parametrize(
    ("end", "name"), [("raise KeyboardInterrupt", "KeyboardInterrupt"), ("pytest.exit('no')", "Exit")]
)
def test_an_end_of_the_session_on_a_rank_is_told_with_its_line(session, end, name):
    result = ended_on_rank_1(session, "test_ends", end)
    result.assert_outcomes(failed=1, passed=1)
    text = text_of(result)
    assert f"rank 1: the test raised {name}, which ends its process" in text and "status 0" not in text
    assert "in test_ends" in text


def test_skips_and_expected_failures(session):
    result = session("""
@pytest.mark.ranks(2)
def test_all_skip(comm):
    pytest.skip("no reason")

@pytest.mark.ranks(2)
@pytest.mark.skipif(True, reason="never")
def test_never():
    pass

@pytest.mark.ranks(2)
def test_some_skip(comm):
    if comm.rank:
        pytest.skip("alone")

@pytest.mark.ranks(2)
@pytest.mark.xfail(strict=True)
def test_expected(comm):
    assert comm.rank

@pytest.mark.ranks(2)
@pytest.mark.xfail(strict=True)
def test_unexpected():
    pass
""")
    result.assert_outcomes(skipped=2, failed=2, xfailed=1)
    assert "skipped on rank 1 of 2, and not on the others" in text_of(result)


def test_fixtures_that_fail_and_marks_that_are_wrong(session):
    result = session("""
@pytest.fixture
def broken(comm):
    if comm.rank:
        raise ValueError("no fixture here")
    yield
    comm.barrier()

@pytest.mark.ranks(2)
def test_set_up(broken):
    pass

@pytest.mark.ranks("many")
def test_wrong(comm):
    pass

@pytest.mark.ranks(2, speed=3)
def test_unknown():
    pass

def test_without_ranks(comm):
    pass
""")
    text = text_of(result)
    assert "no fixture here" in text and "the mark `ranks` has 'many'" in text and "speed" in text
    assert "the fixture `comm` is for tests with the mark `ranks`" in text
    assert result.ret == 1 and result.parseoutcomes()["errors"] >= 4


def test_options_reach_the_ranks_and_a_debugger_is_refused(session, pytester):
    pytester.makeconftest("""
def pytest_addoption(parser):
    parser.addoption("--word")
""")
    text = """
@pytest.mark.ranks(2)
def test_word(comm, request):
    assert request.config.getoption("--word") == "seven"

@pytest.mark.ranks(2)
def test_left_out(comm):
    assert False
"""
    session(text, "--word", "seven", "-k", "word", "-x", "-v").assert_outcomes(passed=1, deselected=1)
    assert "--pdb cannot debug a test on several ranks" in text_of(session(text, "--pdb", "-k", "word"))


def test_subtests_that_fail_on_a_rank_fail(session):
    pytest.importorskip("_pytest.subtests")
    result = session("""
@pytest.mark.ranks(2)
def test_parts(subtests):
    for part in range(3):
        with subtests.test(part=part):
            assert part != 1 or os.environ["RANK"] == "0"
""")
    assert result.ret == 1 and "rank 1 of 2" in text_of(result)


def test_the_limit_of_pytest_timeout_is_that_of_the_ranks(session):
    result = session(
        """
@pytest.mark.ranks(2)
def test_hangs():
    time.sleep(100)

def test_of_this_process():
    pass
""",
        "--timeout=6",
    )
    result.assert_outcomes(failed=1, passed=1)
    assert "no end within 6 s" in text_of(result)


def test_warnings_are_errors(session):
    session("@pytest.mark.ranks(2)\ndef test_one():\n    pass\n", "-W", "error").assert_outcomes(passed=1)


def test_dash_s_prints_what_the_ranks_print(session):
    result = session('@pytest.mark.ranks(2)\ndef test_one():\n    print("hello of", os.environ["RANK"])\n', "-s")
    assert "hello of 0" in text_of(result) and "hello of 1" in text_of(result)


def test_strict_needs_nvcoll(session):
    text = text_of(session('@pytest.mark.ranks(2, strict="nccl")\ndef test_one():\n    pass\n'))
    assert "strict is 'nccl', and needs nvcoll" in text


def test_a_failure_that_is_expected_may_fail_other_ranks(session):
    session("""
@pytest.mark.ranks(2)
@pytest.mark.xfail(raises=ZeroDivisionError)
def test_one(comm):
    if comm.rank:
        1 / 0
    comm.barrier()
""").assert_outcomes(xfailed=1)


def test_a_fixture_of_other_tests_that_fails_at_its_end_is_an_error(session):
    result = session("""
@pytest.fixture(scope="module")
def resource():
    yield
    raise RuntimeError("the end of the fixture")

def test_of_this_process(resource):
    pass

@pytest.mark.ranks(2)
def test_one():
    pass
""")
    result.assert_outcomes(passed=2, errors=1)
    assert "the end of the fixture" in text_of(result)
