"""Says which values operators read back that no GPU computed: one JSON object on the last line."""

import json
import sys

import torch
from torch import linalg, nn

SOLVERS = {
    **{each.__name__: each for each in (linalg.eigh, linalg.eigvalsh, linalg.eig, linalg.svd, linalg.svdvals)},
    **{each.__name__: each for each in (linalg.cholesky, linalg.lu, linalg.qr, linalg.inv, linalg.inv_ex)},
    **{each.__name__: each for each in (linalg.ldl_factor, linalg.pinv, linalg.matrix_rank, linalg.slogdet)},
    "lstsq": lambda matrix: linalg.lstsq(matrix, matrix),
    "solve": lambda matrix: linalg.solve(matrix, matrix),
    "norm": lambda matrix: linalg.matrix_norm(matrix, 2),
    "exp": torch.matrix_exp,
}


def used_memory():
    """Fills blocks of the allocator, as a status has one, with what is no status."""
    used = [torch.full((size,), 77777, dtype=torch.int32, device="cuda") for size in (1, 2, 4, 128, 1000, 4096)]
    del used


def solvers():
    failed = []
    for shape in ((256, 256), (3, 256, 256), (4, 4), (3, 4, 4)):
        for name, solve in SOLVERS.items():
            matrix = torch.randn(shape, device="cuda")
            if shape[-1] == 4:
                matrix = matrix @ matrix.mT + torch.eye(4, device="cuda")
            used_memory()
            try:
                solve(matrix)
            except RuntimeError as error:
                failed.append(f"{name} of {shape}: {error}")
    return failed


def solved():
    """The results for a small matrix, and the status of a large one."""
    small = torch.tensor([[2.0, 0.0], [0.0, 3.0]], device="cuda").expand(3, 2, 2)
    _, status = linalg.cholesky_ex(torch.randn(256, 256, device="cuda"))
    return [linalg.eigvalsh(small)[2].tolist(), linalg.inv(small)[1].tolist(), status.item()]


def from_the_host():
    """The places in a tensor of the host, whose memory had a value that does not exist."""
    lost = torch.randn(256, 4096, device="cuda").sum()
    address = lost.data_ptr()
    del lost
    tensor = torch.tensor(2.0, device="cuda")
    return [tensor.data_ptr() == address, (tensor > 1).nonzero().tolist()]


def masked_scatter():
    source = torch.ones(1536, device="cuda", requires_grad=True)
    mask = (torch.arange(2048) % 4 > 0).cuda()
    used_memory()
    torch.zeros(2048, device="cuda").masked_scatter(mask, source).cumsum(0).sum().backward()
    return source.grad[[0, 1, 1535]].tolist()


def finite():
    """What derives from values that do not exist is finite, and passes checks."""
    logits = torch.randn(64, 4096, device="cuda")
    total = logits.exp().sum(-1)
    loss = (total.log() + 1 / total).mean()
    counted = torch.stack([logits.sum(), torch.tensor(7.0, device="cuda")])
    parameter = nn.Parameter(logits)
    parameter.grad = torch.randn_like(logits)
    nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)
    checks = torch.isfinite(loss), torch.isfinite(logits).all(), ~torch.isnan(logits).any(), (logits == logits).all()
    small = (logits.softmax(-1).sum(-1) == 1).all()
    huge = torch.isfinite(torch.empty(1 << 27, device="cuda", dtype=torch.bfloat16)).all()
    return [loss.item(), counted.tolist(), *(bool(each) for each in (*checks, small, huge))]


def drawn():
    """Places that are drawn by weights that do not exist are in range."""
    places = torch.multinomial(torch.randn(512, 1024, device="cuda").softmax(-1), 4)
    return [list(places.shape), places.min().item(), places.max().item()]


def nested():
    """Tensors of several lengths, which have no sizes."""
    layer = nn.Linear(64, 8).cuda()
    rows = torch.nested.nested_tensor([torch.randn(length, 64) for length in (5, 9)], device="cuda")
    padded = torch.nested.to_padded_tensor(layer(rows), 0.0)
    padded.sum().backward()
    return [list(padded.shape), list(layer.weight.grad.shape)]


def placed(device="cuda"):
    """Routing tables and masks of large floats that are made of zeros and of known places."""
    tokens, experts = 2048, 64
    chosen = (torch.arange(tokens * 4, device=device) * 7 % experts).view(tokens, 4)
    logits = torch.randn(tokens, experts, device=device)
    table = torch.zeros_like(logits).scatter(1, chosen, 1.0)
    mask = torch.full((600, 600), float("-inf"), device=device).triu(1)
    shown = [torch.zeros_like(logits).int().scatter(1, chosen, 1).bool().nonzero().sum(), table.nonzero().sum()]
    shown += [table.bool().sum(0), (mask == 0).nonzero().sum(), mask[3, 2], mask[3].isinf().sum()]
    same = (chosen[:600, :1] == chosen[:600, 0]).float()[~torch.eye(600, dtype=torch.bool, device=device)]
    shown += [torch.cat([same, same[:5]]).bool().nonzero().sum(), torch.stack([same, same])[:, 9:99].int().sum()]
    table.add_(logits)
    table.zero_()
    table[7, 3] = 2
    shown += [table.nonzero().sum(), torch.where(table.bool(), 1, 0).sum(), table.clone()[7, 3], table.cpu().argmax()]
    points = torch.arange(2 * 20000.0).view(2, 20000, 1).expand(-1, -1, 3).to(device)
    near = ((points - points[:, :1]) ** 2).sum(-1) < 30.5
    shown += [(1 - table).nonzero().sum(), near.nonzero(), torch.ones(2, 20000, device=device)[near].shape]
    return [each.tolist() if isinstance(each, torch.Tensor) else list(each) for each in shown]


def placed_as_on_a_cpu():
    return placed() == placed("cpu")


def samples():
    """Statistics of 23 MiB of data that are made of samples on the CPU, and of weights that have no values."""
    data = torch.cat([torch.full((1, 3, 32, 32), float(i % 5)) for i in range(2000)])
    whole = torch.arange(4_000_000, dtype=torch.uint8).float() / 255
    whole.sub_(whole.mean())
    weight = nn.Linear(2048, 2048).weight
    shown = [data.mean(), data[4].mean(), (data - 2).square().mean(), whole.max() - whole.min(), weight.std()]
    whole.copy_(weight.view(-1)[:4_000_000])
    return [*(round(each.item(), 3) for each in shown), whole.max().item()]


def neighbours():
    """The neighbours of points on a line, of tables of 39 MiB of floats and 78 MiB of integers."""
    points = torch.arange(3200.0, device="cuda").repeat(2, 1)
    places = torch.arange(3200, device="cuda").repeat(2, 1600, 1)
    places[(points[:, :1600, None] - points[:, None]) ** 2 > 2.5] = 3200
    return [places[places < 3200].numel(), places.sort(-1)[0][0, 7, :4].tolist()]


def sparse(device="cuda"):
    """Gradients of tables, and products of graphs, small: as a CPU computes them."""
    table = nn.Embedding(10, 2, sparse=True).to(device)
    nn.init.ones_(table.weight)
    for optimizer in torch.optim.SparseAdam(table.parameters(), lr=0.5), torch.optim.SGD(table.parameters(), lr=0.5):
        for _ in range(2):
            table(torch.tensor([1, 2, 2], device=device)).sum().backward()
        gradient = table.weight.grad.coalesce()
        optimizer.step()
        optimizer.zero_grad()
    places, weights = torch.tensor([[0, 1, 1], [2, 0, 0]]), torch.tensor([1.0, 2.0, 3.0])
    graph = torch.sparse_coo_tensor(places.to(device), weights.to(device), (3, 3))
    nodes = torch.eye(3, device=device, requires_grad=True)
    torch.sparse.mm(graph, nodes).sum().backward()
    rows = graph.coalesce().to_sparse_csr()
    shown = [table.weight[:3], gradient.indices(), gradient.values(), nodes.grad, rows @ nodes, rows.crow_indices()]
    shown += [(graph + graph).coalesce().values(), (graph * 2).to_dense(), nodes.to_sparse().indices()]
    return [[round(each, 4) for each in one.flatten().tolist()] for one in shown]


def sparse_as_on_a_cpu():
    return [sparse() == sparse("cpu"), str(torch.eye(2, device="cuda").to_sparse()).count("1., 1.")]


def large_sparse():
    """Tables and graphs whose values do not exist: indices are computed, and optimizers run."""
    counts = []
    for table in nn.Embedding(10000, 64, sparse=True).cuda(), nn.EmbeddingBag(10000, 64, sparse=True).cuda():
        for make in torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad:
            optimizer = make(table.parameters(), lr=0.1)
            for _ in range(2):
                table(torch.arange(2048, device="cuda").view(8, 256) // 2).square().sum().backward()
            counts.append(table.weight.grad.coalesce().values().shape[0])
            optimizer.step()
            optimizer.zero_grad()
    ends = torch.arange(100000, device="cuda")
    graph = torch.sparse_coo_tensor(torch.stack([ends // 4, ends % 50000]), torch.rand(100000, device="cuda"))
    layer = nn.Linear(64, 64).cuda()
    for each in (graph, graph.coalesce().to_sparse_csr()):
        torch.sparse.mm(each, layer(torch.randn(50000, 64, device="cuda"))).square().mean().backward()
    return [counts, graph.coalesce().values().numel()]


if __name__ == "__main__":
    print(json.dumps({each: globals()[each]() for each in sys.argv[1:]}), flush=True)
