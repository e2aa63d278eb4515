"""Private names of torch: all that nvcoll uses, in one place.

| private name of torch | since | what for |
|---|---|---|
| ``torch._C._distributed_c10d``: ``ReduceOp``, ``Backend`` | 2.11 | kinds of ops; parts of groups for one device |
| ``Backend()``, made by Python | 2.14 | the part for the CPU, in a group with a backend per device |
| ``ReduceOp.__getstate__`` | 2.11 | the factor of PREMUL_SUM |
| ``ProcessGroup._set_default_backend``, ``_register_backend`` | 2.11 | the part for the CPU in a group of nvcoll |
| ``distributed_c10d._world.pg_map`` | 2.11 | all process groups |
| ``backend_config`` in ``_new_process_group_helper`` | 2.11 | whether a group has a backend per device |
| ``Future._set_unwrap_func`` | 2.11 | a future that fails |
| ``_current_graph_task_id``, ``_execution_engine`` | 2.11 | errors at the end of a backward pass |
| ``_profiler_enabled``, ``_record_function_with_args_enter`` and ``_exit`` | 2.11 | events of the profiler |
| ``torch.ops.profiler._call_end_callbacks_on_jit_fut`` | 2.11 | the end of such an event |
| ``torch._C._dynamo.eval_frame`` | 2.11 | methods that torch.compile must not trace |

2.11 means "2.11 or older": older torch is refused. torch calls the methods with a leading underscore of `Calls` and of
`ProcessGroup`. `nvcoll_autoload` uses ``Backend._plugins``, ``Backend._ensure_backend_registered`` (2.14) and
``_new_process_group_helper`` itself: it is imported with torch, and nvcoll is not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C import _current_graph_task_id
from torch._C._distributed_c10d import Backend, ReduceOp
from torch._C._dynamo import eval_frame
from torch.autograd import _profiler_enabled, _record_function_with_args_enter, _record_function_with_args_exit

if TYPE_CHECKING:
    from torch._C._distributed_c10d import _DistributedBackendOptions as BackendOptions

__all__ = ["Backend", "BackendOptions"]

KINDS: Any = ReduceOp.RedOpType
"""The kinds of reduce ops."""

is_profiled: Callable[[], bool] = _profiler_enabled
"""Says whether torch's profiler records."""

begin_event: Callable[..., object] = _record_function_with_args_enter
"""Begins an event of the profiler, from its name and the inputs of the call."""

end_event: Callable[[object], None] = _record_function_with_args_exit
"""Ends an event of the profiler at once."""


def end_event_with(event: object, is_over: torch.futures.Future[None]) -> torch.futures.Future[object]:
    """Ends an event of the profiler with a future. Returns a future that ends when the event has."""
    ended: torch.futures.Future[object] = torch.ops.profiler._call_end_callbacks_on_jit_fut(event, is_over)
    return ended


def has_constructible_backends() -> bool:
    """Says whether Python can make subclasses of `Backend`."""
    try:
        Backend(0, 1)
    except TypeError:
        return False
    return True


def register_backend(group: dist.ProcessGroup, device: torch.device, backend: Backend) -> None:
    """Makes a backend the part of a process group for a device, and its default part."""
    kind = dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(kind)
    group._register_backend(device, kind, backend)


def process_groups() -> list[dist.ProcessGroup]:
    """Returns the process groups that this process is in."""
    return list(dist.distributed_c10d._world.pg_map)


def is_for_several_backends() -> bool:
    """Says whether the group that torch makes now has a backend per device. torch does not tell: its variables do."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back  # type: ignore[assignment]
    config = frame.f_locals.get("backend_config") if frame is not None else None
    return config is not None and len(set(config.get_device_backend_map().values())) > 1


def factor_of(op: Any) -> float:
    """Returns the factor of a PREMUL_SUM, a number or a tensor of one."""
    return float(op.__getstate__()[1])


def set_unwrap_function(future: torch.futures.Future[object], function: Callable[[object], object]) -> None:
    """Has the result of a future pass through a function, where Python reads it."""
    future._set_unwrap_func(function)


def is_in_backward() -> bool:
    """Says whether this thread runs a backward pass."""
    return bool(_current_graph_task_id() >= 0)


def at_end_of_backward(function: Callable[[], None]) -> None:
    """Runs a function at the end of the backward pass that this thread runs. Its exception becomes that of the pass."""
    torch.autograd.Variable._execution_engine.queue_callback(function)


def leave_untraced(owner: type) -> None:
    """Keeps torch.compile from tracing the methods of a class, which are in C++ in other backends.

    DDP calls them from C++ while compiled code runs, and then torch.compile looks at each frame of Python.
    """
    skip = eval_frame._FrameAction.SKIP
    for method in vars(owner).values():
        if isinstance(method, FunctionType):  # it, and what it calls
            eval_frame.set_code_exec_strategy(method.__code__, eval_frame._FrameExecStrategy(skip, skip))
