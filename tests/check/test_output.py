"""The output of `nvcoll check` for programs: its JSON Schema, and JUnit."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import json_schemas
import jsonschema
import pytest
from check_logs import LOGS, MIB, predicted, table
from command_line import cli, done

from nvcoll.check import junit, nccl_tests
from nvcoll.check.verdict import judged
from nvcoll.cli.formats import schema

SCHEMA = json.loads(schema("check"))


def valid(*arguments):
    """Returns what `nvcoll check --json` prints, after its validation."""
    printed = json.loads(done("check", *arguments, "--json").stdout)
    json_schemas.validate(schema("check"), printed)
    return printed["logs"]


def test_schema_prints_the_schema_of_this_version_without_a_log():
    printed = json.loads(cli("check", "--schema").stdout)
    assert printed == SCHEMA and printed["$id"] == "nvcoll.check/1"
    jsonschema.Draft202012Validator.check_schema(printed)


def test_the_json_of_all_public_logs_fits_the_schema():
    logs = valid(*sorted(LOGS.glob("*.log")))
    assert {one["verdict"] for one in logs} <= set(SCHEMA["$defs"]["log"]["properties"]["verdict"]["enum"])


def test_suspects_baselines_and_malformed_rows_fit_the_schema():
    sick, sister = LOGS / "nccl-tests-290-2node.log", LOGS / "nccl-tests-309-2node.log"
    (one,) = valid(sick, "--on", "hgx-h100x2+ib-ndr-8", "--baseline", sister)
    assert one["suspects"] and one["of_baseline"] < 0.5
    assert any(one["malformed"] for one in valid(LOGS / "dgx-spark-103-small.log"))


def test_the_first_suspect_has_its_command_and_a_thread_and_the_others_have_a_line():
    sick, on = LOGS / "nccl-tests-290-2node.log", ("--on", "hgx-h100x2+ib-ndr-8")
    (log,) = valid(sick, *on)
    first, second = log["suspects"][:2]
    said = done("check", sick, *on).stdout
    assert f"run         {first['confirm']}\n" in said and f"see         {first['thread']}\n" in said
    assert f"it prints   {first['prints']}\n" in said
    assert second["ailment"] in said and second["confirm"] not in said


def test_every_key_of_the_output_stands_in_the_schema(tmp_path):
    (tmp_path / "log").write_text(predicted(), encoding="utf-8")
    (log,) = valid(tmp_path / "log", "--on", "hgx-h100")
    for printed, name in ((log, "log"), (log["rows"][0], "row")):
        known = SCHEMA["$defs"][name]
        assert set(printed) == set(known["properties"]) == set(known["required"])


@pytest.mark.parametrize("key", ["verdict", "rows"])
def test_the_schema_refuses_what_check_never_prints(key):
    (log,) = valid(LOGS / "nccl-tests-290-1node.log")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": "nvcoll.check/1", "logs": [{**log, key: "green"}]}, SCHEMA)


def test_junit_has_a_test_case_per_log_with_the_reasons(tmp_path):
    names = ("nccl-tests-290-1node.log", "nccl-tests-294-nompi.log", "sichek-52-8bytes-only.log")
    cli("check", *(LOGS / name for name in names), "--junit", tmp_path / "junit.xml", status=1)
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    healthy, sick, unknown = suite.findall("testcase")
    assert [*healthy] == [] and healthy.get("name").endswith(names[0])
    assert healthy.get("classname") == "all_reduce on hgx-h100"
    assert sick.find("failure").get("message") == "sick" and "without MPI" in sick.find("failure").text
    assert unknown.find("error").get("message") == "cannot tell" and "no row" in unknown.find("error").text


def test_junit_is_xml_whatever_stands_in_a_name():
    (log,) = nccl_tests.read("log", "")
    text = junit.to_junit([judged(replace(log, name="a\0\x1b<&\ud800"), None, None, "\x07 & <")])
    assert ElementTree.fromstring(text).find(".//testcase").get("name") == "a\ufffd\ufffd<&\ufffd"


def test_a_junit_file_that_cannot_be_written_is_named():
    assert (
        "/missing/junit.xml" in done("check", LOGS / "nccl-tests-290-1node.log", "--junit", "/missing/junit.xml").stderr
    )


def test_long_lists_of_a_log_are_cut(tmp_path):
    cards = " ".join(f"[{nth}]mlx5_{nth}:1/RoCE" for nth in range(100))
    head = f"h:1:2 [0] NCCL INFO NET/IB : Using {cards}\nNCCL_IB_HCA={','.join(f'mlx5_{nth}' for nth in range(100))}"
    (tmp_path / "log").write_text(table({MIB: 100}, head=head))
    shown = cli("check", tmp_path / "log", "--on", "hgx-h100", status=1).stdout
    assert "card=mlx5_37, 63 more" in shown and "mlx5_99" not in shown
