"""The calls of a process group, by torch's names.

torch calls a method of a process group in two ways: from ``dist.*`` and from C++ (DDP, functional collectives). Both
pass an options object. ``opts.asyncOp`` is False only where the program waits: then the call runs at once, on the
thread of the program, and returns a work that is over. Otherwise nvcoll runs it on the thread of its communicator.

Some calls have two names: `ALIASES` has the names of older and newer torch.

Unlike gloo, nvcoll compares the calls of all ranks and raises at once if they differ, and it accepts strided tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist

import nvcoll
from nvcoll.torch import private
from nvcoll.torch.monitored import monitored_barrier
from nvcoll.torch.profiling import record
from nvcoll.torch.rendezvous import Ranks
from nvcoll.torch.sparse import all_reduce_sparse
from nvcoll.torch.tensors import Parts, array, movable, only, op_of, writing_back
from nvcoll.torch.works import DONE, CallWork, DoneWork, Finish, Together, forget_ended, invalid, torch_error

if TYPE_CHECKING:
    from nvcoll._nvcoll import _Op

Tensors = Sequence[torch.Tensor]


class Rooted(Protocol):
    """torch's options of a call with a root."""

    rootRank: int


ALIASES = {
    "_allgather_base": "all_gather_single",
    "_reduce_scatter_base": "reduce_scatter_single",
    "alltoall_base": "all_to_all_single",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
    "gather_into_tensor": "gather_single",
    "_start_coalescing": "start_coalescing",
    "_end_coalescing": "end_coalescing",
}
"""The older name of a method, and the newer one."""


class Calls:
    """The calls of a process group on a communicator."""

    def _use(self, ranks: Ranks, timeout: timedelta) -> None:
        self._comm, self._leave = ranks.comm, ranks.leave
        self._turn, self._issuing = ranks.turn, ranks.issuing
        self._in_flight: set[CallWork] = set()
        self._block: list[CallWork] | None = None
        self.set_timeout(timeout)

    def rank(self) -> int:
        return self._comm.rank

    def size(self) -> int:
        return self._comm.world_size

    def getBackendName(self) -> str:
        return "nvcoll"

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of calls from now on."""
        self._timeout = timeout
        self._timeout_s = timeout.total_seconds()

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def abort(self) -> None:
        """Ends all calls of this group, on all ranks."""
        self._comm.abort()

    # Reductions

    def allreduce(self, tensors: Tensors, opts: object = None, timeout: timedelta | None = None) -> dist.Work:
        x = only(tensors)
        if x.layout is not torch.strided:
            return all_reduce_sparse(self._comm, x, opts)
        x = array(x)
        op, finish = self._reduction(opts, [x])
        return self._make(opts, tensors, lambda **how: self._comm.all_reduce(x, op, **how), finish)

    def allreduce_coalesced(self, tensors: Tensors, opts: object = None) -> dist.Work:
        xs = [array(x) for x in tensors]
        op, finish = self._reduction(opts, xs)
        return self._make_group(opts, tensors, lambda: [self._comm.all_reduce(x, op) for x in xs], finish)

    def reduce(self, tensors: Tensors, opts: Rooted) -> dist.Work:
        x, root = array(only(tensors)), opts.rootRank
        op, finish = self._reduction(opts, [x])
        finish = finish if self._comm.rank == root else None
        return self._make(opts, tensors, lambda **how: self._comm.reduce(x, op, root=root, **how), finish)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: object = None) -> dist.Work:
        out = array(only(outputs))
        op, finish = self._reduction(opts, [out])
        parts = self._parts(inputs[0], is_read=True)
        counts = None if parts.are_even else parts.counts
        return self._make(
            opts,
            outputs,
            lambda **how: self._comm.reduce_scatter(parts.array, op, counts=counts, out=out, **how),
            finish,
        )

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: object = None) -> dist.Work:
        out, x = array(output), array(input)
        op, finish = self._reduction(opts, [out])
        self._check_shares(out, x, "input")
        return self._make(opts, [output], lambda **how: self._comm.reduce_scatter(x, op, out=out, **how), finish)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: object = None) -> dist.Work:
        pairs = [(array(out), array(x)) for out, x in zip(outputs, inputs, strict=True)]
        op, finish = self._reduction(opts, [out for out, _ in pairs])
        return self._make_group(
            opts, outputs, lambda: [self._comm.reduce_scatter(x, op, out=out) for out, x in pairs], finish
        )

    # Copies

    def broadcast(self, tensors: Tensors, opts: Rooted) -> dist.Work:
        x, root = movable(only(tensors)), opts.rootRank
        return self._make(opts, tensors, lambda **how: self._comm.broadcast(x, root=root, **how))

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: object = None) -> dist.Work:
        x, parts = movable(only(inputs)), self._parts(outputs[0], is_read=False)
        counts = None if parts.are_even else parts.counts
        return self._make(
            opts,
            outputs[0],
            lambda **how: self._comm.all_gather(x, counts=counts, out=parts.array, **how),
            lists=[parts],
        )

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: object = None) -> dist.Work:
        out, x = movable(output), movable(input)
        self._check_shares(x, out, "output")
        return self._make(opts, [output], lambda **how: self._comm.all_gather(x, out=out, **how))

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: object = None) -> dist.Work:
        pairs = [(movable(out), movable(x)) for out, x in zip(outputs, inputs, strict=True)]
        return self._make_group(opts, outputs, lambda: [self._comm.all_gather(x, out=out) for out, x in pairs])

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: object = None) -> dist.Work:
        xs = [movable(x) for x in inputs]
        parts = [self._parts([of_rank[k] for of_rank in outputs], is_read=False) for k in range(len(xs))]
        return self._make_group(
            opts,
            [x for of_rank in outputs for x in of_rank],
            lambda: [self._comm.all_gather(x, out=part.array) for x, part in zip(xs, parts, strict=True)],
            lists=parts,
        )

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Rooted) -> dist.Work:
        x, root = movable(only(inputs)), opts.rootRank
        if self._comm.rank != root:
            return self._make(opts, [], lambda **how: self._comm.gather(x, root=root, **how))
        parts = self._parts(outputs[0], is_read=False)
        return self._make(
            opts,
            outputs[0],
            lambda **how: self._comm.gather(x, root=root, out=parts.array, **how),
            lists=[parts],
        )

    def gather_single(self, output: torch.Tensor | None, input: torch.Tensor, opts: Rooted) -> dist.Work:
        x, root = movable(input), opts.rootRank
        out = movable(output) if self._comm.rank == root and output is not None else None
        results = [] if out is None else [output]
        return self._make(opts, results, lambda **how: self._comm.gather(x, root=root, out=out, **how))

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Rooted) -> dist.Work:
        out, root = movable(only(outputs)), opts.rootRank
        x = self._parts(inputs[0], is_read=True).array if self._comm.rank == root else None
        return self._make(opts, outputs, lambda **how: self._comm.scatter(x, root=root, out=out, **how))

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_splits: Sequence[int] = (),
        input_splits: Sequence[int] = (),
        opts: object = None,
    ) -> dist.Work:
        out, x = movable(output), movable(input)
        if not output_splits and not input_splits:
            self._check_divides(x, "input")
            return self._make(opts, [output], lambda **how: self._comm.all_to_all(x, out=out, **how))
        sent, received = self._row(x, input_splits), self._row(out, output_splits)
        return self._make(
            opts, [output], lambda **how: self._comm.all_to_all(x, counts=sent, recv_counts=received, out=out, **how)
        )

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: object = None) -> dist.Work:
        sent, received = self._parts(inputs, is_read=True), self._parts(outputs, is_read=False)
        return self._make(
            opts,
            outputs,
            lambda **how: self._comm.all_to_all(
                sent.array, counts=sent.counts, recv_counts=received.counts, out=received.array, **how
            ),
            lists=[received],
        )

    def barrier(self, opts: object = None, timeout: timedelta | None = None) -> dist.Work:
        return self._make(opts, [], lambda **how: self._comm.barrier(**how))

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        limit = self._timeout if timeout is None else timeout
        monitored_barrier(self._comm, limit, wait_all_ranks=wait_all_ranks)

    # Messages

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> dist.Work:
        return self._message(tensors, lambda x, s: self._comm.isend(x, dst, tag=tag, timeout=s))

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> dist.Work:
        return self._message(tensors, lambda x, s: self._comm.irecv(x, src, tag=tag, timeout=s))

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        return self._message(tensors, lambda x, s: self._comm.irecv(x, tag=tag, timeout=s))

    # Coalescing: each call of a block runs as it comes

    def start_coalescing(self, device: torch.device | None = None) -> None:
        self._block = []

    def end_coalescing(self, device: torch.device | None = None) -> dist.Work:
        """Returns the work of all calls issued since `start_coalescing`."""
        works, self._block = self._block, None
        if not works:
            return DONE
        return CallWork(Together(works), [x for one in works for x in one.result()])

    # How a call is made

    def _reduction(self, opts: object, outputs: Tensors) -> tuple[_Op, Finish | None]:
        """Returns nvcoll's op, and what is left to do: NCCL divides the sum of integers by the number of ranks."""
        op = op_of(opts)
        whole = [x for x in outputs if not (x.is_floating_point() or x.is_complex() or x.dtype is torch.bool)]
        if op != "avg" or not whole:
            return op, None
        n = self._comm.world_size

        def divide() -> None:
            for x in whole:
                if x.dtype.is_signed:
                    x.div_(n, rounding_mode="trunc")
                else:  # torch does not divide all of these
                    x.numpy()[...] //= n

        return "sum", divide

    def _make(
        self,
        opts: object,
        results: Tensors,
        call: Callable[..., Any],
        finish: Finish | None = None,
        lists: Sequence[Parts] = (),
    ) -> dist.Work:
        """Makes a call at once, or issues it.

        Args:
            opts: the options, or an op, or None.
            results: the tensors that the future of the work returns.
            call: takes ``timeout`` and ``async_op``.
            finish: what is left to do when the call is over.
            lists: the lists of tensors that it writes.
        """
        finish = finish or writing_back(lists)
        timeout = _seconds(getattr(opts, "timeout", None)) or self._timeout_s
        try:
            if getattr(opts, "asyncOp", True):
                with self._issuing:
                    return self._issued(call(timeout=timeout, async_op=True), results, finish, lists)
            with self._turn:
                try:
                    call(timeout=timeout)
                except nvcoll.Busy:  # a call before it uses an array: calls that are issued run in order
                    call(timeout=timeout, async_op=True).wait()
        except nvcoll.Error as error:
            raise torch_error(error) from error
        if finish is not None:
            finish()
        if self._in_flight:
            forget_ended(self._in_flight)
        return DONE

    def _make_group(
        self,
        opts: object,
        results: Tensors,
        calls: Callable[[], object],
        finish: Finish | None = None,
        lists: Sequence[Parts] = (),
    ) -> dist.Work:
        """Makes several calls together: see `_make`. They are issued in any case, so that locks are held briefly."""
        timeout = _seconds(getattr(opts, "timeout", None)) or self._timeout_s
        try:
            with self._turn, self._issuing:
                with self._comm.group(timeout=timeout, async_op=True) as group:
                    calls()
                if group.work is None:
                    return DoneWork(results)
                work = self._issued(group.work, results, finish or writing_back(lists), lists)
        except nvcoll.Error as error:
            raise torch_error(error) from error
        if not getattr(opts, "asyncOp", True):
            work.wait()
        return work

    def _message(self, tensors: Tensors, begin: Callable[[torch.Tensor, float | None], nvcoll.Work]) -> dist.Work:
        try:
            with self._issuing:
                return self._remembered(CallWork(begin(movable(only(tensors)), self._timeout_s), tensors))
        except nvcoll.Error as error:
            raise torch_error(error) from error

    def _issued(self, work: nvcoll.Work, results: Tensors, finish: Finish | None, lists: Sequence[Parts]) -> CallWork:
        for parts in lists:
            if parts.is_copy:
                work._keep(parts.tensors)
        return self._remembered(CallWork(work, results, finish, self._in_flight))

    def _remembered(self, work: CallWork) -> CallWork:
        """Adds a work to the coalescing block, if there is one."""
        if self._block is not None:
            self._block.append(work)
        return work

    def _parts(self, tensors: Tensors, *, is_read: bool) -> Parts:
        if len(tensors) != self._comm.world_size:
            raise invalid(f"found a list of {len(tensors)} tensors, expected {self._comm.world_size}: one per rank")
        parts = Parts(tensors)
        if not parts.is_copy:
            return parts
        try:
            self._comm._refuse_in_flight(parts.tensors, not is_read)
        except nvcoll.Error as error:
            raise torch_error(error) from error
        if is_read:
            self._wait_for_writers(tensors)
            parts.copy()
        return parts

    def _wait_for_writers(self, tensors: Tensors) -> None:
        """Waits for the calls in flight that write to the memory of tensors. Peers may wait in others."""
        for work in list(self._in_flight):
            if work.writes(tensors):
                work.wait(self._timeout)

    def _check_shares(self, part: torch.Tensor, whole: torch.Tensor, name: str) -> None:
        n = self._comm.world_size
        if whole.numel() != n * part.numel():
            raise invalid(
                f"the {name} has {whole.numel()} elements, expected {n * part.numel()}: world_size {n} x {part.numel()}"
            )

    def _check_divides(self, x: torch.Tensor, name: str) -> None:
        n = self._comm.world_size
        if x.numel() and x.shape[0] % n:
            raise invalid(f"the {name} has {x.shape[0]} rows, expected a multiple of {n}: pass split sizes")

    def _row(self, x: torch.Tensor, splits: Sequence[int]) -> list[int]:
        """Returns elements per rank from the split sizes of torch, which count along the first axis."""
        n = self._comm.world_size
        if not splits:
            self._check_divides(x, "tensor")
            return [x.numel() // n] * n
        if len(splits) != n or sum(splits) != x.shape[0]:
            raise invalid(
                f"found split sizes {list(splits)}, expected {n} numbers with the sum {x.shape[0]}, the number of rows"
            )
        width = x[0].numel() if x.shape[0] else 0
        return [rows * width for rows in splits]


record(Calls)

for _old, _new in ALIASES.items():
    setattr(Calls, _old, getattr(Calls, _new))


private.leave_untraced(Calls)


def _seconds(timeout: timedelta | None) -> float | None:
    """Returns the seconds of a timeout; None if it is not set."""
    if timeout is None or timeout <= timedelta(0):
        return None
    return timeout.total_seconds()
