"""Plans and groups keep addresses: an array that has moved since is refused, and nothing is written elsewhere."""

import gc
import weakref

import numpy as np
import pytest

import nvcoll


class Traced(np.ndarray):
    """An array that can have attributes and be watched."""


def stolen(array, count=1000):
    """Gives `array` other memory, behind the back of whoever holds it."""
    array.__setstate__(np.ones(count, array.dtype).__reduce__()[2])


def resized(array):
    array.resize(100_000, refcheck=False)


def shrunk(array):
    array.resize(10, refcheck=False)


def reshaped(array):
    array.shape = (10, 100)


MOVED = "`arrays` of rank 1 has moved or changed its shape since the {} was made: make a new {}"


@pytest.mark.parametrize("move", [stolen, resized, shrunk])
@pytest.mark.parametrize("made", ["plan", "group"])
def test_an_array_that_has_moved_since_is_refused_and_no_stranger_is_written(move, made):
    node, arrays = nvcoll.Node(2), [np.ones(1000, "f4"), np.ones(1000, "f4")]
    if made == "plan":
        again = node.plan("all_reduce", arrays)
    else:
        with node.group() as again:
            node.all_reduce(arrays)
    move(arrays[1])
    before = arrays[0].copy()
    strangers = [np.zeros(1000, "f4") for _ in range(8)]
    with pytest.raises(nvcoll.InvalidArgument, match=MOVED.format(made, made)):
        again.run()
    assert not np.any(strangers) and (arrays[0] == before).all()


def test_an_array_that_moves_before_its_group_is_launched_is_refused():
    node, arrays = nvcoll.Node(2), [np.ones(1000, "f4"), np.ones(1000, "f4")]
    with pytest.raises(nvcoll.InvalidArgument, match="`arrays` of rank 0 has moved"), node.group():
        node.all_reduce(arrays)
        stolen(arrays[0])


def test_the_array_that_rows_are_views_of_is_looked_at_too():
    node, whole = nvcoll.Node(2), np.ones(2000, "f4")
    rows = [whole[:1000], whole[1000:]]
    plan = node.plan("all_reduce", rows)
    whole.resize(200_000, refcheck=False)
    with pytest.raises(nvcoll.InvalidArgument, match="rank 0 is a view of an array that has moved"):
        plan.run()


def test_a_stack_that_has_moved_is_refused():
    node, stack = nvcoll.Node(2), np.ones((2, 1000), "f4")
    plan = node.plan("all_reduce", stack)
    stack.resize((2, 100_000), refcheck=False)
    with pytest.raises(nvcoll.InvalidArgument, match="`arrays` has moved or changed its shape since"):
        plan.run()


def test_strides_that_have_changed_are_refused():
    node, arrays = nvcoll.Node(2), [np.ones((100, 10), "f4").T for _ in range(2)]
    plan = node.plan("all_reduce", arrays)
    plan.run()
    stolen(arrays[0], 500)
    with pytest.raises(nvcoll.InvalidArgument, match="`arrays` of rank 0 has moved or changed its shape"):
        plan.run()


def test_an_array_that_became_read_only_is_refused_where_it_is_written():
    node, inputs = nvcoll.Node(2), [np.ones(5, "f4"), np.ones(5, "f4")]
    in_place, apart = node.plan("all_reduce", inputs), node.plan("all_gather", inputs)
    inputs[1].flags.writeable = False
    with pytest.raises(nvcoll.InvalidArgument, match="`arrays` of rank 1 has become read-only since the plan was made"):
        in_place.run()
    apart.run()
    assert (apart.result[0] == 1).all() and (inputs[0] == 1).all()


def test_a_run_of_a_rank_s_group_refuses_an_array_that_has_moved():
    def program(comm):
        x = np.ones(1000, "f4")
        with comm.group() as group:
            comm.all_reduce(x)
        stolen(x)
        group.run()

    with pytest.raises(nvcoll.InvalidArgument, match=r"`x` of rank . has moved or changed its shape"):
        nvcoll.Node(2).run(program, timeout=60)


@pytest.mark.parametrize("whose", ["node", "rank"])
def test_an_array_that_holds_its_own_group_is_freed(whose):
    gone = []

    def watch(call_in, x):
        with call_in.group() as group:
            call_in.all_reduce([x, np.ones(5)] if whose == "node" else x)
        x.keep = group
        gone.append(weakref.ref(x))

    if whose == "node":
        watch(nvcoll.Node(2), np.ones(5).view(Traced))
    else:
        nvcoll.Node(2).run(lambda comm: watch(comm, np.ones(5).view(Traced)), timeout=60)
    gc.collect()
    assert gone and all(x() is None for x in gone)


def test_a_node_that_holds_its_own_group_is_freed():
    class Keeper(nvcoll.Node):
        pass

    node = Keeper(2)
    with node.group() as group:
        node.all_reduce(np.ones((2, 5)))
    node.step = group
    gone = weakref.ref(node)
    del node, group
    gc.collect()
    assert gone() is None


def test_a_node_whose_open_group_holds_an_array_that_holds_the_node_is_freed():
    node, x = nvcoll.Node(2), np.ones(5).view(Traced)
    group = node.group()
    group.__enter__()
    node.all_reduce([x, np.ones(5)])
    x.keep, gone = (node, group), weakref.ref(x)
    del node, group, x
    gc.collect()
    assert gone() is None


def test_a_group_that_is_dropped_in_its_block_ends_it_and_its_calls_are_not_made():
    node, waiting, x = nvcoll.Node(2), np.ones((2, 3)), np.ones((2, 3))
    group = node.group()
    group.__enter__()
    node.all_reduce(waiting)
    del group
    gc.collect()
    node.all_reduce(x)
    assert (x == 2).all() and (waiting == 1).all()
    with node.group():
        node.all_reduce(x)
    assert (x == 4).all()
