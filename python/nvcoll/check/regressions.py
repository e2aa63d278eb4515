"""Versions of NCCL and RCCL that are slower than others: a table of public threads, `regressions.toml`.

A version is a suspect only if a size that is slow in the log is a size of the thread, on such a machine.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nvcoll._nvcoll import Fabric
from nvcoll.check.ailments import Ailment
from nvcoll.check.log import Log

COMMON = 3
"""How common such a version is as the cause, if all conditions of its thread hold. Chosen."""


@dataclass(frozen=True)
class Regression:
    """A row of the table."""

    versions: tuple[str, str]
    what: str
    workaround: str
    thread: str
    collective: str | None = None
    where: str = ""
    nodes: tuple[int, int] = (1, 1 << 20)
    sizes: tuple[int, int] = (0, 1 << 50)

    def is_of(self, log: Log, fabric: Fabric | None, slow: Sequence[int]) -> bool:
        """Says whether a log has the version, the machine and a slow size of the thread."""
        nodes = fabric.nodes if fabric else len(set(log.hosts)) or 1
        words = " ".join([fabric.name if fabric else "", *log.gpus[:1], *log.evidence])
        return (
            log.version is not None
            and _numbers(self.versions[0]) <= _numbers(log.version) <= _numbers(self.versions[1])
            and self.collective in (None, log.collective)
            and self.nodes[0] <= nodes <= self.nodes[1]
            and any(self.sizes[0] <= size <= self.sizes[1] for size in slow)
            and re.search(self.where, words) is not None
        )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


REGRESSIONS = tuple(
    Regression(**row)
    for row in tomllib.loads(Path(__file__).with_name("regressions.toml").read_text(encoding="utf-8"))["regression"]
)


def of_version(log: Log, fabric: Fabric | None, slow: Sequence[int]) -> Iterator[Ailment]:
    """Yields the known regressions of a log's version.

    Args:
        log: the log.
        fabric: its machine, if it is known.
        slow: the sizes at which it is slow, in bytes.
    """
    for one in REGRESSIONS:
        if one.is_of(log, fabric, slow):
            yield Ailment(
                "version",
                f"version {log.version}: {one.what}",
                f"the same command with {one.workaround}",
                COMMON,
                prints="the slow sizes get fast: this. No change: another cause",
                thread=one.thread,
                named_by=re.escape(f"version={log.version}"),
            )
