"""Random programs of ranks in which some ranks make other calls than the rest. Every difference must be an error.

A draw has a program of one to five calls, and a variant of it that differs in one place; some ranks run the variant::

    call      op, dtype, count, table of counts, root, collective, path, in place or not, algorithm or its parameters or
              its steps
    program   two calls in another order, one call more, an early return
    group     not grouped, one call fewer or more, a single call instead, a difference inside

All ranks must get `Mismatch`: in the call that differs, or in the next one if a rank had returned from it. The message
must be the same on every rank, name two ranks that did differ, and name both calls in full.

Ranks are threads, or processes in a job of their own for each draw. The command has processes. It
runs as many draws as it is told, and fails if one of them goes wrong::

    python tests/slow/mismatching_programs.py 3000 [first seed]
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "lib"))
from rank_threads import ends_of

import nvcoll
from nvcoll.testing import Ranks

LIMIT_S = 60.0
"""The watchdog of a call."""

DTYPES = ("f4", "f8", "i4", "i8", "u1", "i2")
OPS = ("sum", "max", "min", "prod")
PATHS = ("staged", "pushed", None)
ALGORITHMS = {
    "all_reduce": [
        "ring",
        "tree",
        "two_shot",
        "two_level(per_node=2)",
        "two_level(per_node=4)",
        "mine0",
        "mine1",
        None,
    ],
    "reduce_scatter": ["direct", "ring", None],
    "all_gather": ["direct", "ring", "bruck", None],
    "broadcast": ["direct", "tree", "chain", None],
    "reduce": ["direct", "tree", "chain", None],
    "gather": ["direct", "tree", None],
    "scatter": ["direct", "tree", None],
    "all_to_all": ["direct", "pairwise", None],
    "scan": ["direct", "chain", None],
    "exscan": ["direct", None],
    "barrier": [None],
    "split": [None],
}
HAS_ROOT = {"broadcast", "reduce", "gather", "scatter"}
FOLDS = {"all_reduce", "reduce_scatter", "reduce", "scan", "exscan"}
OF_ONE_PART = {"all_reduce", "broadcast", "reduce", "scan", "exscan"}
BY_TABLE = {"reduce_scatter", "all_gather", "gather", "scatter"}
WITHOUT_DATA = {"barrier", "split"}

DIFFER = re.compile(r"^rank (\d+) called (.*), but rank (\d+) called (.*?)(: .*)?: every rank must make the same call")
RETURNED = re.compile(r"^(?:the program of )?rank (\d+) returned after \d+ calls?, but rank \d+ called .* as its next")


def written(is_mirrored: bool) -> nvcoll.Algorithm:
    """Returns one of two algorithms of one name, whose steps differ."""

    @nvcoll.algorithm("all_reduce")
    def mine(b):
        for c in b.chunks(b.world_size):
            home = b.world_size - 1 - c if is_mirrored else c
            total = b.fold([b.input(r, c) for r in range(b.world_size)], into=b.output(home, c))
            b.copy(total, into=[b.output(r, c) for r in range(b.world_size) if r != home])

    return mine


WRITTEN = {"mine0": written(False), "mine1": written(True)}


@dataclass(frozen=True)
class Drawn:
    """A call; `counts` is a table instead of `count`."""

    collective: str
    dtype: str
    count: int
    op: str
    root: int
    algorithm: str | None
    path: str | None
    has_out: bool
    counts: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Grouped:
    """Calls of a group, which is run twice if `again`; or the same calls one by one."""

    calls: tuple[Drawn, ...]
    again: bool = False
    is_group: bool = True


Item = Drawn | Grouped


@dataclass(frozen=True)
class Draw:
    """Two programs that differ at item `at`, and the ranks that run the second."""

    world_size: int
    kind: str
    base: tuple[Item, ...]
    variant: tuple[Item, ...]
    at: int
    odd: frozenset[int]
    is_jittery: bool


def drawn_call(rng: random.Random, world_size: int, collective: str | None = None) -> Drawn:
    name = collective or rng.choice(list(ALGORITHMS))
    algorithms = [one for one in ALGORITHMS[name] if world_size == 4 or not (one or "").startswith("two_level")]
    return Drawn(
        name,
        rng.choice(DTYPES),
        rng.choice((1, 2, 5, 16, 64, 257, 1000, 5000, 40000)),
        rng.choice(OPS),
        rng.randrange(world_size),
        rng.choice(algorithms),
        rng.choice(PATHS),
        rng.random() < 0.4,
    )


def drawn_group(rng: random.Random, world_size: int) -> Grouped:
    with_data = [name for name in ALGORITHMS if name not in WITHOUT_DATA]
    calls = [drawn_call(rng, world_size, rng.choice(with_data)) for _ in range(rng.randint(2, 6))]
    return Grouped(tuple(replace(one, count=min(one.count, 1000)) for one in calls), rng.random() < 0.4)


def says(call: Drawn) -> tuple:
    """Returns the parts in which calls must be alike."""
    name = call.collective
    data = None if name in WITHOUT_DATA else (call.dtype, call.counts or call.count, call.algorithm, call.path)
    form = call.has_out if name in ("all_reduce", "scan", "exscan") else None
    return name, data, call.op if name in FOLDS else None, call.root if name in HAS_ROOT else None, form


def varied(rng: random.Random, call: Drawn, world_size: int) -> tuple[str, Drawn]:
    """Returns a difference and the call with it."""
    name = call.collective
    kinds = ["collective"]
    kinds += ["dtype", "count", "path", "algorithm"] * (name not in WITHOUT_DATA)
    kinds += ["op"] * (name in FOLDS) + ["root"] * (name in HAS_ROOT) + ["counts"] * (name in BY_TABLE)
    kinds += ["in place"] * (name in ("all_reduce", "scan", "exscan"))
    kind, other = rng.choice(kinds), call
    while says(other) == says(call):
        one = drawn_call(rng, world_size, None if kind == "collective" else name)
        if kind == "counts":
            table = [call.count] * world_size
            first, second = rng.sample(range(world_size), 2)
            table[first], table[second] = table[first] + 1, table[second] - rng.choice((0, 1))
            other = replace(call, counts=tuple(table))
        elif kind == "in place":
            other = replace(call, has_out=not call.has_out)
        else:
            other = one if kind == "collective" else replace(call, **{kind: getattr(one, kind)})
    return kind, other


def draw(seed: int) -> Draw:
    rng = random.Random(seed)
    n = rng.choice((2, 2, 3, 4, 5))
    base: list[Item] = [
        drawn_group(rng, n) if rng.random() < 0.2 else drawn_call(rng, n) for _ in range(rng.randint(1, 5))
    ]
    at = rng.randrange(len(base))
    variant, item = list(base), base[at]
    what = rng.random()
    if what < 0.1:
        kind, variant = "early return", base[:at]
    elif what < 0.2 and len(base) > 1:
        kind, at = "order", rng.randrange(len(base) - 1)
        while said(base[at]) == said(base[at + 1]):
            base[at + 1] = drawn_call(rng, n)
        variant = list(base)
        variant[at], variant[at + 1] = base[at + 1], base[at]
    elif what < 0.27:
        kind, extra = "one call more", drawn_call(rng, n)
        at += 1
        follower = base[at] if at < len(base) else Drawn("barrier", "f4", 0, "sum", 0, None, None, False)
        while said(extra) == said(follower):
            extra = drawn_call(rng, n)
        variant.insert(at, extra)
    elif isinstance(item, Grouped):
        way = rng.choice(("not grouped", "one call fewer", "one call more", "a single call", "inside"))
        kind, calls = f"group: {way}", item.calls
        if way == "not grouped":
            variant[at] = replace(item, is_group=False, again=False)
        elif way == "a single call":
            variant[at] = drawn_call(rng, n)
        elif way == "inside":
            nth = rng.randrange(len(calls))
            other = Drawn("barrier", "f4", 0, "sum", 0, None, None, False)
            while other.collective in WITHOUT_DATA:
                _, other = varied(rng, calls[nth], n)
            variant[at] = replace(item, calls=(*calls[:nth], other, *calls[nth + 1 :]))
        else:
            fewer = way == "one call fewer"
            variant[at] = replace(item, calls=calls[:-1] if fewer else (*calls, drawn_call(rng, n, "all_reduce")))
    else:
        kind, variant[at] = varied(rng, item, n)
    odd = frozenset(rng.sample(range(n), rng.randint(1, n - 1)))
    return Draw(n, kind, tuple(base), tuple(variant), at, odd, rng.random() < 0.6)


def said(item: Item) -> tuple:
    return tuple(map(says, item.calls)) if isinstance(item, Grouped) else says(item)


def make(comm: nvcoll.Communicator, call: Drawn, is_symmetric: bool) -> None:
    """Makes a call; what it computes is checked elsewhere."""
    name, n = call.collective, comm.world_size
    if name == "barrier":
        return comm.barrier()
    if name == "split":
        return comm.split(comm.rank % 2, -comm.rank)
    options = {} if call.path is None else {"path": call.path}
    if call.algorithm is not None:
        options["algorithm"] = WRITTEN.get(call.algorithm, call.algorithm)
    if name in FOLDS:
        options["op"] = call.op
    if name in HAS_ROOT:
        options["root"] = call.root
    parts = 1 if name in OF_ONE_PART else n
    table = call.counts or (call.count,) * n
    whole = sum(table) if parts > 1 else call.count
    mine = table[comm.rank] if name in ("all_gather", "gather") else whole
    if call.counts is not None:
        options["counts"] = list(call.counts)
    allocate = comm.empty if is_symmetric else np.empty
    x = allocate(mine, call.dtype)
    x[...] = 1
    if call.has_out and name in ("all_reduce", "scan", "exscan"):
        options["out"] = np.zeros(whole, call.dtype)
    getattr(comm, name)(x, **options)


def carry_out(comm: nvcoll.Communicator, item: Item, is_symmetric: bool) -> None:
    if isinstance(item, Drawn):
        return make(comm, item, is_symmetric)
    if not item.is_group:
        for call in item.calls:
            make(comm, call, is_symmetric)
        return None
    with comm.group() as group:
        for call in item.calls:
            make(comm, call, is_symmetric)
    if item.again:
        group.run()
    return None


def run_program(comm: nvcoll.Communicator, seed: int) -> None:
    """Runs one rank's program. A note of what it raises says in which item."""
    this = draw(seed)
    rng = random.Random(f"{seed} {comm.rank}")
    is_symmetric = rng.random() < 0.3
    program = this.variant if comm.rank in this.odd else this.base
    returns = this.kind == "early return" and comm.rank in this.odd
    for at in range(len(program) + (not returns)):
        if this.is_jittery and rng.random() < 0.5:
            time.sleep(rng.choice((0, 0, 0.002)))
        try:
            # Whoever was through a call that others need not enter hears of it in the barrier at the end.
            comm.barrier() if at == len(program) else carry_out(comm, program[at], is_symmetric)
        except Exception as error:
            error.add_note(str(at))
            raise


def judge(this: Draw, told: list[BaseException | None]) -> str | None:
    """Returns what is wrong with the errors of ranks; None if everything is as it must be."""
    returned = {rank for rank in this.odd if this.kind == "early return"}
    errors = [error for rank, error in enumerate(told) if rank not in returned or error is not None]
    for error in errors:
        if not isinstance(error, nvcoll.Mismatch):
            return f"a rank got {error!r}"
        # Who is still in the call before, as its last rank, is told there.
        if not this.at - 1 <= int(error.__notes__[0]) <= this.at + 1:
            return f"a rank failed at item {error.__notes__[0]}, and the programs differ at item {this.at}"
    messages = set(map(str, errors))
    if len(messages) != 1:
        return f"ranks tell different things: {sorted(messages)}"
    (message,) = messages
    if "an algorithm of its own" in message:
        return f"a call is not named in full: {message}"
    if found := RETURNED.match(message):
        return None if int(found[1]) in returned else f"no such rank has returned: {message}"
    found = DIFFER.match(message)
    if not found:
        return f"it does not say the two calls: {message}"
    one, first, other, second, difference = found.groups()
    if (int(one) in this.odd) == (int(other) in this.odd):
        return f"ranks {one} and {other} ran the same program: {message}"
    if first == second and not difference:
        return f"two calls in the same words: {message}"
    return None


def on_processes(ranks: Ranks, this: Draw, seed: int) -> str | None:
    """Runs a draw; returns what went wrong."""
    outcomes = ranks.run(run_program, this.world_size, seed, timeout=2 * LIMIT_S, call_timeout=LIMIT_S)
    if outcomes.left or any(one.residue for one in outcomes):
        return f"something was left: {outcomes.left}, {[one.residue for one in outcomes]}"
    return judge(this, [one.error for one in outcomes])


def on_threads(this: Draw, seed: int) -> str | None:
    """Runs a draw; returns what went wrong."""
    seen, _ = ends_of(nvcoll.Node(this.world_size), partial(run_program, seed=seed))
    return judge(this, [seen.get(rank) for rank in range(this.world_size)])


def run(seeds: range, check: Callable[[Draw, int], str | None]) -> tuple[Counter[str], list[str]]:
    """Runs draws; returns how many there were of each kind, and what went wrong."""
    kinds: Counter[str] = Counter()
    wrong = []
    for seed in seeds:
        this = draw(seed)
        kinds[this.kind] += 1
        if (fault := check(this, seed)) is not None:
            wrong.append(f"seed {seed}, {this.kind}, {this.world_size} ranks, odd {sorted(this.odd)}: {fault}")
    return kinds, wrong


def main() -> None:
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    began = time.monotonic()
    with Ranks() as ranks:
        kinds, wrong = run(range(first, first + count), partial(on_processes, ranks))
    print(f"{count} programs in {time.monotonic() - began:.0f} s, {os.cpu_count()} CPUs")
    for kind, number in sorted(kinds.items()):
        print(f"{number:6}  {kind}")
    print(f"{len(wrong)} went wrong")
    for text in wrong[:50]:
        print(text)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
