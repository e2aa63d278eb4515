"""A schedule as a picture: ranks as rows, steps as boxes in the order in which they can run, arrows for waits."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

from nvcoll._nvcoll import Schedule, Step

COLUMN, ROW, BOX_WIDTH, BOX_HEIGHT, LEFT, TOP = 190, 70, 160, 40, 60, 60
COLOURS = {"fold": "#ffd9a8", "copy": "#cfe3ff", "publish": "#dff2d8"}
WAIT = re.compile(r"r(\d+)\.q(\d+)\.(\d+)")


def _kind(step: Step) -> str:
    if len(step.src) > 1:
        return "fold"
    return "publish" if all(view.startswith("staging") for view in step.dst) else "copy"


def _levels(steps: list[Step]) -> dict[tuple[int, int, int], int]:
    levels: dict[tuple[int, int, int], int] = {}
    taken: set[tuple[int, int]] = set()
    for step in steps:
        earlier = [tuple(map(int, m.groups())) for wait in step.after if "@" not in wait and (m := WAIT.match(wait))]
        earlier += [(step.rank, step.queue, step.index - 1)] if step.index else []
        level = max((levels[key] + 1 for key in earlier if key in levels), default=0)
        while (step.rank, level) in taken:
            level += 1
        taken.add((step.rank, level))
        levels[step.rank, step.queue, step.index] = level
    return levels


def svg(schedule: Schedule) -> str:
    """Draws a schedule.

    Args:
        schedule: any schedule; up to about eight ranks can be read.

    Returns:
        A self-contained SVG document.
    """
    steps = sorted(schedule.steps, key=lambda step: step.index)
    levels = _levels(steps)
    width = LEFT + (max(levels.values(), default=0) + 1) * COLUMN + 20
    height = TOP + schedule.world_size * ROW + 40
    title = f"{schedule.collective} {schedule.algorithm}, {schedule.world_size} ranks, {schedule.path}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#666"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for rank in range(schedule.world_size):
        y = TOP + rank * ROW
        parts.append(f'<text x="12" y="{y + BOX_HEIGHT / 2 + 4}" font-weight="bold">rank {rank}</text>')
        parts.append(f'<line x1="{LEFT}" x2="{width - 10}" y1="{y + ROW - 14}" y2="{y + ROW - 14}" stroke="#eee"/>')

    def corner(key: tuple[int, int, int]) -> tuple[int, int]:
        return LEFT + levels[key] * COLUMN, TOP + key[0] * ROW

    boxes = []
    for step in steps:
        key = (step.rank, step.queue, step.index)
        x, y = corner(key)
        for wait in step.after:
            match = WAIT.match(wait)
            if match and "@" not in wait:
                a, b = corner((int(match[1]), int(match[2]), int(match[3])))
                start, end = f"{a + BOX_WIDTH} {b + BOX_HEIGHT / 2}", f"{x} {y + BOX_HEIGHT / 2}"
                parts.append(f'<path class="wait" d="M{start} L{end}" stroke="#666" fill="none" marker-end="url(#a)"/>')
        more = f" +{len(step.dst) - 1}" if len(step.dst) > 1 else ""
        sources = step.src[0] if len(step.src) == 1 else f"fold of {len(step.src)}"
        frame = f'x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"'
        tooltip = f"{', '.join(step.dst)} = {' + '.join(step.src)}"
        boxes.append(
            f'<g class="step"><title>{escape(tooltip)}</title>'
            f'<rect {frame} fill="{COLOURS[_kind(step)]}" stroke="#888" stroke-width="{2 if step.is_final else 1}"/>'
            f'<text x="{x + 6}" y="{y + 16}">{escape(step.dst[0] + more)}</text>'
            f'<text x="{x + 6}" y="{y + 31}">= {escape(sources)}</text></g>'
        )
    parts += boxes
    for at, (kind, colour) in enumerate(COLOURS.items()):
        x, y = LEFT + at * 90, height - 26
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}" stroke="#888"/>')
        parts.append(f'<text x="{x + 17}" y="{y + 10}">{kind}</text>')
    parts.append(f'<text x="{LEFT + 290}" y="{height - 16}">thick frame: completes the reduction</text></svg>')
    return "\n".join(parts)
