"""SuperBench: metrics of ``results-summary.jsonl``.

A metric is a name and a number. Metrics of NCCL, of cards in loopback and of copies become rows of the formats that
SuperBench runs; a node of the summary has a log of each. Source: microsoft/superbenchmark,
``docs/user-tutorial/benchmarks``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from nvcoll._nvcoll import collective_spelled
from nvcoll.check import matrices, perftest
from nvcoll.check.log import Log
from nvcoll.check.row import Row

_NCCL = re.compile(r"[nr]ccl-bw[^/]*/(\w+?)_(\d+)_time(?::0)?$")
_CARD = re.compile(r"(?i)ib-loopback[^/]*/ib_(write|read|send)_(?:bw_)?(\d+)(_Avg)?(?:_(\d+))?(?::(\d+))?$")
_PAIR = re.compile(
    r"(?<!bidirectional)(?:^|[/_])gpu(\d+)_(?:to_)?gpu(?!\1)(\d+)(?:_(?:read|write)_by_(?:sm|dma))?(?:_bw)?(?::0)?$"
)
_HOST = re.compile(r"(?i)(?:mem-bw[^/]*/h2d_(?:mem_)?bw:|cpu_to_gpu)(\d+)(?:_by_dma_under_numa0(?:_bw)?(?::0)?)?$")
_GPU = re.compile(r"(?:mem-bw[^:]*:|gemm-flops[^:]*:|gpu)(\d+)")
MARK = re.compile(r"(?i)[nr]ccl-bw|ib-loopback|gpu-copy-bw|mem-bw/")
PAIR, HOST = "copy between GPUs", "copy between host and GPU"


def _nodes(text: str) -> Iterator[tuple[int, Mapping[str, float]]]:
    """Yields number of the line and metrics of each node. A diagnosis has no figures."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("{") and '"Category"' not in line:
            with suppress(ValueError):
                metrics = json.loads(line).items()
                yield number, {name: one for name, one in metrics if isinstance(one, (int, float)) and one > 0}


def _row(line: int, name: str, value: float) -> tuple[str, Row] | None:
    """Returns what a metric measures, and its row."""
    if found := _NCCL.search(name):
        return found[1], Row(line, int(found[2]), value, None)
    if found := _CARD.search(name):
        gbs, size = value / 1e3 if found[3] else value, int(found[2])  # older releases have MB/s
        return f"{found[1].lower()} bandwidth", Row(
            line, size, size / gbs / 1e3, None, f"card {found[4] or found[5] or 0}"
        )
    if found := _PAIR.search(name):
        return PAIR, matrices.cell(line, int(found[1]), int(found[2]), value)
    if found := _HOST.search(name):
        return HOST, matrices.cell(line, 0, int(found[1]), value)
    return None


def read(text: str) -> Iterator[Log]:
    """Yields the logs of each node of a summary."""
    for number, metrics in _nodes(text):
        logs: dict[str, list[Row]] = {}
        for what, row in filter(None, (_row(number, name, value) for name, value in metrics.items())):
            logs.setdefault(what, []).append(row)
        gpus = 1 + max((int(found[1]) for name in metrics if (found := _GPU.search(name))), default=0)
        for what, rows in logs.items():
            rows.sort(key=lambda row: row.nbytes)
            if what in (PAIR, HOST):
                yield matrices.log_of(what, int(what == PAIR), rows, gpus)
            elif what.endswith("bandwidth"):
                largest = [row for row in rows if row.nbytes == rows[-1].nbytes]
                yield Log("", what, None, largest, tool=perftest.bandwidth())
            else:
                yield Log("", collective_spelled(what), gpus if gpus > 1 else None, rows, launch="process_per_gpu")
