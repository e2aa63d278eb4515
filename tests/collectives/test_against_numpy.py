"""Every collective against one line of numpy, as a reader would write it; and what each refuses."""

import numpy as np
import pytest
from rank_threads import ends_of

import nvcoll
from nvcoll._nvcoll import collectives

pytestmark = pytest.mark.timeout(100)

N = 5
ROOTED = {row.name for row in collectives() if row.has_root}


def arrays(count=13, dtype="i4"):
    """One array per rank: rank r has 100 r, 100 r + 1, ..."""
    return [np.arange(count, dtype=dtype) + 100 * r for r in range(N)]


def equal(found, expected):
    return all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.fixture(scope="module")
def node():
    return nvcoll.Node(N)


def test_every_collective_has_a_method_on_node_and_communicator():
    names = {row.name for row in collectives()}
    assert all(hasattr(nvcoll.Node, name) and hasattr(nvcoll.Communicator, name) for name in names)
    assert all(getattr(kind, name).__doc__ for name in names for kind in (nvcoll.Node, nvcoll.Communicator))


PLAIN = {
    "reduce_scatter": lambda x: np.split(sum(x), N),
    "all_gather": lambda x: [np.concatenate(x)] * N,
    "broadcast": lambda x: [x[2]] * N,
    "reduce": lambda x: [sum(x) if r == 2 else None for r in range(N)],
    "gather": lambda x: [np.concatenate(x) if r == 2 else None for r in range(N)],
    "scatter": lambda x: np.split(x[2], N),
    "all_to_all": lambda x: [np.concatenate([y[2 * r : 2 * r + 2] for y in x]) for r in range(N)],
    "scan": lambda x: np.cumsum(x, axis=0, dtype="i4"),
    "exscan": lambda x: [x[0], *np.cumsum(x, axis=0, dtype="i4")[:-1]],  # rank 0 keeps its array
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_collective_is_its_line_of_numpy(node, name):
    expected, root = PLAIN[name](arrays(10)), {"root": 2} if name in ROOTED else {}
    x = arrays(10)
    found = getattr(node, name)(x[2] if name == "scatter" else x, **root)
    of_ranks = node.run(lambda comm: getattr(comm, name)(arrays(10)[comm.rank], **root))
    if name in ("reduce", "gather"):
        assert np.array_equal(found, expected[2]) and [y is None for y in of_ranks] == [r != 2 for r in range(N)]
        assert np.array_equal(of_ranks[2], expected[2])
    else:
        assert equal(found, expected) and equal(of_ranks, expected)


def test_broadcast_reads_a_read_only_array_of_the_root(node):
    x = arrays()
    x[1].flags.writeable = False
    assert equal(node.broadcast(x, root=1), [arrays()[1]] * N)


def test_broadcast_with_out_looks_at_the_root_s_array_only(node):
    x, out = [None, None, arrays()[2], None, None], [np.zeros(13, "i4") for _ in range(N)]
    assert node.broadcast(x, root=2, out=out) is out and equal(out, [x[2]] * N)
    program = lambda comm: comm.broadcast(x[comm.rank], root=2, out=np.zeros(13, "i4"))  # noqa: E731
    assert equal(node.run(program), [x[2]] * N)


def test_barrier_returns_when_every_rank_has_called_it(node):
    assert node.barrier() is None
    assert node.run(lambda comm: comm.barrier()) == [None] * N


def test_new_arrays_are_of_the_kind_of_the_argument(node):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in ("f8", "i4", ml_dtypes.bfloat16):
        (found, *_) = node.all_gather(np.ones((N, 2), dtype))
        assert type(found) is np.ndarray and found.dtype == np.dtype(dtype) and found.shape == (2 * N,)
    assert type(node.gather([memoryview(np.ones(2))] * N)) is np.ndarray


def test_new_arrays_of_torch_tensors_are_tensors(node):
    torch = pytest.importorskip("torch")
    found = node.all_to_all([torch.arange(10, dtype=torch.bfloat16) for _ in range(N)])
    assert all(type(x) is torch.Tensor and x.dtype is torch.bfloat16 for x in found)
    assert found[1].tolist() == [2, 3] * N
    parts = node.run(lambda comm: comm.scatter(torch.arange(10.0), root=1))
    assert [part.tolist() for part in parts] == [[2 * r, 2 * r + 1] for r in range(N)]


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather", "gather", "scatter", "all_to_all"])
def test_a_plan_gives_its_result_and_reads_arrays_anew(node, collective):
    x = np.arange(10.0) if collective == "scatter" else np.ones((N, 10))
    plan = node.plan(collective, x)
    for factor in (1, 5):
        plan.run()
        again = getattr(node, collective)(x)
        again = [again] if collective == "gather" else again
        assert equal([plan.result] if collective == "gather" else plan.result, again)
        x *= factor


def test_a_plan_takes_what_the_method_takes(node):
    x = arrays()
    plan = node.plan("reduce", x, "max", root=4)
    plan.run()
    assert plan.result is x[4] and np.array_equal(x[4], arrays()[4])
    plan = node.plan("scatter", np.arange(3.0), root=1, counts=[0, 1, 2, 0, 0])
    plan.run()
    assert equal(plan.result, [[], [0], [1, 2], [], []])
    node.plan("barrier").run()


def test_an_algorithm_written_in_python_gets_the_root(node):
    @nvcoll.algorithm("broadcast")
    def chain(b):
        n, root = b.world_size, b.root
        x = b.copy(b.input(root, 0), into=b.output(root, 0))
        for hop in range(1, n):
            x = b.copy(x, into=b.output((root + hop) % n, 0))

    for root in (0, 3):
        assert equal(node.broadcast(arrays(), root=root, algorithm=chain), [arrays()[root]] * N)
        found = node.run(lambda comm, root=root: comm.broadcast(arrays()[comm.rank], root=root, algorithm=chain))
        assert equal(found, [arrays()[root]] * N)
    with pytest.raises(nvcoll.InvalidArgument, match="`algorithm` is of broadcast, the call is reduce"):
        node.reduce(arrays(), algorithm=chain)


REFUSED = {
    "out_too_short": (
        lambda node: node.all_gather(arrays(12), out=[np.zeros(60 - 48 * (r == 3), "i4") for r in range(N)]),
        r"`out` of rank 3 holds 12 elements, all_gather needs 60 \(by `arrays` of rank 0, world_size 5\): pass",
    ),
    "counts_that_do_not_fit": (
        lambda node: node.reduce_scatter(arrays(), counts=[1, 2, 3, 4, 5]),
        r"`arrays` of rank 0 holds 13 elements, reduce_scatter needs 15 \(by `counts`\)",
    ),
    "one_that_is_longer": (
        lambda node: node.scan([*arrays()[:4], np.zeros(14, "i4")]),
        r"`arrays` of rank 4 holds 14 elements, scan needs 13 \(as `arrays` of rank 0\)",
    ),
    "too_few_counts": (
        lambda node: node.all_gather(arrays(), counts=[1, 2]),
        "`counts` has 2 numbers, the call has 5 ranks",
    ),
    "counts_that_are_none": (
        lambda node: node.all_gather(arrays(), counts=[1, 2, -3, 4, 5]),
        "counts is -3: it must be a whole number",
    ),
    "counts_that_are_no_list": (lambda node: node.all_gather(arrays(), counts=13), "`counts` is 13: pass a list"),
    "counts_of_one_part": (lambda node: node.plan("all_reduce", arrays(), counts=[13] * N), "leave it out"),
    "one_row_for_all": (lambda node: node.all_to_all(arrays(), counts=[1] * N), "`counts` is one row: pass a table"),
    "a_root_that_is_no_rank": (lambda node: node.broadcast(arrays(), root=5), "root is 5: it must be .* from 0 to 4"),
    "a_root_that_is_no_number": (lambda node: node.gather(arrays(), root="0"), "root is '0'"),
    "a_root_where_there_is_none": (
        lambda node: node.plan("scan", arrays(), root=0),
        "`root` is given, and scan has none",
    ),
    "an_op_that_folds_nothing": (
        lambda node: node.plan("gather", arrays(), "sum"),
        "`op` is given, and gather folds nothing",
    ),
    "avg_of_predecessors": (
        lambda node: node.scan(arrays(dtype="f4"), "avg"),
        "avg is not defined for scan: choose from",
    ),
    "none_that_is_read": (
        lambda node: node.all_gather([*arrays()[:3], None, arrays()[4]]),
        "`arrays` of rank 3 is None: pass a numpy array",
    ),
    "a_list_for_the_root": (
        lambda node: node.scatter(arrays(), root=2),
        "`arrays` is a list, and only rank 2, the root, has an array: pass that array",
    ),
    "nothing_for_the_root": (
        lambda node: node.gather(arrays(), out=[None] * N),
        "`out` is a list, and only rank 0, the root, has an array",
    ),
    "none_for_the_root": (lambda node: node.scatter(None), "`arrays` is None, and only rank 0, the root"),
    "a_read_only_output": (
        lambda node: node.gather(arrays(), out=np.broadcast_to(np.zeros(1, "i4"), 65)),
        "`out` of rank 0 is read-only",
    ),
    "arrays_of_a_barrier": (lambda node: node.plan("barrier", arrays()), "barrier has none"),
    "no_arrays": (lambda node: node.plan("gather"), "gather needs it"),
    "a_plan_of_split": (lambda node: node.plan("split"), "no collective is called `split`"),
    "no_collective": (
        lambda node: node.plan("allreduced", arrays()),
        "no collective is called `allreduced`: choose from",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_called_is_refused_before_a_byte_moves(node, what):
    call, message = REFUSED[what]
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        call(node)


def test_a_mixture_of_ranks_in_place_and_not_is_refused(node):
    x = arrays(10)
    out = [y[2 * r : 2 * r + 2] for r, y in enumerate(x)]
    out[4] = np.zeros(2, "i4")
    with pytest.raises(nvcoll.InvalidArgument, match="`out` of rank 0 is in place, and `out` of rank 4 is not"):
        node.reduce_scatter(x, out=out)


def test_an_output_that_is_another_part_of_its_input_is_refused(node):
    x = arrays(10)
    with pytest.raises(nvcoll.InvalidArgument, match=r"`arrays` of rank (\d) and `out` of rank \1 overlap"):
        node.reduce_scatter(x, out=[y[2 * r + 1 : 2 * r + 3] for r, y in enumerate(x[:4])] + [np.zeros(2, "i4")])
    with pytest.raises(nvcoll.InvalidArgument, match="`arrays` of rank 1 and `out` of rank 1 overlap"):
        node.all_to_all(x, out=[x[1] if r == 1 else np.zeros(10, "i4") for r in range(N)])


def test_a_misplaced_output_is_told_where_it_would_be_in_place(node):
    x = arrays(10)
    where = "or in place, with elements 2:4 of `arrays` of rank 1 as `out` of rank 1$"
    out = [x[1][3:5] if r == 1 else np.zeros(2, "i4") for r in range(N)]
    with pytest.raises(nvcoll.InvalidArgument, match=where):
        node.reduce_scatter(x, out=out)
    wide = np.zeros((N, 20), "i4")
    with pytest.raises(nvcoll.InvalidArgument, match=r"to be in place, packed ones, such as np.ascontiguousarray"):
        node.reduce_scatter(list(wide[:, ::2]), out=[y[::2][2 * r : 2 * r + 2] for r, y in enumerate(wide)])


def test_ranks_may_not_share_what_is_written(node):
    whole = np.zeros(10, "i4")
    with pytest.raises(nvcoll.InvalidArgument, match="`out` of rank 0 and `out` of rank 1 overlap"):
        node.scatter(np.arange(10, dtype="i4"), out=[whole[r : r + 2] for r in range(N)])


@pytest.mark.parametrize("async_op", [False, True])
def test_rows_of_all_to_all_that_disagree_are_a_mismatch_on_every_rank(node, async_op):
    def program(comm):
        receives = [1] * N
        if comm.rank == 3:
            receives[2] = 4
        work = comm.all_to_all(np.zeros(N), counts=[1] * N, recv_counts=receives, async_op=async_op)
        work.wait()

    words = "rank 2 sends 1 element to rank 3, but rank 3 receives 4 from rank 2"
    for _ in range(50):  # the first rank that knows must not abort the exchange of the others
        seen, first = ends_of(node, program)
        assert isinstance(first, nvcoll.Mismatch) and len(seen) == N
        assert all(words in str(error) for error in seen.values()), seen


def test_a_rank_that_passes_nothing_cannot_know_its_part(node):
    def program(comm):
        comm.scatter(np.zeros(10) if comm.rank == 0 else None)

    with pytest.raises(nvcoll.InvalidArgument, match=r"dtype and count of scatter are unknown .*: pass `out`"):
        node.run(program, timeout=30)


def test_a_rank_that_passes_none_where_its_array_is_needed_is_told(node):
    with pytest.raises(
        nvcoll.InvalidArgument, match="`x` of rank 2 is None, and broadcast writes into the array of this rank"
    ):
        node.run(lambda comm: comm.broadcast(None if comm.rank == 2 else np.zeros(3)), timeout=30)


def test_a_root_that_passes_none_is_told_that_it_is_the_root(node):
    with pytest.raises(nvcoll.InvalidArgument, match=r"`x` of rank 1 is None, and scatter reads .* rank, the root"):
        node.run(lambda comm: comm.scatter(None, root=1, out=np.zeros(2)), timeout=30)


@pytest.mark.parametrize("collective", ["all_gather", "gather"])
def test_ranks_whose_parts_differ_in_length_are_told_of_counts(node, collective):
    def program(comm):
        with pytest.raises(nvcoll.Mismatch, match=r"where parts differ in length, every rank passes .* `counts=`"):
            getattr(comm, collective)(np.zeros(3 + comm.rank), timeout=30)

    nvcoll.Node(N).run(program, timeout=60)


def test_ranks_of_which_one_alone_passes_counts_are_told_so(node):
    def program(comm):
        with pytest.raises(nvcoll.Mismatch, match="the same call, with the same `counts=` or none"):
            comm.all_gather(np.zeros(3), counts=[3] * (N - 1) + [4] if comm.rank == 0 else None, timeout=30)

    nvcoll.Node(N).run(program, timeout=60)


def test_recv_counts_need_a_row(node):
    with pytest.raises(nvcoll.InvalidArgument, match="`recv_counts` is given without a row of `counts`"):
        node.run(lambda comm: comm.all_to_all(np.zeros(N), recv_counts=[1] * N), timeout=30)


@pytest.mark.parametrize("name", [row.name for row in collectives() if row.name != "barrier"])
def test_strided_arrays_take_part_in_every_collective(node, name):
    def strided(count, value):
        x = np.zeros((count, 3), "i4")[:, 1]
        x[:] = value
        return x

    x = [strided(10, y) for y in arrays(10)]
    packed = arrays(10)
    if name == "scatter":
        x, packed = x[0], packed[0]
    found, expected = getattr(node, name)(x), getattr(node, name)(packed)
    assert equal([found], [expected]) if name in ("gather", "reduce") else equal(found, expected)


def test_counts_may_be_an_iterator():
    node, arrays = nvcoll.Node(2), [np.ones(1, "f4"), np.ones(3, "f4")]
    assert [x.size for x in node.all_gather(arrays, counts=iter([1, 3]))] == [4, 4]


def test_new_arrays_keep_the_trailing_axes_of_the_input():
    node, blocks = nvcoll.Node(4), [np.full((2, 3), rank) for rank in range(4)]
    whole = np.concatenate(blocks)
    assert all((out == whole).all() and out.shape == (8, 3) for out in node.all_gather(blocks))
    assert (node.all_gather(np.stack(blocks))[0] == whole).all()
    assert node.gather(blocks, root=1).shape == (8, 3)
    assert [part.shape for part in node.reduce_scatter([whole] * 4)] == [(2, 3)] * 4
    assert all((part == blocks[rank]).all() for rank, part in enumerate(node.scatter(whole)))
    assert [out.shape for out in node.all_to_all([whole] * 4)] == [(8, 3)] * 4
    assert [part.shape for part in node.scatter(whole, counts=[3, 0, 6, 15])] == [(1, 3), (0, 3), (2, 3), (5, 3)]
    assert [part.shape for part in node.scatter(np.ones((4, 2, 0)))] == [(0,)] * 4

    def program(comm):
        gathered = comm.all_gather(blocks[comm.rank])
        return gathered.shape, comm.reduce_scatter(whole).shape, comm.all_to_all(whole).shape

    assert node.run(program, timeout=60) == [((8, 3), (2, 3), (8, 3))] * 4


def test_new_arrays_have_one_axis_where_a_part_is_no_whole_number_of_rows():
    node = nvcoll.Node(4)
    assert [part.shape for part in node.scatter(np.ones((7, 3)))] == [(6,), (5,), (5,), (5,)]
    assert [part.shape for part in node.scatter(np.ones(8))] == [(2,)] * 4
    assert [out.shape for out in node.all_gather(np.ones((4, 5)))] == [(20,)] * 4
    assert node.gather(np.ones((4, 1))).shape == (4,)


def test_an_uneven_gather_is_told_of_counts():
    def program(comm):
        comm.all_gather(np.ones(12 + comm.rank), out=np.zeros(25))

    with pytest.raises(nvcoll.InvalidArgument, match=r"holds 25 elements, all_gather needs 24 .*, or `counts=`"):
        nvcoll.Node(2).run(program, timeout=60)
