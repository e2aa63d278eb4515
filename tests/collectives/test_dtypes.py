"""What a dtype's elements mean: formats and rounding, exhaustively where there are few of them, and what is refused."""

import ctypes

import ml_dtypes
import numpy as np
import pytest
from drawn import dtype_named

import nvcoll
from nvcoll import oracle
from nvcoll._nvcoll import dtypes, machine, ops

FLOAT8 = [getattr(ml_dtypes, row.name) for row in dtypes() if row.name.startswith("float8")]
NODES = {isa: nvcoll.Node(2, isa=isa) for isa in machine()["isas"]}


def reduced(op, *values, node=None):
    """The result of one rank per array; the arrays stay as they are."""
    arrays = [np.array(x) for x in values]
    return (node or nvcoll.Node(len(arrays))).all_reduce(arrays, op)[0]


def every_pair(dtype):
    codes = np.arange(256, dtype="u1")
    return np.repeat(codes, 256).view(dtype), np.tile(codes, 256).view(dtype)


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("isa", NODES)
def test_sums_of_every_pair_of_float8_are_those_of_ml_dtypes(dtype, isa):
    a, b = every_pair(dtype)
    with np.errstate(all="ignore"):
        expected = a + b
        averages = ((a.astype("f4") + b.astype("f4")) / np.float32(2)).astype(dtype)
    assert oracle.same_bits(reduced("sum", a, b, node=NODES[isa]), expected)
    assert oracle.same_bits(reduced("avg", a, b, node=NODES[isa]), averages)


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("isa", NODES)
def test_minimum_and_maximum_of_every_pair_of_float8_are_those_of_their_numbers(dtype, isa):
    a, b = every_pair(dtype)
    for op, fold in (("min", oracle.minimum), ("max", oracle.maximum)):
        expected = fold(a.astype("f4"), b.astype("f4")).astype(dtype)
        assert oracle.same_bits(reduced(op, a, b, node=NODES[isa]), expected)


@pytest.mark.parametrize(
    ("op", "values", "dtype", "expected"),
    [
        ("min", (0.0, -0.0), "f4", -0.0),
        ("min", (-0.0, 0.0), "f4", -0.0),
        ("sum", (2**31 - 1, 1), "i4", -(2**31)),
        ("sum", (255, 1), "u1", 0),
        ("sum", (57344, 4096), ml_dtypes.float8_e5m2, np.inf),
        ("prod", (300, 300), "f2", np.inf),
        ("land", (4, 2), "u1", 1),
        ("band", (4, 2), "u1", 0),
        ("sum", (True, True), bool, True),
        ("prod", (1 + 2j, 3 - 1j), "c8", 5 + 5j),
    ],
)
def test_edges_of_the_arithmetic(op, values, dtype, expected):
    result = reduced(op, *(np.array([value]).astype(dtype) for value in values))
    assert oracle.same_bits(result, np.array([expected]).astype(dtype))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_beyond_the_largest_number_is_what_ml_dtypes_says(dtype):
    largest = np.array([ml_dtypes.finfo(dtype).max])
    beyond = reduced("sum", largest, largest)[0].astype("f4")
    has_infinity = np.isinf(np.array([np.inf]).astype(dtype).astype("f4"))
    assert np.isinf(beyond) if has_infinity else np.isnan(beyond)
    info = ml_dtypes.finfo(dtype)
    half_unit = 2.0 ** (np.floor(np.log2(float(info.max))) - info.nmant - 1)
    tie = reduced("sum", largest, np.array([half_unit]).astype(dtype))[0]
    assert tie.tobytes() == (largest.astype("f4") + half_unit).astype(dtype)[0].tobytes()


@pytest.mark.parametrize("dtype", [*FLOAT8, np.float16, ml_dtypes.bfloat16])
def test_a_step_rounds_once(dtype):
    unit = ml_dtypes.finfo(dtype).eps
    values = [np.array([x]).astype(dtype) for x in (1, unit / 2, unit / 2)]
    assert float(reduced("sum", *values)[0]) == 1 + float(unit)
    chain = values[0] + values[1] + values[2]
    assert float(chain[0]) == 1


def test_any_byte_of_bool_but_zero_is_true_and_results_are_0_or_1():
    a, b = every_pair("u1")
    truth = {"or": (a != 0) | (b != 0), "and": (a != 0) & (b != 0), "xor": (a != 0) != (b != 0)}
    meaning = {"sum": "or", "max": "or", "bor": "or", "lor": "or"}
    meaning |= {"prod": "and", "min": "and", "band": "and", "land": "and", "bxor": "xor"}
    assert set(meaning) == {row.name for row in ops() if "bool" in row.dtypes}
    for op, of in meaning.items():
        result = reduced(op, a.view(bool), b.view(bool)).view("u1")
        assert np.array_equal(result, truth[of].astype("u1")), op


@pytest.mark.parametrize("dtype", [row.name for row in dtypes() if row.kind.endswith("integer")])
def test_integers_wrap_and_logical_ops_give_0_or_1(dtype):
    info = np.iinfo(dtype)
    values = [np.array([info.max, info.min, 5, 0], dtype), np.array([1, info.max, 2, 0], dtype)]
    with np.errstate(all="ignore"):
        assert np.array_equal(reduced("sum", *values), values[0] + values[1])
        assert np.array_equal(reduced("prod", *values), values[0] * values[1])
    assert reduced("land", *values).tolist() == [1, int(info.min != 0), 1, 0]
    assert reduced("lor", *values).tolist() == [1, 1, 1, 0]


def test_a_complex_product_is_the_plain_formula():
    rng = np.random.default_rng(5)
    for dtype, part in (("c8", "f4"), ("c16", "f8")):
        a, b = (rng.normal(size=2000).astype(part).view(dtype) for _ in range(2))
        product = reduced("prod", a, b)
        assert np.array_equal(product.real, a.real * b.real - a.imag * b.imag)
        assert np.array_equal(product.imag, a.real * b.imag + a.imag * b.real)


UNDEFINED = [(op.name, row.name) for op in ops() for row in dtypes() if row.name not in op.dtypes]


@pytest.mark.parametrize(("op", "dtype"), UNDEFINED)
def test_an_undefined_pair_is_refused_with_what_is_defined(op, dtype):
    arrays = [np.zeros(4, dtype_named(dtype)) for _ in range(2)]
    with pytest.raises(nvcoll.InvalidArgument) as caught:
        nvcoll.Node(2).all_reduce(arrays, nvcoll.premul_sum(1) if op == "premul_sum" else op)
    has = ", ".join(row.name for row in ops() if dtype in row.dtypes)
    defined = ", ".join(next(row.dtypes for row in ops() if row.name == op))
    assert str(caught.value) == f"{op} is not defined on {dtype}: it is defined on {defined}; {dtype} has {has}"


@pytest.mark.parametrize("dtype", [row.name for row in dtypes() if row.kind.endswith("integer")])
def test_scalars_of_integers_fit_the_dtype(dtype):
    info, node = np.iinfo(dtype), nvcoll.Node(2)
    x = np.array([1, 3], dtype)
    exact = [info.min, 2 ** (info.bits - 2)]
    result = node.all_reduce([x.copy(), x.copy()], nvcoll.premul_sum(exact))[0]
    with np.errstate(all="ignore"):
        assert np.array_equal(result, x * np.array(exact[0], dtype) + x * np.array(exact[1], dtype))
    for scalar in (info.max + 1, info.min - 1 if info.bits < 64 else -(2**65), 0.5, np.inf, np.nan):
        with pytest.raises(
            nvcoll.InvalidArgument, match=f"scales {dtype} by .*: pass integers that fit {dtype}, {info.min}"
        ):
            node.all_reduce([x.copy(), x.copy()], nvcoll.premul_sum(scalar))


def test_a_scalar_that_float64_does_not_hold_is_refused():
    for scalar in (2**53 + 1, np.int64(2**53 + 1), [1, 2**63 - 1]):
        with pytest.raises(nvcoll.InvalidArgument, match=r"scales by \d+, which a float64 does not hold"):
            nvcoll.premul_sum(scalar)
    for scalar in (2**53, np.float32(0.5), np.array(0.5), np.array([1, 2]), True, (1, 2.5)):
        nvcoll.premul_sum(scalar)


@pytest.mark.parametrize("name", [row.name for row in dtypes()])
def test_the_buffer_protocol_says_the_same_dtype_as_numpy(name):
    arrays = [np.ones(6, dtype_named(name)) for _ in range(2)]
    try:
        views = [memoryview(x) for x in arrays]
    except ValueError:
        assert "float8" in name or name == "bfloat16", "numpy lends no buffers of what ml_dtypes adds"
        return
    nvcoll.Node(2).all_reduce([views[0], arrays[1]])
    assert (arrays[0] == np.array(2).astype(arrays[0].dtype)).all()


def test_bytes_that_say_nothing_are_uint8():
    data = [bytearray(b"\x01\xff"), (ctypes.c_uint8 * 2)(2, 2)]
    nvcoll.Node(2).all_reduce(data)
    assert bytes(data[0]) == bytes(data[1]) == b"\x03\x01"
