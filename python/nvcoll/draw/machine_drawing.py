"""A machine as a picture: devices are boxes, links are lines, and faster links are thicker.

`nvcoll.draw.machine_layout` and `network_layout` place the boxes. A line stands for both directions of a link.
Hovering shows the medium, the number of lanes and the rate of one direction: the line rate, and the rate of long
transfers. Below the picture each kind of link is listed once, with the same rates. Arcs join GPUs with direct links.
Lines of networks pass behind other parts, cross the rails, and end in dots. The colours are from
`nvcoll.draw.drawing`. Source: ours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from nvcoll._nvcoll import Fabric, media
from nvcoll.draw import network_layout
from nvcoll.draw.drawing import BAND, COLOURS, FAINT, GRID, INK, PAPER, TEXT_GLYPH, TITLE_GLYPH, document, text
from nvcoll.draw.machine_layout import MARGIN, RAIL_END, Cable, Device, Layout, Spot, depth
from nvcoll.text.formatting import counted, escaped

FILLS = {
    "gpu": COLOURS["publish"],
    "nvswitch": COLOURS["publish"],
    "pcie_switch": COLOURS["copy"],
    "socket": GRID,
    "memory": PAPER,
    "nic": COLOURS["fold"],
    "network_switch": COLOURS["fold"],
    "node": PAPER,
}
"""The colour of a device, and of the links between such devices."""

LINES = {
    "nvlink": "#3f8f4f",
    "xgmi": "#3f8f4f",
    "pcie": "#3f72b5",
    "c2c": "#7d5ba6",
    "socket": "#8a6d3b",
    "memory": FAINT,
    "network": "#d17a22",
}
"""The colour of a family of links."""

GLYPH = 0.68
"""The width of a letter as a part of the size of its font. Chosen: wide fonts have this."""


PALE = 0.25
"""The opacity of links that carry nothing. Chosen."""

Busy = Mapping[str, float] | None
"""The part of the time in which links are busy, by family; None if that is not asked."""


def svg(fabric: Fabric, *, busy: Busy = None) -> str:
    """Draws a machine, or several with a network between them.

    Args:
        fabric: any; up to some hundred GPUs can be read.
        busy: the part of the time in which links carry something, by family (`families`). Other links are pale.

    Returns:
        A self-contained SVG document: one element of class `device` for each device, one of class `link` for each
        pair of devices and medium that joins them. Of more than three equal nodes, one is drawn for all. Of more than
        three that hang at different switches, the tiers of switches are drawn, with nodes as boxes.

    Example:
        >>> import nvcoll
        >>> from nvcoll.draw import machine_drawing
        >>> machine_drawing.svg(nvcoll.fabric("hgx-h100"))[:4]
        '<svg'
    """
    layout = network_layout.of(fabric) if network_layout.has_groups(fabric) else Layout.of(fabric)
    title = f"{fabric.name}: {fabric.title}"
    able = ", ".join(ability.replace("_", " ") for ability in fabric.abilities)
    hint = f"{counted(fabric.world_size, 'GPU')}, {fabric.gpu}; {able or 'moves bytes, nothing else'}; {fabric.trust}"
    legend = _legend(layout, busy)
    words = [TITLE_GLYPH * len(title), TEXT_GLYPH * len(hint), *(70 + TEXT_GLYPH * len(line) for _, line in legend)]
    width = max(layout.width, 2 * MARGIN + max(words))
    height = layout.height + 34 + 20 * len(legend)
    parts = [
        text(MARGIN, 28, title, font_size=16, font_weight="bold"),
        text(MARGIN, 48, hint, fill=FAINT),
    ]
    parts += _frames(layout)
    boxes = {name: _box(device, layout.spots[name]) for name, device in layout.devices.items()}
    parts += (box for name, box in boxes.items() if layout.is_rail(name))
    parts += (_line(layout, cable, busy) for cable in layout.cables)
    parts += (box for name, box in boxes.items() if not layout.is_rail(name))
    for nth, (cable, line) in enumerate(legend):
        y = layout.height + 30 + 20 * nth
        parts.append(f'<path d="M{MARGIN} {y - 4:.1f}h44" {_stroke(cable, busy)}/>{text(MARGIN + 56, y, line)}')
    return document(width, height, title, parts)


def families(fabric: Fabric) -> set[str]:
    """Returns the families of links of a machine: ``nvlink``, ``pcie``, ``network`` and others."""
    return {MEDIA.get(medium, (medium, "network"))[1] for _, _, medium, *_ in fabric.links}


MEDIA = {row.name: (row.title, row.family) for row in media()}


def _family(cable: Cable) -> str:
    return _medium(cable)[1]


def _medium(cable: Cable) -> tuple[str, str]:
    """Returns the title and the family of a link's medium. Media of a rate of one's own are of networks."""
    return MEDIA.get(cable.medium, (cable.medium, "network"))


def _rates(cable: Cable, busy: Busy) -> str:
    """Describes a link: its medium, its lanes, its rates one way, and whether it is busy."""
    title, family = _medium(cable)
    what = f"{title} x{cable.lanes}" if family == "pcie" else f"{cable.lanes} x {title}"
    load = f"; busy {100 * busy[family]:.0f} % of the time" if busy and family in busy else ""
    return (
        f"{what}: {_digits(cable.line_gbps, 4)} GB/s one way at line rate, {_digits(cable.used_gbps, 3)} in use{load}"
    )


def _digits(gbps: float, digits: int) -> str:
    """Writes a rate rounded to some digits, without an exponent."""
    return f"{float(f'{gbps:.{digits}g}'):.10g}"


def _legend(layout: Layout, busy: Busy) -> list[tuple[Cable, str]]:
    """Returns each kind of link once, with the number of links."""
    kinds: Counter[tuple[str, int]] = Counter()
    first: dict[tuple[str, int], Cable] = {}
    for cable in layout.cables:
        is_in_node = not (layout.is_rail(cable.a) and layout.is_rail(cable.b))
        kinds[cable.medium, cable.lanes] += cable.times * (layout.equal_nodes if is_in_node else 1)
        first.setdefault((cable.medium, cable.lanes), cable)
    return [(cable, f"{_rates(cable, busy)}; {kinds[key]} of these") for key, cable in first.items()]


def _stroke(cable: Cable, busy: Busy) -> str:
    """Returns the thickness of a line. It grows by the same amount for each doubling of the rate of all links."""
    pale = f' opacity="{PALE}"' if busy is not None and not busy.get(_family(cable)) else ""
    width = max(0.8, min(0.9 * math.log2(cable.line_gbps * cable.times / 8), 7.0))
    return f'stroke="{LINES[_family(cable)]}" stroke-width="{width:.1f}" fill="none"{pale}'


def _frames(layout: Layout) -> list[str]:
    """Draws a frame round each node, if there are several; one frame may stand for several equal nodes."""
    parts = []
    nodes = layout.equal_nodes
    for node, spot in layout.frames if len(layout.frames) * nodes > 1 else []:
        frame = f'x="{spot.x:.1f}" y="{spot.y:.1f}" width="{spot.width:.1f}" height="{spot.height:.1f}"'
        parts.append(f'<rect class="node" {frame} rx="8" fill="{BAND}" stroke="{GRID}"/>')
        parts.append(
            text(spot.x + 12, spot.y + 16, f"{nodes} x this node" if nodes > 1 else f"node {node}", font_weight="bold")
        )
    return parts


def _box(device: Device, spot: Spot) -> str:
    """Draws a device with its name. In a cluster, the name of the node is left out."""
    name = device.name.split(".")[-1]
    chips = f", {counted(device.chips, 'chip')}" if device.chips > 1 else ""
    shown = f"{name}{chips}"
    whole = f"{device.name}: {device.kind.replace('_', ' ')}{chips}"
    size = min(11.0, (spot.width - 4) / (GLYPH * len(shown)))
    frame = f'x="{spot.x:.1f}" y="{spot.y:.1f}" width="{spot.width:.1f}" height="{spot.height:.1f}" rx="5"'
    label = text(spot.centre, spot.middle + size / 3, shown, font_size=f"{size:.1f}", text_anchor="middle")
    return (
        f'<g class="device"><title>{escaped(whole)}</title>'
        f'<rect {frame} fill="{FILLS[device.kind]}" stroke="{INK}" stroke-width="0.8"/>{label}</g>'
    )


def _line(layout: Layout, cable: Cable, busy: Busy) -> str:
    """Draws the link of two devices, with its rate if there is room."""
    path, label = _path(layout, cable)
    times = f"{cable.times} times " if cable.times > 1 else ""
    head = f'<g class="link"><title>{escaped(f"{cable.a} - {cable.b}: {times}{_rates(cable, busy)}")}</title>'
    parts = [head, f'<path d="{path}" {_stroke(cable, busy)}/>']
    if _family(cable) == "network" and not layout.has_tiers:
        ends = [layout.spots[name] for name in (cable.a, cable.b)]
        x = _crossing(layout, cable, *ends)
        dots = (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{LINES["network"]}"/>' for y in _edges(*ends))
        parts += dots
    if label is not None and layout.is_roomy:
        x, y, anchor = label
        parts.append(text(x, y, f"{cable.line_gbps:.4g}", class_="note", text_anchor=anchor))
    return "".join(parts) + "</g>"


def _path(layout: Layout, cable: Cable) -> tuple[str, tuple[float, float, str] | None]:
    """Returns the line, and the position of its rate."""
    a, b = layout.spots[cable.a], layout.spots[cable.b]
    if a.y != b.y:
        x, (y1, y2) = _crossing(layout, cable, a, b), _edges(a, b)
        beside = (x + 6, (y1 + y2) / 2 + 3, "start")
        if _family(cable) == "network":
            beside = (x + 4, y1 + 12, "start")
        end = x if b.x <= x <= b.right else b.centre
        start = x if a.x <= x <= a.right else a.centre
        return f"M{start:.1f} {y1:.1f}L{end:.1f} {y2:.1f}", None if layout.is_rail(cable.a) else beside
    left, right = (a, b) if a.x < b.x else (b, a)
    kind = layout.devices[cable.a].kind
    if kind == "gpu":
        return _arc(left, right, left.bottom, 4 / 3 * depth(layout.spots, cable) - 10 * cable.aside), None
    row = (spot for spot in layout.spots.values() if spot.y == a.y)
    if layout.has_tiers:
        return _arc(left, right, left.y, -4 / 3 * depth(layout.spots, cable)), None
    between = any(left.right <= spot.x < right.x for spot in row)
    if between:
        return _arc(left, right, left.y, -4 / 3 * (layout.size.box + 1.6 * layout.size.row)), None
    middle = (left.right + right.x) / 2
    path = f"M{left.right:.1f} {left.middle:.1f}H{right.x:.1f}"
    return path, (middle, left.middle - 5, "middle")


def _arc(left: Spot, right: Spot, y: float, reach: float) -> str:
    """Returns the arc between two boxes of a row. It leaves each box near the middle, on the side of the other box."""
    x1, x2 = left.centre + left.width / 8, right.centre - right.width / 8
    return f"M{x1:.1f} {y:.1f}C{x1:.1f} {y + reach:.1f} {x2:.1f} {y + reach:.1f} {x2:.1f} {y:.1f}"


def _edges(a: Spot, b: Spot) -> tuple[float, float]:
    """Returns the two ends of a line between a box and a box below it."""
    return (a.bottom, b.y) if a.y < b.y else (a.y, b.bottom)


def _crossing(layout: Layout, cable: Cable, a: Spot, b: Spot) -> float:
    """Returns the horizontal position of a line between two rows: the middle of the narrower box."""
    if layout.is_rail(cable.a) and layout.is_rail(cable.b):
        nth = layout.rails.index(cable.a if a.y < b.y else cable.b)
        return a.right - RAIL_END * (nth + 1)
    narrow, wide = (a, b) if a.width <= b.width else (b, a)
    return min(max(narrow.centre, wide.x + 3), wide.right - 3) + 8.0 * cable.aside
