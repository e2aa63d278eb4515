"""``nvcoll info``: this machine, and the defaults that follow from it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from nvcoll import _nvcoll
from nvcoll._nvcoll import HAS_ENGINE, dtypes, machine, ops
from nvcoll._nvcoll import algorithms as registry
from nvcoll.cli import formats
from nvcoll.dryrun.parent.library import FILE
from nvcoll.dryrun.wire.host_speed import host_speed
from nvcoll.text.environment import VARIABLES, set_variables
from nvcoll.text.formatting import sized
from nvcoll.text.tables import print_labelled


def _processors(usable: int, quota: float | None) -> str:
    """Returns the number of usable CPUs, and the quota."""
    there = os.cpu_count() or usable
    limit = "no quota of the control group" if quota is None else f"the control group's quota is {quota:g} CPUs"
    return f"{usable} of {there} CPUs, by affinity and quota; {limit}"


SHARED_PAGES = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
"""The file that says whether memory between processes has huge pages. Cited: admin-guide/mm/transhuge in the kernel's
documentation."""


def _memory(facts: dict[str, Any]) -> str:
    """Returns the memory that can be had, with the limit of the control group."""
    free, limit, left = (facts[key] for key in ("available_bytes", "group_limit_bytes", "group_left_bytes"))
    words = "no limit of the control group"
    if limit is not None:
        words = f"the control group's limit is {sized(limit)}, and {sized(left)} of it are left"
    return f"{'unknown' if free is None else sized(free)} available to ranks that are processes; {words}"


def _staging(few: int, many: int) -> str:
    """Returns the memory by which ranks pass arrays that their peers cannot reach."""
    words = f"{sized(few)} a rank in each communicator, {sized(many)} if ranks are more than CPUs"
    return f"{words}; messages take two thirds more"


def _huge_pages(has_them: bool | None) -> str:
    """Returns whether memory between processes has huge pages, and the setting that decides."""
    try:
        setting = Path(SHARED_PAGES).read_text().split("[")[1].split("]")[0]
    except (OSError, IndexError):
        setting = "unknown"
    words = {True: "yes", False: "no", None: "unknown"}[has_them]
    return f"between processes: {words}; {SHARED_PAGES} is {setting}"


MOST_MEASURED = 16
"""Processors to which the handoff is measured. Chosen: some milliseconds each."""


def _handoff(processors: list[int]) -> str:
    """Returns how long the first processor's stores take to reach the others, in words."""
    first, *others = processors
    measured = sorted((_nvcoll.handoff_ns(first, other), other) for other in others[:MOST_MEASURED])
    (near_ns, near), (far_ns, far) = measured[0], measured[-1]
    words = f"{near_ns:.0f} ns from CPU {first} to CPU {near}"
    return words if near == far else f"{words}, {far_ns:.0f} ns to CPU {far}"


def missing() -> list[str]:
    """Returns the parts that this build lacks, with what needs them."""
    engine = "the engine, which needs Linux: run, dump, bench, explain, and ranks in Python (Node, init, spawn)"
    gpu = "the virtual GPU, which needs Linux on x86-64: dryrun"
    return [*([] if HAS_ENGINE else [engine]), *([] if FILE.is_file() else [gpu])]


def _document() -> dict[str, Any]:
    """Returns everything for JSON."""
    default = {row.collective: row.name for row in reversed(registry())}
    return {
        "missing": missing(),
        "processor": machine() if HAS_ENGINE else None,
        "memory": _nvcoll.memory() if HAS_ENGINE else None,
        "dtypes": [row.name for row in dtypes()],
        "ops": [row.name for row in ops()],
        "variables": {row.name: os.environ.get(row.name) for row in VARIABLES},
        "defaults": dict(reversed(default.items())),
    }


def info(
    as_json: formats.AsJson = False,
    schema: formats.Schema = False,
    speed: Annotated[
        bool, typer.Option("--host-speed", help="Print only the speed of this processor, for nvcoll dryrun and price.")
    ] = False,
) -> None:
    """Prints cores, caches, memory, the instruction set, and the defaults with their reasons.

    Example: nvcoll info
    """
    if speed:
        return print(f"{host_speed():.3g}")
    if as_json:
        return formats.print_json("info", _document())
    for one in missing():
        print_labelled("missing", one)
    if HAS_ENGINE:
        _print_machine()
    print_labelled("dtypes", ", ".join(row.name for row in dtypes()))
    print_labelled("ops", ", ".join(row.name for row in ops()))
    print_labelled("variables", ", ".join(set_variables()) or f"none set of {', '.join(row.name for row in VARIABLES)}")
    if HAS_ENGINE:
        _print_defaults(machine()["usable_cpus"])


def _print_machine() -> None:
    """Prints the processor and the memory."""
    facts = machine()
    caches = [
        f"{name} {'unknown' if facts[key] is None else sized(facts[key])}"
        for name, key in (("L1d", "l1_bytes"), ("L2", "l2_bytes"), ("L3", "l3_bytes"))
    ]
    print_labelled("cpu", facts["cpu"] or "unknown")
    print_labelled("usable", _processors(facts["usable_cpus"], facts["cpu_quota"]))
    print_labelled("caches", ", ".join(caches))
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) > 1:
        print_labelled("handoff", _handoff(processors))
    memory = _nvcoll.memory()
    print_labelled("memory", _memory(memory))
    print_labelled("staging", _staging(*memory["staging_bytes"]))
    print_labelled("huge pages", _huge_pages(memory["has_huge_pages"]))
    isas = ", ".join(facts["isas"])
    print_labelled("kernels", f"{facts['isa']}, the best; isa= takes {isas}; results are bitwise identical with each")


def _print_defaults(workers: int) -> None:
    """Prints the defaults, and why."""
    default = {row.collective: row.name for row in reversed(registry())}
    of_collective = ", ".join(f"{collective} {name}" for collective, name in reversed(default.items()))
    print()
    print("defaults, and why")
    print_labelled("workers", f"{workers}, one per usable CPU and at most one per rank: more would wait for each other")
    if workers > 1:
        why = "otherwise the system often puts a waiting helper behind the caller while a processor is idle"
        print_labelled("pinning", f"each helper thread is pinned to a processor of its own, never the caller's; {why}")
    else:
        print_labelled("pinning", "none: the caller is the only worker")
    print_labelled("auto", of_collective)
    print_labelled("", "or another with the same bits that is estimated faster: nvcoll explain COLLECTIVE -b SIZE")
    print_labelled("path", "mapped: thread ranks reach each other's arrays, and staging would move more bytes")
