"""Writes the pictures of docs/predict/answers.md, and the figures and outputs of the documentation.

    python tools/pages/pictures/make.py

Each section of the page has a function here, named after its picture. It asks nvcoll, and returns the picture and the
figures of the section. The figures replace the bold numbers of the section, in order. Blocks that begin with ``$`` are
run, and their output is replaced, in the pages of `WITH_OUTPUT` too. `tests/docs/test_answers.py` fails if one is old.
"""

from __future__ import annotations

import itertools
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nvcoll
from nvcoll import training
from nvcoll._nvcoll import bus_factor, media
from nvcoll.dryrun.parent.recording import Recording
from nvcoll.text.formatting import duration, sized

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "predict")]

import chart  # noqa: E402  (it stands beside this file)
import streams  # noqa: E402
from chart import BUS, MESH, NETWORK, SWITCH, seconds  # noqa: E402

import judging  # noqa: E402  (it stands in tools/predict/)

ROOT = HERE.parents[2]
PAGE = ROOT / "docs" / "predict" / "answers.md"
PICTURES = ROOT / "docs" / "pictures"
WITH_OUTPUT = [
    ROOT / "README.md",
    ROOT / "docs/start/first-ten-minutes.md",
    *(
        ROOT / "docs" / name
        for name in (
            "train/plan.md",
            "predict/comparing.md",
            "predict/faq.md",
            "predict/predictions.md",
            "train/traces.md",
            "serving-plan.md",
        )
    ),
]
"""Pages whose commands are run too."""

GIB = 1 << 30
GRADIENT = 140 * 10**9
"""Bytes of 70 billion parameters in fp16."""


@dataclass
class Answer:
    """A picture, and the figures of its section in the order of the page."""

    svg: str
    figures: list[str]


@cache
def _measurements() -> list[judging.Row]:
    rows = judging.healthy(judging.read(ROOT / "data" / "nccl-tests"), also_unknown=True)
    return [row for row in rows if row.collective == "all_reduce"]


def busbw_of(row: judging.Row) -> float:
    """The busbw that was measured."""
    return row.nbytes / row.time_us / 1e3 * bus_factor("all_reduce", row.system.n_gpus)


def mark(row: judging.Row, value: float) -> chart.Measured:
    """A measurement at a value: hollow if the health of the system is unknown."""
    return chart.Measured(value, f"measured: {row.system.system_id}, {sized(row.nbytes)}", row.healthy != "yes")


def measured(fabric: str, nbytes: int) -> list[judging.Row]:
    """The fastest published all_reduce of that size on each system of one such node."""
    rows: dict[str, judging.Row] = {}
    for row in every(fabric):
        if row.nbytes == nbytes:
            best = rows.setdefault(row.system.system_id, row)
            if row.time_us < best.time_us:
                rows[row.system.system_id] = row
    return [rows[name] for name in sorted(rows)]


def every(fabric: str, nodes: int = 1) -> list[judging.Row]:
    """Every all_reduce that was published of such a machine without a network, out of place."""
    rows = (row for row in _measurements() if (row.system.fabric, row.system.n_nodes) == (fabric, nodes))
    return [row for row in rows if not row.system.network and not row.in_place]


def busbw_measured(system: str) -> float:
    """The busbw of the largest all_reduce of a system that is named."""
    row = max((row for row in _measurements() if row.system.system_id == system), key=lambda row: row.nbytes)
    return busbw_of(row)


def span(one: nvcoll.Prediction) -> str:
    """Writes a predicted time with its interval."""
    return f"{seconds(one.time_us)} ({duration(one.low_us / 1e6, one.high_us / 1e6)})"


def time_line(name: str, one: nvcoll.Prediction, hue: str) -> chart.Line:
    """A line with a predicted time."""
    return chart.Line(name, one.time_us, span(one), one.low_us, one.high_us, hue, "not" in one.trust)


def busbw_line(name: str, one: nvcoll.Prediction, hue: str, rows: Sequence[judging.Row]) -> chart.Line:
    """A line with a predicted busbw, the interval of its time, and measurements."""
    low, high = (one.busbw * one.time_us / time for time in (one.high_us, one.low_us))
    words = f"{one.busbw:.3g} GB/s ({low:.3g} to {high:.3g})"
    marks = [mark(row, busbw_of(row)) for row in rows]
    return chart.Line(name, one.busbw, words, low, high, hue, "not" in one.trust, marks)


EIGHT = (
    ("PCIe 3, host-staged", "pcie3-8-staged", BUS),
    ("PCIe 3, P2P", "pcie3-8-p2p", BUS),
    ("PCIe 4, host-staged: RTX 4090", "rtx4090-8-staged", BUS),
    ("PCIe 4, P2P: RTX 4090", "rtx4090-8-p2p", BUS),
    ("PCIe 5, host-staged: RTX 5090", "rtx5090-8-staged", BUS),
    ("PCIe 5, P2P: RTX 5090", "rtx5090-8-p2p", BUS),
    ("NVLink 1: DGX-1 P100", "dgx1-p100", SWITCH),
    ("NVLink 2: DGX-1 V100", "dgx1-v100", SWITCH),
    ("NVLink 3: HGX A100", "hgx-a100", SWITCH),
    ("NVLink 4: HGX H100", "hgx-h100", SWITCH),
    ("NVLink 5: HGX B200", "hgx-b200", SWITCH),
)


def link_gap() -> Answer:
    """PCIe 3 to 5 against NVLink 1 to 5: what a GPU has, and what eight make of it."""
    rates = {row.name: (row.title, row.lane_gbps, row.lane_gbps * row.efficiency) for row in media()}
    one_gpu = [(f"pcie{n}", 16, f"PCIe {n} x16", BUS) for n in (3, 4, 5)]
    nvlinks = ((1, 4, "P100"), (2, 6, "V100"), (3, 12, "A100"), (4, 18, "H100"), (5, 18, "B200"))
    one_gpu += [(f"nvlink{n}", links, f"NVLink {n}, {links} links ({gpu})", SWITCH) for n, links, gpu in nvlinks]
    ports = {name: (rates[name][1] * lanes, rates[name][2] * lanes) for name, lanes, _, _ in one_gpu}
    upper = [
        chart.Line(label, ports[name][0], f"{ports[name][0]:.4g} GB/s, in use {ports[name][1]:.3g} GB/s", hue=hue)
        for name, _, label, hue in one_gpu
    ]
    found = {name: nvcoll.fabric(name).predict("all_reduce", GIB) for _, name, _ in EIGHT}
    lower = [busbw_line(label, found[name], hue, measured(name, GIB)) for label, name, hue in EIGHT]
    scale = chart.Scale(1, 1000, 220, 420)
    top = 116
    second = top + 24 * len(upper) + 44
    hues = {name: chart.LEGEND[name] for name in ("PCIe", "NVLink")}
    parts = chart.legend(33, 70, hues, has_measured=True)
    parts += chart.dot_plot(upper, 24, top, 196, scale, "one way, GB/s")
    parts += chart.dot_plot(lower, 24, second, 196, scale, "busbw, GB/s")
    height = second + 24 * len(lower) + 16
    note = "Above: line rate of the links of one GPU. Below: all_reduce of 1 GiB on eight GPUs; measured: at 1 GiB."
    best = found["hgx-h100"].time_us
    same_host = [busbw_measured(f"rtx4090_8_{way}_bus01e1") for way in ("p2p", "staged")]
    figures = [
        f"{ports['nvlink4'][0] / ports['pcie5'][0]:.1f}",
        f"{ports['nvlink5'][0] / ports['pcie5'][0]:.1f}",
        *(f"{found[f'rtx4090-8-{way}'].time_us / best:.0f}" for way in ("p2p", "staged")),
        *(f"{found[f'rtx5090-8-{way}'].time_us / best:.0f}" for way in ("p2p", "staged")),
        *(f"{busbw:.3g}" for busbw in same_host),
    ]
    return Answer(chart.page("PCIe against NVLink", note, 960, height, parts), figures)


SEVEN = (
    ("4 x RTX 4090, host-staged", "rtx4090-4-staged", BUS),
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
    rows = [time_line(label, one, hue) for (label, _, hue), one in zip(SEVEN, found, strict=True)]
    clusters = [nvcoll.cluster(node, nodes=2, network=network) for _, node, network in TWO_NODES]
    over = [one.predict("all_reduce", GRADIENT) for one in clusters]
    rows += [time_line(label, one, NETWORK) for (label, *_), one in zip(TWO_NODES, over, strict=True)]
    scale = chart.Scale(1e5, 1e8, 240, 400)
    parts = chart.legend(33, 70, chart.LEGEND, has_measured=False)
    parts += chart.dot_plot(rows, 24, 116, 216, scale, "", seconds)
    note = "Predicted time of one all_reduce of 140 GB, on a logarithmic scale."
    picture = chart.page("A gradient of 140 GB", note, 900, 116 + 24 * len(rows) + 16, parts)
    figures = [seconds(one.time_us) for one in found[:-3]]
    for one, two in zip(found[-3:], over, strict=True):
        more = two.time_us / one.time_us - 1
        figures += [seconds(one.time_us), seconds(two.time_us), f"{100 * more:.0f}"]
    return Answer(picture, figures)


def program(name: str) -> Any:
    """Returns the function of the example that has its name."""
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))[name]


def mesh() -> Answer:
    """The hybrid cube mesh of a DGX-1 against eight GPUs on the NVSwitch of a DGX-2: pairs, and four of the GPUs."""
    machines = (("mesh", "dgx1-v100", MESH), ("switch", "dgx2[0-7]", SWITCH))
    parts, cell, subsets = [], 30, {}
    alone, at_once = {}, {}
    for column, (label, name, hue) in enumerate(machines):
        one = nvcoll.fabric(name)
        alone[name], at_once[name] = (
            [x for row in rows for x in row if x == x] for rows in (one.alone(), one.at_once())
        )
        left = 44 + column * 290
        for line, (what, rows) in enumerate((("one pair active", one.alone()), ("all pairs active", one.at_once()))):
            top = 110 + line * 310
            parts.append(chart.text(left, top - 22, f"{label}, {what}", font_weight="bold"))
            parts += chart.heat(rows, left, top, cell, (0.4, 130), hue)
        fours = [one.among(list(four)) for four in itertools.combinations(range(8), 4)]
        subsets[name] = sorted(four.nccl("all_reduce", GIB).chosen.busbw for four in fours)
    parts.append(chart.text(640, 88, "four of the eight GPUs", font_weight="bold"))
    parts.append(chart.text(640, 106, "busbw of all_reduce, NCCL's own estimate, 70 subsets"))
    lines = []
    for label, name, hue in machines:
        for busbw, alike in itertools.groupby(subsets[name], key=lambda rate: f"{rate:.3g}"):
            count = len(list(alike))
            lines.append(chart.Line(f"{count} subsets", float(busbw), f"{busbw} GB/s, {label}", hue=hue))
    parts += chart.dot_plot(lines, 640, 140, 80, chart.Scale(1, 200, 720, 130), "GB/s")
    whole = [nvcoll.fabric(name).nccl("all_reduce", GIB).chosen.busbw for _, name, _ in machines]
    schedule = program("rings_of_the_mesh").schedule(world_size=8)
    times = [nvcoll.fabric(name).simulate(schedule, GIB).time_us for _, name, _ in machines]
    simulated = [GIB / time / 1e3 * bus_factor("all_reduce", 8) for time in times]
    note = "8 x V100 with six NVLinks each: hybrid cube mesh and NVSwitch. GB/s, one way, from row to column."
    picture = chart.page("A mesh against a switch", note, 1020, 680, parts)
    meshed, switched = "dgx1-v100", "dgx2[0-7]"
    slow = min(alone[meshed])
    figures = [
        f"{max(alone[meshed]):.3g}",
        f"{sum(rate == slow for rate in alone[meshed]) // 2}",
        f"{slow:.2g}",
        f"{max(alone[switched]):.4g}",
        f"{max(at_once[meshed]):.3g}",
        f"{min(at_once[meshed]):.2g}",
        f"{max(at_once[switched]):.3g}",
        *(f"{rate:.4g}" for rate in [*simulated, *whole]),
        *(f"{busbw_measured(name):.4g}" for name in ("v100_dgx1_8_blog2019", "v100_dgx2_12of16_seville")),
        f"{subsets[meshed][-1]:.3g}",
        f"{subsets[meshed][0]:.2g}",
        f"{subsets[switched][0]:.4g}",
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
        rows.append(chart.Line(f"{n} GPUs, ring", ring, f"{ring:.5g} N", hue=BUS))
        rows.append(chart.Line("NVLS", switch, f"{switch:.5g} N", hue=SWITCH))
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
    note = "all_reduce of N bytes: bytes that each GPU sends, and receives. Counted in simulated schedules."
    picture = chart.page("Bytes through a port", note, 640, 90 + 24 * len(rows) + 20, parts)
    ring, switch = counted[8]
    return Answer(picture, [f"{ring:g}", f"{switch:g}", f"{ring / switch:.2f}"])


def one_clock() -> Answer:
    """A ring and the algorithm of a switch that folds, simulated, on one clock."""
    board, nbytes = nvcoll.fabric("hgx-h100"), 8 << 20
    schedules = [nvcoll.schedule("all_reduce", name, world_size=8) for name in ("ring", "nvswitch")]
    both = [board.simulate(schedule, nbytes, protocol="simple", spans=True) for schedule in schedules]
    ring, switch = (timeline.time_us for timeline in both)
    return Answer(both[0].to_svg(both[1]) + "\n", [seconds(ring), seconds(switch), f"{ring / switch:.1f}"])


SIZES = [1 << shift for shift in range(10, 34, 1)]
MARKS = [(1 << 10, "1 KiB"), (1 << 15, "32 KiB"), (1 << 20, "1 MiB"), (1 << 25, "32 MiB"), (1 << 30, "1 GiB")]


Lines = dict[str, tuple[nvcoll.Fabric, str, list[judging.Row]]]
"""Machines by what they are called in a picture, with a colour and measurements of them."""


def sweep(names: Lines, title: str, top: float) -> tuple[str, dict[str, list[nvcoll.Prediction]]]:
    """Draws predicted times over sizes, a line with its interval for each machine."""
    found = {label: one.predict("all_reduce", SIZES) for label, (one, *_) in names.items()}
    series = [
        chart.Series(
            f"{label} ({found[label][-1].trust})",
            [(one.nbytes, one.time_us, one.low_us, one.high_us) for one in found[label]],
            hue,
            "not" in found[label][-1].trust,
            [(row.nbytes, mark(row, row.time_us)) for row in rows if row.nbytes >= SIZES[0]],
        )
        for label, (_, hue, rows) in names.items()
    ]
    x, y = chart.Scale(SIZES[0], SIZES[-1], 70, 540), chart.Scale(1, top, 400, -310)
    parts = chart.lines(series, x, y, MARKS) + chart.key(series, 632, 110)
    note = (
        "all_reduce: predicted time over message size. Band: 90 % interval. Dashed: not validated. Diamond: measured."
    )
    return chart.page(title, note, 1000, 434, parts), found


def bridge() -> Answer:
    """Two RTX 3090 with their bridge against two RTX 4090, which have none."""
    machines: Lines = {
        "2 x RTX 3090, bridge": (nvcoll.fabric("rtx3090-2-bridge"), SWITCH, []),
        "2 x RTX 4090, host-staged": (nvcoll.fabric("rtx4090-2-staged"), BUS, every("rtx4090-2-staged")),
        "2 x RTX 4090, P2P": (nvcoll.fabric("rtx4090-2-p2p"), NETWORK, []),
    }
    svg, found = sweep(machines, "A bridge against none", 1e7)
    at = SIZES.index(GIB)
    bridged, staged, patched = (rows[at] for rows in found.values())
    figures = [f"{bridged.busbw:.3g}"]
    for one in (staged, patched):
        figures += [f"{one.busbw:.3g}", f"{one.time_us / bridged.time_us:.1f}"]
    seen = [busbw_measured(name) for name in ("rtx4090_2_sys_kalavai", "rtx2080ti_2_pix_autodl")]
    return Answer(svg, [*figures, *(f"{busbw:.2g}" for busbw in seen)])


def rack() -> Answer:
    """72 GPUs in one rack against 72 in nine nodes."""
    machines: Lines = {
        "GB200 NVL72": (nvcoll.fabric("gb200-nvl72"), SWITCH, every("gb200-nvl72", 18)),
        "9 x HGX B200, 8 x NDR": (nvcoll.cluster("hgx-b200", nodes=9, network="ib-ndr-8"), NETWORK, []),
        "9 x HGX H100, 8 x NDR": (nvcoll.cluster("hgx-h100", nodes=9, network="ib-ndr-8"), BUS, []),
    }
    svg, found = sweep(machines, "72 GPUs in a rack, and in nine nodes", 1e6)
    one_rack, newer, older = (rows[SIZES.index(GIB)] for rows in found.values())
    floors = [one.floor("all_to_all", GIB) for one, *_ in machines.values()]
    row = max(every("gb200-nvl72", 18), key=lambda row: row.nbytes)
    figures = [seconds(one.time_us) for one in (one_rack, newer, older)]
    figures += [f"{newer.time_us / one_rack.time_us:.1f}", f"{floors[1] / floors[0]:.0f}"]
    figures += [f"{found['GB200 NVL72'][SIZES.index(row.nbytes)].busbw:.3g}", f"{busbw_of(row):.3g}"]
    return Answer(svg, figures)


def fsdp_streams() -> Answer:
    """A step of FSDP2, as `nvcoll dryrun` recorded it, with eight cards per node and with one."""
    step = Recording.load(ROOT / "docs" / "recordings" / "llama3-8b-fsdp2.json.gz").step
    machines = {name: training.Machine(name) for name in ("hgx-h100x8+ib-ndr-8", "hgx-h100x8+ib-ndr-1")}
    note = "Llama 3 8B with FSDP2 on 64 H100, 8,192 tokens per GPU: rank 0. Above: eight cards per node, below: one."
    svg = streams.streams("One training step on two machines", note, {k: m.timeline(step) for k, m in machines.items()})
    figures = []
    for machine in machines.values():
        found = machine.predict(step)
        figures += [seconds(1e6 * found.seconds), f"{100 * found.exposed_s / found.seconds:.0f} %"]
    return Answer(svg, figures)


ANSWERS: dict[str, Callable[[], Answer]] = {
    "fsdp-streams": fsdp_streams,
    "link-gap": link_gap,
    "gradient": gradient,
    "mesh": mesh,
    "wire-bytes": wire_bytes,
    "one-clock": one_clock,
    "bridge": bridge,
    "rack": rack,
}

BOLD = re.compile(r"\*\*(.+?)\*\*")
COMMAND = re.compile(r"^```\n\$ (?!nvcoll dryrun)(.+)\n((?:.*\n)*?)```$", re.MULTILINE)
"""A command and its output; dry runs need torch, and `tests/dryrun/test_page.py` runs them."""


@cache
def printed(command: str) -> str:
    """Runs a command of a page with the `python` and the `nvcoll` of this process.

    Raises:
        ValueError: it printed nothing.
    """
    shell = f'python() {{ "{sys.executable}" "$@"; }}\nnvcoll() {{ python -m nvcoll "$@"; }}\n{command}'
    done = subprocess.run(
        ["bash", "-c", shell],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,  # a check of a sick log ends with 1
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "120"},
    )
    if not done.stdout.strip():
        raise ValueError(f"`{command}` printed nothing: {done.stderr.strip()}")
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def refreshed(text: str, answers: dict[str, Answer]) -> str:
    """Returns the page with today's figures and outputs.

    Raises:
        ValueError: a section with a picture has not as many figures in bold as its function gives.
    """
    head, *sections = re.split(r"(?m)^(?=## )", text)
    done = [head]
    for section in sections:
        found = re.search(r"\(\.\./pictures/([\w-]+)\.svg\)", section)
        if not found:
            done.append(with_outputs(section))
            continue
        figures = list(answers[found[1]].figures)
        if len(BOLD.findall(section)) != len(figures):
            raise ValueError(f"{section.splitlines()[0]}: {len(figures)} figures for {BOLD.findall(section)}")
        values = iter(figures)
        section = BOLD.sub(lambda _, values=values: f"**{next(values)}**", section)
        done.append(with_outputs(section))
    return "".join(done)


def excerpt(shown: str, whole: str) -> str:
    """Returns the lines of an output that a page shows.

    A line ``...`` is a cut. What stands after a cut begins at the line of the output with the same first word.

    Raises:
        ValueError: no line after a cut begins so.
    """
    first, *later = shown.split("...\n")
    lines = whole.splitlines()
    at = first.count("\n") if later else len(lines)
    kept = lines[:at]
    for piece in later:
        kept.append("...")
        if piece:
            word = piece.split()[0]
            at = next((n for n, line in enumerate(lines) if n >= at and line.split()[:1] == [word]), -1)
            if at < 0:
                raise ValueError(f"no line begins with `{word}`:\n{whole}")
            kept += lines[at : at + piece.count("\n")]
            at += piece.count("\n")
    return "\n".join(kept)


def with_outputs(text: str) -> str:
    """Returns a text with today's output of every command that it shows."""
    return COMMAND.sub(lambda block: f"```\n$ {block[1]}\n{excerpt(block[2], printed(block[1]))}\n```", text)


def answered(text: str) -> dict[str, Answer]:
    """Asks what the pictures of a page show."""
    return {name: ANSWERS[name]() for name in re.findall(r"\(\.\./pictures/([\w-]+)\.svg\)", text)}


def main() -> None:
    """Writes everything."""
    text = PAGE.read_text()
    answers = answered(text)
    for name, answer in answers.items():
        (PICTURES / f"{name}.svg").write_text(answer.svg)
    PAGE.write_text(refreshed(text, answers))
    for page in WITH_OUTPUT:
        page.write_text(with_outputs(page.read_text()))


if __name__ == "__main__":
    main()
