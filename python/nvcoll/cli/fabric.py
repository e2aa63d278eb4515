"""``nvcoll fabric``: the machines that are known, and of one: how its GPUs are joined, and what they reach.

Rates are decimal GB/s of one direction. *Alone* is a pair while nothing else moves, *at once* every pair while all
pairs send: on a switch they differ by the number of GPUs, on a mesh a pair may keep a link of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from nvcoll import machine_drawing
from nvcoll._nvcoll import Fabric, InvalidArgument, cluster, fabrics, networks, text_formats
from nvcoll._nvcoll import fabric as preset
from nvcoll.cli import plot
from nvcoll.cli.terminal import Output
from nvcoll.formatting import counted

MOST_PRINTED = 16
"""GPUs of which a matrix is printed. Chosen: what a wide terminal holds; the first of more are shown."""

_NEEDS_GPU = {one.ending: one.needs_gpu for one in text_formats()}
"""How names of files end, and whether such a file leaves the model of its GPUs open."""

_CLUSTER = re.compile(r"(?P<file>.+)x(?P<nodes>[0-9]+)\+(?P<network>[^+]+)", re.IGNORECASE)


def _split(name: str) -> tuple[str, int | None, str]:
    """Returns file, nodes and network of ``FILExNODES+NETWORK``; any other name comes back alone."""
    found = _CLUSTER.fullmatch(name)
    if found is not None and Path(found["file"]).suffix in _NEEDS_GPU:
        return found["file"], int(found["nodes"]), found["network"]
    return name, None, ""


def takes_gpu(name: str) -> bool:
    """Says whether a machine is named by a file that leaves the model of its GPUs open."""
    return _NEEDS_GPU.get(Path(_split(name)[0]).suffix, False)


def named(name: str, gpu: str | None = None) -> Fabric:
    """Returns the machine that a name, a file, ``NODExNODES+NETWORK`` or ``FILExNODES+NETWORK`` stands for.

    Args:
        name: of a preset, some GPUs of one (``hgx-h100[0-3]``), a cluster, or a file that ends in .toml, .txt or .xml.
        gpu: the model of the GPUs of a file that does not name it.

    Raises:
        InvalidArgument: it stands for none, or `gpu` is missing or not wanted.
        OSError: the file cannot be read.
    """
    file, nodes, network = _split(name)
    if gpu is not None and not takes_gpu(name):
        raise InvalidArgument(f"--gpu is for files of nvidia-smi and NCCL: {name} says itself which GPUs it has")
    if Path(file).suffix not in _NEEDS_GPU:
        return preset(name)
    one = Fabric.from_file(file, gpu=gpu)
    return one if nodes is None else cluster(one, nodes=nodes, network=network)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = ()) -> None:
    """Prints a table; columns are set right but those that are named in ``left``."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Output().print(table)


def _list() -> None:
    machines = [(one.name, str(one.world_size), one.title, one.trust) for one in fabrics()]
    print_table(("name", "GPUs", "what it is", "predictions"), machines, left=("name", "what it is", "predictions"))
    print(
        "predictions: of all_reduce, at the sizes of which most systems were measured; predict says it of every size\n"
    )
    rows = [(name, f"{gbps:g}", title) for name, title, gbps, _ in networks()]
    print_table(("network", "GB/s per node", "what it is"), rows, left=("network", "what it is"))
    print("\nnvcoll fabric hgx-h100   hgx-h100[0-3]   hgx-h100x4+ib-ndr-8   mine.toml   topo.txt --gpu h100-sxm")


def _gbps(rates: Sequence[Sequence[float]]) -> list[list[str]]:
    return [["-" if math.isnan(rate) else f"{rate:.3g}" for rate in row] for row in rates]


def _cuts(one: Fabric) -> Iterator[str]:
    """What leaves one GPU, half of them, a node."""
    n = one.world_size
    cuts = {"one GPU for the others": [0], "half of the GPUs for the other half": list(range((n + 1) // 2))}
    if one.nodes > 1:
        cuts["one node for the others"] = list(range(n // one.nodes))
    for what, ranks in cuts.items():
        if len(ranks) < n:
            yield f"{one.cut(ranks):8.4g}  leave {what}"


def _links(one: Fabric) -> Iterator[str]:
    """Each kind of link once: medium, lanes, rates, how many."""
    rows = sorted((medium, lanes, line, used) for _, _, medium, lanes, line, used in one.links)
    for (medium, lanes, line, used), same in groupby(rows):
        yield f"{len(list(same)) // 2:6} x {medium} x{lanes}: {line:.4g} at line rate, {used:.4g} in use"


def _show(one: Fabric) -> None:
    n, names = one.world_size, [name for name, kind, *_ in one.devices if kind == "gpu"]
    where = f" in {counted(one.nodes, 'node')}" if one.nodes > 1 else ""
    print(f"{one.name}   {one.title}   {counted(n, 'GPU')}{where}, {one.gpu}   {one.trust}")
    print(f"able to: {', '.join(ability.replace('_', ' ') for ability in one.abilities) or 'nothing but moving bytes'}")
    if n > MOST_PRINTED:
        print(f"the matrices show the first {MOST_PRINTED} GPUs")
    shown = slice(min(n, MOST_PRINTED))
    for heading, rows in (
        ("how they are joined, as nvidia-smi topo -m has it", one.matrix()),
        ("GB/s from row to column, alone", _gbps(one.alone())),
        ("GB/s from row to column, everybody at once", _gbps(one.at_once())),
    ):
        print(f"\n{heading}")
        print_table(
            ["", *names[shown]], [(name, *row[shown]) for name, row in zip(names[shown], rows[shown], strict=True)]
        )
    print("\nGB/s, one way")
    for line in [*_cuts(one), *_links(one)]:
        print(line)
    for source in one.sources:
        print(f"source  {source}")


def fabric(
    name: Annotated[
        str | None, typer.Argument(help="A machine, NODExNODES+NETWORK, or a file; without it, lists them.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="The GPUs of a file of nvidia-smi topo -m (.txt) or NCCL (.xml).")
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw the machine to this file.")] = None,
) -> None:
    """Prints how the GPUs of a machine are joined, what pairs reach alone and at once, and what crosses cuts."""
    if name is None:
        if svg is not None:
            raise InvalidArgument("--svg draws one machine: name it, as nvcoll fabric hgx-h100 --svg hgx-h100.svg")
        _list()
        return
    one = named(name, gpu)
    if svg is not None:
        plot.write_svg(svg, machine_drawing.svg(one), one.name)
    _show(one)
