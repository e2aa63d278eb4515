"""Positions of the parts of a machine in its picture: hosts at the top, then PCIe, GPUs, NVLink and networks.

::

    memory          [memory0]                 [memory1]
    sockets     [     socket0      ]──────[     socket1      ]      as wide as the parts below them
    PCIe        [ pcie0 ]  [ pcie1 ]      [ pcie2 ]  [ pcie3 ]
    ends        gpu0 nic0  gpu1 nic1      gpu2 nic2  gpu3 nic3
    NVSwitch    [                   nvswitch                  ]
    networks    [                     rail0                   ]     all nodes of a cluster share the rails

If more than `FOLDED` GPUs of a node share a switch, half of them are above it and half below it. All positions follow
from the devices and links and their order, so the same fabric has the same picture. Parts without a socket, which
imported machines may have, are placed beside the others. Source: ours.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nvcoll._nvcoll import Fabric

FOLDED = 16
"""The most GPUs of a node in one row; more form two rows. Chosen: the width of a wide screen."""

ROOMY = 16
"""The most GPUs with large boxes and with rates at lines. Beyond it, only the legend has rates. Chosen, likewise."""

MARGIN, TITLE = 24.0, 64.0
RAIL, RAIL_PITCH, RAIL_END = 14.0, 22.0, 9.0
MOST_NODES = 3
"""The most equal nodes that are drawn. Of more nodes, the first stands for all. Chosen: the width of a wide screen."""

LOOP = 11.0
"""The additional depth of an arc for each GPU that it passes, in pixels. Chosen."""

DEEPEST = 120.0
"""The depth of the deepest arc, in pixels. Chosen."""


BELOW = {
    "socket": ("pcie_switch", "gpu", "nic", "memory"),
    "pcie_switch": ("pcie_switch", "gpu", "nic"),
}
"""The kinds of devices that hang below a kind."""


@dataclass(frozen=True)
class Device:
    """A device of a machine, a row of `Fabric.devices`."""

    name: str
    kind: str
    node: int | None
    chips: int


@dataclass(frozen=True)
class Cable:
    """The links of one medium between two devices: both directions, `times` equal links.

    `aside` separates cables of different media between the same devices: 0 in the middle, -0.5 and 0.5 for two.
    """

    a: str
    b: str
    medium: str
    lanes: int
    line_gbps: float
    used_gbps: float
    times: int
    aside: float


@dataclass(frozen=True)
class Spot:
    """The box of a device."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.height

    @property
    def centre(self) -> float:
        """The middle between left and right."""
        return self.x + self.width / 2

    @property
    def middle(self) -> float:
        """The middle between top and bottom."""
        return self.y + self.height / 2


@dataclass(frozen=True)
class Size:
    """Widths and heights in pixels."""

    end: float
    gap: float
    box: float
    row: float
    between: float


LARGE = Size(end=60, gap=8, box=28, row=34, between=34)
SMALL = Size(end=33, gap=3, box=20, row=18, between=8)
"""The sizes of a roomy and of a dense picture. Chosen: names of five letters fit in the box of a GPU."""


def cables_of(fabric: Fabric) -> list[Cable]:
    """Returns the cables of a fabric, one for each pair and medium, in the order of its links."""
    found: Counter[tuple[str, str, str, int]] = Counter()
    rates: dict[tuple[str, str, str, int], tuple[float, float]] = {}
    for source, target, medium, lanes, line, used in fabric.links:
        key = (source, target, medium, lanes)
        back = (target, source, medium, lanes)
        key = back if back in rates else key
        rates.setdefault(key, (line, used))
        found[key] += 1
    alike: dict[frozenset[str], list[tuple[str, str, str, int]]] = {}
    for key in rates:
        alike.setdefault(frozenset(key[:2]), []).append(key)
    aside = {key: nth - (len(keys) - 1) / 2 for keys in alike.values() for nth, key in enumerate(keys)}
    return [Cable(*key, *rates[key], times=(found[key] + 1) // 2, aside=aside[key]) for key in rates]


def are_equal(devices: Mapping[str, Device], cables: Iterable[Cable]) -> bool:
    """Says whether all nodes of a cluster have the same devices and links, by their names within the node."""

    def inside(name: str) -> str:
        return name if devices[name].node is None else name.partition(".")[2]

    of_nodes: dict[int, Counter[tuple[object, ...]]] = {}
    for device in devices.values():
        if device.node is not None:
            of_nodes.setdefault(device.node, Counter())[inside(device.name), device.kind, device.chips] += 1
    for cable in cables:
        nodes = {node for name in (cable.a, cable.b) if (node := devices[name].node) is not None}
        if len(nodes) > 1:
            return False
        for node in nodes:
            ends = sorted((inside(cable.a), inside(cable.b)))
            what = (cable.medium, cable.lanes, cable.line_gbps, cable.used_gbps, cable.times)
            of_nodes[node][(*ends, *what)] += 1
    first, *others = of_nodes.values()
    return all(one == first for one in others)


@dataclass
class Layout:
    """The boxes of the picture by name, the frames of the nodes, and the size of the picture."""

    devices: dict[str, Device]
    cables: list[Cable]
    spots: dict[str, Spot] = field(default_factory=dict)
    frames: list[tuple[int, Spot]] = field(default_factory=list)
    rails: list[str] = field(default_factory=list)
    is_roomy: bool = True
    width: float = 0
    height: float = 0
    equal_nodes: int = 1
    """The number of equal nodes that each node of the picture stands for."""
    has_tiers: bool = False
    """Whether it shows tiers of switches, with groups of nodes as boxes."""

    @classmethod
    def of(cls, fabric: Fabric) -> Layout:
        """Places every device of a fabric."""
        devices = {row[0]: Device(*row) for row in fabric.devices}
        cables = cables_of(fabric)
        nodes = sorted({device.node for device in devices.values() if device.node is not None})
        gpus, copies = fabric.world_size, 1
        if len(nodes) > MOST_NODES and are_equal(devices, cables):
            gpus, copies = gpus // len(nodes), len(nodes)
            nodes = nodes[:1]
            devices = {name: device for name, device in devices.items() if device.node in (nodes[0], None)}
            cables = [cable for cable in cables if cable.a in devices and cable.b in devices]
        rails = [name for name, device in devices.items() if device.node is None]
        layout = cls(devices, cables, rails=rails, is_roomy=gpus <= ROOMY, equal_nodes=copies)
        x, bottom = MARGIN, TITLE
        for node in nodes:
            members = [device for device in devices.values() if device.node == node]
            block = _Block.of(members, layout)
            inset = 0.0 if len(nodes) * copies == 1 else 12.0
            for name, spot in block.spots.items():
                layout.spots[name] = Spot(x + inset + spot.x, TITLE + 2 * inset + spot.y, spot.width, spot.height)
            frame = Spot(x, TITLE, block.width + 2 * inset, block.height + 3 * inset)
            layout.frames.append((node, frame))
            x, bottom = frame.right + 24, max(bottom, frame.bottom)
        end = x - 24 + (RAIL_END * (len(rails) + 1) if len(rails) > 1 else 0.0)
        for nth, name in enumerate(rails):
            layout.spots[name] = Spot(MARGIN, bottom + 24 + RAIL_PITCH * nth, end - MARGIN, RAIL)
        layout.width = end + MARGIN
        layout.height = max(bottom, *(spot.bottom for spot in layout.spots.values()))
        return layout

    @property
    def size(self) -> Size:
        """The sizes of its boxes."""
        return LARGE if self.is_roomy else SMALL

    def is_rail(self, name: str) -> bool:
        """Says whether a device is outside the nodes: a rail of a network, or a switch between rails."""
        return self.devices[name].node is None


@dataclass
class _Block:
    """One node, its corner at the origin."""

    spots: dict[str, Spot]
    width: float
    height: float

    @classmethod
    def of(cls, members: list[Device], layout: Layout) -> _Block:
        names = {device.name for device in members}
        cables = [cable for cable in layout.cables if cable.a in names and cable.b in names]
        kinds = {device.name: device.kind for device in members}
        size, (roots, under) = layout.size, _tree(kinds, cables)
        switches = [name for name, kind in kinds.items() if kind in ("nvswitch", "network_switch")]
        gpus = [name for name, kind in kinds.items() if kind == "gpu"]
        has_arcs = any(kinds[cable.a] == kinds[cable.b] == "gpu" for cable in cables)
        is_alone = not layout.rails
        halves = [roots]
        if len(gpus) > FOLDED and switches and not has_arcs and is_alone:
            half = (len(roots) + 1) // 2
            halves = [roots[:half], roots[half:]]
        upper = _placed(halves[0], under, kinds, cables, size)
        width = max((spot.right for spot in upper.values()), default=size.end)
        bottom = max((spot.bottom for spot in upper.values()), default=0.0)
        spots = dict(upper)
        for name in switches:
            spots[name] = Spot(0, bottom + size.row, width, size.box)
            bottom += size.row + size.box
        if len(halves) == 2:
            lower = _placed(halves[1], under, kinds, cables, size)
            deepest = max(spot.bottom for spot in lower.values())
            for name, spot in lower.items():
                y = bottom + size.row + deepest - spot.bottom
                spots[name] = Spot(spot.x, y, spot.width, spot.height)
            bottom += size.row + deepest
        arcs = [cable for cable in cables if kinds[cable.a] == kinds[cable.b] == "gpu"]
        bottom += max((depth(spots, cable) for cable in arcs), default=0.0)
        return cls(spots, width, bottom)


def depth(spots: Mapping[str, Spot], cable: Cable) -> float:
    """Returns the depth of an arc between two boxes of one row."""
    a, b = spots[cable.a], spots[cable.b]
    return min(12 + LOOP * abs(a.centre - b.centre) / (a.width + LARGE.gap), DEEPEST)


def _tree(kinds: Mapping[str, str], cables: Iterable[Cable]) -> tuple[list[str], dict[str, list[str]]]:
    """Returns the roots of a node and what hangs below each device: memory, PCIe switches, GPUs and NICs below sockets.

    A device below no socket is a root itself; switches of NVLink and of networks are in no tree.
    """
    beside: dict[str, list[str]] = {name: [] for name in kinds}
    for cable in cables:
        beside[cable.a].append(cable.b)
        beside[cable.b].append(cable.a)
    roots = [name for name, kind in kinds.items() if kind == "socket"]
    under: dict[str, list[str]] = {name: [] for name in kinds}
    placed = {*roots, *(name for name, kind in kinds.items() if kind in ("nvswitch", "network_switch"))}
    waiting = deque(roots)
    while waiting:
        name = waiting.popleft()
        for other in (other for other in kinds if other in beside[name] and other not in placed):
            if kinds[other] in BELOW.get(kinds[name], ()):
                under[name].append(other)
                placed.add(other)
                waiting.append(other)
    return roots + [name for name in kinds if name not in placed], under


def _placed(
    roots: Sequence[str],
    under: Mapping[str, Sequence[str]],
    kinds: Mapping[str, str],
    cables: Iterable[Cable],
    size: Size,
) -> dict[str, Spot]:
    """Places these roots and their trees from left to right: memory on top, and the ends in one row at the bottom."""
    memories = {root: [name for name in under[root] if kinds[name] == "memory"] for root in roots}
    below = {name: [other for other in of if kinds[other] != "memory"] for name, of in under.items()}
    has_memory = any(memories.values())
    top = size.box + size.row if has_memory else 0.0
    top += _arch(roots, cables, size)

    def levels(name: str) -> int:
        return 1 + max((levels(other) for other in below[name]), default=-1)

    deepest = max((levels(root) for root in roots), default=0)
    spots: dict[str, Spot] = {}
    x = 0.0

    def put(name: str, level: int) -> Spot:
        nonlocal x
        first = x
        for other in below[name]:
            put(other, level + 1)
        if x == first:
            x += size.end + size.gap
        row = level if kinds[name] not in ("gpu", "nic") else deepest
        spots[name] = Spot(first, top + row * (size.box + size.row), x - size.gap - first, size.box)
        return spots[name]

    for root in roots:
        spot = put(root, 0)
        held = memories[root]
        for nth, name in enumerate(held):
            width = min(spot.width / len(held) - size.gap * (len(held) > 1), 1.5 * size.end)
            centre = spot.x + spot.width * (2 * nth + 1) / (2 * len(held))
            spots[name] = Spot(centre - width / 2, spot.y - size.row - size.box, width, size.box)
        x += size.between
    return spots


def _arch(roots: Sequence[str], cables: Iterable[Cable], size: Size) -> float:
    """Returns the height above all boxes for arcs between sockets that are not neighbours."""
    order = {name: nth for nth, name in enumerate(roots)}
    reach = [abs(order[c.a] - order[c.b]) for c in cables if c.a in order and c.b in order]
    return size.row if max(reach, default=0) > 1 else 0.0
