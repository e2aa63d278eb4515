"""Objects that describe something are pickled, copied, compared and shown; those that hold ranks or memory refuse."""

import copy
import pickle

import pytest

import nvcoll


def schedule():
    return nvcoll.schedule("all_reduce", "ring", world_size=3)


def timeline():
    return nvcoll.fabric("hgx-h100").simulate(
        "ring", ["1M", "64K"], collective="all_reduce", spans=True, starts={1: 3.0}
    )[1]


VALUES = {
    "Schedule": schedule,
    "Step": lambda: schedule().steps[1],
    "Proof": lambda: nvcoll.verify(schedule()),
    "Prediction": lambda: nvcoll.fabric("hgx-h100").predict("all_reduce", "1M"),
    "Timeline": timeline,
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_pickled_copied_compared_and_shown(name):
    if name == "Timeline" and "__reduce__" not in vars(nvcoll.Fabric):
        pytest.skip("its machine cannot be pickled")
    value = VALUES[name]()
    for other in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value), VALUES[name]()):
        assert type(other) is type(value) and other == value and hash(other) == hash(value)
    assert value != 7 and len(repr(value)) < 300
    if name != "Step":
        assert value._repr_html_().startswith("<")


def test_another_value_is_not_equal():
    other = nvcoll.schedule("all_reduce", "tree", world_size=3)
    assert schedule() != other and nvcoll.verify(schedule()) != nvcoll.verify(other)
    fabric = nvcoll.fabric("hgx-h100")
    assert fabric.predict("all_reduce", "1M") != fabric.predict("all_reduce", "2M")
    assert timeline() != fabric.simulate(schedule(), "64K")


def test_a_proof_is_proved_again_where_it_is_unpickled():
    proof = pickle.loads(pickle.dumps(nvcoll.verify(schedule())))
    assert proof.is_rank_order is False or proof.order == "rank"
    assert proof.expression(0) == nvcoll.verify(schedule()).expression(0)


def test_what_holds_ranks_or_memory_refuses_to_be_pickled():
    def program(comm):
        for one in (comm, comm.group(), comm.barrier(async_op=True)):
            with pytest.raises(TypeError, match=f"cannot pickle '.*{type(one).__name__}' object"):
                pickle.dumps(one)

    nvcoll.Node(2).run(program)
    with pytest.raises(TypeError, match=r"cannot pickle 'nvcoll.Builder' object"):
        pickle.dumps(nvcoll.Builder("all_reduce", 2))


def test_compare_takes_sizes_as_text():
    found = nvcoll.compare("hgx-a100", ["ring"], sizes=["64K", 1 << 20])
    assert [row.nbytes for row in found.rows] == [1 << 16, 1 << 20]
    assert [row.nbytes for row in nvcoll.compare("hgx-a100", ["ring"], sizes="1M").rows] == [1 << 20]


def test_verify_says_what_it_takes():
    with pytest.raises(nvcoll.InvalidArgument, match=r"`schedule` is 'ring': pass a schedule, as nvcoll.schedule"):
        nvcoll.verify("ring")
