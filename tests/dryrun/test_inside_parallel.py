"""The child of a dry run, on each way of training on several GPUs: order, FLOPs and bytes."""

import pytest
from dryrun_children import PATIENT, children, collectives, counted, gemm_flops, of_kind, on_cpus

from nvcoll.dryrun.parent.tokens import tokens_of
from nvcoll.dryrun.wire.virtual_gpu import Kind

__all__ = ["children", "counted"]

pytestmark = PATIENT

VOCABULARY, WIDTH, TOKENS, BLOCKS = 512, 256, 512, 2
BLOCK = 4 * WIDTH * WIDTH + 8 * WIDTH * WIDTH  # parameters of a block's matrices
NORMS = 4 * WIDTH  # weights and biases of a block's two norms
OUTER = 2 * VOCABULARY * WIDTH  # embedding and head
STEP_FLOPS = 6 * (BLOCKS * BLOCK + VOCABULARY * WIDTH) * TOKENS


def operators(recording):
    """Matrix products and collectives of a recording, as `on_cpus` tells them."""
    wanted = ("aten::mm", "aten::addmm", "aten::bmm", "c10d::", "_c10d_functional::")
    return [(op.name, tuple(shape for shape, _ in op.inputs)) for op in recording.ops if op.name.startswith(wanted)]


@pytest.mark.parametrize("script", ["ddp.py", "fsdp2.py", "tensor_parallel.py"])
def test_order_of_products_and_collectives_is_that_of_real_processes(counted, tmp_path, script):
    real = on_cpus(script, world_size=2, folder=tmp_path)
    dry = operators(counted(script, world_size=2))
    assert dry == real


@pytest.mark.parametrize("script", ["ddp.py", "fsdp1.py", "fsdp2.py", "checkpointed.py", "graphed.py", "compiled.py"])
def test_flops_of_products_are_the_closed_form(counted, script):
    blocks = 1 if script == "compiled.py" else BLOCKS
    expected = 6 * (blocks * BLOCK + VOCABULARY * WIDTH) * TOKENS
    if script == "checkpointed.py":  # once more forward, but the last product of a block, which nothing needs
        expected += 2 * BLOCKS * (BLOCK - 4 * WIDTH**2) * TOKENS
    assert gemm_flops(counted(script)) == expected


def test_ddp_reduces_each_gradient_once(counted):
    reduced = [size for name, _, size in collectives(counted("ddp.py")) if name == "all_reduce"]
    assert sum(reduced) == 4 * (BLOCKS * (BLOCK + NORMS) + OUTER)
    assert len(reduced) > 4  # buckets of 1 MiB


@pytest.mark.parametrize("args, gathered, reduced", [((), 4, 4), (("--bf16",), 2, 4)])
def test_fsdp2_gathers_parameters_twice_and_scatters_gradients_once(counted, args, gathered, reduced):
    told = collectives(counted("fsdp2.py", *args, world_size=8))
    total = {name: sum(size for each, _, size in told if each == name) for name in ("all_gather", "reduce_scatter")}
    inner, outer = BLOCKS * (BLOCK + NORMS), OUTER
    assert total["all_gather"] == gathered * (2 * inner + outer) // 8  # the root stays gathered for the backward pass
    assert total["reduce_scatter"] == reduced * (inner + outer) // 8


def test_hybrid_sharding_scatters_within_and_reduces_across(counted):
    recording = counted("fsdp2.py", "--hybrid", world_size=8)
    groups = {group.name: group.ranks for group in recording.groups.values()}
    assert groups["mesh_shard"] == (0, 1, 2, 3)
    assert groups["mesh_replicate"] == (0, 4)
    scattered = sum(
        size for name, group, size in collectives(recording) if (name, group) == ("reduce_scatter", "mesh_shard")
    )
    reduced = sum(
        size for name, group, size in collectives(recording) if (name, group) == ("all_reduce", "mesh_replicate")
    )
    assert scattered == reduced == 4 * (BLOCKS * (BLOCK + NORMS) + OUTER) // 4


def test_tensor_parallelism_reduces_activations_twice_a_block_each_way(counted):
    recording = counted("tensor_parallel.py", world_size=4)
    reduced = [size for name, _, size in collectives(recording) if name == "all_reduce"]
    assert reduced == [4 * TOKENS * WIDTH] * (4 * BLOCKS)
    assert gemm_flops(recording) == 6 * (BLOCKS * BLOCK // 4 + VOCABULARY * WIDTH) * TOKENS


def test_stages_of_a_pipeline_exchange_activations_and_gradients(children):
    (_, first, stage_0), (_, second, stage_1) = children.run("pipeline.py", world_size=2, ranks=(0, 1))
    assert (first.status, second.status) == ("counted", "counted")
    size = 4 * 2 * 64 * WIDTH
    assert sorted(collectives(stage_0)) == sorted(
        [("send", "default_pg", size)] * 4 + [("recv", "default_pg", size)] * 4
    )
    assert sorted(each[0] for each in collectives(stage_1)) == ["recv"] * 4 + ["send"] * 4
    peers = {args[3] for args in of_kind(stage_0, Kind.COLLECTIVE)["args"].tolist()}
    assert peers == {1}
    assert all(stage_0.ops[op].name.startswith("c10d::") for op in of_kind(stage_0, Kind.COLLECTIVE)["op"].tolist())


def test_tables_that_read_views_of_the_same_tokens_count_as_one(counted):
    tokens, _ = tokens_of([counted("tables.py", world_size=1)])
    assert tokens == 2 * 4 * 32


@pytest.mark.parametrize(("what", "read"), [("", 0), ("words", 64)])
def test_an_integer_for_each_image_is_no_token(counted, what, read):
    tokens, _ = tokens_of([counted("times.py", what, world_size=1)])
    assert tokens == read


def test_experts_get_equal_numbers_of_tokens(counted):
    recording = counted("experts.py", world_size=4)
    sent = [size for name, _, size in collectives(recording) if name == "send"]
    if sent:
        assert set(sent) == {4 * WIDTH * 1024 * 2 // 4}
    assert any(
        "topk" in each.text and recording.lines[each.line].startswith("experts.py") for each in recording.assumed
    )


def test_all_batch_norms_of_a_group_share_statistics(counted):
    names = [name for name, _, _ in collectives(counted("batch_norm.py"))]
    assert names.count("all_gather") == 2  # forward, one per norm
    assert names.count("all_reduce") == 2 + 1  # backward, one per norm, and the gradients


def test_scaled_gradients_lead_to_a_step(children):
    [(out, run, _)] = children.run("scaled.py")
    assert run.status == "counted"
    assert "scale 65536.0" in out


def test_accumulation_is_within_a_step(counted):
    once, twice = (gemm_flops(counted("fsdp2.py", *args)) for args in ((), ("--accumulate",)))
    assert twice == 2 * once == 2 * STEP_FLOPS


def test_a_launched_graph_is_a_step_with_the_lines_of_its_operators(counted):
    recording = counted("graphed.py")
    launched = of_kind(recording, Kind.GEMM)
    assert gemm_flops(recording) == STEP_FLOPS
    assert all(recording.lines[recording.ops[op].line].startswith("tiny.py") for op in launched["op"].tolist())


def test_compiled_kernels_have_rows(counted):
    recording = counted("compiled.py")
    assert any(op.name.startswith("triton_") and op.bytes and op.line for op in recording.ops)
    assert not any(op.is_bound for op in recording.ops)


def test_kernels_of_the_script_have_rows_and_are_not_timed(counted):
    recording = counted("kernels.py")
    [kernel] = [op for op in recording.ops if op.name == "double"]
    assert kernel.bytes == 2 * 4 << 20 and kernel.is_bound
    assert recording.lines[kernel.line] == "kernels.py:25 <module>"


EXCHANGES = """
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

dist.init_process_group("cpu:gloo,cuda:nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
layer = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(layer.parameters())
found = []
for device in ("cuda", "cpu"):
    flag = torch.tensor([10 + rank], device=device)
    dist.broadcast(flag, 2)
    total, most = torch.tensor([1.0 + rank], device=device), torch.tensor([rank], device=device)
    dist.all_reduce(total)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    each = [torch.empty(1, dtype=torch.int64, device=device) for _ in range(world)]
    dist.all_gather(each, torch.tensor([rank], device=device))
    flat = torch.empty(world, dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(flat, torch.tensor([rank], device=device))
    found += [flag.item(), total.item(), most.item(), [one.item() for one in each], flat.tolist()]
found += functional.all_gather_tensor(torch.tensor([rank], device="cuda"), 0, dist.group.WORLD).tolist()
other = torch.tensor([rank], device="cuda")
dist.broadcast(other, 1)
told = torch.full((2,), rank)
dist.recv(told, 0) if rank else dist.isend(told + 7, 2).wait()
print("found", *found, other.item(), told.tolist())
while flag.item() == 12:
    layer(torch.ones(2, 8, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_ranks_that_run_have_the_values_that_they_send_each_other(children, tmp_path):
    (tmp_path / "exchanges.py").write_text(EXCHANGES)
    first, second = children.run(tmp_path / "exchanges.py", world_size=4, ranks=(0, 2))
    there = "12 6.0 2 [0, 0, 2, 0] [0, 0, 2, 0]"  # ranks 1 and 3 do not run: they are as rank 0
    for rank, told, (out, run, _) in ((2, "[7, 7]", second), (0, "[0, 0]", first)):
        assert run.status == "counted" and f"found {there} {there} 0 0 2 0 {rank} {told}" in out, out


def test_a_rank_alone_ends_as_soon_as_it_makes_the_group_of_a_pipeline(children, tmp_path):
    script = tmp_path / "stages.py"
    script.write_text(
        "import torch.distributed as dist\n"
        "mesh = dist.device_mesh.init_device_mesh('cuda', (2, 4), mesh_dim_names=('pp', 'dp'))\n"
        "raise ValueError(mesh)\n"
    )
    [(_, chosen, _)] = children.run(script, finds_roles=False)
    [(_, run, _)] = children.run(script, finds_roles=True)
    assert (chosen.status, chosen.wanted) == ("failed", []) and "ValueError" in chosen.message
    assert (run.status, run.wanted) == ("refused", [0, 4]) and "is a pipeline" in run.message
