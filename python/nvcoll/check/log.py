"""What a log of a benchmark says: the launch, the ranks, the settings and the rows of one table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nvcoll.check.ranks import Interval, permitted
from nvcoll.check.row import Row

if TYPE_CHECKING:
    from nvcoll._nvcoll import Fabric, Prediction, _Launch
    from nvcoll.check.tool import Expected, Tool


@dataclass(frozen=True)
class Log:
    """One table of a log."""

    name: str
    """The file, with the number of the table if the file has several."""
    collective: str | None
    """As ``all_reduce``; None if the log does not name it."""
    ranks: int | None
    """None if the log does not show it."""
    rows: Sequence[Row]
    ranks_between: tuple[int, int] | None = None
    """The least and the most ranks, where busbw alone shows them: `ranks` is the plainest number between."""
    factor: Interval | None = None
    """busbw / algbw."""
    rates: Sequence[tuple[int, int, float]] = ()
    """Rows with busbw alone, which get their time when the number of ranks is known: line, bytes, GB/s."""
    hosts: Sequence[str] = ()
    """The host of each rank, from the lines of devices."""
    devices: Sequence[int] = ()
    """The GPU of each rank in its host."""
    gpus: Sequence[str] = ()
    """The model of the GPU of each rank."""
    jobs: int = 1
    """The number of jobs that printed into this table: more than 1 where the benchmark was built without MPI."""
    launch: _Launch | None = None
    """How calls are launched, as of `Fabric.predict`; None without a header."""
    version: str | None = None
    """NCCL's version, as ``2.26.2``."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of NCCL."""
    facts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """From lines of ``NCCL_DEBUG=INFO``: each fact with its different values, as ``path``: ``P2P/CUMEM``."""
    wrong_results: bool = False
    """The benchmark found wrong elements."""
    unlike: str | None = None
    """Why the times are not comparable with predictions: CUDA graphs, CPU times."""
    malformed: Sequence[tuple[int, str]] = ()
    """Lines that begin like a row and cannot be read: number and reason."""
    notes: Sequence[str] = ()
    """What the log says of its launch and is not taken, because its rows contradict it."""
    tool: Tool | None = field(default=None, repr=False, compare=False)
    """Another tool than nccl-tests; `collective` is then what it measures."""

    @property
    def evidence(self) -> list[str]:
        """The settings and the facts, each as ``NAME=VALUE``; names of facts are small letters."""
        every = [*self.settings.items(), *((name, value) for name, values in self.facts.items() for value in values)]
        return [f"{name}={value}" for name, value in every]

    @property
    def is_broken(self) -> bool:
        """Says whether the run failed, or its results are wrong, whatever its machine."""
        return self.wrong_results or "failure" in self.facts

    def numbers(self, fact: str) -> list[int]:
        """Returns the numbers of a fact."""
        return [int(value) for value in self.facts.get(fact, ()) if value.isdigit() and len(value) < 6]

    @property
    def cards(self) -> list[int]:
        """The numbers of network cards of a node that the log names, rising."""
        if found := self.numbers("cards"):
            return sorted(found)
        if len(cards := set(self.facts.get("card", ()))) > 1:  # of a list, as of nvidia-smi topo -m
            return [len(cards)]
        named = self.settings.get("NCCL_IB_HCA", "")
        is_list = "^" not in named and re.search(r"\d", named.replace("mlx5", ""))  # mlx5 alone is all cards
        return [named.count(",") + 1] if is_list else []

    def may_have(self, ranks: int) -> bool:
        """Says whether the log can be of a number of ranks."""
        known = self.ranks_between or permitted(self.collective, self.factor)
        least, most = known if known and (self.ranks is None or self.ranks_between) else (self.ranks, self.ranks)
        return least is None or most is None or least <= ranks <= most

    def meets(self, other: Log) -> bool:
        """Says whether two logs can be of one number of ranks."""
        return self.may_have(other.ranks or 0) or other.may_have(self.ranks or 0)

    def of_ranks(self, ranks: int | None) -> Log:
        """Returns the log with a number of ranks, and the rows of which busbw alone is known with their times."""
        if not self.rates or not self.collective or ranks is None or ranks < 2:
            return replace(self, ranks=ranks)
        scale = factor(self.collective, ranks) / 1e3
        timed = [(line, nbytes, nbytes * scale / busbw) for line, nbytes, busbw in self.rates]
        rows = [*self.rows, *(Row(line, nbytes, time, time) for line, nbytes, time in timed)]
        return replace(self, ranks=ranks, rows=rows, rates=())

    def predicted(
        self, fabric: Fabric, rows: Sequence[Row], settings: Mapping[str, str | int] | None = None
    ) -> Sequence[Prediction | Expected]:
        """Returns the predictions of some rows, by NCCL of the log's version and with its launch.

        Raises:
            InvalidArgument: as `Fabric.predict`.
        """
        assert self.collective is not None
        if self.tool is not None:
            return [self.tool.expected(self.collective, fabric, row) for row in rows]
        sizes, launch = [row.nbytes for row in rows], self.launch or "process_per_gpu"
        return fabric.predict(self.collective, sizes, launch=launch, version=self.version, settings=settings)


def factor(collective: str, ranks: int) -> float:
    """Returns busbw / algbw, as nccl-tests computes it, for any number of ranks that a log may claim."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return 1.0 if collective in ("broadcast", "reduce", "sendrecv") else (ranks - 1) / ranks
