"""A schedule as a picture: ranks as rows, steps as boxes in the order in which they can run, arrows for waits.

Time runs to the right (`nvcoll.draw.schedule_layout` places the boxes)::

    rank 0   [ fold ]             ┌─▶[ copy ]          solid arrow: waits for another step
                   └──▶[ fold ]───┘                    grey line:   next in the same queue
    rank 1         ...                                 (1)          waits until rank 1 has entered

Boxes show views in the text form, shortened: ``output[r0-r3].2`` is chunk 2 on each of the ranks 0 to 3, and
``output[r0].2-4`` are three chunks. Hovering shows the whole line. The picture has no leaves. It counts waits for
earlier tiles (the reuse of a slot) below. Arrows against time, in a cycle of waits, are red. Pictures of more than
about eight ranks are hard to read. The colours are for light pages; dark mode inverts them.
Source: ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nvcoll._nvcoll import Schedule, Step
from nvcoll.draw.schedule_layout import BOX_HEIGHT, LEFT, LINE_GAP, MARGIN, Box, Layout, Place, place
from nvcoll.text.formatting import counted, escaped

COLOURS = {"fold": "#fbd9a5", "copy": "#cfe1f9", "publish": "#d3ecca"}
INK, FAINT, GRID, ALARM = "#3b4252", "#8a93a3", "#e8ebf0", "#c0392b"
PAPER, BAND = "white", "#f7f8fa"

TITLE_GLYPH, TEXT_GLYPH = 10.0, 6.5
"""The width of a character of the title and of other text, in pixels. Chosen, a little wide: fonts differ."""

CLASS = "nvcoll-drawing"
"""The class of the root element. Rules must not apply to the rest of the page that holds the picture."""

IN_THE_DARK = f".{CLASS}{{filter:invert(.9) hue-rotate(180deg)}}"

STYLE = (
    f".{CLASS} .view{{font:11px monospace}}.{CLASS} .note{{font-size:9px}}"
    f'@media(prefers-color-scheme:dark){{{IN_THE_DARK}}}[data-jp-theme-light="false"] {IN_THE_DARK}'
)
"""Fonts; and dark mode, by the setting of the system or the theme of a notebook: light and dark change places."""


def kind(step: Step) -> str:
    """Returns the kind of a step: fold, copy, or publish (a copy that only fills staging)."""
    if len(step.src) > 1:
        return "fold"
    fills_staging = all(view.startswith("staging") for view in step.dst)
    return "publish" if fills_staging and not step.src[0].startswith("staging") else "copy"


def text(x: float, y: float, words: str, **attributes: object) -> str:
    """Writes words at a point."""
    rest = "".join(f' {name.rstrip("_").replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{rest}>{escaped(words)}</text>'


def drawn_box(box: Box) -> str:
    """Draws a step. The ranks for whose enter it waits stand at its left edge."""
    step, (to, source) = box.step, box.texts
    full = f"r{step.rank}.q{step.queue}.{step.index}  {', '.join(step.dst)} = {' + '.join(step.src)}"
    after = f"\nafter {' '.join(step.after)}" if step.after else ""
    stroke = f'stroke="{INK}" stroke-width="{2.2 if step.is_final else 0.8}"'
    dashes = ' stroke-dasharray="5 3"' if step.at_switch else ""
    frame = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{BOX_HEIGHT}" rx="6"'
    parts = [
        f'<g class="step"><title>{escaped(full + after)}</title>',
        f'<rect {frame} fill="{COLOURS[kind(step)]}" {stroke}{dashes}/>',
        text(box.x + 9, box.y + 17, to, class_="view"),
        text(box.x + 9, box.y + 32, source, class_="view"),
        text(box.x + box.width - 6, box.y + 12, f"q{step.queue}.{step.index}", class_="note", text_anchor="end"),
    ]
    entered = sorted(int(wait[1:].split(".")[0]) for wait in step.after if wait.endswith(".enter"))
    if entered:
        words = ",".join(map(str, entered)) if len(entered) < 4 else f"{len(entered)} ranks"
        width = 5.5 * len(words) + 9
        x, y = box.x + 8, box.y - 8
        parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="14" rx="7" fill="{PAPER}" stroke="{FAINT}"/>')
        parts.append(text(x + width / 2, y + 10.5, words, class_="note", text_anchor="middle"))
    return "".join(parts) + "</g>"


def drawn_waits(boxes: dict[Place, Box], box: Box) -> list[str]:
    """Draws the arrows into a box, and the line from the box before it in its queue."""
    rank, queue, index = place(box.step)
    sources = sorted((boxes[key] for key in box.step.waits if key in boxes), key=lambda other: other.y)
    parts = []
    before = boxes.get((rank, queue, index - 1))
    if before is not None and before not in sources and before.column < box.column:
        ends = f'x1="{before.x + before.width}" y1="{before.middle}" x2="{box.x}" y2="{box.middle}"'
        parts.append(f'<line class="queue" {ends} stroke="{FAINT}" stroke-width="1.5"/>')
    for nth, other in enumerate(sources, start=1):
        x1, y1, x2 = other.x + other.width, other.middle, box.x - 1
        y2 = box.y + BOX_HEIGHT * nth / (len(sources) + 1)
        is_backward = other.column >= box.column
        colour = ALARM if is_backward else INK if other.step.rank != rank else FAINT
        reach = max(abs(x2 - x1) / 2, 24)
        if other.column + 1 < box.column and other.y == box.y:
            top = box.y - LINE_GAP
            curve = f"C{x1 + 18:.1f} {top:.1f} {x2 - 18:.1f} {top:.1f} {x2:.1f} {y2:.1f}"
        else:
            curve = f"C{x1 + reach:.1f} {y1:.1f} {x2 - reach:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        path = f'd="M{x1:.1f} {y1:.1f}{curve}" stroke="{colour}"'
        parts.append(f'<path class="wait" {path} stroke-width="1.3" fill="none" marker-end="url(#{marker(colour)})"/>')
    return parts


def legend(steps: Sequence[Step], y: float) -> tuple[list[str], float]:
    """Explains the marks of the picture; also returns the lower end of the legend."""
    parts, x = [], float(LEFT)

    def entry(sign: str, words: str) -> None:
        nonlocal x
        parts.append(f'<g class="legend" transform="translate({x:.1f} {y:.1f})">{sign}{text(26, 4, words)}</g>')
        x += 26 + 7 * len(words) + 14

    def swatch(fill: str, extra: str = "") -> str:
        return f'<rect y="-6" width="20" height="12" rx="3" fill="{fill}" stroke="{INK}"{extra}/>'

    for name, colour in COLOURS.items():
        if any(kind(step) == name for step in steps):
            entry(swatch(colour), name)
    if any(step.is_final for step in steps):
        entry(swatch(PAPER, ' stroke-width="2.2"'), "completes the reduction")
    if any(step.at_switch for step in steps):
        entry(swatch(PAPER, ' stroke-dasharray="5 3"'), "a switch can do it")
    if any(step.waits for step in steps):
        entry(f'<path d="M0 0H19" stroke="{INK}" marker-end="url(#{marker(INK)})"/>', "waits for")
    if any(step.index for step in steps):
        entry(f'<path d="M0 0H20" stroke="{FAINT}" stroke-width="1.5"/>', "same queue")
    if any(wait.endswith(".enter") for step in steps for wait in step.after):
        badge = f'<rect y="-7" width="20" height="14" rx="7" fill="{PAPER}" stroke="{FAINT}"/>'
        entry(badge + text(10, 3.5, "2", class_="note", text_anchor="middle"), "waits for the enter of rank 2")
    return parts, x


def marker(colour: str) -> str:
    """Returns the name of the head of an arrow."""
    return f"{CLASS}-{colour.removeprefix('#')}"


def document(width: float, height: float, title: str, parts: Iterable[str], defs: str = "") -> str:
    """Puts the parts of a picture on paper, as a self-contained SVG document."""
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{CLASS}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f"<title>{escaped(title)}</title>{defs}",
        f"<style>{STYLE}</style>",
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',
    ]
    return "\n".join([*head, *parts, "</svg>"])


def size(schedule: Schedule) -> tuple[float, float]:
    """Returns the width and the height of the drawing of a schedule, in pixels, without its legend."""
    layout = Layout.of(schedule)
    return layout.width, layout.height


def svg(schedule: Schedule) -> str:
    """Draws a schedule.

    Args:
        schedule: any schedule; up to about eight ranks can be read.

    Returns:
        A self-contained SVG document.

    Example:
        >>> import nvcoll
        >>> from nvcoll.draw import drawing
        >>> drawing.svg(nvcoll.schedule("all_reduce", "ring", world_size=4))[:4]
        '<svg'
    """
    steps, layout = schedule.steps, Layout.of(schedule)
    key, key_end = legend(steps, layout.height + 14)
    title = f"{schedule.collective} {schedule.algorithm}, {counted(schedule.world_size, 'rank')}, {schedule.path}"
    hint = "One tile; time runs to the right. output[r1].0 is chunk 0 of the output of rank 1."
    hint = hint if steps else "No steps: nothing is moved, ranks only wait for each other."
    lines = (TITLE_GLYPH * len(title), TEXT_GLYPH * len(hint))
    width, height = max(layout.width, key_end, 2 * MARGIN + max(lines)), layout.height + 48
    arrows = "".join(
        f'<marker id="{marker(colour)}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0.5 8 4 0 7.5z" fill="{colour}"/></marker>'
        for colour in (INK, FAINT, ALARM)
    )
    parts = [
        text(MARGIN, 28, title, font_size=16, font_weight="bold"),
        text(MARGIN, 48, hint, fill=FAINT),
    ]
    for rank, (top, bottom) in enumerate(layout.bands):
        frame = f'x="{MARGIN / 2}" y="{top - 11:.1f}" width="{width - MARGIN:.1f}" height="{bottom - top + 19:.1f}"'
        parts.append(f'<rect class="rank" {frame} rx="8" fill="{BAND}" stroke="{GRID}"/>')
        parts.append(text(MARGIN, (top + bottom) / 2 + 4, f"rank {rank}", font_weight="bold"))
    for box in layout.boxes.values():
        parts += drawn_waits(layout.boxes, box)
    parts += map(drawn_box, layout.boxes.values())
    parts += key
    lagging = sum("@" in wait for step in steps for wait in step.after)
    if lagging:
        parts.append(
            text(LEFT, layout.height + 36, f"not drawn: {lagging} waits for an earlier tile (reuse of a slot)")
        )
    return document(width, height, title, parts, defs=f"<defs>{arrows}</defs>")
