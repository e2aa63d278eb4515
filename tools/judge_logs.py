"""Judges `nvcoll check` on the public logs of data/nccl-logs: healthy logs called sick, sick logs called healthy.

python tools/judge_logs.py
"""

import csv
from collections import Counter
from pathlib import Path

from nvcoll._nvcoll import InvalidArgument
from nvcoll.check import formats, machine
from nvcoll.check.verdict import CANNOT_TELL, HEALTHY, SICK, SUSPICIOUS, Verdict, judged
from nvcoll.cli.machines import named

LOGS = Path(__file__).parents[1] / "data" / "nccl-logs"
ORDER = (SICK, SUSPICIOUS, HEALTHY, CANNOT_TELL)


def rows() -> list[dict[str, str]]:
    """Returns the rows of the index."""
    with open(LOGS / "index.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def verdicts_on(row: dict[str, str]) -> list[Verdict]:
    """Returns the verdicts on the tables of a log of the index, on the machine that the index names, if it is known."""
    found = []
    for log in formats.read(row["file"], (LOGS / row["file"]).read_text(encoding="utf-8")):
        fabric, why = None, None
        try:
            fabric = named(row["on"]) if row["on"] else machine.of_header(log)
        except InvalidArgument as error:
            why = str(error)
        found.append(judged(log, fabric, None, why))
    return found


def verdict_on(row: dict[str, str]) -> str:
    """Returns the worst verdict on a log of the index."""
    return min((one.verdict for one in verdicts_on(row)), key=ORDER.index)


def main() -> None:
    """Prints a line per log, and the counts."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows():
        verdicts = verdicts_on(row)
        worst = min(verdicts, key=lambda one: ORDER.index(one.verdict))
        counts[row["verdict"], worst.verdict] += 1
        share = "" if worst.share is None else f"{100 * worst.share:.0f} %"
        print(f"{row['file']:40} {row['verdict']:12} {worst.verdict:12} {share:6} {'; '.join(worst.reasons)}")
        for one in worst.suspects:
            print(f"{row['ailment'][:40]:40} {100 * one.odds:4.0f} % {one.ailment.name}")
    print()
    for truth, wrong in (("healthy", "sick"), ("sick", "healthy")):
        of = sum(count for (known, _), count in counts.items() if known == truth)
        print(f"{truth} called {wrong}: {counts[truth, wrong]} of {of}")


if __name__ == "__main__":
    main()
