"""Networks of one's own from Python and on the command line; what their numbers must be is tested in Rust."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import command_line
import pytest

import nvcoll
from nvcoll._nvcoll import networks
from nvcoll.draw import machine_drawing

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "networks"
GIB = 1 << 30
SVG = "{http://www.w3.org/2000/svg}"

PICTURED = {
    "fat-tree": "hgx-h100x32",
    "rail-only": "hgx-h100x16",
    "nvl72-rails": "gb200-nvl72x16",
    "dragonfly-plus": "hgx-a100-4x32",
    "torus": "hgx-h100x16",
}
"""The examples, each with the nodes of its picture."""

every = pytest.mark.parametrize("name", PICTURED)


def example(name: str) -> nvcoll.Fabric:
    return nvcoll.fabric(f"{PICTURED[name]}+{EXAMPLES / name}.toml")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_network_is_read_in_the_encodings_of_machines(tmp_path, encoding):
    text = (EXAMPLES / "fat-tree.toml").read_text()
    (tmp_path / "windows.toml").write_text(text, encoding=encoding)
    assert nvcoll.Network.from_file(tmp_path / "windows.toml") == nvcoll.Network.from_text(text)


def test_a_network_is_a_name_a_file_or_an_object():
    file = EXAMPLES / "fat-tree.toml"
    network = nvcoll.Network.from_file(file)
    assert network == nvcoll.Network.from_text(file.read_text())
    made = [nvcoll.cluster("hgx-h100", nodes=16, network=given) for given in (network, file, str(file))]
    assert made[0] == made[1] == made[2] == nvcoll.fabric(f"hgx-h100x16+{file}")
    assert made[0].name == "hgx-h100x16+fat-tree" and network.source in made[0].sources
    assert (network.name, network.gbps) == ("fat-tree", 400) and "4:1" in repr(network)
    shipped = next(one for one in networks() if one.name == "ib-ndr-8")
    assert nvcoll.cluster("hgx-h100", nodes=3, network=shipped) == nvcoll.fabric("hgx-h100x3+ib-ndr-8")


def test_an_imported_machine_is_a_node_of_it(tmp_path):
    rows = "\n".join(f"GPU{row}\t" + "\t".join("X" if row == at else "NV18" for at in range(4)) for row in range(4))
    (tmp_path / "topo.txt").write_text("\tGPU0\tGPU1\tGPU2\tGPU3\n" + rows + "\n")
    one = nvcoll.fabric(f"{tmp_path / 'topo.txt'}x4+{EXAMPLES / 'rail-only.toml'}", gpu="h100-sxm")
    assert (one.nodes, one.world_size) == (4, 16) and one.route(0, 15)[1] == "network"


@every
def test_every_example_answers_all_questions(name):
    one = example(name)
    last = one.world_size - 1
    assert one.route(0, last)[1] == "network" and one.matrix(first=2)[0][0] == "X"
    assert one.alone(first=9)[0][8] >= one.at_once(first=9)[0][8] > 0
    assert one.cut([0]) > 0 and one.nccl("all_reduce", GIB).chosen.time_us > 0
    for collective in ("all_reduce", "all_to_all"):
        found = one.predict(collective, GIB)
        assert found.time_us >= one.floor(collective, GIB) > 0 and found.bottleneck


@every
def test_every_example_has_a_picture_that_is_as_today(name):
    written = ROOT / "docs" / "pictures" / "networks" / f"{name}.svg"
    command = f"nvcoll fabric {PICTURED[name]}+examples/networks/{name}.toml"
    assert f"# {command}\n" in (EXAMPLES / f"{name}.toml").read_text()
    assert written.read_text() == machine_drawing.svg(example(name)), f"run: {command} --svg {written}"


@pytest.mark.parametrize("name", ["fat-tree", "nvl72-rails", "dragonfly-plus", "torus"])
def test_a_picture_has_every_switch_once_and_all_links_of_the_network(name):
    one = example(name)
    root = ET.fromstring(machine_drawing.svg(one))
    titles = [group.find(f"{SVG}title").text for group in root.iter(f"{SVG}g") if group.get("class") == "device"]
    shown = {title.partition(":")[0] for title in titles}
    switches = {name for name, kind, *_ in one.devices if kind == "network_switch"}
    assert switches < shown and len(titles) == len(shown)
    assert all(name.startswith("n") and name[1].isdigit() for name in shown - switches)
    lines = [text.text for text in root.findall(f"{SVG}text") if text.text.endswith(" of these")]
    links = sum(source in switches or target in switches for source, target, *_ in one.links)
    assert sum(int(re.search(r"(\d+) of these", line)[1]) for line in lines) * 2 == links
    assert float(root.get("width")) < 2000


def test_what_limits_a_prediction_is_the_narrow_tier_and_simulation_agrees():
    one = nvcoll.cluster("hgx-h100", nodes=16, network=EXAMPLES / "fat-tree.toml")
    found = one.predict("all_to_all", GIB)
    assert "the narrowest cut of the network" in found.bottleneck and "not validated" in found.trust
    simulated = one.simulate("direct", GIB, collective="all_to_all")
    assert any("spine" in piece.words for piece in simulated.critical)
    # The cut is idle while a schedule sends inside pods.
    assert one.floor("all_to_all", GIB) < found.time_us < simulated.time_us < 2 * found.time_us


def test_a_wrong_description_is_refused_with_the_field(tmp_path):
    text, field = (EXAMPLES / "fat-tree.toml").read_text(), r"tiers\[1\]\.children"
    with pytest.raises(nvcoll.InvalidArgument, match="line 10"):
        nvcoll.Network.from_text(text.replace("[[tiers]]", "[[tiers"))
    text = text.replace("children = 4", "children = 0")
    with pytest.raises(nvcoll.InvalidArgument, match=field):
        nvcoll.Network.from_text(text)
    (tmp_path / "wrong.toml").write_text(text)
    done = command_line.done("fabric", f"hgx-h100x2+{tmp_path / 'wrong.toml'}")
    assert done.returncode == 2 and re.search(field, done.stderr.replace("\n", " ")), done.stderr


def test_more_nodes_than_it_holds_and_no_file_are_refused():
    with pytest.raises(nvcoll.InvalidArgument, match="they hold 64 nodes, not 65"):
        nvcoll.cluster("hgx-h100", nodes=65, network=EXAMPLES / "fat-tree.toml")
    with pytest.raises(FileNotFoundError):
        nvcoll.cluster("hgx-h100", nodes=2, network="nowhere.toml")
    with pytest.raises(nvcoll.InvalidArgument, match="no network is called"):
        nvcoll.cluster("hgx-h100", nodes=2, network="nowhere")
    assert command_line.done("fabric", "hgx-h100x2+nowhere.toml").returncode == 2


def test_more_cards_than_nccl_knows_are_said_and_predicted(tmp_path):
    text = (EXAMPLES / "nvl72-rails.toml").read_text()
    (tmp_path / "cards.toml").write_text(re.sub(r"(?m)^nics = .*$", "nics = 64", text))
    machine = nvcoll.cluster("gb200-nvl72", nodes=2, network=tmp_path / "cards.toml")
    assert machine.predict("all_reduce", 1 << 20).algorithm in ("Ring", "Tree")
    with pytest.raises(nvcoll.InvalidArgument, match="at most 640 network cards of a node or rack, and there are 1152"):
        machine.nccl("all_reduce", 1 << 20)
