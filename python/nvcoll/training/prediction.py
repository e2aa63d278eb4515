"""The words of priced steps: parts of the time, lines of the memory, answers about memory. Rust has the prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nvcoll._nvcoll import StepPrediction, step_words

_PARTS, _LINES, _FITS = step_words()

FITS: Final[Mapping[str, str]] = dict(_FITS)
"""The answers about memory, best first, in words."""

PARTS: Final[Mapping[str, str]] = {name: title for name, _, title in _PARTS}
"""The parts of a step by name, with what they are."""

EXPOSED: Final = tuple(name for name, kind, _ in _PARTS if kind == "exposed")
"""Parts in which a GPU computes nothing while data moves between GPUs, with what computing loses beside it."""

IDLE: Final = tuple(name for name, kind, _ in _PARTS if kind == "idle")
"""Other parts in which a GPU computes nothing. In all parts that are neither exposed nor idle it computes."""

TITLES: Final[Mapping[str, str]] = dict(_LINES)
"""The lines of the table of memory by name, with what they are."""


def fit_words(found: StepPrediction) -> str:
    """Says whether a step fits, and names RAM if it fits less there than in the GPUs."""
    return "memory not known" if found.fit is None else FITS[found.fit] + " in RAM" * (found.fit != found.gpu_fit)


def host_ram(found: StepPrediction) -> str:
    """Returns the RAM of a host in words."""
    sizes = sorted({*(found.host_ram_gib or ())})
    return " to ".join(f"{one:,}" for one in sizes) + " GiB" if sizes else "an unknown size"
