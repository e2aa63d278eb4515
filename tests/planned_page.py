"""The inputs of the page of a step for its tests: a plausible price, 1F1B as a timeline; and a browser."""

from __future__ import annotations

import html.parser
import json
import shutil
import subprocess
from pathlib import Path

CHROMIUM = shutil.which("chromium")

FACTS = [
    ("model", "llama3-70b, 8,192 tokens a sequence"),
    ("machine", "hgx-h100x64+ib-ndr-8, 512 GPUs"),
    ("layout", "TP 8, PP 4, DP 16, ZeRO 1, micro-batch 1, global batch 1,024"),
    ("software", "Megatron-Core"),
]


def inputs() -> dict:
    """The price of a step of llama3-70b on 512 H100, the step, and a sweep."""
    return json.loads(Path(__file__).with_suffix(".json").read_text())


def one_f_one_b(stages: int, micro_batches: int, forward_s: float, backward_s: float) -> dict:
    """A pipeline as a timeline: each stage does what 1F1B orders, as soon as its neighbour has sent."""
    done, spans, free = {}, [], [0.0] * stages
    orders = []
    for stage in range(stages):
        warm = min(stages - stage - 1, micro_batches)
        passes = [("F", m) for m in range(warm)]
        for m in range(micro_batches - warm):
            passes += [("F", warm + m), ("B", m)]
        orders.append(passes + [("B", m) for m in range(micro_batches - warm, micro_batches)])
    while any(orders):
        for stage, order in enumerate(orders):
            while order:
                kind, m = order[0]
                before = (kind, m, stage - 1 if kind == "F" else stage + 1)
                is_end = not 0 <= before[2] < stages
                if before not in done and not is_end:
                    break
                start = max(free[stage], 0.0 if is_end else done[before])
                free[stage] = end = start + (forward_s if kind == "F" else backward_s)
                done[kind, m, stage] = end
                name = f"{kind} {m}"
                spans.append({"stage": stage, "stream": "compute", "name": name, "start_s": start, "end_s": end})
                order.pop(0)
    return {"title": "1F1B", "stages": [f"stage {stage}" for stage in range(stages)], "spans": spans}


class Reader(html.parser.HTMLParser):
    """What a page loads, its elements, and its words outside of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads, self.elements, self.words, self.open = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open = tag
        self.elements.append((tag, dict(attrs)))
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "action", "poster")]

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def browse(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Opens a page in a browser without a window."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    command += [f"--user-data-dir={path.parent / 'browser'}", "--virtual-time-budget=20000", *options, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
