"""The files of ``bench --plot``: curves over bytes by matplotlib (extra ``bench``); and of ``--svg``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from nvcoll import InvalidArgument
from nvcoll.cli.bench.timing import Case
from nvcoll.text.formatting import sized

SUFFIXES = (".svg", ".png", ".pdf")
BASELINE: dict[str, Any] = {"color": "0.35", "linestyle": ":", "marker": "s"}
STYLES = {"numpy": BASELINE, "memcpy": BASELINE, "roofline": {"color": "0.6", "linestyle": "--"}}
PANEL_INCHES = (10, 4.5)
MOST_TICKS = 16
"""The most sizes that are written below a panel. Chosen: they do not overlap."""

MOST_PIXELS = 8000
"""The largest width or height of a drawing of a schedule or a machine. Chosen: two screens of 4k."""


def write_svg(file: Path, svg: str, what: str) -> None:
    """Writes a drawing to the file that ``--svg`` names, and says on stderr what it shows.

    Raises:
        InvalidArgument: the file is not called .svg, or cannot be written.
    """
    if file.suffix != ".svg":
        raise InvalidArgument(f"`{file}` is not an .svg file: end its name in .svg")
    try:
        file.write_text(svg)
    except OSError as error:
        raise InvalidArgument(f"`{file}` cannot be written: {error.strerror}") from None
    typer.echo(f"drawn to {file}: {what}", err=True)


def width_of(svg: str) -> int:
    """Returns the width of a drawing in pixels."""
    return int(svg.partition(' width="')[2].partition('"')[0])


def check(file: Path) -> None:
    """Refuses, before the measurement, a file that cannot be drawn after it.

    Raises:
        InvalidArgument: another kind of file, no such directory, or no matplotlib.
    """
    if file.suffix not in SUFFIXES:
        raise InvalidArgument(f"`{file}` is not a picture file: end its name in {', '.join(SUFFIXES)}")
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

    figure, axes = pyplot.subplots(figsize=PANEL_INCHES)
    nbytes = [case.nbytes for case in cases]
    for name in cases[0].candidates:
        seconds = [case.seconds(name) for case in cases]
        slow, algbw, fast = (
            [n / second / 1e9 for n, second in zip(nbytes, times, strict=True)]
            for times in zip(*[(s.high, s.median, s.low) for s in seconds], strict=True)
        )
        (line,) = axes.plot(nbytes, algbw, label=name, **STYLES.get(name, {"marker": "o"}))
        axes.fill_between(nbytes, slow, fast, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(xlabel="message size (longer buffer of a rank)", ylabel="algbw, GB/s", title=title)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    shown = nbytes[:: -(-len(nbytes) // MOST_TICKS)]
    axes.set_xticks(shown, [sized(n) for n in shown], rotation=30 if len(shown) > 8 else 0)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.tight_layout()
    try:
        figure.savefig(file)
    except OSError as error:
        raise InvalidArgument(f"`{file}` cannot be written: {error.strerror}") from None
    finally:
        pyplot.close(figure)
