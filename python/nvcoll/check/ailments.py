"""Ailments: which damaged machine would print the times of the logs that are not healthy.

An ailment is a machine that has lost something (``Fabric.damaged``), a setting of NCCL, or another launch. It is
predicted like any machine, with the settings of the log. Its distance from a log is the root mean square of
log(measured / predicted time) over the sizes that decide. One machine must explain all logs::

    weight = how common it is x exp(-(sum over logs of distance^2) / TOLERANCE^2 / 2), x 20 if a log names it
    odds   = weight / sum of weights, with "something else" at the distance OTHER from each log

An ailment that a log names is at most at the distance OTHER: another one may have come to it.

Causes with the same rates, as half of the cards or bonded cards, are one class: its members are named together, with
the commands that distinguish them. A cause whose rate follows from no mechanism, as congestion, has no machine: it has
the distance OTHER, and counts only if a log names it. An ailment that changes no time by `CHANGES` is left out. How
common a class is was counted in the threads of data/nccl-logs; the tolerances are chosen. On two nodes, all_reduce
without NVLS and with half of the network take about the same time: a log of all_reduce alone cannot distinguish them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import exp, log
from typing import TYPE_CHECKING

from nvcoll._nvcoll import Fabric, InvalidArgument
from nvcoll.check.log import Log, Row

if TYPE_CHECKING:
    from nvcoll._nvcoll import Prediction, _Launch
    from nvcoll.check.tool import Expected

TOLERANCE, OTHER = 0.2, 0.5
"""The error of predictions of damaged machines, and the distance of causes that no machine stands for."""

COMMON_OTHER, LEAST_ODDS = 5, 0.05
"""How common other causes are, and the least odds of an ailment that is named. Chosen."""

NAMED = 20.0
"""The factor of an ailment that a line of a log names."""

SHOWN = 3
"""The most ailments that are named. Chosen."""

CHANGES = 1.05
"""How much longer the largest call of a log takes at least with an ailment. Chosen."""

SAME = 1.03
"""Ailments of one class whose busbw differs less are one suspect. Chosen."""

BUSBW_FALLS = "busbw=falls"
"""The evidence, beside settings and facts, that busbw falls while sizes grow."""

_ENVIRONMENT = "env | grep NCCL; cat /etc/nccl.conf ~/.nccl.conf"
_RATES = (
    "cat /proc/net/bonding/*; lspci -vv | grep -E 'LnkSta|ACSCtl'; nvidia-smi topo -m; "
    "then compare with NCCL_IB_QPS_PER_CONNECTION=4"
)
_LANES = "under load: nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv"


@dataclass(frozen=True)
class Ailment:
    """A class of causes with the same rates."""

    key: str
    """Its short name; members of a family, as algorithms that are forced, share it."""
    name: str
    confirm: str
    common: float
    machine: Callable[[Fabric], Fabric] | None = field(default=lambda fabric: fabric, repr=False)
    """Returns the damaged machine; None if its rates follow from no mechanism."""
    settings: Mapping[str, str | int] = field(default_factory=dict)
    launch: _Launch | None = None
    """The launch, where a log does not show its own."""
    named_by: str = "(?!)"
    """Matches a setting or a fact of the log that names this ailment, as of `Log.evidence`."""
    cards: int = 1
    """The number of network cards, divided by the number of cards that are left."""
    is_hidden: bool = False
    """NCCL does not see the ailment, and chooses the algorithm as for the healthy machine."""

    def is_named_by(self, line: str) -> bool:
        """Says whether a setting or a fact names the ailment."""
        return re.match(self.named_by, line) is not None

    def is_named(self, case: Case) -> bool:
        """Says whether a line of a log names the ailment."""
        if any(map(self.is_named_by, case.evidence)):
            return True
        every = case.fabric.cards
        return self.cards > 1 and every is not None and case.cards == every / self.cards


@dataclass(frozen=True)
class Case:
    """A log, its machine as it should be, and the sizes that decide, rising."""

    log: Log
    fabric: Fabric
    rows: Sequence[Row]
    evidence: Sequence[str]
    known: dict[tuple[str, ...], float] = field(default_factory=dict, repr=False)
    """The times that `without` has predicted."""

    @property
    def cards(self) -> int | None:
        """The number of network cards that the log names; None if it names none."""
        for one in self.evidence:
            if one.startswith("cards="):
                return int(one[6:])
            if one.startswith("NCCL_IB_HCA=") and "^" not in one:
                return one.count(",") + 1
        return None

    @cached_property
    def settings(self) -> dict[str, str | int]:
        """The settings of the log that predictions take."""
        taken: dict[str, str | int] = {}
        for name, value in self.log.settings.items():
            try:
                self.log.predicted(self.fabric, self.rows, {**taken, name: value})
            except InvalidArgument:
                continue
            taken[name] = value
        return taken

    @cached_property
    def healthy(self) -> Sequence[Prediction | Expected]:
        """The predictions of the machine as it should be, with the settings of the log."""
        return self.log.predicted(self.fabric, self.rows, self.settings)

    def unseen(self, machine: Fabric) -> Sequence[Prediction | Expected]:
        """Returns the predictions for another machine on which NCCL chooses the same as on the healthy one.

        Raises:
            InvalidArgument: as `Fabric.predict`.
        """
        if self.log.tool is not None:
            return self.log.predicted(machine, self.rows)
        found: list[Prediction] = []
        for (algorithm, protocol), alike in groupby(self.healthy, lambda one: (one.algorithm, one.protocol)):
            known = list(alike)
            is_free = algorithm == "SendRecv"
            found += machine.predict(
                known[0].collective,
                [one.nbytes for one in known],
                launch=known[0].launch,
                algorithm=None if is_free else algorithm,
                protocol=None if is_free else protocol,
                version=self.log.version,
                settings=self.settings,
            )
        return found

    def without(self, names: tuple[str, ...]) -> float:
        """Returns the predicted time of the largest size on the healthy machine without some settings of the log."""
        if names not in self.known:
            others = {name: value for name, value in self.settings.items() if name not in names}
            self.known[names] = self.log.predicted(self.fabric, self.rows[-1:], others)[0].time_us
        return self.known[names]

    def square(self, found: Sequence[Prediction | Expected]) -> float:
        """Returns the mean square of log(measured / predicted time), the square of the distance."""
        errors = [log(row.time_us / known.time_us) for row, known in zip(self.rows, found, strict=True)]
        return sum(error**2 for error in errors) / len(errors)


@dataclass(frozen=True)
class Suspect:
    """An ailment with its odds."""

    ailment: Ailment
    odds: float
    busbw: float | None
    """The busbw that is predicted at the largest size of the log, if it follows from a mechanism."""
    rates: Sequence[float] = ()
    """The same of all logs that it explains."""

    def of(self, nth: int) -> Suspect:
        """Returns the suspect as one of several logs has it."""
        return replace(self, busbw=self.rates[nth] if self.rates else None)


def _lost(what: str, part: int = 1, *, of_all: bool = True, gbit: float = 100.0) -> Callable[[Fabric], Fabric]:
    return lambda fabric: fabric.damaged(what, part, of_all=of_all, gbit=gbit)


def _forced(name: str, value: str) -> Ailment:
    what, named_by = f"{name}={value}", f"(?i:{name}={value})$"
    return Ailment("forced", f"{what} is forced", _ENVIRONMENT, 0.5, settings={name: value}, named_by=named_by)


def _less_network(part: int, name: str, cards: float, rates: float) -> list[Ailment]:
    """Returns the two ways to lose a part of the network: NCCL sees cards that are missing, but no lower rate."""
    key, confirm = f"{name.split()[-1]}-network", "ibstat | grep -E 'State|Rate'; env | grep NCCL_IB_HCA"
    missing = Ailment(
        key,
        f"{name} of the network: cards that are down, or not named in NCCL_IB_HCA",
        confirm,
        cards,
        _lost("cards", part),
        cards=part,
    )
    lower = Ailment(
        key,
        f"{name} of the network: bonded cards, ACS, a lower PCIe rate, wrong NUMA node, oversubscription, collisions",
        _RATES,
        rates,
        _lost("rate", part),
        is_hidden=True,
    )
    return [missing, lower]


def _told_only(key: str, name: str, confirm: str, common: float, named_by: str) -> Ailment:
    return Ailment(key, name, confirm, common, None, named_by=named_by)


NO_MPI = _told_only(
    "no-mpi", "a build without MPI: a job per process", "ldd all_reduce_perf | grep mpi; make MPI=1", 5, "(?!)"
)
"""The number of jobs in one table shows it."""


def _less_pcie(part: int, name: str, members: str) -> Ailment:
    machine = _lost("pcie", part)
    return Ailment("gpu-pcie", f"{name} of a GPU's PCIe rate: {members}", _LANES, 1, machine, is_hidden=True)


def _sockets(medium: str, gbit: int) -> Ailment:
    return Ailment(
        "tcp",
        f"TCP instead of RDMA ({gbit} Gbit/s)",
        "NCCL_DEBUG=INFO ... | grep 'Using network'; ls /dev/infiniband",
        2,
        _lost(medium, gbit=gbit),
        named_by="NCCL_IB_DISABLE=1$|NCCL_NET=Socket|network=Socket|path=NET/Socket",
    )


AILMENTS = (
    Ailment(
        "no-nvls",
        "no NVLS",
        "NCCL_DEBUG=INFO ... | grep -i nvls; nvidia-smi -q | grep -A3 Fabric",
        4,
        settings={"NCCL_NVLS_ENABLE": 0},
        named_by="NCCL_NVLS_ENABLE=0$|nvls=not available|nvls_channels=0$",
    ),
    Ailment(
        "host-staged",
        "host staged: no peer access",
        "nvidia-smi topo -p2p r; lspci -vvv | grep ACSCtl; NCCL_DEBUG=INFO ... | grep 'via SHM'",
        6,
        settings={"NCCL_P2P_DISABLE": 1, "NCCL_NVLS_ENABLE": 0},
        named_by="NCCL_P2P_DISABLE=1$|NCCL_P2P_LEVEL=(0|LOC)$|path=SHM",
    ),
    _forced("NCCL_ALGO", "Ring"),
    _forced("NCCL_ALGO", "Tree"),
    _forced("NCCL_PROTO", "LL"),
    _forced("NCCL_PROTO", "LL128"),
    *_less_network(2, "half", 2, 7),
    *_less_network(4, "a quarter", 2, 2),
    *_less_network(8, "an eighth", 1.5, 0.5),
    _sockets("ethernet-100", 100),
    _sockets("ethernet-100", 25),
    _sockets("ethernet-10", 10),
    Ailment(
        "no-gpudirect",
        "no GPUDirect: network cards reach GPUs through host memory",
        "lsmod | grep nvidia_peermem; NCCL_DEBUG=INFO ... | grep GDRDMA",
        5,
        _lost("gpu_direct"),
        named_by="gdr=Disabled|path=NET/(?!Socket)(?!.*GDRDMA)|NCCL_NET_GDR_LEVEL=(0|LOC)$",
    ),
    _less_pcie(2, "half", "x8, or one generation lower"),
    _less_pcie(4, "a quarter", "x4, or two generations lower"),
    Ailment(
        "slow-gpu",
        "one slow GPU: half of its NVLinks are down, or it is hot",
        "nvidia-smi nvlink -s; nvidia-smi nvlink -e; nvidia-smi -q -d PERFORMANCE",
        1,
        _lost("nvlink", 2, of_all=False),
        is_hidden=True,
    ),
    Ailment(
        "no-nvlink",
        "no NVLink: GPUs reach each other over PCIe",
        "nvidia-smi nvlink -s; nvidia-smi topo -m",
        1,
        _lost("nvlink", 0),
    ),
    Ailment(
        "launch",
        "one process launches all GPUs of a node (-g 8)",
        "the command: mpirun -np 16 -N 8 ... -g 1",
        2,
        launch="single_process",
    ),
    _told_only(
        "wrong-numa",
        "network cards at another NUMA node or socket than the GPU",
        "nvidia-smi topo -m (PIX or PXB, not NODE or SYS); numactl -H",
        4,
        "NCCL_NET_GDR_LEVEL=(4|5|SYS)$",
    ),
    _told_only(
        "congested",
        "congestion, packet loss or heat",
        "ethtool -S DEVICE | grep -E 'pause|discard|out_of_buffer|cnp'; perfquery; nvidia-smi -q -d PERFORMANCE",
        5,
        BUSBW_FALLS,
    ),
    _told_only(
        "queue-pairs",
        "flows of a single queue pair that collide, or messages split over many",
        "compare with NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_SPLIT_DATA_ON_QPS=0",
        1,
        "NCCL_IB_QPS_PER_CONNECTION=1$|NCCL_IB_SPLIT_DATA_ON_QPS=1$",
    ),
    _told_only(
        "mtu", "a small MTU of the network", "ip link show | grep mtu; ibv_devinfo | grep active_mtu", 1, "mtu=[123]$"
    ),
)
"""All ailments that a machine can have; `common` is their number in the threads of data/nccl-logs, or chosen."""


def _found(ailment: Ailment, case: Case) -> tuple[Sequence[Prediction | Expected], bool]:
    """Returns the predictions of a log's sizes with an ailment, and whether the largest call takes longer by it.

    Raises:
        InvalidArgument: the machine cannot have it, as NVLS without a switch; or the log shows its launch.
    """
    if ailment.launch is not None and case.log.launch is not None:
        raise InvalidArgument("the log shows its launch")
    assert ailment.machine is not None
    taken, one = case.settings, replace(case.log, launch=ailment.launch or case.log.launch)
    machine = ailment.machine(case.fabric)
    if ailment.is_hidden and machine != case.fabric:
        found = case.unseen(machine)
    else:
        found = one.predicted(machine, case.rows, {**taken, **ailment.settings})
    own = tuple(taken) if ailment.is_named(case) else tuple(name for name in taken if name in ailment.settings)
    plain_us = case.without(own)
    return found, found[-1].time_us >= CHANGES * plain_us


def _weighed(ailment: Ailment, cases: Sequence[Case]) -> tuple[float, list[float]] | None:
    """Returns the logarithm of an ailment's weight, and the busbw at the largest sizes; None if it explains nothing."""
    is_named = any(ailment.is_named(case) for case in cases)
    rates: list[float] = []
    if ailment.machine is None:
        squares, is_any = OTHER**2 * len(cases), is_named
    else:
        try:
            found = [_found(ailment, case) for case in cases]
        except InvalidArgument:
            return None
        squares = sum(case.square(known) for case, (known, _) in zip(cases, found, strict=True))
        is_any, rates = any(changes for _, changes in found), [known[-1].busbw for known, _ in found]
    if is_named:  # it is there; something else may be there as well
        squares = min(squares, OTHER**2 * len(cases))
    weight = log(ailment.common) - squares / TOLERANCE**2 / 2 + (log(NAMED) if is_named else 0)
    return (weight, rates) if is_any else None


def suspects(cases: Sequence[Case], ailments: Sequence[Ailment] = AILMENTS) -> list[Suspect]:
    """Returns the ailments that most likely explain the logs of one machine, the first with the best odds."""
    weighed = [(one, known) for one in ailments if (known := _weighed(one, cases)) is not None]
    rest = log(COMMON_OTHER) - OTHER**2 * len(cases) / TOLERANCE**2 / 2
    best = max([rest, *(weight for _, (weight, _) in weighed)])
    total = exp(rest - best) + sum(exp(weight - best) for _, (weight, _) in weighed)
    likely: list[Suspect] = []
    for one, (weight, rates) in weighed:
        odds = exp(weight - best) / total
        alike = [nth for nth, other in enumerate(likely) if _is_alike(other, one, rates)]
        if alike:
            likely[alike[0]] = _together(likely[alike[0]], one, odds)
        else:
            likely.append(Suspect(one, odds, None, rates).of(0))
    return sorted((one for one in likely if one.odds > LEAST_ODDS), key=lambda one: -one.odds)[:SHOWN]


def _is_alike(known: Suspect, other: Ailment, rates: Sequence[float]) -> bool:
    """Says whether two ailments are of one class and have the same rates."""
    if known.ailment.key != other.key or not rates or len(known.rates) != len(rates):
        return False
    return all(abs(log(one / same)) < log(SAME) for one, same in zip(known.rates, rates, strict=True))


def _together(known: Suspect, other: Ailment, odds: float) -> Suspect:
    """Returns a suspect with the causes and the odds of another one with the same rates."""
    name = f"{known.ailment.name}, {other.name.split(': ', 1)[-1]}"
    confirm = "; ".join(dict.fromkeys((known.ailment.confirm, other.confirm)))
    return replace(known, ailment=replace(known.ailment, name=name, confirm=confirm), odds=known.odds + odds)


def named_alone(evidence: Sequence[str]) -> list[Suspect]:
    """Returns the ailments that lines of a log name, if no time of it can be predicted."""
    lines = [line for line in evidence if not line.startswith("nvls_channels")]  # most machines have none
    named = [one for one in AILMENTS if any(map(one.is_named_by, lines))]
    total = COMMON_OTHER + sum(one.common * (NAMED if one in named else 1) for one in AILMENTS)
    found = [Suspect(one, NAMED * one.common / total, None) for one in named]
    return sorted(found, key=lambda one: -one.odds)[:SHOWN]
