"""Values of small tensors that ranks which run at the same time send each other by collectives.

The virtual NCCL of a rank knows its own data alone, and acts as if all ranks held the same. Where several ranks run,
as stages of a pipeline do, a flag that rank 0 broadcasts must reach the others: they decide by it. So::

    broadcast                  ranks that run get the values of the source, if it runs
    all_gather, all_reduce     each rank that runs sends its values to the others; ranks that do not run have the
                               values of the first one that does
    send, recv on the CPU      the receiver waits for the tensor of a sender that runs

Larger tensors, and other collectives, stay as the virtual NCCL leaves them. A rank whose partner has ended before, as
its counted step came earlier, goes on with its own values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.data import Data
from nvcoll.dryrun.inside.mail import Mail, Waits
from nvcoll.dryrun.inside.tensors import FLOAT_BYTES, WHOLE_BYTES, tensors_of

c10d, functional = torch.ops.c10d, torch.ops._c10d_functional

MOVES = (
    *(c10d.broadcast_, c10d.allreduce_, c10d.allgather_, c10d._allgather_base_),
    *(functional.broadcast, functional.broadcast_, functional.all_reduce, functional.all_reduce_),
    functional.all_gather_into_tensor,
)
"""Operators whose values are exchanged."""

REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor] | None] = {
    "": None,
    **{"sum": lambda rows: rows.sum(0), "avg": lambda rows: rows.mean(0), "product": lambda rows: rows.prod(0)},
    **{"max": lambda rows: rows.amax(0), "min": lambda rows: rows.amin(0)},
}

Values = list[tuple[torch.Tensor, bool]]
"""Tensors of a rank, and whether their values are unknown."""


class Exchange:
    """The collectives of one rank.

    Args:
        mail: the mail of the rank.
        data: its values.
        ranks_of: returns the global ranks of a group by its name.
    """

    def __init__(self, mail: Mail, data: Data, ranks_of: Callable[[str], Sequence[int]]) -> None:
        self._mail, self._data, self._ranks_of = mail, data, ranks_of
        self._noted = "sum"
        """How the last all_reduce reduces that Python called, for torch before 2.14; DDP's own ones add."""

    def install(self) -> None:
        """Takes the collectives of a rank, if another one runs, and what torch before 2.14 leaves out."""
        if not hasattr(dist.ReduceOp, "unbox"):
            private.wrap(dist.ProcessGroup, "allreduce", self._noting)
        if not private.has_uniform_groups():
            self._data.handlers[c10d.allreduce_.default] = self._all_alike
        if len(self._mail.ranks) > 1:
            self._alone = dict(self._data.handlers)
            self._data.handlers |= {move.default: self._moved for move in MOVES}
            self._data.handlers |= {c10d.send.default: self._sent, c10d.recv_.default: self._received}

    def _noting(self, call: Callable[..., object]) -> Callable[..., object]:
        def noting(group: dist.ProcessGroup, tensors: object, *args: Any, **kwargs: Any) -> object:
            how = (*args, *kwargs.values())[0] if args or kwargs else dist.ReduceOp.SUM
            how = getattr(how, "reduceOp", how)
            self._noted = getattr(how, "op", how).name.lower()
            return call(group, tensors, *args, **kwargs)

        return noting

    def _how(self, how: str | torch.ScriptObject) -> str:
        if isinstance(how, str):
            return how.lower()
        return dist.ReduceOp.unbox(how).op.name.lower() if hasattr(dist.ReduceOp, "unbox") else self._noted

    def _all_alike(
        self, op: private.Operator, tensors: list[torch.Tensor], group: torch.ScriptObject, how: Any, *more: object
    ) -> object:
        """Reduces tensors of the CPU as if all ranks held the same, which torch's fake group does since 2.14."""
        result, size = op(tensors, group, how, *more), dist.ProcessGroup.unbox(group).size()
        for each in tensors:
            if not each.is_cuda and self._how(how) in ("sum", "product"):
                each.copy_(each * size if self._how(how) == "sum" else each**size)
        return result

    def _peer(self, tensor: torch.Tensor, group: torch.ScriptObject, peer: int) -> int | None:
        """Returns the global rank to which, or from which, a tensor of the CPU goes; None: it does not run."""
        members = self._ranks_of(dist.ProcessGroup.unbox(group).group_name)
        known = not tensor.is_cuda and peer < len(members) and members[peer] in self._mail.ranks
        return members[peer] if known else None

    def _sent(
        self, op: private.Operator, tensors: list[torch.Tensor], group: torch.ScriptObject, peer: int, *more: object
    ) -> object:
        if (rank := self._peer(tensors[0], group, peer)) is not None:
            self._mail.send(rank, "tensor", tensors[0].detach().clone())
        return op(tensors, group, peer, *more)

    def _received(
        self, op: private.Operator, tensors: list[torch.Tensor], group: torch.ScriptObject, peer: int, *more: object
    ) -> object:
        work = op(tensors, group, peer, *more)
        if (rank := self._peer(tensors[0], group, peer)) is not None:
            tensors[0].copy_(cast(torch.Tensor, self._mail.receive(rank, "tensor")))
        return work

    def _moved(self, op: private.Operator, *args: Any, **kwargs: Any) -> object:
        called: str = op._schema.name
        is_boxed, is_gather = op.namespace == "c10d", "gather" in called
        given = tensors_of(args[1 if is_boxed and is_gather else 0])
        group = args[1 if is_boxed and not is_gather else 2]
        name = group if isinstance(group, str) else dist.ProcessGroup.unbox(group).group_name
        members = self._ranks_of(name)
        running = [rank for rank in members if rank in self._mail.ranks]
        how = args[2 if is_boxed else 1]
        reduction = self._how(how) if "reduce" in called else ""
        most = max((each.numel() * each.element_size() for each in given), default=0)
        if len(running) < 2 or reduction not in REDUCTIONS or most > min(FLOAT_BYTES, WHOLE_BYTES // len(members)):
            alone = self._alone.get(op)
            return alone(op, *args, **kwargs) if alone else NotImplemented
        mine = [(self._data.mirror(each).detach().clone(), self._data.is_unknown(each)) for each in given]
        result = op(*args, **kwargs)
        is_broadcast = "broadcast" in called
        sources = [rank for rank in running if not is_broadcast or rank == members[how]]
        found = self._values(f"{called} {name}".replace("/", "_"), running, sources, mine)
        if found:
            first = next(iter(found.values()))
            rows = [first] if is_broadcast else [found.get(rank, first) for rank in members]
            self._write(tensors_of(args[0] if is_boxed else result), rows, REDUCTIONS[reduction])
        return result

    def _values(self, what: str, running: Sequence[int], sources: Sequence[int], mine: Values) -> dict[int, Values]:
        """Returns the values of the sources; each sends its own to all that run."""
        me = self._mail.rank
        if me in sources:
            for rank in running:
                if rank != me:
                    self._mail.send(rank, what, mine)
        found = {}
        for rank in sources:
            try:
                found[rank] = mine if rank == me else cast(Values, self._mail.receive(rank, what))
            except Waits:
                found[rank] = mine
        return found

    def _write(
        self, outputs: list[torch.Tensor], rows: list[Values], reduction: Callable[[torch.Tensor], torch.Tensor] | None
    ) -> None:
        """Writes values of ranks, a row each, to the outputs: reduced, or one after the other."""
        is_unknown = any(each for row in rows for _, each in row)
        if reduction is not None:
            values = [reduction(torch.stack([one for one, _ in column])) for column in zip(*rows, strict=True)]
        else:  # an output for each input of each rank, by input, or one for all
            values = [one for column in zip(*rows, strict=True) for one, _ in column]
            values = values if len(values) == len(outputs) else [torch.cat([one.flatten() for one in values])]
        for output, value in zip(outputs, values, strict=True):
            self._data.mirror(output).copy_(value.reshape(output.shape))
        self._data.heard(outputs, is_unknown)
