"""Damaged logs: `nvcoll check` gives a verdict or an error of its own, whatever it reads."""

import check_logs
import pytest
from check_logs import BENCH, DEEPSPEED_RAW, IBM, LOGS, ONE_PAYLOAD, PARAM, predicted
from command_line import cli, done
from hypothesis import example, given
from hypothesis import strategies as st

import nvcoll
from nvcoll import fabric
from nvcoll.check import formats, junit, nccl_tests, odds, report
from nvcoll.check.lines import MOST_LETTERS, decoded
from nvcoll.check.verdict import among, judged
from nvcoll.text.formatting import json_text

JSON = '{"nccl_version": 22907, "results": [{"size": 4, "count": 1, "type": "float", "out_of_place": {"time": 1}}]}'
TEXTS = [path.read_text(encoding="utf-8") for path in sorted(LOGS.glob("*.log"))]
TEXTS += [BENCH, ONE_PAYLOAD, DEEPSPEED_RAW, IBM, PARAM, JSON]
OF_TOOLS = ("DEEPEP", "DEEPEP_INTRANODE", "DEEPEP_LOW_LATENCY", "DEEPEP_V2", "MORI", "PERFTEST", "PERFTEST_LATENCY")
OF_TOOLS += ("P2P_TEST", "NVBANDWIDTH", "NIXLBENCH", "MOONCAKE", "VLLM")
TEXTS += [getattr(check_logs, name) for name in OF_TOOLS]
WORDS = ("0 ", "-1 ", "\n", "\r", "nan ", "float ", "9" * 400 + " ", "1e999 ", "Rank  0 ", "size count type algbw ")
WORDS += ("{", "\0", "\x1b[", "> ", "[1,0]<stdout>:", "| payload |    busbw   |    algbw   |", "COMMS-RES ", "8x8 ")
WORDS += ("\N{FULLWIDTH DIGIT ZERO} ", "\N{SUPERSCRIPT TWO} ", "\N{ARABIC-INDIC DIGIT FOUR}")


@st.composite
def damaged(draw):
    """Draws up to three logs in a row, with pieces cut out and words put in."""
    text = "\n".join(draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(0, 8))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(WORDS) | st.text(max_size=5)) + text[at + draw(st.integers(0, 200)) :]
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@given(damaged())
@example("N busbw error\n(us) (GB/s) (GB/s)\n")  # names of columns, none of which is the size
def test_whatever_is_done_to_logs_there_is_a_verdict_or_an_error_of_nvcoll(text):
    logs = formats.read("log", text)
    machines = odds.found(logs)
    verdicts = [odds.judged(log, machines, None) for log in logs]
    on = fabric("hgx-h100x2+ib-ndr-8")
    verdicts += [judged(log, on, None, None) for log in logs if log.tool is not None]
    assert verdicts and junit.to_junit(verdicts)
    assert json_text("nvcoll.check/1", {"logs": report.documents(among(verdicts))})


@given(st.binary(max_size=300))
def test_any_bytes_are_text_or_refused(content):
    try:
        formats.read("log", decoded("log", content))
    except nvcoll.Error as error:
        assert "log is not a text file" in str(error)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-8"])
def test_encodings_of_shells_are_read(tmp_path, encoding):
    (tmp_path / "log").write_bytes(predicted().replace("\n", "\r\n").encode(encoding))
    assert "verdict     healthy" in cli("check", tmp_path / "log", "--on", "hgx-h100").stdout


@pytest.mark.parametrize("content", [b"\x7fELF\2\1\1\0\0", b"\x1f\x8b\x08\0\0"])
def test_of_what_is_no_log_nothing_is_told(tmp_path, content):
    (tmp_path / "log").write_bytes(content)
    found = done("check", tmp_path / "log")
    assert found.returncode == 2 and not found.stderr
    assert "is not a text file" in found.stdout and "cannot tell" in found.stdout


def test_a_directory_cannot_be_read(tmp_path):
    found = done("check", tmp_path)
    assert (found.returncode, found.stdout, found.stderr) == (2, "", f"nvcoll: {tmp_path}: Is a directory\n")


@pytest.mark.parametrize(
    "line", ["size count type " * (1 << 18), "9" * (1 << 22), " 1" * (1 << 21), "\r" * (1 << 22), "[0] > " * (1 << 20)]
)
def test_a_gigantic_line_is_no_row_and_hides_none(line):
    logs = [nccl_tests.read("log", text)[0] for text in (predicted(), f"{line}\n{predicted()}\n{line}")]
    assert [row.time_us for row in logs[0].rows] == [row.time_us for row in logs[1].rows]
    assert len(line) > MOST_LETTERS


def test_many_rows_are_read():
    lines = predicted().split("\n")
    (log,) = nccl_tests.read("log", "\n".join([*lines[:3], *(line for line in lines[3:-1] for _ in range(2000))]))
    assert len(log.rows) == 22000 and log.jobs == 2000
    assert len(nccl_tests.read("log", "\n".join([*lines[:3], *lines[3:-1] * 200]))) == 200


def test_a_word_beside_that_of_a_column_begins_no_table():
    formats.read("log", "size count type algbw-1\n" + predicted())


def test_rows_behind_the_most_that_are_read_are_named(monkeypatch):
    monkeypatch.setattr(nccl_tests, "MOST_ROWS", 3)
    (log,) = nccl_tests.read("log", predicted())
    assert len(log.rows) == 3 and "what follows is left out" in log.malformed[0][1]
