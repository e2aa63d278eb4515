"""Positions of a network whose nodes hang at different switches: a row for each tier of switches, and the nodes below.

::

    core        [                 core                ]
    spine       [     spine0     ]  [     spine1      ]
    leaf        [ leaf0 ] [ leaf1 ]  [ leaf2 ] [ leaf3 ]
    nodes       [ n0-1  ] [ n2-3  ]  [ n4-5  ] [ n6-7  ]      nodes that hang at the same switches are one box

The tier of a switch is the number of links to the nearest network card. Links between switches of one tier, as in a
mesh or a torus, are arcs above them. Devices inside nodes are not drawn: `nvcoll.draw.machine_layout` has them.
Source: ours.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from nvcoll._nvcoll import Fabric
from nvcoll.draw.machine_layout import (
    MARGIN,
    MOST_NODES,
    TITLE,
    Cable,
    Device,
    Layout,
    Spot,
    are_equal,
    cables_of,
    depth,
)

PITCH, BOX, HEIGHT, ROW = 60.0, 50.0, 24.0, 54.0
"""In pixels: the least width of a box with the gap to the next, and of a box; the heights of a box and of the gap
between rows. Chosen: names of eight letters can be read."""

WIDEST = 160.0
"""The width of the widest box, in pixels. Chosen."""


def has_groups(fabric: Fabric) -> bool:
    """Says whether the nodes of a cluster are too many to be drawn one by one, and hang at different switches."""
    devices = {row[0]: Device(*row) for row in fabric.devices}
    return fabric.nodes > MOST_NODES and not are_equal(devices, cables_of(fabric))


def of(fabric: Fabric) -> Layout:
    """Places the switches of a network, and a box for each group of nodes."""
    devices = {row[0]: Device(*row) for row in fabric.devices}
    cables = [cable for cable in cables_of(fabric) if "network_switch" in _kinds(devices, cable)]
    between = [cable for cable in cables if set(_kinds(devices, cable)) == {"network_switch"}]
    hanging, groups = _groups(devices, [cable for cable in cables if cable not in between])
    tiers = _tiers(devices, {cable.b for cable in hanging}, between)
    # A switch has a node number here: it is no rail, whose lines a machine's picture leads past others.
    shown = {name: Device(name, "node", 0, 1) for name in groups}
    shown |= {name: replace(devices[name], node=0) for row in tiers for name in row}
    layout = Layout(shown, [*hanging, *between], is_roomy=False, has_tiers=True)
    rows = [*reversed(tiers), groups]
    width = PITCH * max(map(len, rows))
    y = TITLE
    for row in rows:
        pitch = width / len(row)
        box = min(pitch - (PITCH - BOX), WIDEST)
        spots = {name: Spot(MARGIN + (nth + 0.5) * pitch - box / 2, y, box, HEIGHT) for nth, name in enumerate(row)}
        arcs = [cable for cable in between if cable.a in spots and cable.b in spots]
        down = max((depth(spots, cable) for cable in arcs), default=0.0)
        layout.spots |= {name: replace(spot, y=y + down) for name, spot in spots.items()}
        y += down + HEIGHT + ROW
    layout.width, layout.height = width + 2 * MARGIN, y - ROW
    return layout


def _kinds(devices: dict[str, Device], cable: Cable) -> tuple[str, str]:
    return devices[cable.a].kind, devices[cable.b].kind


def _groups(devices: dict[str, Device], cables: list[Cable]) -> tuple[list[Cable], list[str]]:
    """Returns the links of groups of nodes to switches, and the names of the groups."""
    links: dict[int, Counter[Cable]] = {}
    for cable in cables:
        card, switch = (cable.a, cable.b) if devices[cable.a].kind == "nic" else (cable.b, cable.a)
        node = devices[card].node
        assert node is not None, "a card is in a node"
        links.setdefault(node, Counter())[replace(cable, a="", b=switch, aside=0)] += 1
    alike: dict[frozenset[tuple[Cable, int]], list[int]] = {}
    for node in sorted(links):
        alike.setdefault(frozenset(links[node].items()), []).append(node)
    hanging, names = [], []
    for same, nodes in alike.items():
        names.append(f"n{nodes[0]}" if len(nodes) == 1 else f"n{nodes[0]}-{nodes[-1]}")
        each = sorted(same, key=lambda pair: list(devices).index(pair[0].b))
        hanging += [replace(one, a=names[-1], times=one.times * count * len(nodes)) for one, count in each]
    return hanging, names


def _tiers(devices: dict[str, Device], leaves: set[str], between: list[Cable]) -> list[list[str]]:
    """Returns the switches of each tier, from the cards up, each in the order of the fabric."""
    beside: dict[str, set[str]] = {}
    for cable in between:
        beside.setdefault(cable.a, set()).add(cable.b)
        beside.setdefault(cable.b, set()).add(cable.a)
    tiers, placed = [], set[str]()
    reached = leaves
    while reached:
        tiers.append([name for name in devices if name in reached])
        placed |= reached
        reached = {other for name in reached for other in beside.get(name, ())} - placed
    return tiers
