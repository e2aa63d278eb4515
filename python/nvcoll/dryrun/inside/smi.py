"""`nvidia-smi` of a dry run: prints the virtual GPUs of a rank, as an idle machine has them. It imports no package.

Scripts log it, count GPUs and read their memory with it. It knows the table, `-L`, `-i` and queries of GPUs; a field
that it does not know is ``[N/A]``, as with NVIDIA's program.
"""

from __future__ import annotations

import argparse
import os

VERSIONS = {"12": ("575.51.03", "12.9"), "13": ("595.45.04", "13.2")}
"""Versions of the driver and of CUDA, by the major version of CUDA: the versions that the virtual NVML says."""

UNITS = {
    **dict.fromkeys(("memory.total", "memory.free", "memory.used"), "MiB"),
    **dict.fromkeys(("utilization.gpu", "utilization.memory"), "%"),
    **dict.fromkeys(("power.draw", "power.limit"), "W"),
}
"""Units of fields."""

WIDTH = 90
"""Characters of a line of the table. Chosen."""


def rows(gpu: dict[str, str]) -> list[dict[str, str]]:
    """Returns the fields of each GPU, by the names that queries have.

    Args:
        gpu: the fields of NVCOLL_VGPU.
    """
    mib = str(int(gpu["memory"]) >> 20)
    same = {"name": gpu["name"], "count": gpu["devices"], "driver_version": VERSIONS[gpu["cuda"]][0]}
    same |= {"compute_cap": f"{gpu['cc'][:-1]}.{gpu['cc'][-1]}", "memory.total": mib, "memory.free": mib}
    same |= {"memory.used": "0", "utilization.gpu": "0", "utilization.memory": "0", "temperature.gpu": "35"}
    same |= {"power.draw": "75.00", "power.limit": "700.00", "pstate": "P0", "persistence_mode": "Enabled"}
    return [
        same
        | {"index": str(nth), "pci.bus_id": f"00000000:{16 + 3 * nth:02X}:00.0"}
        | {"uuid": f"GPU-6e76636f-6c6c-2076-6972-7475616c20{nth + 1:02x}"}
        for nth in range(int(gpu["devices"]))
    ]


def table(gpu: dict[str, str], shown: list[dict[str, str]]) -> list[str]:
    """Returns the lines of the table that a call without arguments prints."""
    driver, cuda = VERSIONS[gpu["cuda"]]
    lines = [f"| NVIDIA-SMI {driver}   Driver Version: {driver}   CUDA Version: {cuda}"]
    for row in shown:
        lines.append(f"| {row['index']:>3}  {row['name']:<30}  On  | {row['pci.bus_id']}  Off")
        lines.append(f"| N/A   35C   P0   75W / 700W | 0MiB / {row['memory.total']}MiB | 0%  Default")
    rule = f"+{'-' * (WIDTH - 1)}+"
    first, *others = (line.ljust(WIDTH) + "|" for line in lines)
    return [rule, first, rule, *others, rule]


def answer(names: list[str], how: list[str], shown: list[dict[str, str]]) -> list[str]:
    """Returns the lines of a query: names of fields, then a line of each GPU."""
    units = [f" {UNITS[name]}" if name in UNITS else "" for name in names]
    head = [f"{name} [{unit.strip()}]" if unit else name for name, unit in zip(names, units, strict=True)]
    lines = [] if "noheader" in how else [head]
    for row in shown:
        values = zip([row.get(name, "[N/A]") for name in names], units, strict=True)
        lines.append([value if "nounits" in how else value + unit for value, unit in values])
    return [", ".join(line) for line in lines]


def main() -> None:
    """Prints what the arguments ask for."""
    parser = argparse.ArgumentParser("nvidia-smi", description=__doc__, allow_abbrev=False)
    parser.add_argument("-L", "--list-gpus", action="store_true")
    for name in ("-i", "--query-gpu", "--query-compute-apps", "--format"):
        parser.add_argument(name)
    given = parser.parse_args()
    gpu = dict(field.split("=", 1) for field in os.environ["NVCOLL_VGPU"].split(";"))
    shown = [row for row in rows(gpu) if not given.i or {row["index"], row["uuid"]} & set(given.i.split(","))]
    if query := given.query_gpu or given.query_compute_apps:
        names = [name.strip().removeprefix("gpu_") for name in query.split(",")]
        how = (given.format or "csv").replace(" ", "").split(",")
        print(*answer(names, how, shown if given.query_gpu else []), sep="\n")
    elif given.list_gpus:
        print(*(f"GPU {row['index']}: {row['name']} (UUID: {row['uuid']})" for row in shown), sep="\n")
    else:
        print(*table(gpu, shown), sep="\n")


if __name__ == "__main__":
    main()
