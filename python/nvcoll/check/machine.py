"""The machine that the user names, beside what a log says: as many nodes as it has, and doubts."""

from __future__ import annotations

from shlex import quote

from nvcoll._nvcoll import Fabric, InvalidArgument, gpus_called
from nvcoll.check.candidates import BOARD
from nvcoll.check.log import Log
from nvcoll.text.formatting import counted


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
    return f"{compared}; if {counted(each, 'rank')} ran on each of {machine.nodes} nodes, pass {quote(name)}"


def doubt(log: Log, machine: Fabric) -> str | None:
    """Returns why a machine may not be the log's: the names of the GPUs differ."""
    numbers = {row.name.split("-")[0] for gpu in log.gpus for row in gpus_called(gpu)}
    if not log.gpus or machine.gpu_model.name.split("-")[0] in numbers:
        return None
    return f"the GPUs of the log are `{log.gpus[0]}`, the GPUs of {machine.name} are {machine.gpu}"
