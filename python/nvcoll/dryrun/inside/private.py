"""Private names of torch that the child of a dry run uses, each looked up here and nowhere else.

| private name of torch | use |
|---|---|
| ``TorchDispatchMode``, ``HigherOrderOperator``, ``flop_registry`` | operators, and their FLOPs |
| ``torch._C._functorch`` | parameters in wrappers of torch.func |
| ``_dispatch_keys``, ``_dispatch_keyset_full_after`` | kernels whose inner operators are seen |
| ``torch.jit._trace``, ``_disable_current_modes`` | traces of TorchScript, which modes break |
| ``FakeTensor``, ``FunctionalTensor`` | operators that only torch.compile sees |
| ``_get_sequence_nr``, ``_current_autograd_node`` | the forward operator of a backward one |
| ``_new_process_group_helper``, ``_end_coalescing``, ``FakeProcessGroup`` | groups and their ranks |
| ``Backend._plugins``, ``Backend._BackendPlugin`` | the function that makes gloo's part of a group |
| ``rendezvous``, its module | the store |
| ``launch_agent`` | torchrun inside of a script |
| ``_verify_params_across_processes``, ``Reducer._rebuild_buckets`` | DDP's check of shapes, and its buckets |
| ``_chunk_with_empty`` | shards of parameters with FSDP2 |
| ``_get_default_group`` | the backend of NCCL |
| ``_record_memory_history``, ``_snapshot``, ``_cuda_memoryStats`` | what was allocated, when, by which line |
| ``AlgorithmSelectorCache.benchmark_choices``, ``CachingAutotuner.run`` and ``.bench`` | kernels of torch.compile |
| ``StorageWeakRef`` | whether embeddings read the same tokens |
| ``torch.serialization``'s writers, ``torch.jit``'s | checkpoints that would be lost, and marks in others |
| ``torch.distributed.checkpoint``'s planner, its executors | distributed checkpoints of some ranks |
| ``torch._dynamo.utils.counters`` | whether torch.compile was at work |
| Triton's ``JITFunction.run``, ``Autotuner._bench`` | kernels that scripts and packages write |

`nvcoll.torch.private` is for the backend of torch.distributed, and needs older versions of torch than a dry run does.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.rendezvous

from nvcoll.errors import DryRunError

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.autograd.graph import Node

    Operator = OpOverload[..., Any]


History = list[dict[str, Any]]
"""Rows of the allocator: segments with their blocks; or events with frames of Python, oldest first."""


def lookup(module: str, *names: str) -> Any:
    """Returns a private name of torch.

    Raises:
        DryRunError: this version of torch has no such name.
    """
    where = module
    try:
        found = sys.modules.get(module) or importlib.import_module(module)
        for name in names:
            where = f"{where}.{name}"
            found = getattr(found, name)
    except (ImportError, AttributeError):
        raise _missing(where) from None
    return found


def replace(owner: type | ModuleType, name: str, new: object) -> None:
    """Replaces a name of a module or class.

    Raises:
        DryRunError: this version of torch has no such name.
    """
    wrap(owner, name, lambda _: new)


def wrap(owner: type | ModuleType, name: str, around: Callable[[Callable[..., Any]], object]) -> None:
    """Replaces the value of a name of a module or class by `around(value)`.

    Raises:
        DryRunError: this version of torch has no such name.
    """
    try:
        old = getattr(owner, name)
    except AttributeError:
        raise _missing(f"{owner.__name__}.{name}") from None
    setattr(owner, name, around(old))


def _missing(name: str) -> DryRunError:
    return DryRunError(
        f"torch {torch.__version__} has no `{name}`, which the dry run needs: install a version of torch that "
        "nvcoll was tested with (2.15)"
    )


Mode: Any = lookup("torch.utils._python_dispatch", "TorchDispatchMode")
"""Sees each operator before it runs."""

HigherOrderOperator = lookup("torch._ops", "HigherOrderOperator")
"""Operators that take functions."""

COMPOSITE: Any = lookup("torch._C", "DispatchKey").CompositeImplicitAutograd
"""The key of operators that are made of others."""

FakeTensor: type = lookup("torch._subclasses.fake_tensor", "FakeTensor")
"""Tensors with which torch works out shapes."""

FunctionalTensor: type = lookup("torch._subclasses.functional_tensor", "FunctionalTensor")
"""Tensors with which torch.compile removes what is done in place."""

flop_registry: dict[object, Callable[..., int]] = lookup("torch.utils.flop_counter", "flop_registry")
"""FLOPs by operator."""

sequence_number: Callable[[], int] = lookup("torch._C", "_autograd", "_get_sequence_nr")
"""The number of the next node of the autograd graph in this thread."""

is_functorch: Callable[[torch.Tensor], bool] = lookup("torch._C", "_functorch", "is_functorch_wrapped_tensor")
"""Says whether a tensor is one of torch.func, which has no memory."""

current_node: Callable[[], Node | None] = lookup("torch._C", "_current_autograd_node")
"""The node of the autograd graph that this thread runs, or None."""

c10d: ModuleType = lookup("torch.distributed.distributed_c10d")
"""The module in which torch.distributed finds its own functions."""

rendezvous: ModuleType = lookup("torch.distributed.rendezvous")
"""The module; `torch.distributed.rendezvous` is a function."""

record_history: Callable[..., None] = lookup("torch.cuda.memory", "_record_memory_history")
"""Switches the allocator's history on and off."""

memory_statistics: Callable[[int], dict[str, dict[str, dict[str, int]]]] = lookup("torch._C", "_cuda_memoryStats")
"""The allocator's counters of a device."""

memory_snapshot: Callable[[], dict[str, Any]] = lookup("torch.cuda.memory", "_snapshot")
"""Blocks of the allocator, and its history."""

serialization: ModuleType = lookup("torch.serialization")
"""The module that writes checkpoints: `_open_zipfile_writer`, `_open_file_like`, `_save` and `_legacy_save`."""

scripted: type = lookup("torch.jit", "RecursiveScriptModule")
"""A scripted module, whose `save` writes an archive in C++."""

printer: ModuleType = lookup("torch._tensor_str")
"""The module that makes texts of tensors."""

StorageWeakRef: Any = lookup("torch.multiprocessing.reductions", "StorageWeakRef")
"""A weak reference to the memory of a tensor."""

launcher: ModuleType = lookup("torch.distributed.launcher.api")
"""The module of torchrun's agent, as Python calls it."""

Store: Any = lookup("torch.distributed", "Store")
"""The base class of stores."""


def kernel_keys(tensors: Iterable[torch.Tensor]) -> Any:
    """Returns the dispatch keys of an operator's kernel, below modes of Python and autograd."""
    keys = lookup("torch._C", "_dispatch_keys")
    found = reduce(or_, map(keys, tensors))
    return found & lookup("torch._C", "_dispatch_keyset_full_after")(lookup("torch._C", "DispatchKey").Python)


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor in the wrappers that transforms of torch.func have around it."""
    functorch = lookup("torch._C._functorch")
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def trace_unseen() -> None:
    """Makes `torch.jit.trace` run without modes: with them, its graph loses the results of convolutions."""
    unseen = lookup("torch.utils._python_dispatch", "_disable_current_modes")

    def around(trace: Callable[..., object]) -> Callable[..., object]:
        def traced(*args: object, **kwargs: object) -> object:
            with unseen():
                return trace(*args, **kwargs)

        return traced

    for module in (torch.jit, lookup("torch.jit._trace")):
        wrap(module, "trace", around)


def uniform_group(rank: int, size: int) -> dist.ProcessGroup:
    """Returns a part of a process group whose other ranks hold what this rank holds, without any communication."""
    fake = lookup("torch._C._distributed_c10d", "FakeProcessGroup")
    options = fake.Options()
    if hasattr(options, "simulate_uniform_ranks"):
        options.simulate_uniform_ranks = True
    made: dist.ProcessGroup = fake._create_internal(rank, size, options)
    return made


def has_uniform_groups() -> bool:
    """Says whether collectives of `uniform_group` reduce as if all ranks held the same."""
    return hasattr(lookup("torch._C._distributed_c10d", "FakeProcessGroup").Options(), "simulate_uniform_ranks")


class Maker(type):
    """A class whose call makes a fake group that counts as its instance; older torch calls it and checks the class."""

    make: Callable[..., dist.ProcessGroup]

    def __call__(cls, *args: object, **kwargs: object) -> dist.ProcessGroup:
        return cls.make(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return type(instance).__name__ == "FakeProcessGroup"


def replace_gloo(make: Callable[..., dist.ProcessGroup]) -> None:
    """Makes `make(store, rank, size, timeout)` create the parts of process groups that gloo would create."""
    backends = dist.Backend
    if not hasattr(backends, "_ensure_backend_registered"):
        fake = lookup("torch._C._distributed_c10d", "FakeProcessGroup")
        fake._set_sequence_number_for_group = lambda _group: None  # which is asked of gloo's groups
        replace(c10d, "ProcessGroupGloo", Maker("ProcessGroupGloo", (), {"make": staticmethod(make)}))
        return
    backends._ensure_backend_registered("gloo")
    plugins = lookup("torch.distributed", "Backend", "_plugins")
    plugins["GLOO"] = lookup("torch.distributed", "Backend", "_BackendPlugin")(make, False)


def compiled_graphs() -> int:
    """Returns the number of graphs that torch.compile has made."""
    return int(lookup("torch._dynamo.utils", "counters")["stats"]["unique_graphs"])


def count_rebuilt_buckets() -> Counter[bool]:
    """Returns a counter of DistributedDataParallel's checks of its buckets: rearranged (True) or left (False)."""
    answers = Counter[bool]()

    def around(rebuild: Callable[[object], bool]) -> Callable[[object], bool]:
        def counted(reducer: object) -> bool:
            answer = rebuild(reducer)
            answers[bool(answer)] += 1
            return answer

        return counted

    wrap(lookup("torch._C._distributed_c10d", "Reducer"), "_rebuild_buckets", around)
    return answers


def futures_wait() -> bool:
    """Says whether the NCCL backend makes the stream wait for a collective when its future is requested."""
    world = lookup("torch.distributed.distributed_c10d", "_get_default_group")()
    return type(world._get_backend(torch.device("cuda"))).__name__ == "ProcessGroupNCCL2"


def fsdp_parameters() -> ModuleType:
    """Returns the module in which FSDP2 cuts parameters into shards."""
    found: ModuleType = lookup("torch.distributed.fsdp._fully_shard._fsdp_param")
    return found


def checkpoint(name: str) -> ModuleType:
    """Returns a module of torch.distributed.checkpoint."""
    found: ModuleType = lookup(f"torch.distributed.checkpoint.{name}")
    return found


def autotuner() -> type:
    """Returns the class whose `run` launches a kernel that torch.compile made."""
    found: type = lookup("torch._inductor.runtime.triton_heuristics", "CachingAutotuner")
    return found


def triton_function() -> type:
    """Returns the class whose `run` launches a kernel that a script or package wrote in Triton."""
    found: type = lookup("triton.runtime.jit", "JITFunction")
    return found


def take_first_configuration() -> None:
    """Makes Triton take the first of several configurations of a kernel, without timing them."""
    tuner = lookup("triton.runtime.autotuner", "Autotuner")
    replace(tuner, "_bench", lambda _this, *_args, **_kwargs: [1.0, 1.0, 1.0])


def take_first_choice() -> None:
    """Makes torch.compile take the first of several kernels, and of their configurations, without timing them."""
    cache = lookup("torch._inductor.select_algorithm", "AlgorithmSelectorCache")
    take = classmethod(lambda _, choices, *_args, **_kwargs: {choice: 1.0 + i for i, choice in enumerate(choices)})
    replace(cache, "benchmark_choices", take)
    replace(autotuner(), "bench", lambda _this, *_args, **_kwargs: 1.0)
