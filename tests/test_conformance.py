"""Conformance and properties, drawn from the registries: every algorithm, dtype, op, path and way of calling."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nvcoll
from nvcoll import oracle
from nvcoll._nvcoll import algorithms, dtypes, machine, ops
from nvcoll.cli.timing import dtype_named

ALGORITHMS = [name for collective, name, *_ in algorithms() if collective == "all_reduce"]
RANK_ORDER = [name for collective, name, order, *_ in algorithms() if collective == "all_reduce" and order == "rank"]
PAIRS = [(op, dtype) for op, defined in ops() for dtype in defined]
EXAMPLES = int(os.environ.get("NVCOLL_EXAMPLES", "200"))
NODES: dict[tuple, nvcoll.Node] = {}


def node_of(world_size: int, **settings) -> nvcoll.Node:
    key = (world_size, *sorted(settings.items()))
    return NODES.setdefault(key, nvcoll.Node(world_size, **settings))


def special_values(dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return np.array([0, 1, 2, 0x80, 0xFF], "u1").view(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, info.max, max(info.min, -1), 0, 1], dtype)
    if dtype.kind == "c":
        parts = special_values(dtype.type(0).real.dtype)
        return np.stack(np.meshgrid(parts, parts), axis=-1).view(dtype).ravel()
    info = ml_dtypes.finfo(dtype)
    extremes = [float(info.max), float(info.min), float(info.smallest_subnormal), float(info.smallest_normal)]
    return np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1.0, *extremes]).astype(dtype)


def contents(rng: np.random.Generator, dtype: np.dtype, count: int, is_special: bool) -> np.ndarray:
    if is_special:
        return rng.choice(special_values(dtype), count)
    if dtype.kind in "iub":
        return rng.integers(0, 256, count * dtype.itemsize, "u1").view(dtype)
    if dtype.kind == "c":
        return rng.normal(size=2 * count).astype(dtype.type(0).real.dtype).view(dtype)
    return rng.normal(size=count).astype(dtype)


class Guarded:
    """An array between guard bytes, at an odd offset if asked for."""

    def __init__(self, value: np.ndarray, offset: int) -> None:
        self.memory = np.full(value.nbytes + 192, 0xA5, dtype="u1")
        self.start, self.end = 64 + offset, 64 + offset + value.nbytes
        self.array = self.memory[self.start : self.end].view(value.dtype)
        self.array[...] = value

    def is_intact(self) -> bool:
        return bool((self.memory[: self.start] == 0xA5).all() and (self.memory[self.end :] == 0xA5).all())


@st.composite
def cases(draw, dtype):
    op = draw(st.sampled_from([op for op, defined in PAIRS if defined == dtype]))
    return {
        "algorithm": draw(st.sampled_from(ALGORITHMS)),
        "op": op,
        "dtype": dtype_named(dtype),
        "world_size": draw(st.integers(1, 17)),
        "count": draw(st.sampled_from([0, 1, 2, 7, 31, 32, 33, 127, 509, 1000, 4099, 20_011])),
        "path": draw(st.sampled_from(["mapped", "staged"])),
        "in_place": draw(st.booleans()),
        "is_special": draw(st.booleans()),
        "offset": draw(st.sampled_from([0, 0, 1, 2, 4, 8, 17])),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


def prepare(case):
    rng = np.random.default_rng(case["seed"])
    n, dtype = case["world_size"], case["dtype"]
    inputs = [contents(rng, dtype, case["count"], case["is_special"]) for _ in range(n)]
    scalars = [float(s) for s in rng.integers(0 if dtype.kind == "u" else -4, 5, n)]
    schedule = nvcoll.schedule("all_reduce", case["algorithm"], world_size=n, in_place=case["in_place"])
    with np.errstate(all="ignore"):
        expected = oracle.all_reduce(schedule, inputs, case["op"], scalars)
    offset = case["offset"] if dtype.kind != "V" or case["offset"] % 2 == 0 else 0
    arrays = [Guarded(x, offset) for x in inputs]
    outs = arrays if case["in_place"] else [Guarded(np.zeros_like(x), offset) for x in inputs]
    return inputs, scalars, expected, arrays, outs


def check(case, inputs, expected, arrays, outs):
    assert all(oracle.same_bits(got.array.copy(), want) for got, want in zip(outs, expected, strict=True))
    assert all(oracle.same_bits(got.array.copy(), outs[0].array.copy()) for got in outs)
    assert all(guarded.is_intact() for guarded in [*arrays, *outs])
    if not case["in_place"]:
        assert all(oracle.same_bits(x.array.copy(), y) for x, y in zip(arrays, inputs, strict=True))
    if case["op"] == "sum" and case["dtype"] in ("float32", "float64") and not case["is_special"]:
        exact = np.sum(np.array(inputs, dtype="f8"), axis=0)
        bound = (len(inputs) - 1) * np.finfo(case["dtype"]).eps * np.sum(np.abs(np.array(inputs, dtype="f8")), axis=0)
        assert np.all(np.abs(outs[0].array - exact) <= bound)


# Every dtype has its own examples; what is left to chance is drawn often enough over all of them.
RELAXED = settings(max_examples=max(EXAMPLES // 8, 1), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.timeout(1200)
def test_a_driven_node_gives_the_oracle_s_bits_and_every_row_is_drawn():
    drawn = set()

    @RELAXED
    @given(data=st.data())
    def conforms(dtype, data):
        case = data.draw(cases(dtype))
        drawn.update([case["algorithm"], case["op"], case["dtype"].name, case["path"]])
        inputs, scalars, expected, arrays, outs = prepare(case)
        op = nvcoll.premul_sum(scalars) if case["op"] == "premul_sum" else case["op"]
        out = None if case["in_place"] else [g.array for g in outs]
        node = node_of(case["world_size"])
        node.all_reduce([g.array for g in arrays], op, algorithm=case["algorithm"], path=case["path"], out=out)
        check(case, inputs, expected, arrays, outs)

    for dtype, *_ in dtypes():
        conforms(dtype)
    assert drawn >= {*ALGORITHMS, *(op for op, _ in ops()), *(name for name, *_ in dtypes()), "mapped", "staged"}


@pytest.mark.timeout(1200)
def test_ranks_that_are_threads_give_the_oracle_s_bits_and_every_row_is_drawn():
    drawn = set()

    @RELAXED
    @given(data=st.data())
    def conforms(dtype, data):
        case = data.draw(cases(dtype))
        drawn.update([case["algorithm"], case["op"], case["dtype"].name, case["path"]])
        inputs, scalars, expected, arrays, outs = prepare(case)

        def program(comm):
            r = comm.rank
            op = nvcoll.premul_sum(scalars[r]) if case["op"] == "premul_sum" else case["op"]
            out = None if case["in_place"] else outs[r].array
            comm.all_reduce(arrays[r].array, op, algorithm=case["algorithm"], path=case["path"], out=out)

        node_of(case["world_size"]).run(program, timeout=60)
        check(case, inputs, expected, arrays, outs)

    for dtype, *_ in dtypes():
        conforms(dtype)
    assert drawn >= {*ALGORITHMS, *(op for op, _ in ops()), *(name for name, *_ in dtypes()), "mapped", "staged"}


@pytest.mark.parametrize(("op", "dtype"), PAIRS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_op_and_dtype_gives_the_oracle_s_bits(algorithm, op, dtype):
    for path in ("mapped", "staged"):
        case = {"algorithm": algorithm, "op": op, "dtype": dtype_named(dtype), "world_size": 5, "count": 1009}
        case |= {"path": path, "in_place": True, "is_special": False, "offset": 0, "seed": 7}
        inputs, scalars, expected, arrays, outs = prepare(case)
        chosen = nvcoll.premul_sum(scalars) if op == "premul_sum" else op
        node_of(5).all_reduce([g.array for g in arrays], chosen, algorithm=algorithm, path=path)
        check(case, inputs, expected, arrays, outs)


@pytest.mark.parametrize("algorithm", RANK_ORDER)
@pytest.mark.parametrize("dtype", [name for name, *_ in dtypes()])
def test_rank_order_gives_the_same_bits_wherever_an_element_lies_and_however_it_is_run(algorithm, dtype):
    rng = np.random.default_rng(3)
    values = [contents(rng, dtype_named(dtype), 1000, False) for _ in range(6)]
    results = []
    for count in (1000, 5000, 1_200_000 // values[0].itemsize):
        for at in {0, min(1, count - 1000), count - 1000}:
            for options in ({"workers": 1}, {"workers": 2}, *({"isa": isa} for isa in machine()["isas"])):
                for path in ("mapped", "staged"):
                    arrays = [contents(rng, dtype_named(dtype), count, False) for _ in range(6)]
                    for x, v in zip(arrays, values, strict=True):
                        x[at : at + 1000] = v
                    node_of(6, **options).all_reduce(arrays, algorithm=algorithm, path=path)
                    results.append(arrays[0][at : at + 1000].copy())
    assert all(oracle.same_bits(result, results[0]) for result in results)
