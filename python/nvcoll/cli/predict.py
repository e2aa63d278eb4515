"""``nvcoll predict``: how long an NCCL collective takes on machines that you do not have, and what limits it.

The table keeps three answers apart (`nvcoll.cli.prediction_rows`): the predicted time with its interval comes first;
NCCL's own estimate and the lower bound stand behind a bar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from nvcoll._nvcoll import Fabric, InvalidArgument, Prediction, algorithms, schedule
from nvcoll.cli import plot, sizes
from nvcoll.cli.fabric import named, print_table, takes_gpu
from nvcoll.cli.prediction_rows import Answer, Question, ask_all, link_rates
from nvcoll.comparison import LAUNCH, PROTOCOLS, protocols_on, timeline
from nvcoll.formatting import counted, sized

DEFAULT_SIZE = "1M"
JSON_SCHEMA = "nvcoll.predict/1"

BLOCKS = 12
"""How long the bar of the slowest machine is. Chosen."""

FORMULA = "NCCL's own cost model"
"""What `Prediction.choice` is where nothing has to be said."""

OURS = {
    "Ring": ("ring", "chain"),
    "Tree": ("tree",),
    "NVLS": ("nvswitch",),
    "NVLSTree": ("two_level",),
    "PAT": ("pat",),
    "SendRecv": ("direct",),
}
"""Our algorithms that do what one of NCCL does; the first that the collective has is traced."""


On = Annotated[str, typer.Option(help="Machines with commas between: names, NODExNODES+NETWORK, files.")]
Gpu = Annotated[str | None, typer.Option(help="The GPUs of files of nvidia-smi (.txt) or NCCL (.xml).")]
Launch = Annotated[str, typer.Option(help="How calls are launched: process_per_gpu, single_process or framework.")]


def machines(text: str, gpu: str | None) -> list[Fabric]:
    """Returns the machines of a list with commas; those in brackets belong to a name. ``gpu`` is for files."""
    names = [name.strip() for name in re.split(r",(?![^\[]*\])", text) if name.strip()]
    if not names:
        raise InvalidArgument("--on names no machine: pass one, as --on hgx-h100; nvcoll fabric lists them")
    if gpu is not None and not any(map(takes_gpu, names)):
        raise InvalidArgument("--gpu is for files of nvidia-smi and NCCL: --on names none")
    return [named(name, gpu if takes_gpu(name) else None) for name in names]


def duration(microseconds: float, *others: float) -> str:
    """Writes a time, or several with dashes between, in the unit of the first."""
    scale, unit = next((row for row in ((1e6, "s"), (1e3, "ms")) if microseconds >= row[0]), (1.0, "us"))
    scaled = [time / scale for time in (microseconds, *others)]
    return f"{'-'.join(f'{time:.1f}' if scaled[0] < 100 else f'{time:.0f}' for time in scaled)} {unit}"


def _way(found: Prediction | None) -> str:
    return f"{found.algorithm}/{found.protocol}" if found else "-"


def _rate(gbps: float | None) -> str:
    return "-" if gbps is None else f"{gbps:.1f}" if gbps < 100 else f"{gbps:.0f}"


def _apart(answer: Answer) -> tuple[str, str, str, str]:
    """The other two answers: a bar, NCCL's own estimate, the floor, how many times that the prediction is."""
    estimate = answer.nccl.chosen.microseconds if answer.nccl and not answer.nccl.is_last_resort else None
    times = "-" if answer.times_floor is None else f"{answer.times_floor:.2f}"
    return "|", "-" if estimate is None else duration(estimate), duration(answer.floor), times


def _machine_rows(answers: Sequence[Answer]) -> Iterator[Sequence[str]]:
    """A line per machine."""
    times = [one.prediction.microseconds for one in answers if one.prediction]
    for one in answers:
        found, (link, network) = one.prediction, link_rates(one.fabric)
        links = _rate(link) if network is None else f"{_rate(link)}, {_rate(network)} out"
        if found is None:
            told: tuple[str, ...] = ("-", "-", "-", "-", links, "-", "")
        else:
            slower = found.microseconds / min(times)
            blocks = "█" * round(BLOCKS * found.microseconds / max(times)) if slower > 1 else ""
            interval = duration(found.low, found.high)
            told = (
                _way(found),
                duration(found.microseconds),
                interval,
                _rate(found.busbw),
                links,
                f"{slower:.1f}x",
                blocks,
            )
        yield one.fabric.name, one.fabric.title, *told, *_apart(one)


def _show_machines(question: Question, answers: Sequence[Answer]) -> None:
    print(f"{question.collective} {sized(question.sizes[0])}, launched {question.launch}")
    heads = ("machine", "what it is", "NCCL would pick", "time", "90 %", "busbw", "link", "vs best", "")
    left = ("machine", "what it is", "NCCL would pick", "")
    print_table((*heads, "|", "NCCL's own", "floor", "x floor"), _machine_rows(answers), left=left)
    _print_lines("bound by", [(one.fabric.name, one.prediction.bottleneck) for one in answers if one.prediction])


def _size_rows(answers: Sequence[Answer]) -> Iterator[Sequence[str]]:
    """A line per size of one machine."""
    for one in answers:
        found = one.prediction
        if found is None:
            yield sized(one.nbytes), "-", "-", "-", "-", *_apart(one)
        else:
            times = (duration(found.microseconds), duration(found.low, found.high))
            yield sized(one.nbytes), _way(found), *times, _rate(found.busbw), *_apart(one)


def _show_sizes(question: Question, answers: Sequence[Answer]) -> None:
    one, (link, network) = answers[0].fabric, link_rates(answers[0].fabric)
    links = f"link {_rate(link)} GB/s" + ("" if network is None else f", {_rate(network)} out of the node")
    print(f"{one.name}   {one.title}   {question.collective}, launched {question.launch}   {links}")
    heads = ("size", "NCCL would pick", "time", "90 %", "busbw", "|", "NCCL's own", "floor", "x floor")
    print_table(heads, _size_rows(answers), left=("NCCL would pick",))
    _print_lines("bound by", _bounds(answers))


def _bounds(answers: Sequence[Answer]) -> list[tuple[str, str]]:
    """What limits successive sizes, where that is the same but for its percentage."""
    told = [
        (one, re.sub(r",? ?\d+ % (of the time|busy)", "", one.prediction.bottleneck))
        for one in answers
        if one.prediction
    ]
    ranges = []
    for words, group in groupby(told, key=lambda pair: pair[1]):
        first, *rest = [sized(one.nbytes) for one, _ in group]
        ranges.append((f"{first} to {rest[-1]}" if rest else first, words))
    return ranges


def _show_buckets(question: Question, answers: Sequence[Answer]) -> None:
    assert question.bucket is not None
    size, bucket = sized(question.sizes[0]), sized(question.bucket)
    print(f"{question.collective} {size} in buckets of {bucket}, one after the other, launched {question.launch}")
    rows = []
    for one in answers:
        found, cut = one.prediction, one.buckets
        if found is None or cut is None:
            rows.append((one.fabric.name, one.fabric.title, *["-"] * 7))
            continue
        each, total = duration(cut.each.microseconds), duration(cut.total)
        against = f"{cut.total / found.microseconds:.2f}x"
        whole = (duration(found.microseconds), against)
        way = (_way(cut.each), str(cut.count), each, total, duration(cut.low, cut.high), *whole)
        rows.append((one.fabric.name, one.fabric.title, *way))
    heads = (
        "machine",
        "what it is",
        "NCCL would pick",
        "buckets",
        "each",
        "in all",
        "90 %",
        "one call",
        "in all / one",
    )
    print_table(heads, rows, left=("machine", "what it is", "NCCL would pick"))


def _print_lines(what: str, lines: Iterable[tuple[str, str]]) -> None:
    lines = list(lines)
    widest = max((len(name) for name, _ in lines), default=0)
    for number, (name, words) in enumerate(lines):
        said = words.replace(f"{name}: ", "")  # errors name the machine themselves
        print(f"{'' if number else what:9} {name + ':':{widest + 1}} {said}")


def _model(question: Question, tag: str) -> str:
    """Says which version's cost model is used, and why if another was asked for."""
    asked = (question.version or "").removeprefix("v")
    why = "" if tag.removeprefix("v").startswith(asked) else f", the newest that is known and not newer than {asked}"
    return f"NCCL {tag}{why}"


def _notes(question: Question, found: Sequence[Sequence[Answer]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """What has to be said of machines: how predictions are known, who chooses, what there is no answer to."""
    firsts = [answers[0] for answers in found]
    known = [[one.prediction for one in answers if one.prediction] for answers in found]
    yield "model", [(one.fabric.name, _model(question, one.nccl.tag)) for one in firsts if one.nccl]
    yield "trust", [(some[0].fabric, sizes.trusted(some)) for some in known if some]
    chosen = [(one.fabric.name, one.prediction.choice) for one in firsts if one.prediction]
    yield "choice", [(name, words) for name, words in chosen if words != FORMULA]
    yield "no time", [(one.fabric.name, one.why_no_prediction) for one in firsts if one.why_no_prediction]
    yield "no NCCL", [(one.fabric.name, one.why_no_nccl) for one in firsts if one.why_no_nccl]


def _show(question: Question, found: Sequence[Sequence[Answer]]) -> None:
    if question.bucket is not None:
        _show_buckets(question, [answers[0] for answers in found])
    elif len(question.sizes) == 1:
        _show_machines(question, [answers[0] for answers in found])
    else:
        for answers in found:
            _show_sizes(question, answers)
            print()
    for what, lines in _notes(question, found):
        _print_lines(what, lines)
    if question.bucket is not None:
        print("each bucket takes the time of a call of its own; what overlaps with computing is not modelled")
        return
    print("time is what the call would take; behind the bar: what NCCL chooses by, and what no schedule beats")
    print("busbw and link are GB/s; link is at line rate, one way: a switch that folds lets busbw pass it")


def _json(question: Question, found: Sequence[Sequence[Answer]]) -> str:
    rows = []
    for at_size in zip(*found, strict=True):
        times = [one.prediction.microseconds for one in at_size if one.prediction]
        rows.append([one.to_json(min(times, default=None)) for one in at_size])
    by_machine = [row for of_machine in zip(*rows, strict=True) for row in of_machine]
    head = {"schema": JSON_SCHEMA, "collective": question.collective, "launch": question.launch}
    return json.dumps({**head, "predictions": by_machine}, indent=2)


def _panel(question: Question, found: Sequence[Sequence[Answer]]) -> plot.Panel:
    """busbw over sizes, of each machine with its interval and its floor."""
    curves = []
    for at, answers in enumerate(answers for answers in found if answers[0].prediction):
        told = [one.prediction for one in answers if one.prediction]
        busbw = [
            [one.busbw * one.microseconds / us for one, us in zip(told, times, strict=True)]
            for times in ([p.high for p in told], [p.low for p in told], [p.floor for p in told])
        ]
        style = {"color": f"C{at}"}
        name = answers[0].fabric.name
        curves.append(plot.Curve(name, [p.busbw for p in told], (busbw[0], busbw[1]), {**style, "marker": "."}))
        curves.append(plot.Curve(f"{name}, floor", busbw[2], style={**style, "linestyle": "--", "linewidth": 1}))
    return plot.Panel(f"{question.collective}, launched {question.launch}", question.sizes, curves)


def _trace(answer: Answer, collective: str, launch: str, file: Path) -> str:
    """Writes the schedule that does what NCCL would pick as a trace; returns what it is."""
    found, one = answer.prediction, answer.fabric
    assert found is not None
    known = [name for owner, name, *_ in algorithms() if owner == collective]
    ours = next((name for name in OURS.get(found.algorithm, ()) if name in known), None)
    if ours is None:
        raise InvalidArgument(f"no {collective} algorithm of ours does what {found.algorithm} does: nothing to trace")
    run = schedule(collective, ours, world_size=one.world_size)
    protocol = PROTOCOLS[found.protocol]
    line = timeline(one, run, answer.nbytes, [protocol] if protocol in protocols_on(one) else ["simple"], launch)
    try:
        line.save_trace(file)
    except OSError as error:
        raise InvalidArgument(f"`{file}` cannot be written: {error.strerror}") from None
    return f"{ours}, {protocol}, {counted(line.tiles, 'tile')}, {duration(line.microseconds)} in virtual time"


def _sizes(begin: str, end: str | None, factor: float | None, bucket: str | None) -> list[int]:
    """Returns the sizes of ``-b``, ``-e`` and ``-f``.

    Raises:
        InvalidArgument: one that is no size, or that would be ignored.
    """
    if end is None and factor is not None:
        raise InvalidArgument("-f says how a sweep grows: pass -e, where it ends")
    if end is not None and bucket is not None:
        raise InvalidArgument("--bucket cuts one size: leave out -e")
    first = sizes.parse(begin)
    return list(sizes.sweep(first, sizes.parse(end) if end else first, factor, None))


def _check(question: Question, on: Sequence[Fabric], plot_file: Path | None, trace: Path | None) -> None:
    if plot_file is not None:
        plot.check(plot_file)
        if len(question.sizes) == 1:
            raise InvalidArgument("--plot draws over sizes, and there is one: pass -e")
    if trace is not None and (len(question.sizes) > 1 or len(on) > 1):
        raise InvalidArgument("--trace writes one call: pass one size and one machine")
    if question.bucket is not None and not 0 < question.bucket <= question.sizes[0]:
        raise InvalidArgument(f"--bucket is {question.bucket} bytes: pass at least 1, and at most -b")


def predict(
    collective: Annotated[str, typer.Argument(help="A collective, as all_reduce.")],
    begin: Annotated[
        str, typer.Option("-b", "--minbytes", help="Bytes as nccl-tests counts them: 64K.")
    ] = DEFAULT_SIZE,
    end: Annotated[str | None, typer.Option("-e", "--maxbytes", help="The last size of a sweep.")] = None,
    factor: Annotated[
        float | None, typer.Option("-f", "--stepfactor", help="Each size is so many times the last.")
    ] = None,
    on: On = "hgx-h100",
    gpu: Gpu = None,
    launch: Launch = LAUNCH,
    bucket: Annotated[
        str | None, typer.Option(help="Cut -b bytes into buckets of so many, one after the other: 25MiB.")
    ] = None,
    nccl: Annotated[str | None, typer.Option(help="Version of NCCL, as 2.27.7; the newest known without it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw busbw over sizes to this file: .svg, .png or .pdf.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the schedule in virtual time to this file, for ui.perfetto.dev.")
    ] = None,
) -> None:
    """Prints how long a collective takes on a machine, what limits it, NCCL's own estimate, and the floor."""
    nbytes, on_these = _sizes(begin, end, factor, bucket), machines(on, gpu)
    question = Question(collective, nbytes, launch, nccl, None if bucket is None else sizes.parse(bucket))
    _check(question, on_these, plot_file, trace)
    found = ask_all(question, on_these)
    if as_json:
        print(_json(question, found))
    else:
        _show(question, found)
    if plot_file is not None:
        plot.draw_panels([_panel(question, found)], "busbw, GB/s", plot_file, is_log=len(found) > 1)
        typer.echo(f"drawn to {plot_file}", err=True)
    if trace is not None:
        typer.echo(f"traced to {trace}: {_trace(found[0][0], collective, launch, trace)}", err=True)
