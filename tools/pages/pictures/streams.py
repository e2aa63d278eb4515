"""Draws the streams of a recorded step, one machine below the other on one axis of time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from chart import page, text

from nvcoll.draw.drawing import FAINT, GRID
from nvcoll.training.colours import BLUE, PASSES
from nvcoll.training.trace import Document, Span

LEFT, WIDTH, ROW, HEAD = 190, 760, 22, 34
"""Pixels: where the axis starts, its width, the height of a stream, and of the name of a machine."""

SEAM_S = 0.4e-3
"""Seconds between kernels that the eye does not see; they are drawn as one."""


def streams(title: str, note: str, documents: Mapping[str, Document]) -> str:
    """Draws the first rank of a step as each machine would run it.

    Args:
        title: the title of the picture.
        note: what is below the title.
        documents: the timeline of the step on each machine, by the name of the machine.
    """
    lanes = {name: _lanes(document["spans"]) for name, document in documents.items()}
    seconds = max(_length(document["spans"]) for document in documents.values())
    scale = WIDTH / seconds
    parts, y = [], 70.0
    for name, document in documents.items():
        begin = min(span["start_s"] for span in document["spans"])
        parts.append(text(24, y + 12, f"{name}: {1e3 * _length(document['spans']):.0f} ms", font_weight="bold"))
        y += HEAD - 12
        for stream, spans in lanes[name]:
            parts.append(text(LEFT - 8, y + 14, stream, class_="note", fill=FAINT, text_anchor="end"))
            parts.append(f'<path d="M{LEFT} {y + ROW - 3:.1f}h{WIDTH}" stroke="{GRID}"/>')
            parts += (_drawn(one, begin, scale, y) for one in _joined(spans))
            y += ROW
        y += 14
    return page(title, note, LEFT + WIDTH + 24, y + 4, parts)


def _length(spans: Sequence[Span]) -> float:
    return max(span["end_s"] for span in spans) - min(span["start_s"] for span in spans)


def _lanes(spans: Sequence[Span]) -> list[tuple[str, list[Span]]]:
    """Returns the streams of the first rank that are busy for 1 % of the time, named after what they do most."""
    found: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span["stage"] == 0:
            found[span["stream"]].append(span)
    least = 0.01 * _length(spans)
    busy = {name: each for name, each in found.items() if sum(one["end_s"] - one["start_s"] for one in each) > least}
    return [(_title(each), each) for _, each in sorted(busy.items(), key=lambda one: one[1][0]["start_s"])]


def _title(spans: Sequence[Span]) -> str:
    name, _ = Counter(one["name"] for one in spans).most_common(1)[0]
    if all(map(_communicates, spans)):
        return name
    return "kernels of the model" if len({one["name"] for one in spans}) > 8 else name.removeprefix("fsdp::")


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Joins kernels that follow each other closely, so that the picture stays small."""
    done: list[Span] = []
    for span in spans:
        last = done[-1] if done and not _communicates(span) else None
        if last and not _communicates(last) and span["start_s"] - last["end_s"] < SEAM_S:
            done[-1] = Span(**{**last, "end_s": max(last["end_s"], span["end_s"])})
        else:
            done.append(span)
    return done


def _communicates(span: Span) -> bool:
    return bool(span["args"]["kind"] == "communication")


def _drawn(span: Span, begin: float, scale: float, y: float) -> str:
    x, width = LEFT + scale * (span["start_s"] - begin), scale * (span["end_s"] - span["start_s"])
    colour = PASSES["communication"] if _communicates(span) else BLUE
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width - 0.3, 0.3):.1f}" height="{ROW - 6}" fill="{colour}"/>'
