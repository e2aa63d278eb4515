"""Attention that Inductor compiles has the shapes of its heads and tokens, in whichever order they lie."""

from types import SimpleNamespace

import pytest
from dryrun_children import PATIENT, children

from nvcoll.dryrun.parent import attention
from nvcoll.dryrun.wire.rank_recording import Op

__all__ = ["children"]

torch = pytest.importorskip("torch", reason="torch is not installed")
seen_of = pytest.importorskip("nvcoll.dryrun.inside.seen").seen_of

SEQUENCES, HEADS, KEY_HEADS, TOKENS, WIDTH = 2, 32, 8, 8192, 128


def flex(heads_first, name="triton_tem_fused__unsafe_view_clone_flex_attention_5"):
    shapes = [(SEQUENCES, heads, TOKENS, WIDTH) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    if not heads_first:
        shapes = [(batch, tokens, heads, width) for batch, heads, tokens, width in shapes]
    return Op(name, inputs=tuple((shape, "bfloat16") for shape in shapes))


@pytest.mark.parametrize("heads_first", [True, False])
def test_flex_attention_has_heads_and_tokens(heads_first):
    rank = SimpleNamespace(attention=lambda *shape, **how: (shape, how))
    (_, queries, keys), how = attention.issue(rank, None, flex(heads_first))
    assert (queries, keys, how["sequences"], how["heads"]) == (TOKENS, TOKENS, SEQUENCES, HEADS)
    assert how["qk_dim"] == WIDTH and how["causal"]


def test_a_reduction_beside_it_is_no_attention():
    assert attention.is_attention(flex(True))
    assert not attention.is_attention(flex(True, "triton_per_fused_flex_attention_backward_0"))


def test_packed_sequences_have_the_keys_of_their_own_sequence():
    shape = ((TOKENS, HEADS, WIDTH), "bfloat16")
    op = Op("flash_attn::_flash_attn_varlen_forward", inputs=(shape,) * 3, is_causal=True, pairs=8 * 1024**2)
    rank = SimpleNamespace(attention=lambda *shape, **how: (shape, how))
    (_, queries, keys), how = attention.issue(rank, None, op)
    assert queries * keys * how["sequences"] == 8 * 1024**2 and how["heads"] == HEADS and how["causal"]


def named(queries, keys, **more):
    """Returns arguments of a call of attention, by name, with tensors of some shapes."""
    return {"q": torch.empty(queries), "k": torch.empty(keys), "v": torch.empty(keys)} | more


KNOWN = SimpleNamespace(is_unknown=lambda each: False, mirror=lambda each: each)
QUERY, PAGES = (4, HEADS, WIDTH), (4096, 16, KEY_HEADS, WIDTH)


def lengths_of(*lengths):
    return torch.tensor(lengths, dtype=torch.int32)


def test_a_token_that_is_generated_sees_and_reads_the_keys_of_its_sequence_in_a_cache_of_pages():
    used = lengths_of(100, 200, 300, 5000)
    paged = named(QUERY, PAGES, cu_seqlens_q=lengths_of(0, 1, 2, 3, 4), seqused_k=used, block_table=lengths_of(0))
    found = seen_of(paged, KNOWN)
    assert found.pairs == 5600 and not found.is_causal
    assert list(found.read.values()) == [5600 * KEY_HEADS * WIDTH * 4] * 2


def test_a_cache_has_the_tokens_that_the_call_adds_to_it():
    new = torch.empty(4, 1, KEY_HEADS, WIDTH)
    call = {"q": new, "kcache": torch.empty(PAGES), "vcache": torch.empty(PAGES), "k": new, "v": new}
    found = seen_of({**call, "seqlens_k": lengths_of(99, 199, 299, 4999), "is_causal": True}, KNOWN)
    assert found.pairs == (2 * 5600 - 4) // 4, "of one sequence; causal ones count twice, their own key half"


@pytest.mark.parametrize(
    "side",
    [
        {"window_size": (1023, 0)},
        {"window_size_left": 1023, "window_size_right": 0},
        {"window_left": 1023, "window_right": -1, "is_causal": True},
    ],
)
def test_a_window_bounds_the_keys_of_a_query(side):
    shape = (SEQUENCES, TOKENS, HEADS, WIDTH)
    found = seen_of(named(shape, shape, **side), KNOWN)
    assert found.is_causal and found.pairs == 2 * (1024 * TOKENS - 1024**2 // 2)
    decode = named((1, 1, HEADS, WIDTH), (1, TOKENS, HEADS, WIDTH), **side)
    assert seen_of(decode, KNOWN).pairs == 2 * 1024
    assert list(seen_of(decode, KNOWN).read.values()) == [1025 * HEADS * WIDTH * 4] * 2


def test_lengths_that_were_not_computed_are_assumed():
    said = []
    data = SimpleNamespace(is_unknown=lambda each: True, assume=said.append)
    tables = torch.zeros(4, 32, dtype=torch.int32)
    paged = named(QUERY, PAGES, cu_seqlens_q=lengths_of(*range(5)), seqused_k=lengths_of(*[0] * 4), block_table=tables)
    assert seen_of(paged, data).pairs == 4 * 32 * 16
    assert len(said) == 1 and "lengths are not known" in said[0]


def attention_of(text, children, folder):
    """Returns the operators of attention in the counted step of a script."""
    (folder / "attends.py").write_text(text)
    [(out, run, recording)] = children.run(folder / "attends.py")
    assert run.status == "counted", out
    return [op for op in recording.ops if attention.is_attention(op)]


PACKED = """
import torch
from torch.nn.attention.varlen import varlen_attn

weight = torch.nn.Parameter(torch.randn(4096, 8, 64, device="cuda", dtype=torch.bfloat16))
optimizer = torch.optim.SGD([weight], 0.1)
for _ in range(3):
    lengths = torch.tensor([0, 512, 1024, 1024, 2048], device="cuda")
    ends = lengths.cumsum(0).to(torch.int32).clamp(max=4096)
    varlen_attn(weight, weight, weight, ends, ends, 2048, 2048, window_size=(-1, 0)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@PATIENT
def test_lengths_of_sequences_that_the_script_computes_are_read_on_the_gpu(children, tmp_path):
    found = attention_of(PACKED, children, tmp_path)
    assert [attention.is_backward(op) for op in found] == [False, True] and all(op.is_causal for op in found)
    assert [op.pairs for op in found] == [512**2 + 1024**2 + 1024**2 + 1536**2] * 2


DOCUMENTS = """
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

TOKENS, LONG = 2048, 512
document = torch.arange(TOKENS, device="cuda") // LONG
weight = torch.nn.Parameter(torch.randn(1, 4, TOKENS, 64, device="cuda", dtype=torch.bfloat16))
optimizer = torch.optim.SGD([weight], 0.1)
attend = torch.compile(flex_attention)


def sees(batch, head, query, key):
    return (query >= key) & (document[query] == document[key])


for _ in range(3):
    mask = create_block_mask(sees, None, None, TOKENS, TOKENS, device="cuda")
    attend(weight, weight + 1, weight + 2, block_mask=mask).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@PATIENT
def test_blocks_that_a_mask_of_flex_attention_leaves_out_take_no_time(children, tmp_path):
    found = attention_of(DOCUMENTS, children, tmp_path)
    assert [op.pairs for op in found] == [4 * 512**2] * 2, "causal within each of four documents"


PAGED_CACHE = """
import torch
from torch.nn.attention.varlen import varlen_attn

weight = torch.nn.Parameter(torch.randn(4, 32, 128, device="cuda", dtype=torch.bfloat16))
keys, values = torch.zeros(2, 4096, 16, 8, 128, device="cuda", dtype=torch.bfloat16)
pages = torch.arange(4 * 320, device="cuda", dtype=torch.int32).view(4, 320)
ends = torch.arange(5, device="cuda", dtype=torch.int32)
optimizer = torch.optim.SGD([weight], 0.1)
for _ in range(3):
    used = torch.tensor([100, 200, 300, 5000], device="cuda", dtype=torch.int32)
    with torch.no_grad():
        attended = varlen_attn(
            weight, keys, values, ends, None, 1, 5000, seqused_k=used, block_table=pages, enable_gqa=True
        )
    (weight.sum() + attended.sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@PATIENT
def test_a_cache_of_pages_is_read_as_far_as_its_sequences(children, tmp_path):
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14):
        pytest.skip("varlen_attn of this torch takes no lengths of a cache")
    [found] = attention_of(PAGED_CACHE, children, tmp_path)
    assert found.pairs == 5600
    small = 4 * (32 * 128 * 2 * 2 + 32 * 4) + 4 * 320 * 4 + 9 * 4
    assert 0 <= found.bytes - 2 * 5600 * 8 * 128 * 2 - small < 100
