"""The operators of torch: each passes here before it runs, from the start of the script to its end.

```
operator -> large floats of the CPU (hosts), values of the host and shapes that are data (data)
         -> the real operator, with its number set in the virtual GPU: launches carry it
         -> its results get their values (data), and in the counted step it gets a row (Operators)
```

Subclasses of tensors (DTensor, FP8) make plain operators first; torch.compile still compiles
(`ignore_compile_internals`). Operators that read values back below the dispatcher (`Rule.reads_back`) run with their
inner operators seen, for values alone: they get no rows.

Cost, measured on two busy cores, torch's own included: 12 us for an operator on large tensors, 23 us for one that is
computed, and about 75 us more in the counted step (shapes, FLOPs, line, memory in use).

The line of a backward operator is the line of its forward operator: a node of autograd's graph has the number that was
current when the operator ran. Operators without a node have the line of `backward()`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Lock, get_ident, local

import torch

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.data import Data
from nvcoll.dryrun.inside.gpu import Gpu
from nvcoll.dryrun.inside.hosts import without_values
from nvcoll.dryrun.inside.lines import NO_LINE, Lines
from nvcoll.dryrun.inside.memory import MemoryWatch
from nvcoll.dryrun.inside.rules import Args, Kwargs, Rule, bytes_of
from nvcoll.dryrun.inside.seen import WHOLE, Seen, seen_of
from nvcoll.dryrun.inside.tensors import IS_PLAIN, Parts, is_whole, leaves_of, tensors_of
from nvcoll.dryrun.inside.writes import Writes
from nvcoll.dryrun.wire.rank_recording import EMBEDDING, Op

INPUTS = 4
"""The most tensors whose shapes a row keeps. Chosen: query, key and value, and a mask."""


Shapes = tuple[tuple[tuple[int, ...], str], ...]
"""Shapes and types of tensors."""

NOTHING = Op("")
"""The row of no operator, and of one that raised."""


class Begun(local):
    """The numbers of operators that a thread has begun and not ended, outermost first."""

    def __init__(self) -> None:
        self.numbers: list[int] = []


class Operators:
    """The rows of operators in the counted step."""

    def __init__(self, gpu: Gpu, lines: Lines, memory: MemoryWatch) -> None:
        self._gpu, self._lines, self._memory = gpu, lines, memory
        self.is_on = False
        self.host_ops = 0
        self.captures = 0
        """CUDA graphs that were captured."""
        self._last_collective = 0
        self._rows, self._lock, self._begun = [NOTHING], Lock(), Begun()
        self._kept, self._was_on = 1, False
        self._by_sequence: dict[int, int] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._moved: dict[int, set[int]] = {}
        """Addresses of tensors that kernels with rows of their own move, by the number of the operator around them."""
        self._storages: list[object] = []
        """Weak references to the memory that `_numbers` has: memory that comes later is another one."""
        self.without_gradients = Counter[int]()
        """FLOPs of forward passes without gradients in the step, by the line that calls them."""
        self.passes = [(0, NO_LINE)]
        """The operators at which passes of the step begin, each with the line that calls it; 0: training."""
        self.before: dict[int, int] = {}
        """The last position in the log at which each line called a forward pass without gradients before the step."""
        self._trains = True
        self.table = (0, 0)
        """Rows of tables of integers that a server has for its requests, and how many of them an iteration touches."""
        self.saves: list[str] = []
        """Lines that called `torch.save` in the step."""

    def start(self) -> None:
        """Starts a step, without rows. Rows of operators in a CUDA graph stay: its launches carry their numbers."""
        self.is_on, self.host_ops, self._last_collective, self.passes = True, 0, 0, [(0, NO_LINE)]
        self.before |= dict.fromkeys(self.without_gradients, self._gpu.count())
        self._rows = self._rows[: self._kept]
        self._by_sequence = {}
        self._moved.clear()
        self.without_gradients.clear()
        self.saves.clear()

    def capture(self, begins: bool) -> None:
        """Notes that the capture of a CUDA graph begins, or ends."""
        if begins:
            self._was_on, self.is_on = self.is_on, True
            self.captures += 1
        else:
            self.is_on, self._kept = self._was_on, len(self._rows)

    def ops(self) -> list[Op]:
        """Returns the rows."""
        return list(self._rows)

    def begin(self) -> int:
        """Gives an operator its number, which launches carry from now on."""
        with self._lock:  # threads of the script begin operators at the same time
            self._rows.append(NOTHING)
            number = len(self._rows) - 1
        self._carry(number)
        return number

    @property
    def is_within(self) -> bool:
        """Whether this thread has begun an operator: it launches what functions that it calls launch."""
        return bool(self._begun.numbers)

    def _carry(self, number: int) -> None:
        self._begun.numbers.append(number)
        self._gpu.set_op(number)

    def leave(self) -> None:
        """Ends the operator: launches carry the number of the operator around it, if there is one."""
        self._begun.numbers.pop()
        self._gpu.set_op(self._begun.numbers[-1] if self.is_within else 0)

    def end(
        self,
        number: int,
        rule: Rule,
        args: Args,
        kwargs: Kwargs,
        inputs: list[torch.Tensor],
        result: object,
        seen: Seen,
    ) -> None:
        """Writes the row of an operator; `seen` is that of attention."""
        if rule.is_collective:
            self._last_collective = number
        line, is_backward = self._line()
        moved = self._moved.pop(number, None)
        on_gpu = [each for each in (*inputs, *tensors_of(result)) if each.is_cuda]
        if moved and not rule.attends:
            on_gpu = [each for each in on_gpu if each.data_ptr() not in moved]
        flops = rule.flops_of(args, kwargs, result) if on_gpu and not isinstance(inputs, Parts) else 0
        is_first = on_gpu and self._trains != torch.is_grad_enabled()
        caller = self._without_gradients() if flops or is_first or EMBEDDING in rule.shown else NO_LINE
        if flops:
            if caller:
                self.without_gradients[caller] += flops
            if caller != self.passes[-1][1]:
                self.passes.append((number, caller))
        size = rule.bytes_of(args, kwargs, inputs, on_gpu, seen.read)
        shapes = tuple(_shape(each) for each in seen.tensors or rule.read_of(args, kwargs, inputs)[:INPUTS])
        if on_gpu:
            self._memory.look(line, is_backward)
        if number < len(self._rows):  # else another thread has begun a step meanwhile
            numbers = self._numbers_of(rule.shown, inputs)
            row = rule.shown, flops, size, shapes, line, is_backward, seen.is_causal, numbers, not caller, seen.pairs
            self._rows[number] = Op(*row)

    @contextmanager
    def kernel(
        self,
        name: str,
        tensors: list[torch.Tensor],
        seen: Seen = WHOLE,
        is_bound: bool = False,
        shapes: Shapes = (),
    ) -> Iterator[None]:
        """Writes the row of a compiled kernel, which is launched inside of `with`; `is_bound` is as in the row.

        The row keeps `shapes`, if there are some, and else those of the first tensors.
        Tensors that it returns may be appended to `tensors`.
        """
        if not self.is_on:
            yield
            return
        self.host_ops += 1
        line, is_backward = self._line()
        if self.is_within:
            self._moved.setdefault(self._begun.numbers[-1], set()).update(each.data_ptr() for each in tensors)
        number = self.begin()
        try:
            yield
        finally:
            self.leave()
            size = sum(seen.read.get(id(each), self._bytes_of(each)) for each in tensors)
            shapes = shapes or tuple(_shape(each) for each in seen.tensors or tensors[:INPUTS])
            row = name, 0, size, shapes, line, is_backward, seen.is_causal, self._numbers_of(name, tensors)
            if number < len(self._rows):  # else another thread has begun a step meanwhile
                self._rows[number] = Op(*row, pairs=seen.pairs, is_bound=is_bound)

    def _bytes_of(self, tensor: torch.Tensor) -> int:
        rows, touched = self.table
        part = touched / rows if rows and is_whole(tensor) and tensor.dim() > 1 and len(tensor) == rows else 1
        return int(part * bytes_of(tensor))

    def _numbers_of(self, name: str, tensors: list[torch.Tensor]) -> tuple[int, ...]:
        found = []
        for each in tensors[:INPUTS] if EMBEDDING in name else ():
            storage = private.StorageWeakRef(each.untyped_storage())
            key = storage.cdata, each.storage_offset(), each.shape, each.stride()
            if key not in self._numbers:
                self._storages.append(storage)
            found.append(self._numbers.setdefault(key, len(self._numbers) + 1))
        return tuple(found)

    def again(self) -> AbstractContextManager[None]:
        """Makes launches carry the last collective's number: NCCL gets messages of a batch when the batch ends."""
        return self._of(self._last_collective)

    @contextmanager
    def _of(self, number: int) -> Iterator[None]:
        self._carry(number)
        try:
            yield
        finally:
            self.leave()

    def look(self, rule: Rule) -> None:
        """Notes an operator before the step, if it is of a forward pass without gradients."""
        if torch.is_grad_enabled():
            self._trains = True
        elif rule.has_flops and (caller := self._without_gradients()):
            self.before[caller] = self._gpu.count()

    def _without_gradients(self) -> int:
        """Returns the line that calls a pass without gradients; 0: training, as before a function of autograd."""
        if torch.is_grad_enabled() or private.current_node() is not None:
            self._trains = True
            return NO_LINE
        line = self._lines.without_gradients(self._trains)
        self._trains = not line
        return line

    def _line(self) -> tuple[int, bool]:
        node, here = private.current_node(), self._lines.here(3)
        if node is None:
            if here:
                self._by_sequence.setdefault(private.sequence_number() - 1, here)
            return here or self._lines.of_training(), False
        forward = self._by_sequence.get(node._sequence_nr(), 0)
        return here or forward or self._lines.of_training(), True


def _shape(tensor: torch.Tensor) -> tuple[tuple[int, ...], str]:
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


class Watch(private.Mode):
    """Sees every operator of the threads of the script."""

    supports_higher_order_operators = True

    def __init__(
        self,
        recorder: Operators,
        data: Data,
        lines: Lines,
        writes: Writes | None,
        rules: dict[object, Rule] | None = None,
        is_within: bool = False,
    ) -> None:
        super().__init__()
        self._recorder, self._data, self._lines, self._writes = recorder, data, lines, writes
        self._rules: dict[object, Rule] = {} if rules is None else rules
        self._thread, self._is_within = get_ident(), is_within

    def of_thread(self) -> Watch:
        """Returns the same watch for this thread."""
        return Watch(self._recorder, self._data, self._lines, self._writes, self._rules)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Lets torch.compile compile in this mode."""
        return True

    def __torch_dispatch__(
        self, op: private.Operator, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if types and not all([IS_PLAIN[kind] for kind in types]):
            is_traced = private.FakeTensor in types or private.FunctionalTensor in types
            return op(*args, **kwargs) if is_traced else NotImplemented
        if args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            return op(*args, **kwargs)
        rule = self._rules.get(op)
        if rule is None:
            if isinstance(op, private.HigherOrderOperator):
                return op(*args, **kwargs)
            rule = self._rules[op] = Rule(op)
            rule.handler = self._data.handlers.get(op)
        inputs = tensors_of(args, kwargs)
        if inputs and inputs[0].is_meta:
            return op(*args, **kwargs)
        recorder = self._recorder
        if self._is_within or not recorder.is_on or self._is_beside(kwargs, inputs):
            result = self._run(rule, args, kwargs, inputs)
            self._data.ran(rule, args, kwargs, inputs, result)
            if not recorder.is_on:
                recorder.look(rule)
            self._ran(rule, args, kwargs)
            return result
        recorder.host_ops += 1
        number = recorder.begin()
        try:
            result = self._run(rule, args, kwargs, inputs)
        finally:
            recorder.leave()
        seen = seen_of(rule.named(args, kwargs), self._data) if rule.attends else WHOLE
        recorder.end(number, rule, args, kwargs, inputs, result, seen)
        self._data.ran(rule, args, kwargs, inputs, result)
        self._ran(rule, args, kwargs)
        return result

    def _ran(self, rule: Rule, args: Args, kwargs: Kwargs) -> None:
        if rule.is_mutable and self._writes is not None:
            self._writes.ran(rule, args, kwargs)

    def _is_beside(self, kwargs: Kwargs, inputs: list[torch.Tensor]) -> bool:
        """Says whether an operator is none of the step: work on the CPU in another thread than that which trains."""
        if self._thread == self._lines.training or any(each.is_cuda for each in inputs):
            return False
        return bool(torch.device(kwargs.get("device") or "cpu").type != "cuda")

    def _run(self, rule: Rule, args: Args, kwargs: Kwargs, inputs: list[torch.Tensor]) -> object:
        handler = rule.handler
        result = handler(rule.op, *args, **kwargs) if handler is not None else NotImplemented
        if result is NotImplemented and rule.shape_is_data and handler is None:
            result = self._data.shape_is_data(rule, args, kwargs, inputs)
        if result is NotImplemented:
            result = without_values(rule, args, kwargs, inputs, self._lines)
        if result is not NotImplemented:
            return result
        is_open = rule.reads_back or (self._is_within and rule.is_composite)
        if (is_open or (isinstance(inputs, Parts) and not rule.leaves_data)) and any(each.is_cuda for each in inputs):
            return self._open(rule, args, kwargs)
        if not rule.is_random:
            return rule.op(*args, **kwargs)
        with self._data.drawing:  # not from the generator with which another thread has replaced the script's
            return rule.op(*args, **kwargs)

    def _open(self, rule: Rule, args: Args, kwargs: Kwargs) -> object:
        """Runs an operator with its inner operators seen: the kernel decides by values that it reads back."""
        inner = Watch(self._recorder, self._data, self._lines, None, self._rules, is_within=True)
        with self._data.within(rule.mutated(args, kwargs)), inner:
            return rule.op.redispatch(private.kernel_keys(leaves_of(args, kwargs)), *rule.tensors_for(args), **kwargs)
