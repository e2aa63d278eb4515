"""all_reduce, as every reader understands it."""

import threading
import time

import numpy as np
import pytest

import nvcoll


def test_all_reduce_equals_the_sum_of_the_stack():
    x = np.random.default_rng(0).integers(-1000, 1000, (8, 10_000), dtype="i4")
    expected = np.sum(x, axis=0)
    with nvcoll.Node(8) as node:
        result = node.all_reduce(x)
    assert result is x
    assert np.array_equal(result, np.broadcast_to(expected, x.shape))


def test_a_step_may_move_a_range_of_chunks():
    @nvcoll.algorithm("all_reduce")
    def halves(b):
        assert b.world_size == 2
        b.chunks(4)
        for r, mine in enumerate((range(0, 2), range(2, 4))):
            b.fold(b.input(0, mine), b.input(1, mine), into=b.scratch(r, mine))
        for r, mine in enumerate((range(0, 2), range(2, 4))):
            b.copy(b.scratch(r, mine), into=[b.output(q, mine) for q in range(2)])

    assert nvcoll.verify(halves.schedule(world_size=2)).steps == 4
    for path in ("mapped", "staged"):
        arrays = [np.arange(333, dtype="i4"), np.ones(333, dtype="i4")]
        nvcoll.Node(2).all_reduce(arrays, algorithm=halves, path=path)
        assert all((x == np.arange(1, 334)).all() for x in arrays)


@pytest.mark.parametrize("chunks", [range(2, 2), range(3, 1), range(0, 4, 2), range(-1, 1), range(2**40)], ids=repr)
def test_a_range_that_names_no_neighbouring_chunks_is_refused_at_its_line(chunks):
    with pytest.raises(nvcoll.InvalidArgument, match=r"^chunk is range\(.*\): a range must count up by 1"):
        nvcoll.Builder("all_reduce", 2).input(0, chunks)


def test_a_wrong_algorithm_is_refuted_before_a_byte_moves():
    @nvcoll.algorithm("all_reduce")
    def forgetful(b):
        n = b.world_size
        b.fold([b.input(r, 0) for r in range(n - 1)], into=[b.output(r, 0) for r in range(n)])

    arrays = [np.ones(10, dtype="f4") for _ in range(3)]
    with pytest.raises(nvcoll.Refuted, match=r"ends as \(r0 \+ r1\)"):
        nvcoll.Node(3).all_reduce(arrays, algorithm=forgetful)
    assert all((x == 1).all() for x in arrays)


def test_a_node_in_use_by_another_thread_is_busy_not_broken():
    node = nvcoll.Node(2)
    arrays = [np.ones(1 << 22, dtype="f4") for _ in range(2)]
    busy, stop = [], threading.Event()

    def hammer():
        mine = [np.ones(1 << 20, dtype="f4") for _ in range(2)]
        while not stop.is_set():
            try:
                node.all_reduce(mine)
            except nvcoll.Busy as error:
                busy.append(error)

    thread = threading.Thread(target=hammer)
    thread.start()
    end = time.monotonic() + 20
    while not busy and time.monotonic() < end:
        try:
            node.all_reduce(arrays)
        except nvcoll.Busy as error:
            busy.append(error)
    stop.set()
    thread.join()
    assert busy and "another thread" in str(busy[0])
