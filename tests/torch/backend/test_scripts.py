"""Scripts for torch as users start them: with torchrun, unchanged, with a table at the end."""

import os
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

pytestmark = pytest.mark.timeout(300)

SCRIPT = """
import sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group(sys.argv[1])
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(300, 300))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(2, 300)).square().mean().backward()
    optimizer.step()
sys.stdout.write(f"{dist.get_backend()} {type(dist.group.WORLD).__module__}\\n")  # in one piece: ranks share a pipe
sys.stdout.flush()
if "leave" in sys.argv:
    dist.destroy_process_group()
if "gone" in sys.argv:
    import os
    os._exit(0)
"""


def torchrun(tmp_path, *words, ranks=2, status=0, **variables):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NVCOLL_")} | variables
    done = subprocess.run(
        [*command, str(tmp_path / "script.py"), *words], capture_output=True, text=True, timeout=200, env=environment
    )
    assert (done.returncode == 0) == (status == 0), done.stdout + done.stderr
    return done.stdout + done.stderr


def test_torch_finds_the_backend_without_an_import(tmp_path):
    assert torchrun(tmp_path, "nvcoll", "leave").count("nvcoll nvcoll.torch.groups") == 2


def test_a_script_that_uses_gloo_runs_unchanged(tmp_path):
    text = torchrun(tmp_path, "gloo", "leave", NVCOLL_TORCH="replace")
    assert text.count("nvcoll.torch.groups") == 2
    # "gone": torch 2.15 aborts now and then when it takes its own gloo down ("terminate called"), also without nvcoll.
    assert "nvcoll.torch.groups" not in torchrun(tmp_path, "gloo", "leave", "gone")


@pytest.mark.parametrize("end", ["leave", "stay"])
def test_a_table_at_the_end_has_the_calls_per_step(tmp_path, end):
    text = torchrun(tmp_path, "nvcoll", end, NVCOLL_REPORT="hgx-h100,pcie4-8-staged")
    row = re.search(r"all_reduce\s+352\.7 KiB\s+float32 sum\s+auto\s+2\s+(\d+)\s+(\S+)", text)
    assert row and row[2] == "1", text
    assert "one step" in text and "the average of 3 steps after the first" in text and "\npcie4-8-staged  " in text


def test_an_unknown_machine_is_refused_at_once(tmp_path):
    assert "hgx-h1000" in torchrun(tmp_path, "nvcoll", "leave", status=1, NVCOLL_REPORT="hgx-h1000")


@pytest.mark.ranks(2)
@pytest.mark.skipif(not hasattr(dist.Backend, "_ensure_backend_registered"), reason="needs torch 2.14")
def test_one_backend_per_device():
    rank = dist.get_rank()
    dist.destroy_process_group()
    store = dist.FileStore(f"{os.environ['NVCOLL_PYTEST_FOLDER']}/devices-{os.getppid()}", 2)
    dist.init_process_group("cpu:nvcoll,cuda:gloo", store=store, rank=rank, world_size=2)
    x = torch.full((3,), float(rank))
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    gathered = torch.empty(6)
    dist.all_gather_into_tensor(gathered, x)
    assert torch.equal(gathered, torch.full((6,), 2.0))
    assert type(dist.group.WORLD._get_backend(torch.device("cpu"))).__module__ == "nvcoll.torch.backends"


@pytest.mark.ranks(2)
def test_a_process_that_is_a_rank_of_nvcoll_stays_in_its_job():
    import nvcoll
    import nvcoll.torch

    rank = dist.get_rank()
    dist.destroy_process_group()
    comm = nvcoll.init(rank, 2, f"stays-{os.getppid()}", timeout=30)
    store = dist.FileStore(f"{os.environ['NVCOLL_PYTEST_FOLDER']}/stays-{os.getppid()}", 2)
    dist.init_process_group("nvcoll", store=store, rank=rank, world_size=2)
    x = torch.ones(3)
    dist.all_reduce(x)
    assert nvcoll.torch.communicator().ranks == comm.ranks and x[0] == 2
    with pytest.raises(nvcoll.InvalidArgument, match="already"):
        nvcoll.init(rank, 2, "another")


@pytest.mark.parametrize("backend", ["nvcoll", "gloo"])
@pytest.mark.ranks(2, backend="none")
def test_a_test_may_initialize_torch_itself(backend):
    dist.init_process_group(backend)
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x[0] == 2
    dist.destroy_process_group()


@pytest.mark.ranks(2, backend="gloo")
def test_communicator_says_which_backend_a_group_has_and_what_to_pass():
    import nvcoll
    import nvcoll.torch

    with pytest.raises(nvcoll.InvalidArgument, match='the default group uses gloo: pass "nvcoll" to init_process'):
        nvcoll.torch.communicator()
    dist.destroy_process_group()
    with pytest.raises(nvcoll.InvalidArgument, match="torch has no default group"):
        nvcoll.torch.communicator()
