"""The facts of docs/predict/answers.md are those of the tables and machines that nvcoll computes with."""

import re
from pathlib import Path

import pytest

import nvcoll
from nvcoll._nvcoll import fabrics, gpus, media

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "predict" / "answers.md").read_text().partition("\n## Facts\n")[2]
MEDIA = {row.name: row.lane_gbps for row in media()}
GPUS = {row.name: row for row in gpus()}
LINKS_OF_GPUS = ("nvlink", "xgmi")


def tables(first: str) -> list[dict[str, str]]:
    """The rows of every table whose headings begin so, by heading: one for each name of the first cell."""
    rows = []
    for heading, body in re.findall(r"^(\|.*\|)\n\|[-|]+\|\n((?:\|.*\|\n)+)", PAGE, re.MULTILINE):
        names = [cell.strip() for cell in heading.strip("|").split("|")]
        if heading.startswith(f"| {first} "):
            for line in body.splitlines():
                cells = [cell.strip() for cell in line.strip("|").split("|")]
                row = dict(zip(names, cells, strict=True))
                named = row[first].split(", ") if "`" in row[first] else [row[first]]
                rows += [row | {first: name} for name in named]
    return rows


def name_in(cell: str) -> str:
    return cell.strip("`")


def agrees(cell: str, value: float) -> bool:
    """Whether a figure is the value, rounded to the places that it has."""
    places = len(cell.partition(".")[2])
    return f"{value:.{places}f}" == cell


def sent(fabric: nvcoll.Fabric, families: tuple[str, ...], gpu: str = "gpu0", *, used: bool = False) -> float:
    """GB/s that leave a GPU over links of some families, at line rate or in use."""
    family = {row.name: row.family for row in media()}
    own = [row for row in fabric.links if row[0] == gpu and family[row[2]] in families]
    return sum(row[5] if used else row[4] for row in own)


def neighbours(fabric: nvcoll.Fabric) -> dict[str, set[str]]:
    """What every device is joined to by NVLink or Infinity Fabric."""
    family = {row.name: row.family for row in media()}
    beside: dict[str, set[str]] = {name: set() for name, *_ in fabric.devices}
    for a, b, medium, *_ in fabric.links:
        if family[medium] in LINKS_OF_GPUS:
            beside[a].add(b)
    return beside


def domain(fabric: nvcoll.Fabric) -> int:
    beside, found, waiting = neighbours(fabric), {"gpu0"}, ["gpu0"]
    while waiting:
        new = beside[waiting.pop()] - found
        found |= new
        waiting += new
    return sum(name.startswith("gpu") for name in found)


def peers(fabric: nvcoll.Fabric, gpu: str = "gpu0") -> int:
    """GPUs that one reaches over NVLink without passing another GPU."""
    beside = neighbours(fabric)
    reached = set(beside[gpu]).union(*(beside[name] for name in beside[gpu] if not name.startswith("gpu")))
    return sum(name.startswith("gpu") and name != gpu for name in reached)


def chips(fabric: nvcoll.Fabric) -> int:
    return sum(chips for _, kind, _, chips in fabric.devices if kind == "nvswitch")


def links_of(fabric: nvcoll.Fabric) -> int:
    family = {row.name: row.family for row in media()}
    return sum(row[3] for row in fabric.links if row[0] == "gpu0" and family[row[2]] in LINKS_OF_GPUS)


@pytest.mark.parametrize("row", tables("GPU"), ids=lambda row: row["GPU"])
def test_links_of_a_model_of_gpu(row):
    gpu = GPUS[name_in(row["GPU"])]
    medium, links = gpu.nvlink, gpu.nvlinks
    lane = MEDIA[medium]
    assert (name_in(row["medium"]), int(row["links"])) == (medium, links)
    assert [float(row[heading]) for heading in ("per link", "per GPU")] == [lane, lane * links]


def test_every_model_of_gpu_that_has_links_is_on_the_page():
    assert {name_in(row["GPU"]) for row in tables("GPU")} == {row.name for row in gpus() if row.nvlink}


@pytest.mark.parametrize("one", fabrics(), ids=lambda one: one.name)
def test_the_links_of_every_machine_are_those_of_its_gpus(one):
    (gpu,) = [row for row in gpus() if row.title == one.gpu]
    whole = MEDIA[gpu[2]] * gpu[3] if gpu[2] else 0.0
    ranks = [name for name, kind, *_ in one.devices if kind == "gpu"]
    for rank in ranks:
        has = sent(one, LINKS_OF_GPUS, rank)
        # A bridge that is not plugged in joins nothing; a part of a mesh lacks the links to the rest.
        assert has in (0.0, whole) or (one.world_size < domain_of_whole(one) and has < whole), one.name


def domain_of_whole(one: nvcoll.Fabric) -> int:
    """GPUs of the largest machine of the same name's stem."""
    stem = re.split(r"-\d|\[", one.name)[0]
    return max(other.world_size for other in fabrics() if re.split(r"-\d|\[", other.name)[0] == stem)


@pytest.mark.parametrize("row", tables("medium"), ids=lambda row: row["medium"])
def test_rates_of_a_medium(row):
    medium = next(one for one in media() if one.name == name_in(row["medium"]))
    name, lane, efficiency = medium.name, medium.lane_gbps, medium.efficiency
    if "Gbit/s per port" in row:
        assert float(row["Gbit/s per port"]) / 8 == float(row["per port"]) == lane
        return
    gigatransfers = float(row["GT/s"])
    coded = gigatransfers / 8 * (128 / 130 if gigatransfers < 64 else 242 / 256)
    assert lane == pytest.approx(coded, abs=1e-3), f"{name}: {gigatransfers} GT/s, one bit each, less its line code"
    assert agrees(row["per lane"], lane) and agrees(row["x16"], 16 * lane)
    assert agrees(row["x16 in use"], 16 * lane * efficiency)


@pytest.mark.parametrize("row", tables("machine"), ids=lambda row: row["machine"])
def test_what_a_machine_has(row):
    one = nvcoll.fabric(name_in(row["machine"]))
    says = [int(row[heading]) for heading in ("GPUs", "direct peers", "NVSwitch chips")]
    assert says == [one.world_size, peers(one), chips(one)] and domain(one) == one.world_size
    able = {"yes": True, "no": False}
    assert able[row["NVLS"]] == ("switch_reduction" in one.abilities) == ("multicast" in one.abilities)


@pytest.mark.parametrize("row", tables("collective"), ids=lambda row: f"{row['collective']} {row['algorithm']}")
def test_what_passes_a_port(row):
    n, nbytes = 8, 8 << 20
    schedule = nvcoll.schedule(row["collective"], row["algorithm"], world_size=n, in_place=False)
    links = nvcoll.fabric("hgx-h100").simulate(schedule, nbytes, protocol="ideal").links
    for way, ends in (("sends", ("gpu0", "nvswitch")), ("receives", ("nvswitch", "gpu0"))):
        (crossed,) = [moved for source, target, moved, _ in links if (source, target) == ends]
        assert crossed / nbytes == eval(row[way].replace("2(", "2*("), {"n": n}), way


def port(one: nvcoll.Fabric) -> float:
    return sent(one, LINKS_OF_GPUS) or sent(one, ("pcie",))


CHECKS = {
    "switch chips": chips,
    "links per chip": lambda one: links_of(one) / chips(one),
    "links": links_of,
    "peers": peers,
    "domain": domain,
    "pair": lambda one: next(row[4] for row in one.links if row[:2] == ("gpu0", "gpu1")),
    "both ways": lambda one: 2 * port(one),
    "one way": port,
    "in use": lambda one: one.alone()[0][1],
    "joined pairs": lambda one: sum(peers(one, f"gpu{rank}") for rank in range(one.world_size)) / 2,
    "pairs": lambda one: one.world_size * (one.world_size - 1) / 2,
    "terabytes": lambda one: 2 * one.world_size * port(one) / 1e3,
    "half": lambda one: one.world_size / 2 * port(one) / 1e3,
    "in use over memory": lambda one: (
        one.alone()[0][1] / next(row.memory_gbps for row in gpus() if row.title == one.gpu)
    ),
}


BOLD_FIGURES = (
    ("switch chips hgx-a100", "links per chip hgx-a100"),
    ("links hgx-a100", "peers hgx-a100"),
    ("links hgx-h100", "domain hgx-h100", "domain gb200-nvl72"),
    ("switch chips hgx-a100-4", "pair hgx-a100-4"),
    ("both ways hgx-h100", "one way hgx-h100", "in use hgx-h100"),
    ("both ways rtx4090-2-p2p", "one way rtx4090-2-p2p"),
    ("joined pairs dgx1-v100", "pairs dgx1-v100"),
    ("terabytes gb200-nvl72", "half gb200-nvl72"),
    ("in use over memory hgx-h100",),
)
"""What the bold figures of each row of common errors are, in the order of the page."""


@pytest.mark.parametrize(("row", "checks"), [*zip(tables("often said"), BOLD_FIGURES, strict=True)])
def test_common_errors(row, checks):
    for figure, check in zip(re.findall(r"\*\*([\d.]+)\*\*", row["correct"]), checks, strict=True):
        what, _, machine = check.rpartition(" ")
        value = CHECKS[what](nvcoll.fabric(machine))
        assert agrees(figure, value), f"{check} is {value}, the page says {figure}"


def test_the_page_uses_every_check_and_names_a_source_in_every_row():
    named = {check.rpartition(" ")[0] for checks in BOLD_FIGURES for check in checks}
    assert set(CHECKS) == named
    for first in ("GPU", "machine"):
        rows = list(tables(first))
        assert rows and all(row["source"] for row in rows), first
