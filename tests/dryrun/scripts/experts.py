import torch
import torch.distributed as dist
import torch.distributed.nn.functional
from tiny import WIDTH, start
from torch import nn

EXPERTS, CHOSEN = 8, 2


class Experts(nn.Module):
    """Each token goes to two experts; experts lie on all ranks; how many tokens go where, ranks tell each other."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.local = nn.Parameter(torch.randn(EXPERTS // dist.get_world_size(), WIDTH, WIDTH))

    def forward(self, x):
        weights, chosen = torch.topk(self.router(x).softmax(-1), CHOSEN)
        order = chosen.flatten().argsort(stable=True)
        sent = torch.bincount(chosen.flatten(), minlength=EXPERTS)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        world = dist.get_world_size()
        out, into = sent.view(world, -1).sum(1).tolist(), received.view(world, -1).sum(1).tolist()
        rows = dist.nn.functional.all_to_all_single(
            x.new_empty(sum(into), WIDTH), x[order // CHOSEN], output_split_sizes=into, input_split_sizes=out
        )
        expert = torch.arange(len(self.local), device=x.device).repeat(world).repeat_interleave(received)
        done = x.new_zeros(rows.shape)
        for i, weight in enumerate(self.local):
            done = done.index_put((expert == i,), rows[expert == i] @ weight)
        back = dist.nn.functional.all_to_all_single(
            x.new_empty(len(order), WIDTH), done, output_split_sizes=out, input_split_sizes=into
        )
        return x + torch.zeros_like(x).index_add(0, order // CHOSEN, back * weights.flatten()[order].unsqueeze(1))


device = start()
model = Experts().to(device)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(1024, WIDTH, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
