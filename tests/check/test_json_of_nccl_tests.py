"""The JSON of nccl-tests (``-J FILE``): read as the text of the same run."""

import json

import pytest
from check_logs import LOGS
from hypothesis import given
from hypothesis import strategies as st

from nvcoll.check import formats

TEXTS = ("nccl-tests-290-1node.log", "nccl-tests-309-2node.log", "hpc-ai-envs-30-mi300x.log")


def half(words):
    names = ("time", "alg_bw", "bus_bw", "nwrong")
    return {name: None if word == "N/A" else float(word) for name, word in zip(names, words, strict=True)}


def document(file):
    """Returns a public log as nccl-tests 2.17.3 writes it, by ``src/util.cu``; and the text."""
    text = (LOGS / file).read_text(encoding="utf-8")
    (log,) = formats.read(file, text)
    per_process = log.ranks if log.launch == "single_process" else 1
    first = range(0, len(log.hosts), per_process)
    rows = [line.split() for line in text.split("\n") if len(line.split()) == 13 and line.split()[0].isdigit()]
    written = {
        "version": 3,
        "start_time": "2025-10-01 12:00:00",
        "args": [f"/opt/nccl-tests/build/{log.collective}_perf", "-J", "out.json"],
        "env": ["HOME=/root", *(f"{name}={value}" for name, value in log.settings.items())],
        "nccl_version": int("{}{:0>2}{:0>2}".format(*log.version.split("."))) if log.version else 0,
        "config": {
            "nthreads": 1,
            "ngpus": per_process,
            "graph": 0,
            "blocking_collectives": "false",
            "devices": [
                {"rank": at, "group": 0, "pid": 7, "hostname": log.hosts[at], "device": log.devices[at],
                 "device_hex": "0000:1b:00", "device_info": log.gpus[at]}
                for at in first
            ],
        },
        "results": [
            {"size": int(row[0]), "count": int(row[1]), "type": row[2], "redop": row[3], "root": f"{row[4]:>6}",
             "out_of_place": half(row[5:9]), "in_place": half(row[9:]), "actual_iterations": 20,
             "experiment_name": "AllReduce"}
            for row in rows
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 1.0, "okay": "unchecked"},
        "errors": [],
        "end_time": "2025-10-01 12:01:00",
    }  # fmt: skip
    return json.dumps(written, separators=(",", ":")), text


def facts(log):
    times = [(row.nbytes, row.out_of_place_us, row.in_place_us) for row in log.rows]
    return log.collective, log.ranks, times, log.hosts, log.devices, log.gpus, log.jobs, log.launch, log.unlike


@pytest.mark.parametrize("file", TEXTS)
def test_json_and_text_of_a_run_say_the_same(file):
    written, text = document(file)
    (log,), (other,) = formats.read("log", written), formats.read("log", text)
    assert facts(log) == facts(other)
    assert [row.line for row in log.rows] == [*range(1, len(log.rows) + 1)]


def changed(**changes):
    known = json.loads(document(TEXTS[0])[0])
    (log,) = formats.read("log", json.dumps({**known, **changes}))
    return log


def test_version_settings_wrong_results_and_graphs_are_read():
    log = changed(nccl_version=22907, env=["NCCL_ALGO=Ring", "PATH=/bin"], out_of_bounds={"count": 3, "okay": "false"})
    assert log.version == "2.29.7" and log.settings == {"NCCL_ALGO": "Ring"} and log.wrong_results
    assert "CUDA graphs" in changed(config={"graph": 1}).unlike
    results = [{"size": 4, "count": 1, "type": "float", "redop": "sum", "in_place": {"cpu_time": 3.0}}]
    assert "cputime" in changed(results=results).unlike


def test_a_killed_run_keeps_the_results_before_its_end():
    written, _ = document(TEXTS[0])
    cut = written[: written.index('"in_place"', written.index('"size":536870912,'))]
    (log,) = formats.read("log", cut)
    assert log.rows[-1].nbytes == 536870912 and log.rows[-1].in_place_us is None
    assert log.malformed and "the JSON ends or breaks here" in log.malformed[-1][1]


def test_several_documents_are_several_tables():
    both = "\n".join(document(file)[0] for file in TEXTS[:2])
    assert [log.name for log in formats.read("log", both)] == ["log#1", "log#2"]


def test_a_result_that_is_no_row_is_left_out_and_named():
    (bad,) = json.loads(document(TEXTS[0])[0])["results"][:1]
    bad["out_of_place"]["time"] = "soon"
    assert "`soon` stands where a number" in changed(results=[bad]).malformed[0][1]


@given(st.data())
def test_no_value_in_the_place_of_another_is_an_error_of_the_program(data):
    values = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.just([]), st.just({})
    )
    known = json.loads(document(TEXTS[0])[0])
    holder = known
    while True:
        key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
        if not isinstance(holder[key], (dict, list)) or not holder[key] or data.draw(st.booleans()):
            break
        holder = holder[key]
    holder[key] = data.draw(values | st.lists(values, max_size=2))
    formats.read("log", json.dumps(known))


@pytest.mark.parametrize("change", [{"type": "fp2"}, {"type": 7}, {"size": "large"}, {"count": None}])
def test_a_result_without_size_or_known_type_is_left_out_and_named(change):
    first, second = json.loads(document(TEXTS[0])[0])["results"][:2]
    log = changed(results=[first, {**second, **change}])
    assert len(log.rows) == 1 and log.malformed[0][0] == 2
