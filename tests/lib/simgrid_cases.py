"""Flows over four topologies, in nvcoll's virtual time and in SimGrid's; what the two must agree on.

::

    star        gpu ═ nvswitch ═ gpu                   every pair over one switch
    ring        gpu ─ socket ─ socket ─ … ─ socket     six sockets in a ring, a GPU at each
    two_level   gpu ─ switch ─ socket ─ switch ─ gpu   eight GPUs, two to a switch
    dumbbell    gpu ─ switch ─ switch ─ gpu            two groups of four with one thin link between them

A flow is a step that copies chunks from the memory of one rank into that of another; flows of one queue come one after
the other. ``python tests/lib/simgrid_cases.py`` runs every case in both and prints how far they are apart; ``--record``
writes what SimGrid said to `simgrid_golden.json`, with which `test_simgrid.py` compares everywhere.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nvcoll

HERE = Path(__file__).parent
GOLDEN = HERE / "simgrid_golden.json"
MEDIA = HERE.parents[1] / "rust" / "nvcoll-fabric" / "src" / "hardware" / "media.toml"
PYTHON = "/usr/bin/python3"
"""The Python to which Debian's package belongs."""

CHUNK = 1 << 20
"""Bytes of a chunk."""

HEAD = """
gpu = "{gpu}"
abilities = {{ peer_access = true, multicast = false, switch_reduction = false, gpu_direct = false }}
sources = ["a test"]
[[machines]]
name = "{name}"
title = "{name}"
"""


def described(name, gpus, devices, links, gpu="h100-sxm"):
    """Returns a description in TOML; links are (from, to, medium, lanes)."""
    text = HEAD.format(name=name, gpu=gpu) + f'[[devices]]\nnames = "gpu[0-{gpus - 1}]"\nkind = "gpu"\n'
    text += "".join(f'[[devices]]\nnames = "{names}"\nkind = "{kind}"\n' for names, kind in devices)
    for source, target, medium, lanes in links:
        text += f'[[links]]\nfrom = "{source}"\nto = "{target}"\nmedium = "{medium}"\nlanes = {lanes}\n'
    return text


TOPOLOGIES = {
    "star": described("star", 8, [("nvswitch", "nvswitch")], [("gpu[0-7]", "nvswitch", "nvlink4", 18)]),
    "ring": described(
        "ring",
        6,
        [("socket[0-5]", "socket")],
        [(f"gpu{at}", f"socket{at}", "pcie4", 16) for at in range(6)]
        + [(f"socket{at}", f"socket{(at + 1) % 6}", "upi1", 1) for at in range(6)],
    ),
    "two_level": described(
        "two_level",
        8,
        [("pcie[0-3]", "pcie_switch"), ("socket0", "socket")],
        [(f"gpu{at}", f"pcie{at // 2}", "pcie4", 16) for at in range(8)]
        + [(f"pcie{at}", "socket0", "pcie5", 16 if at < 2 else 8) for at in range(4)],
    ),
    "dumbbell": described(
        "dumbbell",
        8,
        [("pcie[0-1]", "pcie_switch")],
        [(f"gpu{at}", f"pcie{at // 4}", "pcie5", 16) for at in range(8)] + [("pcie0", "pcie1", "pcie4", 16)],
    ),
}


@dataclass(frozen=True)
class Flow:
    """Chunks that one rank sends to another, in a queue of the sender; its queue begins at `start` microseconds."""

    source: int
    target: int
    chunks: int
    queue: int = 0
    start: float = 0.0


def single(n):
    """One flow alone."""
    return [Flow(0, n - 1, 64)]


def converging(n):
    """Everybody to rank 0, different sizes."""
    return [Flow(rank, 0, 8 * rank) for rank in range(1, n)]


def diverging(n):
    """Rank 1 to everybody, different sizes."""
    others = [rank for rank in range(n) if rank != 1]
    return [Flow(1, rank, 8 + 4 * rank, queue) for queue, rank in enumerate(others)]


def all_pairs(n):
    """Everybody to everybody at once."""
    return [
        Flow(source, target, 16, queue)
        for source in range(n)
        for queue, target in enumerate(rank for rank in range(n) if rank != source)
    ]


def one_after_the_other(n):
    """Everybody to everybody, each rank to one after the other, the next rank first; sizes differ."""
    return [Flow(rank, (rank + away) % n, 4 + 3 * ((rank * away) % 5)) for rank in range(n) for away in range(1, n)]


def staggered(n):
    """Neighbours and those across, who begin at different times."""
    late = [Flow(rank, (rank + 1) % n, 32, 0, 400.0 * rank) for rank in range(n)]
    return late + [Flow(rank, (rank + n // 2) % n, 48, 1, 400.0 * rank) for rank in range(n)]


PATTERNS = {
    flows.__name__: flows for flows in (single, converging, diverging, all_pairs, one_after_the_other, staggered)
}
CASES = list(itertools.product(TOPOLOGIES, PATTERNS))


def flows_of(topology, pattern):
    """Returns a topology's fabric and the queues of a pattern, by rank and queue, in order."""
    fabric = nvcoll.Fabric.from_text(TOPOLOGIES[topology])
    queues: dict[tuple[int, int], list[Flow]] = {}
    for flow in PATTERNS[pattern](fabric.world_size):
        queues.setdefault((flow.source, flow.queue), []).append(flow)
    return fabric, dict(sorted(queues.items()))


def simulated(topology, pattern, **settings):
    """Returns when every flow of every queue ends, in seconds, in nvcoll's virtual time."""
    fabric, queues = flows_of(topology, pattern)
    n, most = fabric.world_size, max(flow.chunks for queue in queues.values() for flow in queue)
    lines = [f"schedule all_reduce flows  world_size {n}  chunks_per_part {most}  path mapped  aliasing out_of_place"]
    for (rank, queue), flows in queues.items():
        for nth, flow in enumerate(flows):
            views = f"output[r{flow.target}].0..{flow.chunks} = input[r{rank}].0..{flow.chunks}"
            lines.append(f"r{rank}.q{queue}.{nth}  {views}")
    starts = {rank: flows[0].start for (rank, _), flows in queues.items()}
    schedule = nvcoll.Schedule.parse("\n".join(lines))
    timeline = fabric.simulate(
        schedule, most * CHUNK, protocol="ideal", slice_bytes=CHUNK, spans=True, starts=starts, **settings
    )
    ends: dict[tuple[int, int], list[float]] = {}
    for rank, queue, *_, end in timeline.spans:
        ends.setdefault((rank, queue), []).append(end / 1e6)
    return [ends[key] for key in queues]


@cache
def latencies():
    """Returns the latency of each medium in seconds."""
    table = tomllib.loads(MEDIA.read_text())["medium"]
    return {row["name"]: row["latency_ns"] / 1e9 for row in table}


def asked(topology, pattern):
    """Returns what SimGrid is asked: links with bytes per second and latency, and queues of flows with their routes."""
    fabric, queues = flows_of(topology, pattern)
    links = {f"{a}-{b}": (rate * 1e9, latencies()[medium]) for a, b, medium, _, _, rate in fabric.links}
    told = []
    for flows in queues.values():
        told.append([])
        for flow in flows:
            devices, _ = fabric.route(flow.source, flow.target)
            route = [f"{a}-{b}" for a, b in itertools.pairwise(devices)]
            ends = {"source": devices[0], "target": devices[-1], "route": route}
            told[-1].append(ends | {"nbytes": flow.chunks * CHUNK, "start": flow.start / 1e6})
    lengths = Counter(len(flow["route"]) for queue in told for flow in queue)
    return {"links": links, "queues": told, "has_latency": len(lengths) == 1}


def in_simgrid(topology, pattern):
    """Returns SimGrid's version, and when every flow of every queue ends there, in seconds."""
    done = subprocess.run(
        [PYTHON, HERE / "simgrid_flows.py"],
        input=json.dumps(asked(topology, pattern)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    said = json.loads(done.stdout)
    return said["version"], said["ends"]


def is_installed():
    """Says whether Debian's Python has SimGrid."""
    try:
        done = subprocess.run([PYTHON, "-c", "import simgrid"], capture_output=True, timeout=100, check=False)
    except OSError:
        return False
    return done.returncode == 0


def apart(ours, theirs):
    """Returns the largest difference of two tables of ends, as a part of SimGrid's."""
    pairs = [pair for queues in zip(ours, theirs, strict=True) for pair in zip(*queues, strict=True)]
    return max(abs(one - other) / other for one, other in pairs)


def main():
    """Compares every case; records SimGrid's ends if asked."""
    recorded = {}
    for topology, pattern in CASES:
        version, theirs = in_simgrid(topology, pattern)
        ours = simulated(topology, pattern)
        flows = sum(map(len, theirs))
        print(f"{topology:10} {pattern:20} {flows:3} flows  {100 * apart(ours, theirs):.4f} % apart")
        recorded[f"{topology} {pattern}"] = theirs
    if "--record" in sys.argv[1:]:
        GOLDEN.write_text(json.dumps({"simgrid": version, "seconds": recorded}, indent=None) + "\n")


if __name__ == "__main__":
    main()
