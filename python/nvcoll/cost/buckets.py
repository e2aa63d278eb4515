"""Hints on buckets: are the calls of a training step too small or too large for a machine?

DDP reduces gradients in buckets. FSDP gathers and reduces the parameters of one wrapped module at a time. This file
calls both buckets. Each small bucket costs a latency. Large buckets start late, so they overlap less with compute. For
the calls of one kind in a training step::

    best      the smallest bucket, a power of two, that takes at most 1.25 x the time of one call with all bytes
    small     the step takes 1.5 x as long as it would with `best`
    large     the buckets are 8 x `best`, and there are at most 4

Source: ours. The factors are chosen. The hints ignore the time of compute and its overlap with calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nvcoll.text.formatting import sized

if TYPE_CHECKING:
    from nvcoll.cost.price import PricedCalls, Pricer

BUCKETED = ("all_reduce", "reduce_scatter", "all_gather")
"""The collectives of DDP and FSDP."""

SMALLEST, LARGEST = 64 << 10, 1 << 30
"""The buckets that are tried, in bytes. Chosen."""

TOLERANCE, TOO_SMALL, TOO_LARGE, FEW = 1.25, 1.5, 8, 4


def bucket_hints(pricer: Pricer, rows: Sequence[PricedCalls], at: int, steps: int) -> Iterator[str]:
    """Yields a sentence for each kind of call whose buckets do not suit the machine.

    Args:
        pricer: the machine.
        rows: the calls of a report.
        at: the place of the machine in the prices of a row.
        steps: the number of steps.
    """
    kinds: defaultdict[tuple[object, ...], list[PricedCalls]] = defaultdict(list)
    for row in rows:
        if row.collective in BUCKETED and row.in_steps >= steps and row.prices[at].way == "predicted":
            kinds[row.collective, row.ranks, row.dtype].append(row)
    for of_kind in kinds.values():
        yield from _hint(pricer, of_kind, at, steps)


def _hint(pricer: Pricer, rows: Sequence[PricedCalls], at: int, steps: int) -> Iterator[str]:
    nbytes = sum(row.in_steps * row.nbytes for row in rows) / steps
    calls = sum(row.in_steps for row in rows) / steps
    now_us = sum(row.in_steps * (row.prices[at].time_us or 0.0) for row in rows) / steps
    best, best_us = _best(pricer, rows[0], nbytes)
    what = f"{rows[0].collective} of {sized(round(nbytes / calls))} on average, {calls:.3g} a step"
    if nbytes < SMALLEST:
        return
    if calls > 1 and now_us > TOO_SMALL * best_us:
        yield (
            f"{what}: too small, {now_us:,.0f} us a step; buckets of {sized(best)} would take {best_us:,.0f} us "
            f"({_advice(rows[0], best)})"
        )
    elif calls <= FEW and nbytes / calls >= TOO_LARGE * best:
        yield (
            f"{what}: larger than needed, so calls start late; buckets of {sized(best)} take {best_us:,.0f} us a step, "
            f"now {now_us:,.0f} us, and overlap more with compute ({_advice(rows[0], best)})"
        )


def _best(pricer: Pricer, row: PricedCalls, nbytes: float) -> tuple[int, float]:
    """Returns the smallest bucket that is nearly as good as one call with all bytes, and the time of a step with it."""
    sizes = []
    size = SMALLEST
    while size < min(nbytes, LARGEST):
        sizes.append(size)
        size *= 2
    among = pricer.fabric.among(row.ranks)
    found = pricer.predict(among, row.collective, [*sizes, max(1, round(nbytes))])
    times = [one.time_us for one in found]
    for size, time_us in zip(sizes, times, strict=False):
        step_us = nbytes / size * time_us
        if step_us <= TOLERANCE * times[-1]:
            return size, step_us
    return round(nbytes), times[-1]


def _advice(row: PricedCalls, nbytes: int) -> str:
    """Returns the setting of DDP or of FSDP that makes buckets of this size."""
    if row.collective == "all_reduce":
        return f"DDP: bucket_cap_mb={nbytes / (1 << 20):g}"
    return "FSDP: wrap modules whose parameters together have this size"
