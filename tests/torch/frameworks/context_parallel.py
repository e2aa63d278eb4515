"""Context parallel: each rank has a part of each sequence, and keys and values go round the ranks.

torch's `context_parallel` patches attention for the kernels of GPUs, and has no rule for the kernel of the CPU. So its
own steps (`_templated_ring_attention`) are called here with the kernels of the CPU.
"""

import copy
import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import _attention, context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

from frameworks.features import feature
from frameworks.training import ROUNDING, optimizer

HEADS, SEQUENCE, WIDTH = 2, 16, 8
ATEN = torch.ops.aten


class RingAttention(torch.autograd.Function):
    """Attention over the sequences of all ranks, by the CPU's kernels."""

    @staticmethod
    def forward(ctx, q, k, v, group):
        kernel = ATEN._scaled_dot_product_flash_attention_for_cpu
        out, logarithms = ring._templated_ring_attention(group, 2, kernel, q, k, v, is_causal=True)[:2]
        ctx.save_for_backward(q, k, v, out, logarithms)
        ctx.group = group
        return out

    @staticmethod
    def backward(ctx, gradient):
        kernel = ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default
        q, k, v, out, logarithms = ctx.saved_tensors
        gradients = ring._templated_ring_attention_backward(
            ctx.group,
            2,
            functools.partial(kernel, dropout_p=0.0),
            grad_out=gradient,
            grad_out_name="grad_out",
            query=q,
            key=k,
            value=v,
            out=out,
            logsumexp=logarithms,
            is_causal=True,
        )
        return *gradients[:3], None


def alone(q, k, v):
    """Returns attention over whole sequences."""
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Attention(nn.Module):
    """One layer of causal attention, and scores."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.scores = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 4)
        self.double()

    def forward(self, x, attention):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        return self.scores(attention(q, k, v).transpose(1, 2).flatten(2))


def compared(here, balanced, method):
    """Trains with a part of each sequence on each rank, and compares with one process."""
    mesh = init_device_mesh("cpu", (here.world_size,))
    group = mesh.get_group()
    saved = ring._cp_options.enable_load_balance, ring._cp_options.convert_to_f32
    ring._cp_options.enable_load_balance, ring._cp_options.convert_to_f32 = balanced, False
    _attention.set_rotate_method(method)
    try:
        made = Attention()
        expected = copy.deepcopy(made)
        updates = [optimizer(one.parameters()) for one in (made, expected)]
        for step in range(3):
            torch.manual_seed(step)
            x, y = torch.randn(2, SEQUENCE, WIDTH).double(), torch.randn(2, SEQUENCE, 4).double()
            for update in updates:
                update.zero_grad()
            nn.functional.mse_loss(expected(x, alone), y).backward()
            with context_parallel(mesh, buffers=[x, y], buffer_seq_dims=[1, 1]):
                assert x.shape[1] == SEQUENCE // here.world_size
                loss = nn.functional.mse_loss(made(x, lambda q, k, v: RingAttention.apply(q, k, v, group)), y)
                loss.backward()
            for parameter in made.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= here.world_size
            for update in updates:
                update.step()
        for found, wanted in zip(made.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(found, wanted, rtol=ROUNDING, atol=ROUNDING)
    finally:
        ring._cp_options.enable_load_balance, ring._cp_options.convert_to_f32 = saved


@feature()
def keys_sent_by_permutation(here):
    compared(here, False, "alltoall")


@feature()
def keys_gathered(here):
    compared(here, False, "allgather")


@feature()
def balanced_causal_attention(here):
    """Each rank has a part of the begin and a part of the end of each sequence: as much attention on each rank."""
    compared(here, True, "alltoall")
