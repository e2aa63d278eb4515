"""The machine of a log: the one that the user names, or for one node the one that the header tells."""

from __future__ import annotations

import re

from nvcoll._nvcoll import Fabric, InvalidArgument, fabric
from nvcoll.check.log import Log

BOARDS = {
    r"H100 80GB HBM3|H100 SXM": ("hgx-h100", 8),
    r"\bH200\b": ("hgx-h200", 8),
    r"\bH20\b": ("hgx-h20", 8),
    r"\bB200\b": ("hgx-b200", 8),
    r"\bB300\b": ("hgx-b300", 8),
    r"A[18]00-SXM": ("hgx-a100", 8),
    r"MI300X": ("mi300x-8", 8),
    r"\bGB10\b": ("gb10-1", 1),
}
"""Models of GPUs that are sold on one board alone: the machine and its number of GPUs."""


def of_header(log: Log) -> Fabric:
    """Returns the machine that the lines of devices tell.

    Raises:
        InvalidArgument: the lines are missing, name several nodes, or a GPU that is built into different machines.
    """
    if not log.gpus or not log.ranks:
        raise InvalidArgument("the log has no lines of devices: pass --on, as --on hgx-h100")
    nodes, gpu = len(set(log.hosts)), log.gpus[0]
    found = next((machine for model, machine in BOARDS.items() if re.search(model, gpu)), None)
    if not nodes and found:  # scripts of torch name no hosts: one board as long as it has enough GPUs
        nodes = -(-log.ranks // found[1])
    if nodes > 1:
        name = found[0] if found else "NODE"
        raise InvalidArgument(
            f"the log has {nodes} nodes, and does not name their network: pass --on, as --on {name}x{nodes}+ib-ndr-8"
        )
    if found is None or len(set(log.gpus)) > 1:
        raise InvalidArgument(f"`{gpu}` does not tell how GPUs are connected: pass --on; nvcoll fabric lists machines")
    name, most = found
    devices = log.devices or range(log.ranks)
    if log.ranks > most or max(devices) >= most:
        raise InvalidArgument(f"the log has {log.ranks} ranks on one node, {name} has {most} GPUs: pass --on")
    if log.ranks < most and len(devices) == log.ranks:
        name = f"{name}[{','.join(map(str, devices))}]"
    return fabric(name)
