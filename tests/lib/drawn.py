"""One call of any collective, made from a few choices: arrays between guard bytes, and the bits that must come out.

A choice that leaves something open (counts, `out`) is made in every way in which a caller may leave it open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

import nvcoll
from nvcoll import oracle
from nvcoll._nvcoll import algorithms, collectives, dtypes, ops


def dtype_named(name: str) -> np.dtype:
    """Returns the dtype of a registered name."""
    return np.dtype(getattr(ml_dtypes, name, name))


HAS_ROOT = {row.name: row.has_root for row in collectives()}
CAN_BE_IN_PLACE = {row.name: row.can_be_in_place for row in collectives()}
FOLDS = {row.name: row.folds for row in collectives()}
ROWS = [(row.collective, row.name) for row in algorithms() if row.collective != "barrier"]
PAIRS = [(row.name, dtype) for row in ops() for dtype in row.dtypes]
DTYPES = [row.name for row in dtypes()]
OF_ONE_PART = ("all_reduce", "broadcast", "reduce", "scan", "exscan")
FORMS = ("in place", "out", "new")


def pairs_of(collective: str) -> list[tuple[str, str]]:
    """Returns the ops and dtypes of a collective."""
    if FOLDS[collective] == "nothing":
        return [("sum", name) for name in DTYPES]
    return [(op, d) for op, d in PAIRS if FOLDS[collective] == "everyone" or op not in ("avg", "premul_sum")]


def forms_of(collective: str) -> list[str]:
    """Returns the ways in which the result of a collective can be asked for."""
    none = "new" if collective in OF_ONE_PART else None if CAN_BE_IN_PLACE[collective] else "in place"
    return [form for form in FORMS if form != none]


def parts_of(collective: str, world_size: int) -> int:
    if collective in OF_ONE_PART:
        return 1
    return world_size**2 if collective == "all_to_all" else world_size


def special_values(dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return np.array([0, 1, 2, 0x80, 0xFF], "u1").view(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, info.max, max(info.min, -1), 0, 1], dtype)
    if dtype.kind == "c":
        parts = special_values(dtype.type(0).real.dtype)
        return np.stack(np.meshgrid(parts, parts), axis=-1).view(dtype).ravel()
    info = ml_dtypes.finfo(dtype)
    extremes = [float(info.max), float(info.min), float(info.smallest_subnormal), float(info.smallest_normal)]
    return np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1.0, *extremes]).astype(dtype)


def contents(rng: np.random.Generator, dtype: np.dtype, count: int, is_special: bool) -> np.ndarray:
    if is_special:
        return rng.choice(special_values(dtype), count)
    if dtype.kind in "iub":
        return rng.integers(0, 256, count * dtype.itemsize, "u1").view(dtype)
    if dtype.kind == "c":
        return rng.normal(size=2 * count).astype(dtype.type(0).real.dtype).view(dtype)
    return rng.normal(size=count).astype(dtype)


class Guarded:
    """An array between guard bytes, at an odd offset if asked for, in memory of `allocate`."""

    def __init__(self, value: np.ndarray, offset: int, allocate: Callable[[int], np.ndarray]) -> None:
        self.memory = allocate(value.nbytes + 192)
        self.memory[...] = 0xA5
        self.start, self.end = 64 + offset, 64 + offset + value.nbytes
        self.array = self.memory[self.start : self.end].view(value.dtype)
        self.array[...] = value

    def is_intact(self) -> bool:
        return bool((self.memory[: self.start] == 0xA5).all() and (self.memory[self.end :] == 0xA5).all())


@dataclass
class Choice:
    """What is called. `counts` is a number that is cut into parts as a call does, or the elements of every part."""

    collective: str
    algorithm: str
    world_size: int
    counts: int | list[int]
    op: str = "sum"
    dtype: str = "float32"
    root: int = 0
    path: str | None = "mapped"
    form: str = "in place"
    is_special: bool = False
    offset: int = 0
    seed: int = 0
    says_counts: bool = True


@dataclass
class Rank:
    """What one rank brings, and what must come out."""

    x: np.ndarray | None = None
    out: np.ndarray | None = None
    expected: np.ndarray | None = None
    unchanged: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


class Call:
    """A call that can be made once: by a node, or by its ranks. `allocate` gives a rank memory of a number of bytes."""

    def __init__(
        self,
        choice: Choice,
        *,
        is_spmd: bool,
        allocate: Callable[[int, int], np.ndarray] = lambda _, nbytes: np.empty(nbytes, "u1"),
    ) -> None:
        self.choice = c = choice
        self.allocate = allocate
        rng = np.random.default_rng(c.seed)
        self.in_place = c.form == "in place"
        # Ranks of a rooted call cannot know whether the root is in place; see operands.rs.
        is_lowered_in_place = (
            c.collective != "scatter" or c.world_size == 1 if self._is_rooted_spmd(is_spmd) else self.in_place
        )
        self.schedule = nvcoll.schedule(
            c.collective, c.algorithm, world_size=c.world_size, root=c.root, in_place=is_lowered_in_place
        )
        self.counted = [end - start for start, end in self.schedule.chunk_ranges(c.counts)]
        self.dtype = dtype_named(c.dtype)
        self.guards: list[Guarded] = []
        self.passed: dict[int, np.ndarray | None] = {}
        self.scalars = [float(s) for s in rng.integers(0 if self.dtype.kind == "u" else -4, 5, c.world_size)]
        inputs = [self._input(rng, rank) for rank in range(c.world_size)]
        with np.errstate(all="ignore"):
            expected = oracle.run(self.schedule, inputs, c.counts, c.op, self.scalars)
        self.ranks = [self._rank(rank, x, y) for rank, (x, y) in enumerate(zip(inputs, expected, strict=True))]

    def _is_rooted_spmd(self, is_spmd: bool) -> bool:
        return is_spmd and HAS_ROOT[self.choice.collective]

    def _input(self, rng: np.random.Generator, rank: int) -> np.ndarray | None:
        chunks = self.schedule.chunks_of(rank)[0]
        count = sum(self.counted[chunk] for chunk in chunks)
        return contents(rng, self.dtype, count, self.choice.is_special) if chunks else None

    def _guarded(self, value: np.ndarray, rank: int) -> np.ndarray:
        width, offset = self.dtype.itemsize, self.choice.offset
        # numpy views of ml_dtypes' types must be aligned.
        offset = offset if self.dtype.kind != "V" or offset % width == 0 else 0
        self.guards.append(Guarded(value, offset, lambda nbytes: self.allocate(rank, nbytes)))
        return self.guards[-1].array

    def _rank(self, rank: int, x: np.ndarray | None, y: np.ndarray | None) -> Rank:
        garbage = lambda like: np.full_like(like, 85)  # noqa: E731
        brought = Rank(expected=y)
        if not self.in_place or x is None or y is None:
            if x is not None:
                brought.x = self._guarded(x, rank)
                brought.x.flags.writeable = False
                brought.unchanged.append((brought.x, x))
            if y is not None and self.choice.form != "new":
                brought.out = self._guarded(garbage(y), rank)
            return brought
        if len(self.schedule.chunks_of(rank)[0]) < len(self.schedule.chunks_of(rank)[1]):
            whole, part = self._guarded(garbage(y), rank), self._part(rank, 1, x.size)
            whole[part] = x
            brought.x, brought.out = whole[part], whole
            return brought
        whole, part = self._guarded(x, rank), self._part(rank, 0, y.size)
        brought.x, brought.out = whole, whole[part]
        brought.unchanged += [(whole[: part.start], x[: part.start]), (whole[part.stop :], x[part.stop :])]
        return brought

    def _part(self, rank: int, side: int, count: int) -> slice:
        """Returns where in its longer side, in place, a rank has its shorter."""
        longer, shorter = self.schedule.chunks_of(rank)[side], self.schedule.chunks_of(rank)[1 - side]
        start = sum(self.counted[chunk] for chunk in longer[: longer.index(shorter[0])])
        return slice(start, start + count)

    def _options(self, op: object) -> dict[str, object]:
        c = self.choice
        options: dict[str, object] = {"algorithm": c.algorithm, "path": c.path}
        if FOLDS[c.collective] != "nothing":
            options["op"] = op
        if HAS_ROOT[c.collective]:
            options["root"] = c.root
        return options

    def _table(self) -> list:
        """Returns the elements of every part."""
        c = self.choice
        per_part = len(self.counted) // parts_of(c.collective, c.world_size)
        return [sum(self.counted[at : at + per_part]) for at in range(0, len(self.counted), per_part)]

    def drive(self, node: nvcoll.Node, **more) -> None:
        """Makes the call for all ranks and checks it."""
        c = self.choice
        options = self._options(nvcoll.premul_sum(self.scalars) if c.op == "premul_sum" else c.op)
        arrays = [rank.x for rank in self.ranks]
        out = [rank.out for rank in self.ranks]
        if self.in_place and c.collective in OF_ONE_PART:
            arrays = [x if x is not None else y for x, y in zip(arrays, out, strict=True)]
            out = None
        elif c.form == "new":
            out = None
        if c.collective == "scatter":
            arrays = arrays[c.root]
        if out is not None and c.collective in ("reduce", "gather"):
            out = out[c.root]
        is_even = isinstance(c.counts, int)
        if c.collective not in OF_ONE_PART and not (is_even and not c.says_counts):
            table = self._table()
            options["counts"] = np.reshape(table, (c.world_size, -1)) if c.collective == "all_to_all" else table
        result = getattr(node, c.collective)(arrays, out=out, **options, **more)
        if out is not None:
            assert result is out
        is_of_root = c.collective in ("reduce", "gather")
        self.check([result if r == c.root else None for r in range(c.world_size)] if is_of_root else result)

    def run(self, comm: nvcoll.Communicator, **more) -> None:
        """Makes one rank's part of the call, and checks it."""
        self.check_result(comm, self.begin(comm, **more))

    def begin(self, comm: nvcoll.Communicator, **more):
        """Makes one rank's part of the call, and returns what nvcoll returns."""
        c, own = self.choice, self.ranks[comm.rank]
        options = self._options(nvcoll.premul_sum(self.scalars[comm.rank]) if c.op == "premul_sum" else c.op)
        x, out = own.x, None if c.form == "new" else own.out
        if self.in_place and c.collective in OF_ONE_PART:
            x, out = (x if x is not None else out), None
        elif c.collective == "exscan" and comm.rank == 0:
            out = np.empty_like(x)
        if c.collective == "scatter" and x is None and out is None:
            x = np.empty(sum(self._table()), dtype=self.dtype)
        table = self._table() if c.collective not in OF_ONE_PART else []
        if c.collective == "all_to_all" and not isinstance(c.counts, int):
            rows = np.reshape(table, (c.world_size, -1))
            if c.says_counts:
                options["counts"] = rows
            else:
                options["counts"], options["recv_counts"] = rows[comm.rank].tolist(), rows[:, comm.rank]
        elif table and c.collective != "all_to_all" and (c.says_counts or len(set(table)) > 1):
            options["counts"] = table
        self.passed[comm.rank] = out
        return getattr(comm, c.collective)(x, out=out, **options, **more)

    def check_result(self, comm: nvcoll.Communicator, result) -> None:
        """Checks what nvcoll returned to one rank after `begin`."""
        if self.ranks[comm.rank].expected is None and self.choice.collective != "exscan":
            assert result is None
        elif self.passed[comm.rank] is not None:
            assert result is self.passed[comm.rank]
        self.check_rank(comm.rank, result)

    def check(self, results) -> None:
        """Checks what all ranks have."""
        for rank, result in enumerate(results):
            self.check_rank(rank, result)
        assert all(guarded.is_intact() for guarded in self.guards)

    def check_rank(self, rank: int, result) -> None:
        own = self.ranks[rank]
        if own.expected is not None:
            assert oracle.same_bits(np.array(result), own.expected), f"rank {rank} of {self.choice}"
        for now, before in own.unchanged:
            assert oracle.same_bits(now.copy(), before), f"rank {rank} of {self.choice}: an input was changed"
