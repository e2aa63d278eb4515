"""Objects that describe something are pickled, copied, compared and shown; those that hold ranks or memory refuse."""

import copy
import pickle

import numpy as np
import pytest

import nvcoll
from nvcoll._nvcoll import networks
from nvcoll.ranks.copies import WHY


def schedule():
    return nvcoll.schedule("all_reduce", "ring", world_size=3)


def timeline():
    return nvcoll.fabric("hgx-h100").simulate(
        "ring", ["1M", "64K"], collective="all_reduce", spans=True, starts={1: 3.0}
    )[1]


@nvcoll.algorithm("all_reduce")
def star(b, way=1):
    ranks = range(b.world_size)
    b.fold([b.input(r, 0) for r in ranks], into=[b.output(r, 0) for r in ranks])


def comparison():
    return nvcoll.compare("hgx-a100", ["ring"], sizes=["1M"])


def report():
    node = nvcoll.Node(2)
    node.all_reduce(np.ones((2, 4), "f4"))
    return node.report(on="hgx-h100")


VALUES = {
    "Schedule": schedule,
    "Step": lambda: schedule().steps[1],
    "Proof": lambda: nvcoll.verify(schedule()),
    "Prediction": lambda: nvcoll.fabric("hgx-h100").predict("all_reduce", "1M"),
    "Timeline": timeline,
}

PLAIN = {
    "Algorithm": lambda: star,
    "Comparison": comparison,
    "ComparisonRow": lambda: comparison().rows[0],
    "Fabric": lambda: nvcoll.fabric("hgx-h100x2+ib-ndr-8 with nics 4"),
    "CallReport": report,
    "Price": lambda: report().calls[0].prices[0],
    "PricedCalls": lambda: report().calls[0],
}
"""Further values, of which nothing more is asked."""


def of_rank(make):
    def refusing():
        nvcoll.Node(2).run(lambda comm: made.append(make(comm)) if comm.rank == 0 else make(comm))
        return made.pop()

    made = []
    return refusing


REFUSING = {
    "Builder": lambda: nvcoll.Builder("all_reduce", 2),
    "Communicator": of_rank(lambda comm: comm),
    "CriticalPiece": lambda: timeline().critical[0],
    "Group": of_rank(lambda comm: comm.group()),
    "Message": None,
    "NcclCandidate": lambda: nvcoll.fabric("hgx-h100").nccl("all_reduce", "1M").candidates[0],
    "NcclEstimate": lambda: nvcoll.fabric("hgx-h100").nccl("all_reduce", "1M"),
    "Network": lambda: networks()[0],
    "Node": lambda: nvcoll.Node(2),
    "Plan": None,
    "PremulSum": lambda: nvcoll.premul_sum([1.0, 2.0]),
    "View": lambda: nvcoll.Builder("all_reduce", 2).input(0, 0),
    "Work": of_rank(lambda comm: comm.barrier(async_op=True)),
}
"""What refuses; None where one more call would be needed to have one, and the table of reasons is looked at."""


def test_every_public_class_is_pickled_and_copied_or_says_why_it_is_not():
    classes = {name for name in nvcoll.__all__ if isinstance(getattr(nvcoll, name), type)}
    errors = {name for name in classes if issubclass(getattr(nvcoll, name), Exception)}
    assert classes - errors == {*VALUES, *PLAIN, *REFUSING}
    for name in errors:
        error = getattr(nvcoll, name)("what was found")
        error.left = (1, 2)
        for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert (type(other), other.args, vars(other)) == (type(error), error.args, vars(error)), name
    for name, make in PLAIN.items():
        one = make()
        for other in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
            assert type(other) is getattr(nvcoll, name) and other == one, name
    for name, make in REFUSING.items():
        assert WHY[getattr(nvcoll, name)]
        for refused in (pickle.dumps, copy.copy, copy.deepcopy) if make else ():
            with pytest.raises(TypeError, match=f"cannot pickle or copy a {name}: .*: make it where it is used"):
                refused(make())


def test_an_algorithm_is_pickled_by_its_place_with_its_parameters():
    assert pickle.loads(pickle.dumps(star(way=2))).name == star(way=2).name != star.name
    with pytest.raises(TypeError, match="stands in a function"):
        pickle.dumps(nvcoll.algorithm("all_reduce")(lambda b: None))
    assert copy.deepcopy(star) is star


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_pickled_copied_compared_and_shown(name):
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


def test_compare_takes_sizes_as_text():
    found = nvcoll.compare("hgx-a100", ["ring"], sizes=["64K", 1 << 20])
    assert [row.nbytes for row in found.rows] == [1 << 16, 1 << 20]
    assert [row.nbytes for row in nvcoll.compare("hgx-a100", ["ring"], sizes="1M").rows] == [1 << 20]


def test_verify_says_what_it_takes():
    with pytest.raises(nvcoll.InvalidArgument, match=r"`schedule` is 'ring': pass a schedule, as nvcoll.schedule"):
        nvcoll.verify("ring")


def test_verify_takes_names_as_the_command_does():
    assert nvcoll.verify("all_reduce", "ring") == nvcoll.verify(nvcoll.schedule("all_reduce", "ring", world_size=8))
    assert nvcoll.verify("all_reduce", "tree", world_size=3).schedule.world_size == 3
    for words in (("all_reduce",), ("all_reduce", "star"), (schedule(), "ring"), (7, "ring")):
        with pytest.raises(nvcoll.InvalidArgument):
            nvcoll.verify(*words)
