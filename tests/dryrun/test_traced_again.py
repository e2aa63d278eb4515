"""A trace that a script writes of itself in a second pass says what was predicted, when `nvcoll whatif` reads it."""

import json

import pytest
from command_line import cli

from dryrun.children import SCRIPTS, needs_torch


def test_a_trace_of_predicted_times_gives_the_predicted_collectives(tmp_path):
    needs_torch()
    words = "--world-size", 8, "--on", "hgx-h100", "--steps", 3, "--no-cache", "--profile", "-q", "--json"
    found = cli("dryrun", *words, SCRIPTS / "profiled.py", tmp_path / "trace.json")
    (predicted,) = json.loads(found.stdout)["predictions"]
    again = json.loads(cli("whatif", tmp_path / "trace.json", "--from", "hgx-h100", "--json").stdout)
    assert again["replayed_s"] == pytest.approx(again["measured"]["seconds"], rel=0.02)
    times = {row["bytes"]: row["seconds"] for row in predicted["collectives"]}
    traced = [(row["bytes"], row["seconds"]) for row in again["measured"]["collectives"]]
    assert len(traced) == sum(row["count"] for row in predicted["collectives"]) >= 2
    for nbytes, seconds in traced:
        assert seconds == pytest.approx(times[nbytes], rel=0.01)
        (same,) = (row for row in again["from"]["collectives"] if row["bytes"] == nbytes)
        assert same["seconds"] == pytest.approx(times[nbytes], rel=1e-6)
