"""Draws programs of torch operators, and runs each on the virtual GPU and on the CPU: shapes and values are the same.

A tensor of floats above 64 KiB has no values, nor has what follows from it: of those only shapes are compared, and an
operator whose shape is data may be refused. Prints the counts, and what was different, as JSON.
"""

import json
import random
import sys
from typing import NamedTuple

import torch
from tiny import train
from torch.nn import functional as F

PROGRAMS, SEED = int(sys.argv[1]), int(sys.argv[2])
INTEGER, FLOAT, MASK = torch.int64, torch.float32, torch.bool


class Pair(NamedTuple):
    gpu: torch.Tensor
    cpu: torch.Tensor
    is_known: bool


def dim_of(draw, x):
    return draw.randrange(x.dim()) if x.dim() else 0


ANY = {
    "eq": lambda d, x, y: x.eq(y),
    "where": lambda d, x, y: torch.where(x > y, x, y),
    "cat": lambda d, x, y: torch.cat([x.flatten(), y.flatten()]),
    "stack": lambda d, x, y: torch.stack([x, x]),
    "flip": lambda d, x, y: x.flip(dim_of(d, x)) if x.dim() else x.clone(),
    "roll": lambda d, x, y: x.roll(d.randrange(5), dim_of(d, x)) if x.dim() else x.clone(),
    "transpose": lambda d, x, y: x.transpose(dim_of(d, x), -1) if x.dim() else x.t(),
    "slice": lambda d, x, y: x[d.randrange(3) :: d.randrange(1, 3)] if x.dim() else x[None],
    "unsqueeze": lambda d, x, y: x.unsqueeze(0).expand(2, *x.shape),
    "flatten": lambda d, x, y: x.flatten().clone(),
    "masked_fill": lambda d, x, y: x.masked_fill(x > 2, 0),
    "masked_select": lambda d, x, y: x.masked_select(x > 1),
    "mask as index": lambda d, x, y: x[x > 0],
    "written mask": lambda d, x, y: (
        x[None].clone().index_put_((x[None] > 1,), torch.zeros((), dtype=x.dtype, device=x.device))
    ),
    "nonzero": lambda d, x, y: x.nonzero(),
    "nonzero as tuple": lambda d, x, y: torch.stack(x.nonzero(as_tuple=True)) if x.dim() else x.nonzero(),
    "any": lambda d, x, y: (x > 1).any(),
    "all": lambda d, x, y: (x > 0).all(dim_of(d, x)),
    "count_nonzero": lambda d, x, y: x.count_nonzero(),
    "unique": lambda d, x, y: x.unique(return_counts=True)[d.randrange(2)],
    "unique inverse": lambda d, x, y: x.unique(return_inverse=True)[1],
    "unique_consecutive": lambda d, x, y: torch.unique_consecutive(x.flatten()),
    "isin": lambda d, x, y: torch.isin(x.long(), torch.arange(3, device=x.device)),
    "allclose": lambda d, x, y: torch.tensor(torch.allclose(x.float(), x.float() + 0), device=x.device),
    "sort": lambda d, x, y: x.sort(dim_of(d, x) if x.dim() else -1, stable=True)[d.randrange(2)],
    "argsort": lambda d, x, y: x.flatten().argsort(stable=True),
    "as integers": lambda d, x, y: x.to(INTEGER),
    "as floats": lambda d, x, y: x.to(FLOAT),
    "as bytes": lambda d, x, y: x.to(torch.uint8),
    "as mask": lambda d, x, y: x.bool(),
    "clone": lambda d, x, y: x.clone(memory_format=torch.contiguous_format),
    "copy": lambda d, x, y: torch.empty_like(x).copy_(x),
    "zeros": lambda d, x, y: torch.zeros_like(x),
    "full": lambda d, x, y: torch.full_like(x, d.randrange(2)),
    "through the host": lambda d, x, y: x.cpu().to(x.device),
    "tolist": lambda d, x, y: torch.tensor(x.flatten()[:5].tolist(), dtype=x.dtype, device=x.device),
    "item as size": lambda d, x, y: x.new_zeros(min(5, abs(int(x.flatten()[0].item())))),
    "repeat_interleave": lambda d, x, y: x.flatten().repeat_interleave(2),
    "bincount": lambda d, x, y: x.flatten().long().abs().clamp(max=20).bincount(minlength=4),
    "one_hot": lambda d, x, y: F.one_hot(x.flatten()[:8].long().abs() % 6, 6),
    "searchsorted": lambda d, x, y: torch.searchsorted(torch.arange(8, device=x.device), x.long().contiguous()),
    "index_select": lambda d, x, y: (
        x.index_select(0, torch.arange(x.shape[0], device=x.device).flip(0)) if x.dim() else x.view(1)
    ),
    "nan_to_num": lambda d, x, y: x.float().nan_to_num(0).gt(0),
    "isfinite": lambda d, x, y: x.isfinite(),
    "equal": lambda d, x, y: torch.tensor(torch.equal(x, y), device=x.device),
    "split": lambda d, x, y: torch.cat(x.flatten().split(3)[::-1]) if x.numel() else x.clone(),
    "sizes by sum": lambda d, x, y: torch.cat(x.flatten().tensor_split(2)),
}
NUMBERS = {
    "add": lambda d, x, y: x + y,
    "multiply": lambda d, x, y: x * y,
    "subtract in place": lambda d, x, y: x.clone().sub_(y),
    "row in place": lambda d, x, y: (lambda z: (z[..., :1].add_(1), z)[1])(x.clone()) if x.dim() else x + 1,
    "remainder": lambda d, x, y: x.remainder(3),
    "floor_divide": lambda d, x, y: x.floor_divide(2),
    "clamp": lambda d, x, y: x.clamp(-2, 5),
    "sum": lambda d, x, y: x.sum(dim_of(d, x)),
    "cumsum": lambda d, x, y: x.cumsum(dim_of(d, x)),
    "prod of signs": lambda d, x, y: x.sign().prod(),
    "max": lambda d, x, y: x.max(dim_of(d, x))[d.randrange(2)],
    "amin": lambda d, x, y: x.amin(dim_of(d, x), keepdim=True),
    "argmax": lambda d, x, y: x.flatten().unique().argmax(),
    "topk": lambda d, x, y: x.flatten().unique().topk(2)[d.randrange(2)],
    "scatter_add": lambda d, x, y: torch.zeros(7, dtype=x.dtype, device=x.device).scatter_add(
        0, x.flatten().long().abs() % 7, x.flatten()
    ),
    "gather": lambda d, x, y: x.flatten().gather(0, (x.flatten().long().abs() % max(x.numel(), 1))),
    "diff": lambda d, x, y: x.flatten().diff(),
    "tril": lambda d, x, y: x.tril() if x.dim() > 1 else x.clone(),
    "pad": lambda d, x, y: F.pad(x, (1, 2)),
    "outer": lambda d, x, y: torch.outer(x.flatten()[:9], y.flatten()[:9]),
    "bitwise": lambda d, x, y: x.long() ^ 5,
    "histc": lambda d, x, y: x.float().histc(4, -4, 4),
    "lengths": lambda d, x, y: torch.repeat_interleave(x.flatten()[:6].long().abs() % 4),
    "mean above": lambda d, x, y: x.float().mean() > 0.5,
    "matrix product": lambda d, x, y: x.reshape(1, -1).float() @ x.reshape(-1, 1).float(),
    "solve": lambda d, x, y: torch.linalg.solve(
        torch.eye(3, device=x.device) * 2, F.pad(x.float().flatten(), (0, 3))[:3]
    ),
    "bounds": lambda d, x, y: torch.stack(x.aminmax()),
    "median": lambda d, x, y: x.flatten().median(),
    "kthvalue": lambda d, x, y: x.flatten().kthvalue(1)[0],
    "cummax": lambda d, x, y: x.cummax(0)[0],
}
SHAPE_IS_DATA = {
    "masked_select", "mask as index", "written mask", "nonzero", "nonzero as tuple", "unique", "unique inverse",
    "argmax", "topk", "unique_consecutive", "bincount", "one_hot", "allclose", "item as size", "lengths",
}  # fmt: skip


def first_tensors(draw):
    shape = [draw.randrange(1, 6) for _ in range(draw.randrange(1, 4))]
    dtype = draw.choice([INTEGER, FLOAT, MASK, torch.int32])
    values = torch.tensor([draw.randrange(-3, 4) for _ in range(torch.Size(shape).numel())]).view(shape).to(dtype)
    return Pair(values.cuda(), values, True)


def run(operator, draw, of):
    """Returns what an operator makes of a tensor, or its error."""
    try:
        return operator(draw, of, of)
    except Exception as error:
        return error


def difference(found, real, is_known):
    """Returns what is different, or nothing."""
    if isinstance(found, Exception) or isinstance(real, Exception):
        return "" if isinstance(found, type(real)) else f"{found!r} for {real!r}"
    if (tuple(found.shape), found.dtype) != (tuple(real.shape), real.dtype):
        return f"{tuple(found.shape)} {found.dtype} for {tuple(real.shape)} {real.dtype}"
    if not is_known:
        return ""
    values = found.cpu()
    if torch.allclose(values.double(), real.double(), equal_nan=True):
        return ""
    return f"{values.flatten()[:8].tolist()} for {real.flatten()[:8].tolist()}"


def program(seed, wrong):
    """Draws a program and runs it; returns how many operators ran, and how many were refused."""
    draw = random.Random(seed)
    pool = [first_tensors(draw) for _ in range(3)]
    if draw.randrange(3) == 0:
        large = torch.ones(200, 200)
        pool.append(Pair(large.cuda() * 1, large, False))
    ran, refused, words = 0, 0, []
    for _ in range(draw.randrange(4, 14)):
        one = draw.choice(pool)
        names = [*ANY, *(NUMBERS if one.cpu.dtype != MASK else ())]
        name, state = draw.choice(names), draw.getstate()
        operator = (ANY | NUMBERS)[name]
        real = run(operator, draw, one.cpu)
        draw.setstate(state)
        found = run(operator, draw, one.gpu)
        ran += 1
        words.append(f"{name} {tuple(one.cpu.shape)} {one.cpu.dtype}")
        if isinstance(found, Exception) and not one.is_known and type(found).__name__ == "DryRunError":
            refused += 1
            continue
        if not one.is_known and name in SHAPE_IS_DATA:
            continue
        if text := difference(found, real, one.is_known):
            wrong.append([seed, words, text])
            break
        if not isinstance(real, Exception) and real.numel() < 4000:
            pool.append(Pair(found, real, one.is_known))
    return ran, refused


def main():
    wrong: list[object] = []
    counts = [program(SEED + number, wrong) for number in range(PROGRAMS)]
    ran, refused = map(sum, zip(*counts, strict=True))
    print(json.dumps({"programs": PROGRAMS, "operators": ran, "refused": refused, "wrong": wrong}), flush=True)
    train()


if __name__ == "__main__":
    main()
