"""What programs want to know of a failure are attributes of the error: nobody reads sentences, nor does nvcoll."""

import ast
import json
import multiprocessing
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
from processes import results, start

import nvcoll
from nvcoll.hosts.failures import CONTROL_BYTES, Failure

PACKAGES = [Path(nvcoll.__file__).parents[1] / name for name in ("nvcoll", "nvcoll_pytest", "nvcoll_autoload")]

READS = {"startswith", "endswith", "find", "index", "partition", "rpartition", "split", "lower", "strip", "replace"}
PATTERNS = {"match", "search", "fullmatch", "findall", "finditer", "sub", "split"}

ALLOWED = {
    ("hosts/gloo.py", "_first_line"): "shortens torch's message for people; nothing is decided by it",
    ("hosts/mpi.py", "without_mpi"): "shows the first line of mpi4py's ImportError",
    ("setting.py", "is_consequence"): "gloo has one type for all its errors, and tests may run on it",
    ("dryrun/inside/rank.py", "_failed"): "shows the first line of the script's own exception",
    ("training/models.py", "_from_toml"): "cuts Python's advice to programmers off its message",
    ("traces/chakra.py", "_parsed"): "shows the beginning of protobuf's message",
    ("traces/formats.py", "_recognised"): "shows the beginning of json's message",
    ("check/nccl_tests_json.py", "_documents"): "shows the beginning of json's message",
}
"""Functions that read the text of an error of another library, and why."""

SENTENCES = {"bottleneck", "limited_by", "trust", "choice"}
"""Attributes of predictions that are English. What programs want of them are other attributes."""


class Readers(ast.NodeVisitor):
    """Finds the functions that look into the text of an exception, or into a sentence of a prediction."""

    def __init__(self):
        self.found, self.function, self.errors, self.texts = set(), "", {"error"}, set()

    def visit_FunctionDef(self, node):
        outer = self.function, self.errors, self.texts
        self.function, self.errors, self.texts = node.name, set(self.errors), set(self.texts)
        self.generic_visit(node)
        self.function, self.errors, self.texts = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ExceptHandler(self, node):
        self.errors |= {node.name} if node.name else set()
        self.generic_visit(node)

    def visit_Assign(self, node):
        self.generic_visit(node)
        if self.is_text(node.value):
            self.texts |= {target.id for target in node.targets if isinstance(target, ast.Name)}

    def is_text(self, node):
        """Says whether an expression is the text of an exception, or a part of it."""
        match node:
            case ast.Name(id=name):
                return name in self.texts
            case ast.Attribute(attr=name):
                return name in SENTENCES
            case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
                return name in self.errors
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="args")):
                return name in self.errors
            case ast.Call(func=ast.Attribute(value=value)) | ast.Subscript(value=value):
                return self.is_text(value)
            case ast.JoinedStr(values=values):
                return any(isinstance(each, ast.FormattedValue) and self.is_error(each.value) for each in values)
        return False

    def is_error(self, node):
        return (isinstance(node, ast.Name) and node.id in self.errors) or self.is_text(node)

    def visit_Compare(self, node):
        sides = [node.left, *node.comparators]
        if any(map(self.is_text, sides)) and not all(isinstance(side, ast.Attribute) for side in sides):
            self.found.add(self.function)
        self.generic_visit(node)

    def visit_Call(self, node):
        if isinstance(node.func, ast.Attribute):
            is_pattern = node.func.attr in PATTERNS and any(map(self.is_text, node.args))
            if is_pattern or (node.func.attr in READS and self.is_text(node.func.value)):
                self.found.add(self.function)
        self.generic_visit(node)

    def visit_Subscript(self, node):
        if self.is_text(node.value):
            self.found.add(self.function)
        self.generic_visit(node)


def readers(source):
    found = Readers()
    found.visit(ast.parse(source))
    return found.found


def test_no_code_reads_the_text_of_an_error():
    found = {
        (path.relative_to(package).as_posix(), function)
        for package in PACKAGES
        for path in package.rglob("*.py")
        for function in readers(path.read_text())
    }
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    "line",
    [
        "re.search('rank', str(error))",
        "'late' in str(error)",
        "LEFT.match(str(error))",
        "str(error).startswith('rank')",
        "text = str(error); re.sub('a', 'b', text)",
        "text = f'{error}'; 'a' in text",
        "error.args[0].partition(':')",
        "str(error).lower() == 'x'",
        "re.sub('[0-9]+ %', '', found.bottleneck)",
        "found.trust.startswith('validated')",
        "found.choice == 'a rule'",
    ],
)
def test_reading_the_text_of_an_error_is_noticed(line):
    assert readers(f"def f(error):\n    {line}") == {"f"}


def test_a_timeout_names_the_late_ranks():
    def program(comm):
        if comm.rank in (1, 3):
            time.sleep(0.6)
            return None
        with pytest.raises(nvcoll.Error) as caught:
            comm.barrier(timeout=0.2)
        return caught.value

    error = next(one for one in nvcoll.Node(4).run(program) if type(one) is nvcoll.Timeout)
    assert error.late == error.ranks == (1, 3) and error.stopped == error.left == () and error.host is None


def test_a_mismatch_names_its_ranks_and_who_has_left():
    def different(comm):
        with pytest.raises(nvcoll.Mismatch) as caught:
            comm.all_reduce(np.ones(4 + comm.rank))
        return caught.value

    for error in nvcoll.Node(2).run(different):
        assert sorted(error.ranks) == [0, 1] and error.left == ()

    def fewer(comm):
        if comm.rank == 1:
            return None
        with pytest.raises(nvcoll.Mismatch) as caught:
            comm.barrier()
        return caught.value

    error = nvcoll.Node(2).run(fewer)[0]
    assert error.left == (1,) and error.ranks == (1, 0)


def test_messages_name_their_ranks():
    def unlike(comm):
        with pytest.raises(nvcoll.Error) as caught:
            comm.send(np.ones(3), 1) if comm.rank == 0 else comm.recv(np.ones(4), 0)
            comm.barrier()
        return caught.value

    assert (0, 1) in [error.ranks for error in nvcoll.Node(2).run(unlike)]

    def late(comm):
        comm.barrier()
        if comm.rank == 0:
            with pytest.raises(nvcoll.Timeout) as caught:
                comm.recv(np.ones(3), 2, timeout=0.2)
            return caught.value
        return time.sleep(0.5)

    assert nvcoll.Node(3).run(late)[0].late == (2,)


def test_a_subset_has_ranks_of_its_own():
    def program(comm):
        if comm.rank == 0:
            return None
        group = comm.subset([2, 1])
        if comm.rank == 1:
            time.sleep(0.6)
            return None
        with pytest.raises(nvcoll.Timeout) as caught:
            group.barrier(timeout=0.2)
        return caught.value

    assert nvcoll.Node(3).run(program)[2].late == (1,)


def test_an_abort_names_the_rank_and_its_exit_status():
    program = """
    comm = nvcoll.init(timeout=30)
    if comm.rank == 1:
        sys.exit(3)
    try:
        comm.barrier()
    except nvcoll.Aborted as error:
        print(error.ranks, error.status)
    """
    assert results(start(2, program, "status"))[0][1] == "(1,) 3\n"


def test_a_stopped_process_is_named():
    program = """
    comm = nvcoll.init(timeout=60)
    group = comm.split(0, -comm.rank)
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        try:
            group.barrier(timeout=1)
        except nvcoll.Timeout as error:
            print(error.late, error.stopped, flush=True)
    """
    processes = start(3, program, "stopped")
    told = {processes[rank].stdout.readline() for rank in (0, 2)}
    processes[1].kill()
    results(processes)
    assert "(1,) (1,)\n" in told


FILLED = [
    nvcoll.Timeout("late", ranks=(1, 2)),
    nvcoll.Mismatch("differ", ranks=(0, 1)),
    nvcoll.PeerLost("lost", ranks=(4,)),
    nvcoll.Aborted("failed", ranks=(3,)),
    nvcoll.Refuted("wrong"),
]


def filled(error):
    error.late, error.stopped, error.left, error.host = (1, 2), (2,), (5,), "b"
    if isinstance(error, nvcoll.PeerLost):
        error.rank, error.pid, error.signal, error.status = 4, 77, 9, None
    if isinstance(error, nvcoll.Refuted):
        error.places = ("r0.q0.0",)
    return error


@pytest.mark.parametrize("error", [*map(filled, FILLED)], ids=lambda error: type(error).__name__)
def test_errors_keep_what_they_know_when_they_are_pickled(error):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        far = pool.apply(filled, (error,))
    for copy in (pickle.loads(pickle.dumps(error)), far):
        assert type(copy) is type(error) and str(copy) == str(error) and vars(copy) == vars(error)


@pytest.mark.parametrize("text", ["Ж" * 900, "short", "\0" * 900, "a" * 4000, "\ud800" * 500, "🙂" * 600])
def test_a_control_message_holds_every_failure(text):
    many = tuple(range(1000, 2000))
    failure = Failure("Timeout", text, many, late=many, stopped=many, left=many, host=1, status=3)
    message = failure.packed()
    assert len(message) <= CONTROL_BYTES and json.loads(message)["kind"] == "Timeout"
    copy = Failure.unpacked(message.ljust(CONTROL_BYTES, b"\0"))
    assert (copy.host, copy.status, copy.late) == (1, 3, many[:16])
    assert copy.text == text.encode(errors="replace").decode() or copy.text.endswith(" …")
