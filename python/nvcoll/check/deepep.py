"""DeepEP's tests: dispatch and combine of tokens among experts, over NVLink and network cards.

test_intranode, test_internode, test_low_latency of V1, test_ep of V2, and MORI's test for AMD. They print logical
rates: tokens for GPUs of the own node, and for a GPU itself, count as sent (DeepEP#130, #285). With L GPUs on each of N
nodes, of B bytes::

    test             over a card                        over NVLink, at the same time
    inside a node                                       B x (L-1) / L
    between nodes    B x (N-1) / N: once per node       B x (rate of NVLink / rate of cards in the log) x (L-1) / L
    low latency      B x (N-1) / N: once per expert     B x (L-1) / (L x N)

Kernels reach the shares `CARD` and `NVLINK` of the line rates; a GPU's streaming multiprocessors (SMs) copy at most
`PER_SM` each; low latency takes `LAUNCH_US` longer. The constants are from tables in DeepEP's README, `PER_SM` of V1
from H20, whose NVLink is faster than H800's (DeepEP#16, #148). Releases before June 2025 sent all tokens of low latency
over cards, also to the own node; a log does not show the release, so the interval covers both. Between nodes, V1 needs
8 GPUs on each; the quotient of the two rates shows how many nodes (`nodes`). Not predicted: low latency on EFA, where
other software sends through the host's processor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import inf

from nvcoll._nvcoll import Fabric, InvalidArgument
from nvcoll.check.lines import cleaned
from nvcoll.check.log import Log
from nvcoll.check.ranks import MOST_RANKS
from nvcoll.check.row import Row
from nvcoll.check.tool import NUMBER, UNREAL, Tool, cross_node

CARD, NVLINK = 0.88, 0.68
"""Shares of the line rates. README: 58 GB/s logical on 4 nodes with cards of 50; 153 to 158 with NVLink of 200."""

PER_SM: Mapping[str, float] = {"V1 inside": 14.0, "V1 between": 9.0, "V1 between FP8": 6.5, "V2": 27.0}
"""Logical GB/s of NVLink per SM: 337 and 205 on H20 with 24 SMs; V2's README, 643 on B200 with 24 SMs. A token of FP8
has half of the bytes and more than half of the work: 150 and 153 on H100 and H200 with 24 SMs, where BF16 has 200."""

COMMON: Mapping[str, float] = {"hgx-h800": 15.0, "hgx-h20": 20.0}
"""How much more common boards are among logs of DeepEP than among others: H800 in 4 of 21 threads, H20 in 7."""

TOP_K, GPUS, GROUPS = 8, 8, 4
"""Experts of a token, GPUs of a node, and the most nodes that have experts of one token: defaults of the tests."""

SAME = 0.03
"""The largest error of a quotient of rates. Chosen."""

LAUNCH_US = 24.0
"""Microseconds of a low latency call besides its bytes: README, the mean of dispatch and combine on 8 GPUs."""

OWN_CARD = 25.0
"""GB/s of a GPU's share of cards in one node, whose cards the machine does not name. Chosen."""

LEAST_GBS = 1e-3
"""The least rate that is believed. Chosen."""

TOKENS_BYTES = 4096 * 7168
"""Bytes of a call whose rate alone is printed: the default. Cancels out."""

LEAST_SM, LEAST_SM_BETWEEN = 80, 90
"""DeepEP runs on Ampere and later inside a node; between nodes and with low latency on Hopper and later (setup.py)."""

TRUST = "compared with 15 public sources; 4 of them gave the constants"
SPREAD = 1.5
OLDER = "a release before June 2025 or --disable-nvlink, which send all tokens over cards"

_N = rf"({NUMBER})"
_TUNING = re.compile(r"(Best )?(dispatch|combine)?(?: \((FP8|BF16)\))?:? ?\bSMs (\d{1,9}), NVL chunk \w+(.*)")
_RDMA, _NVL = re.compile(rf"{_N} GB/s \(RDMA\)"), re.compile(rf"[:,] {_N} GB(?:/s)?(?: \(NVL\)|\.|$)")
_LOW_LATENCY = re.compile(rf"(Dispatch \+ combine|Dispatch|Combine) bandwidth: {_N} GB/s,? avg_t={_N} us")
_V2 = re.compile(
    rf"EP: +\d+/ *(\d{{1,9}}) \| ([a-z ]*(?:dispatch|combine)): {_N} GB/s \(SO\), {_N} GB/s \(SU\), {_N} us"
)
_MORI = re.compile(rf"(FP8|BF16) (dispatch|combine): best/avg RDMA bandwidth {_N} .* XGMI bandwidth {_N}")
_EMPHASIS = re.compile(r"[*_]{1,3}(?=[\d ,(]|$)|(?<=[ /s])[*_]{1,3}")
_SMS = re.compile(r"#SM: (\d{1,9})")
SEARCH = "dispatch or combine"
"""Lines of a search for the best settings, if the line with the best one is missing."""

MARK = re.compile(r"NVL chunk|(?:ispatch|ombine) bandwidth:|GB/s \(SU\)|XGMI bandwidth")


def _nvlink_us(fabric: Fabric, nbytes: float, gpus: int, most: float = inf) -> float:
    """Returns the time of logical bytes among GPUs of a node, which may move at most at a logical rate."""
    if gpus < 2:
        return 0.0
    return nbytes / min(NVLINK * fabric.port_rates()[0] * gpus / (gpus - 1), most) / 1e3


def throughput_us(fabric: Fabric, row: Row, *, over_nvlink: float, most: float, is_between: bool) -> float:
    """Returns the time of dispatch or combine.

    Args:
        row: its bytes are the logical bytes over cards, or, inside a node, over NVLink.
        over_nvlink: logical bytes over NVLink for each of them.
        most: the logical GB/s over NVLink that the SMs copy.
        is_between: whether tokens go to other nodes.
    """
    nodes = fabric.nodes
    nvlink_us = _nvlink_us(fabric, row.nbytes * over_nvlink, fabric.world_size // nodes, most)
    if not is_between:
        return nvlink_us
    return max(nvlink_us, row.nbytes * (nodes - 1) / nodes / (CARD * cross_node(fabric)) / 1e3)


def low_latency_us(fabric: Fabric, row: Row, *, calls: int = 1, only_cards: bool = False) -> float:
    """Returns the time of low latency calls, one after the other.

    Args:
        only_cards: whether tokens for the own node go over cards as well; on one node over cards of `OWN_CARD`.
    """
    nodes, gpus = fabric.nodes, fabric.world_size // fabric.nodes
    if any(medium.startswith("efa") for _, _, medium, *_ in fabric.links):
        raise InvalidArgument("low latency on EFA is sent by other software than DeepEP's, which is not predicted")
    others = fabric.world_size - (1 if only_cards else gpus)
    rate = CARD * (cross_node(fabric) if nodes > 1 else OWN_CARD)
    card_us = row.nbytes * others / fabric.world_size / rate / 1e3
    return calls * LAUNCH_US + max(card_us, 0.0 if only_cards else _nvlink_us(fabric, row.nbytes / nodes, gpus))


def throughput(card: float, nvlink: float, sms: float, release: str, dtype: str = "") -> Tool:
    """Returns how a throughput kernel is predicted, from its rates in GB/s, its SMs (0: unknown) and its release."""
    kind = release if release in PER_SM else f"V1 between {dtype}".strip() if card else "V1 inside"
    per_sm = PER_SM.get(kind, PER_SM["V1 between"])
    most, over = per_sm * sms or inf, nvlink / card if card else 1.0
    call = partial(throughput_us, over_nvlink=over, most=most, is_between=card > 0)
    return Tool(call, TRUST, SPREAD, least_sm=LEAST_SM_BETWEEN if card else LEAST_SM, common=COMMON)


def distinct(places: float) -> float:
    """Returns the mean number of places in which the experts of a token are."""
    return places * (1 - (1 - 1 / places) ** TOP_K)


def nodes(card: float, nvlink: float) -> int | None:
    """Returns the nodes that the rates over cards and NVLink show, `GROUPS` also for more; None if they show none."""
    share = nvlink / card if card else 0.0
    few = range(2, GROUPS + 1)
    return next((one for one in few if abs(share * distinct(one) / distinct(one * GPUS) - 1) < SAME), None)


def low_latency(calls: int = 1) -> Tool:
    """Returns how low latency calls are predicted."""
    older = partial(low_latency_us, calls=calls, only_cards=True)
    return Tool(
        partial(low_latency_us, calls=calls), TRUST, SPREAD, older, OLDER, least_sm=LEAST_SM_BETWEEN, common=COMMON
    )


def _log(at: int, kind: str, gbs: float, us: float | None, tool: Tool, ranks: int | None = None) -> Log:
    """Returns the log of a row: the number of its line, what it is, its GB/s, and its time if that is printed."""
    name = f"DeepEP {kind}"
    if not LEAST_GBS <= gbs < inf or (us is not None and not 0 < us < inf):
        return Log("", name, ranks, [], tool=tool, malformed=[(at, UNREAL)])
    time = us or TOKENS_BYTES / gbs / 1e3
    return Log("", name, ranks, [Row(at, round(gbs * time * 1e3), time, None)], tool=tool)


def _on_nodes(log: Log, few: int | None) -> Log:
    """Returns a log with the ranks and hosts of some nodes; of `GROUPS` nodes or more."""
    if few is None:
        return log
    ranks = few * GPUS
    hosts = [f"node {1 + rank // GPUS}" for rank in range(ranks)]
    return replace(log, ranks=ranks, ranks_between=(ranks, MOST_RANKS) if few == GROUPS else None, hosts=hosts)


def _logs(text: str) -> Iterator[Log]:
    """Yields a log of each row."""
    sms = 0.0
    for at, line in cleaned(text):
        line = _EMPHASIS.sub("", line)
        if config := _SMS.search(line):
            sms = float(config[1])
        if tuning := _TUNING.search(line):
            best, what, dtype, of_sms, rest = tuning.groups()
            card, nvlink = (float(one[1]) if (one := rate.search(rest)) else 0.0 for rate in (_RDMA, _NVL))
            if best or not what:
                kind = f"{what} {dtype or 'BF16'}" if what else SEARCH
                tool = throughput(card, nvlink, float(of_sms), "V1", dtype or "BF16")
                yield _on_nodes(_log(at, kind, card or nvlink, None, tool), nodes(card, nvlink))
        for what, gbs, us in _LOW_LATENCY.findall(line):
            yield _log(at, f"low latency {what.lower()}", float(gbs), float(us), low_latency(1 + ("+" in what)))
        if v2 := _V2.search(line):
            out, up, us = map(float, v2.groups()[2:])
            yield _log(at, v2[2], out or up, us, throughput(out, up, sms, "V2"), int(v2[1]))
        if mori := _MORI.search(line):
            card, nvlink = float(mori[3]), float(mori[4])
            yield _log(at, f"{mori[2]} {mori[1]}", card, None, throughput(card, nvlink, 0.0, "MORI"))


def read(text: str) -> Iterator[Log]:
    """Yields a log for each kind of call: of several ranks the middle one, of a search the best one."""
    kinds: dict[str, list[Log]] = {}
    for log in _logs(text):
        kinds.setdefault(log.collective or "", []).append(log)
    for kind, logs in kinds.items():
        of_search = kind.endswith(SEARCH)
        if not of_search or len(kinds) == 1:
            ranked = sorted((log for log in logs if log.rows), key=lambda log: log.rows[0].time_us) or logs
            malformed = [one for log in logs for one in log.malformed]
            yield replace(ranked[0 if of_search else (len(ranked) - 1) // 2], malformed=malformed)
