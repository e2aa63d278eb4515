"""``nvcoll verify`` and ``nvcoll show``: proofs and schedules on the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import nvcoll
from nvcoll import InvalidArgument, Proof, Refuted, Schedule
from nvcoll._nvcoll import MAX_RUNNING_RANKS, MAX_WORLD_SIZE, collectives, why
from nvcoll.cli import completion, files, formats, hints, pictures
from nvcoll.draw import drawing
from nvcoll.text.formatting import EXPRESSIONS, counted, shortened


def _ranks(help: str, most: int = MAX_WORLD_SIZE) -> Any:
    def checked(ranks: int | None) -> int | None:
        if ranks is not None and not 1 <= ranks <= most:
            raise InvalidArgument(f"-n is {ranks}: there can be 1 to {most} ranks")
        return ranks

    return typer.Option("-n", "--world-size", help=help, callback=checked)


Name = Annotated[
    str | None,
    typer.Argument(
        help="A collective, FILE.py:FUNCTION, or a text of nvcoll show.",
        callback=hints.collective_name,
        autocompletion=completion.collectives,
    ),
]
AlgorithmName = Annotated[
    str | None,
    typer.Argument(help="An algorithm; default: the first of nvcoll algorithms.", autocompletion=completion.algorithms),
]
Ranks = Annotated[int, _ranks("The number of ranks.", MAX_RUNNING_RANKS)]
Processes = Annotated[int | None, _ranks("Start the script as this many processes, each a rank.", MAX_RUNNING_RANKS)]
OutOfPlace = Annotated[bool, typer.Option("--out-of-place", help="Input and output have separate memory.")]
Root = Annotated[int | None, typer.Option("--root", help="The root, if there is one; default: 0.")]


@dataclass
class Form:
    """The options that choose among an algorithm's schedules; None where the user gave none."""

    ranks: int | None
    path: str | None
    out_of_place: bool
    root: int | None

    def check_unsaid(self, what: str) -> None:
        """Refuses options that would be ignored.

        Raises:
            InvalidArgument: an option is given.
        """
        if self.ranks is not None or self.path is not None or self.out_of_place or self.root is not None:
            raise InvalidArgument(f"{what}: leave out -n, --path, --out-of-place and --root")


def _schedule(name: str | None, algorithm: str | None, form: Form, ranks: int) -> Schedule:
    """Returns the schedule that is meant, of ``ranks`` ranks and mapped, if the user did not say another."""
    if name is None:
        raise InvalidArgument(
            f"name a collective ({', '.join(row.name for row in collectives())}), or FILE.py:FUNCTION"
        )
    if not files.is_spec(name) and name not in (known := [row.name for row in collectives()]):
        raise InvalidArgument(hints.of_collective(name, known))
    if algorithm is not None and (files.is_spec(name) or files.is_spec(algorithm)):
        whole, other = (name, algorithm) if files.is_spec(name) else (algorithm, name)
        raise InvalidArgument(f"`{whole}` is a whole algorithm: leave out `{other}`")
    if files.is_text(name):
        form.check_unsaid(f"`{name}` is one schedule")
        return files.read(name)
    ranks, path = form.ranks or ranks, form.path or "mapped"
    in_place = False if form.out_of_place else None  # else in place where the collective can be
    if files.is_spec(name):
        return files.schedule_of(name, files.algorithm(name), ranks, in_place, form.root or 0).lower(path)
    chosen = algorithm or "auto"
    return nvcoll.schedule(name, chosen, world_size=ranks, root=form.root, path=path, in_place=in_place)


def _title(schedule: Schedule) -> str:
    ranks, place = counted(schedule.world_size, "rank"), "in place" if schedule.in_place else "out of place"
    root = f", root {schedule.root}" if schedule.root else ""
    return f"{schedule.collective} {schedule.algorithm}, {ranks}{root}, {schedule.path}, {place}"


def _command(name: str | None, algorithm: str | None, schedule: Schedule) -> str:
    """Returns the command that shows a schedule; a text file is what it is."""
    words = ["nvcoll", "show", *filter(None, (name, algorithm))]
    if name is not None and not files.is_text(name):
        words += ["-n", str(schedule.world_size), "--path", schedule.path]
        words += [] if schedule.in_place else ["--out-of-place"]
        words += ["--root", str(schedule.root)] if schedule.root else []
    return shlex.join(words)


def _lines_of(schedule: Schedule, places: Sequence[str]) -> Iterator[str]:
    """Yields the lines of the text form that describe steps and leaves."""
    lines = str(schedule).splitlines()
    for place in places:
        yield from (" ".join(line.split()) for line in lines if line == place or line.startswith(f"{place} "))


def _facts(schedule: Schedule) -> dict[str, Any]:
    """Returns which schedule it is, for JSON."""
    facts = {"collective": schedule.collective, "algorithm": schedule.algorithm, "world_size": schedule.world_size}
    place = {"root": schedule.root, "path": schedule.path, "in_place": schedule.in_place}
    return facts | place | {"steps": schedule.step_count}


def _refutation(violation: Refuted, command: str) -> dict[str, Any]:
    places = list(violation.places)
    return {"violation": str(violation), "places": places, "missing": violation.missing, "show": command}


def _proof(proof: Proof, schedule: Schedule) -> dict[str, Any]:
    shown = range(min(schedule.chunks, EXPRESSIONS))
    return {
        "time_us": proof.seconds * 1e6,
        "cannot_run": proof.cannot_run,
        "order": proof.order if schedule.chunks else None,
        "chunks": schedule.chunks,
        "expressions": [proof.expression(chunk) for chunk in shown],
    }


def _print_violation(violation: Refuted, schedule: Schedule, command: str) -> None:
    """Prints what is wrong, the steps that meet, what is missing, and how to see the whole schedule."""
    print(f"refuted  {violation}")
    for line in _lines_of(schedule, violation.places):
        print(f"step     {line}")
    if violation.missing is not None:
        print(f"missing  {violation.missing}")
    print(f"show     {command}")


def _print_proof(proof: Proof, schedule: Schedule) -> None:
    print(f"proved   {_title(schedule)}: {counted(proof.steps, 'step')} in {proof.seconds * 1e3:.2f} ms")
    if proof.cannot_run is not None:
        print(f"but      a node cannot run it: {proof.cannot_run}")
    if not schedule.chunks:
        return
    folds = next(row.folds for row in collectives() if row.name == schedule.collective)
    where = "at the last rank " if folds == "predecessors" else ""
    if proof.is_rank_order:
        print(f"order    rank: {where}every element is {shortened(proof.expression(0))}")
        return
    print(
        "order    none, chunks are copied:" if folds == "nothing" else f"order    {proof.order}, {where}of each chunk:"
    )
    for chunk in range(min(schedule.chunks, EXPRESSIONS)):
        print(f"chunk {chunk}  {shortened(proof.expression(chunk))}")
    if schedule.chunks > EXPRESSIONS:
        print(f"         … and so on, {schedule.chunks} chunks")


def verify(
    name: Name = None,
    algorithm: AlgorithmName = None,
    ranks: Annotated[int | None, _ranks("The number of ranks; default: 8.")] = None,
    path: Annotated[str | None, typer.Option("--path", help="mapped, staged or pushed; default: mapped.")] = None,
    out_of_place: OutOfPlace = False,
    root: Root = None,
    as_json: formats.AsJson = False,
    schema: formats.Schema = False,
) -> None:
    """Proves that a schedule computes its collective, without races and deadlocks. If not, the exit status is 1.

    Example: nvcoll verify all_reduce ring -n 8
    """
    form = Form(ranks, path, out_of_place, root)
    schedule = _schedule(name, algorithm, form, 8)
    try:
        proof = nvcoll.verify(schedule)
    except Refuted as violation:
        command = _command(name, algorithm, schedule)
        if as_json:
            formats.print_json("verify", _facts(schedule) | {"is_proved": False} | _refutation(violation, command))
        else:
            _print_violation(violation, schedule, command)
        raise typer.Exit(1) from None
    if as_json:
        formats.print_json("verify", _facts(schedule) | {"is_proved": True} | _proof(proof, schedule))
    else:
        _print_proof(proof, schedule)


def _drawn(schedule: Schedule) -> str:
    """Draws a schedule.

    Raises:
        InvalidArgument: the drawing would be too large to read.
    """
    width, height = drawing.size(schedule)
    if max(width, height) > pictures.MOST_PIXELS:
        raise InvalidArgument(
            f"the drawing of {counted(schedule.world_size, 'rank')} and {counted(schedule.step_count, 'step')} would "
            f"be {width:.0f} x {height:.0f} pixels, more than {pictures.MOST_PIXELS}: draw fewer ranks (-n 8)"
        )
    return drawing.svg(schedule)


def show(
    name: Name = None,
    algorithm: AlgorithmName = None,
    ranks: Annotated[int | None, _ranks("The number of ranks; default: 4.")] = None,
    path: Annotated[str | None, typer.Option("--path", help="mapped, staged or pushed; default: mapped.")] = None,
    out_of_place: OutOfPlace = False,
    root: Root = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw the schedule to this file, as SVG.")] = None,
    as_json: formats.AsJson = False,
    schema: formats.Schema = False,
) -> None:
    """Prints the steps of a schedule and their waits. With --path staged, prints the schedule after lowering.

    Example: nvcoll show all_reduce ring -n 4 --svg ring.svg
    """
    form = Form(ranks, path, out_of_place, root)
    schedule = _schedule(name, algorithm, form, 4)
    if svg is not None:
        pictures.write_svg(svg, _drawn(schedule), _title(schedule))
    if as_json:
        moved, waits = schedule.cost()
        cost = {"moved": moved if schedule.chunks else None, "waits": waits, "chunks": schedule.chunks}
        return formats.print_json("show", _facts(schedule) | cost | {"text": str(schedule)})
    print(schedule, f"# {why([schedule])} on the longest chain", sep="")
