"""The machine of a log that the user does not name: one node, by its GPUs, or several on AWS, by the cards as well."""

from __future__ import annotations

import re

from nvcoll._nvcoll import Fabric, InvalidArgument, fabric, fabrics
from nvcoll.check.log import Log

BOARDS = {
    r"H100 80GB HBM3|H100 SXM": ("hgx-h100", 8),
    r"\bH200\b(?! NVL)": ("hgx-h200", 8),
    r"\bH20\b": ("hgx-h20", 8),
    r"\bB200\b": ("hgx-b200", 8),
    r"\bB300\b": ("hgx-b300", 8),
    r"A100-SXM": ("hgx-a100", 8),
    r"A800-SXM": ("hgx-a800", 8),
    r"\bH800\b(?! (?:PCIe|NVL))": ("hgx-h800", 8),
    r"MI300X": ("mi300x-8", 8),
    r"MI355X": ("mi355x-8", 8),
    r"\bGB10\b": ("gb10-1", 1),
    r"\bGB200\b": ("gb200-nvl72", 72),
    r"\bGB300\b": ("gb300-nvl72", 72),
}
"""Models of GPUs that are sold on one board, or in one rack, alone: the machine and its number of GPUs."""

BOARD = 8
"""The most GPUs of a board; a machine with more is a rack of hosts."""

EFA = {4: "efa-100-4", 8: "efa-400-8", 16: "efa-200-16", 32: "efa-100-32"}
"""The networks of AWS by the number of cards that its plugin finds in a node."""


def _numbers(log: Log, fact: str) -> list[int]:
    return [int(value) for value in log.facts.get(fact, ()) if len(value) < 6]


def _cluster(log: Log, nodes: int, board: tuple[str, int] | None) -> Fabric:
    """Returns the machine of several nodes, whose network only the plugin of AWS names."""
    efa = next((EFA[cards] for cards in _numbers(log, "cards") if cards in EFA), None)
    if board and efa and "network=AWS Libfabric" in log.told and log.ranks == nodes * board[1]:
        return fabric(f"{board[0]}x{nodes}+{efa}")
    network = "roce-400-8" if "medium=RoCE" in log.told else "ib-ndr-8"
    node = board[0] if board else next(iter(_known(log.gpus[0], len(log.gpus) // nodes)), "hgx-h100")
    told = f"the log has {nodes} nodes, and does not name their network"
    raise InvalidArgument(f"{told}: pass --on, as --on {node}x{nodes}+{network}")


def _words(gpu: str) -> set[str]:
    return set(re.findall("[a-z0-9]+", gpu.lower()))


def _known(gpu: str, count: int) -> list[str]:
    """Returns the machines with a number of GPUs of a model."""
    return [one.name for one in fabrics() if one.world_size == count and _words(one.gpu) <= _words(gpu)]


def doubt(log: Log, machine: Fabric) -> str | None:
    """Returns why a machine may not be that of a log: the names of the GPUs differ."""
    model = {word for word in _words(machine.gpu or "") if re.search(r"\d", word) and not word.startswith("sxm")}
    if not log.gpus or any(model <= _words(gpu) for gpu in log.gpus):
        return None
    return f"the GPUs of the log are `{log.gpus[0]}`, those of {machine.name} are {machine.gpu}"


def of_header(log: Log) -> Fabric:
    """Returns the machine that the lines of devices tell.

    Raises:
        InvalidArgument: the lines are missing, name several nodes, or a GPU that is built into different machines.
    """
    if not log.gpus or not log.ranks:
        example = f"hgx-h100x{log.ranks // 8}+ib-ndr-8" if log.ranks and log.ranks > 8 else "hgx-h100"
        raise InvalidArgument(f"the log has no lines of devices: pass --on, as --on {example}")
    gpu = log.gpus[0]
    found = next((machine for model, machine in BOARDS.items() if re.search(model, gpu)), None)
    is_rack = found is not None and found[1] > BOARD
    least = -(-log.ranks // found[1]) if found else 1  # of a rack, and of scripts of torch, which name no hosts
    nodes = least if is_rack else len(set(log.hosts)) or max(_numbers(log, "nodes"), default=least)
    devices = range(log.ranks) if is_rack else log.devices or range(log.ranks)
    if nodes > 1:
        return _cluster(log, nodes, found)
    if found is None or len(set(log.gpus)) > 1:
        known = " or ".join(_known(gpu, log.ranks))
        names = f", as --on {known}" if known else "; nvcoll fabric lists machines"
        raise InvalidArgument(f"`{gpu}` does not tell how GPUs are connected: pass --on{names}")
    name, most = found
    if log.ranks > most or max(devices) >= most:
        raise InvalidArgument(f"the log has {log.ranks} ranks on one node, {name} has {most} GPUs: pass --on")
    if log.ranks < most and len(devices) == log.ranks:
        name = f"{name}[{','.join(map(str, devices))}]"
    return fabric(name)
