"""Is every algorithm right? Proves all of them, for every root, path and aliasing, at many world sizes.

python tools/verify_all.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import product

import nvcoll
from nvcoll._nvcoll import algorithms as registry
from nvcoll._nvcoll import collectives
from nvcoll.text.formatting import shortened

ALL_WORLD_SIZES = range(1, 18)

LARGE_WORLD_SIZES = (32, 64)
"""Further world sizes of collectives without a root: with one, there would be a schedule for each rank."""

LARGEST_PUSHED = 8
"""The largest world size at which every algorithm is also proved pushed. Chosen."""


def proofs(collective: str, algorithm: str, order: str, world_size: int) -> Iterator[nvcoll.Proof]:
    """Proves an algorithm for every root, path and aliasing, and that its order is the one it claims."""
    paths = ("mapped", "staged", *(["pushed"] if world_size <= LARGEST_PUSHED else []))
    contract = next(row for row in collectives() if row.name == collective)
    has_root, can_be_in_place = contract.has_root, contract.can_be_in_place
    roots = range(world_size) if has_root else range(1)
    for root, in_place, path in product(roots, (True, False)[not can_be_in_place :], paths):
        schedule = nvcoll.schedule(
            collective, algorithm, world_size=world_size, root=root, path=path, in_place=in_place
        )
        try:
            proof = nvcoll.verify(schedule)
        except nvcoll.Refuted as violation:
            sys.exit(f"{schedule!r} is refuted: {violation}")
        if order == "rank" and not proof.is_rank_order:
            sys.exit(f"{schedule!r} claims rank order and has {shortened(proof.expression(0))}")
        yield proof


def main() -> None:
    start, total, slowest = time.perf_counter(), 0, 0.0
    for contract in registry():
        collective, algorithm, order = contract.collective, contract.name, contract.order
        count, began = 0, time.perf_counter()
        has_root = any(row.has_root for row in collectives() if row.name == collective)
        for world_size in (*ALL_WORLD_SIZES, *(() if has_root else LARGE_WORLD_SIZES)):
            for proof in proofs(collective, algorithm, order, world_size):
                count += 1
                slowest = max(slowest, proof.seconds if world_size == 8 else 0.0)
        total += count
        print(f"proved  {collective:15} {algorithm:33} {count:5} schedules   {time.perf_counter() - began:6.2f} s")
    print(f"proved  {total} schedules in {time.perf_counter() - start:.1f} s")
    print("        1..17 ranks, every root; 32, 64 where there is none; mapped and staged; in and out of place")
    print(f"        1..{LARGEST_PUSHED} ranks pushed as well")
    print(f"        slowest proof at 8 ranks {slowest * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
