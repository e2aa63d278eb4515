"""Compares published runs of fine-tuning with what nvcoll predicts: no constant is fitted to them.

    python tools/training/fine_tuning.py

``data/training-steps/fine_tuning.csv`` has a row for each run: options of ``nvcoll plan``, memory in ``unit`` if it
was published, and the seconds of a step if its tokens are known. ``counts`` says which memory: what the framework
``allocated``, or all of the GPU ``together``. ``docs/train/plan.md`` has rows of the table, which a test compares.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from nvcoll.training import plan

ROWS: Final = Path(__file__).parents[2] / "data" / "training-steps" / "fine_tuning.csv"
UNITS: Final = {"GiB": 2**30, "GB": 1e9}
BESIDE: Final = ("reserved", "nccl", "context")
"""Lines of memory that are not allocated by the framework."""

QWEN: Final = {  # layers, hidden, heads, ffn, vocab: config.json of each, whose intermediate_size is twice the width
    "qwen-1.8b": (24, 2048, 16, 5504, 151936),
    "qwen-7b": (32, 4096, 32, 11008, 151936),
    "qwen-14b": (40, 5120, 40, 13696, 152064),
    "qwen-72b": (80, 8192, 64, 24576, 152064),
}


class Compared(NamedTuple):
    """A run: published memory and seconds, and what nvcoll predicts."""

    run: str
    unit: str
    memory: float | None
    predicted: float
    seconds: float | None
    predicted_s: float
    is_inside: bool


def compared() -> Iterator[Compared]:
    """Yields all runs."""
    for row in csv.DictReader(ROWS.read_text().splitlines()):
        found = plan(_model(row["model"]), on=row["on"], **_words(row["options"]))
        lines = found.memory[0].lines
        left_out = BESIDE if row["counts"] == "allocated" else ()
        unit = row["unit"] or "GiB"
        predicted = sum(value for name, value in lines.items() if name not in left_out) / UNITS[unit]
        memory = float(row["memory"]) if row["memory"] else None
        seconds = float(row["seconds"]) if row["seconds"] else None
        inside = seconds is not None and found.low_s <= seconds <= found.high_s
        yield Compared(row["run"], unit, memory, predicted, seconds, found.seconds, inside)


def _words(options: str) -> dict[str, Any]:
    """Returns the words of options of the command line: numbers, texts, and True of an option without a value."""
    words: dict[str, Any] = {}
    for one in options.split("--")[1:]:
        name, _, value = one.strip().partition(" ")
        words[name.replace("-", "_")] = int(value) if value.isdigit() else value or True
    return words


def _model(name: str) -> str | dict[str, Any]:
    if name not in QWEN:
        return name
    layers, hidden, heads, ffn, vocab = QWEN[name]
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": heads, "head_dim": 128, "ffn": ffn}
    return {"name": name, "gated": True, "vocab": vocab, "tied": False, "sequence": 2048, **sizes}


def lines(runs: list[Compared]) -> list[str]:
    """Returns the table, a line for each run."""
    found = []
    for one in runs:
        memory, time = f"- | {one.predicted:.1f} {one.unit}", "- | -"
        if one.memory is not None:
            error = 100 * (one.predicted / one.memory - 1)
            memory = f"{one.memory:.1f} {one.unit} | {one.predicted:.1f} ({error:+.0f} %)"
        if one.seconds is not None:
            time = f"{one.seconds:.2f} s | {one.predicted_s:.2f} s ({100 * (one.predicted_s / one.seconds - 1):+.0f} %)"
        found.append(f"| {one.run} | {memory} | {time} |")
    return found


def main() -> None:
    """Prints the table, and the medians of the errors."""
    runs = list(compared())
    print(*lines(runs), sep="\n")
    timed = [one for one in runs if one.seconds]
    memory = median(abs(one.predicted / one.memory - 1) for one in runs if one.memory)
    time = median(abs(one.predicted_s / one.seconds - 1) for one in timed if one.seconds)
    inside = sum(one.is_inside for one in timed)
    print(f"median error: memory {100 * memory:.1f} %, time {100 * time:.1f} %; {inside} of {len(timed)} times inside")


if __name__ == "__main__":
    main()
