"""Machines with something missing: a description with fewer lanes, or another network.

A machine becomes a description in TOML (``docs/machines.md``) whose links have lost lanes, and nvcoll reads it again.
So a damaged machine is predicted like any other.
"""

from __future__ import annotations

import json
import re

from nvcoll._nvcoll import Fabric, InvalidArgument, Network, cluster, gpus, networks
from nvcoll._nvcoll import fabric as preset

_CLUSTER = re.compile(r"(?P<node>.+)x(?P<nodes>\d+)\+(?P<network>.+)")
_SHIPPED = re.compile(r"(?P<medium>.+)-(?P<nics>\d+)")


def _table(name: str, /, **fields: str | int) -> str:
    return "\n".join([f"[[{name}]]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items())])


def described(node: Fabric, family: str = "", part: int = 1, *, of_all: bool = True) -> Fabric:
    """Returns a machine of one node whose GPUs have fewer lanes.

    Args:
        node: the machine.
        family: the beginning of the media that lose lanes, as ``pcie``.
        part: the lanes, divided by those that are left, of which there is at least one; 0: no link is left.
        of_all: whether all GPUs lose lanes, or the first one.

    Raises:
        InvalidArgument: the description is wrong.
    """
    model = next(row.name for row in gpus() if node.gpu in (row.name, row.title))
    hit = [name for name, kind, *_ in node.devices if kind == "gpu"][: None if of_all else 1]
    names = ("peer_access", "multicast", "switch_reduction", "gpu_direct", "forwards")
    abilities = ", ".join(f"{name} = {json.dumps(name in node.abilities)}" for name in names)
    tables = [
        f'gpu = "{model}"\nabilities = {{ {abilities} }}\nsources = ["a damaged {node.name}"]',
        _table("machines", name=node.name, title=node.title),
        *(_table("devices", names=name, kind=kind, chips=chips) for name, kind, _, chips in node.devices),
    ]
    order = {name: nth for nth, (name, *_) in enumerate(node.devices)}
    for start, end, medium, lanes, *_ in node.links:
        if order[start] > order[end]:  # the other direction of a link
            continue
        loses = medium.startswith(family) and (start in hit or end in hit)
        if loses and part == 0:
            continue
        ends = {"from": start, "to": end}
        tables.append(_table("links", **ends, medium=medium, lanes=max(1, lanes // part) if loses else lanes))
    return Fabric.from_text("\n\n".join(tables))


def _parts(fabric: Fabric) -> re.Match[str]:
    """Returns node, nodes and network of the name of a cluster."""
    if (parts := _CLUSTER.fullmatch(fabric.name)) is None:
        raise InvalidArgument(f"the name of {fabric.name} does not tell its node and its network")
    return parts


def node_of(fabric: Fabric) -> str:
    """Returns the name of the node of which a machine has one or several."""
    parts = _CLUSTER.fullmatch(fabric.name)
    return fabric.name if parts is None else parts["node"]


def cards_of(fabric: Fabric) -> int | None:
    """Returns the number of network cards of a node, if the name of the cluster tells it."""
    parts = _CLUSTER.fullmatch(fabric.name)
    shipped = _SHIPPED.fullmatch(parts["network"]) if parts else None
    return int(shipped["nics"]) if shipped else None


def with_lanes(fabric: Fabric, family: str, part: int, *, of_all: bool) -> Fabric:
    """Returns a machine with fewer lanes in each node.

    Args:
        fabric: the machine.
        family: the beginning of the media that lose lanes, as ``pcie``.
        part: the lanes, divided by those that are left; 0: no link is left.
        of_all: whether all GPUs lose lanes, or one of a node.

    Raises:
        InvalidArgument: the name of the machine does not tell its parts; its nodes are racks, whose trays no device
            names; or PCIe is the way to a network, whose ailments include it.
    """
    if fabric.nodes == 1:
        return described(fabric, family, part, of_all=of_all)
    if family == "pcie":
        raise InvalidArgument("GPUs with fewer lanes of PCIe are like a smaller part of the network")
    parts = _parts(fabric)
    node = described(preset(parts["node"]), family, part, of_all=of_all)
    damaged = cluster(node, nodes=int(parts["nodes"]), network=parts["network"])
    if len(damaged.devices) != len(fabric.devices):
        raise InvalidArgument(f"nodes of {fabric.name} are racks")
    return damaged


def of_nodes(fabric: Fabric, world_size: int) -> Fabric:
    """Returns the machine of as many of the same nodes as have this number of GPUs.

    Raises:
        InvalidArgument: there is none, or the name of the machine does not tell its parts.
    """
    parts = _parts(fabric)
    nodes, rest = divmod(world_size * fabric.nodes, fabric.world_size)
    if rest or nodes < 1:
        raise InvalidArgument(f"{world_size} GPUs are no whole number of nodes of {fabric.name}")
    return preset(parts["node"] if nodes == 1 else f"{parts['node']}x{nodes}+{parts['network']}")


def with_network(
    fabric: Fabric, cards: int = 1, rate: int = 1, medium: str | None = None, **fields: str | float
) -> Fabric:
    """Returns a cluster with another network; a machine of one node stays as it is.

    Args:
        fabric: the machine.
        cards: the number of network cards, divided by those that are left.
        rate: the rate of a card, divided by what is left.
        medium: the medium of one card that replaces the network's. Default: its own.
        fields: other fields of its description, as ``port_gbit``.

    Raises:
        InvalidArgument: the cards cannot be divided; the name of the machine does not tell its parts, or no shipped
            network.
    """
    if fabric.nodes == 1:
        return fabric
    parts = _parts(fabric)
    shipped = _SHIPPED.fullmatch(parts["network"])
    if shipped is None or int(shipped["nics"]) % cards:
        raise InvalidArgument(f"{parts['network']} does not tell its cards, or cannot have one in {cards} of them")
    if rate > 1:
        gbps = next((one.gbps for one in networks() if one.name == parts["network"]), None)
        if gbps is None:
            raise InvalidArgument(f"{parts['network']} is no shipped network")
        fields["port_gbit"] = 8 * gbps / int(shipped["nics"]) / rate
    own = medium or shipped["medium"]
    known = {
        "name": parts["network"],
        "title": "a damaged network",
        "source": "an ailment",
        "medium": own,
        "nics": 1 if medium else int(shipped["nics"]) // cards,
        "host_medium": "pcie5" if re.search("400|800|ndr|xdr", own) else "pcie4",
        "host_lanes": 16,
    }
    text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in {**known, **fields}.items())
    return cluster(parts["node"], nodes=int(parts["nodes"]), network=Network.from_text(text))
