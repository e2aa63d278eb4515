"""``nvcoll predict``: what NCCL would choose on machines that nobody has to own, its own estimate, and the floor.

Two answers, kept apart. *NCCL's own estimate* is that of its public cost model, by which it chooses: it knows no cost
of a launch and no filling of a pipeline, and is known to be off (``nvcoll_fabric::nccl``). The *floor* is the time that
no schedule undercuts. What the call would take is neither, and is not printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from nvcoll._nvcoll import Fabric, InvalidArgument, NcclEstimate
from nvcoll.cli import sizes
from nvcoll.cli.fabric import IMPORTERS, named, print_table

DEFAULT_SIZE = "1M"


@dataclass(frozen=True)
class Prediction:
    """A call of one size on one machine; the fields that are None have no answer. Microseconds, decimal GB/s."""

    fabric: str
    nbytes: int
    floor_us: float
    nccl_tag: str | None = None
    nccl_algorithm: str | None = None
    nccl_protocol: str | None = None
    nccl_channels: int | None = None
    nccl_estimate_us: float | None = None
    nccl_algbw: float | None = None
    nccl_busbw: float | None = None
    nccl_is_last_resort: bool = False
    why_no_estimate: str | None = None

    @classmethod
    def of(cls, one: Fabric, collective: str, nbytes: int, answer: NcclEstimate | str) -> Prediction:
        """Makes a prediction from NCCL's answer, or from why there is none."""
        floor = one.floor(collective, nbytes)
        if isinstance(answer, str):
            return cls(one.name, nbytes, floor, why_no_estimate=answer)
        way = answer.chosen
        return cls(
            fabric=one.name,
            nbytes=nbytes,
            floor_us=floor,
            nccl_tag=answer.tag,
            nccl_algorithm=way.algorithm,
            nccl_protocol=way.protocol,
            nccl_channels=way.channels,
            nccl_estimate_us=way.microseconds,
            nccl_algbw=way.algbw,
            nccl_busbw=way.busbw,
            nccl_is_last_resort=answer.is_last_resort,
        )

    @property
    def times_floor(self) -> float | None:
        """How many times the floor NCCL's estimate is."""
        return self.nccl_estimate_us / self.floor_us if self.nccl_estimate_us is not None and self.floor_us else None


def machines(text: str, gpu: str | None) -> list[Fabric]:
    """Returns the machines of a list with commas; those in brackets belong to a name. ``gpu`` is for files."""
    names = [name for name in re.split(r",(?![^\[]*\])", text) if name]
    if not names:
        raise InvalidArgument("--on names no machine: pass one, as --on hgx-h100; nvcoll fabric lists them")
    if gpu is not None and not any(Path(name).suffix in IMPORTERS for name in names):
        raise InvalidArgument("--gpu is for files of nvidia-smi and NCCL: --on names none")
    return [named(name, gpu if Path(name).suffix in IMPORTERS else None) for name in names]


def predictions(
    collective: str, on: Sequence[Fabric], nbytes: Sequence[int], version: str | None
) -> list[list[Prediction]]:
    """Predicts every size on every machine, in their order.

    Raises:
        InvalidArgument: NCCL's model has an answer for none of the machines.
    """
    found: list[list[Prediction]] = []
    refused = []
    for one in on:
        answers: Sequence[NcclEstimate | str]
        try:
            answers = one.nccl(collective, nbytes, version=version)
        except InvalidArgument as error:
            refused.append(error)
            answers = [str(error)] * len(nbytes)
        pairs = zip(nbytes, answers, strict=True)
        found.append([Prediction.of(one, collective, size, answer) for size, answer in pairs])
    if len(refused) == len(on):
        raise refused[0]
    return found


def _cells(row: Prediction) -> Sequence[str]:
    """Writes a prediction as a line of the table."""
    floor = f"{row.floor_us:.4g}"
    if row.nccl_estimate_us is None:
        return sizes.show(row.nbytes), "-", "-", "-", "-", floor, "-"
    way = f"{row.nccl_algorithm} {row.nccl_protocol} x{row.nccl_channels}"
    busbw = "-" if row.nccl_busbw is None else f"{row.nccl_busbw:.4g}"
    times = "-" if row.times_floor is None else f"{row.times_floor:.2f}"
    return sizes.show(row.nbytes), way, f"{row.nccl_estimate_us:.4g}", busbw, row.nccl_tag or "-", floor, times


def _show(collective: str, one: Fabric, rows: Sequence[Prediction]) -> None:
    print(f"{one.name}   {one.title}   {collective}   {one.trust}")
    way = "NCCL would take"
    headings = ("size", way, "NCCL's own estimate us", "busbw GB/s", "NCCL", "floor us", "x floor")
    print_table(headings, map(_cells, rows), left=(way,))
    if rows[0].why_no_estimate:
        print(f"no estimate: {rows[0].why_no_estimate}")
    if rows[0].nccl_is_last_resort:
        print("NCCL finds no ring here and would run one channel as a last resort: its estimate is not to be believed")
    print()


def predict(
    collective: Annotated[str, typer.Argument(help="A collective, as all_reduce.")],
    begin: Annotated[
        str, typer.Option("-b", "--minbytes", help="Bytes as nccl-tests counts them: 64K.")
    ] = DEFAULT_SIZE,
    end: Annotated[str | None, typer.Option("-e", "--maxbytes", help="The last size of a sweep.")] = None,
    factor: Annotated[
        float | None, typer.Option("-f", "--stepfactor", help="Each size is so many times the last.")
    ] = None,
    on: Annotated[
        str, typer.Option(help="Machines with commas between: names, NODExNODES+NETWORK, files.")
    ] = "hgx-h100",
    gpu: Annotated[str | None, typer.Option(help="The GPUs of files of nvidia-smi (.txt) or NCCL (.xml).")] = None,
    nccl: Annotated[str | None, typer.Option(help="Version of NCCL, as 2.27.7; the newest known without it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prints what NCCL would choose on a machine, NCCL's own estimate, and the floor; not what it would take."""
    first = sizes.parse(begin)
    nbytes = list(sizes.sweep(first, sizes.parse(end) if end else first, factor, None))
    on_these = machines(on, gpu)
    found = predictions(collective, on_these, nbytes, nccl)
    if as_json:
        rows = [
            {**asdict(row), "times_floor": row.times_floor, "trust": one.trust}
            for one, of_one in zip(on_these, found, strict=True)
            for row in of_one
        ]
        print(json.dumps({"collective": collective, "predictions": rows}, indent=2))
        return
    for one, of_one in zip(on_these, found, strict=True):
        _show(collective, one, of_one)
    print("NCCL's own estimate is what it chooses by, not what the call would take: launches and pipelines cost more")
    print("floor: no schedule is faster")
