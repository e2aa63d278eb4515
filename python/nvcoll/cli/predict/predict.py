"""``nvcoll predict``: how long an NCCL collective takes on machines that you do not have, and what limits it.

The table keeps three answers apart (`nvcoll.cli.predict.rows`): the predicted time with its interval comes first;
NCCL's own estimate and the lower bound stand behind a bar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

from nvcoll._nvcoll import Prediction
from nvcoll.cli import completion, formats, sizes
from nvcoll.cli.gathered import gathered
from nvcoll.cli.hints import collective_name
from nvcoll.cli.machines import Conditions, Gpu, Launch, On, Server, machines
from nvcoll.cli.predict.rows import Answer, Question, ask_all
from nvcoll.cost.comparison import LAUNCH, accuracy
from nvcoll.text.formatting import counted, duration, number, sized
from nvcoll.text.tables import print_labelled, print_table

DEFAULT_BYTES = 1 << 20


def _time(*microseconds: float) -> str:
    return duration(*(time / 1e6 for time in microseconds))


def _way(found: Prediction, server: str | None) -> str:
    if found.implementation != "NCCL":
        return found.implementation
    return f"{'NCCL ' if server else ''}{found.algorithm}/{found.protocol}"


def _rate(gbps: float | None) -> str:
    return "-" if gbps is None else number(gbps)


def _apart(answer: Answer) -> tuple[str, str, str, str]:
    """Returns the other two answers: a bar, NCCL's estimate, the lower bound, the prediction as a multiple of it."""
    estimate = answer.nccl.chosen.time_us if answer.nccl and not answer.nccl.is_last_resort else None
    times = "-" if answer.times_floor is None else f"{answer.times_floor:.2f}"
    return "|", "-" if estimate is None else _time(estimate), _time(answer.floor), times


TIMES = ("NCCL picks", "time", "90 % interval", "busbw GB/s")
APART = ("|", "NCCL est.", "lower bound", "x bound")
LINK = "link GB/s"

MEANINGS = {
    "NCCL est.": "NCCL est. = NCCL's tuning model",
    "lower bound": "lower bound = no schedule is faster",
    "x bound": "x bound = time / lower bound",
}
"""What the words of a heading say."""


def _machine_rows(answers: Sequence[Answer], server: str | None) -> Iterator[Sequence[str]]:
    """Yields a row for each machine."""
    times = [one.prediction.time_us for one in answers if one.prediction]
    for one in answers:
        found, (link, network) = one.prediction, one.fabric.port_rates()
        links = _rate(link) if network is None else f"{_rate(link)}, {_rate(network)} out"
        if found is None:
            cells: tuple[str, ...] = ("-", "-", "-", "-", links, "-")
        else:
            slower = found.time_us / min(times)
            interval = _time(found.low_us, found.high_us)
            cells = (
                _way(found, server),
                _time(found.time_us),
                interval,
                _rate(found.busbw),
                links,
                f"{slower:.1f}x",
            )
        yield one.fabric.name, one.fabric.title, *cells, *_apart(one)


def _launched(question: Question) -> str:
    """Says how the call is launched, and what is set."""
    how = f"as {question.server} runs it" if question.server else f"launched {question.launch}"
    return ", ".join([how, *(f"{name}={value}" for name, value in question.settings.items())])


def _times(question: Question) -> tuple[str, ...]:
    """Returns the headings of a prediction, with the program that chooses."""
    return (f"{question.server} picks", *TIMES[1:]) if question.server else TIMES


def _show_machines(question: Question, answers: Sequence[Answer]) -> list[str]:
    """Prints the table of one size, and returns the headings that it leaves out."""
    print_labelled("", f"{question.collective} {sized(question.sizes[0])}, {_launched(question)}", label=0)
    times = _times(question)
    heads = ("machine", "description", *times, LINK, "vs best", *APART)
    left_out = print_table(
        heads,
        [*_machine_rows(answers, question.server)],
        left=("machine", "description", times[0]),
        optional=("description", LINK, "x bound", "|", "NCCL est.", "lower bound", "busbw GB/s", TIMES[0]),
    )
    _print_lines("bottleneck", [(one.fabric.name, one.prediction.bottleneck) for one in answers if one.prediction])
    return left_out


def _size_rows(answers: Sequence[Answer], server: str | None) -> Iterator[Sequence[str]]:
    """Yields a row for each size of one machine."""
    for one in answers:
        found = one.prediction
        if found is None:
            yield sized(one.nbytes), "-", "-", "-", "-", *_apart(one)
        else:
            times = (_time(found.time_us), _time(found.low_us, found.high_us))
            yield sized(one.nbytes), _way(found, server), *times, _rate(found.busbw), *_apart(one)


def _show_sizes(question: Question, answers: Sequence[Answer]) -> list[str]:
    """Prints the table of one machine, and returns the headings that it leaves out."""
    one, (link, network) = answers[0].fabric, answers[0].fabric.port_rates()
    links = f"link {_rate(link)} GB/s" + ("" if network is None else f", {_rate(network)} GB/s out of the node")
    head = f"{one.name}   {one.title}   {question.collective}, {_launched(question)}   {links}"
    print_labelled("", head, label=0)
    left_out = print_table(
        ("size", *_times(question), *APART),
        [*_size_rows(answers, question.server)],
        left=_times(question)[:1],
        optional=("x bound", "|", "NCCL est.", "busbw GB/s", TIMES[0]),
    )
    _print_lines("bottleneck", _bounds(answers))
    return left_out


def _bounds(answers: Sequence[Answer]) -> list[tuple[str, str]]:
    """Returns what limits successive sizes; sizes with the same limit but for its percentage are one range."""
    limits = [(one, one.prediction.limited_by) for one in answers if one.prediction]
    ranges = []
    for words, group in groupby(limits, key=lambda pair: pair[1]):
        first, *rest = [sized(one.nbytes) for one, _ in group]
        ranges.append((f"{first} to {rest[-1]}" if rest else first, words))
    return ranges


def _alike(lines: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Joins the lines of machines that have equal words."""
    names: dict[str, list[str]] = {}
    for name, words in lines:
        names.setdefault(words.replace(f"{name}: ", ""), []).append(name)
    return [(", ".join(alike), words) for words, alike in names.items()]


def _print_lines(what: str, lines: Iterable[tuple[str, str]]) -> None:
    lines = list(lines)
    widest = max((len(name) for name, _ in lines), default=0)
    for nth, (name, words) in enumerate(lines):
        shown = words.replace(f"{name}: ", "")  # errors name the machine themselves
        print_labelled("" if nth else what, f"{name + ':':{widest + 1}} {shown}")


def _model(question: Question, tag: str) -> str:
    """Names the version whose cost model is used, and says why if you asked for another."""
    asked = (question.version or "").removeprefix("v")
    why = "" if tag.removeprefix("v").startswith(asked) else f", the newest that is known and not newer than {asked}"
    return f"NCCL {tag}{why}"


def _faster(answers: Sequence[Answer]) -> Iterator[tuple[str, str]]:
    """Yields a line if a setting makes NCCL clearly faster, with the size at which it saves most."""
    known = [(one.faster, one.nbytes) for one in answers if one.faster]
    if not known:
        return
    best, nbytes = max(known, key=lambda pair: pair[0].saved)
    found = best.prediction
    time = f"{_time(found.time_us)}, 90 %: {_time(found.low_us, found.high_us)}"
    where = f" at {sized(nbytes)}" if len(answers) > 1 else ""
    more = f"; less too at {counted(len(known) - 1, 'other size')}" if len(known) > 1 else ""
    yield answers[0].fabric.name, f"{best.setting} would take {100 * best.saved:.0f} % less{where} ({time}){more}"


def _notes(question: Question, found: Sequence[Sequence[Answer]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yields notes on machines: NCCL's version, the accuracy of predictions, who chooses, why there is no answer."""
    firsts = [answers[0] for answers in found]
    known = [[one.prediction for one in answers if one.prediction] for answers in found]
    yield "model", [(one.fabric.name, _model(question, one.nccl.tag)) for one in firsts if one.nccl]
    judged = [(one, some) for one, some in zip(firsts, known, strict=True) if some]
    yield "accuracy", [(one.fabric.name, accuracy(some)) for one, some in judged]
    others = [one for one in firsts if one.prediction and (question.server or not one.prediction.is_by_nccl)]
    yield "choice", [(one.fabric.name, one.prediction.choice) for one in others if one.prediction]
    yield "faster", [line for answers in found for line in _faster(answers)]
    yield "no time", [(one.fabric.name, one.why_no_prediction) for one in firsts if one.why_no_prediction]
    yield "no NCCL", _alike([(one.fabric.name, one.why_no_nccl) for one in firsts if one.why_no_nccl])


def _show(question: Question, found: Sequence[Sequence[Answer]]) -> None:
    if len(question.sizes) == 1:
        hidden = set(_show_machines(question, [answers[0] for answers in found]))
    else:
        hidden = {*TIMES, *APART}
        for answers in found:
            hidden &= {*_show_sizes(question, answers)}
            print()
    for what, lines in _notes(question, found):
        _print_lines(what, lines)
    label = "columns"
    if known := [words for heading, words in MEANINGS.items() if heading not in hidden]:
        print_labelled(label, "; ".join(known))
        label = ""
    if LINK not in hidden:
        print_labelled(label, "link = line rate of a GPU, one way. With NVLS (the switch reduces) busbw can exceed it")


def _rows(found: Sequence[Sequence[Answer]]) -> list[dict[str, Any]]:
    """Returns the JSON objects of all machines and sizes."""
    rows = []
    for at_size in zip(*found, strict=True):
        times = [one.prediction.time_us for one in at_size if one.prediction]
        rows.append([one.to_json(min(times, default=None)) for one in at_size])
    return [row for of_machine in zip(*rows, strict=True) for row in of_machine]


@gathered
def predict(
    collective: Annotated[
        str,
        typer.Argument(
            help="A collective, for example all_reduce.",
            callback=collective_name,
            autocompletion=completion.collectives,
        ),
    ],
    begin: Annotated[list[str] | None, sizes.begin("1M")] = None,
    end: sizes.End = None,
    factor: sizes.Factor = None,
    on: On = None,
    gpu: Gpu = None,
    launch: Launch = LAUNCH,
    server: Server = None,
    *,
    conditions: Conditions,
    printed: formats.Printed,
) -> None:
    """Predicts the time of an NCCL collective on machines, with its 90 % interval, its bottleneck and a lower bound.

    Example: nvcoll predict all_reduce -b 1G --on hgx-h100,rtx4090-4-staged
    """
    nbytes, on_these = sorted(sizes.of(begin, end, factor, [DEFAULT_BYTES])), machines(on, gpu)
    question = Question(collective, nbytes, launch, conditions.nccl_version, conditions.settings, server)
    found = ask_all(question, on_these)
    if printed.as_json:
        head = {"collective": question.collective, "launch": question.launch, "settings": dict(question.settings)}
        formats.print_json("predict", head | {"as": question.server, "predictions": _rows(found)})
    elif printed.as_csv:
        head = {"collective": question.collective, "launch": question.launch}
        formats.print_csv([head | {key: row[key] for key in row if key != "parts"} for row in _rows(found)])
    else:
        _show(question, found)
