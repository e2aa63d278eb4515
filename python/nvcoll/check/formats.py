"""The formats of logs: JSON of nccl-tests; lines of nccl-tests, scripts of torch and other tools, also in one file."""

from __future__ import annotations

import re
from dataclasses import replace

from nvcoll.check import (
    deepep,
    matrices,
    nccl_tests,
    nccl_tests_json,
    nixl,
    perftest,
    serving,
    superbench,
    torch_scripts,
)
from nvcoll.check.log import Log
from nvcoll.check.nccl_tests import LEAST_TIME, MOST_BYTES
from nvcoll.check.tool import UNREAL

TOOLS = (deepep, perftest, matrices, nixl, superbench, serving)
"""Formats of other tools than benchmarks of collectives: each has a `MARK` that its logs contain."""

_SOFTWARE = re.compile(r"(?:\bDevice\s*: ?|\[\d+\] ?|\s-d )((?:rxe|siw)\w*)")
"""The device of Linux's software RoCE or iWARP, as perftest and NCCL name it."""


def _believed(log: Log) -> Log:
    """Returns the log of a tool without rows whose numbers are 0 or too large."""
    rows = [row for row in log.rows if 1 <= row.nbytes <= MOST_BYTES and LEAST_TIME <= row.time_us <= MOST_BYTES]
    left_out = [(row.line, UNREAL) for row in log.rows if row not in rows]
    return replace(log, rows=rows, malformed=[*log.malformed, *left_out])


def read(name: str, text: str) -> list[Log]:
    """Returns the tables of a log; one without rows is a log whose table is missing.

    Args:
        name: the file. Tables are ``name#1`` and so on if there are several.
        text: its content.
    """
    logs = nccl_tests_json.read(name, text) if nccl_tests_json.is_read(text) else nccl_tests.read(name, text)
    others = [*torch_scripts.read(text, logs[0])] if torch_scripts.MARK.search(text) else []
    others += [_believed(log) for one in TOOLS if one.MARK.search(text) for log in one.read(text)]
    if others:
        logs = [*(log for log in logs if log.rows), *others]
    if found := _SOFTWARE.search(text):
        why = f"{found[1]} is RDMA in software, whose rate is that of the processor: nvcoll does not predict it"
        logs = [replace(log, unlike=log.unlike or why) for log in logs]
    return [replace(log, name=f"{name}#{nth}" if len(logs) > 1 else name) for nth, log in enumerate(logs, 1)]
