"""The gate of predictions: prices fixed commands and prints what moved since the base. Large moves need a reason.

::

    prices.txt of the base commit ─┐
    prices.txt of this tree ───────┼─▶ figures ─▶ table of moves ─▶ status 1 above 2 %, unless a commit since the base
    nvcoll as it is installed ─────┘              has a line `Prices-move: REASON`

    python tools/prices.py            compares; also fails if prices.txt is not what nvcoll predicts
    python tools/prices.py --write    writes the figures; to add a command, add its line

The base is `--base`, else NVCOLL_PRICES_BASE, else the commit at which this branch left main. On main it is HEAD while
you change files, else the parent of HEAD. If git lacks it, as in a shallow clone, the base is prices.txt of this tree.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvcoll.cli import command_line

ROOT = Path(__file__).parents[1]
APP = command_line()
PRICES = Path(__file__).with_suffix(".txt")

SHOWN, LIMIT = 1e-3, 0.02
"""Chosen: relative moves above which a figure is in the table, and needs a reason."""

STALE = 1e-5
"""Chosen: figures have six digits, and libraries of powers and roots differ in the last bits."""

KEYS = {
    "predictions": (("machine", "nbytes"), ("time_us",)),
    "reports": (("machine", "iteration"), ("seconds", "memory_gib", "fit")),
    "found": (("machine",), ("ttft_s", "tpot_s", "tokens_per_second", "cache_tokens")),
}
"""By the list of a command's JSON: keys that name one of its answers, and keys of figures."""

Figures = dict[tuple[str, str], str]
"""By command and name of a figure: its value."""


def read(text: str) -> Figures:
    """Returns the figures of a file: below each command a line per figure. A new command has none."""
    figures, command = {}, ""
    for line in text.splitlines():
        if line.startswith("    "):
            figures[command, line.split()[0]] = line.split(maxsplit=1)[1]
        elif line and not line.startswith("#"):
            command = line
    return figures


def priced(command: str) -> Iterator[tuple[str, str]]:
    """Yields name and value of each figure that a command predicts now."""
    printed, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        status = APP([*shlex.split(command), "--json"], standalone_mode=False)
    if status:
        yield "refused", errors.getvalue().strip()
        return
    told: dict[str, Any] = json.loads(printed.getvalue())
    (names, figures), answers = next((KEYS[key], told[key]) for key in KEYS if key in told)
    for answer in answers:
        name = "/".join(str(answer[key]) for key in names if answer.get(key))
        for key in figures:
            if (value := answer[key]) is not None:
                yield f"{name}/{key}", f"{value:.6g}" if isinstance(value, float) else str(value)


def ratio(before: str | None, after: str | None) -> float | None:
    """Returns how a figure moved; None where it has no number or is in one of two only."""
    with contextlib.suppress(TypeError, ValueError, ZeroDivisionError):
        return float(after) / float(before)  # type: ignore[arg-type]
    return None


def moved(before: Figures, after: Figures, by: float) -> list[tuple[str, str]]:
    """Returns figures that are gone, have another word, or moved by more."""

    def moves(old: str, new: str | None) -> bool:
        change = ratio(old, new)
        return old != new if change is None else abs(change - 1) > by

    return [key for key, old in before.items() if moves(old, after.get(key))]


def table(before: Figures, after: Figures) -> list[str]:
    """Returns a line for each command whose figures moved, and one for each figure below it."""
    lines, last = [], ""
    for command, name in moved(before, after, SHOWN):
        old, new = before[command, name], after.get((command, name), "none")
        change = ratio(old, new)
        lines += [command] * (command != last)
        lines += [f"    {name:40} {old:>12} {new:>12} {'' if change is None else f'{change:8.4f}'}".rstrip()]
        last = command
    return [f"{'figure':44} {'before':>12} {'after':>12} {'ratio':>8}", *lines] if lines else ["no figure moved"]


def git(file: Path, *arguments: str) -> str | None:
    """Returns what git prints in the folder of a file; None if it fails."""
    run = subprocess.run(["git", *arguments], cwd=file.parent, capture_output=True, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 else None


def base_of(file: Path, named: str | None) -> str | None:
    """Returns the base commit; None if the clone has none."""
    head = git(file, "rev-parse", "HEAD")
    left = (git(file, "merge-base", "HEAD", branch) for branch in ("origin/HEAD", "origin/main", "main"))
    branched = next((one for one in left if one and one != head), None)
    is_changed = git(file, "diff", "--quiet", "HEAD") is None
    last = "HEAD" if is_changed else "HEAD~1"
    return git(file, "rev-parse", "--verify", "--quiet", f"{named or branched or last}^{{commit}}")


def main() -> int:
    """Compares, or writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the figures that nvcoll predicts")
    parser.add_argument("--base", default=os.environ.get("NVCOLL_PRICES_BASE"), help="a commit")
    parser.add_argument("--file", type=Path, default=PRICES, help="another file of commands and figures")
    asked = parser.parse_args()
    file = asked.file.resolve()
    text = file.read_text()
    os.chdir(ROOT)  # commands name files from here
    commands = [line for line in text.splitlines() if not line.startswith("    ")]
    after = {(one, name): value for one in commands if one and one[0] != "#" for name, value in priced(one)}
    base = base_of(file, asked.base)
    told = git(file, "show", f"{base}:./{file.name}")
    before = read(told) if told is not None else read(text)
    print(f"{len(after)} figures, beside {file.name} of {'this tree' if told is None else base}")
    print("\n".join(table(before, after)))

    if asked.write:
        below = {one: [f"    {name} {value}\n" for (of, name), value in after.items() if of == one] for one in commands}
        file.write_text("".join("".join([f"{one}\n", *below[one]]) for one in commands))
    elif moved(read(text), after, STALE) or after.keys() - read(text).keys():
        print(f"{file.name} is not what nvcoll predicts: run python tools/prices.py --write, and commit it")
        return 1
    reasons = re.findall(r"^Prices-move: (\S.*)", git(file, "log", "--format=%B", f"{base}..HEAD") or "", re.MULTILINE)
    for one in reasons:
        print(f"announced: {one}")
    if moved(before, after, LIMIT) and not reasons:
        print(f"figures moved by more than {LIMIT:.0%}: give the reason in a commit, on a line `Prices-move: REASON`")
        return 0 if asked.write else 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
