"""Kernels of torch.compile count what they read: slices of a tensor, rows of a table."""

import pytest

torch = pytest.importorskip("torch")

from nvcoll.dryrun.inside.compiled import bytes_read, plain_loads  # noqa: E402

SILU = """
    tmp0 = tl.load(in_ptr0 + (x0 + 28672*x1), xmask).to(tl.float32)
    tmp5 = tl.load(in_ptr0 + (14336 + x0 + 28672*x1), xmask).to(tl.float32)
"""
NORM = """
        tmp0 = tl.load(in_ptr0 + (r0_1 + 2048*x0), r0_mask & xmask, eviction_policy='evict_last', other=0.0)
        tmp9 = tl.load(in_ptr0 + (r0_1 + 2048*x0), r0_mask & xmask, eviction_policy='evict_first', other=0.0)
        tmp21 = tl.load(in_ptr1 + (r0_1), r0_mask, eviction_policy='evict_last', other=0.0)
"""
ROTARY = """
    tmp14 = tl.load(in_ptr0 + (128*x0 + 5120*x1 + (x2)), tmp13 & xmask, eviction_policy='evict_last', other=0.0)
    tmp31 = tl.load(in_ptr2 + (128*tmp29 + (x2)), tmp13 & xmask, eviction_policy='evict_last', other=0.0)
    tmp33 = tl.load(in_ptr0 + (64 + 128*x0 + 5120*x1 + (x2)), tmp13 & xmask, eviction_policy='evict_last', other=0.0)
"""


@pytest.mark.parametrize(
    ("source", "pointer", "addresses"),
    [(SILU, "in_ptr0", 2), (NORM, "in_ptr0", 1), (NORM, "in_ptr1", 1), (ROTARY, "in_ptr0", 1), ("", "in_ptr0", 1)],
)
def test_loads_at_one_address_and_branches_of_a_concatenation_count_once(source, pointer, addresses):
    assert plain_loads(source, pointer) == addresses


def made(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


def test_an_activation_reads_both_halves_of_its_input():
    both, out = made(8, 28672), made(8, 14336)
    assert bytes_read("triton_poi_fused_mul_silu", [both, out], [out], 8 * 14336, {id(both): 2}) == {}
    assert bytes_read("triton_poi_fused_silu", [both, out], [out], 8 * 14336, {}) == {id(both): 2 * 8 * 14336}


@pytest.mark.parametrize("kind", ["poi", "per"])
def test_rotary_positions_read_the_slice_of_queries_and_a_row_of_the_table_for_each_position(kind):
    qkv, table, out = made(8, 6144), made(40960, 128), made(8, 4096)
    positions = made(8, dtype=torch.int64)
    found = bytes_read(f"triton_{kind}_fused_cat", [qkv, positions, table, out], [out], 8 * 4096, {})
    assert found == {id(qkv): 2 * 8 * 4096, id(table): 2 * 8 * 128}
