"""What a call takes as arrays, and what it refuses, with which words."""

import array
import ctypes
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from amounts import examples
from drawn import dtype_named
from hypothesis import given, settings
from hypothesis import strategies as st
from left_open import resident_bytes

import nvcoll
from nvcoll._nvcoll import dtypes

NODES = {n: nvcoll.Node(n) for n in (1, 2, 3, 4)}


@pytest.fixture
def node():
    return nvcoll.Node(2)


def pair(dtype="f4", count=6):
    return [np.ones(count, dtype=dtype) for _ in range(2)]


def read_only(x):
    x.flags.writeable = False
    return x


class Described:
    """An object whose ``__dlpack__`` raises."""

    def __init__(self, error):
        self.error = error

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        raise self.error


def floats(*values):
    return (ctypes.c_float * len(values))(*values)


@pytest.mark.parametrize(
    "make",
    [
        lambda: array.array("f", [1, 2, 3]),
        lambda: memoryview(bytearray(floats(1, 2, 3))).cast("f"),
        lambda: memoryview(floats(3, 2, 1)).cast("B").cast("f")[::-1],
        lambda: floats(1, 2, 3),
        lambda: (ctypes.c_float * 1 * 3)((1,), (2,), (3,)),
        lambda: np.array([1, 2, 3], "f4"),
        lambda: np.array([[1], [2], [3]], "f4", order="F"),
        lambda: np.array([1, 2, 3], "f4").view(np.recarray),
        lambda: np.frombuffer(b"\0" + bytes(floats(1, 2, 3)), "u1").copy()[1:].view("f4"),
    ],
)
def test_whatever_lends_its_memory_is_an_array(node, make):
    for arrays in ([make(), make()], (make(), np.array([1, 2, 3], "f4"))):
        assert node.all_reduce(arrays) is arrays
        assert all(np.array_equal(np.ravel(x), [2, 4, 6]) for x in arrays)


def test_torch_tensors_of_every_dtype_are_arrays(node):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for dtype in (row.name for row in dtypes()):
        ours, theirs = dtype_named(dtype), getattr(torch, dtype)
        tensors = [torch.ones(5).to(theirs), torch.ones(5, 3).to(theirs)[:, 1], np.ones(5, ours)]
        nvcoll.Node(3).all_reduce(tensors)
        assert (tensors[2] == np.array(3).astype(ours)).all()
        assert all((tensor.to(torch.complex64) == (1 if dtype == "bool" else 3)).all() for tensor in tensors[:2])
    stack = torch.ones(2, 3, 4)
    node.all_reduce(stack)
    assert (stack == 2).all()


def test_torch_tensors_whose_values_are_not_those_in_memory_are_refused(node):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for message, make in [
        ("resolve_neg", lambda: torch.complex(torch.ones(3), torch.ones(3)).conj().imag),
        ("resolve_conj", lambda: torch.ones(3, dtype=torch.complex64).conj()),
        ("requires grad", lambda: torch.ones(5, requires_grad=True)),
        ("rank 1 has dtype float8_e8m0fnu: convert it", lambda: torch.ones(5).to(torch.float8_e8m0fnu)),
        ("rank 1 is on|rank 1 cannot be read", lambda: torch.ones(5, device="meta")),
        ("rank 1 cannot be read", lambda: torch.ones(5).to_sparse()),
    ]:
        with pytest.raises(nvcoll.InvalidArgument, match=message):
            node.all_reduce([torch.ones(5), make()])


def test_the_memory_of_torch_tensors_is_given_back(node):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    before = 0
    for number in range(60):
        node.all_reduce([torch.ones(1 << 18), torch.ones(1 << 18)])
        with pytest.raises(nvcoll.InvalidArgument):
            node.all_reduce([torch.ones(1 << 18), None])
        before = resident_bytes() if number == 9 else before
    assert resident_bytes() - before < 50 << 20


def test_a_strided_vector_of_ranks_and_a_stack_of_matrices(node):
    stack = np.ones((2, 3, 4), dtype="f8")
    node.all_reduce(stack)
    assert (stack == 2).all()
    every_other = np.ones((4, 5), dtype="f4")[::2]
    node.all_reduce(every_other)
    assert (every_other == 2).all()
    for scalars in (np.array([1, 2], dtype="i4"), np.array([2, 0, 1], dtype="i4")[::-2]):
        node.all_reduce(scalars)
        assert (scalars == 3).all()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (lambda: pair()[:1], r"`arrays` has length 1, the node has 2 ranks: pass one array per rank"),
        (lambda: np.ones((3, 4)), r"`arrays` has length 3, the node has 2 ranks"),
        (lambda: np.ones(()), r"`arrays` is a scalar: pass a list of arrays"),
        (lambda: [np.ones(6, "f4"), np.ones(6, "f8")], r"rank 1 is float64, all_reduce needs float32 \(as"),
        (lambda: [np.ones(6, "f4"), np.ones(5, "f4")], r"rank 1 holds 5 elements, all_reduce needs 6 .*: pass"),
        (lambda: [np.ones(0, "f4"), np.ones(5, "f4")], r"rank 1 holds 5 elements, all_reduce needs 0"),
        (lambda: pair("g"), r"rank 0 has dtype (float|longdouble)\d*: convert it to one of float32"),
        (lambda: pair(ml_dtypes.float8_e8m0fnu), r"rank 0 has dtype float8_e8m0fnu: convert it to one of float32"),
        (lambda: pair("S3"), r"has dtype \|S3: convert it"),
        (lambda: pair([("x", "f4")]), r"has dtype \[\('x', '<f4'\)\]: convert it"),
        (lambda: [x.astype(">f4") for x in pair()], r"has dtype >f4, whose byte order is not this machine's"),
        (lambda: [memoryview(x.astype(">f4")) for x in pair()], r"dtype float32, whose byte order"),
        (lambda: [memoryview(bytearray(8)).cast("c")] * 2, r"rank 0 has dtype \(buffer format \"c\"\): convert it"),
        (
            lambda: [array.array("w" if sys.version_info >= (3, 13) else "u", "ab")] * 2,
            r"rank 0 has dtype \(buffer format",
        ),
        (lambda: [np.ones(6, "f4")] * 2, r"rank 0 and `arrays` of rank 1 overlap"),
        (lambda: [np.broadcast_to(np.float32(1), 6)] * 2, r"rank 0 is read-only and would be written"),
        (lambda: [read_only(x) for x in pair()], r"rank 0 is read-only and would be written: pass a writable array"),
        (lambda: [memoryview(bytes(8)).cast("f")] * 2, r"rank 0 is read-only"),
        (lambda: [np.ma.masked_array(x, mask=[True] * 6) for x in pair()], r"is a masked array"),
        (lambda: [1.0, 2.0], r"`arrays` of rank 0 is a float: pass a numpy array"),
        (lambda: [None, None], r"`arrays` of rank 0 is None: pass a numpy array"),
        (lambda: [np.ndarray, np.ndarray], r"`arrays` of rank 0 is a type: pass a numpy array"),
        (lambda: pair()[0].sum(), r"`arrays` is a numpy scalar, which has no memory to share"),
        (lambda: [Described(BufferError("no"))] * 2, r"rank 0 cannot be read as an array \(BufferError: no\): pass"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(node, arrays, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        node.all_reduce(arrays())


def test_an_interruption_while_an_array_is_read_stays_one(node):
    with pytest.raises(KeyboardInterrupt):
        node.all_reduce([Described(KeyboardInterrupt())] * 2)


def test_a_rank_that_calls_for_itself_is_told_its_rank_and_argument():
    def program(comm):
        x = np.ones(4, "f4")
        return comm.all_reduce(x, out=read_only(x.copy()) if comm.rank == 1 else None)

    with pytest.raises(nvcoll.InvalidArgument, match="`out` of rank 1 is read-only"):
        NODES[2].run(program)


def test_outputs_may_not_overlap_inputs_of_other_ranks(node):
    memory = np.ones((3, 6), dtype="f4")
    with pytest.raises(nvcoll.InvalidArgument, match="`arrays` of rank 1 and `out` of rank 0 overlap"):
        node.all_reduce([memory[0], memory[1]], out=[memory[1], memory[2]])
    assert (memory == 1).all()


def test_outputs_that_are_the_inputs_are_in_place_and_a_mixture_is_refused(node):
    x, y, z = np.ones((3, 6), dtype="f4")
    node.all_reduce([x, y], out=(x[:], y.reshape(2, 3)))
    assert (x == 2).all() and (y == 2).all()
    with pytest.raises(nvcoll.InvalidArgument, match="`out` of rank 0 is its input, and `out` of rank 1 is not"):
        node.all_reduce([x, y], out=[x, z])


def test_read_only_inputs_and_inputs_that_overlap_are_fine_out_of_place(node):
    x, out = np.arange(6, dtype="f4"), pair(count=4)
    node.all_reduce([read_only(x)[:4], x[2:]], out=out)
    assert all((y == [2, 4, 6, 8]).all() for y in out)
    node.all_reduce([np.broadcast_to(np.float32(3), 4), x[:4]], out=out)
    assert all((y == [3, 4, 5, 6]).all() for y in out)


# Strided arrays.


@st.composite
def layouts(draw, shape):
    """How to lie in memory: the order of the axes, a step along each, the elements before the first one."""
    steps = st.sampled_from([1, 1, 2, 3, -1, -2])
    return draw(st.permutations(range(len(shape)))), [draw(steps) for _ in shape], draw(st.integers(0, 3))


def lay_out(value, layout):
    """Returns a view with the elements of ``value``, and the memory in which it lies."""
    order, steps, before = layout
    lengths = [value.shape[axis] * abs(steps[axis]) + 1 for axis in order]
    memory = np.full(before + int(np.prod(lengths)), 77).astype(value.dtype)
    box = memory[before:].reshape(lengths).transpose(np.argsort(order))
    view = box[(*(slice(None, n * abs(s), abs(s)) for n, s in zip(value.shape, steps, strict=True)), ...)]
    view = view[(*(slice(None, None, -1 if s < 0 else 1) for s in steps), ...)]
    view[...] = value
    return view, memory


@settings(max_examples=examples(200))
@given(st.data())
def test_strided_arrays_are_read_and_written_where_they_lie_and_nowhere_else(data):
    shape = data.draw(st.lists(st.integers(0, 4), max_size=3).map(tuple))
    dtype = data.draw(st.sampled_from(["f4", "f8", "i4", ml_dtypes.bfloat16, "u1", "c16"]))
    n = data.draw(st.sampled_from(list(NODES)))
    values = [np.random.default_rng(r).integers(0, 9, shape).astype(dtype) for r in range(n)]
    expected = np.sum(values, axis=0)
    placed = [lay_out(value, data.draw(layouts(shape))) for value in values]
    views = [view for view, _ in placed]
    untouched = [memory.copy() for _, memory in placed]
    for memory, (view, original) in zip(untouched, placed, strict=True):
        offset = view.__array_interface__["data"][0] - original.__array_interface__["data"][0]
        np.ndarray(view.shape, view.dtype, memory, offset, view.strides)[...] = expected
    call = data.draw(st.sampled_from(["node", "plan", "ranks", "out"]))
    if call == "node":
        NODES[n].all_reduce(views)
    elif call == "plan":
        NODES[n].plan("all_reduce", views).run()
    elif call == "ranks":
        NODES[n].run(lambda comm: comm.all_reduce(views[comm.rank]))
    else:
        inputs = [lay_out(value, data.draw(layouts(shape)))[0] for value in values]
        NODES[n].all_reduce(inputs, out=views)
    assert all(np.array_equal(view, expected) for view in views)
    assert all(np.array_equal(memory, want) for (_, memory), want in zip(placed, untouched, strict=True))


def test_arrays_whose_own_elements_share_memory_are_read_and_not_written(node):
    windows = [np.lib.stride_tricks.sliding_window_view(np.arange(6, dtype="f4"), 3, writeable=True) for _ in range(2)]
    with pytest.raises(nvcoll.InvalidArgument, match="`arrays` of rank 0 has elements that share memory"):
        node.all_reduce(windows)
    out = [np.empty((4, 3), "f4") for _ in range(2)]
    node.all_reduce(windows, out=out)
    assert (out[1] == 2 * windows[0]).all()


def test_strides_too_hard_to_tell_apart_are_refused_with_advice():
    memory = np.zeros(1 << 27, "u1")
    every_second = memory.view("i4")[1::2]
    primes = [62_233, 61_057, 59_999, 58_889, 57_773, 56_663, 55_541, 54_437]
    others = np.ndarray([8] * 8, "i4", memory, 0, [8 * prime for prime in primes])
    with pytest.raises(nvcoll.InvalidArgument, match=r"they share a byte takes too long .*: pass packed arrays"):
        NODES[1].all_reduce([others], out=[every_second])


def test_a_call_that_fails_midway_leaves_strided_arrays_as_they_were():
    matrices = [np.ones((2048, 2048), dtype="f4") for _ in range(2)]
    timeout, failures = 1e-9, 0
    while (matrices[0] == 1).all():
        try:
            NODES[2].all_reduce([m.T for m in matrices], algorithm="ring", timeout=timeout)
        except nvcoll.Timeout:
            assert all((m == 1).all() for m in matrices)
            timeout, failures = max(2 * timeout, 1e-4), failures + 1
    assert failures > 0 and all((m == 2).all() for m in matrices)


def test_a_rank_that_waits_in_vain_keeps_its_strided_array():
    x, gave_up = np.ones((4, 4), dtype="f4"), threading.Event()

    def program(comm):
        if comm.rank == 1:
            gave_up.wait(60)
        else:
            with pytest.raises(nvcoll.Timeout, match="rank 1 has not entered"):
                comm.all_reduce(x[:, 1], timeout=0.05)
            gave_up.set()

    NODES[2].run(program)
    assert (x == 1).all()


def test_a_plan_reads_strided_arrays_anew_each_time(node):
    memory = [np.ones((3, 4), dtype="f4") for _ in range(2)]
    plan = node.plan("all_reduce", [m[:, 1] for m in memory])
    for expected in (2, 4, 8):
        plan.run()
        assert all((m[:, 1] == expected).all() and m.sum() == 9 + 3 * expected for m in memory)


# What a call holds.


def test_a_call_holds_its_arrays_and_a_plan_until_it_goes(node):
    arrays = pair()
    before = [sys.getrefcount(x) for x in arrays]
    node.all_reduce(arrays)
    with pytest.raises(nvcoll.InvalidArgument):
        node.all_reduce([*arrays[:1], None])
    assert [sys.getrefcount(x) for x in arrays] == before
    plan = node.plan("all_reduce", arrays)
    assert all(sys.getrefcount(x) > n for x, n in zip(arrays, before, strict=True))
    with pytest.raises(ValueError, match="resize"):
        arrays[0].resize(1000)
    del plan
    assert [sys.getrefcount(x) for x in arrays] == before
    lent = [bytearray(8), bytearray(8)]
    plan = node.plan("all_reduce", [memoryview(x).cast("f") for x in lent])
    with pytest.raises(BufferError):
        lent[0].append(0)
    del plan
    lent[0].append(0)


def test_twelve_thousand_calls_leave_no_memory_behind(node):
    packed, wide = pair(), [np.ones((64, 128), dtype="f4") for _ in range(2)]
    cases = [packed, wide[0][:2], [m[:, ::2] for m in wide], [memoryview(x) for x in packed]]

    def calls(number):
        for _ in range(number // 5):
            for arrays in cases:
                node.all_reduce(arrays)
            with pytest.raises(nvcoll.InvalidArgument):
                node.all_reduce([wide[0][:, 0], None])

    def grown(number):
        before = resident_bytes()
        calls(number)
        return resident_bytes() - before

    calls(2_000)
    # A hundred bytes of each call would show every time; what else the process does, or a huge page, does not.
    assert min(grown(4_000) for _ in range(3)) < 400_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "rings"}, "choose from nvswitch"),
        ({"path": "nvlink"}, "mapped, staged"),
        ({"op": "premul_sum"}, "without scalars"),
    ],
)
def test_wrong_algorithms_paths_and_scalars_are_refused_with_the_choices(node, options, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        node.all_reduce(pair(), **options)
