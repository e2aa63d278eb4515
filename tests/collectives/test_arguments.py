"""Arguments that are no arrays: numbers, instruction sets, programs. What cannot be used is refused by name."""

import numpy as np
import pytest

import nvcoll
from nvcoll._nvcoll import machine, roofline


class Interrupting:
    def __index__(self):
        raise KeyboardInterrupt


NO_RANKS = [0, -1, 16385, 2**32, 2**70, -(2**70), 10**5000, 2.0, float("nan"), "8", None, True, np.float32(2), [2]]


@pytest.mark.parametrize("number", NO_RANKS, ids=lambda number: "huge" if number is NO_RANKS[6] else repr(number))
@pytest.mark.parametrize(
    "make",
    [
        nvcoll.Node,
        lambda n: nvcoll.Builder("all_reduce", n),
        lambda n: nvcoll.schedule("all_reduce", "ring", world_size=n),
    ],
    ids=["Node", "Builder", "schedule"],
)
def test_a_world_size_that_is_none_is_refused_by_name(make, number):
    most = 1024 if make is nvcoll.Node else 16384  # a schedule describes more ranks than run
    with pytest.raises(
        nvcoll.InvalidArgument, match=rf"^world_size is .*: it must be a whole number, from 1 to {most}$"
    ):
        make(number)


def test_a_world_that_cannot_run_can_be_described():
    with pytest.raises(nvcoll.InvalidArgument, match=r"^world_size is 1025: .* from 1 to 1024$"):
        nvcoll.Node(1025)
    assert nvcoll.schedule("all_reduce", "tree", world_size=1025).world_size == 1025


def test_a_registered_algorithm_takes_arguments_behind_its_name():
    build = lambda name: nvcoll.schedule("all_reduce", name, world_size=8)  # noqa: E731
    assert build("two_level( outer=halving_doubling, per_node=2 )").algorithm == (
        "two_level(per_node=2,outer=halving_doubling)"
    )
    with pytest.raises(nvcoll.InvalidArgument, match="`outer` of two_level is tree: it must be ring or halving_doubl"):
        build("two_level(outer=tree)")
    arrays = [np.full(5, rank, dtype="f4") for rank in range(8)]
    node = nvcoll.Node(8)
    for name in ("two_level(per_node=4)", "two_level(per_node = 4, outer = ring)"):
        node.all_reduce([array.copy() for array in arrays], algorithm=name)
    with pytest.raises(nvcoll.InvalidArgument, match="no parameter `nodes`: it takes per_node, outer"):
        node.all_reduce(arrays, algorithm="two_level(nodes=4)")


@pytest.mark.parametrize("number", [1, 1024, np.int64(3), np.uint8(3)], ids=repr)
def test_whatever_is_a_whole_number_is_a_world_size(number):
    assert nvcoll.Node(number).world_size == number


@pytest.mark.parametrize("workers", [0, -1, 2**40, 1.5, False])
def test_workers_that_are_none_are_refused_by_name(workers):
    with pytest.raises(nvcoll.InvalidArgument, match=f"^workers is {workers}: it must be a whole number, at least 1"):
        nvcoll.Node(4, workers=workers)
    assert nvcoll.Node(4, workers=2**31).workers == 4


@pytest.mark.parametrize("count", [-1, 2**63, 2.0, True])
def test_a_count_of_elements_that_is_none_is_refused_by_name(count):
    ring = nvcoll.schedule("all_reduce", "ring", world_size=2)
    with pytest.raises(
        nvcoll.InvalidArgument, match=r"^count is .*: it must be a whole number, at least 0 and less than 2\^63"
    ):
        ring.chunk_ranges(count)
    assert ring.chunk_ranges(2**63 - 1)[-1][1] == 2**63 - 1


@pytest.mark.parametrize("threads", [-1, 0, 1025, 2**64, 1.0])
def test_threads_of_the_roofline_that_are_none_are_refused_by_name(threads):
    with pytest.raises(nvcoll.InvalidArgument, match=r"^threads is .*: it must be a whole number, from 1 to 1024$"):
        roofline([np.ones(3, dtype="f4")], threads)


def test_what_a_number_raises_itself_is_not_hidden():
    with pytest.raises(KeyboardInterrupt):
        nvcoll.Node(Interrupting())


def test_an_instruction_set_has_a_short_name_in_any_case():
    for name in machine()["isas"]:
        x = np.ones((2, 100), dtype="f4")
        nvcoll.Node(2, isa=name.upper()).all_reduce(x)
        assert (x == 2).all()
    with pytest.raises(nvcoll.InvalidArgument, match="`mmx`: choose from " + ", ".join(machine()["isas"])):
        nvcoll.Node(2, isa="mmx")


def test_an_instruction_set_that_the_processor_lacks_is_refused():
    for name in {"avx2", "avx512"} - set(machine()["isas"]):
        with pytest.raises(nvcoll.InvalidArgument, match=f"this processor has no {name}: choose from "):
            nvcoll.Node(2, isa=name)


def test_a_node_shows_how_it_was_made():
    assert repr(nvcoll.Node(8, workers=2)) == "Node(8, workers=2)"


async def coroutine(comm):
    pass


async def generator(comm):
    yield


@pytest.mark.parametrize("program", [coroutine, generator])
def test_an_async_program_is_refused_and_the_node_stays_free(program):
    node = nvcoll.Node(2)
    with pytest.raises(nvcoll.InvalidArgument, match="async function: pass a plain one"):
        node.run(program)
    assert node.run(lambda comm: comm.rank) == [0, 1]


def test_messages_count_one_in_the_singular():
    assert "1 rank," in repr(nvcoll.schedule("all_reduce", "ring", world_size=1))
    with pytest.raises(nvcoll.InvalidArgument, match="has 2 scalars, the call speaks for 1 rank:"):
        nvcoll.Node(1).all_reduce([np.ones(1, dtype="f4")], nvcoll.premul_sum([1, 2]))


def test_a_premul_sum_shows_its_scalars_and_takes_real_numbers_only():
    assert repr(nvcoll.premul_sum(2)) == "nvcoll.premul_sum(2.0)"
    assert repr(nvcoll.premul_sum([1, 0.5])) == "nvcoll.premul_sum([1.0, 0.5])"
    for wrong in (1j, None, [1, "2"]):
        with pytest.raises(nvcoll.InvalidArgument, match=r"premul_sum scales by a .*: pass a real number"):
            nvcoll.premul_sum(wrong)


def test_a_rank_that_passes_the_scalars_of_all_is_told_to_pass_its_own():
    def program(comm):
        comm.all_reduce(np.ones(1, dtype="f4"), nvcoll.premul_sum([1.0, 2.0]))

    with pytest.raises(nvcoll.InvalidArgument, match="speaks for 1 rank: pass the scalar of this rank alone"):
        nvcoll.Node(2).run(program, timeout=30)


def test_a_schedule_of_its_user_s_is_called_by_its_name_without_its_hash():
    schedule = nvcoll.schedule("all_reduce", "nvswitch", world_size=2, in_place=False)
    with pytest.raises(nvcoll.InvalidArgument) as refused:
        nvcoll.Node(2).all_reduce(np.ones((2, 3), dtype="f4"), algorithm=schedule)
    assert "all_reduce nvswitch of 2, mapped, out of place" in str(refused.value)
    assert "in place, mapped, nvswitch:" in str(refused.value) and "#" not in str(refused.value)


@pytest.mark.parametrize("timeout", [-0.0, -1, float("nan"), 10**400, "1", [1]], ids=repr)
def test_a_timeout_that_is_none_is_refused(timeout):
    node, x = nvcoll.Node(2), np.ones((2, 3))
    plan = node.plan("all_reduce", x)
    calls = [node.all_reduce, node.barrier, plan.run, node.group]
    for call in calls:
        with pytest.raises(nvcoll.InvalidArgument, match=r"`timeout` is .*: pass seconds, 0 or more"):
            call(x, timeout=timeout) if call == node.all_reduce else call(timeout=timeout)
    with pytest.raises(nvcoll.InvalidArgument, match="`timeout` is"):
        node.run(lambda comm: None, timeout=timeout)
    assert (x == 1).all()


@pytest.mark.parametrize("scalars", [{0: 0.5, 1: 0.25}, {0.5, 0.25}, frozenset({0.5}), "12"], ids=repr)
def test_scalars_without_an_order_are_refused(scalars):
    with pytest.raises(nvcoll.InvalidArgument, match=r"`scalars` is a .*: pass a number, or a list"):
        nvcoll.premul_sum(scalars)


@pytest.mark.parametrize("counts", [{5: 0, 3: 1}, {5, 3}, "53"], ids=repr)
def test_counts_without_an_order_are_refused(counts):
    with pytest.raises(nvcoll.InvalidArgument, match=r"`counts` is a .*: pass a list of whole numbers"):
        nvcoll.Node(2).reduce_scatter(np.ones((2, 8)), counts=counts)


def test_a_scalar_that_a_dtype_cannot_hold_is_named_to_the_digit():
    with pytest.raises(nvcoll.InvalidArgument, match="premul_sum scales int64 by 9223372036854775808:"):
        nvcoll.Node(2).all_reduce(np.ones((2, 3), "i8"), nvcoll.premul_sum(2**63))


def test_counts_that_no_memory_holds_are_refused_before_they_are_added_up():
    n = 1024
    node = nvcoll.Node(n, workers=1)
    with pytest.raises(nvcoll.InvalidArgument, match="add up to more than 2\\^58 elements"):
        node.all_to_all(np.ones((n, 1), "i1"), counts=[[2**50] * n] * n)
    endless = np.lib.stride_tricks.as_strided(np.ones(1, "i1"), (2**58,), (0,))
    with pytest.raises(nvcoll.InvalidArgument, match="add up to more than"):
        node.all_gather([endless] * n)


@pytest.mark.parametrize(("size", "nbytes"), [("64K", 65536), ("1GiB", 2**30), (1e9, 10**9), ("140MB", 140_000_000)])
def test_sizes_are_written_alike_everywhere(size, nbytes):
    machine = nvcoll.fabric("hgx-h100")
    assert machine.predict("all_reduce", size).nbytes == nbytes
    assert machine.nccl("all_reduce", size).nbytes == nbytes
    assert machine.floor("all_reduce", size) == machine.floor("all_reduce", nbytes)
    assert [one.nbytes for one in machine.predict("all_reduce", [size, 4])] == [nbytes, 4]
    ring = nvcoll.schedule("all_reduce", "ring", world_size=2)
    assert machine.simulate(ring, size).time_us == machine.simulate(ring, nbytes).time_us


@pytest.mark.parametrize("size", ["1Gb", "many", "", 1.5, float("nan"), -1.0, "9999999T", None])
def test_sizes_that_are_none_are_refused(size):
    with pytest.raises(nvcoll.InvalidArgument, match=r"is bits|is not a size|must be a whole number|more than"):
        nvcoll.fabric("hgx-h100").predict("all_reduce", size)


OF_TORCH = type("RedOpType", (), {"name": "SUM"})()


@pytest.mark.parametrize("op", ["SUM", "Sum", np.add, sum, pytest.param(OF_TORCH, id="torch")])
def test_an_op_may_be_called_as_other_libraries_call_it(op):
    assert (nvcoll.Node(2).all_reduce(np.ones((2, 3)), op) == 2).all()


def test_every_other_name_of_an_op_is_that_op():
    node, x = nvcoll.Node(2), np.array([[5, 3], [6, 3]])
    for op, same in [
        (np.maximum, "max"),
        (np.minimum, "min"),
        (np.multiply, "prod"),
        ("PRODUCT", "prod"),
        (np.bitwise_and, "band"),
        (np.bitwise_or, "bor"),
        (np.bitwise_xor, "bxor"),
        (np.logical_and, "land"),
        (np.logical_or, "lor"),
    ]:
        assert (node.all_reduce(x.copy(), op) == node.all_reduce(x.copy(), same)).all(), same
    assert (node.all_reduce(np.array([[1.0], [3.0]]), "mean") == 2).all()


def test_a_function_of_the_user_s_is_no_op_whatever_its_name():
    def add(a, b):
        return a - b

    for op in (add, lambda a, b: a, 3):
        with pytest.raises(nvcoll.InvalidArgument, match="`op` must be a name"):
            nvcoll.Node(2).all_reduce(np.ones((2, 3)), op)
