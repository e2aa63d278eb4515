"""The machine of a log that the user does not name: one node, by its GPUs, or several on AWS, by the cards as well."""

from __future__ import annotations

from nvcoll._nvcoll import Fabric, InvalidArgument, cluster, fabric, fabrics, gpus_called
from nvcoll.check.log import Log
from nvcoll.text.formatting import counted

BOARD = 8
"""The most GPUs of a board; a machine with more is a rack of hosts."""

EFA = {4: "efa-100-4", 8: "efa-400-8", 16: "efa-200-16", 32: "efa-100-32"}
"""The networks of AWS by the number of cards that its plugin finds in a node."""


def _numbers(log: Log, fact: str) -> list[int]:
    return [int(value) for value in log.facts.get(fact, ()) if len(value) < 6]


def _cluster(log: Log, nodes: int, board: Fabric | None) -> Fabric:
    """Returns the machine of several nodes, whose network only the plugin of AWS names."""
    efa = next((EFA[cards] for cards in _numbers(log, "cards") if cards in EFA), None)
    if board and efa and "network=AWS Libfabric" in log.evidence and log.ranks == nodes * board.world_size:
        return cluster(board, nodes=nodes, network=efa)
    network = "roce-400-8" if "medium=RoCE" in log.evidence else "ib-ndr-8"
    node = board.name if board else next(iter(_known(log.gpus[0], len(log.gpus) // nodes)), "hgx-h100")
    lacks = f"the log has {nodes} nodes, and does not name their network"
    raise InvalidArgument(f"{lacks}: pass --on, as --on {node}x{nodes}+{network}")


def _known(gpu: str, count: int) -> list[str]:
    """Returns the machines with a number of GPUs of a model."""
    called = gpus_called(gpu)
    return [one.name for one in fabrics() if one.world_size == count and one.gpu_model in called]


def _board(gpu: str) -> Fabric | None:
    """Returns the board or rack on which a model of GPU is sold, if it is sold on one alone."""
    called = gpus_called(gpu)
    return fabric(called[0].board) if len(called) == 1 and called[0].board else None


def of_ranks(fabric: Fabric, ranks: int) -> Fabric:
    """Returns the machine with this number of GPUs, made of the same nodes.

    Raises:
        InvalidArgument: there is none, or the nodes and the network of the machine are not known.
    """
    nodes, rest = divmod(ranks * fabric.nodes, fabric.world_size)
    if rest or nodes < 1:
        raise InvalidArgument(f"{ranks} GPUs are no whole number of nodes of {fabric.name}")
    return fabric.with_nodes(nodes)


def of_log(log: Log, machine: Fabric) -> Fabric:
    """Returns the machine with as many nodes as the ranks fill; `machine` if none is so, or the log has other hosts."""
    if machine.nodes == 1 or not log.ranks or log.ranks in (1, machine.world_size):
        return machine
    try:
        same = of_ranks(machine, log.ranks)
    except InvalidArgument:
        return machine
    is_rack = same.world_size > BOARD * same.nodes  # whose trays are hosts
    return same if is_rack or len(set(log.hosts)) in (0, same.nodes) else machine


def part(log: Log, machine: Fabric) -> str | None:
    """Says with what part of a cluster a log of fewer ranks is compared, and how to name such ranks on all nodes."""
    nodes, rest = divmod((log.ranks or 0) * machine.nodes, machine.world_size)
    if rest or not 0 < nodes < machine.nodes:
        return None
    counts = "one node" if nodes == 1 else f"{nodes} nodes"
    hosts = f"the log has {counted(len(set(log.hosts)), 'host')}"
    words = hosts if of_log(log, machine) is machine else f"compared with {counts} of {machine.name}"
    compared = f"{log.ranks} ranks: {words}"
    each, odd = divmod(log.ranks or 0, machine.nodes)
    if odd or "[" in machine.name or not machine.name.startswith(f"{machine.node}x"):
        return compared
    some = f"[0-{each - 1}]" if each > 1 else "[0]"
    name = machine.name.replace(machine.node, f"{machine.node}{some}", 1)
    return f"{compared}; if {counted(each, 'rank')} ran on each of {machine.nodes} nodes, pass {name}"


def doubt(log: Log, machine: Fabric) -> str | None:
    """Returns why a machine may not be the log's: the names of the GPUs differ."""
    numbers = {row.name.split("-")[0] for gpu in log.gpus for row in gpus_called(gpu)}
    if not log.gpus or machine.gpu_model.name.split("-")[0] in numbers:
        return None
    return f"the GPUs of the log are `{log.gpus[0]}`, the GPUs of {machine.name} are {machine.gpu}"


def of_header(log: Log) -> Fabric:
    """Returns the machine that the lines of devices name.

    Raises:
        InvalidArgument: the lines are missing, name several nodes, or a GPU that is built into different machines.
    """
    if not log.gpus or not log.ranks:
        example = f"hgx-h100x{log.ranks // 8}+ib-ndr-8" if log.ranks and log.ranks > 8 else "hgx-h100"
        raise InvalidArgument(f"the log has no lines of devices: pass --on, as --on {example}")
    gpu = log.gpus[0]
    found = _board(gpu)
    is_rack = found is not None and found.world_size > BOARD
    least = -(-log.ranks // found.world_size) if found else 1  # of a rack, and of scripts of torch, which name no hosts
    nodes = least if is_rack else len(set(log.hosts)) or max(_numbers(log, "nodes"), default=least)
    devices = range(log.ranks) if is_rack else log.devices or range(log.ranks)
    if nodes > 1:
        return _cluster(log, nodes, found)
    if found is None or len(set(log.gpus)) > 1:
        known = " or ".join(_known(gpu, log.ranks))
        names = f", as --on {known}" if known else "; nvcoll fabric lists machines"
        raise InvalidArgument(f"`{gpu}` does not show how GPUs are connected: pass --on{names}")
    name, most = found.name, found.world_size
    if log.ranks > most or max(devices) >= most:
        raise InvalidArgument(f"the log has {log.ranks} ranks on one node, {name} has {most} GPUs: pass --on")
    if log.ranks < most and len(devices) == log.ranks:
        name = f"{name}[{','.join(map(str, devices))}]"
    return fabric(name)
