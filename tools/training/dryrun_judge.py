"""What does a dry run predict for steps that torchtitan published, with the versions that are installed?

    python tools/training/dryrun_judge.py [ID]...

Rows of `data/training-steps`: Llama 3 8B on 8 and 128 H100 of 96 GB, December 2024. The script is
`published_torchtitan.py`, torchtitan's own trainer in the configuration of its benchmark. Nothing is fitted to rows.
What is judged is the software that is installed now: its kernels, its memory and its order differ from those of 2024.
A row takes about a minute.
"""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/dryrun/frameworks"))

from assets import write_torchtitan_assets  # noqa: E402

from nvcoll._nvcoll import fabric, gpus  # noqa: E402
from nvcoll.dryrun.parent.launch import Request, free_bytes  # noqa: E402
from nvcoll.dryrun.parent.script import record  # noqa: E402
from nvcoll.training import Machine  # noqa: E402

from training_rows import Published, published  # noqa: E402

SCRIPT = ROOT / "tools/training/published_torchtitan.py"
CONFIGURATIONS = {
    "torchtitan-0009": "llama3_8b_2024",
    "torchtitan-0010": "llama3_8b_2024_compiled",
    "torchtitan-0011": "llama3_8b_2024_float8",
    "torchtitan-0012": "llama3_8b_2024",
    "torchtitan-0013": "llama3_8b_2024_compiled",
    "torchtitan-0014": "llama3_8b_2024_float8",
}
HEAD = (
    "| row | configuration | GPUs | published | dry run | 90 % | published memory | reserved |\n"
    "|---|---|---|---|---|---|---|---|"
)


def line(row: Published, folder: Path) -> tuple[str, dict[str, str]]:
    """Runs one published row; returns its line of the table, and the versions that ran."""
    configuration = CONFIGURATIONS[row.id]
    assets = (
        *("--hf-assets-path", f"{folder}/tokenizer", "--dump-folder", f"{folder}/outputs"),
        *("--dataloader.dataset", "c4_test", "--dataloader.dataset-path", f"{folder}/texts"),
    )
    request = Request(
        str(SCRIPT),
        ("--module", "llama3", "--config", configuration, *assets),
        world_size=row.gpus,
        gpu=next(each for each in gpus() if each.name == row.gpu),
        memory_limit_bytes=free_bytes(),
        is_quiet=True,
    )
    recorded = record(request)
    machine = fabric(row.machine)
    if row.gpu != machine.gpu_model.name:
        machine = machine.what_if(f"gpu {row.gpu}")
    found = Machine(machine, row.gpus).predict(recorded.step)
    reserved = recorded.fullest["reserved"]
    low, high = found.low_s, found.high_s
    cells = [
        row.id,
        configuration.removeprefix("llama3_8b_2024").strip("_") or "eager",
        row.gpus,
        f"{row.seconds:.2f} s",
        f"{found.seconds:.2f} s",
        f"{low:.2f} to {high:.2f} s",
        f"{row.memory_gb:.1f} GiB" if row.memory_gb else "",
        f"{reserved / 2**30:.1f} GiB",
    ]
    return f"| {' | '.join(map(str, cells))} |", recorded.facts["versions"]


def main() -> None:
    """Prints a table, and the versions that were judged."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", default=list(CONFIGURATIONS), metavar="ID")
    wanted = parser.parse_args().ids
    versions: dict[str, str] = {}
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        write_torchtitan_assets(Path(folder))
        for row in published():
            if row.id in wanted:
                text, versions = line(row, Path(folder))
                print(text, flush=True)
    print("\nversions:", ", ".join(f"{name} {version}" for name, version in sorted(versions.items())))


if __name__ == "__main__":
    main()
