"""Attention that Inductor compiles has the shapes of its heads and tokens, in whichever order they lie."""

from types import SimpleNamespace

import pytest

from nvcoll.dryrun.parent import attention
from nvcoll.dryrun.wire.rank_recording import Op

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
