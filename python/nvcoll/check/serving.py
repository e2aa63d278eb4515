"""``vllm bench serve`` and ``sglang.bench_serving``: what requests see, beside the planner of `nvcoll serve`.

The planner needs the model, the GPUs of the server and the load. The result block has lengths and load alone.
Arguments that some releases print as ``Namespace(...)`` have the model; the command of the server has model and
``--tp``. If one of them is missing, the verdict is "cannot tell" and names it. A row is a mean: the time until the
first token (TTFT), or of each token after it (TPOT).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from nvcoll._nvcoll import Fabric
from nvcoll.check.log import Log
from nvcoll.check.row import Row
from nvcoll.check.tool import NUMBER, Tool

_FIGURE = re.compile(rf"^(.+?)(?: \(\w+\))?:\s+({NUMBER})\s*$", re.MULTILINE)
_MODEL = re.compile(r"\bmodel(?:_path)?='([^']+)'|--model(?:-path)?[ =](\S+)|\bvllm serve (\S+)")
_TP = re.compile(
    r"\b(?:tensor_parallel_size|tp_size)=(\d{1,9})|--(?:tensor-parallel-size|tp-size|tp)[ =](\d{1,9})|-tp (\d{1,9})"
)
_HEAD = re.compile("= Serving Benchmark Result =")
SPREAD = 2.0
MARK = re.compile(r"Successful requests:\s")


def _us(fabric: Fabric, row: Row, *, model: str, tp: int, server: str, load: Mapping[str, float]) -> float:
    """Returns the predicted mean of a row."""
    from nvcoll.serving.planning import serve  # loads the planner

    found = serve(model, on=fabric, gpus=tp, tp=tp, pp=1, server=server, **load)  # type: ignore[arg-type]
    return 1e6 * (found.ttft_s if row.case == "TTFT" else found.tpot_s)


def _load(known: Mapping[str, float]) -> dict[str, float]:
    """Returns what requests are: mean tokens of a prompt and of an answer, and how many come at once or in a second."""
    requests = known.get("Successful requests") or 1
    load = {
        "input": known.get("Total input tokens", 0) / requests,
        "output": known.get("Total generated tokens", 0) / requests,
    }
    words = {"Traffic request rate": "rate", "Request rate configured": "rate",
             "Max request concurrency": "concurrency", "Maximum request concurrency": "concurrency"}  # fmt: skip
    return load | {ours: known[word] for word, ours in words.items() if word in known}


def _named(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next(filter(None, found.groups()), "") if found else ""


def read(text: str) -> Iterator[Log]:
    """Yields the result blocks."""
    server, model, tp = "sglang" if "sglang" in text else "vllm", _named(_MODEL, text), _named(_TP, text)
    starts = [found.start() for found in (_HEAD if _HEAD.search(text) else MARK).finditer(text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        known = {name: float(value) for name, value in _FIGURE.findall(text[start:end])}
        line = text.count("\n", 0, start) + 1
        load = _load(known)
        there = {"the model": model, "the GPUs of the server (--tp)": tp, "the load": len(load) > 2}
        lacks = " and ".join(name for name, is_there in there.items() if not is_there)
        us = partial(_us, model=model, tp=int(tp or 1), server=server, load=load)
        why = f"the log does not name {lacks}: put the command of the server before the result" if lacks else None
        for name in ("TTFT", "TPOT"):
            if mean := known.get(f"Mean {name}"):
                rows = [Row(line, 1, mean * 1e3, None, name)]
                tool = Tool(us, "not validated", SPREAD, is_latency=True)
                yield Log("", f"{name} of {server}", None, rows, tool=tool, unlike=why)
