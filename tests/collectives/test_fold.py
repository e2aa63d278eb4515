"""Folds on the calling thread: hosts that continue each other give the bits of one reduction in the order of ranks."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from amounts import examples
from drawn import PAIRS, contents, dtype_named
from hypothesis import given, settings
from hypothesis import strategies as st

import nvcoll
from nvcoll import oracle
from nvcoll._nvcoll import _fold

ROUNDING = ("sum", "prod", "avg", "premul_sum")
"""The ops whose partial results have more bits than a small float."""


@settings(max_examples=examples(400), deadline=None)
@given(
    pair=st.sampled_from(PAIRS),
    hosts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    count=st.sampled_from([0, 1, 7, 63, 64, 65, 1023, 1024, 1025, 5000]),
    is_special=st.booleans(),
    is_stacked=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_hosts_that_continue_each_other_have_the_bits_of_one_reduction(
    pair, hosts, count, is_special, is_stacked, seed
):
    (op, name), n, rng = pair, sum(hosts), np.random.default_rng(seed)
    dtype = dtype_named(name)
    inputs = [contents(rng, dtype, count, is_special) for _ in range(n)]
    scalars = [float(s) for s in rng.integers(0 if dtype.kind == "u" else -4, 5, n)]
    with np.errstate(all="ignore"):
        expected = oracle.all_reduce(nvcoll.schedule("all_reduce", "nvswitch", world_size=n), inputs, op, scalars)[0]
    wide = np.dtype(oracle.ACCUMULATORS[name]) if op in ROUNDING else dtype
    carry = None
    for host, size in enumerate(hosts):
        first, is_last = sum(hosts[:host]), host == len(hosts) - 1
        sources = inputs[first : first + size]
        out = np.empty(count, dtype if is_last else wide)
        if carry is not None and carry.dtype == out.dtype and rng.integers(2):
            out = carry
        how = nvcoll.premul_sum(scalars[first : first + size]) if op == "premul_sum" else op
        divisor = n if op == "avg" and is_last and n > 1 else None
        _fold(np.concatenate(sources) if is_stacked else sources, out, how, carry=carry, divide_by=divisor)
        carry = out
    assert oracle.same_bits(carry, expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_every_small_float_survives_the_way_through_float32(dtype):
    bits = np.arange(2 ** (8 * np.dtype(dtype).itemsize), dtype=f"u{np.dtype(dtype).itemsize}")
    x, wide, back = bits.view(dtype), np.empty(bits.size, "f4"), np.empty(bits.size, dtype)
    _fold([x], wide, "sum")
    assert oracle.same_bits(wide, x.astype("f4"))
    _fold([wide], back, "sum")
    assert oracle.same_bits(back, x)
    odd_nan = np.full(3, 0x7FFFFFFF, "u4").view("f4")
    _fold([back[:3]], back[:3], "sum", carry=odd_nan)
    assert np.isnan(back[:3].astype("f4")).all()


def test_torch_tensors_and_scaled_sources_of_one_rank():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.arange(70, dtype=torch.bfloat16) / 3
    scaled, out = torch.empty(70), torch.empty_like(x)
    _fold([x], scaled, nvcoll.premul_sum(0.3))
    assert torch.equal(scaled, x.float() * 0.3)
    _fold([scaled, scaled], out, "sum", carry=x)
    assert torch.equal(out, (x.float() + scaled + scaled).bfloat16())
    _fold(x, x, "max")
    assert torch.equal(x, torch.arange(70, dtype=torch.bfloat16) / 3)


F4, BF16 = np.zeros(8, "f4"), np.zeros(8, ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([], F4, "sum"), {}, "`sources` is empty"),
        ((np.zeros(12, "f4"), F4, "sum"), {}, "`sources` holds 12 elements, and `out` 8: pass 8 for each"),
        (([F4, F4[:7]], F4, "sum"), {}, "source 1 holds 7 elements, and `out` 8"),
        (([F4, BF16], F4, "sum"), {}, "source 1 is bfloat16, and source 0 float32"),
        (([BF16], F4, "max"), {}, "`out` is float32, and max of bfloat16 needs bfloat16$"),
        (([BF16], BF16, "sum"), {"carry": np.zeros(8)}, "`carry` is float64, and sum of bfloat16 needs .* or float32"),
        (([F4], np.zeros(16, "f4")[::2], "sum"), {}, "`out` is strided"),
        (([F4], b"12345678", "sum"), {}, "`out` is read-only"),
        (([np.zeros(8, "i4")], np.zeros(8, "i4"), "avg"), {}, "avg"),
        (([F4], F4, "sum"), {"divide_by": 2}, "`divide_by` completes avg"),
        (([F4], F4, "avg"), {"divide_by": 0}, "`divide_by` is 0"),
        ((np.zeros(17, "f4")[:16], np.zeros(8, "f4"), "sum"), {"carry": None, "divide_by": 1}, "completes avg"),
        (([np.zeros(8, "i4")], np.zeros(8, "i4"), nvcoll.premul_sum(0.5)), {}, "premul_sum scales int32 by 0.5"),
    ],
)
def test_what_cannot_be_folded_is_refused(arguments, options, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        _fold(*arguments, **options)


def test_out_may_be_a_source_and_not_a_part_of_one():
    memory = np.ones(24, "f4")
    _fold(memory[:16], memory[8:16], "sum")
    assert (memory == [1] * 8 + [2] * 8 + [1] * 8).all()
    with pytest.raises(nvcoll.InvalidArgument, match="shares bytes with another array"):
        _fold([memory[:8]], memory[4:12], "sum")
    with pytest.raises(nvcoll.InvalidArgument, match="shares bytes with another array"):
        _fold([memory.view(ml_dtypes.bfloat16)[:8]], memory[:8], "sum")
