"""Algorithms written in Python: what the builder can say gives the right bits, its errors come at the line, and
parameters tell algorithms apart."""

import functools
import re
import traceback

import numpy as np
import pytest
from command_line import refused

import nvcoll
from nvcoll import oracle


def around(b, chunk, order, first=0):
    """A ring for one chunk: it starts at the first of ``order``, collects, and the sum goes round."""
    n = len(order)
    x = b.input(order[first], chunk)
    for hop in range(1, n):
        rank = order[(first + hop) % n]
        x = b.fold(x, b.input(rank, chunk), into=b.output(rank, chunk))
    for hop in range(n, 2 * n - 1):
        x = b.copy(x, into=b.output(order[(first + hop) % n], chunk))


@nvcoll.algorithm("all_reduce")
def permuted_ring(b, order=()):
    order = order or range(b.world_size)
    for c in b.chunks(b.world_size):
        around(b, c, order, first=c)


@nvcoll.algorithm("all_reduce")
def many_rings(b, rings=2):
    n = b.world_size
    for c in b.chunks(rings * n):
        b.channel(c // n)
        stride = next(s for s in range(1 + c // n, n + 2) if np.gcd(s, n) == 1)
        around(b, c, [i * stride % n for i in range(n)], first=c % n)


@nvcoll.algorithm("all_reduce")
def switch(b):
    n = b.world_size
    for c in b.chunks(n):
        x = b.fold([b.input(r, c) for r in range(n)], into=b.output(c, c), at="switch")
        if n > 1:
            b.copy(x, into=[b.output((c + i) % n, c) for i in range(1, n)], at="switch")


@nvcoll.algorithm("all_reduce")
def in_scratch(b, layers=2):
    """Rank 0 collects in layers of its scratch, in turn; then everybody fetches from there."""
    x = b.copy(b.input(0, 0), into=b.scratch(0, 0))
    for r in range(1, b.world_size):
        x = b.fold(x, b.input(r, 0), into=b.scratch(0, 0, layer=r % layers))
    for r in range(b.world_size):
        b.push(x, into=b.output(r, 0))


@nvcoll.algorithm("all_reduce")
def two_level(b, per_node=8):
    inner, outer = b.groups(per_node), b.groups(stride=per_node)
    shard = b.reduce_scatter(b.inputs, over=inner, algorithm="nvswitch")
    total = b.all_reduce(shard, over=outer, algorithm="ring")
    b.all_gather(total, into=b.outputs, over=inner, algorithm="nvswitch")


WRITTEN = [permuted_ring(order=(0, 3, 1, 5, 2, 4)), many_rings(rings=3), switch, in_scratch, two_level(per_node=3)]


def numbers(world_size, count=1003):
    rng = np.random.default_rng(3)
    return [rng.standard_normal(count).astype("f4") for _ in range(world_size)]


# bits


@pytest.mark.parametrize("op", ["sum", "max", "avg"])
@pytest.mark.parametrize("path", ["mapped", "staged"])
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("algorithm", WRITTEN, ids=lambda algorithm: algorithm.name)
def test_what_the_builder_can_say_gives_the_bits_of_the_oracle(algorithm, in_place, path, op):
    arrays = numbers(6)
    expected = oracle.all_reduce(algorithm.schedule(6, in_place), arrays, op)
    node = nvcoll.Node(6)
    given = [a.copy() for a in arrays]
    out = None if in_place else [np.empty_like(a) for a in arrays]
    result = node.all_reduce(given, op, algorithm=algorithm, path=path, out=out)
    assert all(oracle.same_bits(a, b) for a, b in zip(result, expected, strict=True))

    def program(comm):
        x = arrays[comm.rank].copy()
        return comm.all_reduce(x, op, algorithm=algorithm, path=path, out=None if in_place else np.empty_like(x))

    assert all(oracle.same_bits(a, b) for a, b in zip(node.run(program), expected, strict=True))


@pytest.mark.parametrize("algorithm", [permuted_ring, many_rings, switch, in_scratch], ids=lambda each: each.name)
@pytest.mark.parametrize("world_size", [1, 2, 5, 8])
def test_they_are_proved_at_other_world_sizes(algorithm, world_size):
    for in_place in (True, False):
        for path in ("mapped", "staged"):
            nvcoll.verify(algorithm.schedule(world_size, in_place).lower(path))


def test_a_ring_over_a_permutation_folds_in_the_order_of_the_permutation():
    schedule = permuted_ring(order=(2, 0, 3, 1)).schedule(world_size=4)
    assert nvcoll.verify(schedule).expression(0) == "(((r2 + r0) + r3) + r1)"


def test_channels_have_queues_of_their_own_and_switch_and_scratch_are_in_the_text():
    queues = [{step.queue for step in many_rings(rings=k).schedule(world_size=3).steps} for k in (1, 2)]
    assert len(queues[1]) == 2 * len(queues[0])
    assert all(step.at_switch for step in switch.schedule(world_size=3).steps)
    text = str(in_scratch(layers=3).schedule(world_size=4))
    assert all(f"scratch{layer}[r0]" in text for layer in range(3)) and "scratch3" not in text


# everywhere a name does


@nvcoll.algorithm("all_reduce")
def nodes_of_rings(b, per_node=2):
    """two_level by algorithms of its own, one of which is composed itself."""
    inner, outer = b.groups(per_node), b.groups(stride=per_node)
    shard = b.reduce_scatter(b.inputs, over=inner, algorithm=gathering)
    total = b.all_reduce(shard, over=outer, algorithm=permuted_ring)
    b.all_gather(total, into=b.outputs, over=inner, algorithm=spreading)


@nvcoll.algorithm("reduce_scatter")
def gathering(b):
    n = b.world_size
    for r in range(n):
        b.fold([b.input(q, r) for q in reversed(range(n))], into=b.output(r, r))


@nvcoll.algorithm("all_gather")
def spreading(b):
    n = b.world_size
    for r in range(n):
        b.push(b.input(r, r), into=[b.output((r + i) % n, r) for i in range(n)])


@pytest.mark.parametrize("per_node", [1, 2, 3, 6])
@pytest.mark.parametrize("in_place", [True, False])
def test_an_algorithm_written_in_python_can_be_composed(per_node, in_place):
    algorithm, arrays = nodes_of_rings(per_node=per_node), numbers(6)
    schedule = algorithm.schedule(6, in_place)
    out = None if in_place else [np.empty_like(a) for a in arrays]
    result = nvcoll.Node(6).all_reduce([a.copy() for a in arrays], algorithm=algorithm, out=out)
    expected = oracle.all_reduce(schedule, arrays, "sum")
    assert all(oracle.same_bits(a, b) for a, b in zip(result, expected, strict=True))
    for path in ("mapped", "staged"):
        nvcoll.verify(schedule.lower(path))


def test_the_expression_of_a_composition_is_that_of_its_parts():
    assert nvcoll.verify(nodes_of_rings.schedule(world_size=4)).expression(0) == "((r1 + r0) + (r3 + r2))"


def test_an_error_in_a_composed_algorithm_is_said_at_both_lines():
    @nvcoll.algorithm("all_reduce")
    def wrong(b):
        b.copy(b.input(0, 0), into=b.output(7, 0))  # inside

    @nvcoll.algorithm("all_reduce")
    def outer(b):
        b.all_reduce(b.inputs, over=b.groups(2), algorithm=wrong)  # outside

    with pytest.raises(nvcoll.BuildError, match=r"rank 7 is not one of 0 to 1") as raised:
        outer.schedule(world_size=4)
    lines = [frame.line or "" for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert [line.partition("# ")[2] for line in lines if "# " in line] == ["outside", "inside"]


def test_a_composed_algorithm_may_look_at_the_outer_builder_and_not_write_to_it():
    def composed(act):
        @nvcoll.algorithm("all_reduce")
        def outer(b):
            @nvcoll.algorithm("all_reduce")
            def inner(_):
                act(b)

            b.all_reduce(b.inputs, over=b.groups(1), algorithm=inner)

        return outer

    nvcoll.verify(composed(lambda b: b.input(b.world_size - 1, 0)).schedule(world_size=1))
    with pytest.raises(nvcoll.BuildError, match="wrote to the builder of all ranks"):
        composed(lambda b: b.copy(b.input(0, 0), into=b.output(0, 0))).schedule(world_size=2, in_place=False)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [(spreading, "is one of all_gather, all_reduce is composed"), (3, "must be a name or an algorithm")],
)
def test_what_cannot_be_composed_is_refused(algorithm, message):
    b = nvcoll.Builder("all_reduce", 2)
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        b.all_reduce(b.inputs, over=b.groups(2), algorithm=algorithm)


def test_schedule_takes_an_algorithm_where_it_takes_a_name():
    schedule = nvcoll.schedule("all_reduce", switch, world_size=3, path="staged", in_place=False)
    assert str(schedule) == str(switch.schedule(3, in_place=False).lower("staged"))
    with pytest.raises(nvcoll.InvalidArgument, match="is for all_gather of 3 ranks"):
        nvcoll.schedule("all_reduce", spreading, world_size=3)
    with pytest.raises(nvcoll.InvalidArgument, match="must be a name, an algorithm or a schedule"):
        nvcoll.schedule("all_reduce", 3, world_size=3)


# parameters


def test_all_parameters_stand_in_names_reprs_and_texts():
    four = two_level(per_node=4)
    assert (two_level.name, four.name) == ("two_level(per_node=8)", "two_level(per_node=4)")
    schedule = four.schedule(world_size=8)
    assert schedule.algorithm == four.name
    assert repr(four) == "<nvcoll.Algorithm all_reduce two_level(per_node=4)>"
    assert repr(schedule) == "<nvcoll.Schedule all_reduce two_level(per_node=4), 8 ranks, mapped>"
    assert repr(nvcoll.verify(schedule)) == "<nvcoll.Proof all_reduce two_level(per_node=4), 32 steps>"
    assert str(schedule).startswith("schedule all_reduce two_level(per_node=4)  world_size 8")
    assert nvcoll.Schedule.parse(str(schedule)).algorithm == four.name


def test_values_are_written_without_blanks_and_read_back_as_they_were():
    from nvcoll.authoring import parameters

    @nvcoll.algorithm("all_reduce")
    def anything(b, value=None):
        in_scratch._write(b)

    for value in (0, -3, 2.5, True, None, "a b, (c) #\\ 'd' \"é\"\n", (), (1,), (1, (2, "x")), 10**30):
        chosen = anything(value=value)
        assert re.fullmatch(r"anything\(value=\S*\)", chosen.name)
        assert parameters.read(chosen.name.partition("(")[2][:-1]) == {"value": value}
        schedule = chosen.schedule(world_size=2)
        assert nvcoll.Schedule.parse(str(schedule)).algorithm == schedule.algorithm == chosen.name
    assert anything(value=np.int64(4)).name == "anything(value=4)" == anything(value=4).name
    assert anything(value=[1, 2]).name == "anything(value=(1,2))"
    assert len({anything(value=value).name for value in (1, True, 1.0, "1", (1,))}) == 5


def test_two_parameterisations_are_never_taken_for_each_other():
    """With 6 ranks, nodes of 2 and of 3 fold in other orders: the bits say which ran."""
    arrays, node = numbers(6), nvcoll.Node(6)
    expected = {m: oracle.all_reduce(two_level(per_node=m).schedule(6), arrays, "sum") for m in (2, 3, 6)}
    assert not np.array_equal(expected[2][0], expected[3][0])
    assert np.array_equal(expected[6][0], functools.reduce(np.add, arrays))
    for m in (2, 3, 2, 6, 3):
        result = node.all_reduce([a.copy() for a in arrays], algorithm=two_level(per_node=m))
        assert all(oracle.same_bits(a, b) for a, b in zip(result, expected[m], strict=True))


def test_the_same_parameters_find_the_schedule_of_an_earlier_call():
    writings = []

    @nvcoll.algorithm("all_reduce")
    def counted(b, layers=2):
        writings.append(layers)
        in_scratch._write(b, layers)

    node, x = nvcoll.Node(2), np.ones((2, 10), dtype="f4")
    for layers in (2, 3, 3, 2):
        node.all_reduce(x, algorithm=counted(layers=layers))
    node.all_reduce(x, algorithm=counted)
    assert writings == [2, 3]


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda: two_level(per_nod=4), "two_level has no parameter `per_nod`: it takes per_node=8"),
        (lambda: switch(per_node=4), "switch has no parameter `per_node`: it takes none"),
        (lambda: two_level(b=4), "no parameter `b`"),
        (lambda: two_level(4), "given by name: per_node"),
        (lambda: two_level(per_node="4"), "`per_node` of two_level is '4': it must be a whole number"),
        (lambda: two_level(per_node=4.0), r"is 4\.0: it must be a whole number"),
        (lambda: two_level(per_node=True), "is True: it must be a whole number"),
        (lambda: two_level(per_node=None), "is None: it must be a whole number"),
        (lambda: permuted_ring(order=3), "is 3: it must be a tuple"),
        (lambda: permuted_ring(order={0, 1}), "must be a number, True, False"),
        (lambda: permuted_ring(order=(0, float("nan"))), "must be a number, True, False"),
        (lambda: needy.schedule(world_size=2), r"needy needs `how_much`: write needy\(how_much=\.\.\.\)"),
        (lambda: needy(how_much=(1,)), "it must be a number"),
    ],
)
def test_what_is_wrong_with_a_parameter_is_said_with_what_is_accepted(give, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        give()


@nvcoll.algorithm("all_reduce")
def needy(b, how_much: float):
    in_scratch._write(b)


def test_an_annotation_says_the_kind_of_a_parameter():
    assert (needy.name, needy(how_much=1).name) == ("needy(how_much=?)", "needy(how_much=1.0)")


def starred(b, *rest): ...


def named(b, **rest): ...


def unplain(b, order=np.arange): ...


def no_builder(): ...


def generator(b):
    yield


async def awaited(b): ...


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (starred, r"`\*rest` of starred cannot be given by name"),
        (named, r"`\*\*rest` of named cannot be given by name"),
        (unplain, "the default of `order` of unplain"),
        (no_builder, "no_builder takes no builder"),
        (generator, "an algorithm is a plain function"),
        (awaited, "an algorithm is a plain function"),
        (3, "an algorithm is a function, found int"),
    ],
)
def test_what_cannot_be_an_algorithm_is_refused_where_it_is_decorated(write, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        nvcoll.algorithm("all_reduce")(write)


def test_the_collective_is_looked_at_where_it_is_named():
    with pytest.raises(nvcoll.InvalidArgument, match=r"`all_rong`: choose from all_reduce"):
        nvcoll.algorithm("all_rong")(in_scratch._write)
    with pytest.raises(nvcoll.InvalidArgument, match=r'write @nvcoll.algorithm\("all_reduce"\)'):
        nvcoll.algorithm(in_scratch._write)


# errors at the line


WRONG = {
    "b.chunks(0)": "cut into 0 chunks",
    "b.channel(1 << 20)": "channel 1048576 is above the last",
    "b.input(4, 0)": "rank 4 is not one of 0 to 3",
    "b.input(0, 1)": "is outside the data",
    "b.input(-1, 0)": "rank is -1: it must be a whole number",
    "b.output(4, 0)": "rank 4 is not one of 0 to 3",
    "b.scratch(4, 0)": "rank 4 is not one of 0 to 3",
    "b.scratch(0, 0, layer=65535)": "layer is 65535: it must be a whole number, from 0 to 65534",
    "b.output(0, 2**40)": "chunk is 1099511627776: it must be a whole number, ",
    "b.scratch(0, 0, layer=1.0)": "layer is 1.0: it must be a whole number, ",
    "b.chunks(-4)": "per_part is -4: it must be a whole number, ",
    "b.channel(True)": "channel is True: it must be a whole number, ",
    "b.groups('2')": "per_group is '2': it must be a whole number, ",
    "b.groups(stride=-1)": "stride is -1: it must be a whole number, ",
    "b.all_reduce(b.inputs, over=[[0, -1]])": "a rank in `over` is -1: it must be a whole number, ",
    "b.fold(into=b.output(0, 0))": "a step needs a source and a destination",
    "b.fold(b.input(0, 0), b.input(0, 0), into=b.output(0, 0))": "rank 0 is the same source twice",
    "b.fold(b.input(0, 0), into=b.output(0, 0), at='home')": 'must be "switch"',
    "b.fold(b.input(0, 0), into=3)": "expected a view or a list of views, found int",
    "b.copy(b.input(0, 0), into=[])": "a step needs a source and a destination",
    "b.copy(b.scratch(0, 0), into=b.output(1, 0))": "step 0: reads scratch0[r0].0, which nothing has written",
    "b.fold(b.input(0, 0), b.scratch(1, 0), into=b.output(1, 0))": "step 0: reads scratch0[r1].0, which nothing",
    "b.copy(b.output(3, 0), into=b.output(2, 0))": "step 0: reads output[r3].0, which nothing has written",
    "b.copy(b.input(0, 0), into=b.input(1, 0))": "step 0: input[r1].0 of 1 is a destination",
    "b.copy(b.input(0, 0), into=(b.chunks(2), b.output(1, 0))[1])": (
        "step 0: input[r0].0 of 1 and output[r1].0 of 2 are not the same chunks"
    ),
    "b.push(b.scratch(0, 0), into=b.output(1, 0))": "step 0: reads scratch0[r0].0, which nothing has written",
    "b.push(b.input(0, 0), into=[b.output(1, 0), b.output(1, 0)])": "rank 1 is the same destination twice",
    "b.groups(3)": "groups of 3 do not divide 4 ranks",
    "b.groups(stride=3)": "a stride of 3 does not divide 4 ranks",
    "b.groups()": "groups needs either",
    "b.reduce_scatter(b.inputs, over=b.groups(2), algorithm='rong')": "no reduce_scatter algorithm is called `rong`",
    "b.reduce_scatter(b.inputs[:2], over=b.groups(2))": "views are listed by rank: pass 4",
    "b.all_reduce(b.inputs, over=[[0, 1]])": "must name every rank once",
    "b.all_reduce([b.scratch(r, 0) for r in range(4)], over=b.groups(2))": "which nothing has written before",
    "b.all_gather(b.inputs, into=b.outputs, over=b.groups(2))": "brings other chunks",
    "b.all_gather(b.inputs, into=b.outputs, over=7)": "'int' object is not iterable",
}


def test_every_method_of_the_builder_is_among_them():
    methods = {name for name, value in vars(nvcoll.Builder).items() if callable(value) and not name.startswith("_")}
    assert methods - {"finish", "fail_at"} == {re.match(r"b\.(\w+)", call)[1] for call in WRONG}


@pytest.mark.parametrize(("call", "message"), WRONG.items(), ids=WRONG)
def test_a_rule_is_broken_at_the_user_s_line_in_python_and_on_the_command_line(tmp_path, call, message):
    lines = [
        "import nvcoll",
        "def helper(b):",
        f"    return {call}",
        '@nvcoll.algorithm("all_reduce")',
        "def mine(b):",
        "    before = b.outputs",
        "    helper(b)",
        "    b.copy(b.input(0, 0), into=b.output(0, 0))",
    ]
    file = tmp_path / "mine.py"
    file.write_text("\n".join(lines))
    scope: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    with pytest.raises(Exception, match=re.escape(message)) as raised:
        scope["mine"].schedule(world_size=4, in_place=False)
    frames = [frame.lineno for frame in traceback.extract_tb(raised.value.__traceback__) if frame.filename == str(file)]
    assert frames == [7, 3]
    assert isinstance(raised.value, nvcoll.InvalidArgument) or "a whole number" not in message
    assert raised.value.__context__ is None, "nothing else is printed above it"
    printed = refused("verify", f"{file}:mine", "-n", "4", "--out-of-place")
    assert printed.startswith(f"nvcoll: {file}:3: ") and message in printed


def test_a_cut_that_is_too_fine_is_found_at_the_end_and_said_at_its_line():
    @nvcoll.algorithm("all_reduce")
    def uneven(b):
        for k in (65521, 65519):
            b.chunks(k)
            b.copy(b.input(0, 1), into=b.output(0, 1))  # the line

    with pytest.raises(nvcoll.BuildError, match=r"step 1: .* cut alike") as raised:
        uneven.schedule(world_size=2, in_place=False)
    assert raised.value.step == 1
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert last.line.endswith("# the line")


def test_a_program_that_changes_still_says_what_was_wrong_at_first():
    runs = []

    @nvcoll.algorithm("all_reduce")
    def fickle(b):
        runs.append(b)
        if len(runs) == 1:
            b.copy(b.scratch(0, 0), into=b.output(0, 0))

    with pytest.raises(nvcoll.BuildError, match="step 0: reads scratch0"):
        fickle.schedule(world_size=2)
    assert len(runs) == 2


def test_an_exception_of_the_user_s_own_goes_through_as_it_is():
    @nvcoll.algorithm("all_reduce")
    def picky(b):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        nvcoll.Node(2).all_reduce(np.ones((2, 3)), algorithm=picky)
