"""Unmodified scripts of many frameworks on the virtual GPU do what closed forms say: `script_rows.py` has the rows.

Each row is a dry run of a script in `scripts/`, by `nvcoll.testing.dryrun`, and is skipped if its framework is not
installed. Rows that compile kernels, and more pipelines, run with ``--slow``.
"""

import importlib.util
import json
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from assets import write_torchtitan_assets
from counted import Counted
from script_rows import ROWS

from nvcoll.dryrun.parent.failures import CannotDryRun
from nvcoll.dryrun.parent.installed import torch_installed
from nvcoll.dryrun.parent.library import library
from nvcoll.testing import dryrun

SCRIPTS = Path(__file__).parent / "scripts"
SMALL_BYTES = 1 << 16
"""Collectives of a kind that a row does not name have less, all together: norms of gradients, flags, counts."""


def why_not():
    """Returns why there can be no dry run here, or an empty string."""
    try:
        torch_installed()
        library()
    except CannotDryRun as error:
        return str(error)
    return ""


pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not()), pytest.mark.timeout(900)]


def cannot_run(row):
    """Returns why a row cannot run, or an empty string."""
    try:
        found = importlib.util.find_spec(row.needs)
    except ModuleNotFoundError:
        found = None
    return "" if found else f"{row.needs} is not installed"


def run(row, folder):
    """Returns what `nvcoll.testing.dryrun` gives for a row, with the assets of a folder."""
    script, *arguments = shlex.split(row.command.format(folder=folder))
    return dryrun(
        SCRIPTS / script,
        *arguments,
        on="hgx-h100x64+ib-ndr-8",
        world_size=row.world_size,
        is_cached=False,
    )


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    """Returns the dry runs of all rows that were asked for, by name: futures, of which two run at a time."""
    asked = [item.callspec.params["row"] for item in request.session.items if item.module is request.module]
    folder = tmp_path_factory.mktemp("assets")
    if any(row.needs == "torchtitan" and not cannot_run(row) for row in asked):
        write_torchtitan_assets(folder)
    pool = ThreadPoolExecutor(2)
    yield {row.name: pool.submit(run, row, folder) for row in asked if not cannot_run(row)}
    pool.shutdown(cancel_futures=True)


CASES = [pytest.param(row, id=row.name, marks=[pytest.mark.slow] * row.is_long) for row in ROWS]


@pytest.mark.parametrize("row", CASES)
def test_a_script_does_what_its_closed_forms_say(row, runs):
    if reason := cannot_run(row):
        pytest.skip(reason)
    step = runs[row.name].result()
    assert step.seconds > 0 and step.fits
    assert [rank["rank"] for rank in step.recording.facts["ranks"]] == list(row.ranks)
    for rank, expected in row.ranks.items():
        counted = Counted.of(json.loads(step.recording.step.to_json()), rank)
        assert counted.flops == pytest.approx(expected.flops, rel=1e-9)
        named = {key: (counted.calls[key], counted.bytes[key]) for key in expected.calls}
        assert named == expected.calls
        others = {key: nbytes for key, nbytes in counted.bytes.items() if key not in expected.calls}
        assert sum(others.values()) < SMALL_BYTES, others
        assert (counted.sends, counted.sent_bytes) == expected.sends
        least, most = expected.peak
        assert least <= counted.peak <= most
        assert counted.peak <= counted.reserved
        for name in expected.names:
            assert any(name in one for one in counted.names), name
