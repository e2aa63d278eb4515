"""Ailments: which damaged machine would print the times of a log that is not healthy.

An ailment is a machine with something missing, or NCCL with a setting. It is predicted like any machine, with the
settings of the log. The distance of the log from it is the root mean square of log(measured / predicted time) over the
sizes that decide::

    weight = how common it is x exp(-(distance / TOLERANCE)^2 / 2), x 20 if a line of the log names it
    odds   = weight / sum of weights, with "something else" at the distance OTHER

Causes with the same rates, as half of the cards or bonded cards, are one class: its members are named together, with
the commands that tell them apart. How common a class is was counted in the threads of data/nccl-logs; the tolerances
are chosen. An ailment that changes no time by `CHANGES` is left out. On two nodes, all_reduce without NVLS and with
half of the network take about the same time: no log of all_reduce alone tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp, log, sqrt

from nvcoll._nvcoll import Fabric, InvalidArgument, Network, cluster
from nvcoll._nvcoll import fabric as preset
from nvcoll.check.log import Log, Row

TOLERANCE, OTHER = 0.2, 0.5
"""The error of predictions of damaged machines, and the distance of causes that no machine stands for."""

COMMON_OTHER, LEAST_ODDS = 5, 0.05
"""How common other causes are, and the least odds of an ailment that is named. Chosen."""

NAMED = 20.0
"""The factor of an ailment that a line of the log names."""

SHOWN = 3
"""The most ailments that are named. Chosen."""

CHANGES = 1.05
"""How much longer the largest call takes at least with an ailment. Chosen."""

_NAME = re.compile(r"(?P<node>.+)x(?P<nodes>\d+)\+(?P<network>.+)-(?P<nics>\d+)")


@dataclass(frozen=True)
class Ailment:
    """A class of causes with the same rates."""

    name: str
    confirm: str
    common: float
    fabric: Callable[[], Fabric]
    settings: Mapping[str, str | int] = field(default_factory=dict)
    told_by: str = "(?!)"
    """Matches a setting or a fact of the log that names this ailment, as of `Log.told`."""


@dataclass(frozen=True)
class Suspect:
    """An ailment with its odds, and the busbw that is predicted with it at the largest size."""

    ailment: Ailment
    odds: float
    busbw: float


def _with_cards(node: str, nodes: int, medium: str, nics: int) -> Fabric:
    """Returns a cluster whose nodes have fewer network cards."""
    host = "pcie5" if re.search("400|800|ndr|xdr", medium) else "pcie4"
    fields = (f'medium = "{medium}"', f"nics = {nics}", f'host_medium = "{host}"', "host_lanes = 16")
    text = "\n".join((f'name = "{medium}-{nics}"', f'title = "{nics} cards"', 'source = "an ailment"', *fields))
    return cluster(node, nodes=nodes, network=Network.from_text(text))


def of(fabric: Fabric) -> Iterator[Ailment]:
    """Yields the ailments that a machine can have."""
    same = partial(lambda one: one, fabric)
    yield Ailment(
        "no NVLS",
        "NCCL_DEBUG=INFO ... | grep -i nvls; nvidia-smi -q | grep -A3 Fabric",
        4,
        same,
        {"NCCL_NVLS_ENABLE": 0},
        "NCCL_NVLS_ENABLE=0",
    )
    yield Ailment(
        "host staged: no peer access",
        "nvidia-smi topo -p2p r; lspci -vvv | grep ACSCtl; NCCL_DEBUG=INFO ... | grep 'via SHM'",
        6,
        same,
        {"NCCL_P2P_DISABLE": 1, "NCCL_NVLS_ENABLE": 0},
        "NCCL_P2P_DISABLE=1",
    )
    for name, value in (("NCCL_ALGO", "Ring"), ("NCCL_ALGO", "Tree"), ("NCCL_PROTO", "LL"), ("NCCL_PROTO", "LL128")):
        yield Ailment(
            f"{name}={value} is forced",
            "env | grep NCCL; cat /etc/nccl.conf ~/.nccl.conf",
            0.5,
            same,
            {name: value},
            f"(?i:{name}={value})$",
        )
    match = _NAME.fullmatch(fabric.name)
    if match is None:
        return
    node, nodes, nics = match["node"], int(match["nodes"]), int(match["nics"])
    for part, name, common in ((2, "half", 9), (4, "a quarter", 3), (8, "an eighth", 2)):
        if nics % part == 0:
            yield Ailment(
                f"{name} of the network: cards that are down, bonded or at a lower PCIe rate, ACS, wrong NUMA node",
                "ibstat | grep -E 'State|Rate'; cat /proc/net/bonding/*; lspci -vv | grep LnkSta; nvidia-smi topo -m",
                common,
                partial(_with_cards, node, nodes, match["network"], nics // part),
                told_by=r"NCCL_IB_HCA=[^,]*$" if nics // part == 1 else "(?!)",
            )
    for network in ("ethernet-100-1", "ethernet-10-1"):
        yield Ailment(
            f"TCP instead of RDMA ({network})",
            "NCCL_DEBUG=INFO ... | grep 'Using network'; ls /dev/infiniband",
            3,
            partial(preset, f"{node}x{nodes}+{network}"),
            told_by="NCCL_IB_DISABLE=1|NCCL_NET=Socket",
        )


def _taken(one: Log, fabric: Fabric) -> dict[str, str | int]:
    """Returns the settings of a log that predictions take."""
    taken: dict[str, str | int] = {}
    for name, value in one.settings.items():
        try:
            fabric.predict("all_reduce", 1 << 20, settings={**taken, name: value})
        except InvalidArgument:
            continue
        taken[name] = value
    return taken


def suspects(one: Log, fabric: Fabric, rows: Sequence[Row]) -> list[Suspect]:
    """Returns the likeliest ailments, the first with the best odds.

    Args:
        one: the log.
        fabric: its machine as it should be.
        rows: the sizes that decide, rising.
    """
    taken = _taken(one, fabric)
    plain = one.predicted(fabric, rows)[-1].time_us
    weighed: list[tuple[float, Ailment, float]] = []
    for ailment in of(fabric):
        try:
            found = one.predicted(ailment.fabric(), rows, {**taken, **ailment.settings})
        except InvalidArgument:  # the machine cannot have it, as NVLS without a switch
            continue
        if found[-1].time_us < CHANGES * plain:
            continue
        errors = [log(row.time_us / known.time_us) for row, known in zip(rows, found, strict=True)]
        distance = sqrt(sum(error**2 for error in errors) / len(errors))
        is_named = any(re.match(ailment.told_by, told) for told in one.told)
        weight = ailment.common * exp(-((distance / TOLERANCE) ** 2) / 2) * (NAMED if is_named else 1)
        weighed.append((weight, ailment, found[-1].busbw))
    total = sum(weight for weight, *_ in weighed) + COMMON_OTHER * exp(-((OTHER / TOLERANCE) ** 2) / 2)
    weighed.sort(key=lambda row: -row[0])
    likely = [(weight / total, ailment, busbw) for weight, ailment, busbw in weighed if weight > LEAST_ODDS * total]
    return [Suspect(ailment, odds, busbw) for odds, ailment, busbw in likely[:SHOWN]]
