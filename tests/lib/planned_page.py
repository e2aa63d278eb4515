"""What the tests of pages of steps share: a plan with everything that a page shows, a reader of HTML, a browser."""

from __future__ import annotations

import functools
import html.parser
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nvcoll.training import Machine, StepPrediction, Sweep, sweep

CHROMIUM = shutil.which("chromium")

HOW = {"global_batch": 1024, "micro_batch": 1, "recompute": "none"}


@functools.cache
def planned(**how: Any) -> tuple[StepPrediction, dict[str, Any]]:
    """A step of Llama 3 70B on 512 H100, and its timeline."""
    machine = Machine("hgx-h100x64+ib-ndr-8")
    prediction = machine.plan("llama3-70b", **{"tp": 8, "pp": 4, **HOW, **how})
    return prediction, machine.timeline(prediction.step)


@functools.cache
def swept() -> Sweep:
    """The layouts of the same step."""
    return sweep("llama3-70b", Machine("hgx-h100x64+ib-ndr-8"), **HOW)


def changed(one: object, **attributes: Any) -> Any:
    """A price with other attributes, as no machine has it."""
    known = {name: getattr(one, name) for name in dir(one) if not name.startswith("_")}
    return SimpleNamespace(**{**known, **attributes})


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
