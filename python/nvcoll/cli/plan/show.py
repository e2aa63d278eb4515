"""What ``nvcoll plan`` prints: one step, machines side by side, a sweep of layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nvcoll.text.formatting import counted, sized
from nvcoll.text.formatting import duration as seconds
from nvcoll.text.tables import print_labelled, print_table
from nvcoll.training.prediction import COMPUTING, FITS, PARTS, CollectivePrice, StepPrediction
from nvcoll.training.sweep import Candidate, Sweep

HIDES = {
    "nothing": "nothing",
    "tiles": "its product",
    "other_micro_batch": "another micro-batch",
    "attention": "attention",
    "other_layer": "another layer",
    "last_backward": "the last backward pass",
    "first_forward": "the first forward pass",
    "half": "half of the pipeline",
}

MOST = 12
"""The rows of a sweep and of collectives that are shown. Chosen."""

ALL = 0.995
"""The part of a collective's time from which on all of it is exposed, as far as three digits show. Chosen."""


def show_step(found: StepPrediction, tries: Sequence[Candidate], dollars: float | None) -> None:
    """Prints one step: time, memory, where the time goes, what to try."""
    print_labelled("", f"{found.step.name}, {found.machine.name}", label=0)
    if found.words:
        print_labelled("layout", found.words)
    rate = f"{found.tokens_per_second:,.0f} tokens/s per GPU, {100 * found.mfu:.1f} % MFU"
    print_labelled("step", f"{seconds(found.seconds)} (90 %: {seconds(found.low_s, found.high_s)}), {rate}")
    memory = f"{found.memory_gb:.0f} of {found.gpu_memory_gb:.0f} GiB on the fullest GPU: {FITS[found.fit]}"
    print_labelled("memory", memory)
    print_labelled("limit", found.limit)
    if dollars is not None:
        print_labelled("price", f"{found.dollars(dollars):,.0f} dollars for 10^12 tokens at {dollars:g} a GPU and hour")
    for reason in found.extrapolated:
        print_labelled("accuracy", f"extrapolated: {reason}; the interval is wider")
    print()
    show_parts(found)
    print()
    show_memory(found)
    if found.collectives:
        print()
        show_collectives(found)
    print()
    for nth, one in enumerate(tries[:3]):
        share = 100 * (1 - one.seconds / found.seconds)
        change = f"{share:.0f} % faster" if share > 0 else f"{-share:.0f} % slower"
        fit = f"{one.memory_gb:.0f} GiB, {FITS[one.fit]}"
        print_labelled("try" if nth == 0 else "", f"{one.words}: {seconds(one.seconds)}, {change}, {fit}")
    if not tries:
        fits = found.fit != "too_large"
        none = "is faster by 2 % or more and fits" if fits else "fits: pass --sweep, or more GPUs"
        print_labelled("try", f"no layout next to this one {none}")


def show_parts(found: StepPrediction) -> None:
    """Prints where the time goes."""
    rows = [
        (PARTS[name], seconds(time), f"{100 * time / found.seconds:.1f} %")
        for name, time in sorted(found.parts.items(), key=lambda part: -part[1])
        if time >= 5e-4 * found.seconds
    ]
    computing = sum(time for name, time in found.parts.items() if name in COMPUTING)
    rows.append(("the GPU computes", seconds(computing), f"{100 * computing / found.seconds:.1f} %"))
    print_table(("where the time goes", "time", "share"), rows, left=("where the time goes",))


def show_memory(found: StepPrediction) -> None:
    """Prints the memory of the fullest GPU."""
    fullest = max(found.roles, key=lambda role: role.memory_gb)
    rows = [(name, f"{nbytes / 2**30:.1f}") for name, nbytes in fullest.memory.items()]
    rows.append(("together", f"{fullest.memory_gb:.1f}"))
    head = f"memory of {'a GPU' if len(found.roles) == 1 else f'the {fullest.name}'}"
    print_table((head, "GiB"), rows, left=(head,))


def show_collectives(found: StepPrediction) -> None:
    """Prints the collectives, each kind once."""
    distinct = dict.fromkeys(
        (
            *(_place(one, found), one.name, one.ranks, f"{one.count:g}"),
            *(sized(round(one.bytes)), seconds(one.seconds), _hides(one)),
        )
        for one in found.collectives
    )
    rows = [*distinct][:MOST]
    heads = ("collectives of", "name", "ranks", "calls", "size", "one takes", "hides behind")
    print_table(
        heads,
        rows,
        left=("collectives of", "name", "ranks", "hides behind"),
        optional=("calls", "ranks", "hides behind"),
    )
    if len(distinct) > MOST:
        print_labelled("", f"({len(distinct) - MOST} more: --json has all)", label=0)


def _hides(one: CollectivePrice) -> str:
    """Says what a collective hides behind; of a recorded step, how much of its calls nothing hides."""
    if one.hides is not None:
        return HIDES[one.hides]
    exposed, together = one.exposed_s or 0.0, one.count * one.seconds
    if exposed >= ALL * together:
        return "nothing"
    return f"all but {seconds(exposed)}" if exposed else "all"


def _place(one: CollectivePrice, found: StepPrediction) -> str:
    """Says where a collective is; stages that all make the same one are one place."""
    same = [other for other in found.collectives if replace(other, of=one.of) == one]
    if one.pass_ == "once" and len(same) == len(found.roles) > 1:
        return "each stage, once"
    return one.of if one.of == one.pass_ else f"{one.of}, {one.pass_}"


def show_machines(found: Sequence[StepPrediction], dollars: Mapping[str, float]) -> None:
    """Prints machines side by side."""
    best = min(one.seconds for one in found)
    names = list(dict.fromkeys(one.step.name for one in found))
    print_labelled("", names[0] if len(names) == 1 else f"{names[0]}; other machines have more or fewer GPUs", label=0)
    if shown := list(dict.fromkeys(one.words for one in found if one.words)):
        print_labelled("layout", ", or ".join(shown))
    priced = ("$/10^12 tokens",) if dollars else ()
    heads = (*("machine", "step", "90 % interval", "tokens/s/GPU", "MFU", "waits", "GiB", "memory", "vs best"), *priced)
    rows = [
        (*_machine_row(one, best), *(f"{one.dollars(dollars[one.machine.name]):,.0f}" for _ in priced)) for one in found
    ]
    print_table(heads, rows, left=("machine", "memory"), optional=("waits", "tokens/s/GPU", "GiB", "90 % interval"))
    for one in found:
        print_labelled("limit", f"{one.machine.name}: {one.limit}")
    for one in found:
        for reason in one.extrapolated:
            print_labelled("accuracy", f"{one.machine.name}: extrapolated: {reason}; the interval is wider")


def _machine_row(one: StepPrediction, best: float) -> Iterator[str]:
    yield from (one.machine.name, seconds(one.seconds), seconds(one.low_s, one.high_s))
    yield from (f"{one.tokens_per_second:,.0f}", f"{100 * one.mfu:.0f} %", f"{100 * one.exposed_s / one.seconds:.0f} %")
    yield from (f"{one.memory_gb:.0f} of {one.gpu_memory_gb:.0f}", FITS[one.fit], f"{one.seconds / best:.2f}x")


SWEEP = ("GPUs", "layout", "micro-batch", "recompute", "step", "90 % interval", "tokens/s/GPU", "GiB", "memory")


def _show_candidates(some: Sequence[Candidate], dollars: float | None) -> None:
    rows = []
    for one in some:
        sizes, _, rest = one.words.partition("  micro-batch ")
        micro_batch, _, again = rest.partition("  recompute ")
        times = seconds(one.seconds), seconds(one.low_s, one.high_s), f"{one.tokens_per_second:,.0f}"
        layout = f"{one.gpus}", sizes.replace("  ", " "), micro_batch, again or "none"
        price = () if dollars is None else (f"{one.dollars(dollars):,.0f}",)
        rows.append((*layout, *times, f"{one.memory_gb:.0f}", FITS[one.fit], *price))
    of_one_size = len({one.gpus for one in some}) == 1
    optional = (SWEEP[6], SWEEP[5], *(SWEEP[:1] if of_one_size else ()))
    heads = SWEEP if dollars is None else (*SWEEP, "$/10^12 tokens")
    print_table(heads, rows, left=("layout", "recompute", "memory"), optional=optional)


def _of_each_size(some: Sequence[Candidate]) -> list[Candidate]:
    """Returns the first layouts of each number of GPUs, as many in all as are shown."""
    sizes = sorted({one.gpus for one in some})
    most = max(1, MOST // max(1, len(sizes)))
    return [one for size in sizes for one in [each for each in some if each.gpus == size][:most]]


def show_sweep(name: str, found: Sweep, dollars: float | None = None) -> None:
    """Prints the best layouts of each number of GPUs, and those that none beats in time, memory and GPUs."""
    fitting = [one for one in found.candidates if one.fit != "too_large"]
    many = counted(len(found.candidates), "layout")
    print_labelled("", f"{name}: {many} priced, {len(fitting)} fit or may fit", label=0)
    if not found.candidates:
        print_labelled(
            "", "no layout keeps the rules with what is given: leave one of tp, pp, vp, cp, ep open", label=0
        )
        return
    if not fitting:
        print_labelled("", "those that need the least memory:", label=0)
    best = found.candidates if fitting else sorted(found.candidates, key=lambda one: one.memory_gb)
    _show_candidates(_of_each_size(best), dollars)
    front = found.pareto
    if len(front) > 1:
        print()
        print_labelled("", "no other layout is better in time, memory and GPUs at once", label=0)
        _show_candidates(_of_each_size(front), dollars)
    for reason in best[0].extrapolated:
        print_labelled("accuracy", f"extrapolated: {reason}; the intervals are wider")
    for rule, count in list(found.refused.items())[:3]:
        print_labelled("refused", f"{counted(count, 'layout')}: {rule}")
