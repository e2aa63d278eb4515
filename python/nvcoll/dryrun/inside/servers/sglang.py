"""SGLang in a dry run: the scheduler in the process of its rank, and its iterations.

| SGLang would | here |
|---|---|
| run a scheduler per GPU, and a detokenizer, in other processes | runs both here, while the engine waits for answers |
| send messages between them by ZeroMQ | keeps them in queues |
| look which ranks share memory, and make queues to them | all of a host do; messages to them are dropped |
| compile kernels with nvcc | launches their names with the bytes of their arguments, which is noted |
| take FlashInfer, which nvcc compiles, for attention and sampling | runs as if it were not installed, which is noted |
| load weights | makes weights without values, which is noted |
| listen for requests (`launch_server`, `sglang serve`) | serves as many as `--requests` says, all at once |

::

    engine      generate -> messages, waits for answers ──┐              ┌──▶ answers -> generate returns
    scheduler                                             └▶ its own loop┘    until it has nothing to do

Tried with the version that `docs/serving.md` names.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import cache, partial
from importlib.metadata import version
from typing import Any

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.cute import LIBRARY
from nvcoll.dryrun.inside.imports import AfterImport
from nvcoll.dryrun.inside.servers import ranks
from nvcoll.dryrun.inside.servers.given import Given
from nvcoll.dryrun.wire.served import KvCache, Served
from nvcoll.errors import DryRunError

VARIABLES = {
    name: "0"
    for name in (
        *("SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2", "SGLANG_ENABLE_JIT_DEEPGEMM", "SGLANG_IS_FLASHINFER_AVAILABLE"),
        "SGLANG_SET_CPU_AFFINITY",
    )
}
"""Variables by which SGLang takes an all-reduce, products of fp8, attention and sampling that are compiled already."""

TOOLKIT = "/usr/local/cuda"
"""The place of a CUDA toolkit. DeepGEMM, which is imported even if it is not used, ends without a name of one."""


class Idle(Exception):
    """The scheduler has nothing to do."""


class Queue:
    """Messages to one address, in place of a socket of ZeroMQ.

    Args:
        messages: of the address.
        work: makes the other parts of the server answer; None: the part has a loop of its own, and waits for nothing.
        nothing: the error of ZeroMQ that says: no message is there.
    """

    def __init__(
        self, messages: deque[Any], work: Callable[[], object] | None, nothing: Callable[[], Exception]
    ) -> None:
        self._messages, self._work, self._nothing = messages, work, nothing

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_args, **_kwargs: None

    def __await__(self) -> Iterator[None]:
        return iter(())

    def send(self, message: Any, **_options: object) -> Queue:
        """Sends a message; the result may be awaited."""
        self._messages.append(message)
        return self

    def recv(self, flags: int = 0) -> Any:
        """Returns the next message, or what may be awaited for it."""
        if self._work is not None:
            return self._answer(self._work)
        if not self._messages:
            raise self._nothing()
        return self._messages.popleft()

    async def _answer(self, work: Callable[[], object]) -> Any:
        while not self._messages:
            await asyncio.sleep(0.001)  # all requests of a call are sent before the first one is served
            work()
        return self._messages.popleft()

    send_pyobj, recv_pyobj = send, recv


class Kernels:
    """A module of kernels that nvcc would compile."""

    def __init__(self, name: str, stand_in: Callable[[str], Callable[..., object]]) -> None:
        self._name, self._stand_in = name, stand_in

    def __getattr__(self, function: str) -> Callable[..., object]:
        made = self._stand_in(f"{self._name}::{function}")
        setattr(self, function, made)
        return made


def install(given: Given) -> None:
    """Prepares SGLang for when it is imported."""
    os.environ.update(VARIABLES)
    os.environ.setdefault("CUDA_HOME", TOOLKIT)
    server, devices = _Server(given), "srt.distributed.device_communicators"
    changes: dict[str, Callable[[Any], object]] = {
        "srt.utils.network": server.connect,
        "srt.server_args": server.configure,
        "kernels.jit.utils.compile.loader": server.stand_in,
        "srt.distributed.parallel_state": lambda module: ranks.groups(module, given.peers),
        f"{devices}.pynccl": lambda module: ranks.communicators(module, given.peers),
        f"{devices}.cuda_wrapper": _find_runtime,
        f"{devices}.custom_all_reduce": ranks.share_alone,
        f"{devices}.shm_broadcast": ranks.drop,
        "srt.managers.scheduler": server.watch,
        "srt.entrypoints.engine": server.launch,
        "srt.entrypoints.http_server": server.serve,
    }
    for name, change in changes.items():
        sys.meta_path.insert(0, AfterImport(f"sglang.{name}", change))


class _Server:
    """The parts of a server, in this process."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._messages: defaultdict[str, deque[Any]] = defaultdict(deque)
        self._requests: deque[Any] = deque()
        self._scheduler: Any = None
        self._detokenizer: Any = None
        self._as_scheduler: Callable[[], AbstractContextManager[object]]
        self._nothing: type[Exception] = Exception

    def connect(self, module: Any) -> None:
        """Makes queues in place of sockets."""
        self._nothing = module.zmq.Again

        def around(make: Callable[..., Any]) -> Callable[..., Any]:
            def making(context: Any, kind: Any, endpoint: str | None = None, bind: bool = True) -> Any:
                if endpoint is None:
                    return make(context, kind, endpoint, bind)
                waits = "asyncio" in type(context).__module__
                return Queue(self._messages[endpoint], self._work if waits else None, self._nothing)

            return making

        private.wrap(module, "get_zmq_socket", around)

    def configure(self, module: Any) -> None:
        """Makes SGLang run without weights, and without a tokenizer that is not there.

        Raises:
            DryRunError: as soon as the server is made, if it has another number of GPUs than the dry run.
        """

        def around(resolve: Callable[..., None]) -> Callable[..., None]:
            def resolving(this: Any) -> None:
                if not getattr(this, "_resolution_finished", False):
                    self._prepare(this)
                resolve(this)

            return resolving

        private.wrap(module.ServerArgs, "resolve_once", around)

    def _prepare(self, arguments: Any) -> None:
        if arguments.pp_size * arguments.dp_size * arguments.ep_size != 1 or arguments.speculative_algorithm:
            others = "pipeline stages, replicas, parts of experts, or a draft model"
            raise DryRunError(f"the server has {others}, which a dry run of SGLang does not know: pass --tp alone")
        if (gpus := arguments.tp_size) != self._given.world_size:
            raise DryRunError(f"the server has {gpus} GPUs, not {self._given.world_size}: pass -n {gpus}")
        self._given.without_files(arguments, "SGLang", arguments.model_path, arguments.tokenizer_path)
        self._given.assume("SGLang runs without FlashInfer's attention and sampling")

    def stand_in(self, module: Any) -> None:
        """Makes kernels that nvcc would compile launches of their names."""

        def load(name: str, *_more: object, **_options: object) -> Kernels:
            self._given.assume(f"kernels that nvcc would compile count by the bytes of their arguments: {name}")
            return Kernels(f"sglang::{name}", self._given.stand_in)

        private.replace(module, "load_jit", load)

    def watch(self, module: Any) -> None:
        """Watches the iterations of a scheduler, which ends its loop when it has nothing to do."""

        def running(run: Callable[..., object]) -> Callable[..., object]:
            def ran(this: Any, batch: Any, *args: object, **kwargs: object) -> object:
                self._given.iterations.begins(_served(this, batch))
                return run(this, batch, *args, **kwargs)

            return ran

        def idling(idle: Callable[..., None]) -> Callable[..., None]:
            def idled(this: Any) -> None:
                self._given.iterations.begins(None)
                idle(this)
                this.last_batch = None
                raise Idle

            return idled

        private.wrap(module.Scheduler, "run_batch", running)
        private.wrap(module.Scheduler, "on_idle", idling)

    def launch(self, module: Any) -> None:
        """Makes the scheduler of this rank, and the detokenizer, in this process."""

        def schedulers(server_args: Any, port_args: Any, *_args: object, **_kwargs: object) -> tuple[Any, list[Any]]:
            contexts = importlib.import_module("sglang.srt.runtime_context")
            place = contexts.SpawnRanks(
                world_rank=int(os.environ["RANK"]), dp_rank=None, gpu_id=int(os.environ["LOCAL_RANK"])
            )
            context = contexts.create_context(server_args, role="scheduler", ranks=place)
            self._as_scheduler = partial(contexts.use_context, context)
            self._requests = self._messages[port_args.scheduler_input_ipc_name]
            with self._as_scheduler():
                made = importlib.import_module("sglang.srt.managers.scheduler").Scheduler
                self._scheduler = made(server_args, port_args)
            return module.SchedulerInitResult(scheduler_infos=[self._scheduler.get_init_info()]), []

        def detokenizers(server_args: Any, port_args: Any, *_args: object, **_kwargs: object) -> tuple[Any, list[Any]]:
            if not server_args.skip_tokenizer_init:
                made = importlib.import_module("sglang.srt.managers.detokenizer_manager").DetokenizerManager
                self._detokenizer = made(server_args, port_args)
            return [], []

        for name, new in (("scheduler_processes", schedulers), ("detokenizer_subprocesses", detokenizers)):
            private.replace(module.Engine, f"_launch_{name}", staticmethod(new))

    def serve(self, module: Any) -> None:
        """Makes a server serve some requests at once, and end."""

        def serving(server_args: Any, *_args: object, **_kwargs: object) -> None:
            engine = module.Engine(server_args=server_args)
            for prompts, most in self._given.prompts():
                until = {"max_new_tokens": most, "temperature": 0.0, "ignore_eos": True}
                engine.generate(input_ids=prompts, sampling_params=until)

        private.replace(module, "launch_server", serving)

    def _work(self) -> None:
        """Runs the scheduler until it has nothing to do, if it has messages, and the detokenizer."""
        if self._requests:
            with suppress(Idle), self._as_scheduler():
                self._scheduler.run_event_loop()
        if self._detokenizer is not None:
            with suppress(self._nothing):
                self._detokenizer.event_loop()


def _find_runtime(module: Any) -> None:
    """Has the all-reduce share its buffers by the virtual GPU, where a runtime of NVIDIA is loaded, too."""
    private.replace(module, "find_loaded_library", lambda _name: str(LIBRARY))


def _served(scheduler: Any, batch: Any) -> Served | None:
    if batch.forward_mode.is_idle():
        return None
    lengths = [int(each) for each in batch.seq_lens_cpu]
    new = [1] * len(lengths) if batch.forward_mode.is_decode() else [int(each) for each in batch.extend_lens]
    seen = [whole - each for whole, each in zip(lengths, new, strict=True)]
    group = importlib.import_module("sglang.srt.distributed.parallel_state").get_tp_group().ranks
    windows = _windows(scheduler.tp_worker.model_runner.model)
    return Served(
        f"SGLang {version('sglang')}", tuple(new), tuple(seen), _cache(scheduler), tuple(group), windows=windows
    )


@cache
def _windows(model: Any) -> tuple[int, ...]:
    """Returns the window of each layer of attention, in the order of the model."""
    layers = [one for one in model.modules() if hasattr(one, "sliding_window_size") and hasattr(one, "qk_head_dim")]
    windows = tuple(max(one.sliding_window_size, -1) + 1 for one in layers)  # which SGLang counts without the token
    return windows if any(windows) else ()


def _cache(scheduler: Any) -> KvCache:
    pool = scheduler.token_to_kv_pool_allocator.get_kvcache()
    sizes = pool.get_kv_size_bytes()
    given = sum(sizes) if isinstance(sizes, tuple) else sizes
    longest, rows = scheduler.model_config.context_len, len(scheduler.req_to_token_pool.req_to_token)
    return KvCache(int(scheduler.max_total_num_tokens), int(given), int(longest), rows, pool.dtype.itemsize)
