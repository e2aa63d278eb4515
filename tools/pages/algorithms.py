"""Writes docs/write/algorithms.md from the registry: ``tools/pages/algorithms.py > docs/write/algorithms.md``."""

from __future__ import annotations

from collections.abc import Sequence

from nvcoll._nvcoll import AlgorithmRow, collectives
from nvcoll.cli.algorithms import costs_of, rows_of

RANKS = 8
"""The world size of the page. Chosen: a node."""

PAGE = """\
# Algorithms

This page lists nvcoll's algorithms for each collective. Pass a name as `algorithm=`. Without it, nvcoll chooses by
[estimates](../maintainers/architecture.md#how-auto-chooses); the first algorithm of a table is the default.

| column | meaning |
|---|---|
| order | [order of the additions](../run/reproducibility.md#three-orders) |
| bytes | bytes that the busiest rank reads and writes, divided by the bytes of its longer buffer |
| waits | waits for other ranks in the longest chain of steps |

Bytes and waits are for 8 ranks, out of place, on mapped memory. `nvcoll algorithms COLLECTIVE -n RANKS` prints
them for other calls.

{sections}
"""


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _section(collective: str, summary: str, chosen: Sequence[AlgorithmRow]) -> str:
    reduces = any(row.order != "none" for row in chosen)
    rows = []
    for row in chosen:
        cost = costs_of(row, RANKS)["mapped", False]
        moved = "-" if cost.busiest is None else f"{cost.busiest:.2f}"
        order = (row.order,) if reduces else ()
        rows.append(_row(f"`{row.name}`", *order, moved, str(cost.waits), f"{row.summary} ({row.source})"))
    heads = ("algorithm", *(("order",) if reduces else ()), "bytes", "waits", "idea (source)")
    ruled = _row(*heads) + "\n" + "|---" * len(heads) + "|"
    return "\n".join([f"## {collective}\n", f"{summary[0].upper()}{summary[1:]}.\n", ruled, *rows])


def page() -> str:
    """Writes ``docs/write/algorithms.md``."""
    sections = [_section(row.name, row.summary, rows_of(row.name)) for row in collectives()]
    return PAGE.format(sections="\n\n".join(sections))


if __name__ == "__main__":
    print(page(), end="")
