"""Timelines as pictures: ranks as rows, steps as bars, and several timelines below each other on one clock.

::

    all_reduce ring, 4 ranks, mapped, on hgx-h100: 38.1 us
      rank 0  ▇▇▇ ▇▇▇▇ ▇▇▇ ▇▇▇▇│             a line for each queue; white: waits
      rank 1  ▇▇▇▇ ▇▇▇ ▇▇▇▇ ▇▇▇│             │ leave
    all_reduce nvswitch, 4 ranks, mapped, on hgx-h100: 12.9 us
      rank 0  ▇▇▇▇▇│
              0    10    20   30 us

A bar begins when all waits of its step are over, so it shows the cost of the step: latency and bytes. Bars that are too
narrow are merged, so the size of a picture is bounded for any number of tiles. Hovering shows the number of merged
steps. Cost: linear in spans. Source: ours; the charts are Gantt's (1910).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nvcoll._nvcoll import InvalidArgument, Timeline
from nvcoll.draw.drawing import BAND, COLOURS, FAINT, GRID, INK, PAPER, document, kind, text
from nvcoll.draw.schedule_layout import place
from nvcoll.text.formatting import escaped

# Chosen by eye, in pixels.
LEFT, PLOT, RIGHT, TOP, HEAD, ROW_GAP, PANEL_GAP, AXIS = 84, 880, 40, 64, 26, 6, 18, 44
ROW, LINE = 22, 9
"""The least height of a rank, and the largest height of a queue."""
MOST_ROW = 64
"""The largest height of a rank. Its queues become thinner."""
NARROW = 0.7
"""The width in pixels below which bars are merged."""

UNITS = ((1e6, "s"), (1e3, "ms"), (1.0, "us"), (1e-3, "ns"), (1e-6, "ps"))
TICKS = 8
"""The approximate number of marks of the clock."""


@dataclass
class Bar:
    """One step in one tile, or several merged steps of one queue. Times are microseconds."""

    kind: str
    name: str
    start: float
    end: float
    count: int = 1

    @property
    def words(self) -> str:
        """The text of hovering."""
        what = self.name if self.count == 1 else f"{self.count} steps from {self.name} on"
        return f"{what}: {self.start:.3f} to {self.end:.3f} us"


def bars(timeline: Timeline, narrow: float) -> dict[tuple[int, int], list[Bar]]:
    """Returns the bars of each queue; those shorter than `narrow` microseconds are joined with their neighbours."""
    if timeline.spans is None:
        raise InvalidArgument("the timeline has no spans: simulate with spans=True")
    kinds = {place(step): kind(step) for step in timeline.steps}
    lines: dict[tuple[int, int], list[Bar]] = {(rank, queue): [] for rank, queue, _ in kinds}
    for rank, queue, step, tile, start, end in timeline.spans:
        line = lines[rank, queue]
        bar = Bar(kinds[rank, queue, step], f"r{rank}.q{queue}.{step}, tile {tile}", start, end)
        before = line[-1] if line else None
        if before and start - before.end < narrow and min(end - start, before.end - before.start) < narrow:
            longer = bar.kind if end - start > before.end - before.start else before.kind
            before.kind, before.end, before.count = longer, end, before.count + 1
        else:
            line.append(bar)
    return lines


def unit_of(microseconds: float) -> tuple[float, str]:
    """Returns a unit in which a time has few digits: its microseconds and its name."""
    return next((unit for unit in UNITS if microseconds >= unit[0]), UNITS[-1])


def marks(microseconds: float) -> list[float]:
    """Returns the marks of the clock. Their distance is 1, 2 or 5 times a power of ten."""
    if microseconds <= 0:
        return [0.0]
    power = 10.0 ** math.floor(math.log10(microseconds / TICKS))
    apart = next(power * times for times in (1, 2, 5, 10) if power * times * TICKS >= microseconds * 0.8)
    return [apart * nth for nth in range(int(microseconds / apart) + 1)]


def rectangle(x: float, y: float, width: float, height: float, fill: str, rest: str = "") -> str:
    """Begins a rectangle; the caller adds attributes and the end."""
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.3):.2f}" height="{height:.2f}" fill="{fill}"{rest}'


def drawn_rank(
    rank: int, lines: Sequence[list[Bar]], leaves: float, top: float, per_us: float
) -> tuple[list[str], float]:
    """Draws one rank; also returns its lower end."""
    count = max(len(lines), 1)
    height = min(max(ROW, count * (LINE + 1) + 2), MOST_ROW)
    pitch = (height - 2) / count
    parts = [
        rectangle(LEFT, top, PLOT, height, BAND, f' stroke="{GRID}" class="rank"/>'),
        text(LEFT - 10, top + height / 2 + 4, f"rank {rank}", text_anchor="end"),
    ]
    for nth, line in enumerate(lines):
        y = top + 1 + nth * pitch
        for bar in line:
            x, width = LEFT + bar.start * per_us, (bar.end - bar.start) * per_us
            edge = f' stroke="{PAPER}" stroke-width="0.6"' if width > 3 else ""
            box = rectangle(x, y, width, max(pitch - 1, 0.5), COLOURS[bar.kind], f'{edge} class="step">')
            parts.append(f"{box}<title>{escaped(bar.words)}</title></rect>")
    x = LEFT + leaves * per_us
    ends = f'x1="{x:.2f}" x2="{x:.2f}" y1="{top:.1f}" y2="{top + height:.1f}"'
    parts.append(f'<line class="leave" {ends} stroke="{INK}" stroke-width="1.2"/>')
    return parts, top + height


def drawn_timeline(timeline: Timeline, top: float, per_us: float) -> tuple[list[str], float]:
    """Draws all ranks below a heading; also returns their lower end."""
    divisor, unit = unit_of(timeline.time_us)
    heading = f"{timeline.schedule} on {timeline.fabric}: {timeline.time_us / divisor:.3g} {unit}"
    parts = [text(LEFT, top + 14, heading, font_weight="bold")]
    lines = bars(timeline, NARROW / per_us)
    y = top + HEAD
    of_rank: dict[int, list[list[Bar]]] = defaultdict(list)
    for (rank, _), line in sorted(lines.items()):
        of_rank[rank].append(line)
    for rank, leaves in enumerate(timeline.end_us):
        drawn, y = drawn_rank(rank, of_rank[rank], leaves, y, per_us)
        parts += drawn
        y += ROW_GAP
    return parts, y


def drawn_clock(total: float, top: float, bottom: float, per_us: float) -> list[str]:
    """Draws the marks of the clock through all timelines, with their times below."""
    divisor, unit = unit_of(total)
    parts = []
    for mark in marks(total):
        x = LEFT + mark * per_us
        parts.append(f'<line class="mark" x1="{x:.2f}" x2="{x:.2f}" y1="{top}" y2="{bottom + 4}" stroke="{GRID}"/>')
        words = f"{mark / divisor:g} {unit}" if mark else "0"
        parts.append(text(x, bottom + 18, words, fill=FAINT, text_anchor="middle"))
    return parts


def legend(kinds: Iterable[str], y: float) -> list[str]:
    """Explains the colours."""
    parts, x = [], float(LEFT)
    for name in COLOURS:
        if name in kinds:
            parts.append(rectangle(x, y - 9, 18, 10, COLOURS[name], "/>") + text(x + 24, y, name))
            x += 24 + 7 * len(name) + 20
    parts.append(f'<line x1="{x}" x2="{x}" y1="{y - 10}" y2="{y + 2}" stroke="{INK}" stroke-width="1.2"/>')
    return [*parts, text(x + 8, y, "leaves")]


def svg(timelines: Sequence[Timeline]) -> str:
    """Draws timelines below each other on one clock.

    Args:
        timelines: one or more, simulated with ``spans=True``.

    Returns:
        A self-contained SVG document.

    Raises:
        InvalidArgument: there is none, or one without spans.

    Example:
        >>> import nvcoll
        >>> from nvcoll.draw import timelines
        >>> board = nvcoll.fabric("hgx-h100")
        >>> names = ("ring", "nvswitch")
        >>> both = [nvcoll.schedule("all_reduce", name, world_size=8) for name in names]
        >>> timelines.svg([board.simulate(one, 1 << 26, spans=True) for one in both])[:4]
        '<svg'
    """
    if not timelines:
        raise InvalidArgument("no timeline to draw: pass one or more")
    total = max(timeline.time_us for timeline in timelines)
    per_us = PLOT / total if total > 0 else 1.0
    title = "Steps in virtual time" if len(timelines) == 1 else "Steps in virtual time, on one clock"
    parts: list[str] = []
    y = float(TOP)
    for timeline in timelines:
        drawn, y = drawn_timeline(timeline, y, per_us)
        parts += drawn
        y += PANEL_GAP
    y -= PANEL_GAP
    width, height = LEFT + PLOT + RIGHT, y + AXIS
    kinds = {kind(step) for timeline in timelines for step in timeline.steps}
    heading = text(LEFT, 26, title, font_size=16, font_weight="bold")
    clock = drawn_clock(total, TOP + HEAD, y, per_us)
    return document(width, height, title, [heading, *legend(kinds, 48), *clock, *parts])
