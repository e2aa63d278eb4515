"""A trace that a script writes of itself in a second pass says what was predicted, but `nvcoll price` refuses it."""

import json

import pytest
from command_line import cli, refused
from dryrun_children import SCRIPTS, needs_torch

from nvcoll.traces import opened
from nvcoll.training.planning import Machine


def test_a_trace_of_predicted_times_gives_the_predicted_collectives(tmp_path):
    needs_torch()
    words = "--world-size", 8, "--on", "hgx-h100", "--steps", 3, "--no-cache", "--profile", "-q", "--json"
    timeline = tmp_path / "timeline.json"
    found = cli("dryrun", *words, "--trace", timeline, SCRIPTS / "profiled.py", tmp_path / "trace.json")
    (predicted,) = json.loads(found.stdout)["reports"]
    shown = [event for event in json.loads(timeline.read_text())["traceEvents"] if event["ph"] == "X"]
    again = opened([tmp_path / "trace.json"])
    machine = Machine("hgx-h100", 8)
    assert machine.predict(again.measured.replay).seconds == pytest.approx(again.measured.seconds, rel=0.02)
    times = {row["bytes"]: row["seconds"] for row in predicted["collectives"]}
    traced = [(nbytes, seconds) for _, _, nbytes, seconds in again.measured.collectives]
    repeated = machine.predict(again.steps[0]).collectives
    assert len(traced) == sum(row["count"] for row in predicted["collectives"]) >= 2
    lasted = sorted(1e-6 * event["dur"] for event in shown if event["name"] == "dp all_reduce")
    assert sorted(seconds for _, seconds in traced) == pytest.approx(lasted, rel=0.01)
    for nbytes, _ in traced:
        (same,) = (row for row in repeated if row.bytes == nbytes)
        assert same.seconds == pytest.approx(times[nbytes], rel=1e-6)
    for option in ("--from", "--on"):
        said = refused("price", tmp_path / "trace.json", option, "hgx-h100")
        assert "is the trace of a dry run" in said and "nvcoll price" in said
