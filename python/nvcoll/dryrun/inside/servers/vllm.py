"""vLLM in a dry run: the engine in the process of its rank, and its iterations.

| vLLM would | here |
|---|---|
| run its engine, and each worker, in a process of its own | runs all here, as under torchrun (`external_launcher`) |
| send the tokens of a pipeline to its one scheduler | each stage has a scheduler, which gets them by mail |
| ask a process which classes a model has | asks this one |
| look which ranks share memory, and make queues to them | all of a host do; messages to them are dropped |
| compile FlashInfer's sampler with nvcc | its own sampler, which is noted |
| load weights | makes weights without values, which is noted |
| listen for requests (`vllm serve`) | serves as many as `--requests` says, all at once |

Tried with the versions that `docs/serving.md` names. Functions that a version lacks are not replaced.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch.distributed as dist

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.imports import AfterImport
from nvcoll.dryrun.inside.peers import Peers
from nvcoll.dryrun.inside.serving import Iterations
from nvcoll.dryrun.wire.served import KvCache, Served
from nvcoll.errors import DryRunError

VARIABLES = {name: "0" for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_USE_FLASHINFER_SAMPLER")}
VARIABLES |= dict.fromkeys(("VLLM_NO_USAGE_STATS", "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION"), "1")
"""Variables by which vLLM runs its engine here, samples without what nvcc compiles, tells nobody, and names requests
alike on all ranks."""


MOST_TOKENS = 64
"""Tokens that `vllm serve` makes of each request. Chosen: the iterations that count are among the first ones."""


class Nobody:
    """A queue to readers that do not run."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_args, **_kwargs: None

    def broadcast_object(self, sent: object = None) -> object:
        """Returns what was sent."""
        return sent


def install(
    iterations: Iterations, peers: Peers, world_size: int, requests: Sequence[int], assume: Callable[[str], None]
) -> None:
    """Prepares vLLM for when it is imported.

    Args:
        iterations: gets the iterations.
        peers: gets the groups.
        world_size: the number of ranks.
        requests: how many requests `vllm serve` gets, and the tokens of each prompt.
        assume: notes an assumption.
    """
    os.environ.update(VARIABLES)
    # Kernels that nobody tuned are for no real GPU. Each run is a first start: compiling holds memory; a later start
    # finds what was compiled and has a larger KV cache.
    os.environ["VLLM_CACHE_ROOT"] = mkdtemp(prefix="vllm-")
    changes: dict[str, Callable[[Any], object]] = {
        "engine.arg_utils": lambda module: _one_process(module.EngineArgs, world_size, assume),
        "entrypoints.cli.serve": lambda module: _serve(module.ServeSubcommand, requests),
        "model_executor.models.registry": lambda module: _replace(module, "_run_in_subprocess", _call),
        "distributed.parallel_state": lambda module: _groups(module, peers),
        "distributed.device_communicators.pynccl": lambda module: _communicators(module.PyNcclCommunicator, peers),
        "distributed.device_communicators.custom_all_reduce": _share_alone,
        "distributed.device_communicators.shm_broadcast": _drop,
        "v1.worker.gpu_worker": lambda module: _Watch(iterations).install(module.Worker),
        "v1.sample.ops.topk_topp_sampler": lambda _: assume("vLLM samples without FlashInfer"),
    }
    for name, change in changes.items():
        sys.meta_path.insert(0, AfterImport(f"vllm.{name}", change))


def _replace(module: Any, name: str, new: object) -> None:
    if hasattr(module, name):
        private.replace(module, name, new)


def _call(function: Callable[[], object]) -> object:
    return function()


def _same(group: Any, source_rank: int = 0) -> list[bool]:
    """Says which ranks of a group are on the host of one of them: the ranks of a host follow each other."""
    of_host = int(os.environ["LOCAL_WORLD_SIZE"])
    ranks = dist.get_process_group_ranks(group) if isinstance(group, dist.ProcessGroup) else range(group.world_size)
    return [rank // of_host == ranks[source_rank] // of_host for rank in ranks]


def _see_all(module: Any) -> None:
    _replace(module, "in_the_same_node_as", _same)


def _share_alone(module: Any) -> None:
    """Has the all-reduce of vLLM share the buffers of captured graphs with no peers."""
    _see_all(module)
    _replace(module.CustomAllreduce, "register_graph_buffers", lambda _this: None)


def _groups(module: Any, peers: Peers) -> None:
    """Gives the groups of vLLM their names: tp, pp, dp, ep."""
    _see_all(module)

    def around(make: Callable[..., None]) -> Callable[..., None]:
        def making(this: Any, *args: Any, **kwargs: Any) -> None:
            peers.called = kwargs.get("group_name") or ""
            make(this, *args, **kwargs)
            peers.called = ""

        return making

    private.wrap(module.GroupCoordinator, "__init__", around)


def _communicators(made: Any, peers: Peers) -> None:
    """Tells which ranks the communicators have that vLLM makes by itself."""

    def around(make: Callable[..., None]) -> Callable[..., None]:
        def making(this: Any, group: Any, *args: object, **kwargs: object) -> None:
            before = peers.position()
            make(this, group, *args, **kwargs)
            if isinstance(group, dist.ProcessGroup):
                ranks = peers.ranks_of(group.group_name)
                peers.note(f"vllm:{peers.called}:{ranks[0]}", peers.called, ranks, before)

        return making

    private.wrap(made, "__init__", around)


def _drop(module: Any) -> None:
    _see_all(module)
    module.MessageQueue.create_from_process_group = staticmethod(lambda *_args, **_kwargs: Nobody())


def _serve(command: Any, requests: Sequence[int]) -> None:
    """Makes `vllm serve` serve some requests at once, and end."""

    def serving(arguments: Any) -> None:
        engines = importlib.import_module("vllm.v1.engine.llm_engine")
        sampling = importlib.import_module("vllm.sampling_params").SamplingParams
        arguments.model = getattr(arguments, "model_tag", None) or arguments.model
        given, usage = engines.EngineArgs.from_cli_args(arguments), engines.UsageContext.OPENAI_API_SERVER
        engine = engines.LLMEngine.from_engine_args(given, usage)
        many, tokens = requests
        until = sampling(max_tokens=MOST_TOKENS, temperature=0.0, ignore_eos=True, detokenize=False)
        for nth in range(many):  # prompts that begin alike would share their keys and values
            engine.add_request(str(nth), {"prompt_token_ids": [(nth + each) % 997 for each in range(tokens)]}, until)
        while engine.has_unfinished_requests():
            engine.step()

    command.cmd = staticmethod(serving)


def _one_process(arguments: Any, world_size: int, assume: Callable[[str], None]) -> None:
    """Makes vLLM run this rank in this process, without weights, and without a tokenizer that is not there.

    Raises:
        DryRunError: as soon as the server is made, if it has another number of GPUs than the dry run.
    """

    def around(create: Callable[..., Any]) -> Callable[..., Any]:
        def creating(this: Any, *args: object, **kwargs: object) -> Any:
            sizes = this.tensor_parallel_size, this.pipeline_parallel_size, this.data_parallel_size
            if (gpus := math.prod(sizes)) != world_size:
                raise DryRunError(
                    f"the server has {gpus} GPUs (tensor x pipeline x data), not {world_size}: pass -n {gpus}"
                )
            if world_size > 1:
                is_staged = this.pipeline_parallel_size > 1
                this.distributed_executor_backend = _stages() if is_staged else "external_launcher"
            if this.load_format == "auto":
                this.load_format = "dummy"
                assume("vLLM loads no weights: load_format dummy")
            model = Path(this.model)
            if model.is_dir() and this.tokenizer is None and not any(model.glob("tokenizer*")):
                this.skip_tokenizer_init = True
            return create(this, *args, **kwargs)

        return creating

    private.wrap(arguments, "create_engine_config", around)


def _stages() -> type:
    """Returns an executor of one stage of a pipeline.

    The `external_launcher` of vLLM broadcasts the logits of the last stage, and takes an older runner. This one has the
    runner of a server. Each stage has a scheduler, which gets the tokens of the last stage when it asks for them.
    """
    alone = importlib.import_module("vllm.v1.executor.uniproc_executor")
    group = importlib.import_module("vllm.distributed.parallel_state").get_pp_group

    def of_stages(mine: list[Any]) -> list[Any]:
        found = [None] * group().world_size
        dist.all_gather_object(found, mine[0], group=group().cpu_group)
        return found

    class Tokens(Future[Any]):
        """The tokens of an iteration."""

        def __init__(self, mine: Future[Any]) -> None:
            super().__init__()
            self._mine = mine

        def result(self, timeout: float | None = None) -> Any:
            heard = [self._mine.result() if group().is_last_rank else None]
            dist.broadcast_object_list(heard, src=group().last_rank, group=group().cpu_group)
            return heard[0]

    class Stage(alone.ExecutorWithExternalLauncher):  # type: ignore[name-defined]
        supports_pp = True

        def get_kv_cache_specs(self) -> list[Any]:
            return of_stages(super().get_kv_cache_specs())

        def determine_available_memory(self) -> list[int]:
            return of_stages(alone.UniProcExecutor.determine_available_memory(self))

        def initialize_from_config(self, configurations: list[Any]) -> None:
            super().initialize_from_config([configurations[group().rank_in_group]])

        def sample_tokens(self, grammar: object, non_block: bool = False) -> Any:
            made = Tokens(super().sample_tokens(grammar, non_block=True))
            return made if non_block else made.result()

    return Stage


class _Watch:
    """Tells the iterations of a worker."""

    def __init__(self, iterations: Iterations) -> None:
        self._iterations = iterations

    def install(self, worker: Any) -> None:
        """Watches a class of workers."""

        def around(execute: Callable[..., object]) -> Callable[..., object]:
            def executing(this: Any, scheduled: Any, *args: object, **kwargs: object) -> object:
                self._iterations.begins(self._served(this, scheduled))
                return execute(this, scheduled, *args, **kwargs)

            return executing

        private.wrap(worker, "execute_model", around)

    def _served(self, worker: Any, scheduled: Any) -> Served | None:
        cached = scheduled.scheduled_cached_reqs
        seen = {one.req_id: one.num_computed_tokens for one in scheduled.scheduled_new_reqs}
        seen |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        new = scheduled.num_scheduled_tokens
        if not new:
            return None
        groups, how = importlib.import_module("vllm.distributed.parallel_state"), worker.vllm_config
        counts = tuple(new.values()), tuple(seen[one] for one in new)
        shares = how.parallel_config.enable_expert_parallel
        holders = groups.get_ep_group().world_size if shares else 1
        ranks, cache = tuple(groups.get_tp_group().ranks), _cache(worker)
        return Served(f"vLLM {version('vllm')}", *counts, cache, ranks, holders, _windows(how.compilation_config))


def _windows(compiled: Any) -> tuple[int, ...]:
    """Returns the window of each layer of attention, in the order of the model."""
    layers = [one for one in compiled.static_forward_context.values() if hasattr(one, "sliding_window")]
    windows = tuple(one.sliding_window or 0 for one in layers)
    return windows if any(windows) else ()


def _cache(worker: Any) -> KvCache:
    configuration = worker.vllm_config
    of_cache, blocks = configuration.cache_config, configuration.cache_config.num_gpu_blocks
    tokens = getattr(of_cache, "kv_cache_size_tokens", None) or blocks * of_cache.block_size
    given = getattr(worker, "available_kv_cache_memory_bytes", 0)
    size = 1 if "fp8" in str(of_cache.cache_dtype) else configuration.model_config.dtype.itemsize
    longest, most = configuration.model_config.max_model_len, configuration.scheduler_config.max_num_seqs
    return KvCache(int(tokens), int(given), int(longest), int(most), size)
