"""The picture of a machine shows every device once and every link, each line from one of its devices to the other."""

import re
import xml.etree.ElementTree as ET
from collections import Counter

import pytest
from command_line import cli

import nvcoll
from nvcoll._nvcoll import fabrics, media
from nvcoll.draw import machine_drawing

SVG = "{http://www.w3.org/2000/svg}"

MATRIX = """\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity
GPU0\t X \tNV4\tPXB\tSYS\tPIX\t0-15
GPU1\tNV4\t X \tPXB\tSYS\tPIX\t0-15
GPU2\tPXB\tPXB\t X \tSYS\tPXB\t0-15
GPU3\tSYS\tSYS\tSYS\t X \tSYS\t16-31
NIC0\tPIX\tPIX\tPXB\tSYS\t X \t
"""

ODD = """
gpu = "v100-sxm"
abilities = { peer_access = true, multicast = false, switch_reduction = false, gpu_direct = true }
sources = ["none"]
[[machines]]
name = "odd"
title = "<two> ways, \\"one\\" loner & a switch behind a switch"
[[devices]]
names = "gpu[0-2]"
kind = "gpu"
[[devices]]
names = "pcie[0-1]"
kind = "pcie_switch"
[[devices]]
names = "socket0"
kind = "socket"
[[links]]
from = "pcie0"
to = "socket0"
medium = "pcie3"
lanes = 16
[[links]]
from = "pcie1"
to = "pcie0"
medium = "pcie3"
lanes = 16
[[links]]
from = "gpu[0-1]"
to = "pcie1"
medium = "pcie3"
lanes = 16
[[links]]
from = "gpu0"
to = "gpu1"
medium = "nvlink2"
lanes = 2
[[links]]
from = "gpu0"
to = "gpu1"
medium = "pcie3"
lanes = 4
[[links]]
from = "gpu2"
to = "gpu1"
medium = "nvlink2"
lanes = 1
"""

CLUSTERS = [
    ("hgx-h100", 2, "ib-ndr-8"),
    ("dgx1-v100", 3, "ib-edr-4"),
    ("gb200-nvl72", 2, "ib-xdr-4"),
    ("rtx4090-8-p2p", 2, "ethernet-100-1"),
]

MACHINES = [
    *fabrics(),
    *(nvcoll.cluster(node, nodes=nodes, network=network) for node, nodes, network in CLUSTERS),
    nvcoll.fabric("dgx1-v100[0,3,2]"),
    nvcoll.fabric("hgx-h100[5]"),
    nvcoll.Fabric.from_text(MATRIX, gpu="a6000"),
    nvcoll.Fabric.from_text(ODD),
]

every = pytest.mark.parametrize("one", MACHINES, ids=lambda one: one.name)


def of_class(root: ET.Element, name: str) -> list[ET.Element]:
    return [element for element in root.iter() if element.get("class") == name]


def title(group: ET.Element) -> str:
    return group.find(f"{SVG}title").text


def boxes(root: ET.Element) -> dict[str, tuple[float, float, float, float]]:
    """Left, top, right and bottom of every device, by its name."""
    found = {}
    for group in of_class(root, "device"):
        x, y, width, height = (float(group.find(f"{SVG}rect").get(name)) for name in ("x", "y", "width", "height"))
        name = title(group).partition(": ")[0]
        assert name not in found
        found[name] = (x, y, x + width, y + height)
    return found


def ends(group: ET.Element) -> list[tuple[float, float]]:
    """The two ends of a line."""
    path = group.find(f"{SVG}path").get("d")
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path)]
    across = re.fullmatch(r"M([\d.]+) ([\d.]+)H([\d.]+)", path)
    last = (numbers[2], numbers[1]) if across else (numbers[-2], numbers[-1])
    return [(numbers[0], numbers[1]), last]


@every
def test_every_device_stands_once_inside_the_picture_and_on_no_other(one):
    root = ET.fromstring(machine_drawing.svg(one))
    found = boxes(root)
    assert set(found) == {name for name, *_ in one.devices}
    width, height = float(root.get("width")), float(root.get("height"))
    placed = sorted(found.values())
    for nth, (left, top, right, bottom) in enumerate(placed):
        assert 0 <= left < right <= width and 0 <= top < bottom <= height
        for other in placed[nth + 1 :]:
            if other[0] >= right:
                break
            assert other[1] >= bottom or top >= other[3], "two boxes overlap"


@every
def test_every_link_is_a_line_between_its_devices_with_its_rates(one):
    root = ET.fromstring(machine_drawing.svg(one))
    found, titles = boxes(root), {row.name: row.title for row in media()}
    drawn = Counter()
    for group in of_class(root, "link"):
        names, _, rates = title(group).partition(": ")
        pair = frozenset(names.split(" - "))
        touched = set()
        for x, y in ends(group):
            for name in pair:
                left, top, right, bottom = found[name]
                if left - 9 <= x <= right + 9 and min(abs(y - top), abs(y - bottom), abs(y - (top + bottom) / 2)) < 0.2:
                    touched.add(name)
        assert touched == pair, title(group)
        times = int(rates.split(" times ")[0]) if " times " in rates else 1
        drawn[pair, rates.split(" times ")[-1]] += 2 * times
    expected = Counter()
    for source, target, medium, lanes, line, used in one.links:
        name = titles[medium]
        what = f"{name} x{lanes}" if name.startswith("PCIe") else f"{lanes} x {name}"
        in_use = f"{float(f'{used:.3g}'):g}"  # no exponent
        rates = f"{what}: {line:.4g} GB/s one way at line rate, {in_use} in use"
        expected[frozenset((source, target)), rates] += 1
    assert drawn == expected


@every
def test_every_kind_of_link_is_explained_once_and_counted(one):
    root = ET.fromstring(machine_drawing.svg(one))
    lines = [text.text for text in root.findall(f"{SVG}text") if text.text.endswith(" of these")]
    assert sum(int(re.search(r"(\d+) of these", line)[1]) for line in lines) * 2 == len(one.links)
    assert len(lines) == len({(medium, lanes) for _, _, medium, lanes, *_ in one.links})


@every
def test_no_line_of_text_ends_outside_the_picture(one):
    root = ET.fromstring(machine_drawing.svg(one))
    for line in root.findall(f"{SVG}text"):
        glyph = 9.5 if line.get("font-size") == "16" else 6.2
        assert float(line.get("x")) + glyph * len(line.text) <= float(root.get("width")), line.text


@pytest.mark.parametrize(("gbps", "text"), [(6984.0, "6980"), (12800.0, "12800"), (97.02, "97"), (0.4567, "0.457")])
def test_rates_are_written_without_an_exponent(gbps, text):
    assert machine_drawing._digits(gbps, 3) == text


def test_a_cluster_is_a_box_for_each_node_and_a_machine_is_none():
    root = ET.fromstring(machine_drawing.svg(nvcoll.cluster("hgx-h100", nodes=2, network="ib-ndr-8")))
    frames = of_class(root, "node")
    assert len(frames) == 2
    for nth, frame in enumerate(frames):
        x, y, width, height = (float(frame.get(name)) for name in ("x", "y", "width", "height"))
        for name, (left, top, right, bottom) in boxes(root).items():
            is_inside = x <= left and right <= x + width and y <= top and bottom <= y + height
            assert is_inside == name.startswith(f"n{nth}."), name
    assert not of_class(ET.fromstring(machine_drawing.svg(nvcoll.fabric("hgx-h100"))), "node")


@pytest.mark.parametrize(
    ("node", "nodes", "network"), [("hgx-h100", 8, "ib-ndr-8"), ("hgx-a100", 4, "ib-hdr-8"), ("gb10-1", 4, "ib-ndr-1")]
)
def test_of_many_equal_nodes_one_is_drawn_and_counted(node, nodes, network):
    one = nvcoll.cluster(node, nodes=nodes, network=network)
    root = ET.fromstring(machine_drawing.svg(one))
    assert set(boxes(root)) == {name for name, _, of, _ in one.devices if of in (0, None)}
    assert float(root.get("width")) < 2000
    assert len(of_class(root, "node")) == 1 and f"{nodes} x this node" in [
        text.text for text in root.iter(f"{SVG}text")
    ]
    lines = [text.text for text in root.findall(f"{SVG}text") if text.text.endswith(" of these")]
    assert sum(int(re.search(r"(\d+) of these", line)[1]) for line in lines) * 2 == len(one.links)


@every
def test_every_label_fits_in_its_box(one):
    for group in of_class(ET.fromstring(machine_drawing.svg(one)), "device"):
        label, frame = group.find(f"{SVG}text"), group.find(f"{SVG}rect")
        width = 0.65 * float(label.get("font-size")) * len(label.text)
        assert width <= float(frame.get("width")), label.text


def test_a_rack_stands_half_above_and_half_below_its_switch():
    found = boxes(ET.fromstring(machine_drawing.svg(nvcoll.fabric("gb200-nvl72"))))
    _, top, _, bottom = found["nvswitch"]
    assert sum(found[f"gpu{rank}"][3] <= top for rank in range(72)) == 36
    assert sum(found[f"gpu{rank}"][1] >= bottom for rank in range(72)) == 36


def test_notebooks_show_machines_that_can_be_read():
    board = nvcoll.fabric("hgx-h100")
    assert board._repr_svg_() == machine_drawing.svg(board)
    assert nvcoll.cluster("hgx-h100", nodes=64, network="ib-ndr-8")._repr_svg_() is None


def test_the_command_draws_to_a_file(tmp_path):
    file = tmp_path / "board.svg"
    done = cli("fabric", "hgx-a100", "--svg", str(file))
    assert file.read_text() == machine_drawing.svg(nvcoll.fabric("hgx-a100"))
    assert "drawn to" in done.stderr and "topo -m" in done.stdout


def test_the_command_refuses_what_it_cannot_draw(tmp_path):
    assert "end its name in .svg" in cli("fabric", "hgx-a100", "--svg", str(tmp_path / "board.png"), status=2).stderr
    assert "No such file" in cli("fabric", "hgx-a100", "--svg", str(tmp_path / "no" / "a.svg"), status=2).stderr
    assert "name it" in cli("fabric", "--svg", str(tmp_path / "board.svg"), status=2).stderr
