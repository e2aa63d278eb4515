"""Calls functions of torch on the virtual GPU and on the CPU, forward and backward: shapes and values are the same.

Prints their number, and what was different, as JSON. Left out: what has no values on the virtual GPU, since a CPU
computes it otherwise or not at all (`embedding_bag`, the gradient of `rms_norm`).
"""

import json

import torch
from tiny import train
from torch import nn
from torch.nn import functional as F

FUNCTIONS = {
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x.flatten() * 2),
    "index_add": lambda x: x.index_add(0, torch.tensor([0, 1, 1], device=x.device), x[:3]),
    "scatter_reduce": lambda x: torch.zeros(4, 6, device=x.device).scatter_reduce(0, (x > 0).long(), x, "amax"),
    "embedding": lambda x: F.embedding(torch.arange(8, device=x.device) % 4, x),
    "embedding_bag max": lambda x: F.embedding_bag(
        torch.arange(8, device=x.device) % 4, x, torch.tensor([0, 3], device=x.device), mode="max"
    ),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 1, -100, 2], device=x.device)),
    "nll2d": lambda x: F.nll_loss(
        F.log_softmax(x.view(1, 4, 2, 3), 1), torch.zeros(1, 2, 3, dtype=torch.long, device=x.device)
    ),
    "ctc": lambda x: F.ctc_loss(
        F.log_softmax(x.view(4, 1, 6), 2), torch.tensor([[1, 2]], device=x.device), torch.tensor([4]), torch.tensor([2])
    ),
    "ctc gpu": lambda x: F.ctc_loss(
        F.log_softmax(x.view(4, 1, 6), 2),
        torch.tensor([[1, 2]], device=x.device),
        torch.tensor([4], device=x.device),
        torch.tensor([2], device=x.device),
    ),
    "max_pool": lambda x: F.max_pool2d(x[None, None], 2),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x[None, None], 2),
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "grid": lambda x: F.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2, device=x.device), align_corners=False),
    "conv": lambda x: F.conv2d(x[None, None], torch.ones(1, 1, 2, 2, device=x.device)),
    "depthwise": lambda x: F.conv1d(x[None], torch.ones(4, 1, 3, device=x.device), groups=4),
    "convT": lambda x: F.conv_transpose1d(x[None], torch.ones(4, 2, 3, device=x.device)),
    "layer": lambda x: F.layer_norm(x, (6,)),
    "batch": lambda x: F.batch_norm(x, None, None, training=True),
    "group": lambda x: F.group_norm(x[None], 2),
    "sdpa": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], is_causal=True),
    "softmax": lambda x: x.softmax(0),
    "gelu": lambda x: F.gelu(x),
    "silu": lambda x: F.silu(x),
    "glu": lambda x: F.glu(x),
    "cdist": lambda x: torch.cdist(x, x + 1),
    "norm": lambda x: x.norm(),
    "norms": lambda x: torch.linalg.vector_norm(x, dim=1),
    "det": lambda x: torch.linalg.det(x[:, :4] + 4 * torch.eye(4, device=x.device)),
    "inv": lambda x: torch.linalg.inv(x[:, :4] + 4 * torch.eye(4, device=x.device)),
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.T + 4 * torch.eye(4, device=x.device)),
    "qr": lambda x: torch.linalg.qr(x.T)[1].abs(),
    "svdvals": lambda x: torch.linalg.svdvals(x),
    "eigvalsh": lambda x: torch.linalg.eigvalsh(x @ x.T + torch.eye(4, device=x.device)),
    "eigh batch": lambda x: torch.linalg.eigh((x @ x.T)[None].expand(3, 4, 4) + torch.eye(4, device=x.device))[0],
    "pinv": lambda x: torch.linalg.pinv(x),
    "matrix_exp": lambda x: torch.linalg.matrix_exp(x[:, :4]),
    "matrix_norm2": lambda x: torch.linalg.matrix_norm(x[None], 2),
    "slogdet": lambda x: torch.linalg.slogdet(x[:, :4] + 4 * torch.eye(4, device=x.device))[1],
    "triangular": lambda x: torch.linalg.solve_triangular(torch.eye(4, device=x.device), x, upper=True),
    "matrix_power": lambda x: torch.linalg.matrix_power(x[:, :4], 3),
    "lu": lambda x: torch.linalg.lu(x[:, :4] + 4 * torch.eye(4, device=x.device))[2],
    "logsumexp": lambda x: x.logsumexp(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "cumprod": lambda x: (x + 5).cumprod(1),
    "fft": lambda x: torch.fft.rfft(x).abs().sum(),
    "stft": lambda x: (
        torch.stft(x.flatten(), 8, return_complex=True, window=torch.ones(8, device=x.device)).abs().sum()
    ),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "bmm": lambda x: x[None].bmm(x.T[None]),
    "baddbmm": lambda x: torch.baddbmm(torch.ones(1, 4, 4, device=x.device), x[None], x.T[None]),
    "unfold": lambda x: F.unfold(x[None, None], 2),
    "pixel": lambda x: F.pixel_shuffle(x.view(1, 4, 2, 3), 2),
    "isin": lambda x: torch.isin((x * 4).long(), torch.arange(3, device=x.device)).float() * x,
    "tensordot": lambda x: torch.tensordot(x, x, 2),
    "kron": lambda x: torch.kron(x, x),
    "jagged": lambda x: (
        torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 4], device=x.device)).values() * 2
    ),
    "pack": lambda x: nn.utils.rnn.pack_padded_sequence(x[None], torch.tensor([3]), batch_first=True).data,
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda y: y.sin(), x, use_reentrant=False),
    "vmap": lambda x: torch.func.vmap(lambda r: r.sum())(x),
    "grad": lambda x: torch.func.grad(lambda y: (y**3).sum())(x),
    "multinomial": lambda x: x * torch.multinomial(x.softmax(1), 2).shape[1],
    "bernoulli": lambda x: x * (torch.bernoulli(torch.ones_like(x))),
    "dropout": lambda x: F.dropout(x, 0.0),
    "quantile": lambda x: torch.quantile(x, 0.5),
    "nanmedian": lambda x: x.nanmedian(),
    "trapezoid": lambda x: torch.trapezoid(x),
    "renorm": lambda x: x.renorm(2, 0, 1.0),
    "where1": lambda x: x[torch.where(x > 0)],
    "histogram": lambda x: x * torch.histc(x.detach(), 4).sum(),
    "clip": lambda x: x * nn.utils.clip_grad_norm_([nn.Parameter(x.detach().clone())], 1.0, error_if_nonfinite=True),
    "allclose": lambda x: x * float(torch.allclose(x.detach(), x.detach())),
    "combinations": lambda x: torch.combinations(x[0], 2),
    "cartesian": lambda x: torch.cartesian_prod(x[0], x[1]),
    "unique dim": lambda x: x * torch.unique((x * 4).long(), dim=0).shape[0],
    "block_diag": lambda x: torch.block_diag(x, x),
    "bucketize": lambda x: x * torch.bucketize(x.detach(), torch.linspace(-1, 1, 5, device=x.device)),
    "lengths": lambda x: x.repeat_interleave(torch.tensor([1, 0, 2, 1], device=x.device), 0),
    "split": lambda x: torch.cat(x.split(torch.bincount(torch.tensor([0, 1, 1, 3], device=x.device)).tolist())),
    "foreach": lambda x: torch._foreach_norm([x, x])[0],
    "complex": lambda x: torch.view_as_real(torch.view_as_complex(x.view(4, 3, 2)) * 1j),
    "polygamma": lambda x: torch.special.digamma(x + 5),
    "take_along": lambda x: x.take_along_dim(torch.argsort(x, dim=1, stable=True), 1),
}


def leaf(device):
    return ((torch.arange(24, dtype=torch.float32).view(4, 6) % 7 - 3) / 4).to(device).requires_grad_()


def called(function, device):
    """Returns the result and the gradient on the CPU, or the error."""
    try:
        result = function(x := leaf(device))
        if result.requires_grad:
            result.sum().backward()
        return [each if each is None else each.cpu() for each in (result.detach(), x.grad)]
    except Exception as error:
        return repr(error)


def are_alike(one, other):
    if isinstance(one, str) or isinstance(other, str):
        return False
    pairs = list(zip(one, other, strict=True))
    if any((a is None) != (b is None) or (a is not None and a.shape != b.shape) for a, b in pairs):
        return False
    return all(a is None or torch.allclose(a, b, atol=1e-3, equal_nan=True) for a, b in pairs)


def main():
    wrong = {}
    for name, function in FUNCTIONS.items():
        real, found = called(function, "cpu"), called(function, "cuda")
        if not are_alike(real, found):
            wrong[name] = f"{found} for {real}"
    print(json.dumps({"functions": len(FUNCTIONS), "wrong": wrong}), flush=True)
    train()


if __name__ == "__main__":
    main()
