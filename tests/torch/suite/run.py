"""Runs the distributed test suite that torch's wheel contains, with a backend of choice, on ranks without GPUs.

    python tests/torch/suite/run.py --backend nvcoll --world-size 2,3,4 --baseline tests/torch/suite/gloo-2.15.0.tsv
    python tests/torch/suite/run.py --backend gloo --world-size 3 --only test_broadcast,test_barrier

It prints how many cases passed, failed and were skipped for which reason, and the error of each failure. ``--json``
keeps everything, with tracebacks; ``--tsv`` keeps a table for people.

Exit status: 0; 1 if a case failed that ``expected.py`` does not list, a listed case passed, a process leaked, or a
case was skipped that the baseline passes.

Every process starts with the same environment, whatever runs the runner (`KEPT`, `ENVIRONMENT`). Cost: 2 to 3 minutes
for a world size on two cores. Source: ours. It does not judge performance, and it does not run cases that need GPUs.
"""

import argparse
import os
import sys
from pathlib import Path

KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""What the ranks see of the environment of whoever runs this, besides the settings of nvcoll."""

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
"""What they see besides: no GPU, and no threads, which a forked process would lack."""


def main() -> int:
    options = arguments()
    import report  # these two lines come after the environment is set, which torch reads when it is imported
    from outcomes import write
    from session import TORCH, Session

    session = Session(options.backend, options.module, words_of(options.only), options.limit)
    results = [one for size in words_of(options.world_size) for one in session.run(int(size))]
    for file in filter(None, (options.json, options.tsv)):
        write(file, options.backend, TORCH, results)
    print(report.summary(options.backend, results))
    found = report.complaints(options.backend, results, options.baseline)
    print("\n".join(found) or "as expected")
    return 1 if found else 0


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="run torch's own distributed test suite with a backend")
    parser.add_argument("--backend", default="nvcoll", help="the backend under test")
    parser.add_argument("--import", dest="module", help="the module whose import registers the backend")
    parser.add_argument("--world-size", default="2", help="numbers of ranks, with commas")
    parser.add_argument("--only", default="", help="names of cases, with commas")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a case (60)")
    parser.add_argument("--json", type=Path, help="file for everything")
    parser.add_argument("--tsv", type=Path, help="file for the table of results")
    parser.add_argument("--baseline", type=Path, help="a run whose passes must pass")
    return parser.parse_args()


def words_of(text: str) -> list[str]:
    """Splits words with commas between them."""
    return [word for word in text.split(",") if word]


if __name__ == "__main__":
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith("NVCOLL_")}
    os.environ.clear()
    os.environ.update(kept | ENVIRONMENT)
    sys.exit(main())
