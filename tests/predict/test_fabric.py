"""Machines as Python and the command line see them; what their numbers must be is tested in Rust."""

import math
import re

import pytest
from command_line import cli

import nvcoll
from nvcoll._nvcoll import collectives, fabrics, networks, text_formats

TWO = """
gpu = "rtx3090"
abilities = { peer_access = false, multicast = false, switch_reduction = false, gpu_direct = false }
sources = ["none"]
[[machines]]
name = "two"
title = "two cards and a bridge"
[[devices]]
names = "gpu[0-1]"
kind = "gpu"
[[links]]
from = "gpu0"
to = "gpu1"
medium = "nvlink3-bridge"
lanes = 4
"""


def test_every_machine_says_what_it_is_and_how_its_numbers_are_known():
    for one in fabrics():
        assert nvcoll.fabric(one.name) == one
        assert one.title and one.sources and one.trust
        assert one.world_size == len([kind for _, kind, *_ in one.devices if kind == "gpu"])


def test_rates_are_nan_for_a_gpu_and_itself_only():
    for rates in (nvcoll.fabric("dgx1-v100").alone(), nvcoll.fabric("dgx1-v100").at_once()):
        assert all(math.isnan(rate) == (row == column) for row, r in enumerate(rates) for column, rate in enumerate(r))


def test_no_collective_is_faster_than_the_links_of_a_gpu_allow():
    board = nvcoll.fabric("hgx-h100")
    # The switch folds: each GPU sends 1.125 N through 18 links of 25 GB/s and 16 lanes of PCIe 5.
    assert board.floor("all_reduce", 1 << 30) == pytest.approx((1 << 30) * 1.125 / (450 + 63.008) / 1e3, rel=0.01)
    assert board.floor("barrier", 0) > 0
    for name in (row.name for row in collectives()):
        assert board.floor(name, 1 << 20) <= board.floor(name, 1 << 21)


def test_a_description_is_text_or_a_file(tmp_path):
    (tmp_path / "two.toml").write_text(TWO)
    for one in (nvcoll.Fabric.from_text(TWO), nvcoll.Fabric.from_file(tmp_path / "two.toml")):
        assert one.matrix() == [["X", "NV4"], ["NV4", "X"]]
        assert one.route(0, 1) == (["gpu0", "gpu1"], "nvlink")
    with pytest.raises(FileNotFoundError):
        nvcoll.Fabric.from_file(tmp_path / "three.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("x", "written in no format that is read: pass .*nvidia-smi topo -m"),
        ("rocm-smi", ".*, or ".join(re.escape(row.name) for row in text_formats())),
        ("sources = []", "missing field"),
        (TWO.replace('"gpu1"', '"gpu7"'), "gpu7"),
        (TWO.replace("nvlink3-bridge", "string"), "no medium is called `string`"),
        (TWO.replace("lanes = 4", "lanes = 0"), "no lane"),
        (TWO.replace("gpu[0-1]", "gpu[1-0]"), "gpu[1-0]"),
        (TWO.replace('gpu = "rtx3090"', 'gpu = "voodoo"'), "line 2: no GPU is called `voodoo`"),
        ('gpu = "rtx409"', "line 1: no GPU is called `rtx409`: did you mean rtx4090?"),
    ],
)
def test_what_is_no_fabric_is_refused(text, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message.replace("[", r"\[")):
        nvcoll.Fabric.from_text(text)


SMI = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-55\nGPU1\tNV18\t X \t0-55\n"

XML = """<system version="1"><cpu numaid="0" vendor="GenuineIntel" modelid="143">
<pci busid="1" class="0x030200" link_speed="32 GT/s" link_width="16"/>
<pci busid="2" class="0x030200" link_speed="32 GT/s" link_width="16"/></cpu></system>"""


def test_what_machines_print_is_text_or_a_file(tmp_path):
    (tmp_path / "topo.txt").write_text(SMI)
    (tmp_path / "topo.xml").write_text(XML)
    assert nvcoll.Fabric.from_text(SMI, gpu="h100-sxm").matrix()[0] == ["X", "NV18"]
    assert nvcoll.Fabric.from_text(XML, gpu="h100-pcie").matrix()[0] == ["X", "PHB"]
    for path, gpu in (("topo.txt", "h100-sxm"), ("topo.xml", "h100-pcie")):
        for source in (tmp_path / path, str(tmp_path / path)):
            assert nvcoll.Fabric.from_file(source, gpu=gpu).world_size == 2
    with pytest.raises(nvcoll.InvalidArgument, match="pass gpu"):
        nvcoll.Fabric.from_text(SMI)
    listed = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n" + SMI
    assert nvcoll.Fabric.from_text(listed) == nvcoll.Fabric.from_text(listed, gpu="h100-sxm")
    with pytest.raises(nvcoll.InvalidArgument, match="gpu is h200, but it is about GPUs h100-sxm"):
        nvcoll.Fabric.from_text(listed, gpu="h200")
    (tmp_path / "powershell.txt").write_text(listed.replace("\n", "\r\n"), encoding="utf-16")
    assert "NV18" in cli("fabric", str(tmp_path / "powershell.txt")).stdout
    known = XML.replace('class="0x030200"', 'class="0x030200" vendor="0x10de" device="0x2331"')
    (tmp_path / "known.xml").write_text(known)
    assert "H100 PCIe" in cli("fabric", str(tmp_path / "known.xml")).stdout
    with pytest.raises(nvcoll.InvalidArgument, match="leave `gpu` out"):
        nvcoll.Fabric.from_text(TWO, gpu="h100-sxm")
    assert "NV18" in cli("fabric", str(tmp_path / "topo.txt"), "--gpu", "h200").stdout
    assert "--gpu" in cli("fabric", str(tmp_path / "topo.xml"), status=2).stderr
    assert "99" in cli("fabric", str(tmp_path / "topo.xml"), "--gpu", "rtx99", status=2).stderr


def dump_of(links: list[int], device: str) -> str:
    """What NCCL dumps on a board of eight GPUs with a link to each switch chip. Made for this test."""
    chips = "".join(f'<nvlink target="c{n}" count="{count}" tclass="0x068000"/>' for n, count in enumerate(links))
    pci = f'class="0x030200" vendor="0x10de" device="{device}" link_speed="32 GT/s" link_width="16"'
    card = '<pci busid="n{n}" class="0x020700"><nic><net name="mlx5_{n}" speed="400000"/></nic></pci>'
    gpu = '<pci busid="{n}" ' + pci + '><gpu dev="{n}" rank="{n}">' + chips + "</gpu></pci>"
    switches = ['<pci busid="s" class="0x060400">' + (gpu + card).replace("{n}", str(n)) + "</pci>" for n in range(8)]
    sockets = [f'<cpu numaid="{n}">{"".join(switches[4 * n : 4 * n + 4])}</cpu>' for n in range(2)]
    return f'<system version="1">{"".join(sockets)}</system>'


@pytest.mark.parametrize(
    ("board", "links", "device"),
    [("hgx-h100", [5, 5, 4, 4], "0x2330"), ("hgx-h200", [5, 5, 4, 4], "0x2335"), ("hgx-b200", [9, 9], "0x2901")],
)
def test_a_dump_is_the_board_that_wrote_it_alone_and_in_a_cluster(tmp_path, board, links, device):
    file = tmp_path / "nccl.xml"
    file.write_text(dump_of(links, device))
    for nodes in ("", "x2+ib-ndr-8", "x4+ib-ndr-8"):
        dumped, known = nvcoll.fabric(f"{file}{nodes}"), nvcoll.fabric(f"{board}{nodes}")
        assert dumped.matrix() == known.matrix(), nodes
        for nbytes in (256 << 20, 1 << 30, 8 << 30):
            times = [one.predict("all_reduce", nbytes).time_us for one in (dumped, known)]
            assert times[0] == pytest.approx(times[1], rel=0.02), (nodes, nbytes)


def test_nodes_and_a_network_make_a_cluster():
    pair = nvcoll.cluster("hgx-h100", nodes=2, network="ib-ndr-8")
    assert (pair.world_size, pair.nodes) == (16, 2)
    assert pair == nvcoll.fabric("hgx-h100x2+ib-ndr-8")
    assert nvcoll.Node(16, on=pair.name).report(on=[pair.name]).totals[0].machine == pair.name
    assert pair.route(0, 8)[1] == "network"
    assert pair.matrix()[0][7:9] == ["NV18", "NET"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: nvcoll.fabric("hgx-h900"),
        lambda: nvcoll.fabric("hgx-h100[8]"),
        lambda: nvcoll.cluster("hgx-h100", nodes=0, network="ib-ndr-8"),
        lambda: nvcoll.cluster("hgx-h100", nodes=2, network="carrier-pigeon"),
        lambda: nvcoll.fabric("hgx-h100").cut([8]),
        lambda: nvcoll.fabric("hgx-h100").cut([-1]),
        lambda: nvcoll.fabric("hgx-h100").cut([0, 0]),
        lambda: nvcoll.fabric("hgx-h100").cut([]),
        lambda: nvcoll.fabric("hgx-h100").among([-1]),
        lambda: nvcoll.fabric("hgx-h100").among([2**40]),
        lambda: nvcoll.fabric("hgx-h100").among([1, 1]),
        lambda: nvcoll.fabric("hgx-h100").floor("all_reduce", -1),
        lambda: nvcoll.fabric("hgx-h100").floor("all_shout", 1),
        lambda: nvcoll.fabric("hgx-h100").route(0, 8),
        lambda: nvcoll.fabric("hgx-h100x+ib-ndr-8"),
    ],
)
def test_what_there_is_not_is_a_typed_error(wrong):
    with pytest.raises(nvcoll.InvalidArgument):
        wrong()


def test_the_command_lists_machines_and_networks():
    text = cli("fabric").stdout
    assert all(one.name in text for one in fabrics())
    assert all(row.name in text for row in networks())


@pytest.mark.parametrize("name", ["dgx1-v100", "hgx-h100x2+ib-ndr-8", "gb200-nvl72", "hgx-a100[0-3]"])
def test_the_command_shows_a_machine(name):
    text = cli("fabric", name).stdout
    assert "topo -m" in text and "at once" in text and "source" in text


@pytest.mark.parametrize("file", ["nowhere.toml", "nowhere.txt", "nowhere.xml"])
def test_a_file_that_is_missing_is_named(file):
    assert cli("fabric", file, status=2).stderr == f"nvcoll: {file}: No such file or directory\n"
    with pytest.raises(FileNotFoundError) as raised:
        nvcoll.Fabric.from_file("nowhere.toml")
    assert str(raised.value.filename) == "nowhere.toml"


def test_the_list_and_a_prediction_say_alike_what_is_not_validated():
    sizes = [1 << 10, 1 << 18, 1 << 24, 1 << 30]
    for one in fabrics():
        if one.world_size == 1:
            assert one.trust == "not validated"
        elif one.trust == "not validated":
            assert {each.trust for each in one.predict("all_reduce", sizes)} == {one.trust}
        else:
            assert one.trust in {each.trust for each in one.predict("all_reduce", sizes)}


def test_a_name_that_is_much_too_long_is_cut_off():
    for name in ("a" * 10**6, "a" * 10**6 + "x2+ib-ndr-8", f"hgx-h100[{'0,' * 10**5}]", "hgx-h100x2+" + "b" * 10**6):
        with pytest.raises(nvcoll.InvalidArgument) as raised:
            nvcoll.fabric(name)
        assert len(str(raised.value)) < 1000


CARDS = """\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity
GPU0\t X \tNV18\tPIX\tNODE\t0-55
GPU1\tNV18\t X \tNODE\tPIX\t0-55
"""


def test_nodes_from_a_file_make_a_cluster(tmp_path):
    file = tmp_path / "topo.txt"
    file.write_text(CARDS)
    pair = nvcoll.cluster(nvcoll.Fabric.from_text(CARDS, gpu="h100-sxm"), nodes=2, network="ib-ndr-1")
    assert (pair.world_size, pair.nodes, pair.route(0, 2)[1]) == (4, 2, "network")
    assert "topo.txtx2+ib-ndr-1" in cli("fabric", f"{file}x2+ib-ndr-1", "--gpu", "h100-sxm").stdout
    assert (
        "topo.txtx2+ib-ndr-1" in cli("predict", "all_reduce", "--on", f"{file}x2+ib-ndr-1", "--gpu", "h100-sxm").stdout
    )
    assert "8 per node" in cli("fabric", f"{file}x2+ib-ndr-8", "--gpu", "h100-sxm", status=2).stderr


@pytest.mark.parametrize("first", [-1, 2**32, 1.5, "2", True])
def test_the_number_of_ranks_that_a_matrix_shows_is_a_whole_number(first):
    fabric = nvcoll.fabric("hgx-h100")
    for matrix in (fabric.matrix, fabric.alone, fabric.at_once):
        with pytest.raises(nvcoll.InvalidArgument, match="it must be a whole number, at least 0"):
            matrix(first=first)
        assert len(matrix(first=2)) == 2 and len(matrix(first=100)) == len(matrix(first=None)) == 8
