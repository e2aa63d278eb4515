"""Positions of the steps of a schedule in its picture: ranks are bands, steps are boxes, columns are time.

The column of a step is its level: one more than the highest level among the steps that it waits for and the step
before it in its queue. Boxes in one column can run side by side. Queues of a rank share a line as long as no two of
their steps are in one column. Steps in a cycle of waits come last, each in a column of its own.

Cost: linear in steps and waits. Source: ours; columns by level are the first phase of Sugiyama, Tagawa and Toda,
"Methods for visual understanding of hierarchical system structures", 1981.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nvcoll._nvcoll import Schedule, Step

Place = tuple[int, int, int]
"""Rank, queue and index of a step."""

# Chosen by eye, in pixels; GLYPH is the advance of an 11 px monospaced character.
GLYPH, BOX_HEIGHT, LINE_GAP, COLUMN_GAP, RANK_GAP, LEFT, TOP, MARGIN = 6.7, 40, 14, 58, 22, 84, 78, 20

View = tuple[int, str, int, int]
"""Rank, buffer, first chunk and end of chunks, as `Step` has them."""


@dataclass
class Box:
    """A step with its place in the picture."""

    step: Step
    column: int
    line: int = 0
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0

    @property
    def texts(self) -> tuple[str, str]:
        """The destinations and the sources, as two lines of text."""
        return shortened_dst(self.step.destinations), "= " + shortened_src(self.step.sources)

    @property
    def middle(self) -> float:
        """The height of its middle."""
        return self.y + BOX_HEIGHT / 2


def _written(buffer: str, ranks: str, first: int, end: int) -> str:
    """Writes a view with its last chunk included, like ranks: ``output[r0].0-1``."""
    return f"{buffer}[{ranks}].{first}" + (f"-{end - 1}" if end - first > 1 else "")


def _few(views: Sequence[str], between: str) -> str:
    return between.join(views if len(views) <= 3 else [views[0], "…", views[-1]])


def shortened_src(views: Sequence[tuple[int, str, int, int, int | None]]) -> str:
    """Writes sources in little space: in their order, the first and the last of many, without contributions."""
    return _few([_written(buffer, f"r{rank}", first, end) for rank, buffer, first, end, _ in views], " + ")


def shortened_dst(views: Sequence[View]) -> str:
    """Writes destinations in little space: equal chunks on consecutive ranks become one."""
    parts = sorted((buffer, first, end, rank) for rank, buffer, first, end in views)
    (*chunks, lowest), (*last_chunks, highest) = parts[0], parts[-1]
    if len(views) > 2 and chunks == last_chunks and highest - lowest == len(views) - 1:
        buffer, first, end, _ = parts[0]
        return _written(buffer, f"r{lowest}-r{highest}", first, end)
    return _few([_written(buffer, f"r{rank}", first, end) for rank, buffer, first, end in views], ", ")


def place(step: Step) -> Place:
    """Returns rank, queue and index of a step."""
    return step.rank, step.queue, step.index


def columns(steps: Iterable[Step]) -> dict[Place, int]:
    """Returns the level of every step; steps in a cycle get levels of their own at the end."""
    earlier = {place(step): set(step.waits) for step in steps}
    for rank, queue, index in earlier:
        if (rank, queue, index - 1) in earlier:
            earlier[rank, queue, index].add((rank, queue, index - 1))
    later: dict[Place, list[Place]] = defaultdict(list)
    missing = {}
    for key, needs in earlier.items():
        needs.intersection_update(earlier)
        missing[key] = len(needs)
        for need in needs:
            later[need].append(key)
    levels = dict.fromkeys((key for key, count in missing.items() if count == 0), 0)
    ready = list(levels)
    for key in ready:
        for after in later[key]:
            levels[after] = max(levels.get(after, 0), levels[key] + 1)
            missing[after] -= 1
            if missing[after] == 0:
                ready.append(after)
    for key in (key for key, count in missing.items() if count > 0):
        levels[key] = max(levels.values(), default=-1) + 1
    return levels


def lines(boxes: Sequence[Box]) -> int:
    """Gives every queue of one rank a line on which its columns are free; returns how many lines there are."""
    queues: dict[int, list[Box]] = defaultdict(list)
    for box in boxes:
        queues[box.step.queue].append(box)
    taken: list[set[int]] = []
    for _, queue in sorted(queues.items()):
        used = {box.column for box in queue}
        line = next((at for at, others in enumerate(taken) if not others & used), len(taken))
        if line == len(taken):
            taken.append(set())
        taken[line] |= used
        for box in queue:
            box.line = line
    return max(len(taken), 1)


@dataclass
class Layout:
    """All boxes, and the edges of the bands of ranks."""

    boxes: dict[Place, Box]
    bands: list[tuple[float, float]]
    width: float
    height: float

    @classmethod
    def of(cls, schedule: Schedule) -> Layout:
        """Places every step of a schedule."""
        steps = schedule.steps
        levels = columns(steps)
        boxes = {place(step): Box(step, levels[place(step)]) for step in steps}
        widths: dict[int, float] = defaultdict(float)
        for box in boxes.values():
            widths[box.column] = max(widths[box.column], GLYPH * max(map(len, box.texts)) + 42)
        lefts, x = {}, float(LEFT + COLUMN_GAP / 2)
        for column in sorted(widths):
            lefts[column] = x
            x += widths[column] + COLUMN_GAP
        bands, y = [], float(TOP)
        for rank in range(schedule.world_size):
            own = [box for box in boxes.values() if box.step.rank == rank]
            top, count = y, lines(own)
            for box in own:
                box.x, box.width = lefts[box.column], widths[box.column]
                box.y = top + box.line * (BOX_HEIGHT + LINE_GAP)
            y += count * (BOX_HEIGHT + LINE_GAP) - LINE_GAP + RANK_GAP
            bands.append((top, y - RANK_GAP))
        return cls(boxes, bands, x - COLUMN_GAP + MARGIN, y)
