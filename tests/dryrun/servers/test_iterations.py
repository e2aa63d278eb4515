"""Iterations of a server: a package that has vLLM's names, and a scheduler, runs a small model."""

from types import SimpleNamespace

import pytest
from dryrun_children import PATIENT, children

from nvcoll.dryrun.wire.served import KvCache, Served

pytest.importorskip("torch", reason="torch is not installed")
Iterations = pytest.importorskip("nvcoll.dryrun.inside.serving").Iterations

__all__ = ["children"]

pytestmark = PATIENT

WORKER = """
import torch
from types import SimpleNamespace


class Worker:
    def __init__(self, layers):
        self.model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(layers))).cuda().half()
        cache = SimpleNamespace(num_gpu_blocks=1000, block_size=16, cache_dtype="auto")
        model = SimpleNamespace(max_model_len=4096, dtype=torch.float16)
        scheduler = SimpleNamespace(max_num_seqs=64)
        layers = {"norm": None, "0": SimpleNamespace(sliding_window=128), "1": SimpleNamespace(sliding_window=None)}
        self.vllm_config = SimpleNamespace(
            cache_config=cache,
            model_config=model,
            scheduler_config=scheduler,
            parallel_config=SimpleNamespace(enable_expert_parallel=True),
            compilation_config=SimpleNamespace(static_forward_context=layers),
        )
        self.available_kv_cache_memory_bytes = 1 << 30

    @torch.inference_mode()
    def execute_model(self, scheduled):
        tokens = sum(scheduled.num_scheduled_tokens.values())
        if tokens:
            return self.model(torch.randn(tokens, 256, device="cuda", dtype=torch.float16)).sum().item()
"""

STATE = """
from types import SimpleNamespace


class GroupCoordinator:
    def __init__(self):
        pass


def get_tp_group():
    return SimpleNamespace(ranks=[0])


def get_ep_group():
    return SimpleNamespace(world_size=8)
"""

ARGUMENTS = """
class EngineArgs:
    load_format, model, tokenizer = "auto", "some/model", None
    tensor_parallel_size, pipeline_parallel_size, data_parallel_size = 4, 1, 2

    def create_engine_config(self):
        return self
"""

SERVES = """
import sys
from types import SimpleNamespace
import vllm.distributed.parallel_state
from vllm.v1.worker.gpu_worker import Worker

worker, seen = Worker(3), {}


def iteration(**new):
    first = [SimpleNamespace(req_id=one, num_computed_tokens=0) for one in new if one not in seen]
    ids = [one for one in new if one in seen]
    cached = SimpleNamespace(req_ids=ids, num_computed_tokens=[seen[one] for one in ids])
    worker.execute_model(
        SimpleNamespace(scheduled_new_reqs=first, scheduled_cached_reqs=cached, num_scheduled_tokens=new)
    )
    for one, many in new.items():
        seen[one] = seen.get(one, 0) + many


for new in PLAN:
    iteration(**new)
print("the script went on")
"""

TWO, ONE = {"a": 1, "b": 1}, {"a": 1}


@pytest.fixture
def served(children, tmp_path):
    """Returns a function: output, `Run` and recording of a server with iterations."""
    names = {"__init__": "", "distributed/__init__": "", "distributed/parallel_state": STATE}
    names |= {"engine/__init__": "", "engine/arg_utils": ARGUMENTS}
    names |= {"v1/__init__": "", "v1/worker/__init__": "", "v1/worker/gpu_worker": WORKER}
    for name, text in names.items():
        file = tmp_path / "vllm" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    about = tmp_path / "vllm-7.8.9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 7.8.9\n")

    def made(*plan, text=SERVES, world_size=1):
        (tmp_path / "serve.py").write_text(text.replace("PLAN", repr(plan)))
        [found] = children.run(tmp_path / "serve.py", world_size=world_size, steps=3, serves=[4, 1024])
        return found

    return made


def test_the_last_decode_in_a_row_and_the_largest_prefill_count(served):
    out, run, recording = served({"a": 100}, {"a": 200, "b": 50}, {"a": 30}, ONE, TWO, TWO, TWO, ONE, ONE)
    assert run.status == "counted" and "went on" not in out, out
    cache = KvCache(16_000, 1 << 30, 4096, 64, 2)
    assert recording.served == Served("vLLM 7.8.9", (1, 1), (333, 52), cache, (0,), 8, (128, 0))
    [prefill] = recording.also
    assert prefill.served.new == (200, 50) and prefill.served.seen == (100, 0)
    assert prefill.served.words == "250 tokens of 2 sequences"
    assert recording.served.words == "a token of 2 sequences at 194 tokens"
    for one, tokens in ((recording, 2), (prefill, 250)):
        assert [op.inputs[0][0] for op in one.ops if op.name == "aten::linear"] == [(tokens, 256)] * 3
        assert one.optimizer == "vLLM 7.8.9"
    assert run.steps == 8, "each iteration before the end is a step"


def test_a_server_that_ends_before_leaves_what_it_had(served):
    out, run, recording = served({"a": 100}, TWO | {"b": 7}, TWO, {})
    assert run.status == "counted" and "went on" in out, out
    assert recording.served.new == (1, 1) and recording.also[0].served.new == (100,)


def test_a_server_without_iterations_says_so(served):
    _, run, recording = served()
    assert run.status == "ended" and recording is None
    assert "no iteration of a server was seen" in run.message, run.message


def test_an_iteration_without_tokens_is_none(served):
    _, run, recording = served({"a": 10}, {}, {"a": 1}, {}, {"a": 1}, {"a": 1}, {})
    assert run.status == "counted" and recording.served.seen == (12,)
    products = [op for op in recording.ops if op.name == "aten::linear"]
    assert len(products) == 3, "an empty iteration ends the one before"


def test_of_requests_in_turn_iterations_of_all_requests_count():
    kept, ended = [], []
    steps = SimpleNamespace(mark=lambda: None)
    iterations = Iterations(2, steps, lambda _: None, kept.append, lambda: ended.append(len(kept)), last=3)
    cache = KvCache(1000, 1 << 20, 100)

    def begin(sequences, new, seen):
        iterations.begins(Served("vLLM 1", (new,) * sequences, (seen,) * sequences, cache))

    begin(9, 50, 0)  # to warm up
    for many in (1, 3):
        iterations.turn(many)
        begin(many, 10, 0)
        for nth in range(3):
            begin(many, 1, 10 + nth)
    counted = [(one.kind, len(one.new), one.seen[0]) for one in kept]
    each = [("prefill", 0), ("decode", 10), ("decode", 11)]
    assert counted == [(kind, many, seen) for many in (1, 3) for kind, seen in each][: len(counted)]
    assert ended and ended[0] == 6


CONFIGURES = """
from vllm.engine.arg_utils import EngineArgs

made = EngineArgs().create_engine_config()
print("made", made.distributed_executor_backend, made.load_format)
"""

CACHE = """
import os, tempfile
from pathlib import Path
import vllm

cache = Path(os.environ["VLLM_CACHE_ROOT"])
print("first start", cache.is_relative_to(tempfile.gettempdir()) and not any(cache.iterdir()))
(cache / "compiled").touch()
"""


def test_a_server_runs_as_one_rank_without_weights(served):
    out, run, _ = served(text=CONFIGURES, world_size=8)
    assert "made external_launcher dummy" in out and run.status == "ended", out


def test_each_run_is_the_first_start_of_its_server(served):
    for _ in range(2):
        out, _, _ = served(text=CACHE)
        assert "first start True" in out, out


def test_a_server_of_another_size_is_refused_with_the_size(served):
    _, run, _ = served(text=CONFIGURES, world_size=4)
    assert run.status == "refused" and "the server has 8 GPUs" in run.message and "pass -n 8" in run.message


def test_replicas_of_a_pipeline_are_refused(served):
    text = CONFIGURES.replace("EngineArgs().", "arguments.")
    sizes = "arguments.tensor_parallel_size, arguments.pipeline_parallel_size = 1, 4"
    text = text.replace("made =", f"arguments = EngineArgs()\n{sizes}\nmade =", 1)
    _, run, _ = served(text=text, world_size=8)
    assert run.status == "refused" and "leave out --data-parallel-size" in run.message


GENERATION = """
from types import SimpleNamespace

import torch


class GenerationMixin:
    def prepare_inputs_for_generation(self, tokens, seen):
        cache = SimpleNamespace(get_seq_length=lambda: seen)
        return {"input_ids": None, "inputs_embeds": tokens, "past_key_values": cache if seen else None}

    @torch.inference_mode()
    def generate(self, prompt, many):
        for seen in (0, *range(prompt.shape[1], prompt.shape[1] + many)):
            tokens = prompt[:, : 1 if seen else None]
            self.layer(self.prepare_inputs_for_generation(tokens, seen)["inputs_embeds"])
"""

GENERATES = """
import torch
from types import SimpleNamespace
from transformers.generation.utils import GenerationMixin

model = GenerationMixin()
model.layer, model.config, model.tp_size = torch.nn.Linear(256, 256).cuda(), SimpleNamespace(), 4
model.generate(torch.randn(8, 50, 256, device="cuda"), MANY)
"""


@pytest.mark.parametrize(("many", "last"), [(2, 51), (9, 52)])
def test_each_pass_of_generate_is_an_iteration(served, tmp_path, many, last):
    package = tmp_path / "transformers" / "generation"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "utils.py").write_text(GENERATION)
    (package / "stopping_criteria.py").write_text("class EosTokenCriteria:\n    def __call__(self): ...\n")
    about = tmp_path / "transformers-5.6.7.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 5.6.7\n")
    _, run, recording = served(text=GENERATES.replace("MANY", str(many)), world_size=8)
    assert run.status == "counted", run.message
    none = KvCache(0, 0, 0)
    assert recording.served == Served("transformers 5.6.7", (1,) * 8, (last,) * 8, none, (0, 1, 2, 3))
    assert recording.also[0].served == Served("transformers 5.6.7", (50,) * 8, (0,) * 8, none, (0, 1, 2, 3))
