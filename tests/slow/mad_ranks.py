"""Programs in which one rank is mad: it writes random bytes over the memory that ranks share."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import threading
import time
from dataclasses import dataclass, field

import numpy as np
from drawn import Guarded

import nvcoll

MAD = 1
LIMIT_S = 0.3
"""The timeout of a call."""

TARGETS = ("words", "bells", "staging", "symmetric memory")
CALLS = (
    ("all_reduce", "ring", "staged"),
    ("all_reduce", "tree", "pushed"),
    ("all_reduce", "nvswitch", None),
    ("broadcast", "chain", "pushed"),
    ("all_gather", "direct", "staged"),
    ("reduce", "tree", "staged"),
)


def mapped() -> dict[int, int]:
    """Returns where this process has mapped memory that ranks share and that it may write, with the bytes."""
    with open("/proc/self/maps") as maps:
        found = re.findall(r"(\w+)-(\w+) rw-s .*memfd:nvcoll", maps.read())
    return {int(start, 16): int(end, 16) - int(start, 16) for start, end in found}


def regions(target: str, of_world: dict[int, int]) -> dict[int, int]:
    """Returns the memory of a kind. `of_world` was mapped before there was symmetric memory."""
    if target == "symmetric memory":
        return {start: nbytes for start, nbytes in mapped().items() if start not in of_world}
    page, largest = os.sysconf("SC_PAGESIZE"), max(of_world.values())
    kinds = {page: "bells", largest: "staging"}
    return {start: nbytes for start, nbytes in of_world.items() if kinds.get(nbytes, "words") == target}


def scribble(memory: dict[int, int], rng: np.random.Generator, share: float) -> int:
    """Writes random bytes over a share of the pieces of some memory; returns the bytes written."""
    written = 0
    for start, nbytes in memory.items():
        piece = max(int(rng.choice([8, 64, 4096, 1 << 20])), nbytes >> 10)
        for at in range(0, nbytes, piece):
            if rng.random() < share:
                data = rng.bytes(min(piece, nbytes - at))
                if rng.random() < 0.5:
                    data = bytes(len(data)) if rng.random() < 0.5 else bytes(rng.integers(0, 12, len(data), "u1"))
                ctypes.memmove(start + at, data, len(data))
                written += len(data)
    return written


@dataclass
class Survived:
    """What a rank has seen beside a mad one."""

    outcomes: list[str] = field(default_factory=list)
    is_intact: bool = True
    longest_s: float = 0.0
    written: int = 0


def survive(comm: nvcoll.Communicator, target: str, seed: int, is_steady: bool) -> Survived:
    """Makes calls; the mad rank scribbles before them, or all the time."""
    rng, seen = np.random.default_rng(seed), Survived()
    guards = [Guarded(np.ones(3000, "f4"), 0, lambda nbytes: np.empty(nbytes, "u1")) for _ in CALLS]
    of_world = mapped()
    symmetric = comm.full(3000, 1.0, "f4")
    for x in (np.ones(3), symmetric):
        comm.all_reduce(x, timeout=10)
    comm.all_reduce(np.ones(3000), path="pushed", timeout=10)
    end = threading.Event()
    with contextlib.suppress(nvcoll.Error):  # the mad rank may be through, and mad
        comm.barrier(timeout=10)
    if comm.rank == MAD:
        own, memory = np.random.default_rng((seed, MAD)), regions(target, of_world)

        def be_mad() -> None:
            while not end.wait(0.001):
                seen.written += scribble(memory, own, 0.01)

        share = 1.0 if own.random() < 0.5 else 0.05
        while not seen.written:
            seen.written = scribble(memory, own, share)
        if is_steady:
            threading.Thread(target=be_mad, daemon=True).start()
    for guarded, at in zip(guards, rng.permutation(len(CALLS)), strict=True):
        collective, algorithm, path = CALLS[at]
        x = guarded.array if rng.random() < 0.7 else symmetric
        began = time.monotonic()
        try:
            getattr(comm, collective)(x, algorithm=algorithm, path=path, timeout=LIMIT_S)
            seen.outcomes.append("returned")
        except (nvcoll.Error, MemoryError, OSError) as error:
            seen.outcomes.append(f"{type(error).__name__}: {error}")
        seen.longest_s = max(seen.longest_s, time.monotonic() - began)
    end.set()
    seen.is_intact = all(guarded.is_intact() for guarded in guards)
    return seen
