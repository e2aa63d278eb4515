"""Writes docs/predict/expected.md: ``python tools/pages/expected.py > docs/predict/expected.md``.

Predicted numbers come from ``Fabric.predict``, measured ones from ``data/nccl-tests``.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import NamedTuple

import nvcoll
from nvcoll import Fabric, Prediction
from nvcoll.check.log import factor
from nvcoll.text.formatting import sized

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools" / "predict"))

from judging import KIB, MIB, Row, healthy, read  # noqa: E402

GIB = 1 << 30

SMALL = KIB
"""The size whose time is shown."""

SIZES = (MIB, 16 * MIB, 128 * MIB, GIB, 8 * GIB)
"""The sizes whose busbw is shown. Chosen: nccl-tests ends at 128 MiB or at 8 GiB in most guides."""

ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""The collectives of the page."""

SWEEP = [1 << power for power in range(3, 34)]
"""The sizes at which the page looks for NCCL's choice: 8 B to 8 GiB."""


class Board(NamedTuple):
    """A section of the page: a machine with its parts, then clusters of it."""

    title: str
    nodes: Sequence[str]
    networks: Sequence[tuple[str, str]] = ()
    """What stands before and after the number of nodes: ``("hgx-h100", "ib-ndr-8")``."""
    counts: Sequence[int] = (2, 4, 8, 32)
    """The numbers of nodes of the first network; the others have every second of them."""


BOARDS = (
    Board(
        "HGX and DGX H100 (8 x H100 SXM)",
        ("hgx-h100[0-1]", "hgx-h100[0-3]", "hgx-h100"),
        [("hgx-h100", network) for network in ("ib-ndr-8", "roce-400-8", "efa-100-32", "tcpxo-200-8")],
    ),
    Board(
        "HGX and DGX H200 (8 x H200 SXM)",
        ("hgx-h200[0-1]", "hgx-h200[0-3]", "hgx-h200"),
        [("hgx-h200", network) for network in ("ib-ndr-8", "roce-400-8", "efa-200-16")],
    ),
    Board("HGX H800 (8 x H800 SXM)", ("hgx-h800",), [("hgx-h800", "roce-400-8")], (2, 8)),
    Board("HGX H20 (8 x H20 SXM)", ("hgx-h20",), [("hgx-h20", "ib-ndr-8"), ("hgx-h20", "roce-400-8")]),
    Board(
        "HGX and DGX B200 (8 x B200)",
        ("hgx-b200[0-1]", "hgx-b200[0-3]", "hgx-b200"),
        [("hgx-b200", network) for network in ("ib-ndr-8", "roce-400-8", "efa-400-8")],
    ),
    Board(
        "HGX and DGX B300 (8 x B300)",
        ("hgx-b300[0-1]", "hgx-b300[0-3]", "hgx-b300"),
        [("hgx-b300", network) for network in ("ib-xdr-8", "roce-400-16", "efa-400-16")],
    ),
    Board(
        "GB200 NVL72",
        ("gb200-4", "gb200-8", "gb200-16", "gb200-36", "gb200-nvl72"),
        [("gb200-nvl72", "ib-ndr-4")],
        (2,),
    ),
    Board(
        "GB300 NVL72",
        ("gb300-4", "gb300-8", "gb300-16", "gb300-36", "gb300-nvl72"),
        [("gb300-nvl72", "roce-800-4")],
        (2,),
    ),
    Board(
        "HGX and DGX A100 (8 x A100 SXM)",
        ("hgx-a100[0-1]", "hgx-a100[0-3]", "hgx-a100"),
        [("hgx-a100", network) for network in ("ib-hdr-8", "roce-200-8", "roce-100-16", "efa-100-4")],
    ),
    Board("HGX A800 (8 x A800 SXM)", ("hgx-a800",), [("hgx-a800", "roce-200-8")], (2, 8)),
    Board("4 x A100 without NVSwitch", ("hgx-a100-4",), [("hgx-a100-4", "slingshot-4")]),
    Board("DGX-1 and DGX-2 (V100)", ("dgx1-v100", "dgx2"), [("dgx1-v100", "ib-edr-4")], (2, 4)),
    Board("GH200", ("gh200-4",), [("gh200-4", "slingshot-4")]),
    Board("MI300X (8 x MI300X, RCCL)", ("mi300x-8",), [("mi300x-8", "roce-400-8")]),
    *(
        Board(f"{gpu} (8 x {gpu}, RCCL)", (node,), [(node, "roce-400-8")], (2, 8))
        for gpu, node in (
            ("MI308X", "mi308x-8"),
            ("MI325X", "mi325x-8"),
            ("MI350X", "mi350x-8"),
            ("MI355X", "mi355x-8"),
        )
    ),
    Board("MI250X (8 dies of 4 x MI250X, RCCL)", ("mi250x-8",), [("mi250x-8", "slingshot-4")], (2, 8)),
    Board(
        "H100 NVL and H200 NVL (NVLink bridges)",
        (
            *("h100-nvl-2-bridge", "h100-nvl-4-bridge", "h100-nvl-8-bridge"),
            *("h200-nvl-2-bridge", "h200-nvl-4-bridge", "h200-nvl-8-bridge"),
        ),
    ),
    Board(
        "PCIe: A100, H100, L40S, L4",
        (
            *("pcie4-2-p2p", "pcie4-4-p2p", "pcie4-8-p2p", "a100-pcie-8-bridge"),
            *("pcie5-2-p2p", "pcie5-8-p2p", "h100-pcie-2-bridge", "h100-pcie-8-bridge"),
            *("l40s-4-p2p", "l40s-8-p2p", "l4-4-p2p", "l4-8-p2p"),
        ),
    ),
    Board(
        "RTX PRO 6000 Blackwell",
        (
            *("rtxpro6000-ws-2-p2p", "rtxpro6000-ws-4-p2p"),
            *("rtxpro6000-server-2-p2p", "rtxpro6000-server-4-p2p", "rtxpro6000-server-8-p2p"),
            "rtxpro6000-server-8-cx8",
        ),
    ),
    Board(
        "RTX 6000D",
        ("rtx6000d-2-p2p", "rtx6000d-4-p2p", "rtx6000d-8-p2p", "rtx6000d-8-cx8", "rtx6000d-8-staged"),
    ),
    Board(
        "GeForce RTX: staged (no peer access, as NVIDIA's driver) and p2p (patched driver)",
        (
            *("rtx5090-2-staged", "rtx5090-4-staged", "rtx5090-8-staged", "rtx5090-8-p2p"),
            *("rtx4090-2-staged", "rtx4090-4-staged", "rtx4090-8-staged", "rtx4090-2-p2p", "rtx4090-8-p2p"),
            *("rtx3090-2-bridge", "rtx3090-4-bridge"),
        ),
    ),
    Board("DGX Spark", (), [("gb10-1", "roce-100-2"), ("gb10-1", "roce-200-1")], (2, 4)),
)
"""The sections, in the order of the page."""

PAGE = """\
# Expected busbw

This page has the busbw that `nccl-tests` prints on healthy machines: the prediction, and measurements where public logs exist. busbw is the rate
that nccl-tests computes from bytes and time, so that calls of different collectives and numbers of GPUs can be compared with link rates.

<!-- Written by `python tools/pages/expected.py > docs/predict/expected.md`; do not edit. -->

{jumps}

```
nvcoll check my.log --on hgx-h100x2+ib-ndr-8     # is my number right, and if not, why?
nvcoll predict all_reduce -b 1M -e 8G --on hgx-h100x16+ib-ndr-8     # other sizes, machines, numbers of nodes
```

| in a table | meaning |
|---|---|
| **470** (440-500) | predicted busbw in decimal GB/s, and its 90 % interval: it contains 90 % of the held-out measurements |
| column 1 KiB | predicted time in us, and its 90 % interval |
| *466-467* | busbw or time in [public logs](../../data/nccl-tests/README.md) of healthy machines: one value, or the lowest and the highest |
| column *systems* | number of machines in these logs |
| \\* | the prediction is `not validated` or `extrapolated` ([labels](predictions.md#when-is-a-prediction-validated)) |
| column 1 MiB and others | the size of the call, as nccl-tests counts it: for all_gather, reduce_scatter and all_to_all, the bytes of all ranks together |

The predictions are for NCCL {version} with default settings, one process per GPU, without CUDA graphs and without registered buffers. AMD
GPUs run RCCL. Older versions differ at small and medium sizes: `nvcoll predict --nccl-version 2.21.5`.

[Questions about busbw](faq.md) has reasons for low and high numbers.

<div id="table-search"></div>

{sections}

## Which algorithm and protocol NCCL selects

NCCL's tuning model estimates the time of each algorithm with each protocol, and NCCL selects the shortest:

`time = latency + bytes / bandwidth`

| name | latency | bandwidth | NCCL selects it for |
|---|---|---|---|
| Ring | 2(n-1) steps for all_reduce: grows with the number of GPUs | highest without NVLS | large all_reduce without NVLS; all_gather and reduce_scatter of all sizes |
| Tree | grows with the logarithm of the number of nodes | on one node lower than of a ring; over the network each node sends fewer bytes | small and medium all_reduce of several nodes |
| NVLS | one step: NVSwitch of Hopper and later reduces | higher than the links | all_reduce of one node or one rack from some MiB on; in a rack of 72 also small ones |
| NVLSTree | NVLS in a node, a tree between nodes | higher than of trees | large all_reduce of several nodes |
| LL | lowest: a flag of 4 bytes follows 4 bytes of data | half | small calls |
| LL128 | low: a flag of 8 bytes follows 120 bytes of data | 15/16; only where stores of 128 bytes arrive whole, as over NVLink | medium calls |
| Simple | highest: the receiver waits for a whole chunk | full | large calls |

all_to_all and sendrecv have no algorithm: each rank sends to each peer, small messages with LL, large messages with Simple. NCCL {version}
selects these pairs for powers of two from 8 B to 8 GiB:

{choices}

NCCL's estimates for one machine (`Fabric.nccl`): all_reduce on `{example}`, time in us, the shortest in bold. They contain no launch, so they are
not the predicted times.

{estimates}
"""


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _figure(value: float) -> str:
    """Returns a busbw or a time with three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _predicted(found: Prediction) -> str:
    """Returns a cell: busbw and its interval; of the small size the time."""
    value, low, high = found.time_us, found.low_us, found.high_us
    if found.nbytes != SMALL:
        value, low, high = found.busbw, found.busbw * value / high, found.busbw * value / low
    mark = "" if found.trust.startswith("validated") else "\\*"
    return f"**{_figure(value)}**{mark}<br>({_figure(low)}-{_figure(high)})"


Machine = tuple[str, str, int]
"""A preset without its choice of GPUs, a network or nothing, and the number of GPUs."""


def measurements() -> dict[tuple[Machine, str, int], list[Row]]:
    """Returns the public measurements of NCCL's own choice on healthy systems, by machine, collective and size."""
    found: dict[tuple[Machine, str, int], list[Row]] = defaultdict(list)
    for row in healthy(read(ROOT / "data" / "nccl-tests")):
        system = row.system
        is_comparable = row.nbytes != SMALL or system.launch == "process_per_gpu"
        if is_comparable and not (row.algo or row.proto or system.facts["settings"]):
            machine = system.fabric.partition("[")[0], system.network, system.n_gpus
            found[machine, row.collective, row.nbytes].append(row)
    return found


def _measured(rows: Sequence[Row]) -> str:
    """Returns the third line of a cell: the lowest and the highest median of a system."""
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        busbw = row.nbytes / row.time_us / 1e3 * factor(row.collective, row.system.n_gpus)
        values[row.system.system_id].append(row.time_us if row.nbytes == SMALL else busbw)
    medians = sorted(median(of_system) for of_system in values.values())
    ends = dict.fromkeys(_figure(value) for value in (*medians[:1], *medians[-1:]))
    return f"<br>*{'-'.join(ends)}*" if medians else ""


def _machines(board: Board) -> Iterator[tuple[str, Machine]]:
    """Yields the machines of a section: the name, and what measurements know it by."""
    for name in board.nodes:
        yield name, (name.partition("[")[0], "", nvcoll.fabric(name).world_size)
    for place, (node, network) in enumerate(board.networks):
        for nodes in board.counts if place == 0 else board.counts[::2]:
            yield f"{node}x{nodes}+{network}", (node, network, nodes * nvcoll.fabric(node).world_size)


def _section(board: Board, measured: dict[tuple[Machine, str, int], list[Row]]) -> str:
    rows = []
    for name, machine in _machines(board):
        fabric = nvcoll.fabric(name)
        names: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for collective in ALL:
            found = fabric.predict(collective, [SMALL, *SIZES])
            logs = [measured[machine, collective, nbytes] for nbytes in (SMALL, *SIZES)]
            systems = {row.system.system_id for cell in logs for row in cell}
            cells = [_predicted(one) + _measured(cell) for one, cell in zip(found, logs, strict=True)]
            names[*cells, f"*{len(systems)}*" if systems else ""].append(collective)
        rows += [[f"`{name}`", ", ".join(equal), *cells] for cells, equal in names.items()]
    heads = ["machine", "collective", f"{sized(SMALL)}, us", *map(sized, SIZES), "systems"]
    return f"## {board.title}\n\n{_table(heads, rows)}"


def _choices(found: Sequence[Prediction]) -> str:
    """Returns what NCCL selects at which sizes: ``Ring LL to 1 MiB, then NVLS Simple``."""
    runs = [(name, [*run]) for name, run in groupby(found, lambda one: f"{one.algorithm} {one.protocol}")]
    parts = [f"{name} to {sized(run[-1].nbytes)}" for name, run in runs[:-1]]
    return ", ".join([*parts, f"then {runs[-1][0]}" if parts else runs[-1][0]])


def _estimates(fabric: Fabric) -> str:
    """Returns NCCL's estimates of all_reduce: a row per size."""
    estimates = fabric.nccl("all_reduce", [64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 128 * MIB, GIB])
    names = sorted({(one.algorithm, one.protocol) for size in estimates for one in size.candidates if one.time_us})
    rows = []
    for size in estimates:
        times = {(one.algorithm, one.protocol): one.time_us for one in size.candidates if one.time_us}
        best = min(times.values())
        cells = [f"**{_figure(times[name])}**" if times[name] == best else _figure(times[name]) for name in names]
        rows.append([sized(size.nbytes), *cells])
    return _table(["size", *(" ".join(name) for name in names)], rows)


EXAMPLE = "hgx-h100x2+ib-ndr-8"
"""The machine whose estimates are shown."""

CHOSEN = (
    *("hgx-a100", "hgx-h100", "hgx-h100[0-1]", "hgx-b200", "gb200-nvl72", "dgx1-v100"),
    *("l40s-8-p2p", "rtx4090-8-staged", "mi300x-8"),
    *("hgx-a100x2+ib-hdr-8", "hgx-h100x2+ib-ndr-8", "hgx-h100x8+ib-ndr-8", "hgx-h100x64+ib-ndr-8"),
    *("hgx-b200x2+ib-ndr-8", "gb200-nvl72x2+ib-ndr-4", "gb10-1x2+roce-200-1"),
)
"""The machines whose choices are shown."""


def _jumps() -> str:
    """Returns links to the sections, as headings get their anchors on GitHub and in the site."""
    words = [(board.title, re.sub(r"[^\w -]", "", board.title.lower()).replace(" ", "-")) for board in BOARDS]
    return "Machines: " + ", ".join(f"[{title}](#{anchor})" for title, anchor in words) + "."


def page() -> str:
    """Returns the text of ``docs/predict/expected.md``."""
    measured = measurements()
    choices = []
    for name in CHOSEN:
        fabric = nvcoll.fabric(name)
        cells = [_choices(fabric.predict(collective, SWEEP)) for collective in ("all_reduce", "all_gather")]
        choices.append([f"`{name}`", *cells])
    return PAGE.format(
        version=nvcoll.fabric(EXAMPLE).nccl("all_reduce", GIB).tag.removeprefix("v").partition("-")[0],
        jumps=_jumps(),
        sections="\n\n".join(_section(board, measured) for board in BOARDS),
        choices=_table(["machine", "all_reduce", "all_gather"], choices),
        example=EXAMPLE,
        estimates=_estimates(nvcoll.fabric(EXAMPLE)),
    )


if __name__ == "__main__":
    print(page(), end="")
