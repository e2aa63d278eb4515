"""torch.cuda, unmodified, on the virtual GPU: each test is a script in a child that preloads the library."""

import ast
import ctypes
import importlib.util
import subprocess
import sys
import textwrap

import dryrun_forks
import pytest
from dryrun_children import SCRIPTS

from nvcoll._nvcoll import gpus
from nvcoll.dryrun.parent.failures import CannotDryRun
from nvcoll.dryrun.parent.launch import virtual_gpu
from nvcoll.dryrun.parent.library import FILE, libraries, library, wheel_names
from nvcoll.dryrun.wire.virtual_gpu import CAPTURED, Kind

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

LIMIT_S = 100
CONTEXT_BYTES = 132 * 4 << 20
NODE_BYTES = 12 << 10

# Scripts with a backward pass end by `os._exit`: a thread of autograd that runs when Python 3.11 ends would abort.
PREPARED = """
import ctypes
import os
import struct
import torch

library = ctypes.CDLL(None)
library.nvcoll_vgpu_log.restype = ctypes.c_void_p
library.nvcoll_vgpu_count.restype = library.nvcoll_vgpu_used.restype = ctypes.c_uint64
library.nvcoll_vgpu_name_of.restype = library.nvcoll_vgpu_unanswered.restype = ctypes.c_char_p


def count():
    return library.nvcoll_vgpu_count()

def records(first=0):
    # kind, device, stream, name, operator, six arguments
    text = ctypes.string_at(library.nvcoll_vgpu_log() + 64 * first, 64 * (count() - first))
    return list(struct.iter_unpack("<HHIII6Q", text))

def kinds(first=0):
    return [record[0] for record in records(first)]

def name(record):
    return library.nvcoll_vgpu_name_of(record[3]).decode()
"""
PREPARED += "".join(f"{kind.name} = {int(kind)}\n" for kind in Kind) + f"CAPTURED = {CAPTURED}\n"


def run(script, *, gpu=dryrun_forks.GPU, status=0, **variables):
    """Runs a script on the virtual GPU; returns its output."""
    found, output = dryrun_forks.run(PREPARED + textwrap.dedent(script), LIMIT_S, **{"NVCOLL_VGPU": gpu} | variables)
    assert found == status, output
    return output


def test_devices_are_those_of_the_environment():
    run(
        """
        assert torch.cuda.is_available() and torch.cuda.device_count() == 3
        properties = torch.cuda.get_device_properties(2)
        assert properties.name == "NVIDIA B200", properties
        assert (properties.major, properties.minor, properties.multi_processor_count) == (10, 0, 148), properties
        assert properties.total_memory == 190 << 30 and properties.shared_memory_per_block_optin == 227 << 10
        assert properties.L2_cache_size == 126 << 20 and properties.max_threads_per_multi_processor == 2048
        assert len({str(torch.cuda.get_device_properties(at).uuid) for at in range(3)}) == 3
        torch.cuda.set_device(2)
        assert torch.empty(1, device="cuda").device.index == 2
        assert torch.cuda.can_device_access_peer(0, 1)
        """,
        gpu=f"name=NVIDIA B200;cc=100;sms=148;memory={190 << 30};devices=3",
    )


@pytest.mark.parametrize(
    "gpu", [gpu for gpu in gpus() if gpu.sm and gpu.sms and gpu.memory_gb], ids=lambda gpu: gpu.name
)
def test_each_gpu_of_the_registry_runs_kernels_as_a_real_one_of_its_capability(gpu):
    run(
        f"""
        properties = torch.cuda.get_device_properties(0)
        assert (10 * properties.major + properties.minor, properties.multi_processor_count) == ({gpu.sm}, {gpu.sms})
        assert properties.total_memory == {int(gpu.usable_gib * 2**30)}
        """
        """
        codes = [int(code[3:].rstrip("af")) for code in torch.cuda.get_arch_list() if code.startswith("sm_")]
        capability = 10 * properties.major + properties.minor
        runs = any(code // 10 == capability // 10 and code <= capability for code in codes)
        try:
            x, r = torch.randint(0, 1000, (4, 512), device="cuda"), torch.rand(4096, device="cuda")
        except RuntimeError as error:
            assert not runs and "no kernel image is available" in str(error), error
            os._exit(0)
        assert runs, codes
        words = torch.nn.Embedding(1000, 64).cuda()
        y = torch.nn.LayerNorm(64).cuda()(words(x)).flatten(0, 1)
        torch.nn.functional.cross_entropy(y, x.flatten() % 64).backward()
        torch.sort(r), torch.unique(r), torch.nonzero(r), r.cumsum(0), r.topk(8), r[r > 2]
        torch.multinomial(r, 16), torch.randperm(100_000, device="cuda"), torch.bincount(x.view(-1))
        torch.cuda.synchronize()
        os._exit(0)
        """,
        gpu=virtual_gpu(gpu, 1, 13),
    )


def test_no_devices_are_no_cuda():
    run("assert not torch.cuda.is_available() and torch.cuda.device_count() == 0", gpu="devices=0")


@pytest.mark.parametrize("text", ["cc=9", "sms=many", "colour=green", "memory"])
def test_a_wrong_description_of_a_gpu_is_named(text):
    assert "NVCOLL_VGPU" in run("torch.cuda.init()", gpu=text, status=2)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(("gpu", "stages"), [("cc=90", 3), ("cc=80", 3), ("cc=89", 2)])
def test_kernels_of_triton_have_the_shared_memory_that_a_gpu_has_and_no_more(gpu, stages, tmp_path):
    file = SCRIPTS / "shared_memory.py"
    out = run(
        f"import runpy\nrunpy.run_path({str(file)!r})\nos._exit(0)",
        gpu=gpu,
        TRITON_LIBCUDA_PATH=str(libraries()),
        TRITON_CACHE_DIR=str(tmp_path),
    )
    said = ast.literal_eval(out.partition("SAID ")[2].splitlines()[0])
    assert all(isinstance(kib, int) for kib in said[:stages]) and max(said[:stages]) > 48
    assert all("out of resource: shared memory" in text for text in said[stages:]), said


def test_memory_that_is_new_reads_as_zero_and_what_was_copied_is_kept():
    run(
        """
        assert torch.empty(1000, device="cuda").cpu().tolist() == [0.0] * 1000
        small = torch.arange(1000, device="cpu").cuda()
        assert small.cpu().tolist() == list(range(1000))
        assert small[500:502].cpu().tolist() == [500, 501]
        assert small.clone().cpu().tolist() == list(range(1000))
        assert torch.tensor([[1, 2], [3, 4]]).cuda().sum(0).shape == (2,)
        large = torch.ones(2 << 20).cuda()  # 8 MiB: written down, not kept
        assert not large.cpu().any()
        copies = [(record[5], record[6]) for record in records() if record[0] == COPY]
        assert (8000, 2) in copies and (8000, 1) in copies and (8000, 3) in copies and (8 << 20, 2) in copies, copies
        """
    )


def test_fills_and_kernels_are_launches_with_their_names():
    run(
        """
        x = torch.empty(1 << 20, device="cuda")
        first = count()
        library.nvcoll_vgpu_set_op(7)
        x.fill_(3)
        x.zero_()
        y = x + 1
        launches = [record for record in records(first) if record[0] == LAUNCH]
        assert "FillFunctor" in name(launches[0]) and "CUDAFunctorOnSelf_add" in name(launches[-1])
        assert all(record[4] == 7 for record in records(first)), "each has the operator"
        grid, block, shared = launches[-1][5:8]
        assert grid * block >= (1 << 20) // 16 and block in (64, 128, 256, 512), (grid, block, shared)
        """
    )


def test_an_event_is_complete_after_the_host_waited_and_not_before():
    run(
        """
        stream = torch.cuda.Stream(priority=-1)
        start, end, later = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        assert start.query(), "never recorded"
        first = count()
        with torch.cuda.stream(stream):
            start.record()
            x = torch.zeros(1000, device="cuda")
            end.record()
        assert not start.query() and not end.query() and not stream.query()
        torch.cuda.current_stream().wait_stream(stream)
        x.record_stream(stream)
        end.synchronize()
        assert start.query() and end.query() and start.elapsed_time(end) >= 0
        later.record()
        assert not later.query(), "issued after what the host waited for"
        torch.cuda.synchronize()
        assert later.query() and stream.query()
        told = kinds(first)
        assert told.count(EVENT_RECORD) == 4 and told.count(STREAM_WAIT) == 1 and told.count(HOST_WAIT) == 2, told
        side_kinds = (EVENT_RECORD, LAUNCH, FILL)
        records_of_side = [record for record in records(first) if record[0] in side_kinds and record[2]]
        assert len({record[2] for record in records_of_side}) == 1, "one side stream"
        """
    )


def test_an_event_is_complete_for_a_host_that_only_polls():
    run(
        """
        x = torch.zeros(1000, device="cuda")
        event = torch.cuda.Event()
        event.record()
        polls = 1
        while not event.query():
            polls += 1
        assert 1000 < polls < 10000, polls
        assert event.query()
        import time
        x.zero_()
        event.record()
        polls = 1
        while not event.query():
            time.sleep(0.001)
            polls += 1
        assert 5 < polls < 50, polls
        """
    )


def test_the_allocator_does_not_use_a_block_again_before_the_host_waited():
    run(
        """
        side = torch.cuda.Stream()
        x = torch.zeros(1 << 20, device="cuda")
        address = x.data_ptr()
        x.record_stream(side)
        with torch.cuda.stream(side):
            x.add_(1)
        del x
        assert torch.empty(1 << 20, device="cuda").data_ptr() != address
        torch.cuda.synchronize()
        assert address in [torch.empty(1 << 20, device="cuda").data_ptr() for _ in range(2)]
        """
    )


def test_memory_is_counted_and_runs_out_where_a_gpu_runs_out():
    run(
        f"""
        free, total = torch.cuda.mem_get_info()
        assert total == 85028110336 and free == total - {CONTEXT_BYTES}
        x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_allocated() == torch.cuda.memory_reserved() == 1 << 30
        assert library.nvcoll_vgpu_used(0) == 1 << 30 and torch.cuda.mem_get_info()[0] == free - (1 << 30)
        try:
            torch.empty(free, dtype=torch.uint8, device="cuda")
            raise SystemExit("there was memory")
        except torch.OutOfMemoryError as error:
            assert "1024.00 MiB is allocated by PyTorch" in str(error) or "1.00 GiB is allocated" in str(error), error
        rest = torch.empty(free - (1 << 30) & -(2 << 20), dtype=torch.uint8, device="cuda")
        del x, rest
        torch.cuda.empty_cache()
        assert library.nvcoll_vgpu_used(0) == 0 and torch.cuda.mem_get_info()[0] == free
        sums = {{MALLOC: 0, FREE: 0}}
        for record in records():
            if record[0] in sums:
                sums[record[0]] += record[5]
        assert sums[MALLOC] == sums[FREE] >= free - (2 << 20), sums
        """
    )


def test_a_long_run_uses_addresses_and_pages_again():
    run(
        """
        import resource
        first = torch.empty(60 << 30, dtype=torch.uint8, device="cuda")
        first[:1000000].copy_(torch.ones(1000000, dtype=torch.uint8))
        address = first.data_ptr()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(200):
            del first
            torch.cuda.empty_cache()
            first = torch.empty(60 << 30, dtype=torch.uint8, device="cuda")
            assert first.data_ptr() == address and not first[:1000000].cpu().any()
            first[:1000000].copy_(torch.ones(1000000, dtype=torch.uint8))
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown_kib < 50 << 10, grown_kib
        """
    )


def test_a_cuda_graph_is_recorded_once_and_runs_at_each_replay():
    run(
        """
        x = torch.zeros(64, 64, device="cuda")
        side = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        first = count()
        with torch.cuda.graph(graph):
            assert torch.cuda.is_current_stream_capturing()
            y = x + 1
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                z = x + 2
            torch.cuda.current_stream().wait_stream(side)
        assert not torch.cuda.is_current_stream_capturing()
        captured = [record for record in records(first) if record[0] == LAUNCH | CAPTURED]
        assert len(captured) == 2 and len({record[2] for record in captured}) == 2, "two streams"
        for _ in range(3):
            before = count()
            graph.replay()
            ran = [record for record in records(before) if record[0] == LAUNCH]
            assert [record[3] for record in ran[-2:]] == [record[3] for record in captured], "the same kernels"
            assert ran[-2][2] == 0, "what was captured on the first stream runs on the stream of the replay"
            at = before + kinds(before).index(GRAPH_LAUNCH)
            copies = records(at + 1)
            assert records(at)[0][5] == len(copies) and copies[-1] == records()[-1], "the launch counts its copies"
        """
    )


def test_a_cuda_graph_takes_memory_for_each_of_its_nodes():
    run(
        f"""
        x, graph = torch.zeros(64, 64, device="cuda"), torch.cuda.CUDAGraph()
        taken = lambda: library.nvcoll_vgpu_used(0) - torch.cuda.memory_reserved()
        before = taken()
        with torch.cuda.graph(graph):
            y = x + 1 + 2 + 3
        assert taken() == before + 3 * {NODE_BYTES}
        graph.reset()
        assert taken() == before
        """
    )


def test_a_capture_refuses_what_waits():
    run(
        """
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                torch.zeros(1, device="cuda").item()
            raise SystemExit("the host waited in a capture")
        except RuntimeError as error:
            assert "capturing" in str(error), error
        assert torch.ones(1).cuda().item() == 1
        """
    )


def test_the_memory_snapshot_has_the_segments():
    run(
        """
        torch.cuda.memory._record_memory_history()
        x = torch.empty(1 << 20, device="cuda")
        snapshot = torch.cuda.memory._snapshot()
        [block] = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["size"] == 4 << 20]
        assert block["state"] == "active_allocated" and block["frames"], block
        """
    )


def test_the_state_of_random_numbers_is_kept():
    run(
        """
        state = torch.cuda.get_rng_state()
        torch.rand(1000, device="cuda")
        assert not torch.equal(state, torch.cuda.get_rng_state())
        torch.cuda.set_rng_state(state)
        assert torch.equal(state, torch.cuda.get_rng_state())
        torch.cuda.manual_seed(3)
        assert torch.cuda.initial_seed() == 3
        """
    )


def test_pinned_memory_is_known():
    run(
        """
        x = torch.arange(10)
        assert not x.is_pinned()
        pinned = x.pin_memory()
        assert pinned.is_pinned() and pinned[3:].is_pinned() and torch.equal(pinned, x)
        assert torch.equal(pinned.cuda(non_blocking=True).cpu(), x)
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, pin_memory=True, num_workers=1)
        [batch] = next(iter(loader))
        assert batch.is_pinned() and batch.cuda(non_blocking=True).cpu().tolist() == [0, 1, 2, 3]
        """
    )


def test_expandable_segments_grow_and_shrink():
    run(
        """
        x = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        assert library.nvcoll_vgpu_used(0) == torch.cuda.memory_reserved() == 100 << 20
        y = torch.empty(21 << 20, dtype=torch.uint8, device="cuda")
        assert y.data_ptr() == x.data_ptr() + (100 << 20), "the same segment"
        y.copy_(torch.ones(21 << 20, dtype=torch.uint8))
        part = torch.ones(4096, dtype=torch.uint8)
        y[: 4096].copy_(part)
        assert torch.equal(y[: 4096].cpu(), part)
        del x, y
        torch.cuda.empty_cache()
        assert library.nvcoll_vgpu_used(0) == torch.cuda.memory_reserved() == 0
        free = torch.cuda.mem_get_info()[0]
        try:
            torch.empty(free + (2 << 20), dtype=torch.uint8, device="cuda")
            raise SystemExit("there was memory")
        except torch.OutOfMemoryError:
            pass
        assert library.nvcoll_vgpu_used(0) <= 40 << 20, "what was mapped before it failed is given back or cached"
        """,
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
    )


def test_the_asynchronous_allocator_of_cuda_works():
    run(
        """
        x = torch.empty(1 << 20, device="cuda")
        assert library.nvcoll_vgpu_used(0) >= 4 << 20
        del x
        torch.cuda.empty_cache()
        assert library.nvcoll_vgpu_used(0) == 0
        """,
        PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync",
    )


def test_symmetric_memory_is_allocated():
    run(
        """
        import torch.distributed._symmetric_memory as symmetric
        x = symmetric.empty(1024, device="cuda")
        assert x.shape == (1024,) and x.is_cuda and library.nvcoll_vgpu_used(0) >= 2 << 20
        """
    )


def test_threads_work_at_once():
    run(
        """
        import threading
        failures = []
        def work(seed):
            try:
                stream = torch.cuda.Stream()
                with torch.cuda.stream(stream):
                    for at in range(200):
                        x = torch.full((100,), at).cuda()
                        event = torch.cuda.Event()
                        event.record()
                        assert x.cpu().tolist() == [at] * 100
                        assert event.query()
            except BaseException as error:
                failures.append(error)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not failures, failures
        told = kinds()
        assert told.count(EVENT_RECORD) == 1600 and told.count(STREAM_MADE) >= 8
        """
    )


def test_two_runs_write_the_same_log():
    script = """
    import hashlib
    side = torch.cuda.Stream()
    linear = torch.nn.Linear(64, 64, device="cuda")
    for _ in range(3):
        with torch.cuda.stream(side):
            loss = linear(torch.ones(8, 64).cuda()).sum()
        torch.cuda.current_stream().wait_stream(side)
        loss.backward()
    text = ctypes.string_at(library.nvcoll_vgpu_log(), 64 * count())
    print(count(), hashlib.sha256(text).hexdigest(), flush=True)
    os._exit(0)
    """
    assert run(script) == run(script)


def test_a_first_training_step_uses_nothing_that_is_not_answered():
    out = run(
        """
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        model(torch.ones(8, 64).cuda()).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(library.nvcoll_vgpu_unanswered(0), flush=True)
        os._exit(0)
        """
    )
    assert out.splitlines()[-1] == "None", out


def test_the_library_is_named_as_the_driver_and_loads_once():
    assert library() == FILE
    run(
        """
        ctypes.CDLL("libcuda.so.1").cuInit(0)
        ctypes.CDLL("libnvidia-ml.so.1")
        files = {line.split()[-1] for line in open("/proc/self/maps") if "nvcoll_vgpu" in line}
        assert len(files) == 1, files
        """
    )
    names = {path.name for path in libraries().iterdir()}
    assert {"libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.13", "libcudnn_graph.so.9"} <= names


def test_nothing_of_nvidia_is_loaded_if_the_library_has_all_names():
    run(
        """
        torch.nn.Linear(8, 8, device="cuda")(torch.ones(1, 8, device="cuda"))
        torch.nn.Conv2d(3, 3, 3, device="cuda")(torch.ones(1, 3, 8, 8, device="cuda"))
        files = {line.split()[-1] for line in open("/proc/self/maps")}
        assert not [file for file in files if "/nvidia/" in file], files
        """,
        LD_PRELOAD=":".join([str(library()), *wheel_names(libraries())]),
    )


def test_a_wheel_without_the_library_says_so(monkeypatch):
    monkeypatch.setattr("nvcoll.dryrun.parent.library.FILE", FILE.with_name("not-there.so"))
    for asked in (library, libraries):
        with pytest.raises(CannotDryRun, match="its wheel for Linux on x86-64"):
            asked()


def test_nvcoll_itself_does_not_load_the_library():
    loaded = "import nvcoll, nvcoll.dryrun.parent.library; print(open('/proc/self/maps').read())"
    out = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert "nvcoll_vgpu" not in out.stdout
    assert not hasattr(ctypes.CDLL(None), "nvcoll_vgpu_log")
