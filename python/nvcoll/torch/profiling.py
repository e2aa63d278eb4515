"""The calls of a process group as events of torch's profiler: ``nvcoll:all_reduce``, with the shapes of its inputs.

An event begins where the program makes the call and ends when the call is over. A separate thread ends it, about 50 us
later (measured), so torch lists it as asynchronous, like the events of other backends. With ``NVCOLL_TORCH=replace``
events have gloo's names, because programs search for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist

from nvcoll.torch import private
from nvcoll.torch.works import CallWork, later
from nvcoll_autoload.replacing import replaces_gloo

EVENTS = {
    "allreduce": ("all_reduce", 0),
    "allreduce_coalesced": ("all_reduce", 0),
    "reduce": ("reduce", 0),
    "reduce_scatter": ("reduce_scatter", 1),
    "reduce_scatter_single": ("reduce_scatter", 1),
    "reduce_scatter_single_coalesced": ("reduce_scatter", 1),
    "broadcast": ("broadcast", 0),
    "allgather": ("all_gather", 1),
    "all_gather_single": ("all_gather", 1),
    "all_gather_single_coalesced": ("all_gather", 1),
    "allgather_coalesced": ("all_gather", 1),
    "gather": ("gather", 1),
    "gather_single": ("gather", 1),
    "scatter": ("scatter", 1),
    "all_to_all_single": ("all_to_all", 1),
    "alltoall": ("all_to_all", 1),
    "barrier": ("barrier", None),
    "send": ("send", 0),
    "recv": ("recv", 0),
    "recv_anysource": ("recvAnySource", 0),
}
"""The event of each method, and which of its arguments has the inputs. The names are gloo's."""


def record(owner: type) -> None:
    """Replaces the methods of a class by methods that make events while a profiler records."""
    prefix = "gloo" if replaces_gloo() else "nvcoll"
    for method, (event, place) in EVENTS.items():
        setattr(owner, method, _recorded(getattr(owner, method), f"{prefix}:{event}", place))


def _recorded(method: Callable[..., dist.Work], event: str, place: int | None) -> Callable[..., dist.Work]:
    @functools.wraps(method)
    def call(self: object, *arguments: object, **keywords: object) -> dist.Work:
        if not private.is_profiled():
            return method(self, *arguments, **keywords)
        inputs = _flat(arguments[place]) if place is not None and place < len(arguments) else []
        begun = private.begin_event(event, *inputs)
        try:
            work = method(self, *arguments, **keywords)
        except BaseException:
            private.end_event(begun)
            raise
        _end_with(work, begun)
        return work

    return call


def _end_with(work: dist.Work, begun: object) -> None:
    """Ends an event when its call is over."""
    is_over: torch.futures.Future[None] = torch.futures.Future()
    event = private.end_event_with(begun, is_over)
    if isinstance(work, CallWork):
        work.end_event(event, is_over)
    else:
        later(is_over.set_result, None)
        event.wait()


def _flat(value: object) -> list[torch.Tensor]:
    """Returns the tensors of an argument: a tensor, a list, or a list of lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for one in value for x in _flat(one)] if isinstance(value, list | tuple) else []
