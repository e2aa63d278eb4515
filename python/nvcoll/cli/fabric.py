"""``nvcoll fabric``: the machines that are known, and the links and bandwidth of one.

Rates are decimal GB/s in one direction. *Alone*: one pair sends and nothing else moves. *At once*: all pairs send. On a
switch the two differ by the number of GPUs; on a mesh a pair may have a link of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from nvcoll._nvcoll import Fabric, InvalidArgument, fabrics, gpus, networks
from nvcoll.cli import formats, pictures
from nvcoll.cli.gathered import gathered
from nvcoll.cli.machines import Gpu, beginning, machines
from nvcoll.draw import machine_drawing
from nvcoll.text.formatting import counted
from nvcoll.text.tables import print_labelled, print_table

MOST_PRINTED = 16
"""The most GPUs in a printed matrix. Chosen: a wide terminal holds them; of a larger machine the first are shown."""


LINK = ("source", "target", "medium", "lanes", "line_gbps", "used_gbps")
"""The columns of links."""


def _row(one: Fabric) -> dict[str, Any]:
    """Returns a machine of the list, for JSON and CSV."""
    size = {"world_size": one.world_size, "nodes": one.nodes, "gpu": one.gpu}
    return {"machine": one.name, "description": one.title, **size, "trust": one.trust}


def _details(one: Fabric) -> dict[str, Any]:
    """Returns what is printed of a named machine; matrices have at least the first GPUs that the text shows."""
    first = max(MOST_PRINTED, 2 * one.world_size // one.nodes)
    try:
        at_once: list[list[float | None]] | None = _known(one.at_once(first=first))
    except InvalidArgument:
        at_once = None
    return {
        "abilities": list(one.abilities),
        "connections": [list(row) for row in one.matrix(first=first)],
        "alone_gbps": _known(one.alone(first=first)),
        "at_once_gbps": at_once,
        "links": _rows_of_links(one),
        "sources": list(one.sources),
    }


def _rows_of_links(one: Fabric) -> list[dict[str, str | int | float]]:
    return [dict(zip(LINK, link, strict=True)) for link in one.links]


def _known(rates: Sequence[Sequence[float]]) -> list[list[float | None]]:
    return [[None if math.isnan(rate) else rate for rate in row] for row in rates]


def _list(printed: formats.Printed) -> None:
    if printed.as_csv:
        return formats.print_csv([_row(one) for one in fabrics()])
    if printed.as_json:
        known = [{"network": row.name, "gbps": row.gbps, "description": row.title} for row in networks()]
        return formats.print_json("fabric", {"machines": [_row(one) for one in fabrics()], "networks": known})
    machines = [(one.name, str(one.world_size), one.title, one.trust) for one in fabrics()]
    print_table(
        ("name", "GPUs", "description", "accuracy"),
        machines,
        left=("name", "description", "accuracy"),
        optional=("accuracy",),
    )
    print_labelled(
        "accuracy",
        "of all_reduce, at the sizes with most measurements; nvcoll fabric NAME and nvcoll predict say it too",
    )
    print()
    rows = [(row.name, f"{row.gbps:g}", row.title) for row in networks()]
    print_table(("network", "GB/s per node", "description"), rows, left=("network", "description"))
    print()
    print_labelled("gpus", f"known, for --gpu and with gpu: {', '.join(one.name for one in gpus())}")
    print_labelled("try", "nvcoll fabric hgx-h100   hgx-h100[0-3]   hgx-h100x4+ib-ndr-8   mine.toml")
    print_labelled("", "nvcoll fabric topo.txt --gpu h100-sxm")


def _gbps(rates: Sequence[Sequence[float]]) -> list[list[str]]:
    return [["-" if math.isnan(rate) else f"{rate:.3g}" for rate in row] for row in rates]


def _equal(cells: Sequence[Sequence[str]]) -> str | None:
    """Returns the one value of all pairs of GPUs; None if they differ, or if there is no pair."""
    values = {cell for nth, row in enumerate(cells) for at, cell in enumerate(row) if at != nth}
    return values.pop() if len(values) == 1 else None


def _cuts(one: Fabric) -> Iterator[str]:
    """Yields what one GPU, half of the GPUs and one node can send to the others together."""
    n = one.world_size
    cuts = {"one GPU for the others": [0], "half of the GPUs for the other half": list(range((n + 1) // 2))}
    if one.nodes > 1:
        cuts["one node for the others"] = list(range(n // one.nodes))
    for what, ranks in cuts.items():
        if len(ranks) < n:
            yield f"{one.cut(ranks):8.4g}  leave {what}"


def _links(one: Fabric) -> Iterator[str]:
    """Yields each kind of link once: the number of links, medium, lanes, rates."""
    rows = sorted((medium, lanes, line, used) for _, _, medium, lanes, line, used in one.links)
    for (medium, lanes, line, used), same in groupby(rows):
        yield f"{len(list(same)) // 2:6} x {medium} x{lanes}: {line:.4g} at line rate, {used:.4g} in use"


def _show(one: Fabric) -> None:
    n, names = one.world_size, [name for name, kind, *_ in one.devices if kind == "gpu"]
    where = f" in {counted(one.nodes, 'node')}" if one.nodes > 1 else ""
    title = f"{one.name}   {one.title}   {counted(n, 'GPU')}{where}, {one.gpu}   {one.trust}"
    print_labelled("", title, label=0)
    able = ", ".join(ability.replace("_", " ") for ability in one.abilities) or "none"
    print_labelled("", f"abilities: {able}", label=0)
    # Nodes of a cluster are equal: two of them have every kind of pair.
    first = max(MOST_PRINTED, 2 * n // one.nodes)
    tables: list[tuple[str, Sequence[Sequence[str]], str]] = [
        ("connections, as nvidia-smi topo -m prints them", one.matrix(first=first), ""),
        ("from row to column, one pair at a time, GB/s", _gbps(one.alone(first=first)), " GB/s"),
    ]
    try:
        tables.append(("from row to column, all pairs at once, GB/s", _gbps(one.at_once(first=first)), " GB/s"))
    except InvalidArgument as error:
        # The network is too large and uneven for it; all else is known.
        print_labelled("note", str(error))
    of_pairs = [(heading, value + unit) for heading, cells, unit in tables if (value := _equal(cells)) is not None]
    print()
    for heading, value in of_pairs:
        what = heading.removesuffix(", GB/s").removeprefix("from row to column, ")
        print_labelled("", f"all pairs {value}   {what}", label=0)
    others = [(heading, cells) for heading, cells, _ in tables if _equal(cells) is None]
    if n > MOST_PRINTED and others:
        print_labelled("note", f"the matrices show the first {MOST_PRINTED} of {n} GPUs")
    shown = slice(min(n, MOST_PRINTED))
    for heading, cells in others if n > 1 else []:
        print(f"\n{heading}")
        rows = [(name, *row[shown]) for name, row in zip(names[shown], cells[shown], strict=True)]
        print_table(["", *names[shown]], rows)
    print("\nGB/s, one way")
    for line in [*_cuts(one), *_links(one)]:
        print(line)
    for source in one.sources:
        print_labelled("source", source)


@gathered
def fabric(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Machines: NAME, NAMExNODES+NETWORK, 8xGPU, FILE. Default: list all.",
            autocompletion=beginning,
        ),
    ] = None,
    gpu: Gpu = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw the machine to this file.")] = None,
    *,
    printed: formats.Printed,
) -> None:
    """Prints the links and bandwidths of a machine. Without a name, lists all machines.

    Example: nvcoll fabric hgx-h100x4+ib-ndr-8 --svg cluster.svg
    """
    if name is None:
        if svg is not None:
            raise InvalidArgument("--svg draws one machine: name it, as nvcoll fabric hgx-h100 --svg hgx-h100.svg")
        _list(printed)
        return
    found = machines([name], gpu)
    if svg is not None and len(found) > 1:
        raise InvalidArgument(f"--svg draws one machine, and there are {len(found)}: pass one")
    if svg is not None:
        one = found[0]
        drawn = machine_drawing.svg(one)
        pictures.write_svg(svg, drawn, one.name)
        if (width := pictures.width_of(drawn)) > pictures.MOST_PIXELS:
            typer.echo(f"nvcoll: the drawing is {width} pixels wide, more than a screen can show", err=True)
    if printed.as_csv:
        formats.print_csv([{"machine": one.name} | link for one in found for link in _rows_of_links(one)])
        return
    if printed.as_json:
        formats.print_json("fabric", {"machines": [_row(one) | _details(one) for one in found], "networks": []})
        return
    for nth, one in enumerate(found):
        if nth:
            print()
        _show(one)
