"""The pages on predictions have today's figures, and every missed bar with its figure."""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from held_out import left_out, rows

import intervals
import judging
import nccl_estimate
import pytorch_estimate

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data" / "nccl-tests"
PAGES = ROOT / "docs" / "predict" / "predictions.md", ROOT / "docs" / "maintainers" / "how-predictions-are-judged.md"
PAGE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
MIB = 1 << 20

BARS = {
    (scope, collective, band): bar / 100
    for (scope, collective), bars in {
        ("one node", "all_reduce"): (12, 12, 8, 3),
        ("one node", "others"): (25, 25, 20, 8),
        ("several nodes", "all_reduce"): (20, 20, 15, 8),
        ("several nodes", "others"): (30, 30, 25, 12),
    }.items()
    for band, bar in zip(intervals.bands(), bars, strict=True)
}
"""What the median of each cell must not exceed."""

HALF_ABOVE = 0.20
"""Other models that err more must err twice as much."""

VALIDATED = 0.80, 0.97
"""Between which parts of rows intervals of validated cells must hold."""


@cache
def beside(name):
    """Cells of ours and of another model, on the same rows."""
    predictor = nccl_estimate.predictor(rows()) if name == "NCCL" else pytorch_estimate.predictor()
    if predictor is None:
        pytest.skip("torch is not installed")
    return judging.beside(left_out(), judging.judge(rows(), predictor))


CLASSES = {
    "MI300X, MI355X over a network": "amd_multinode",
    "MI300X on one node": "amd_xgmi",
    "several NVLink racks": "mnnvl_multi_rack",
    "one NVLink rack (GB200, GB300)": "mnnvl_nvl72",
    "nodes over EFA": "multinode_efa",
    "nodes over InfiniBand": "multinode_ib",
    "nodes over RoCE": "multinode_roce",
    "nodes over Slingshot": "multinode_slingshot",
    "nodes over TCP": "multinode_tcp",
    "nodes over TCPX": "multinode_tcpx",
    "4 x A100, 4 x H100": "nvlink_mesh",
    "DGX-1 V100": "nvlink_mesh_v100",
    "two GPUs, NVLink bridge": "nvlink_bridge",
    "HGX B200, B300": "nvswitch_blackwell_nvls",
    "HGX H100, H200": "nvswitch_hopper_nvls",
    "DGX-2, HGX A100": "nvswitch_no_nvls",
    "PCIe, host-staged": "pcie_host_staged",
    "PCIe, peer-to-peer": "pcie_p2p",
}
"""The class of each line of the page for users."""


def percent(fraction):
    return f"{fraction * 100:.1f}" if fraction < 0.0995 else f"{fraction * 100:.0f}"


def table(first):
    """The rows of the table whose headings begin so, by heading."""
    heading, body = next(
        found for found in re.findall(r"^(\|.*\|)\n\|[-|]+\|\n((?:\|.*\|\n)+)", PAGE, re.MULTILINE) if first in found[0]
    )
    names = [cell.strip() for cell in heading.strip("|").split("|")]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
    return [dict(zip(names, line, strict=True)) for line in lines]


def scopes(title):
    """The cells of a table with a column for each band that are not empty."""
    cells = {}
    for row in table(f"| {title} |"):
        where, _, collective = row.pop(title).rpartition(", ")
        cells |= {(where, collective, band): text for band, text in row.items() if text != "-"}
    return cells


def test_every_scope_is_on_the_page_with_todays_figures():
    cells = judging.cells(left_out(), judging.by_scope)
    shown = {key: f"{cell.median * 100:.1f} / {percent(cell.p90)} ({cell.systems})" for key, cell in cells.items()}
    assert scopes("held out") == shown
    pairs = {
        key: f"{percent(ours.median)} : {percent(theirs.median)} ({ours.systems})"
        for key, (ours, theirs) in beside("NCCL").items()
    }
    assert scopes("nvcoll : NCCL") == pairs


def test_the_readme_and_the_page_for_users_have_the_errors_of_one_node():
    cells = judging.cells(left_out(), judging.by_scope)
    large, small = (percent(cells["one node", "all_reduce", band].median) for band in (">= 128 MiB", "<= 64 KiB"))
    for page in (PAGES[0], ROOT / "README.md"):
        assert f"{large} % from 128 MiB, {small} % up to 64 KiB" in page.read_text(encoding="utf-8")


SIZES = {"< 1 MiB": (0, MIB - 1), "1 - 128 MiB": (MIB, 128 * MIB - 1), ">= 128 MiB": (128 * MIB, 1 << 62)}
"""The bytes of the columns of the page for users."""


def test_every_class_is_on_the_page_with_todays_figures():
    groups = defaultdict(list)
    for item in left_out():
        groups[item.row.system.fabric_class].append(item)
    found = {CLASSES[row["machines"]]: row for row in table("| machines |")}
    assert sorted(found) == sorted(groups)
    for name, members in groups.items():
        shown = [str(len(judging.by_system(members)))]
        for is_all_reduce in (True, False):
            for low, high in SIZES.values():
                inside = [one for one in members if low <= one.row.nbytes <= high]
                cell = judging.cell(one for one in inside if (one.row.collective == "all_reduce") == is_all_reduce)
                shown.append(percent(cell.median) if cell else "-")
        columns = [f"{of}{size}" for of in ("", "others ") for size in SIZES]
        assert [found[name][column] for column in ("systems", *columns)] == shown, name


def test_validated_cells_contain_the_share_of_rows_that_the_page_has():
    part = judging.cell(intervals.validated(left_out())).coverage
    assert VALIDATED[0] <= part <= VALIDATED[1] and f"**{part * 100:.0f} %**" in PAGE


def test_intervals_hold_what_was_measured_where_a_bar_is_set():
    cells = judging.cells(left_out(), judging.by_scope)
    assert {key: cells[key].coverage for key in BARS if cells[key].coverage < 0.8} == {}


def missed():
    """Every bar that is missed: who errs against what, and how much."""
    cells = judging.cells(left_out(), judging.by_scope)
    for key, bar in BARS.items():
        if cells[key].median > bar:
            yield f"{bar * 100:.0f} %", *key, f"{cells[key].median * 100:.1f} %"
    for name in ("NCCL", "PyTorch"):
        for key, (ours, theirs) in beside(name).items():
            most = theirs.median / 2 if theirs.median > HALF_ABOVE else theirs.median
            if ours.median > most:
                half = "half of " if theirs.median > HALF_ABOVE else ""
                yield f"{half}{name}'s {percent(theirs.median)} %", *key, f"{percent(ours.median)} %"


def test_every_missed_bar_is_on_the_page_with_its_figure_and_its_effect():
    found = table("| missed bar |")
    shown = [(row["missed bar"], row["where"], row["figure"]) for row in found]
    assert sorted(shown) == sorted((bar, ", ".join(key), figure) for bar, *key, figure in missed())
    assert all(len(row["effect that is not modelled"].split()) > 5 for row in found)
