"""Reads the JSON that nccl-tests writes with ``-J FILE`` (versions 3 and 4 of its format, from nccl-tests 2.17.3 on).

The document is written as the lines that nccl-tests prints, and these are read as any log. So both outputs of one run
give one verdict. It departs from the text in three things:

- A process names the first of its GPUs alone; the others follow it (``cudaDev`` in ``src/util.cu``).
- A run that was killed leaves the document open. The results before its end are read.
- The line of a row is the number of the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from nvcoll.check import nccl_tests
from nvcoll.check.log import Log

_PLACES = ("out_of_place", "in_place")
MOST_GPUS = 1024
"""The most GPUs of a process that are believed. Chosen."""


def is_read(text: str) -> bool:
    """Says whether a log is JSON of nccl-tests."""
    return text.lstrip("\ufeff\r\n\t ").startswith("{") and '"nccl_version"' in text


def _documents(text: str) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Yields each document of a file, and why it is not complete."""
    decoder, end = json.JSONDecoder(), 0
    while (at := text.find("{", end)) >= 0:
        try:
            document, end = decoder.raw_decode(text, at)
            if "nccl_version" in document:
                yield document, None
        except (ValueError, RecursionError) as error:
            yield _closed(text[at:]), f"the JSON ends or breaks here: {error}"[:200]
            return


def _closed(text: str) -> dict[str, Any]:
    """Returns the results of a document that is cut, up to the last one that is complete."""
    for end in ("]}", "}]}"):  # between two results, inside of one
        with suppress(ValueError, RecursionError):
            return dict(json.loads(text[: text.rfind("}") + 1] + end))
    return {}


def _word(value: object) -> str:
    return "".join(str("N/A" if value is None else value).split()) or "-"


def _of(holder: Any, key: str, kind: type) -> Any:
    """Returns a value of an object, or an empty one if it is missing or of another type."""
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if isinstance(value, kind) and not isinstance(value, bool) else kind()


def _header(document: dict[str, Any]) -> Iterator[str]:
    """Yields the lines above the table."""
    config = _of(document, "config", dict)
    program = _word(next(iter(_of(document, "args", list)), "")).rsplit("/", 1)[-1]
    yield f"# nccl-tests nccl-library={_of(document, 'nccl_version', int)}"
    yield f"# Collective test starting: {program}"
    threads, gpus = (max(_of(config, key, int), 1) for key in ("nthreads", "ngpus"))
    yield f"# nThread {threads} nGpus {gpus} graph: {max(_of(config, 'graph', int), 0)}"
    yield from (_word(setting) for setting in _of(document, "env", list) if str(setting).startswith("NCCL_"))
    for first in _of(config, "devices", list) or _of(document, "devices", list):
        host, model = (" ".join(_of(first, key, str).split()) for key in ("hostname", "device_info"))
        rank, device, group = (max(_of(first, key, int), 0) for key in ("rank", "device", "group"))
        for nth in range(min(threads * gpus, MOST_GPUS)):
            yield f"# Rank {rank + nth} Group {group} on {host or '-'} device {device + nth} [-] {model}"
    halves = (_of(one, place, dict) for one in _of(document, "results", list) for place in _PLACES)
    time = "cputime" if any("cpu_time" in half for half in halves) else "time"
    yield f"# size count type redop root {' '.join(2 * [f'{time} algbw busbw #wrong'])}"


def _row(result: Any) -> str:
    """Returns a result as a row. One without bytes and elements is a row that is cut: a number alone."""
    if not (isinstance(result, dict) and all(type(result.get(key)) is int for key in ("size", "count"))):
        return "0"
    words = [str(_of(result, key, int)) for key in ("size", "count")]
    words += [_word(_of(result, key, str)) for key in ("type", "redop", "root")]
    for half in (_of(result, place, dict) for place in _PLACES):
        words += map(_word, (half.get("time", half.get("cpu_time")), *map(half.get, ("alg_bw", "bus_bw", "nwrong"))))
    return " ".join(words)


def read(name: str, text: str) -> list[Log]:
    """Returns the tables of a log, as `nccl_tests.read`."""
    logs = []
    for document, why in _documents(text):
        above, rows = [*_header(document)], [*map(_row, _of(document, "results", list))]
        footer = "# Out of bounds values : FAILED" if _of(_of(document, "out_of_bounds", dict), "count", int) else ""
        for log in nccl_tests.read(name, "\n".join([*above, *rows, footer])):
            moved = [replace(row, line=row.line - len(above)) for row in log.rows]
            malformed = [(max(line - len(above), 1), reason) for line, reason in log.malformed]
            logs.append(replace(log, rows=moved, malformed=malformed + ([(max(len(rows), 1), why)] if why else [])))
    return logs
