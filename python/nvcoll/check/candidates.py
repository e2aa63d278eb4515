"""The machines that a log may be of, if nobody names one.

A log says which GPUs it has, on how many hosts, sometimes the medium and the number of its cards. Every machine that
fits is a candidate; where no GPU is named, each board of `usual.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from nvcoll._nvcoll import Fabric, GpuRow, InvalidArgument, fabric, fabrics, gpus_called
from nvcoll.check.log import Log

BOARD = 8
"""The most GPUs of a usual host."""

OTHER_BOARD = 0.3
"""How common a board is that is not in the table. Chosen."""

PART_OF_BOARD = 0.15
"""What remains of a board's odds if a log uses some of its GPUs. Chosen."""

HALF_ON_EACH, ONE_ON_EACH = 0.1, {False: 0.5, True: 3.0}
"""How common it is that ranks which fit on one node are on two, where a log does not show its nodes; and that two ranks
are, which test a network, if the log names one. Chosen."""

UNKNOWN_OF_BOARD, NETWORK_OF_ONE = 0.1, 0.1
"""What remains of a board's odds if the log's name of a GPU is unknown, as those of boards are not; and of one node's
if the log shows channels between nodes. Chosen."""

SET_IDLY = 0.3
"""What remains of the odds of a board without peer access if a log switches that off. Chosen."""

OTHER_CARDS = {True: 0.3, False: 0.05}
"""What remains of a network's odds if the log has more cards than it, as of storage, and if it has fewer. Chosen."""

_MEDIA = (
    ("ib", r"medium=IB$"),
    ("roce", r"medium=RoCE$|card=(bnxt_re|ionic|rocep)|NCCL_IB_HCA=.*(bnxt_re|ionic|rocep)|NCCL_IB_GID_INDEX="),
    ("efa", r"network=AWS Libfabric$|provider=efa$|card=(rdmap|efa)|instance=(ml\.)?[pg]\d"),
    ("slingshot", r"provider=cxi$|card=(cxi|hsn)|NCCL_SOCKET_IFNAME=hsn"),
)
"""The family of networks that a line of evidence names."""

_NETWORK = re.compile(r"network=|provider=|medium=")
"""Evidence that names a network, which NCCL does on one node as well."""

_OF_NETWORK = re.compile(r"gdr=|path=NET")
"""Evidence of several nodes."""


@dataclass(frozen=True)
class Candidate:
    """A board with the network between such boards, and how common it is."""

    board: Fabric
    network: str | None
    common: float
    each: int | None = None
    """The ranks on each node, if the log does not show them and another number than usual is tried."""

    def of(self, log: Log) -> Fabric:
        """Returns the machine of a log: so many nodes, and of each those GPUs that the log has.

        Raises:
            InvalidArgument: the ranks of the log are no whole number of such nodes.
        """
        nodes, each = _layout(log, self.board) if self.each is None else (-(-(log.ranks or 1) // self.each), self.each)
        if nodes > 1 and self.network is None:
            raise InvalidArgument(f"the log has {nodes} nodes, and {self.board.name} has no network")
        board, of, gpu = self.board.name.partition(" with gpu ")
        return _fabric(
            f"{board}{_part(self.board, log, each)}{f'x{nodes}+{self.network}' if nodes > 1 else ''}{of}{gpu}"
        )


@cache
def _fabric(name: str) -> Fabric:
    """Returns a machine, the same object for the same name: it keeps what it has predicted."""
    return fabric(name)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("usual.toml").read_text(encoding="utf-8"))


def _usual() -> list[dict[str, Mapping[str, float]]]:
    rows: list[dict[str, Mapping[str, float]]] = _table()["usual"]
    return rows


@cache
def _boards() -> Mapping[str, tuple[float, Mapping[str, float]]]:
    """Returns how common each usual board is, and its networks."""
    return {board: (common, row["networks"]) for row in _usual() for board, common in row["boards"].items()}


@cache
def _other() -> Mapping[str, float]:
    """Returns the networks of boards that are not in the table."""
    return _usual()[-1]["networks"]


def _nodes(log: Log, size: int) -> int:
    """Returns the number of nodes of a log, on boards with a number of GPUs."""
    ranks, hosts = log.ranks or 1, len(set(log.hosts))
    if hosts and len(log.hosts) == ranks:  # no line of a device is missing
        return hosts
    told = [*sorted(log.numbers("nodes"))[-1:], *(ranks // each for each in log.numbers("per_node") if each)]
    if fitting := [nodes for nodes in told if nodes and ranks % nodes == 0]:
        return fitting[0]
    least = max(-(-ranks // size), hosts)
    return 2 if least == 1 < min(size, ranks) and ranks % 2 == 0 and _sends_over_network(log) else least


def _shows_nodes(log: Log) -> bool:
    """Says whether a log shows on how many nodes it ran."""
    return bool(log.hosts or log.launch == "single_process" or log.facts.keys() & {"nodes", "per_node"})


def _sends_over_network(log: Log) -> bool:
    """Says whether a log shows channels between nodes; NCCL names its cards on one node as well."""
    return any(map(_OF_NETWORK.match, log.evidence))


def _layout(log: Log, board: Fabric) -> tuple[int, int]:
    """Returns the number of nodes of a log, and of ranks on each; two whole boards if it has no ranks, as of a tool.

    Raises:
        InvalidArgument: the board has too few GPUs, or the nodes differ.
    """
    size = board.world_size
    if log.ranks is None:
        return 2, size
    ranks = log.ranks
    nodes = -(-ranks // size) if _is_rack(board) else _nodes(log, size)
    each, rest = divmod(ranks, nodes)
    if rest or each > size:
        raise InvalidArgument(f"{ranks} ranks are not {nodes} equal nodes of {board.name}")
    return nodes, each


def _is_rack(board: Fabric) -> bool:
    """Says whether the nodes of a log are hosts of one board, as of a rack; a DGX-2 is one host."""
    return board.world_size > BOARD and board.gpu_model.name.startswith("gb")


def _part(board: Fabric, log: Log, each: int) -> str:
    """Returns those GPUs of a board that a log uses, as ``[0-3]``; nothing if it uses all."""
    if each == board.world_size:
        return ""
    used = sorted(set(log.devices[:each]))
    if board.world_size > BOARD or len(used) != each or used[-1] >= board.world_size:
        used = [*range(each)]
    is_range = each > 1 and used == [*range(used[0], used[-1] + 1)]
    return f"[{used[0]}-{used[-1]}]" if is_range else f"[{','.join(map(str, used))}]"


def _family(board: Fabric) -> str:
    """Returns a name that machines share which differ in their number of GPUs alone."""
    return board.name if board.name == board.gpu_model.board else re.sub(r"-\d+(?=-|$)", "", board.name)


def _smallest(every: Sequence[Fabric], each: int) -> Iterator[Fabric]:
    """Yields of each family the smallest machine that has a number of GPUs."""
    ranked = sorted(every, key=lambda one: (_family(one), one.world_size))
    for _, alike in groupby(ranked, _family):
        if (one := next((one for one in alike if one.world_size >= each), None)) is not None:
            yield one


def is_of_amd(row: GpuRow) -> bool:
    """Says whether a GPU is of AMD."""
    return row.title.startswith(("Instinct", "Radeon"))


def names(log: Log) -> list[str]:
    """Returns the different names of a log's GPUs."""
    return [*dict.fromkeys(filter(None, log.gpus or log.facts.get("gpu", ())))]


def models(log: Log) -> list[GpuRow]:
    """Returns the models of GPU that a log may have, by its lines of devices or its cloud; none if it does not say."""
    if told := names(log):
        return [*{row.name: row for name in told for row in gpus_called(name)}.values()]
    for instance in log.facts.get("instance", ()):
        with suppress(InvalidArgument):
            return [fabric(instance.removeprefix("ml.")).gpu_model]
    return []


def _boards_of(log: Log) -> Iterator[Fabric]:
    """Yields the boards that a log may be of."""
    each, known = max(1, (log.ranks or 1) // _nodes(log, BOARD)), models(log)
    called = {row.name for row in known}
    if shipped := [*_smallest([one for one in fabrics() if one.gpu_model.name in called], each)]:
        yield from shipped
    elif known:
        yield from _boxes(known[0], each)
    else:
        yield from _unnamed(log, each)


def _boxes(model: GpuRow, each: int) -> Iterator[Fabric]:
    """Yields the boards and boxes of cards in which a model may be, that no machine is shipped for."""
    if alike := [one for one in fabrics() if model.name.startswith(one.gpu_model.name)]:  # a variant, as v100-sxm-16gb
        for one in _smallest(alike, each):
            with suppress(InvalidArgument):
                yield fabric(f"{one.name} with gpu {model.name}")
        return
    size = next((size for size in (2, 4, 8) if size >= each), BOARD)
    for kind in ("p2p", "staged"):
        with suppress(InvalidArgument):  # it is no card
            yield fabric(f"{model.pcie}-{size}-{kind} with gpu {model.name}")


def _unnamed(log: Log, each: int) -> Iterator[Fabric]:
    """Yields the usual boards of the maker of a log's GPUs, which it does not name, or not by a name that is known."""
    evidence, gpus = log.evidence, " ".join(names(log)).lower()
    amd, nvidia = "library=RCCL" in evidence or "amd" in gpus, "library=NCCL" in evidence or "nvidia" in gpus
    for one in _smallest([one for one in fabrics() if one.name in _boards()], each):
        is_other = nvidia if is_of_amd(one.gpu_model) else amd
        if (links := log.numbers("nvlinks")) and one.gpu_model.nvlinks not in links:
            continue
        if log.tool is not None and (one.gpu_model.sm or log.tool.least_sm) < log.tool.least_sm:
            continue
        if not is_other and not BOARD < one.world_size < (log.ranks or 0):  # several racks name their GPUs
            yield one


def _networks(log: Log, usual: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yields the networks that a log may have, each with its part of all."""
    media = {family for family, words in _MEDIA if any(re.match(words, line) for line in log.evidence)}
    fitting = {name: common for name, common in usual.items() if not media or name.split("-")[0] in media}
    if media and not fitting:
        fitting = {name: common for name, common in _other().items() if name.split("-")[0] in media}
    cards = max(log.cards, default=None)
    for name, common in (fitting or usual).items():
        has = int(name.rsplit("-", 1)[1])
        as_many = 1.0 if cards in (None, has) else OTHER_CARDS[cards > has]
        yield name, as_many * common / sum(usual.values())


def fitting(log: Log, has_network: bool = False) -> Iterator[Candidate]:
    """Yields the machines that a log may be of; with a network if another log is of one."""
    is_unknown = bool(names(log)) and not models(log)
    if log.tool is not None and log.tool.is_of_card and not models(log):
        board = _fabric("hgx-h100")
        yield from (Candidate(board, network, share) for network, share in _networks(log, _table()["cards"]))
        return
    for board in _boards_of(log):
        common, usual = _boards().get(board.name.partition(" with gpu ")[0], (OTHER_BOARD, _other()))
        common *= log.tool.common.get(board.name, 1.0) if log.tool else 1.0
        with suppress(InvalidArgument):
            nodes, each = _layout(log, board)
            if each < board.world_size and not _is_rack(board):
                common *= PART_OF_BOARD
            if is_unknown and board.name == board.gpu_model.board:
                common *= UNKNOWN_OF_BOARD
            if nodes == 1 and _sends_over_network(log):
                common *= NETWORK_OF_ONE
            if "-staged" in board.name and log.settings.get("NCCL_P2P_DISABLE") == "1":
                common *= SET_IDLY
            networks = _networks(log, usual) if nodes > 1 or has_network else [(None, 1.0)]
            yield from (Candidate(board, network, common * share) for network, share in networks)
            if nodes == 1 and each % 2 == 0 and not _is_rack(board) and not _shows_nodes(log):
                names_network = any(map(_NETWORK.match, log.evidence))
                half = common * (ONE_ON_EACH[names_network] if each == 2 else HALF_ON_EACH)
                for network, share in _networks(log, usual):
                    yield Candidate(board, network, half * share, each // 2)
