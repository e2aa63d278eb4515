"""Prints how nvcoll reads each file of a directory: `nvidia-smi topo -m`, `rocm-smi --showtopo`, NCCL's XML, TOML.

    python tools/predict/import_table.py DIR
    python tools/predict/import_table.py DIR --gpu '*b200*=b200' --gpu h100-sxm

Files that leave the model of their GPUs open are refused, unless `--gpu` names one: the first whose pattern the file's
name matches is taken, which is marked with `told`. The status is 0 whatever the files are: a refusal is an answer.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from nvcoll import Fabric, InvalidArgument

COLUMNS = ("file", "format", "GPUs", "model", "links per GPU", "sockets", "cards", "remarks")


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, help="a directory; its subdirectories are read too")
    help_of_gpu = "the model of files that name none: MODEL, or PATTERN=MODEL for some files"
    parser.add_argument("--gpu", action="append", default=[], metavar="[PATTERN=]MODEL", help=help_of_gpu)
    return parser.parse_args(given)


def links_per_gpu(fabric: Fabric) -> str:
    """Returns the number of NVLinks or links of Infinity Fabric of each GPU: `18`, or `0-18` where they differ."""
    lanes = Counter({name: 0 for name, kind, *_ in fabric.devices if kind == "gpu"})
    for source, _, medium, count, *_ in fabric.links:
        if source in lanes and (medium.startswith("xgmi") or medium.startswith("nvlink")) and medium != "nvlink2-cpu":
            lanes[source] += count
    least, most = min(lanes.values()), max(lanes.values())
    return str(most) if least == most else f"{least}-{most}"


def read(path: Path, models: Sequence[str]) -> tuple[Fabric, str]:
    """Reads a file without a model, and if it asks for one, with the first that is for it.

    Raises:
        InvalidArgument: what the file was refused for.
    """
    try:
        return Fabric.from_file(path), ""
    except InvalidArgument as refusal:
        patterns = [one.rpartition("=") for one in models]
        told = [model for pattern, _, model in patterns if fnmatch(path.name, pattern or "*")]
        if "pass gpu" not in str(refusal) or not told:
            raise
        return Fabric.from_file(path, gpu=told[0]), " (told)"


def row(path: Path, name: str, models: Sequence[str]) -> tuple[str, ...]:
    """Returns the row of a file."""
    try:
        fabric, told = read(path, models)
    except (InvalidArgument, OSError) as refusal:
        message = str(refusal).removeprefix(f"{path.name}: ")
        return (name, "", "", "", "", "", "", f"refused: {message}")
    kinds = Counter(kind for _, kind, *_ in fabric.devices)
    first, *remarks = fabric.sources
    cells = (fabric.world_size, fabric.gpu + told, links_per_gpu(fabric), kinds["socket"], kinds["nic"])
    return (name, first.split(" of ")[0], *map(str, cells), "; ".join(remarks))


def main(given: Sequence[str] | None = None) -> None:
    """Prints the table as Markdown."""
    options = arguments(given)
    files = sorted(path for path in options.directory.rglob("*") if path.suffix in {".txt", ".xml", ".toml"})
    rows = [row(path, str(path.relative_to(options.directory)), options.gpu) for path in files]
    for cells in (COLUMNS, ("---",) * len(COLUMNS), *rows):
        print("|", " | ".join(cell.replace("|", "\\|") for cell in cells), "|")


if __name__ == "__main__":
    main()
