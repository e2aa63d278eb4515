"""vLLM in a dry run: the engine in the process of its rank, and its iterations.

| vLLM would | here |
|---|---|
| run its engine, and each worker, in a process of its own | runs all here, as under torchrun (`external_launcher`) |
| send the tokens of a pipeline to its one scheduler | each stage has a scheduler, which gets them by mail |
| ask a process which classes a model has | asks this one |
| look which ranks share memory, and make queues to them | all of a host do; messages to them are dropped |
| compile FlashInfer's sampler with nvcc | its own sampler, which is noted |
| agree with replicas on the tokens of an iteration | all have as many |
| load weights | makes weights without values, which is noted |
| listen for requests (`vllm serve`) | serves as many as `--requests` says, all at once |

Tried with the versions that `docs/serving.md` names. Functions that a version lacks are not replaced.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from importlib.metadata import version
from tempfile import mkdtemp
from typing import Any

import torch.distributed as dist

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.imports import AfterImport
from nvcoll.dryrun.inside.servers import ranks
from nvcoll.dryrun.inside.servers.given import Given
from nvcoll.dryrun.inside.serving import Iterations
from nvcoll.dryrun.wire.served import KvCache, Served
from nvcoll.errors import DryRunError

VARIABLES = {name: "0" for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_USE_FLASHINFER_SAMPLER")}
VARIABLES |= dict.fromkeys(("VLLM_NO_USAGE_STATS", "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION"), "1")
"""Variables by which vLLM runs its engine here, samples without what nvcc compiles, tells nobody, and names requests
alike on all ranks."""


def install(given: Given) -> None:
    """Prepares vLLM for when it is imported."""
    os.environ.update(VARIABLES)
    # Kernels that nobody tuned are for no real GPU. Each run is a first start: compiling holds memory; a later start
    # finds what was compiled and has a larger KV cache.
    os.environ["VLLM_CACHE_ROOT"] = mkdtemp(prefix="vllm-")
    changes: dict[str, Callable[[Any], object]] = {
        "engine.arg_utils": lambda module: _one_process(module.EngineArgs, given),
        "entrypoints.cli.serve": lambda module: _serve(module.ServeSubcommand, given),
        "model_executor.models.registry": lambda module: ranks.replace(module, "_run_in_subprocess", _call),
        "distributed.parallel_state": lambda module: ranks.groups(module, given.peers),
        "distributed.device_communicators.pynccl": lambda module: ranks.communicators(module, given.peers),
        "distributed.device_communicators.custom_all_reduce": ranks.share_alone,
        "distributed.device_communicators.shm_broadcast": ranks.drop,
        "v1.worker.dp_utils": lambda module: ranks.replace(module, "should_skip_dp_coordination", lambda: True),
        "v1.worker.gpu_worker": lambda module: _Watch(given.iterations).install(module.Worker),
        "v1.sample.ops.topk_topp_sampler": lambda _: given.assume("vLLM samples without FlashInfer"),
    }
    for name, change in changes.items():
        sys.meta_path.insert(0, AfterImport(f"vllm.{name}", change))


def _call(function: Callable[[], object]) -> object:
    return function()


def _serve(command: Any, given: Given) -> None:
    """Makes `vllm serve` serve some requests at once, and end."""

    def serving(arguments: Any) -> None:
        engines = importlib.import_module("vllm.v1.engine.llm_engine")
        sampling = importlib.import_module("vllm.sampling_params").SamplingParams
        arguments.model = getattr(arguments, "model_tag", None) or arguments.model
        options, usage = engines.EngineArgs.from_cli_args(arguments), engines.UsageContext.OPENAI_API_SERVER
        engine = engines.LLMEngine.from_engine_args(options, usage)
        for turn, (prompts, most) in enumerate(given.prompts()):
            until = sampling(max_tokens=most, temperature=0.0, ignore_eos=True, detokenize=False)
            for nth, prompt in enumerate(prompts):
                engine.add_request(f"{turn}-{nth}", {"prompt_token_ids": prompt}, until)
            while engine.has_unfinished_requests():
                engine.step()

    command.cmd = staticmethod(serving)


def _one_process(arguments: Any, given: Given) -> None:
    """Makes vLLM run this rank in this process, without weights, and without a tokenizer that is not there.

    Raises:
        DryRunError: as soon as the server is made, if it has another number of GPUs than the dry run, or replicas of a
            pipeline.
    """

    def around(create: Callable[..., Any]) -> Callable[..., Any]:
        def creating(this: Any, *args: object, **kwargs: object) -> Any:
            sizes = this.tensor_parallel_size, this.pipeline_parallel_size, this.data_parallel_size
            if (gpus := math.prod(sizes)) != given.world_size:
                raise DryRunError(
                    f"the server has {gpus} GPUs (tensor x pipeline x data), not {given.world_size}: pass -n {gpus}"
                )
            is_staged = this.pipeline_parallel_size > 1
            if is_staged and this.data_parallel_size > 1:
                raise DryRunError("replicas of a pipeline of vLLM do not run here: leave out --data-parallel-size")
            if given.world_size > 1:
                this.distributed_executor_backend = _stages() if is_staged else "external_launcher"
            given.without_files(this, "vLLM", this.model, this.tokenizer)
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
