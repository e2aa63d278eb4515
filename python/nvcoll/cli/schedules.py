"""``nvcoll verify`` and ``nvcoll show``: proofs and schedules on the terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import nvcoll
from nvcoll import InvalidArgument, Refuted, Schedule, algorithms, drawing
from nvcoll._nvcoll import algorithms as registry

Name = Annotated[str | None, typer.Argument(help="A collective, or FILE.py:FUNCTION.")]
AlgorithmName = Annotated[str | None, typer.Argument(help="An algorithm of that collective.")]
Ranks = Annotated[int, typer.Option("-n", "--ranks", help="The number of ranks.")]
PathName = Annotated[str, typer.Option("--path", help="mapped or staged.")]
OutOfPlace = Annotated[bool, typer.Option("--out-of-place", help="Input and output are different memory.")]

ALL_WORLD_SIZES = (*range(1, 18), 32, 64)


def _schedule(name: str | None, algorithm: str | None, ranks: int, path: str, in_place: bool) -> Schedule:
    if name is None:
        raise InvalidArgument("name a collective and an algorithm, or FILE.py:FUNCTION, or pass --all")
    if ":" in name:
        return algorithms.load(name).schedule(ranks, in_place).lower(path)
    return nvcoll.schedule(name, algorithm or "auto", world_size=ranks, path=path, in_place=in_place)


def _verify_all() -> None:
    start, proofs, slowest = time.perf_counter(), 0, 0.0
    for collective, algorithm, order, *_ in registry():
        count, began = 0, time.perf_counter()
        for world_size in ALL_WORLD_SIZES:
            for in_place in (False, True):
                for path in ("mapped", "staged"):
                    schedule = nvcoll.schedule(
                        collective, algorithm, world_size=world_size, path=path, in_place=in_place
                    )
                    proof = nvcoll.verify(schedule)
                    if order == "rank" and not proof.is_rank_order:
                        raise Refuted(f"{collective} {algorithm} claims rank order and has {proof.expression(0)}")
                    slowest = max(slowest, proof.seconds if world_size == 8 else 0.0)
                    count += 1
        proofs += count
        print(f"proved  {collective:15} {algorithm:10} {count:4} schedules   {time.perf_counter() - began:6.2f} s")
    print(f"proved  {proofs} schedules in {time.perf_counter() - start:.1f} s")
    print("        1..17, 32, 64 ranks; mapped and staged; in and out of place")
    print(f"        slowest proof at 8 ranks {slowest * 1e3:.2f} ms")


def verify(
    name: Name = None,
    algorithm: AlgorithmName = None,
    ranks: Ranks = 8,
    path: PathName = "mapped",
    out_of_place: OutOfPlace = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Every algorithm, path, aliasing; 1..17, 32, 64 ranks.")
    ] = False,
) -> None:
    """Proves that a schedule gives the promised result, without race or deadlock."""
    if everything:
        _verify_all()
        return
    schedule = _schedule(name, algorithm, ranks, path, not out_of_place)
    try:
        proof = nvcoll.verify(schedule)
    except Refuted as violation:
        print(f"refuted  {violation}")
        flags = f"-n {ranks} --path {path}" + (" --out-of-place" if out_of_place else "")
        print(f"show     nvcoll show {' '.join(filter(None, (name, algorithm)))} {flags}")
        raise typer.Exit(1) from None
    print(f"proved   {schedule!r} in {proof.seconds * 1e3:.2f} ms: {proof.steps} steps")
    if schedule.chunks:
        print(f"chunk 0  {proof.expression(0)}")
        print(f"order    {'rank: the left fold over ranks, for every element' if proof.is_rank_order else 'its own'}")


def show(
    name: Name = None,
    algorithm: AlgorithmName = None,
    ranks: Ranks = 4,
    path: Annotated[
        str | None, typer.Option("--path", help="mapped or staged; default: before and after lowering.")
    ] = None,
    out_of_place: OutOfPlace = False,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw it to this file.")] = None,
) -> None:
    """Prints a schedule, before and after lowering, with the derived dependencies."""
    for each in (path,) if path else ("mapped", "staged"):
        schedule = _schedule(name, algorithm, ranks, each, not out_of_place)
        moved, waits = schedule.cost()
        print(schedule, end="")
        print(f"# a rank moves {moved:.2f} N and waits {waits} times on the longest chain\n")
        if svg is not None:
            svg.write_text(drawing.svg(schedule))
            print(f"# drawn to {svg}")
            svg = None
