"""NCCL's own formula as a predictor: what it believes that its choice takes (``Fabric.nccl``).

A system of the table names a machine, a network and a version; a row may name an algorithm and a protocol. Where they
are not named, NCCL chooses, and the version is the newest of which the constants are known. Nothing is said

- of machines and networks that are no preset, and of GPUs, collectives and versions of which NCCL has no model;
- of algorithms that the port lacks (CollNet), or that NCCL would not consider there;
- where NCCL finds no ring and takes its last resort: its estimate then means nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from nvcoll import Fabric, InvalidArgument, cluster, fabric
from nvcoll._nvcoll import NcclEstimate

from judging import Prediction, Row, System

Call = tuple[str, str, int]
"""System, collective, bytes."""


def version(text: str) -> str | None:
    """Returns the version of NCCL that a cell begins with, as ``2.27.7`` or ``2.26``; nothing if it has none."""
    match = re.match(r"2\.\d+(\.\d+)?", text)
    return match[0] if match else None


def built(system: System) -> Fabric:
    """Returns the machine of a system, as far as presets go.

    Raises:
        InvalidArgument: it, or its network, is no preset.
    """
    one = fabric(system.fabric)
    if system.network and system.n_gpus > one.world_size:
        one = cluster(one, nodes=system.n_gpus // one.world_size, network=system.network)
    return one


def settings(system: System) -> dict[str, str]:
    """Returns the environment variables of NCCL that a system sets."""
    return dict(one.split("=") for one in system.facts.get("settings", "").split())


def machine(system: System) -> Fabric | None:
    """Returns the machine of a system; nothing if it, or its network, is no preset."""
    try:
        one = built(system)
    except InvalidArgument:
        return None
    return one if one.world_size == system.n_gpus else None


def estimates(rows: Iterable[Row]) -> dict[Call, NcclEstimate]:
    """Estimates the calls of which NCCL has a model, all sizes of a system and collective at once."""
    sizes: dict[tuple[System, str], set[int]] = defaultdict(set)
    for row in rows:
        sizes[row.system, row.collective].add(row.nbytes)
    machines = {system: machine(system) for system in {system for system, _ in sizes}}
    found: dict[Call, NcclEstimate] = {}
    for (system, collective), nbytes in sizes.items():
        one = machines[system]
        if one is None:
            continue
        try:
            answers = one.nccl(
                collective, nbytes, version=version(system.facts["nccl_version"]), settings=settings(system)
            )
        except InvalidArgument:
            continue
        found |= {(system.system_id, collective, answer.nbytes): answer for answer in answers}
    return found


def predictor(rows: Iterable[Row]) -> Callable[[Row], Prediction | None]:
    """Returns the predictor of these rows."""
    found = estimates(rows)

    def predict(row: Row) -> Prediction | None:
        answer = found.get((row.system.system_id, row.collective, row.nbytes))
        if answer is None or answer.is_last_resort:
            return None
        for way in answer.candidates:
            if row.algo in ("", way.algorithm) and row.proto in ("", way.protocol) and way.time_us:
                return Prediction(way.time_us)
        return None

    return predict
