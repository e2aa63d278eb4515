"""Charts of docs/predict/answers.md: dot plots and lines over powers of ten, and matrices as colours.

Each function returns parts of an SVG; `page` puts parts into a document in the style of `nvcoll.draw.drawing`.
Coordinates are pixels, rounded to tenths: the same numbers give the same file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nvcoll.draw.drawing import FAINT, GRID, INK, PAPER, document, text
from nvcoll.draw.machine_drawing import LINES
from nvcoll.text.formatting import duration, escaped

BUS, SWITCH, NETWORK, MESH = LINES["pcie"], LINES["nvlink"], LINES["network"], LINES["c2c"]
"""Colours of PCIe, NVLink, networks and meshes, as in the pictures of machines."""

LEGEND = {"PCIe": BUS, "NVLink": SWITCH, "network": NETWORK}


def page(title: str, note: str, width: float, height: float, parts: Iterable[str]) -> str:
    """Puts parts into a document below its title and a note."""
    head = [text(24, 28, title, font_size=16, font_weight="bold"), text(24, 48, note, fill=FAINT)]
    return document(width, height, title, [*head, *parts]) + "\n"


@dataclass(frozen=True)
class Scale:
    """Powers of ten from `low` to `high` along `length` pixels from `start`; upwards if `length` is negative."""

    low: float
    high: float
    start: float
    length: float

    def at(self, value: float) -> float:
        """Where a value stands; what is outside stands at the end."""
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return self.start + self.length * min(share, 1.0)

    def decades(self) -> list[float]:
        """The powers of ten that it holds."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]


def plain(value: float) -> str:
    """Writes a mark of a scale as a number."""
    return f"{value:,.6g}"


def seconds(microseconds: float) -> str:
    """Writes a time as commands do."""
    return duration(microseconds / 1e6)


@dataclass(frozen=True)
class Measured:
    """A measured value and its source; hollow if the health of the system is unknown."""

    value: float
    what: str
    is_hollow: bool = False

    def drawn(self, x: float, y: float) -> str:
        """Draws a diamond at a point."""
        fill, edge = (PAPER, INK) if self.is_hollow else (INK, PAPER)
        diamond = f'<path d="M{x:.1f} {y - 4:.1f}l4 4l-4 4l-4 -4Z" fill="{fill}" stroke="{edge}"/>'
        return f'<g class="dot"><title>{escaped(self.what)}</title>{diamond}</g>'


@dataclass(frozen=True)
class Line:
    """A line of a dot plot: name, value with interval, and the text behind it; hollow if it is not validated."""

    name: str
    value: float
    words: str
    low: float | None = None
    high: float | None = None
    hue: str = BUS
    is_hollow: bool = False
    measured: Sequence[Measured] = ()


def circle(x: float, y: float, hue: str, is_hollow: bool) -> str:
    """Draws the mark of a value."""
    fill = PAPER if is_hollow else hue
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" stroke="{hue}" stroke-width="2"/>'


def interval(low: float, high: float, y: float) -> str:
    """Draws an interval with its ends."""
    return f'<path d="M{low:.1f} {y - 4:.1f}v8m0 -4H{high:.1f}m0 -4v8" stroke="{INK}" stroke-width="1.5" fill="none"/>'


def dot_plot(
    rows: Sequence[Line],
    x: float,
    y: float,
    names: float,
    scale: Scale,
    unit: str,
    mark: Callable[[float], str] = plain,
) -> list[str]:
    """Draws a line of 24 pixels for each row: the name on the left, a dot at the value, the scale above."""
    bottom = y + 24 * len(rows)
    parts = []
    for value in scale.decades():
        at = scale.at(value)
        parts.append(f'<path d="M{at:.1f} {y - 4:.1f}V{bottom:.1f}" stroke="{GRID}"/>')
        parts.append(text(at, y - 8, mark(value), class_="note", fill=FAINT, text_anchor="middle"))
    parts.append(text(x + names - 8, y - 8, unit, class_="note", fill=FAINT, text_anchor="end"))
    for nth, row in enumerate(rows):
        middle = y + 24 * nth + 12
        at = scale.at(row.value)
        parts.append(f'<g class="bar"><title>{escaped(f"{row.name}: {row.words}")}</title>')
        parts.append(text(x + names - 8, middle + 4, row.name, text_anchor="end"))
        right = scale.start + scale.length
        parts.append(f'<path d="M{scale.start:.1f} {middle:.1f}H{right:.1f}" stroke="{GRID}" stroke-dasharray="1 4"/>')
        if row.low is not None and row.high is not None:
            parts.append(interval(scale.at(row.low), scale.at(row.high), middle))
        parts.append(circle(at, middle, row.hue, row.is_hollow))
        parts += (one.drawn(scale.at(one.value), middle) for one in row.measured)
        parts.append(text(right + 16, middle + 4, row.words) + "</g>")
    return parts


def legend(x: float, y: float, hues: dict[str, str], *, has_measured: bool) -> list[str]:
    """Explains colours and marks in one line."""
    marks = [(name, circle(0, 0, hue, False)) for name, hue in hues.items()]
    marks += [("not validated", circle(0, 0, FAINT, True)), ("90 % interval", interval(-9, 9, 0))]
    if has_measured:
        marks.append(("measured", Measured(0, "").drawn(0, 0)))
    parts = []
    for name, drawn in marks:
        parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{drawn}</g>' + text(x + 14, y + 4, name, fill=FAINT))
        x += 44 + 7 * len(name)
    return parts


@dataclass(frozen=True)
class Series:
    """A line through points, with a band from low to high, and measurements."""

    name: str
    points: Sequence[tuple[float, float, float, float]]
    hue: str
    is_dashed: bool = False
    measured: Sequence[tuple[float, Measured]] = ()


def lines(series: Sequence[Series], x: Scale, y: Scale, names: Sequence[tuple[float, str]]) -> list[str]:
    """Draws series of microseconds over two scales; `names` are the marks of the lower one."""
    parts = []
    top, bottom = y.start + y.length, y.start
    right = x.start + x.length
    for value in y.decades():
        parts.append(f'<path d="M{x.start:.1f} {y.at(value):.1f}H{right:.1f}" stroke="{GRID}"/>')
        parts.append(text(x.start - 6, y.at(value) + 3, seconds(value), class_="note", fill=FAINT, text_anchor="end"))
    for value, name in names:
        parts.append(f'<path d="M{x.at(value):.1f} {top:.1f}V{bottom:.1f}" stroke="{GRID}"/>')
        parts.append(text(x.at(value), bottom + 14, name, class_="note", fill=FAINT, text_anchor="middle"))
    for nth, one in enumerate(series):
        upper = [f"{x.at(n):.1f} {y.at(high):.1f}" for n, _, _, high in one.points]
        lower = [f"{x.at(n):.1f} {y.at(low):.1f}" for n, _, low, _ in reversed(one.points)]
        parts.append(f'<path d="M{"L".join([*upper, *lower])}Z" fill="{one.hue}" fill-opacity="0.18"/>')
        middle = "L".join(f"{x.at(n):.1f} {y.at(value):.1f}" for n, value, *_ in one.points)
        dashes = ' stroke-dasharray="6 4"' if one.is_dashed else ""
        width = max(4 - nth, 1.5)  # what lies on top lets the line below be seen
        parts.append(f'<path d="M{middle}" stroke="{one.hue}" stroke-width="{width}" fill="none"{dashes}/>')
        parts += (found.drawn(x.at(size), y.at(found.value)) for size, found in one.measured)
    return parts


def key(series: Sequence[Series], x: float, y: float) -> list[str]:
    """Names series, one below the other."""
    parts = []
    for nth, one in enumerate(series):
        dashes = ' stroke-dasharray="6 4"' if one.is_dashed else ""
        at = y + 18 * nth
        parts.append(f'<path d="M{x:.1f} {at - 4:.1f}h22" stroke="{one.hue}" stroke-width="2"{dashes}/>')
        parts.append(text(x + 30, at, one.name))
    return parts


def heat(
    rows: Sequence[Sequence[float]], x: float, y: float, cell: float, scale: tuple[float, float], hue: str
) -> list[str]:
    """Draws a matrix of rates: darker is more, on a scale of powers; the diagonal is empty."""
    low, high = scale
    cells, words, marks = [], [], []
    for i, row in enumerate(rows):
        marks.append(text(x - 6, y + cell * (i + 0.62), str(i), text_anchor="end"))
        marks.append(text(x + cell * (i + 0.5), y - 5, str(i), text_anchor="middle"))
        for j, value in enumerate(row):
            if not math.isnan(value):
                share = min(math.log(max(value, low) / low) / math.log(high / low), 1)
                corner = f'x="{x + cell * j:.1f}" y="{y + cell * i:.1f}" width="{cell - 1:.1f}" height="{cell - 1:.1f}"'
                cells.append(f'<rect {corner} fill-opacity="{0.06 + 0.56 * share:.2f}"/>')
                words.append(text(x + cell * (j + 0.5) - 0.5, y + cell * (i + 0.62), f"{value:.3g}"))
    return [
        f'<g class="note" fill="{FAINT}">{"".join(marks)}</g>',
        f'<g fill="{hue}">{"".join(cells)}</g>',
        f'<g class="note" text-anchor="middle">{"".join(words)}</g>',
    ]
