"""Judging predictions: what a system weighs, who is left out, coverage, disagreement, and the table that is shipped."""

import csv
import io
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

import nvcoll
from nvcoll import InvalidArgument

import judging
import nccl_estimate
import pytorch_estimate
from judging import BANDS, MIB, Judged, Prediction, Row, System

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "data" / "nccl-tests"
TABLES = ROOT / "rust" / "nvcoll-fabric" / "src"
NO_PRESET_YET = {"mi250x-16"}
SYSTEM_COLUMNS = ["system_id", "family", "fabric", "network", "n_gpus", "n_nodes", "fabric_class", "launch"]
ROW_COLUMNS = ["system_id", "collective", "algo", "proto", "dtype", "nbytes", "time_us", "in_place", "healthy"]


@cache
def shipped():
    return judging.read(SHIPPED)


def system(name="a", family="f", fabric="box", launch="single_process", nodes=1, kind="c"):
    return System(name, family, fabric, "", 8, nodes, kind, launch, {})


def row(owner, time_us, nbytes=MIB, collective="all_reduce", in_place=False, algo="", healthy="yes"):
    return Row(owner, collective, algo, "", "float", nbytes, time_us, in_place, healthy)


def judged(owner, measured, predicted, low=None, high=None):
    return Judged(row(owner, measured), Prediction(predicted, low, high))


@pytest.fixture
def folder(tmp_path):
    """Returns a function that writes both tables; what is given replaces values of their only line."""

    def write(systems=None, rows=None, lacks=None):
        place = {"system_id": "a", "family": "f", "fabric": "box", "network": "", "n_gpus": "8", "n_nodes": "1"}
        place |= {"fabric_class": "c", "launch": "unknown"} | (systems or {})
        line = {"system_id": "a", "collective": "all_reduce", "algo": "", "proto": "", "dtype": "float"}
        line |= {"nbytes": "8", "time_us": "2.5", "in_place": "1", "healthy": "yes"} | (rows or {})
        for name, columns, values in (
            ("systems.csv", SYSTEM_COLUMNS, place),
            ("measurements.csv", ROW_COLUMNS, line),
        ):
            kept = [column for column in columns if column != lacks]
            with (tmp_path / name).open("w", newline="") as file:
                csv.writer(file).writerows([kept, [values[column] for column in kept]])
        return tmp_path

    return write


def test_a_table_is_read_with_its_types(folder):
    (only,) = judging.read(folder())
    assert (only.nbytes, only.time_us, only.in_place, only.system.n_gpus) == (8, 2.5, True, 8)
    assert only.system.facts["family"] == "f"


@pytest.mark.parametrize(
    ("systems", "rows", "lacks", "message"),
    [
        ({"n_gpus": "many"}, {}, None, r"systems\.csv, line 2: .*'many'"),
        ({"launch": "mpirun"}, {}, None, "found 'mpirun', expected one of process_per_gpu"),
        ({}, {"system_id": "b"}, None, "system 'b' is not in systems.csv"),
        ({}, {"time_us": "0"}, None, "expected both above zero"),
        ({}, {"time_us": "nan"}, None, "expected both above zero"),
        ({}, {"nbytes": "-8"}, None, "expected both above zero"),
        ({}, {"in_place": "2"}, None, "found '2', expected one of 0, 1"),
        ({}, {"healthy": "ill"}, None, "found 'ill'"),
        ({}, {}, "proto", r"measurements\.csv, line 2: there is no column 'proto'"),
        ({}, {}, "family", r"systems\.csv, line 2: there is no column 'family'"),
    ],
)
def test_a_table_that_cannot_be_is_refused_with_its_line(folder, systems, rows, lacks, message):
    with pytest.raises(InvalidArgument, match=message):
        judging.read(folder(systems, rows, lacks))


def test_every_size_has_one_band():
    edges = [1, 64 * 1024, 64 * 1024 + 1, MIB - 1, MIB, 128 * MIB - 1, 128 * MIB, 1 << 40]
    expected = [band for band, _, _ in BANDS for _ in range(2)]
    assert [row(system(), 1.0, nbytes=size).band for size in edges] == expected


def test_a_system_counts_once_however_many_rows_it_has():
    many, few, other = system("many"), system("few"), system("other")
    items = [judged(many, 100, 100)] * 60 + [judged(few, 100, 130), judged(other, 100, 80)]
    cell = judging.cell(items)
    assert (cell.systems, cell.rows) == (3, 62)
    assert cell.median == pytest.approx(0.2) and cell.bias == pytest.approx(0.0)
    assert cell.p90 == pytest.approx(0.28)


def test_errors_of_both_signs_do_not_cancel_in_a_system():
    owner = system()
    cell = judging.cell([judged(owner, 100, 150), judged(owner, 100, 50)])
    assert cell.median == pytest.approx(0.5) and cell.bias == pytest.approx(0.0)


def test_coverage_is_of_rows_with_an_interval_per_system():
    one, other = system("one"), system("other")
    items = [judged(one, 100, 90, 80, 120), judged(one, 100, 90, 80, 99), judged(one, 100, 90)]
    cell = judging.cell([*items, judged(other, 100, 90, 100, 100)])
    assert (cell.coverage, cell.worst_coverage) == (0.75, 0.5)
    assert judging.cell([judged(one, 100, 90)]).coverage is None
    assert judging.cell([]) is None


def test_rows_of_which_nothing_is_said_are_not_judged():
    assert judging.judge([row(system(), 1.0)], lambda asked: None) == []


def test_only_healthy_rows_count_unless_asked():
    rows = [row(system(), 1.0, healthy=health) for health in judging.HEALTHS]
    assert [item.healthy for item in judging.healthy(rows)] == ["yes"]
    assert [item.healthy for item in judging.healthy(rows, also_unknown=True)] == ["yes", "unknown"]


def test_measurements_of_the_same_hardware_are_compared_call_by_call():
    one, same, other = system("one"), system("same"), system("other", fabric="else")
    rows = [row(one, 100), row(same, 120), row(other, 900), row(one, 100, in_place=True), row(same, 80, in_place=True)]
    rows += [row(one, 100, nbytes=2 * MIB)]
    assert judging.disagreements(rows) == {("c", "all_reduce", "1 - 128 MiB"): pytest.approx((0.2 + 0.25) / 2)}


def test_what_ran_by_another_algorithm_is_not_compared():
    one, same = system("one"), system("same")
    assert judging.disagreements([row(one, 100, algo="Ring"), row(same, 200, algo="NVLS")]) == {}
    assert judging.disagreements([row(one, 100, algo="Ring"), row(same, 200)])
    both = [row(one, 100, algo="Ring"), row(one, 50, algo="NVLS"), row(same, 200)]
    assert judging.disagreements(both) == {}


def test_scopes_tell_racks_from_nodes_and_launches_that_are_not_known():
    assert judging.by_scope(row(system(), 1.0, nbytes=8))[0] == "one node"
    assert judging.by_scope(row(system(launch="unknown"), 1.0, nbytes=8))[0] == "one node, launch unknown"
    assert judging.by_scope(row(system(launch="unknown"), 1.0))[0] == "one node"
    assert judging.by_scope(row(system(nodes=4), 1.0))[0] == "several nodes"
    assert judging.by_scope(row(system(nodes=4, kind="mnnvl_nvl72"), 1.0))[0] == "NVLink rack"
    assert judging.by_scope(row(system(), 1.0, collective="all_gather"))[1] == "others"


def test_two_predictors_are_compared_on_the_rows_of_which_both_say_something():
    easy, hard = row(system("easy"), 100), row(system("hard"), 100)
    ours = judging.judge([easy, hard], lambda asked: Prediction(110.0 if asked is easy else 190.0))
    theirs = judging.judge([easy, hard], lambda asked: Prediction(130.0) if asked is easy else None)
    ((key, (mine, other)),) = judging.beside(ours, theirs).items()
    assert (key[0], mine.systems, other.systems) == ("one node", 1, 1)
    assert (mine.median, other.median) == (pytest.approx(0.1), pytest.approx(0.3))


def test_the_report_names_cells_and_worst_rows():
    rows = [row(system("one"), 100), row(system("same"), 110), row(system("far"), 100, nbytes=1 << 30)]
    output = io.StringIO()
    items = judging.judge(rows, lambda asked: Prediction(120.0, 90.0, 130.0))
    judging.report(rows, {"toy": items}, Console(file=output, width=160))
    text = output.getvalue()
    assert "15 % / 19 %  +15  100 % in" in text and "10 %" in text
    assert "worst rows of toy" in text and "far" in text


def test_the_shipped_table_can_be_read_and_hangs_together():
    rows = shipped()
    owners = {item.system.system_id: item.system for item in rows}
    assert (len(rows), len(owners)) == (10833, 182)
    for owner in owners.values():
        nodes, gpus, each = (int(owner.facts[name]) for name in ("n_nodes", "n_gpus", "gpus_per_node"))
        assert nodes * each == gpus, owner.system_id
        assert owner.family and owner.fabric and owner.facts["source"], owner.system_id
        assert (owner.launch == "unknown") == (not owner.facts["launch_source"]), owner.system_id
        assert nodes > 1 or not owner.network, owner.system_id
        assert all(name.startswith("NCCL_") for name in nccl_estimate.settings(owner)), owner.system_id


def test_a_system_that_turns_nvls_off_is_predicted_without_it():
    owners = {item.system.system_id: item.system for item in shipped()}
    off, on = owners["gb200_32n4_oci_2rack"], owners["gb300_32n4_oci_2rack"]
    assert nccl_estimate.settings(off) == {"NCCL_NVLS_ENABLE": "0"} and nccl_estimate.settings(on) == {}
    machine = nccl_estimate.built(off)
    assert machine.predict("all_reduce", MIB, algorithm="NVLSTree").algorithm == "NVLSTree"
    with pytest.raises(InvalidArgument, match="NVLS"):
        machine.predict("all_reduce", MIB, algorithm="NVLSTree", settings=nccl_estimate.settings(off))


def test_fabrics_and_networks_of_the_shipped_table_are_presets():
    files = [tomllib.loads(file.read_text()) for file in (TABLES / "presets").glob("*.toml")]
    machines = {machine["name"] for file in files for machine in file["machines"]} | NO_PRESET_YET
    networks = {row["name"] for row in tomllib.loads((TABLES / "hardware" / "networks.toml").read_text())["network"]}
    for owner in {item.system.system_id: item.system for item in shipped()}.values():
        assert re.sub(r"\[.*\]$", "", owner.fabric) in machines, owner.system_id
        assert not owner.network or owner.network in networks, owner.system_id


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("Tesla V100-SXM2-16GB", "VOLTA"),
        ("RTX 4090 (P2P driver)", "AMPERE"),
        ("GH200 120GB", "HOPPER"),
        ("GB300", "BLACKWELL"),
    ],
)
def test_pytorchs_generation_of_a_gpu(gpu, expected):
    assert pytorch_estimate.generation(gpu) == expected


def test_pytorch_knows_nothing_of_other_makers():
    assert pytorch_estimate.generation("MI300X") is None


def test_pytorchs_estimate_is_asked_with_the_facts_of_the_system():
    pytest.importorskip("torch")
    predict = pytorch_estimate.predictor()
    rows = {item.system.system_id: item for item in shipped() if item.nbytes == 1 << 30}
    assert predict(rows["mi300x_8_aac8"]) is None
    old, new = (predict(rows[name]).time_us for name in ("a100_8_mleng", "h100_8_dgxc"))
    assert old == pytest.approx(rows["a100_8_mleng"].time_us, rel=0.1) and new < old


def on_board(**facts):
    return System("h", "f", "hgx-h100", "", 8, 1, "c", "unknown", {"nccl_version": "", **facts})


def test_nccls_estimate_is_that_of_the_machine_the_version_and_what_was_forced():
    free, forced, other = (row(on_board(nccl_version="2.27.7"), 100.0, algo=algo) for algo in ("", "Ring", "CollNet"))
    predict = nccl_estimate.predictor([free, forced, other])
    answer = nvcoll.fabric("hgx-h100").nccl("all_reduce", MIB, version="2.27.7")
    ring = next(way for way in answer.candidates if way.algorithm == "Ring")
    assert predict(free).time_us == answer.chosen.time_us
    assert predict(forced).time_us == ring.time_us
    assert predict(other) is None


def test_nccls_estimate_is_silent_where_there_is_none():
    last_resort = System("r", "f", "rtx5090-8-staged", "", 8, 1, "c", "unknown", {"nccl_version": ""})
    rows = [
        row(system(fabric="box"), 1.0),
        row(on_board(), 1.0, collective="all_to_all"),
        row(on_board(nccl_version="2.4.2"), 1.0),
        row(last_resort, 1.0),
    ]
    predict = nccl_estimate.predictor(rows)
    assert [predict(item) for item in rows] == [None] * len(rows)


@pytest.mark.parametrize(
    ("text", "expected"), [("2.26.x", "2.26"), ("2.8/2.9 (CUDA 11.1)", "2.8"), ("RCCL 2.22.3", None)]
)
def test_the_version_of_a_cell(text, expected):
    assert nccl_estimate.version(text) == expected


def test_systems_of_the_shipped_table_have_machines_of_their_size():
    owners = {item.system.system_id: item.system for item in shipped()}
    machines = {name: nccl_estimate.machine(owner) for name, owner in owners.items()}
    assert machines["h100_8_dgxc"] == nvcoll.fabric("hgx-h100")
    assert all(one is None or one.world_size == owners[name].n_gpus for name, one in machines.items())


def tool(folder, *arguments, status=0):
    command = [sys.executable, str(ROOT / "tools" / "predict" / "validate.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)
    assert done.returncode == status, done.stderr
    return done


def test_the_tool_replays_a_table(tmp_path):
    known = {item.system.system_id for item in shipped() if item.system.fabric == "hgx-h100"}
    with (SHIPPED / "measurements.csv").open(newline="", encoding="utf-8") as file:
        head, *lines = file
    few = [line for line in lines if line.split(",")[0] in known][:40]
    (tmp_path / "few.csv").write_text("".join([head, *few]))
    text = tool(tmp_path, "--measurements", "few.csv", "--worst", 2).stdout
    assert "NCCL's own estimate" in text and "one line per scope" in text and "healthy rows of" in text


def test_a_table_that_is_not_there_is_named(tmp_path):
    assert "no file none.csv" in tool(tmp_path, "--systems", "none.csv", status=1).stderr
