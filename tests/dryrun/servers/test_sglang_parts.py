"""SGLang's parts in one process: a package that has its names, a scheduler and an engine, runs a small model."""

import pytest
from dryrun_children import PATIENT, children, of_kind

from nvcoll.dryrun.wire.served import KvCache, Served
from nvcoll.dryrun.wire.virtual_gpu import Kind

__all__ = ["children"]

pytestmark = PATIENT

NETWORK = """
import zmq


def get_zmq_socket(context, kind, endpoint, bind):
    raise AssertionError("a socket")
"""

ARGUMENTS = """
class ServerArgs:
    model_path, tokenizer_path, load_format, skip_tokenizer_init = "some/model", None, "auto", True
    tp_size = pp_size = dp_size = ep_size = 1
    speculative_algorithm = None
    scheduler_input_ipc_name, tokenizer_ipc_name = "ipc://scheduler", "ipc://tokenizer"

    def __init__(self, **given):
        vars(self).update(given)

    def resolve_once(self):
        print("resolved", self.load_format)
"""

CONTEXTS = """
from contextlib import contextmanager
from types import SimpleNamespace

role = "tokenizer"
SpawnRanks = SimpleNamespace


def create_context(server_args, role, ranks):
    return role, ranks.world_rank


@contextmanager
def use_context(context):
    global role
    before, role = role, context
    yield
    role = before
"""

STATE = """
from types import SimpleNamespace


class GroupCoordinator:
    def __init__(self):
        pass


def get_tp_group():
    return SimpleNamespace(ranks=[0])
"""

LOADER = """
def load_jit(*names, **options):
    raise AssertionError("nvcc")
"""

SCHEDULER = """
from types import SimpleNamespace
import torch
import zmq
from sglang.kernels.jit.utils.compile.loader import load_jit
from sglang.srt import distributed, runtime_context
from sglang.srt.utils.network import get_zmq_socket

MODES = [SimpleNamespace(is_idle=lambda: False, is_decode=lambda decodes=decodes: decodes) for decodes in (False, True)]


class Scheduler:
    def __init__(self, server_args, port_args):
        assert runtime_context.role == ("scheduler", 0), "its own context"
        self.model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(3))).cuda().half()
        self.tp_worker = SimpleNamespace(model_runner=SimpleNamespace(model=self.model))
        self.model[0].sliding_window_size, self.model[2].sliding_window_size = 127, -1
        self.model[0].qk_head_dim = self.model[2].qk_head_dim = 64
        self.keys = torch.zeros(1000, 256, device="cuda", dtype=torch.float16)
        self.store = load_jit("kvcache", 256).store_cache
        store = load_jit("scaled", 256).store_cache

        @torch.library.custom_op("sglang::store", mutates_args=["keys"])
        def scaled(x: torch.Tensor, keys: torch.Tensor, at: torch.Tensor, scales: torch.Tensor) -> None:
            store(x, keys, at)

        pool = SimpleNamespace(get_kv_size_bytes=lambda: (1 << 29, 1 << 29), dtype=torch.float16)
        self.token_to_kv_pool_allocator = SimpleNamespace(get_kvcache=lambda: pool)
        self.req_to_token_pool = SimpleNamespace(req_to_token=torch.zeros(64, 4096))
        self.model_config, self.max_total_num_tokens = SimpleNamespace(context_len=4096), 999
        self.input = get_zmq_socket(zmq.Context(), 0, port_args.scheduler_input_ipc_name, False)
        self.output = get_zmq_socket(zmq.Context(), 1, port_args.tokenizer_ipc_name, False)

    def get_init_info(self):
        return {"max_req_input_len": 4096}

    def run_event_loop(self):
        assert runtime_context.role == ("scheduler", 0)
        requests, self.last_batch = [], None
        while True:
            new = []
            try:
                while True:
                    new.append(self.input.recv_pyobj(flags=1))
            except zmq.Again:
                requests += new
            if not requests:
                self.on_idle()
            lengths = [request["tokens"] + request["made"] for request in requests]
            extends = bool(new)
            self.last_batch = SimpleNamespace(
                forward_mode=MODES[not extends], seq_lens_cpu=torch.tensor(lengths), extend_lens=lengths
            )
            self.run_batch(self.last_batch)
            for request in requests:
                request["made"] += 1
            for done in [request for request in requests if request["made"] == request["most"]]:
                self.output.send_pyobj(done)
                requests.remove(done)

    @torch.inference_mode()
    def run_batch(self, batch):
        count = len(batch.seq_lens_cpu) if batch.forward_mode.is_decode() else sum(batch.extend_lens)
        x = self.model(torch.randn(count, 256, device="cuda", dtype=torch.float16))
        self.store(x, self.keys, torch.arange(count, device="cuda"))
        torch.ops.sglang.store(x, self.keys, torch.arange(count, device="cuda"), torch.ones(8, device="cuda"))

    def on_idle(self):
        assert self.last_batch is not None
"""

ENGINE = """
import asyncio
from types import SimpleNamespace
from zmq.asyncio import Context
from sglang.srt.utils.network import get_zmq_socket
import sglang.srt.managers.scheduler

SchedulerInitResult = SimpleNamespace


class Engine:
    def __init__(self, server_args):
        server_args.resolve_once()
        self._launch_scheduler_processes(server_args, server_args, None)
        self._launch_detokenizer_subprocesses(server_args=server_args, port_args=server_args)
        self.send = get_zmq_socket(Context(), 1, server_args.scheduler_input_ipc_name, True)
        self.receive = get_zmq_socket(Context(), 0, server_args.tokenizer_ipc_name, True)

    def _launch_scheduler_processes(self, *_args):
        raise AssertionError("processes")

    _launch_detokenizer_subprocesses = _launch_scheduler_processes

    def generate(self, input_ids, sampling_params):
        async def generated():
            for prompt in input_ids:
                most = sampling_params["max_new_tokens"]
                await self.send.send_pyobj({"tokens": len(prompt), "made": 0, "most": most}, protocol=5)
            return [(await self.receive.recv_pyobj(flags=0))["made"] for _ in input_ids]

        return asyncio.run(generated())
"""

SERVER = """
from sglang.srt.entrypoints.engine import Engine


def launch_server(server_args):
    raise AssertionError("waits for requests")
"""

FILES = {
    **{"zmq/__init__": "class Again(Exception): ...\nclass Context: ...\n", "zmq/asyncio": "class Context: ...\n"},
    **{
        "sglang/srt/utils/network": NETWORK,
        "sglang/srt/server_args": ARGUMENTS,
        "sglang/srt/managers/scheduler": SCHEDULER,
    },
    **{"sglang/srt/runtime_context": CONTEXTS, "sglang/srt/distributed/parallel_state": STATE},
    **{"sglang/kernels/jit/utils/compile/loader": LOADER, "sglang/srt/entrypoints/engine": ENGINE},
    **{
        "sglang/srt/entrypoints/http_server": SERVER,
        "sglang-0.9.9.dist-info/METADATA": "Name: sglang\nVersion: 0.9.9\n",
    },
}

WAITS = """
from sglang.srt.entrypoints.http_server import launch_server
from sglang.srt.server_args import ServerArgs

launch_server(ServerArgs(ARGUMENTS))
print("the script went on")
"""

ASKS = """
from sglang.srt.entrypoints.engine import Engine
from sglang.srt.server_args import ServerArgs

engine = Engine(ServerArgs())
for most in (1, 2):
    print("made", engine.generate([[1] * 5, [2] * 7], {"max_new_tokens": most}))
"""


@pytest.fixture
def served(children, tmp_path):
    """Returns a function: output, `Run` and recording of a script that serves."""
    for name, text in FILES.items():
        file = tmp_path / (name if "dist-info" in name else f"{name}.py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def made(text, arguments=""):
        (tmp_path / "serve.py").write_text(text.replace("ARGUMENTS", arguments))
        [found] = children.run(tmp_path / "serve.py", world_size=1, steps=3, serves=[2, 100])
        return found

    return made


def test_a_server_that_waits_gets_requests_in_one_batch(served):
    out, run, recording = served(WAITS)
    assert run.status == "counted" and "went on" not in out and "resolved dummy" in out, out
    cache = KvCache(999, 1 << 30, 4096, 64, 2)
    assert recording.served == Served("SGLang 0.9.9", (1, 1), (102, 102), cache, (0,), windows=(128, 0))
    [prefill] = recording.also
    assert prefill.served == Served("SGLang 0.9.9", (100, 100), (0, 0), cache, (0,), windows=(128, 0))
    for one, tokens in ((recording, 2), (prefill, 200)):
        assert [op.inputs[0][0] for op in one.ops if op.name == "aten::linear"] == [(tokens, 256)] * 3


def test_kernels_that_nvcc_would_compile_count_the_rows_that_they_reach(served):
    _, _, recording = served(WAITS)
    [(number, stored)] = [each for each in enumerate(recording.ops) if each[1].name == "sglang::kvcache::store_cache"]
    assert stored.bytes == 2 * 2 * 256 * 2 + 2 * 8 and stored.is_bound
    [launch] = [each for each in of_kind(recording, Kind.LAUNCH) if each["op"] == number]
    assert recording.names[launch["name"]] == stored.name
    [around] = [each for each in recording.ops if each.name == "sglang::store"]
    assert around.bytes == 8 * 4, "what the kernel inside of it moves is counted there"
    assert "nvcc would compile count by the bytes of their arguments: kvcache" in str(recording.assumed)


def test_a_script_gets_its_answers(served):
    out, run, recording = served(ASKS)
    assert "made [1, 1]" in out and "made [2, 2]" in out, out
    assert run.status == "counted" and recording.served.seen == (5, 7)
    assert recording.also[0].served.new == (5, 7)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("tp_size=8", "has 8 GPUs, not 1: pass -n 8"),
        ("pp_size=2", "pass --tp alone"),
        ("speculative_algorithm='EAGLE'", "a draft model"),
    ],
)
def test_a_server_of_another_shape_is_refused(served, arguments, words):
    _, run, _ = served(WAITS, arguments)
    assert run.status == "refused" and words in run.message, run
