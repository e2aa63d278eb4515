"""Writes the pictures of docs/answers.md, and into that page every figure and every line of output that it quotes.

    python docs/pictures/make.py

Each section of the page has a function here, named after its picture. It asks nvcoll and returns the picture and the
figures of the prose, which stand in bold there, in their order. Blocks that begin with ``$`` are run and their output
replaced. The same nvcoll gives the same files; `tests/test_answers.py` says which are out of date.
"""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nvcoll
from nvcoll import validate
from nvcoll._nvcoll import bus_factor, media
from nvcoll.cli import sizes

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import chart  # noqa: E402  (it stands beside this file)
from chart import BUS, MESH, NETWORK, SWITCH, seconds  # noqa: E402

PAGE = HERE.parent / "answers.md"
GIB = 1 << 30
GRADIENT = 140 * 10**9
"""Bytes of 70 billion parameters in fp16."""


@dataclass
class Answer:
    """A picture, and the figures of its section in the order of the page."""

    svg: str
    figures: list[str]


@cache
def _measurements() -> list[validate.Row]:
    return validate.healthy(validate.read(HERE.parent.parent / "data" / "nccl-tests"))


def measured(fabric: str, network: str = "", nodes: int = 1) -> list[tuple[float, str]]:
    """The fastest busbw of an all_reduce that was published for such hardware, of each system, and which that is.

    Only the largest size of a system counts, and none below 32 MiB.
    """
    rows: dict[str, validate.Row] = {}
    for row in _measurements():
        is_such = (row.system.fabric, row.system.network, row.system.n_nodes) == (fabric, network, nodes)
        if is_such and row.collective == "all_reduce" and row.nbytes >= 1 << 25:
            best = rows.setdefault(row.system.system_id, row)
            if (row.nbytes, -row.time_us) > (best.nbytes, -best.time_us):
                rows[row.system.system_id] = row
    busbw = {
        name: row.nbytes / row.time_us / 1e3 * bus_factor("all_reduce", row.system.n_gpus) for name, row in rows.items()
    }
    return [(busbw[name], f"{name}, {sizes.show(row.nbytes)}") for name, row in sorted(rows.items())]


def span(one: nvcoll.Prediction) -> str:
    """Writes a predicted time with its interval."""
    return f"{seconds(one.microseconds)} ({seconds(one.low)} to {seconds(one.high)})"


def time_bar(name: str, one: nvcoll.Prediction, hue: str, busbw: Sequence[tuple[float, str]]) -> chart.Bar:
    """A bar of a predicted time: hollow where nothing vouches for it; dots are what measured busbw would take."""
    words = f"{span(one)}, {one.trust}"
    times = [(one.microseconds * one.busbw / rate, what) for rate, what in busbw]
    return chart.Bar(name, one.microseconds, words, one.low, one.high, hue, "not" in one.trust, times)


def busbw_bar(name: str, one: nvcoll.Prediction, hue: str) -> chart.Bar:
    """A bar of a predicted busbw, which has the interval of the time; dots are measured."""
    low, high = (one.busbw * one.microseconds / time for time in (one.high, one.low))
    words = f"{one.busbw:.3g} GB/s ({low:.3g} to {high:.3g}), {one.trust}"
    return chart.Bar(name, one.busbw, words, low, high, hue, "not" in one.trust, measured(name))


def link_gap() -> Answer:
    """PCIe 3 to 5 against NVLink 1 to 5: what a GPU has, and what eight make of it."""
    rates = {name: (title, lane, lane * efficiency) for name, title, _, lane, efficiency, *_ in media()}
    one_gpu = [(f"pcie{n}", 16, f"PCIe {n} x16", BUS) for n in (3, 4, 5)]
    nvlinks = ((1, 4, "P100"), (2, 6, "V100"), (3, 12, "A100"), (4, 18, "H100"), (5, 18, "B200"))
    one_gpu += [(f"nvlink{n}", links, f"NVLink {n}, {links} links ({gpu})", SWITCH) for n, links, gpu in nvlinks]
    ports = {name: (rates[name][1] * lanes, rates[name][2] * lanes) for name, lanes, _, _ in one_gpu}
    upper = [
        chart.Bar(label, ports[name][0], f"{ports[name][0]:.4g} GB/s, in use {ports[name][1]:.3g}", hue=hue)
        for name, _, label, hue in one_gpu
    ]
    eight = [(f"pcie{n}-8-{way}", BUS) for n in (3, 4, 5) for way in ("staged", "p2p")]
    eight += [(name, SWITCH) for name in ("dgx1-p100", "dgx1-v100", "hgx-a100", "hgx-h100", "hgx-b200")]
    found = {name: nvcoll.fabric(name).predict("all_reduce", GIB) for name, _ in eight}
    lower = [busbw_bar(name, found[name], hue) for name, hue in eight]
    scale = chart.Scale(1, 1000, 220, 420)
    parts = chart.bars(upper, 24, 90, 196, scale, "one way, GB/s")
    parts += chart.bars(lower, 24, 90 + 24 * len(upper) + 44, 196, scale, "busbw, GB/s")
    height = 90 + 24 * len(upper) + 44 + 24 * len(lower) + 16
    note = "Above: links of one GPU. Below: all_reduce of 1 GiB on eight; hollow: not validated; dots: measured."
    times = [found[f"pcie4-8-{way}"].microseconds / found["hgx-h100"].microseconds for way in ("p2p", "staged")]
    figures = [
        f"{ports['nvlink4'][0] / ports['pcie5'][0]:.1f}",
        f"{ports['nvlink5'][0] / ports['pcie5'][0]:.1f}",
        *(f"{ratio:.0f}" for ratio in times),
        f"{found['pcie4-8-staged'].microseconds / found['pcie4-8-p2p'].microseconds:.1f}",
    ]
    return Answer(chart.page("PCIe against NVLink", note, 1000, height, parts), figures)


SEVEN = (
    ("4 x RTX 4090, staged", "rtx4090-4-staged", BUS),
    ("4 x RTX 4090, patched driver", "rtx4090-4-p2p", BUS),
    ("8 x L40S", "l40s-8-p2p", BUS),
    ("8 x V100, DGX-1", "dgx1-v100", SWITCH),
    ("8 x A100, HGX", "hgx-a100", SWITCH),
    ("8 x H100, HGX", "hgx-h100", SWITCH),
    ("8 x B200, HGX", "hgx-b200", SWITCH),
)

TWO_NODES = (
    ("2 x 8 A100, 8 x HDR", "hgx-a100", "ib-hdr-8"),
    ("2 x 8 H100, 8 x NDR", "hgx-h100", "ib-ndr-8"),
    ("2 x 8 B200, 8 x NDR", "hgx-b200", "ib-ndr-8"),
)


def gradient() -> Answer:
    """The gradient of 70 billion parameters in fp16, on seven machines and over two nodes."""
    found = [nvcoll.fabric(name).predict("all_reduce", GRADIENT) for _, name, _ in SEVEN]
    rows = [time_bar(label, one, hue, measured(name)) for (label, name, hue), one in zip(SEVEN, found, strict=True)]
    clusters = [nvcoll.cluster(node, nodes=2, network=network) for _, node, network in TWO_NODES]
    over = [one.predict("all_reduce", GRADIENT) for one in clusters]
    rows += [
        time_bar(label, one, MESH, measured(node, network, 2))
        for (label, node, network), one in zip(TWO_NODES, over, strict=True)
    ]
    scale = chart.Scale(1e5, 1e8, 240, 400)
    parts = chart.bars(rows, 24, 90, 216, scale, "", seconds)
    note = "all_reduce of 140 GB; hollow: not validated; dots: at the busbw that was measured with fewer bytes."
    picture = chart.page("A gradient of 140 GB", note, 1000, 90 + 24 * len(rows) + 16, parts)
    return Answer(picture, [*(seconds(one.microseconds) for one in [*found, *over])])


def program(name: str) -> Any:
    """Runs the program of the page that defines a function, and returns it."""
    (text,) = (
        text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if f"def {name}(" in text
    )
    names: dict[str, Any] = {}
    exec(text, names)
    return names[name]


def mesh() -> Answer:
    """The hybrid cube mesh of a DGX-1 against eight GPUs on the NVSwitch of a DGX-2: pairs, and four of the GPUs."""
    machines = (("hybrid cube mesh", "dgx1-v100", MESH), ("NVSwitch", "dgx2[0-7]", SWITCH))
    parts, cell, subsets = [], 30, {}
    alone, at_once = {}, {}
    for column, (label, name, hue) in enumerate(machines):
        one = nvcoll.fabric(name)
        alone[name], at_once[name] = (
            [x for row in rows for x in row if x == x] for rows in (one.alone(), one.at_once())
        )
        left = 44 + column * 290
        for line, (what, rows) in enumerate((("alone", one.alone()), ("everybody at once", one.at_once()))):
            top = 110 + line * 310
            parts.append(chart.text(left, top - 22, f"{label}, {what}", font_weight="bold"))
            parts += chart.heat(rows, left, top, cell, (0.4, 130), hue)
        fours = [one.among(list(four)) for four in itertools.combinations(range(8), 4)]
        subsets[name] = sorted(four.nccl("all_reduce", GIB).chosen.busbw for four in fours)
    parts.append(chart.text(640, 88, "four of the eight GPUs", font_weight="bold"))
    parts.append(chart.text(640, 106, "busbw of all_reduce, NCCL's own estimate, 70 subsets"))
    bars = []
    for label, name, hue in machines:
        for busbw, alike in itertools.groupby(subsets[name], key=lambda rate: f"{rate:.3g}"):
            count = len(list(alike))
            bars.append(chart.Bar(f"{count} subsets", float(busbw), f"{busbw} GB/s, {label}", hue=hue))
    parts += chart.bars(bars, 640, 140, 80, chart.Scale(1, 200, 720, 130), "GB/s")
    whole = [nvcoll.fabric(name).nccl("all_reduce", GIB).chosen.busbw for _, name, _ in machines]
    schedule = program("rings_of_the_mesh").schedule(world_size=8)
    times = [nvcoll.fabric(name).simulate(schedule, GIB).microseconds for _, name, _ in machines]
    simulated = [GIB / time / 1e3 * bus_factor("all_reduce", 8) for time in times]
    note = "8 x V100, six NVLinks each, GB/s one way from row to column: datasheet rates times efficiencies."
    picture = chart.page("A mesh against a switch", note, 1020, 680, parts)
    meshed, switched = "dgx1-v100", "dgx2[0-7]"
    slow = min(alone[meshed])
    figures = [
        f"{max(alone[switched]):.4g}",
        f"{max(alone[meshed]):.3g}",
        f"{sum(rate == slow for rate in alone[meshed]) // 2}",
        f"{slow:.2g}",
        f"{max(at_once[switched]):.3g}",
        f"{max(at_once[meshed]):.3g}",
        f"{min(at_once[meshed]):.2g}",
        *(f"{rate:.4g}" for rate in [*simulated, *whole]),
        *(f"{measured(name)[0][0]:.4g}" for name in (meshed, "dgx2[0-11]")),
        f"{subsets[switched][0]:.4g}",
        f"{subsets[meshed][-1]:.3g}",
        f"{subsets[meshed][0]:.2g}",
    ]
    return Answer(picture, figures)


def sent(algorithm: str, machine: str, n: int) -> float:
    """What crosses from a GPU to its switch for an all_reduce, in units of the bytes of the call, by simulation."""
    nbytes = n << 20
    schedule = nvcoll.schedule("all_reduce", algorithm, world_size=n)
    links = nvcoll.fabric(machine).simulate(schedule, nbytes, protocol="ideal").links
    return next(crossed for a, b, crossed, _ in links if (a, b) == ("gpu0", "nvswitch")) / nbytes


def wire_bytes() -> Answer:
    """What a port carries each way: a ring, and a switch that folds."""
    ranks = [(2, "hgx-h100"), (4, "hgx-h100"), (8, "hgx-h100"), (16, "gb200-16"), (32, "gb200-32"), (64, "gb200-64")]
    counted = {n: (sent("ring", name, n), sent("nvswitch", name, n)) for n, name in ranks}
    rows = []
    for n, (ring, switch) in counted.items():
        rows.append(chart.Bar(f"{n} GPUs, ring", ring, f"{ring:.5g} N", hue=BUS))
        rows.append(chart.Bar("in the switch", switch, f"{switch:.5g} N", hue=SWITCH))
    left, unit = 170, 150
    parts = []
    for mark in (0, 1, 2):
        at = left + unit * mark
        parts.append(f'<path d="M{at} 82V{90 + 24 * len(rows)}" stroke="{chart.GRID}"/>')
        parts.append(chart.text(at, 78, f"{mark} N", class_="note", fill=chart.FAINT, text_anchor="middle"))
    for nth, row in enumerate(rows):
        top = 90 + 24 * nth + (nth % 2 == 0) * 4
        frame = f'x="{left}" y="{top}" width="{unit * row.value:.1f}" height="18"'
        parts.append(f'<g class="bar"><rect {frame} fill="{row.hue}"/>')
        parts.append(chart.text(left - 8, top + 13, row.name, text_anchor="end"))
        parts.append(chart.text(left + unit * row.value + 7, top + 13, row.words) + "</g>")
    note = "All_reduce of N bytes: what each GPU sends, and receives. Counted in simulated schedules."
    picture = chart.page("Bytes through a port", note, 640, 90 + 24 * len(rows) + 20, parts)
    ring, switch = counted[8]
    return Answer(picture, [f"{ring:g}", f"{switch:g}", f"{ring / switch:.2f}"])


def one_clock() -> Answer:
    """A ring and the algorithm of a switch that folds, simulated, on one clock."""
    board, nbytes = nvcoll.fabric("hgx-h100"), 8 << 20
    simulated = {}
    for name in ("ring", "nvswitch"):
        schedule = nvcoll.schedule("all_reduce", name, world_size=8)
        simulated[name] = board.simulate(schedule, nbytes, protocol="simple", spans=True)
    ring, switch = (simulated[name].microseconds for name in ("ring", "nvswitch"))
    return Answer(spans(simulated, max(ring, switch)), [seconds(ring), seconds(switch), f"{ring / switch:.1f}"])


def spans(simulated: dict[str, nvcoll.Timeline], end: float) -> str:
    """Draws timelines below each other, ranks as rows, on one clock."""
    left, width, row = 84, 800, 14
    parts, top = [], 84
    for nth, (name, timeline) in enumerate(simulated.items()):
        parts.append(chart.text(24, top - 8, f"{name}: {timeline.microseconds:.1f} us", font_weight="bold"))
        for rank, done in enumerate(timeline.end):
            y = top + (row + 3) * rank
            parts.append(chart.text(left - 8, y + 11, f"rank {rank}", class_="note", text_anchor="end"))
            frame = f'x="{left}" y="{y}" width="{width * done / end:.1f}" height="{row}"'
            parts.append(f'<rect {frame} fill="{chart.GRID}"/>')
        for rank, _, _, _, start, stop in timeline.spans:
            x, y = left + width * start / end, top + (row + 3) * rank
            frame = f'x="{x:.1f}" y="{y}" width="{max(width * (stop - start) / end - 0.6, 0.4):.1f}" height="{row}"'
            parts.append(f'<rect class="span" {frame} fill="{(BUS, SWITCH)[nth]}"/>')
        top += (row + 3) * len(timeline.end) + 40
    for mark in range(0, math.ceil(end), 20):
        x = left + width * mark / end
        parts.append(f'<path d="M{x:.1f} 84V{top - 36}" stroke="{chart.FAINT}" stroke-width="0.4"/>')
        parts.append(chart.text(x, top - 22, f"{mark} us", class_="note", fill=chart.FAINT, text_anchor="middle"))
    note = "all_reduce of 8 MiB on eight H100, simulated with the costs of NCCL's Simple protocol; a bar is a step."
    return chart.page("Ring and switch on one clock", note, 920, top, parts)


SIZES = [1 << shift for shift in range(10, 34, 1)]
MARKS = [(1 << 10, "1 KiB"), (1 << 15, "32 KiB"), (1 << 20, "1 MiB"), (1 << 25, "32 MiB"), (1 << 30, "1 GiB")]


def sweep(names: dict[str, tuple[nvcoll.Fabric, str]], title: str, top: float) -> tuple[str, dict]:
    """Draws predicted times over sizes, a line with its interval for each machine."""
    found = {label: one.predict("all_reduce", SIZES) for label, (one, _) in names.items()}
    series = [
        chart.Series(
            f"{label} ({found[label][-1].trust})",
            [(one.nbytes, one.microseconds, one.low, one.high) for one in found[label]],
            hue,
            "not" in found[label][-1].trust,
        )
        for label, (_, hue) in names.items()
    ]
    x, y = chart.Scale(SIZES[0], SIZES[-1], 70, 540), chart.Scale(1, top, 400, -310)
    parts = chart.lines(series, x, y, MARKS) + chart.key(series, 632, 110)
    note = "all_reduce: predicted time over bytes; the bands are the intervals, dashed lines are not validated."
    return chart.page(title, note, 1000, 434, parts), found


def bridge() -> Answer:
    """Two RTX 3090 with their bridge against two RTX 4090, which have none."""
    machines = {
        "2 x RTX 3090, bridge": (nvcoll.fabric("rtx3090-2-bridge"), SWITCH),
        "2 x RTX 4090, staged": (nvcoll.fabric("rtx4090-2-staged"), BUS),
        "2 x RTX 4090, patched driver": (nvcoll.fabric("rtx4090-2-p2p"), NETWORK),
    }
    svg, found = sweep(machines, "A bridge against none", 1e7)
    at = SIZES.index(GIB)
    bridged, staged, patched = (rows[at] for rows in found.values())
    figures = [f"{one.busbw:.3g}" for one in (bridged, staged, patched)]
    return Answer(svg, [*figures, f"{staged.microseconds / bridged.microseconds:.1f}"])


def rack() -> Answer:
    """72 GPUs in one rack against 72 in nine nodes."""
    machines = {
        "GB200 NVL72": (nvcoll.fabric("gb200-nvl72"), SWITCH),
        "9 x HGX B200, 8 x NDR": (nvcoll.cluster("hgx-b200", nodes=9, network="ib-ndr-8"), NETWORK),
        "9 x HGX H100, 8 x NDR": (nvcoll.cluster("hgx-h100", nodes=9, network="ib-ndr-8"), BUS),
    }
    svg, found = sweep(machines, "72 GPUs in a rack, and in nine nodes", 1e6)
    figures = []
    for nbytes in (1 << 20, GIB):
        rows = [rows[SIZES.index(nbytes)].microseconds for rows in found.values()]
        figures += [seconds(us) for us in rows]
    return Answer(svg, figures)


ANSWERS: dict[str, Callable[[], Answer]] = {
    "link-gap": link_gap,
    "gradient": gradient,
    "mesh": mesh,
    "wire-bytes": wire_bytes,
    "one-clock": one_clock,
    "bridge": bridge,
    "rack": rack,
}

BOLD = re.compile(r"\*\*(.+?)\*\*")
COMMAND = re.compile(r"^```\n\$ (.+)\n(?:.*\n)*?```$", re.MULTILINE)


def printed(command: str) -> str:
    """Runs a command of the page; `nvcoll` is the one that this Python has."""
    shell = f'nvcoll() {{ "{sys.executable}" -m nvcoll "$@"; }}\n{command}'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=100, check=True)
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def refreshed(text: str, answers: dict[str, Answer]) -> str:
    """Returns the page with today's figures and outputs.

    Raises:
        ValueError: a section has no picture, or not as many figures in bold as its function gives.
    """
    head, *sections = re.split(r"(?m)^(?=## )", text)
    done = [head]
    for section in sections:
        found = re.search(r"\(pictures/([\w-]+)\.svg\)", section)
        figures = list(answers[found[1]].figures) if found else []
        if len(BOLD.findall(section)) != len(figures):
            raise ValueError(f"{section.splitlines()[0]}: {len(figures)} figures for {BOLD.findall(section)}")
        values = iter(figures)
        section = BOLD.sub(lambda _, values=values: f"**{next(values)}**", section)
        done.append(COMMAND.sub(lambda block: f"```\n$ {block[1]}\n{printed(block[1])}\n```", section))
    return "".join(done)


def answered(text: str) -> dict[str, Answer]:
    """Asks what the pictures of a page show."""
    return {name: ANSWERS[name]() for name in re.findall(r"\(pictures/([\w-]+)\.svg\)", text)}


def main() -> None:
    """Writes everything."""
    text = PAGE.read_text()
    answers = answered(text)
    for name, answer in answers.items():
        (HERE / f"{name}.svg").write_text(answer.svg)
    PAGE.write_text(refreshed(text, answers))


if __name__ == "__main__":
    main()
