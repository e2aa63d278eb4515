"""``nvcoll bench --tune``: measures a small set of calls and fits the coefficients of ``auto``'s cost model to them.

For every call of the set, each candidate is timed in the same rounds; the lower quartile of its times, which others on
the machine disturb least, is one equation: what the model counts of it (`Node.estimates`) times the coefficients. They
are solved together by least squares of the relative errors, no coefficient being negative. The set has calls of two and
eight ranks from one KiB to 16 MiB.

The file (TOML) is read by ``nvcoll.Node(..., tuning=FILE)`` and by the environment variable ``NVCOLL_TUNING``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import typer

import nvcoll
from nvcoll._nvcoll import auto_candidates, collectives, cost_model, machine
from nvcoll.cli import sizes
from nvcoll.cli.bench.explain import estimates
from nvcoll.cli.bench.rounds import MODES, Call, measure
from nvcoll.cli.bench.timing import Spread
from nvcoll.text.formatting import counted

RANKS = (2, 8)
SIZES = ("1K", "4M", "64K", "1M", "4K", "16K", "256K", "16M")
"""The measured sizes. The most important come first, because a busy machine may not reach the last. Chosen: both sides
of every cache and of the size from which helpers help, in less than a minute."""

ROUNDS, ROUNDS_OF_LARGE, LARGE_BYTES = 9, 7, 4 << 20
"""The number of rounds, the number of rounds of large calls, and the size of a large call. Chosen."""

BUDGET_S = 50.0
"""The time after which no further call is measured. Chosen."""

NEAR_BYTES, FAR_BYTES = 1 << 20, 32 << 20
"""The sizes of caches, if the system does not show them. Chosen."""

SWEEPS = 20_000
"""The most passes of the solver over all coefficients. Chosen: far more than it needs."""


@dataclass
class Fit:
    """Equations of one mode, and their solution."""

    mode: str
    terms: list[list[float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)

    def solve(self) -> None:
        """Finds coefficients, in the units that their names say."""
        per_second = np.array([row.per_second for row in cost_model().coefficients])
        measured = np.array(self.seconds)
        equations = np.array(self.terms) / per_second / measured[:, None]
        self.coefficients = list(non_negative_least_squares(equations, np.ones(len(measured))))
        self.errors = np.abs(equations @ self.coefficients - 1.0)

    @property
    def words(self) -> str:
        """The accuracy of the fit."""
        middle, high = np.percentile(self.errors, (50, 90))
        return f"{len(self.seconds)} times, half of the estimates within {middle:.0%}, nine of ten within {high:.0%}"


def non_negative_least_squares(equations: Any, values: Any) -> Any:
    """Minimises ``|equations @ x - values|`` over x >= 0, by one coefficient after the other (coordinate descent)."""
    scale = np.linalg.norm(equations, axis=0)
    scale[scale == 0.0] = np.inf  # what no equation has a term of is 0
    scaled = equations / scale
    squares, products = scaled.T @ scaled, scaled.T @ values
    x = np.zeros(len(scale))
    for _ in range(SWEEPS):
        largest = 0.0
        for at in range(len(x)):
            if squares[at, at] > 0.0:
                moved = max(0.0, x[at] + (products[at] - squares[at] @ x) / squares[at, at]) - x[at]
                x[at] += moved
                largest = max(largest, abs(moved))
        if largest < 1e-9:
            break
    return x / scale


def _measure(table: Path, all_ranks: Sequence[int], all_sizes: Sequence[str], rounds: int) -> list[Fit]:
    """Measures every mode, and prints a line if the time is up. The table has the sizes of the caches."""
    began, skipped = time.monotonic(), 0
    fits = {mode: Fit(mode) for mode in MODES}
    for text in all_sizes:
        for ranks in all_ranks:
            node = nvcoll.Node(ranks, tuning=table)
            for collective in _with_a_choice():
                for mode, fit in fits.items():
                    if time.monotonic() > began + BUDGET_S:
                        skipped += 1
                        continue
                    call = Call(collective, sizes.parse(text) // 4, ranks)
                    _, _, candidates = estimates(node, mode, call)
                    names = [candidate.algorithm for candidate in candidates]
                    times = rounds if 4 * call.count < LARGE_BYTES else min(rounds, ROUNDS_OF_LARGE)
                    seconds = measure(node, mode, call, names, times)
                    fit.terms += [candidate.terms for candidate in candidates]
                    fit.seconds += [Spread.of(seconds[name]).low for name in names]
    if skipped:
        typer.echo(f"nvcoll: {BUDGET_S:.0f} s have passed: {counted(skipped, 'call')} were not measured", err=True)
    return list(fits.values())


def _with_a_choice() -> list[str]:
    """Returns the collectives for which auto has several candidates."""
    return [row.name for row in collectives() if len(auto_candidates(row.name)) > 1]


def _of_this_machine() -> dict[str, Any]:
    facts = machine()
    cpus = counted(facts["usable_cpus"], "CPU")
    return {
        "machine": f"{facts['cpu'] or 'unknown CPU'}, {cpus}, {facts['isa']}",
        "near_bytes": float(facts["l2_bytes"] or NEAR_BYTES),
        "far_bytes": float(facts["l3_bytes"] or FAR_BYTES),
    }


def table_text(table: dict[str, Any]) -> str:
    """Writes a table as TOML; ``table`` is like ``Node.tuning``."""
    quoted = str(table["machine"]).replace("\\", "\\\\").replace('"', '\\"')
    lines = [f'format = "{table["format"]}"', f'machine = "{quoted}"', "", "[caches]"]
    lines += [f"{name} = {table[name]:.0f}" for name in ("near_bytes", "far_bytes")]
    for mode in cost_model().modes:
        lines += ["", f"[{mode}]", *(f"{name} = {value:.6g}" for name, value in table[mode].items())]
    return "\n".join([*lines, ""])


def tune(
    ranks: int,
    file: Path | None,
    all_ranks: Sequence[int] = RANKS,
    all_sizes: Sequence[str] = SIZES,
    rounds: int = ROUNDS,
) -> None:
    """Fits coefficients, prints them, and writes a file if one is given."""
    if file is not None:
        file.touch()  # a file that cannot be written is found out before anything is measured
    table = nvcoll.Node(1).tuning | _of_this_machine()
    with tempfile.TemporaryDirectory() as folder:
        begun = Path(folder) / "tuning.toml"
        begun.write_text(table_text(table))
        fits = _measure(begun, all_ranks, all_sizes, rounds)
    for fit in fits:
        fit.solve()
        table[fit.mode] = dict(zip([row.name for row in cost_model().coefficients], fit.coefficients, strict=True))
        print(f"{fit.mode:6}  {fit.words}")
    text = table_text(table)
    print()
    print(text, end="")
    if file is None:
        return
    file.write_text(text)
    nvcoll.Node(ranks, tuning=file)  # the file is read back
    typer.echo(f"written to {file}: use it with NVCOLL_TUNING={file} or nvcoll.Node(..., tuning=FILE)", err=True)
