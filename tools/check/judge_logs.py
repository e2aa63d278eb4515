"""Judges `nvcoll check` on public logs: healthy logs called sick, sick logs called healthy, ailments found.

    python tools/check/judge_logs.py              # a line per log, and the counts
    python tools/check/judge_logs.py --unnamed # the same, as if nobody named the machines
    python tools/check/judge_logs.py --write   # writes the figures in two pages, and data/nccl-logs/verdicts.csv

Three sources: tables of threads (`index.csv`), numbers in the words of threads (`facts.csv`: a log per run and
collective; the logs of one run are judged together), and the systems of data/nccl-tests that are not healthy
(`systems.csv`).

An ailment counts as found if its class (column `class`) is the first or second suspect. It is not found if the verdict
is "cannot tell" because the table is missing. "held out": the thread was not used to count how common each class is.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from nvcoll._nvcoll import Fabric, fabric
from nvcoll.check import formats, odds
from nvcoll.check.ailments import AILMENTS, LEAST_ODDS, Suspect
from nvcoll.check.log import Log, factor
from nvcoll.check.row import Row
from nvcoll.check.verdict import CANNOT_TELL, HEALTHY, SICK, SUSPICIOUS, Verdict, among, examined

DATA = Path(__file__).parents[2] / "data"
LOGS = DATA / "nccl-logs"
ORDER = (SICK, SUSPICIOUS, HEALTHY, CANNOT_TELL)
BEGIN, END = "<!-- judged -->\n", "<!-- end -->\n"


@dataclass(frozen=True)
class Thread:
    """What is judged: the logs of one run, with what its thread found."""

    source: str
    name: str
    link: str
    verdict: str
    ailment: str
    classes: frozenset[str]
    on: str
    logs: Sequence[Log]
    first: str = ""


def table(path: Path) -> list[dict[str, str]]:
    """Returns the rows of a table."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rows() -> list[dict[str, str]]:
    """Returns the rows of the index."""
    return table(LOGS / "index.csv")


def _thread(row: dict[str, str], source: str, name: str, logs: Sequence[Log]) -> Thread:
    classes = frozenset(filter(None, row["class"].split("|")))
    link, first = row.get("link", ""), row.get("first", "")
    return Thread(source, name, link, row["verdict"], row["ailment"], classes, row["on"], logs, first)


def thread_of(row: dict[str, str]) -> Thread:
    """Returns the thread of a row of the index."""
    logs = formats.read(row["file"], (LOGS / row["file"]).read_text(encoding="utf-8"))
    return _thread(row, "logs", row["file"].removesuffix(".log"), logs)


def _row(collective: str, ranks: int, nbytes: int, busbw: float) -> Row:
    return Row(0, nbytes, nbytes * factor(collective, ranks) / busbw / 1e3, None)


def told_in_words() -> Iterator[Thread]:
    """Yields the threads of facts.csv that name their machine and a number."""
    runs: dict[str, list[dict[str, str]]] = {}
    for row in table(LOGS / "facts.csv"):
        if row["on"] and row["busbw"] and row["ranks"]:
            runs.setdefault(row["id"], []).append(row)
    for name, told in runs.items():
        row, logs = told[0], []
        pairs = (word.split("=", 1) for word in row["settings"].split() if word.startswith("NCCL_") and "=" in word)
        settings = dict(pairs)
        version = row["nccl"] if row["nccl"][:1].isdigit() and "-" not in row["nccl"] else None
        for collective in dict.fromkeys(one["collective"] for one in told):
            ranks = int(row["ranks"])
            numbers = [one for one in told if one["collective"] == collective]
            found = [_row(collective, ranks, int(one["nbytes"]), float(one["busbw"])) for one in numbers]
            logs.append(Log(name, collective, ranks, found, version=version, settings=settings))
        is_told = row["size_told"] == "yes"
        yield _thread(row, "numbers" if is_told else "numbers, sizes assumed", name, logs)


def unhealthy_systems() -> Iterator[Thread]:
    """Yields the systems of data/nccl-tests that are not healthy."""
    facts = {row["system_id"]: row for row in table(DATA / "nccl-tests" / "systems.csv")}
    times: dict[tuple[str, str], dict[int, float]] = {}
    for row in table(DATA / "nccl-tests" / "measurements.csv"):
        if facts[row["system_id"]]["healthy"] == "no" and not row["algo"]:
            known = times.setdefault((row["system_id"], row["collective"]), {})
            size, time = int(row["nbytes"]), float(row["time_us"])
            known[size] = min(time, known.get(size, time))
    for row in table(LOGS / "systems.csv"):
        name = row["system_id"]
        fact = facts[name]
        launch = fact["launch"] if fact["launch"] in ("process_per_gpu", "single_process") else None
        version = fact["nccl_version"] if fact["nccl_version"].replace(".", "").isdigit() else None
        logs = [
            Log(name, collective, int(fact["n_gpus"]), [Row(0, *one, None) for one in sorted(known.items())],
                launch=launch, version=version, wrong_results=row["wrong_results"] == "yes")
            for (system, collective), known in times.items() if system == name
        ]  # fmt: skip
        yield _thread(row, "systems", name, logs)


def threads() -> Iterator[Thread]:
    """Yields all that is judged."""
    yield from map(thread_of, rows())
    yield from told_in_words()
    yield from unhealthy_systems()


@cache
def named_on(on: str) -> Fabric:
    """Returns a machine by the name in a table; networks in ``*.toml`` lie beside the tables."""
    return fabric(on.replace("+", f"+{LOGS}/") if on.endswith(".toml") else on)


def verdicts_on(thread: Thread, is_named: bool = True) -> list[Verdict]:
    """Returns the verdicts on the logs of a thread: on the machine that its table names, or as if nobody named one."""
    if thread.on and is_named:
        there = named_on(thread.on)
        found = [examined(log, there, None, None) for log in thread.logs]
    else:
        logs = [_with_devices(log, named_on(thread.on)) if thread.on else log for log in thread.logs]
        machines = odds.found(logs)
        found = [odds.judged(log, machines, None) for log in logs]
    return among(found)


def _with_devices(log: Log, on: Fabric) -> Log:
    """Returns what a thread tells in words as a log shows it: the GPUs, and the number of nodes."""
    if log.rows and log.rows[0].line == 0 and not log.gpus and on.gpu_model.names:
        return replace(log, gpus=[on.gpu_model.names[0]] * (log.ranks or 0), facts={"nodes": [str(on.nodes)]})
    return log


def worst_of(thread: Thread, is_named: bool = True) -> Verdict:
    """Returns the worst verdict on a thread."""
    return min(verdicts_on(thread, is_named), key=lambda one: ORDER.index(one.verdict))


def has_found(thread: Thread, suspected: Sequence[Suspect]) -> bool:
    """Says whether the ailment that the thread found is the first or second suspect."""
    return any(one.ailment.key in thread.classes for one in suspected[:2])


def has_found_left_out(thread: Thread, suspected: Sequence[Suspect]) -> bool:
    """Says the same if the thread does not count in how common its ailments are; what is not named is less likely."""
    odds = []
    for one in suspected:
        common = sum(other.common for other in AILMENTS if other.key == one.ailment.key)
        left = max(common - 1, 0.5) / max(common, 1) if one.ailment.key in thread.classes else 1
        odds.append((one.odds * left, one))
    likely = sorted((each for each in odds if each[0] > LEAST_ODDS), key=lambda each: -each[0])
    return has_found(thread, [one for _, one in likely])


def _count(judged_ones: Sequence[tuple[Thread, Verdict]], truth: str, wrong: str) -> str:
    of = [verdict.verdict for thread, verdict in judged_ones if thread.verdict == truth]
    return f"{of.count(wrong)} of {len(of)}"


def figures(found: Sequence[tuple[Thread, Verdict]]) -> list[list[str]]:
    """Returns the table of figures: for each source and for all."""
    cells = [
        [
            "source",
            "healthy called sick",
            "sick called healthy",
            "ailment is first or second suspect",
            "the same, held out",
        ]
    ]
    sources = [*dict.fromkeys(thread.source for thread, _ in found)]
    kinds = [(source, [one for one in found if one[0].source == source]) for source in sources]
    for source, part in [*kinds, ("all", list(found))]:
        known = [(thread, verdict) for thread, verdict in part if thread.classes]
        hits = sum(has_found(thread, verdict.suspects) for thread, verdict in known)
        without = sum(has_found_left_out(thread, verdict.suspects) for thread, verdict in known)
        wrong = [_count(part, HEALTHY, SICK), _count(part, SICK, HEALTHY)]
        cells.append([source, *wrong, f"{hits} of {len(known)}", f"{without} of {len(known)}"])
    return cells


def _cells(thread: Thread, verdict: Verdict) -> list[str]:
    suspected = "; ".join(f"{100 * one.odds:.0f} % {one.ailment.name.split(':')[0]}" for one in verdict.suspects[:2])
    share = "" if verdict.share is None else f"{100 * verdict.share:.0f} %"
    hit = "" if not thread.classes else "yes" if has_found(thread, verdict.suspects) else "no"
    truth = f"{thread.verdict}: {thread.ailment}" if thread.ailment else thread.verdict
    return [thread.name, thread.link, thread.on, truth, verdict.verdict, share, suspected, hit]


def _markdown(cells: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(one) for one in cells]
    return "\n".join([f"| {lines[0]} |", "|---" * len(cells[0]) + "|", *(f"| {line} |" for line in lines[1:])])


PAGES = (LOGS / "README.md", DATA.parent / "docs" / "predict" / "check.md")
"""The pages that have the figures between their marks."""


def figures_in_markdown(found: Sequence[tuple[Thread, Verdict]]) -> str:
    """Returns the figures as the pages have them."""
    return f"{_markdown(figures(found))}\n"


def verdicts(found: Sequence[tuple[Thread, Verdict]]) -> str:
    """Returns the text of `verdicts.csv`: a row per thread."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["thread", "link", "on", "thread_found", "nvcoll_check", "share", "suspects", "found"])
    writer.writerows(_cells(*one) for one in found)
    return text.getvalue()


def main(argv: Sequence[str]) -> None:
    """Prints a line per log and the counts, or writes the pages and `verdicts.csv`."""
    found = [(thread, worst_of(thread, "--unnamed" not in argv)) for thread in threads()]
    if "--write" in argv:
        (LOGS / "verdicts.csv").write_text(verdicts(found), encoding="utf-8")
        for page in PAGES:
            before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
            text = f"{before}{BEGIN}{figures_in_markdown(found)}{END}{rest.partition(END)[2]}"
            page.write_text(text, encoding="utf-8")
        return
    for thread, worst in found:
        share = "" if worst.share is None else f"{100 * worst.share:.0f} %"
        print(f"{thread.name:40} {thread.verdict:12} {worst.verdict:12} {share:6} {'; '.join(worst.reasons)}")
        for one in worst.suspects:
            print(f"{thread.ailment[:40]:40} {100 * one.odds:4.0f} % {one.ailment.key} {one.ailment.name}")
    unseen = [one for one in found if one[0].first]
    print()
    for row in figures(found):
        print("  ".join(f"{cell:24}" for cell in row))
    for truth, wrong in ((HEALTHY, SICK), (SICK, HEALTHY)):
        of = [thread.first for thread, _ in unseen if thread.verdict == truth]
        print(f"before any change in view of them, {truth} called {wrong}: {of.count(wrong)} of {len(of)}")


if __name__ == "__main__":
    main(sys.argv[1:])
