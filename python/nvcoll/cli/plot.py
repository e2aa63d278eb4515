"""The picture of ``nvcoll bench --plot``: algbw over bytes, by matplotlib, which the extra ``bench`` installs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvcoll import InvalidArgument
from nvcoll.cli import sizes
from nvcoll.cli.timing import Case

SUFFIXES = (".svg", ".png", ".pdf")
STYLES: dict[str, dict[str, Any]] = {
    "numpy": {"color": "0.35", "linestyle": ":", "marker": "s"},
    "memcpy": {"color": "0.35", "linestyle": ":", "marker": "s"},
    "roofline": {"color": "0.6", "linestyle": "--"},
}


def check(file: Path) -> None:
    """Refuses, before anything is timed, what could not be drawn after it.

    Raises:
        InvalidArgument: another kind of file, no such directory, or no matplotlib.
    """
    if file.suffix not in SUFFIXES:
        raise InvalidArgument(f"`{file}` is no picture: end it in {', '.join(SUFFIXES)}")
    if not file.absolute().parent.is_dir():
        raise InvalidArgument(f"`{file.parent}` is not a directory: make it first")
    try:
        import matplotlib
    except ImportError:
        raise InvalidArgument("--plot needs matplotlib: pip install 'nvcoll[bench]'") from None
    matplotlib.use("Agg")


def draw(cases: Sequence[Case], title: str, file: Path) -> None:
    """Draws every candidate's algbw over the bytes of a rank's longer buffer: medians, and the quartiles as a band."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    nbytes = [case.nbytes for case in cases]
    for name in cases[0].candidates:
        seconds = [case.seconds(name) for case in cases]
        slow, algbw, fast = (
            [n / second / 1e9 for n, second in zip(nbytes, times, strict=True)]
            for times in zip(*[(s.high, s.median, s.low) for s in seconds], strict=True)
        )
        (line,) = axes.plot(nbytes, algbw, label=name, **STYLES.get(name, {"marker": "o"}))
        axes.fill_between(nbytes, slow, fast, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(xlabel="longer buffer of a rank", ylabel="algbw, GB/s", title=title)
    axes.set_xscale("log", base=2)
    axes.set_xticks(nbytes, [sizes.show(n) for n in nbytes], rotation=30 if len(nbytes) > 8 else 0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, ncols=2)
    figure.tight_layout()
    try:
        figure.savefig(file)
    except OSError as error:
        raise InvalidArgument(f"`{file}` cannot be written: {error.strerror}") from None
    finally:
        pyplot.close(figure)
