"""What commands print for programs: every JSON object fits the schema of its command, and keys are spelled alike."""

import json
import re
from pathlib import Path

import json_schemas
import pytest
import typer
from command_line import cli, done

import nvcoll.cli
from nvcoll.cli import formats
from nvcoll.training.report import schema as report_schema

LOGS = Path(__file__).parents[2] / "data" / "nccl-logs"

SCRIPT = """
import numpy as np
import nvcoll
nvcoll.Node(4).all_reduce(np.ones((4, 256), dtype="f4"))
nvcoll.Node(4).scan(np.ones((4, 256), dtype="f4"))
"""

STEPS = {"plan", "dryrun", "price"}
"""Commands about training steps, which print nvcoll.report/1 (test_training_report.py)."""

OF_STEPS = STEPS | {"serve"}
"""Commands whose words and units are those of steps: an iteration of a server is one."""

CALLS = [
    ("predict", "all_reduce", "-b", "1M", "--on", "hgx-h100,mi300x-8,hgx-h100x2+ib-ndr-8"),
    ("predict", "gather", "-b", "1M"),
    ("compare", "ring,tree", "-b", "1K", "--on", "hgx-h100,dgx1-v100"),
    ("compare", "--collective", "broadcast", "-b", "1K"),
    ("check", LOGS / "nccl-tests-290-2node.log"),
    ("algorithms", "-n", "4"),
    ("bench", "-n", "2", "-b", "1K", "--rounds", "2", "-a", "ring", "-a", "tree"),
    ("bench", "broadcast", "-n", "2", "-b", "1K", "--rounds", "2"),
    ("serve", "llama3-8b", "--tp", "1", "--on", "hgx-h100,l40s-8-p2p", "--dollars-per-gpu-hour", "2,1"),
    ("serve", "llama3-70b", "--tp", "1", "--pp", "1", "-n", "1"),
    ("fabric",),
    ("fabric", "hgx-h100"),
    ("fabric", "hgx-h100x2+ib-ndr-8"),
    ("info",),
    ("explain", "all_reduce", "-n", "4"),
    ("verify", "all_reduce", "ring"),
    ("verify", "barrier"),
    ("show", "all_gather", "ring", "--path", "staged"),
    ("show", "barrier"),
]


def valid(command, printed):
    found = json.loads(printed)
    json_schemas.validate(formats.schema(command), found)
    assert found["schema"] == json.loads(formats.schema(command))["$id"] == f"nvcoll.{command}/1"
    return found


@pytest.mark.parametrize("words", CALLS, ids=lambda words: " ".join(map(str, words[:2])))
def test_the_json_of_every_command_fits_its_schema(words):
    valid(words[0], done(*words, "--json").stdout)


def test_the_json_of_a_script_and_its_file_fit_the_schema(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    saved = tmp_path / "saved.json"
    text = done("run", "--on", "hgx-h100,dgx2", "--json", "--save", saved, tmp_path / "script.py").stdout
    assert valid("run", text[text.index("{") :]) == valid("run", saved.read_text())


def test_a_refuted_schedule_is_json_too_and_status_1(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text('import nvcoll\n\n@nvcoll.algorithm("all_reduce")\ndef nothing(b):\n    pass\n')
    ended = done("verify", f"{wrong}:nothing", "-n", "2", "--json")
    assert ended.returncode == 1
    assert not valid("verify", ended.stdout)["is_proved"]


def commands():
    return typer.main.get_command(nvcoll.cli.command_line()).commands


def test_every_command_that_prints_json_prints_its_schema():
    for name in commands().keys() - STEPS:
        options = {option for one in commands()[name].params for option in one.opts}
        assert {"--json", "--schema"} <= options, name
        assert cli(name, "--schema").stdout == formats.schema(name)
    assert {file.stem for file in formats.SCHEMAS.glob("*.json")} >= commands().keys() - STEPS


@pytest.mark.parametrize("command", sorted(commands().keys() - OF_STEPS))
def test_one_thing_has_one_key(command):
    text = formats.schema(command)
    keys = set(re.findall(r'^ *"(\w+)": \{', text, re.MULTILINE)) | set(re.findall(r'[{,] "(\w+)": \{', text))
    assert not keys & {"fabric", "bytes", "us", "gpus", "median_seconds"}
    assert '"ranks": { "type": "integer"' not in text


@pytest.mark.parametrize("command", ["plan", *sorted(commands().keys() - STEPS)])
def test_every_key_of_a_schema_is_described_in_sentences(command):
    schema = json.loads(report_schema() if command == "plan" else formats.schema(command))
    for one in json_schemas.objects(schema):
        for key, part in one["properties"].items():
            of_definition = schema.get("$defs", {}).get(part.get("$ref", "").rpartition("/")[2], {})
            assert part.get("description", of_definition.get("description", "")).endswith("."), key


def test_calls_take_microseconds_and_steps_take_seconds():
    def units(text):
        return set(re.findall(r'"\w+_(s|ms|us|ns)": \{', text))

    assert units(report_schema()) == units(formats.schema("serve")) == {"s"}
    assert {unit for command in commands().keys() - OF_STEPS for unit in units(formats.schema(command))} == {"us"}


@pytest.mark.parametrize(
    "words",
    [
        ("fabric",),
        ("fabric", "hgx-h100"),
        ("algorithms", "all_reduce", "-n", "4"),
        ("explain", "all_reduce", "-n", "4"),
        ("check", LOGS / "nccl-tests-290-2node.log"),
    ],
    ids=lambda words: " ".join(map(str, words[:2])),
)
def test_a_table_is_csv_too(words):
    head, *rows = done(*words, "--csv").stdout.splitlines()
    assert len(rows) > 1 and head.count(",") >= 4


def test_links_of_several_machines_name_their_machine():
    head, *rows = done("fabric", "hgx-h100,dgx2", "--csv").stdout.splitlines()
    assert head.startswith("machine,source,target,")
    assert {row.partition(",")[0] for row in rows} == {"hgx-h100", "dgx2"}
