"""The arrays of a timed collective: inputs, outputs, and the data written before each call.

::

                 in place                              out of place
    all_reduce   one array per rank                    two arrays per rank
    all_gather   the input is a slice of the output    two arrays per rank
    reduce       the root's array takes the result     one more array on the root

The size of a call is a rank's longer buffer, as in nccl-tests: of all_gather, gather and scatter the total, of
reduce_scatter and all_to_all what a rank sends (``max(sendBytes, recvBytes)`` in its ``common.cu``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

import nvcoll
from nvcoll import InvalidArgument, Schedule
from nvcoll._nvcoll import collectives

Array = np.ndarray[Any, Any]

HAS_ROOT = {row.name: row.has_root for row in collectives()}
CAN_BE_IN_PLACE = {row.name: row.can_be_in_place for row in collectives()}
FOLDS = {row.name: row.folds != "nothing" for row in collectives()}


def root_of(collective: str, ranks: int, root: int | None) -> int:
    """Returns the root that ``--root`` names.

    Raises:
        InvalidArgument: the collective has none, or it is no rank.
    """
    if root is not None and not HAS_ROOT[collective]:
        raise InvalidArgument(f"{collective} has no root: leave out --root")
    if root is not None and not 0 <= root < ranks:
        raise InvalidArgument(f"--root is {root}: the ranks are 0 to {ranks - 1}")
    return root or 0


@cache
def _held(collective: str) -> list[tuple[list[int], list[int]]]:
    """Returns the chunks of the inputs and outputs of two ranks; rank 0 is the root."""
    schedule = nvcoll.schedule(collective, "auto", world_size=2, in_place=False)
    return [schedule.chunks_of(rank) for rank in range(2)]


def writes_its_arrays(collective: str) -> bool:
    """Says whether a call without ``out`` writes the arrays that it is given: input and output hold the same parts."""
    return all(x == y for x, y in _held(collective) if x and y)


class Layout:
    """The elements of the input and the output of every rank: their number, and their place in the whole."""

    def __init__(self, schedule: Schedule, count: int) -> None:
        self.collective, self.world_size, self.root = schedule.collective, schedule.world_size, schedule.root
        self._counted = [end - start for start, end in schedule.chunk_ranges(count)]
        self.chunks = [schedule.chunks_of(rank) for rank in range(self.world_size)]
        self.inputs, self.outputs = (
            [sum(self._counted[chunk] for chunk in held[side]) if held[side] else None for held in self.chunks]
            for side in (0, 1)
        )

    def slices(self, rank: int, side: int) -> dict[int, slice]:
        """Returns where the input (side 0) or the output (1) of a rank has each chunk of the collective."""
        slices, at = {}, 0
        for chunk in self.chunks[rank][side]:
            slices[chunk] = slice(at, at + self._counted[chunk])
            at += self._counted[chunk]
        return slices

    def shorter_in_longer(self, rank: int) -> slice:
        """Returns where in its longer side, in place, a rank has its shorter."""
        longer, shorter = sorted(self.chunks[rank], key=len, reverse=True)
        start = self.slices(rank, self.chunks[rank].index(longer))[shorter[0]].start
        return slice(start, start + sum(self._counted[chunk] for chunk in shorter))

    def elements(self, forms: Sequence[bool], algorithms: int) -> int:
        """Returns about the number of elements of a case: data, calls in these forms, and the oracle's arrays."""
        both = sum(count or 0 for count in (*self.inputs, *self.outputs))
        return both * (len(forms) + 2) + algorithms * max(count or 0 for count in self.outputs)


class Operands:
    """The arrays of calls in one form, shared by all candidates that are timed."""

    def __init__(self, layout: Layout, data: Sequence[Array | None], in_place: bool) -> None:
        """Makes the arrays.

        Args:
            layout: their elements.
            data: the input of each rank, None for a rank without input. It is not changed.
            in_place: input and output of a rank share memory.
        """
        self.layout, self.data, self.in_place = layout, data, in_place
        self._allocate = partial(np.empty, dtype=next(x.dtype for x in data if x is not None))
        self.inputs: list[Array | None] = []
        self.outputs: list[Array | None] = []
        for rank, (sent, received) in enumerate(zip(layout.inputs, layout.outputs, strict=True)):
            x, y = (None if count is None else self._allocate(count) for count in (sent, received))
            if in_place and x is not None and y is not None:
                if x.size < y.size:
                    x = y[layout.shorter_in_longer(rank)]
                else:
                    y = x[layout.shorter_in_longer(rank)]
            self.inputs.append(x)
            self.outputs.append(y)
        self._temporaries: dict[str, Array] = {}

    def temporary(self, name: str, like: Array) -> Array:
        """Returns one more array, the same in every call."""
        if name not in self._temporaries:
            self._temporaries[name] = np.empty_like(like)
        return self._temporaries[name]

    def rewrite(self) -> None:
        """Writes zeros where ranks have outputs, and the data where they have their inputs."""
        for x, y in zip(self.inputs, self.outputs, strict=True):
            if y is not None and not (self.in_place and x is not None and x.size >= y.size):
                y.view("u1").fill(0)
        self.rewrite_inputs()

    def rewrite_inputs(self) -> None:
        """Writes the data where ranks have their inputs."""
        for x, fresh in zip(self.inputs, self.data, strict=True):
            if x is not None and fresh is not None:
                np.copyto(x, fresh)

    @property
    def results(self) -> list[Array]:
        """The outputs of the ranks that have one."""
        return [y for y in self.outputs if y is not None]

    def arguments(self) -> tuple[Any, Any]:
        """Returns the arguments of a call of a node: arrays and ``out``."""
        collective, root = self.layout.collective, self.layout.root
        if self.in_place and writes_its_arrays(collective):
            return [x if x is not None else y for x, y in zip(self.inputs, self.outputs, strict=True)], None
        has_input, has_output = _held(collective)[1]  # of a rank that is not the root
        arrays = self.inputs if has_input or writes_its_arrays(collective) else self.inputs[root]
        return arrays, self.outputs if has_output else self.outputs[root]

    def arguments_of(self, rank: int) -> tuple[Array | None, Array | None]:
        """Returns the arguments of a call of one rank: array and ``out``."""
        x, y = self.inputs[rank], self.outputs[rank]
        if self.in_place and writes_its_arrays(self.layout.collective):
            return (y if x is None else x), None
        if x is not None and y is None and not HAS_ROOT[self.layout.collective]:  # exscan: the first has no result
            y = self._temporaries.setdefault("out", self._allocate(x.size))
        return x, y

    def options(self, op: Any) -> dict[str, Any]:
        """Returns the further arguments of a call: op and root."""
        options: dict[str, Any] = {"op": op} if FOLDS[self.layout.collective] else {}
        return options | ({"root": self.layout.root} if HAS_ROOT[self.layout.collective] else {})


def distinct(new: Array, known: list[Array], count_unequal: Callable[[Array, Array], int]) -> Array:
    """Returns the known array that has the bits of ``new``; remembers ``new`` if there is none."""
    for other in known:
        if other.size == new.size and count_unequal(other, new) == 0:
            return other
    known.append(new)
    return new
