"""The libraries of the virtual GPU under real torch: products, convolutions, NCCL, the profiler, the clock, solvers.

Each test runs a short script in a child that preloads the library, as a dry run does, and judges what the script
prints and what the log has. `finish` in the script prints both, and the names of functions that nobody answered.
"""

import importlib.util
import json
import textwrap
from pathlib import Path

import dryrun_forks
import pytest
from dryrun_children import LIMIT_S

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

PRELUDE = """
import ctypes, json, os, sys
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

driver = ctypes.CDLL(None)
driver.nvcoll_vgpu_log.restype = ctypes.c_void_p
driver.nvcoll_vgpu_count.restype = ctypes.c_uint64
driver.nvcoll_vgpu_name_of.restype = driver.nvcoll_vgpu_unanswered.restype = ctypes.c_char_p
RECORD = np.dtype([("kind", "u2"), ("device", "u2"), ("stream", "u4"), ("name", "u4"), ("op", "u4"), ("args", "u8", 6)])

def finish(**said):
    count = driver.nvcoll_vgpu_count()
    log = (ctypes.c_char * (64 * count)).from_address(driver.nvcoll_vgpu_log())
    rows = np.frombuffer(log, RECORD)
    records = [(int(r["kind"]), driver.nvcoll_vgpu_name_of(int(r["name"])).decode(), r["args"].tolist()) for r in rows]
    unanswered, name = [], driver.nvcoll_vgpu_unanswered(0)
    while name:
        unanswered.append(name.decode())
        name = driver.nvcoll_vgpu_unanswered(len(unanswered))
    print("FINISHED" + json.dumps({"said": said, "records": records, "unanswered": unanswered}), flush=True)
    os._exit(0)  # a thread of autograd that wants the GIL while Python ends aborts the process, on a real GPU too

def cuda(*shape, dtype=torch.float32, grad=True):
    return torch.zeros(*shape, device="cuda").to(dtype).requires_grad_(grad)
"""

LAUNCH, GEMM, COLLECTIVE, COMMUNICATOR = 1, 2, 9, 12
F32, F16, BF16, E4M3 = 0, 2, 14, 28


def run(script, *flags, **variables):
    """Runs a script to its end. Returns what it said, its records and what nobody answered."""
    status, output = dryrun_forks.run(PRELUDE + textwrap.dedent(script), LIMIT_S, *flags, **variables)
    lines = [line for line in output.splitlines() if line.startswith("FINISHED")]
    assert status == 0 and lines, output
    return json.loads(lines[0].removeprefix("FINISHED"))


def products(ended):
    """m, n, k, batch and types (of A, of C, epilogue) of each GEMM."""
    rows = [(name, args) for kind, name, args in ended["records"] if kind == GEMM]
    return [(*args[:4], args[5] & 0xFF, args[5] >> 8 & 0xFF, args[5] >> 16 & 0xFFFF) for _, args in rows]


def flops(ended):
    """FLOPs of all GEMMs."""
    return sum(2 * m * n * k * batch for m, n, k, batch, *_ in products(ended))


def test_products_of_every_type_are_logged_forward_and_backward():
    ended = run("""
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            (cuda(64, 48, dtype=dtype) @ cuda(48, 32, dtype=dtype)).sum().backward()
        finish()
    """)
    assert ended["unanswered"] == []
    assert [sorted(row[:3]) for row in products(ended)] == [[32, 48, 64]] * 9
    assert [row[4] for row in products(ended)] == [F32] * 3 + [BF16] * 3 + [F16] * 3
    assert flops(ended) == 9 * 2 * 64 * 48 * 32


def test_products_in_batches_and_with_an_epilogue_keep_their_shape():
    ended = run("""
        a, b, c = cuda(5, 16, 24, grad=False), cuda(5, 24, 40, grad=False), cuda(5, 16, 40, grad=False)
        torch.bmm(a, b), torch.baddbmm(c, a, b)
        bias, x, w = cuda(40, grad=False), cuda(16, 24, grad=False), cuda(40, 24, grad=False)
        F.linear(x, w, bias)
        torch.ops.aten._addmm_activation(bias, x, w.t(), use_gelu=True)
        e = cuda(64, 64, dtype=torch.float8_e4m3fn, grad=False)
        one = torch.ones((), device="cuda")
        torch._scaled_mm(e, e.t(), one, one, out_dtype=torch.bfloat16)
        finish()
    """)
    assert ended["unanswered"] == []
    batched, added, linear, activated, scaled = products(ended)
    assert batched[:4] == added[:4] == (40, 16, 24, 5)
    assert linear[:4] == activated[:4] == (40, 16, 24, 1)
    assert linear[6] & 4 and activated[6] & 36 == 36, "bias; bias and GELU"
    assert scaled[:6] == (64, 64, 64, 1, E4M3, BF16)


def test_a_grouped_product_runs():
    ended = run("""
        offsets = torch.tensor([64, 128, 192, 256], device="cuda", dtype=torch.int32)
        x, w = cuda(256, 64, dtype=torch.bfloat16, grad=False), cuda(4, 64, 128, dtype=torch.bfloat16, grad=False)
        y = torch._grouped_mm(x, w, offs=offsets)
        finish(shape=list(y.shape))
    """)
    assert ended["said"]["shape"] == [256, 128] and ended["unanswered"] == []


@pytest.mark.parametrize("searches", [False, True])
def test_convolutions_have_the_operations_of_the_closed_form(searches):
    ended = run(f"""
        torch.backends.cudnn.benchmark = {searches}
        x = cuda(4, 16, 20, 20).to(memory_format=torch.channels_last).detach().requires_grad_()
        net = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.Conv2d(32, 32, 5, groups=4)).cuda()
        for _ in range(2):  # the first step may search for algorithms
            first = driver.nvcoll_vgpu_count()
            net(x).sum().backward()
        finish(first=first)
    """)
    ended["records"] = ended["records"][ended["said"]["first"] :]
    first, second = 2 * 4 * 20 * 20 * 32 * 16 * 9, 2 * 4 * 16 * 16 * 32 * 8 * 25
    assert flops(ended) == 3 * (first + second), "forward, gradient of the input, gradient of the filter"
    assert ended["unanswered"] == []
    assert any("BatchNormalization" in name or "batch_norm" in name for _, name, _ in ended["records"])


def test_recurrent_layers_have_the_operations_of_their_gates():
    ended = run("""
        x = cuda(7, 3, 8)
        nn.LSTM(8, 16, num_layers=2, bidirectional=True, dropout=0.1).cuda()(x)[0].sum().backward()
        finish()
    """)
    gates = lambda inputs: 2 * 4 * 16 * 7 * 3 * (inputs + 16)  # noqa: E731
    assert flops(ended) == 3 * 2 * (gates(8) + gates(32)) and ended["unanswered"] == []
    ended = run("""
        x = cuda(7, 3, 8)
        for layer in (nn.LSTM(8, 16, proj_size=4), nn.LSTM(8, 16, bias=False), nn.GRU(8, 16), nn.RNN(8, 16)):
            layer.cuda()(x)[0].sum().backward()
        finish()
    """)
    assert ended["unanswered"] == []


def test_attention_runs_with_every_kernel_that_torch_has():
    ended = run("""
        from torch.nn.attention import SDPBackend, sdpa_kernel
        q = cuda(1, 8, 256, 64, dtype=torch.bfloat16)
        names = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
        for backend in names:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                F.scaled_dot_product_attention(q, q, q).sum().backward()
        finish()
    """)
    names = " ".join(name for kind, name, _ in ended["records"] if kind == LAUNCH)
    assert ended["unanswered"] == []
    for kernel in ("flash_fwd", "flash_bwd", "fmha_cutlassF", "cudnn_attention_forward", "cudnn_attention_backward"):
        assert kernel in names


def test_solvers_transforms_and_sparse_matrices_get_through():
    ended = run("""
        L, failed = torch.linalg, []
        for shape in ((32, 32), (4, 32, 32)):
            x = cuda(*shape, grad=False)
            for call in (
                L.svd, L.svdvals, L.qr, L.cholesky, L.eigh, L.inv, L.lu, L.det, L.pinv, L.matrix_rank, L.ldl_factor,
                lambda x: L.solve(x, x), lambda x: L.lstsq(x, x), lambda x: L.solve_triangular(x, x, upper=True),
                lambda x: L.householder_product(x, x[..., 0]), lambda x: torch.ormqr(x, x[..., 0], x),
                torch.cholesky_inverse, torch.fft.fft, lambda x: torch.fft.irfft2(torch.fft.rfft2(x)),
            ):
                try:
                    call(x)
                except Exception as error:
                    failed.append(f"{call} {shape}: {error}")
        sparse = torch.eye(16).to_sparse_csr().cuda()
        sparse @ cuda(16, 8, grad=False), sparse @ cuda(16, grad=False)
        torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x + 1; }")(cuda(3, grad=False))
        finish(failed=failed)
    """)
    assert ended["said"]["failed"] == [] and ended["unanswered"] == []


NCCL = """
    import torch.distributed as dist
    world, rank = int(os.environ["WORLD"]), 0
    group = dist.ProcessGroupNCCL(dist.HashStore(), rank, world, dist.ProcessGroupNCCL.Options())
    said = {}

    def keep(name, work, *tensors):
        work.wait()
        said[name] = [t.tolist() for t in tensors]

    for dtype in (torch.int64, torch.float32, torch.bfloat16, torch.float16, torch.uint8):
        t = torch.tensor([1, 2, 3], dtype=dtype).cuda()
        keep(f"sum {dtype}", group.allreduce([t]), t)
    t = torch.tensor([4.0]).cuda()
    keep("average", group.allreduce([t], dist.ReduceOp.AVG), t)
    t = torch.tensor([4.0]).cuda()
    keep("scaled", group.allreduce([t], dist._make_nccl_premul_sum(0.5)), t)
    t, out = torch.tensor([5, 6]).cuda(), torch.zeros(2 * world, dtype=torch.int64).cuda()
    keep("gathered", group._allgather_base(out, t), out)
    parts = [torch.zeros(2, dtype=torch.int64).cuda() for _ in range(world)]
    keep("all_gather", group.allgather([parts], [t]), *parts)
    t, out = torch.arange(2 * world).cuda(), torch.zeros(2, dtype=torch.int64).cuda()
    keep("scattered", group._reduce_scatter_base(out, t), out)
    out = torch.zeros(2 * world, dtype=torch.int64).cuda()
    keep("all_to_all", group.alltoall_base(out, t, [], []), out)
    keep("uneven", group.alltoall_base(out, t, [2] * world, [2] * world), out)
    t = torch.tensor([9]).cuda()
    keep("broadcast", group.broadcast(t, 0), t)
    keep("reduce", group.reduce(t, 0), t)
    parts = [torch.zeros(1, dtype=torch.int64).cuda() for _ in range(world)]
    keep("gather", group.gather([parts], [t]), *parts)
    keep("barrier", group.barrier())
    group._start_coalescing()
    one, two = torch.tensor([1]).cuda(), torch.tensor([2]).cuda()
    group.allreduce([one]), group.allreduce([two])
    keep("coalesced", group._end_coalescing(), one, two)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bool):
        part = torch.ones(2, device="cuda").to(dtype)
        group._allgather_base(torch.zeros(2 * world, device="cuda").to(dtype), part).wait()
    group.allreduce([torch.ones(2, device="cuda", dtype=torch.complex64)]).wait()
    if world > 1:
        group.send([t], 1, 0).wait()
        group.recv([t], 1, 0).wait()
    finish(**said)
"""


@pytest.mark.parametrize("world", [1, 2, 8])
def test_the_process_group_of_nccl_acts_as_if_all_ranks_held_the_same(world):
    ended = run(NCCL, WORLD=str(world))
    said = ended["said"]
    for dtype in ("int64", "float32", "bfloat16", "float16", "uint8"):
        assert said[f"sum torch.{dtype}"] == [[world, 2 * world, 3 * world]]
    assert said["average"] == [[4]] and said["scaled"] == [[2 * world]]
    assert said["gathered"] == [[5, 6] * world] and said["all_gather"] == [[5, 6]] * world
    assert said["scattered"] == [[0, world]]
    assert said["all_to_all"] == said["uneven"] == [[0, 1] * world]
    assert said["broadcast"] == [[9]] and said["reduce"] == [[9 * world]]
    assert said["gather"][0] == [9 * world], "what others would send to the root alone is not known"
    assert said["coalesced"] == [[world], [2 * world]]
    made = [args for kind, _, args in ended["records"] if kind == COMMUNICATOR]
    assert made[0][1:3] == [world, 0]
    logged = {name for kind, name, _ in ended["records"] if kind == COLLECTIVE}
    assert {"all_reduce", "all_gather", "broadcast", "reduce"} <= logged and ended["unanswered"] == []
    assert world == 1 or {"reduce_scatter", "send", "recv"} <= logged, "older torch copies where one rank scatters"


PROFILED = """
    import time
    from torch.profiler import ProfilerActivity, profile
    scale = int(os.environ.get("TIMES", 0))
    a = cuda(256, 128, dtype=torch.bfloat16, grad=False)
    (a.t() @ a).relu_(), torch.zeros(1000, device="cuda")  # allocates what the profiled part uses
    if os.environ.get("TIMES"):
        first = driver.nvcoll_vgpu_count()
        start, end = (np.array(times, "u8") for times in ((0, 50_000, 90_000), (40_000, 80_000, 95_000)))
        start, end = start * scale, end * scale
        driver.nvcoll_vgpu_set_times(
            *(ctypes.c_void_p(times.ctypes.data) for times in (start, end)),
            *(ctypes.c_uint64(number) for number in (first, 3, 100_000 * scale)))
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        started = time.perf_counter()
        b = a.t() @ a
        b.relu_()
        torch.zeros(1000, device="cuda")
        torch.cuda.synchronize()
        waited = time.perf_counter() - started
    found.export_chrome_trace(os.environ["TRACE"])
    events = json.load(open(os.environ["TRACE"]))["traceEvents"]
    kinds = ("kernel", "gpu_memset", "cuda_runtime", "cpu_op")
    finish(waited=waited, events=[e for e in events if e.get("cat") in kinds])
"""


@pytest.mark.parametrize("told", [False, True])
def test_the_profiler_finds_kernels_with_names_operators_and_times(tmp_path, told):
    environment = {"TRACE": str(tmp_path / "trace.json")} | ({"TIMES": "10000"} if told else {})
    ended = run(PROFILED, **environment)
    events = ended["said"]["events"]
    kernels = sorted((e for e in events if e["cat"] in ("kernel", "gpu_memset")), key=lambda e: e["ts"])
    operators = {e["args"]["External id"]: e["name"] for e in events if e["cat"] == "cpu_op"}
    calls = {e["args"]["correlation"]: e for e in events if e["cat"] == "cuda_runtime"}
    assert kernels[0]["name"] == "gemm_bf16_nt_128x128x256"
    assert "clamp_min" in kernels[1]["name"] or "elementwise" in kernels[1]["name"]
    assert [operators[e["args"]["External id"]] for e in kernels][:2] == ["aten::mm", "aten::clamp_min_"]
    assert all(calls[e["args"]["correlation"]]["ts"] <= e["ts"] for e in kernels)
    if told:
        assert [e["dur"] / 1e4 for e in kernels] == pytest.approx([40, 30, 5], rel=0.02)
        assert [(e["ts"] - kernels[0]["ts"]) / 1e4 for e in kernels] == pytest.approx([0, 50, 90], rel=0.02)
        assert ended["said"]["waited"] > 0.94, "the host waits for what the profiler shows"
    assert ended["unanswered"] == []


def test_events_and_the_clock_tell_the_predicted_times():
    ended = run(
        """
        import time, threading
        x = cuda(8, grad=False)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

        def told(period_ns):
            start, end = (np.array(times, "u8") for times in ((0, 0, 7_000_000), (0, 7_000_000, 7_000_000)))
            driver.nvcoll_vgpu_set_times(
                *(ctypes.c_void_p(times.ctypes.data) for times in (start, end)),
                *(ctypes.c_uint64(number) for number in (driver.nvcoll_vgpu_count(), 3, period_ns)))

        told(5_000_000_000)
        events[0].record(), x.add_(1), events[1].record(), torch.cuda.synchronize()
        elapsed = events[0].elapsed_time(events[1])
        before = [time.perf_counter(), time.time(), time.monotonic()]
        told(3_000_000_000)
        between = [time.perf_counter(), time.time(), time.monotonic()]
        told(1)
        after = [time.perf_counter(), time.time(), time.monotonic()]
        started = time.perf_counter()
        time.sleep(0.2)
        threading.Event().wait(0.2)
        real = []
        thread = threading.Thread(target=lambda: real.append(time.perf_counter()))
        thread.start(), thread.join()
        finish(
            elapsed=elapsed,
            first=[b - a for a, b in zip(before, between)],
            second=[b - a for a, b in zip(between, after)],
            ahead=time.perf_counter() - real[0],
        )
        """,
        NVCOLL_VGPU_CLOCK="1",
    )
    said = ended["said"]
    assert said["elapsed"] == pytest.approx(7)
    assert all(4 < seconds <= 5.1 for seconds in said["first"])
    assert all(2.9 < seconds <= 3.1 for seconds in said["second"])
    assert said["ahead"] > 6, "other threads see the real clock"


def test_a_monitor_sees_idle_gpus():
    ended = run("""
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        count, handle, rates = ctypes.c_uint(), ctypes.c_void_p(), (ctypes.c_uint * 2)(7, 7)
        name, memory = ctypes.create_string_buffer(96), (ctypes.c_uint64 * 3)()
        x = cuda(1 << 20, grad=False)
        done = [nvml.nvmlInit_v2(), nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))]
        done += [nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))]
        done += [nvml.nvmlDeviceGetUtilizationRates(handle, rates), nvml.nvmlDeviceGetName(handle, name, 96)]
        near = (ctypes.c_ulong * 4)()
        done += [nvml.nvmlDeviceGetMemoryInfo(handle, memory), nvml.nvmlDeviceGetCpuAffinity(handle, 4, near)]
        near = sum(bin(word).count("1") for word in near)
        finish(done=done, count=count.value, rates=list(rates), name=name.value.decode(), memory=list(memory),
               seen=list(torch.cuda.mem_get_info()), summary=len(torch.cuda.memory_summary()), near=near)
    """)
    said = ended["said"]
    assert said["done"] == [0] * 7 and said["count"] == 8 and said["rates"] == [0, 0] and said["near"] > 0
    assert said["name"] == "NVIDIA H100 80GB HBM3"
    assert said["memory"][:2] == said["seen"][::-1] and said["memory"][2] == said["memory"][0] - said["memory"][1]
    assert ended["unanswered"] == []


def test_torch_runs_without_any_file_of_nvidia(tmp_path):
    packages, site = Path(importlib.util.find_spec("torch").origin).parent.parent, tmp_path / "site"
    (site / "torch" / "lib").mkdir(parents=True)  # no links, or the linker would find what lies beside the real ones
    for folder in ("", "torch", "torch/lib"):
        for entry in (packages / folder).iterdir():
            if entry.name != "nvidia" and not (site / folder / entry.name).exists():
                (site / folder / entry.name).symlink_to(entry)
    ended = run(
        """
        (cuda(64, 48) @ cuda(48, 32)).sum().backward()
        nn.Conv2d(4, 4, 3).cuda()(cuda(1, 4, 8, 8)).sum().backward()
        mapped = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
        finish(mapped=sorted(path for path in mapped if "/nvidia/" in path), torch=torch.__file__)
        """,
        "-S",
        PYTHONPATH=str(site),
    )
    assert ended["said"]["mapped"] == [] and ended["said"]["torch"].startswith(str(site))
    assert flops(ended) > 0 and ended["unanswered"] == []


def test_every_function_that_the_installed_torch_wants_is_in_the_table():
    spec = importlib.util.find_spec("torch")
    import vgpu_symbols

    table, answered = vgpu_symbols.read_table(), vgpu_symbols.by_hand()
    text = vgpu_symbols.generated_text(vgpu_symbols.generic(table, answered))
    assert vgpu_symbols.GENERATED.read_text() == text, "run python tools/generate/vgpu_symbols.py --write"
    for build, symbols in vgpu_symbols.wanted(Path(spec.origin).parent.parent).items():
        assert symbols <= table.keys(), f"{build}: run python tools/generate/vgpu_symbols.py --write"
