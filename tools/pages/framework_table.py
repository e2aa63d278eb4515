"""Which frameworks run on the virtual GPU, and what was compared? Prints a table.

Runs each row of `tests/dryrun/frameworks/script_rows.py` one after the other: some minutes.

    python tools/pages/framework_table.py [PART OF A NAME]...
"""

import re
import shlex
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests/dryrun/frameworks"
sys.path.insert(0, str(TESTS))

from assets import write_torchtitan_assets  # noqa: E402
from script_rows import ROWS  # noqa: E402

from nvcoll.testing import dryrun  # noqa: E402

HEAD = (
    "| framework, feature | script | GPUs | ranks that run | time | memory of this machine | compared, equal | peak |\n"
    "|---|---|---|---|---|---|---|---|"
)


def flops(number):
    """Returns FLOPs as people write them: `180.4 GFLOP`."""
    unit, name = (1e12, "TFLOP") if number >= 1e12 else (1e9, "GFLOP")
    return f"{number / unit:.1f} {name}"


def compared(expected):
    """Returns what a rank had to do, in words: `180.4 GFLOP; all_gather 9 (56.0 MiB)`."""
    calls = [
        f"{pattern} of {size}: {number} ({nbytes / 2**20:.1f} MiB)"
        for (pattern, size, _), (number, nbytes) in expected.calls.items()
    ]
    if expected.sends[0]:
        calls.append(f"send: {expected.sends[0]} ({expected.sends[1] / 2**20:.1f} MiB)")
    return "; ".join([flops(expected.flops), *calls])


def line(row, folder):
    """Runs a row and returns its line."""
    script, *arguments = shlex.split(row.command.format(folder=folder))
    made = dryrun(
        TESTS / "scripts" / script,
        *arguments,
        on="hgx-h100x64+ib-ndr-8",
        world_size=row.world_size,
        is_cached=False,
    )
    ran = made.recording.runs
    seconds, memory = max(run.seconds for run in ran), sum(run.peak_rss_bytes for run in ran)
    command = re.sub(r" --\S+ \{folder\}\S*", "", row.command)
    cells = [
        row.name,
        f"`{command}`",
        row.world_size,
        ", ".join(map(str, row.ranks)),
        f"{seconds:.0f} s",
        f"{memory / 1e9:.1f} GB",
        compared(next(iter(row.ranks.values()))),
        f"{made.peak_gib:.2f} GiB",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main():
    """Prints the table of the rows whose name has one of the arguments; of all without."""
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        write_torchtitan_assets(Path(folder))
        for row in ROWS:
            if len(sys.argv) == 1 or any(part in row.name for part in sys.argv[1:]):
                print(line(row, folder), flush=True)


if __name__ == "__main__":
    main()
