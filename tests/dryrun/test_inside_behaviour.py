"""The child of a dry run, as a script sees it: values, peers, store, processes, errors; and as its parent sees it."""

import json
import pickletools
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from dryrun_children import PATIENT, SCRIPTS, Children, children, counted, of_kind

import nvcoll
from nvcoll.dryrun.wire.rank_recording import RankRecording, Run
from nvcoll.dryrun.wire.virtual_gpu import Kind

__all__ = ["children", "counted"]

torch = pytest.importorskip("torch", reason="torch is not installed")
Gpu = pytest.importorskip("nvcoll.dryrun.inside.gpu").Gpu

pytestmark = PATIENT


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """What `facts.py` saw, and how its child ended."""
    [(out, run, _)] = Children(tmp_path_factory.mktemp("facts")).run("facts.py")
    assert run.status == "ended", out
    return json.loads(out.strip().splitlines()[-1]) | {"run": run}


def test_environment_is_that_of_torchrun(facts):
    assert facts["environment"] == {
        "RANK": "0",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "8",
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "nvcoll-dryrun",
    }


def test_peers_hold_what_this_rank_holds(facts):
    assert facts["objects"] == [8, {"rank": 0}, [{"rank": 0}], ["0"]]
    assert facts["on_gloo"] == ["gloo", [24, 24], [0, 1]]


def test_a_store_has_every_answer(facts):
    assert facts["store"] == ["value", 2, 4, 128, True, False]


def test_integers_are_computed(facts):
    assert facts["integers"] == [250000, 500, [143] * 6 + [142], list(range(991, 998))]


def test_small_floats_are_computed_and_large_ones_are_zero(facts):
    assert facts["small_floats"] == [[6.0, 22.0], [4.0, 6.0, 8.0, 10.0]]
    assert facts["large_floats"] == [0.0, 0.0, False, 0.0]


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """What `values.py` saw."""
    names = (
        "solvers",
        "solved",
        "from_the_host",
        "masked_scatter",
        "finite",
        "sparse_as_on_a_cpu",
        "large_sparse",
        "drawn",
        "placed_as_on_a_cpu",
        "neighbours",
        "samples",
        "nested",
    )
    [(out, run, _)] = Children(tmp_path_factory.mktemp("values")).run("values.py", *names)
    assert run.status == "ended", out
    return json.loads(out.strip().splitlines()[-1])


def test_solvers_succeed_whatever_lay_where_their_status_is(values):
    assert values["solvers"] == []
    assert values["solved"] == [[2.0, 3.0], [[0.5, 0.0], [0.0, pytest.approx(1 / 3)]], 0]


def test_a_tensor_of_the_host_is_known_whatever_lay_in_its_memory(values):
    assert values["from_the_host"] == [True, [[]]]


def test_counts_that_an_operator_reads_back_are_computed(values):
    assert values["masked_scatter"] == [2047.0, 2046.0, 1.0]


def test_what_derives_from_values_that_do_not_exist_is_finite(values):
    assert values["finite"] == [0.0, [0.0, 7.0], *[True] * 6]


def test_tables_of_large_floats_that_are_made_of_known_places_have_values(values):
    assert values["placed_as_on_a_cpu"]
    assert values["samples"] == [2, 4, 2, 1, 0, 0]
    assert values["neighbours"] == [2 * (3 * 1600 - 1), [6, 7, 8, 3200]]


LOSSES = """
import torch

layer = torch.nn.Linear(256, 1000).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for _ in range(3):
    with torch.autocast("cuda", torch.float16):
        scores = layer(torch.randn(512, 256, device="cuda"))
    loss = torch.nn.functional.cross_entropy(scores.float(), torch.zeros(512).long().cuda())
    assert 2 < loss.item() < 3, loss
    scaler.scale(loss / 4).backward()
    scaler.step(optimizer)
    scaler.update()
assert scaler.get_scale() == 65536
"""


@pytest.mark.parametrize("loss", [None, 2.5])
def test_a_loss_reads_as_the_number_that_is_given(children, tmp_path, loss):
    (tmp_path / "losses.py").write_text(LOSSES)
    [(out, run, _)] = children.run(tmp_path / "losses.py", steps=3, loss=loss)
    assert run.status == ("failed" if loss is None else "counted"), out
    assert (run.read == "") == (loss is not None)


def test_nested_tensors_are_used_without_their_sizes(values):
    assert values["nested"] == [[2, 9, 8], [8, 64]]


def test_places_that_are_drawn_by_values_that_do_not_exist_are_in_range(values):
    assert values["drawn"] == [[512, 4], 0, 1023]


def test_sparse_tensors_have_the_indices_and_small_values_of_a_cpu(values):
    assert values["sparse_as_on_a_cpu"] == [True, 1]
    assert values["large_sparse"] == [[1024] * 6, 100000]


def test_tensors_of_the_gpu_are_printed(facts):
    small, large = facts["printed"]
    assert small == "tensor([4., 6., 8.], device='cuda:0')"
    assert large.startswith("tensor([1., 1., 1.,  ..., 1., 1., 1.], device='cuda:0'")


def test_the_parent_needs_no_torch_to_read_a_recording(counted, tmp_path):
    counted("ddp.py").save(tmp_path / "0.recording")
    words = [arg for _, arg, _ in pickletools.genops((tmp_path / "0.recording").read_bytes()) if isinstance(arg, str)]
    assert "nvcoll.dryrun.wire.rank_recording" in words and not [word for word in words if word.startswith("torch.")]


def test_random_numbers_of_the_gpu_leave_those_of_the_script_alone(facts):
    assert facts["random"] is True


def test_a_model_on_the_cpu_takes_no_memory(facts):
    assert facts["on_the_host"] == [24 * 8192**2, 1, 4, 0.0]
    assert facts["run"].peak_rss_bytes < 2 << 30


def test_a_list_of_gathered_tensors_has_the_values_of_all_ranks(facts):
    assert facts["gathered"] == [[1, 2, 3], [1, 2, 3], 2.5]


def test_large_batches_on_the_cpu_are_pinned(facts):
    assert facts["pinned"] == [[is_pinned, 64 * 3 * 224**2] for is_pinned in (True, True, False)]


def test_small_buffers_keep_their_values_in_ddp(facts):
    assert facts["wrapped"] == [[1.0, 2.0], 0.0]


def test_a_model_with_convolutions_is_traced_by_torchscript(facts):
    assert facts["traced"] == [4, 3, 3, 3]


def test_data_workers_are_forked_and_spawned(facts):
    assert facts["workers"] == [[15.0, 51.0], [15.0, 51.0]]


def test_memory_that_a_gpu_does_not_have_is_refused_by_torch(facts):
    assert "Tried to allocate 200.00 GiB" in facts["out_of_memory"]


def test_a_script_without_steps_says_what_was_seen(facts):
    assert facts["run"].message == "the script ended after 0 steps of an optimizer were seen, 2 are needed"


def test_a_recording_can_be_saved_and_loaded(counted, tmp_path):
    recording = counted("fsdp2.py")
    recording.save(tmp_path / "again")
    again = RankRecording.load(tmp_path / "again")
    assert (again.records == recording.records).all()
    for name in set(vars(recording)) - {"records"}:
        assert getattr(again, name) == getattr(recording, name), name


def test_every_launch_has_its_operator_and_line(counted):
    recording = counted("fsdp2.py")
    for kind in (Kind.LAUNCH, Kind.GEMM, Kind.COLLECTIVE):
        assert all(recording.ops[op].name and recording.ops[op].line for op in of_kind(recording, kind)["op"].tolist())
    products = {(recording.lines[op.line], op.is_backward) for op in recording.ops if op.name == "aten::mm"}
    assert {("tiny.py:30 forward", False), ("tiny.py:30 forward", True), ("tiny.py:44 forward", True)} <= products


def test_peak_memory_is_that_of_torchs_tracker(children):
    [(out, _, recording)] = children.run("tracked.py")
    tracked = int(out.split("tracked ")[1].split()[0])
    assert recording.memory.allocated == pytest.approx(tracked, rel=0.01)
    assert sum(size for _, size in recording.memory.parts) == recording.memory.allocated <= recording.memory.reserved
    assert dict(recording.memory.parts)["optimizer state"] == pytest.approx(2 * 8 * 12 * 4096**2 * 4 / 8, rel=0.01)
    assert recording.memory.stack[0].endswith("(backward)")


ENDS = {
    "leaves": ("import sys\nsys.exit(3)", "ended", 3, "sys.exit(3)", ""),
    "raises": (
        "def inner():\n    raise ValueError('no such thing')\ninner()",
        "failed",
        1,
        "no such thing",
        ":2 inner",
    ),
    "lacks": ("import nothing_like_that", "failed", 1, "nothing_like_that", ":1 <module>"),
    "grows": (
        "import torch\nmodel = torch.nn.Linear(16384, 16384).cuda()\n"
        "torch.empty(90 << 30, dtype=torch.uint8, device='cuda')",
        "failed",
        1,
        "In tensors: parameters 1.00 GiB.",
        ":3 <module>",
    ),
    "asks much": (
        "import torch\nmodel = torch.nn.Linear(8, 8).cuda()\ntorch.empty(90 << 30, dtype=torch.uint8, device='cuda')",
        "failed",
        1,
        "In tensors: less than 0.01 GiB.",
        ":3 <module>",
    ),
    "asks": (
        "import torch\nx = torch.randn(1000, 1000, device='cuda')\nprint(x[x > 0].shape)",
        "refused",
        1,
        "depends on the values of a tensor (1000, 1000) bool",
        ":3 <module>",
    ),
    "stops": (
        "import os, torch\nif os.fork() == 0:\n    os._exit(7)\nos.wait()\nmodel = torch.nn.Linear(8, 8).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters())\n"
        "model(torch.ones(2, 8).cuda()).sum().backward()\noptimizer.step()\nos._exit(5)",
        "ended",
        5,
        "os._exit(5)` after 1 step of an optimizer was seen, 2 are needed",
        "",
    ),
    "computes": (
        "import torch\nmodel = torch.nn.Linear(8, 8)\noptimizer = torch.optim.SGD(model.parameters())\n"
        "for _ in range(3):\n    model(torch.ones(2, 8)).sum().backward()\n    optimizer.step()",
        "refused",
        1,
        "no operator of the script ran on a GPU: pass the option",
        "",
    ),
    "thinks": ("print(1)", "ended", 0, "0 steps of an optimizer were seen, 2 are needed, and no operator", ""),
    "spreads": (
        "import torch\ntorch.zeros(1, device='cuda')\ntorch.zeros(1, device='cuda:1')",
        "refused",
        1,
        "uses cuda:1 after cuda:0",
        ":3 <module>",
    ),
    "replicates": (
        "import torch\nmodel = torch.nn.DataParallel(torch.nn.Linear(8, 8).cuda())\nmodel(torch.ones(16, 8).cuda())",
        "refused",
        1,
        "uses cuda:1 after cuda:0",
        ":3 <module>",
    ),
    "misses": (
        "import torch.distributed as dist\ndist.init_process_group('nccl')\nheard = [None]\n"
        "dist.broadcast_object_list(heard, src=5)",
        "refused",
        1,
        "rank 5",
        ":4 <module>",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_parent_is_told_how_a_script_ended(children, tmp_path, name):
    text, status, exit_status, message, line = ENDS[name]
    (tmp_path / f"{name}.py").write_text(text)
    [(out, run, recording)] = children.run(tmp_path / f"{name}.py")
    assert (run.status, run.exit_status, recording) == (status, exit_status, None), out
    assert message in run.message
    assert run.line == (f"{name}.py{line}" if line else "")
    if status == "failed":
        assert "Traceback" in out and run.message.split(": ")[0] in out
        assert "runpy" not in out and "dryrun/inside/rank.py" not in out
    if name == "misses":
        assert run.wanted == [5]


READS = """import sys, torch
from jinja2.filters import do_float  # a package's function that reads
def reads(value):
    {}
reads(torch.randn(1 << 20, device="cuda").sum())
"""


@pytest.mark.parametrize(
    ("does", "message", "place"),
    [
        ("sys.exit(value.item() == 0)", "sys.exit(True)", r"says.py:4 reads"),
        ("sys.exit(do_float(value) == 0)", "sys.exit(True)", r"jinja2/filters.py:\d+ do_float, from says.py:4 reads"),
        ("1 / value.item()", "ZeroDivisionError", r"says.py:4 reads"),
        ("value.item(); import nothing_like_that", "nothing_like_that", r"says.py:4 reads"),
        ("value.item(); torch.nn.Linear(3, 3)(torch.ones(2))", "mat1 and mat2", None),
    ],
)
def test_an_end_names_the_read_that_may_have_decided(children, tmp_path, does, message, place):
    (tmp_path / "says.py").write_text(READS.format(does))
    [(_, run, _)] = children.run(tmp_path / "says.py")
    what = "the script reads a float32 value that was not computed: it gets 0, or a result of zeros"
    assert message in run.message
    assert re.fullmatch(rf"{what} \({place}\)" if place else "", run.read)


def test_a_module_of_a_package_runs_as_main(children, tmp_path):
    package = tmp_path / "here" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text("from . import __name__ as n\nimport sys\nprint(n, __name__, sys.argv[1:])")
    [(out, run, _)] = children.run("package.train", "--x", is_module=True, cwd=package.parent)
    assert run.status == "ended", out
    assert "package __main__ ['--x']" in out


def test_ranks_that_run_side_by_side_tell_each_other_objects(children, tmp_path):
    text = """
import torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
every = [None] * 8
dist.all_gather_object(every, rank)
told = [rank * 10]
dist.broadcast_object_list(told, src=4)
dist.send_object_list([f"from {rank}"], dst=4 - rank)
heard = [None]
dist.recv_object_list(heard, src=4 - rank)
print(every, told, heard)
"""
    (tmp_path / "tells.py").write_text(text)
    (first, _, _), (second, _, _) = children.run(tmp_path / "tells.py", ranks=(0, 4))
    assert "[0, 0, 0, 0, 4, 0, 0, 0] [40] ['from 4']" in first
    assert "[4, 4, 4, 4, 4, 4, 4, 4]".replace("4", "0", 1) + " [40] ['from 0']" in second


def test_a_rank_is_told_that_another_has_ended(children, tmp_path):
    text = """
import torch.distributed as dist
dist.init_process_group("nccl")
if dist.get_rank() == 0:
    heard = [None]
    dist.recv_object_list(heard, src=4)
"""
    (tmp_path / "waits.py").write_text(text)
    (out, run, _), _ = children.run(tmp_path / "waits.py", ranks=(0, 4))
    assert run.status == "refused", out
    assert run.follows == "ended" and "waits for rank 4 to say `send`, which ended" in run.message


def test_a_process_without_the_virtual_gpu_is_told_so():
    with pytest.raises(nvcoll.DryRunError, match="is not preloaded"):
        Gpu()


def test_records_that_found_no_space_are_an_error():
    gpu = object.__new__(Gpu)
    gpu._functions = {"count": lambda: 5000, "lost": lambda: 0}
    assert gpu.count() == 5000
    gpu._functions["lost"] = lambda: 1
    with pytest.raises(nvcoll.DryRunError, match="more than the 5,000 calls of CUDA"):
        gpu.count()


def test_how_a_run_ended_can_be_saved_and_loaded(tmp_path):
    Run(0, "ended").save(tmp_path / "x")
    assert Run.load(tmp_path / "x") == Run(0, "ended")


@pytest.mark.parametrize("args, steps", [((), 3), (("--ends",), 2)])
def test_a_step_in_which_torch_compiles_counts_only_if_it_is_the_last(children, args, steps):
    [(out, run, recording)] = children.run("recompiled.py", *args)
    assert (run.status, len(recording.steps)) == ("counted", steps), out


def test_torch_compile_times_no_configuration_of_a_kernel(children, tmp_path):
    text = """
import torch
from torch._inductor.runtime import benchmarking
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
benchmarking.benchmarker.benchmark_gpu = None  # a kernel that is timed raises
tune, tuned = CachingAutotuner.autotune_to_one_config, []
CachingAutotuner.autotune_to_one_config = lambda self, *args, **more: tuned.append(self) or tune(self, *args, **more)
total = torch.compile(lambda x: x.float().sum(0), options={"max_autotune_pointwise": True})
total(torch.randn(65536, 512, device="cuda"))
print("tuned", len(tuned))
"""
    (tmp_path / "tunes.py").write_text(text)
    [(out, run, _)] = children.run(tmp_path / "tunes.py")
    assert run.status == "ended" and "tuned 0" not in out, out


def test_a_name_that_torch_lacks_is_named_with_its_version():
    torch = pytest.importorskip("torch")
    from nvcoll.dryrun.inside import private

    with pytest.raises(nvcoll.DryRunError, match=f"torch {re.escape(torch.__version__)} has no `torch.cuda.nothing`"):
        private.lookup("torch.cuda", "nothing", "at all")
    with pytest.raises(nvcoll.DryRunError, match=r"has no `torch.cuda.nothing`"):
        private.wrap(torch.cuda, "nothing", lambda old: old)


def test_the_only_step_begins_with_the_script(children):
    [(out, run, recording)] = children.run("fsdp2.py", steps=1)
    assert (run.status, len(recording.steps)) == ("counted", 1), out
    assert any(op.name == "aten::mm" for op in recording.ops)
    assert recording.memory.allocated > 0


def test_a_script_without_a_process_group_is_alone(children, counted):
    [(out, run, recording)] = children.run("single.py")
    assert run.status == "counted", out
    assert recording.is_alone and not recording.groups
    assert not counted("ddp.py").is_alone


LEAKS = """
import torch
from tiny import *
device = torch.device("cuda")
model = Transformer().to(device)
optimizer = torch.optim.AdamW(model.parameters())
kept = []
for step in range(4):
    loss_of(model, batch(device)).backward()
    optimizer.step()
    optimizer.zero_grad()
    KEEPS
"""


@pytest.mark.parametrize("megabytes", ["0", "2", "2 - step % 2"])
def test_a_step_that_keeps_no_more_than_steps_before_does_not_grow(children, tmp_path, megabytes):
    keeps = f"kept = [torch.ones(({megabytes}) << 20, device='cuda')]"
    (tmp_path / "leaks.py").write_text(f"import sys; sys.path.append({str(SCRIPTS)!r})" + LEAKS.replace("KEEPS", keeps))
    [(out, run, recording)] = children.run(tmp_path / "leaks.py", steps=4)
    assert run.status == "counted" and recording.growth == {}, out


def test_a_step_that_keeps_tensors_says_how_many_bytes_and_where(children, tmp_path):
    text = LEAKS.replace(
        "    optimizer.step()", "    kept.append(torch.ones(2 << 20, device='cuda'))\n    optimizer.step()"
    )
    (tmp_path / "leaks.py").write_text(f"import sys; sys.path.append({str(SCRIPTS)!r})" + text.replace("KEEPS", "pass"))
    [(out, run, recording)] = children.run(tmp_path / "leaks.py", steps=3)
    assert run.status == "counted", out
    assert recording.growth == {"bytes": 8 << 20, "step": 3, "line": "leaks.py:10 <module>"}


EXTENSION = """
#include <dlfcn.h>
#include <pybind11/pybind11.h>

struct Dim { unsigned x = 1, y = 1, z = 1; };
static void kernel() {}

pybind11::object scan(pybind11::object x) {
    auto launch = (int (*)(const void*, Dim, Dim, void**, size_t, void*))dlsym(RTLD_DEFAULT, "cudaLaunchKernel");
    auto result = x.attr("clone")();
    for (int i = 0; i < 2; i++) launch((const void*)kernel, Dim(), Dim(), nullptr, 0, nullptr);
    return result;
}

PYBIND11_MODULE(selective_scan, module) {
    using Register = void (*)(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
    static long binary[3] = {0x466243b1, 0, 0};
    auto handle = ((void** (*)(void*))dlsym(RTLD_DEFAULT, "__cudaRegisterFatBinary"))(binary);
    auto add = (Register)dlsym(RTLD_DEFAULT, "__cudaRegisterFunction");
    add(handle, (const char*)kernel, (char*)"scan_kernel", "scan_kernel", -1, 0, 0, 0, 0, 0);
    module.def("scan", &scan);
}
"""

SCANS = """
import torch
import selective_scan

layer = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(layer.parameters())
for _ in range(3):
    x = torch.randn(1024, 1024, device="cuda")
    layer(selective_scan.scan(x)).sum().backward()
    optimizer.step()
"""


def test_functions_of_extensions_are_kernels_with_the_bytes_of_their_tensors(children, tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    (tmp_path / "scan.cpp").write_text(EXTENSION)
    (tmp_path / "scans.py").write_text(SCANS)
    include = [Path(torch.__file__).parent / "include", sysconfig.get_paths()["include"]]
    command = ["g++", "-O0", "-shared", "-fPIC", "-std=c++17", *(f"-I{each}" for each in include), "scan.cpp"]
    subprocess.run([*command, "-o", "selective_scan.so", "-ldl"], cwd=tmp_path, check=True, timeout=200)
    [(out, run, recording)] = children.run(tmp_path / "scans.py")
    assert run.status == "counted", out
    [(number, found)] = [each for each in enumerate(recording.ops) if each[1].name == "selective_scan::scan"]
    assert found.bytes == 2 * 1024 * 1024 * 4 and found.is_bound
    assert list(of_kind(recording, Kind.LAUNCH)["op"]).count(number) == 2, "also after an operator inside of it"
