"""Recognises steps of training: a step ends at the optimizer.

A step contains all calls of one optimizer, the one that was called first, between two forward passes. So a step
contains gradient accumulation and the second optimizer of a GAN, and the many calls of a framework that updates
parameters in pieces (DeepSpeed ZeRO-3). Autograd's sequence number shows whether a forward pass was between two calls:
each node of the graph increases it, and an optimizer makes no nodes.

```
calls      A A A       A A A       A A A           A: the optimizer's post hook
forward  F       F F         F F
steps    |---1---|     2     |
                 ^ ops on    ^ stop: the number of calls of step 1
```

A step that is captured in a CUDA graph runs when the graph is launched: then each launch of that graph is a call.
With `--step-at` a step ends when a statement has run. Python's tracing finds that, without a cost for other files.
Without both, writes of parameters are calls (`Writes`).
GradScaler calls its optimizer, as it finds no infinities: large floats are zero.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.wire.statement import Statement

if TYPE_CHECKING:
    from _typeshed import TraceFunction


class Steps:
    """Counts steps, and says when the counted one begins and ends.

    Args:
        wanted: the number of steps to run; the last one counts.
        position: returns the position in the log.
        begin: is called at the end of each call of the optimizer that may be the last before the counted step.
        end: is called when the counted step has ended.
        before: is called before each call of the optimizer in the counted step.
        capture: is called with True when the capture of a CUDA graph begins, with False when it ends.
    """

    def __init__(
        self,
        wanted: int,
        position: Callable[[], int],
        begin: Callable[[], object],
        end: Callable[[], object],
        before: Callable[[], None],
        capture: Callable[[bool], None],
    ) -> None:
        self.wanted, self._position, self._begin, self._end, self._before = wanted, position, begin, end, before
        self._capture, self._captured_step = capture, False
        self.ended: Callable[[int], None] | None = None
        """Is called with the number of each step that has ended, from 1."""
        self.positions: list[int] = []
        self.times: list[float] = []
        self.held: list[int] = []
        """Bytes in tensors at the end of each step."""
        self.optimizer: Optimizer | None = None
        self.has_optimizer = False
        """An optimizer of torch has been called."""
        self.written_at = ""
        """The line that wrote parameters last, if no optimizer of torch does."""
        self._calls: list[int] = []
        self._number = -1
        self._graphs: set[int] = set()

    @property
    def counted(self) -> tuple[int, int]:
        """The positions in the log between which the last step lies; the first step begins with the script."""
        return self.positions[-2] if len(self.positions) > 1 else 0, self.positions[-1]

    def install(self, statement: Statement | None = None) -> None:
        """Hooks all optimizers, or a statement that ends a step in place of them."""
        if statement is not None:
            self._trace(statement)
            return
        register_optimizer_step_pre_hook(lambda optimizer, *_: self._called(optimizer))
        register_optimizer_step_post_hook(lambda optimizer, *_: self._returned(optimizer))

    def watch_graphs(self) -> None:
        """Hooks captures and launches of CUDA graphs."""
        graph = torch.cuda.CUDAGraph
        begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

        def capturing(*args: Any, **kwargs: Any) -> None:
            self._capture(True)
            begin(*args, **kwargs)

        def captured(this: torch.cuda.CUDAGraph) -> None:
            end(this)
            self._capture(False)
            if self._captured_step:
                self._graphs.add(id(this))
            self._captured_step = False

        def replayed(this: torch.cuda.CUDAGraph) -> None:
            replay(this)
            if id(this) in self._graphs:
                self._step(has_forward=True)
            else:  # a forward pass may have been captured, and makes no nodes now
                self._number = -1

        for name, new in (("capture_begin", capturing), ("capture_end", captured), ("replay", replayed)):
            private.replace(graph, name, new)

    def _trace(self, statement: Statement) -> None:
        inside: set[FrameType] = set()
        is_of_file = cache(lambda name: os.path.realpath(name) == statement.file)

        def called(frame: FrameType, _event: str, _arg: object) -> TraceFunction | None:
            return traced if is_of_file(frame.f_code.co_filename) else None

        def traced(frame: FrameType, event: str, _arg: object) -> TraceFunction:
            if event == "line" and statement.first <= frame.f_lineno <= statement.last:
                if frame not in inside and len(self.positions) == self.wanted - 1:
                    self._before()
                inside.add(frame)
            elif frame in inside and event != "exception":
                inside.discard(frame)
                self._step(has_forward=True)
            return traced

        sys.settrace(called)
        threading.settrace(called)

    def _called(self, optimizer: Optimizer) -> None:
        if not self.has_optimizer:
            self._restart()
        if self.optimizer is optimizer and len(self.positions) == self.wanted - 1:
            self._before()

    def _returned(self, optimizer: Optimizer) -> None:
        if self.optimizer is None:
            self.optimizer = optimizer
        if torch.cuda.is_current_stream_capturing():
            self._captured_step = True
            return
        if optimizer is self.optimizer:
            self._step(private.sequence_number() != self._number)

    def _restart(self) -> None:
        """Forgets steps that ended at writes."""
        self.has_optimizer, self.written_at = True, ""
        self.positions, self.times, self.held, self._calls, self._number = [], [], [], [], -1

    def writes_begin(self) -> None:
        """Is called at the first of some writes of parameters, without an optimizer of torch."""
        self.wanted = max(self.wanted, 2)  # the first step shows how many writes are a step
        if len(self.positions) >= self.wanted - 1:
            self._before()

    def wrote(self, line: str) -> None:
        """Is called after a write that may be the last of a step, without an optimizer of torch."""
        self.written_at = line
        self._step(private.sequence_number() != self._number)

    def mark(self) -> None:
        """Ends a step here, whatever ended those before."""
        self.positions.append(0)
        self.times.append(0.0)
        self.held.append(0)
        self._calls.append(0)
        self._note()

    def _note(self) -> None:
        self._calls[-1] += 1
        self.positions[-1], self.times[-1] = self._position(), time.monotonic()
        self.held[-1] = torch.cuda.memory_allocated()
        self._number = private.sequence_number()

    def _step(self, has_forward: bool) -> None:
        if has_forward or not self.positions:
            self.mark()
        else:
            self._note()
        steps = len(self.positions)
        if self.ended is not None and self._calls[-1] == self._calls[0]:
            self.ended(steps)
        if steps == self.wanted and (steps == 1 or self._calls[-1] >= self._calls[-2]):
            self._end()
        elif steps == self.wanted - 1:
            self._begin()
