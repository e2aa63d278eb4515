"""Training on two hosts of two ranks, started by torchrun: DDP and FSDP2 give the bits that they give on one host.

A pipeline gives those of gloo, on one host as well.
"""

import subprocess
import sys

import pytest

pytest.importorskip("torch.distributed")
from namespaces import Namespaces, Refused

pytestmark = pytest.mark.timeout(400)

SCRIPT = """
import os, torch, torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("nvcoll")
rank = dist.get_rank()

def shard(model, group):
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)

def losses(wrap, group):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(65, 257), torch.nn.GELU(), torch.nn.Linear(257, 129), torch.nn.Linear(129, 3)]
    model = wrap(torch.nn.Sequential(*layers), group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(8, 65, generator=torch.Generator().manual_seed(rank))
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss := loss.detach(), group=group)
        yield loss.item()

def pipeline(group):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(257, 257) for _ in range(4)]
    stage = PipelineStage(layers[rank], rank, 4, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(stage, 8, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.SGD(layers[rank].parameters(), lr=0.1)
    x, losses = torch.randn(64, 257), []
    for _ in range(3):
        optimizer.zero_grad()
        schedule.step(*[x] * (rank == 0), **{"target": x.tanh(), "losses": losses} if rank == 3 else {})
        optimizer.step()
    dist.broadcast(found := torch.tensor(float(sum(losses))), 3, group=group)
    yield found.item()

groups = {"nvcoll": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
wraps = {"DDP": lambda model, group: DistributedDataParallel(model, process_group=group), "FSDP2": shard}
if torch.__version__ >= "2.15":  # those of torch 2.11 are refused: two receives into one tensor
    wraps["1F1B"] = None
for kind, wrap in wraps.items():
    for name, group in groups.items():
        found = " ".join(loss.hex() for loss in (losses(wrap, group) if wrap else pipeline(group)))
        if rank == 0:
            print("LOSSES", kind, name, found, flush=True)
halves = [dist.new_group(ranks) for ranks in ([0, 3], [1, 2])]
x = torch.tensor([float(rank)])
dist.all_reduce(x, group=halves[rank in (1, 2)])
assert x.item() == 3
dist.destroy_process_group()
"""


def losses(text):
    rows = [line.split()[1:] for line in text.splitlines() if line.startswith("LOSSES")]
    return {(kind, name): [float.fromhex(one) for one in found] for kind, name, *found in rows}


@pytest.mark.parametrize("order", ["rank", "nested"])
def test_training_gives_the_losses_of_gloo_and_the_bits_of_one_host(tmp_path, order):
    (tmp_path / "script.py").write_text(SCRIPT)
    try:
        with Namespaces(2) as hosts:
            ends = hosts.torchrun(tmp_path / "script.py", limit=180, NVCOLL_ORDER=order)
    except Refused as error:
        pytest.skip(f"the kernel refuses namespaces: {error}")
    assert all(status == 0 for status, _ in ends), ends
    assert "2 hosts (ranks 0 and 1 on a; ranks 2 and 3 on b)" in ends[0][1]
    across = losses(ends[0][1])
    for kind in ("DDP", "FSDP2"):
        assert across[kind, "nvcoll"] == pytest.approx(across[kind, "gloo"], rel=1e-4), ends[0][1]
        assert across[kind, "nvcoll"][4] < across[kind, "nvcoll"][0]
    if ("1F1B", "gloo") in across:
        assert across["1F1B", "nvcoll"] == across["1F1B", "gloo"]
    if order == "rank":
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
        done = subprocess.run([*command, tmp_path / "script.py"], capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        alone = losses(done.stdout)
        assert all(across[kind, "nvcoll"] == alone[kind, "nvcoll"] for kind in ("DDP", "FSDP2")), (across, alone)
