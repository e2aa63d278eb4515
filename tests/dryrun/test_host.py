"""The time of the processor: further steps are matched, priced, and leave no trace; otherwise constants are taken."""

import json

import numpy as np
import pytest
from dryrun_children import PATIENT, SCRIPTS, Children
from dryrun_recordings import layer

from nvcoll.dryrun.inside.host import LEAST, QUIET, gaps_of
from nvcoll.dryrun.parent.recording import HostTimes, Recording
from nvcoll.dryrun.parent.step import made_of
from nvcoll.dryrun.wire.host_speed import USUAL, host_speed
from nvcoll.dryrun.wire.rank_recording import Run
from nvcoll.dryrun.wire.virtual_gpu import RECORD, Kind
from nvcoll.training import Machine

MACHINE = "hgx-h100x2+ib-ndr-8"


def step_of(*kinds, name=1):
    return [(int(kind), 0, 7, name, 0, [0] * 6) for kind in kinds]


COUNTED = step_of(Kind.LAUNCH, Kind.GEMM, Kind.EVENT_RECORD, Kind.LAUNCH)
ALIKE = step_of(Kind.LAUNCH, Kind.GEMM, Kind.LAUNCH)


def gaps(steps, first_ns=1000):
    """Gaps of a pass whose records are 1, 2, 3, ... us apart in the first step, and `late` ns more in later ones."""
    rows, stamps, ends, now = [], [], [], 0
    for nth, step in enumerate(steps):
        for at, row in enumerate(step):
            now += first_ns * (1 + at) + 10 * nth
            rows.append(row)
            stamps.append(now)
        ends.append(len(rows))
    return gaps_of(np.array(COUNTED, RECORD), np.array(rows, RECORD), np.array(stamps, np.uint64), ends)


def test_the_least_gap_before_each_record_counts_in_steps_of_the_same_work():
    least = np.array([1010, 2010, 0, 3010]) * 1e-9 * QUIET
    assert gaps([ALIKE] * (LEAST + 1)) == pytest.approx(least)
    other = step_of(Kind.LAUNCH, Kind.LAUNCH, Kind.LAUNCH)
    assert gaps([ALIKE, ALIKE, *[other] * 9, *[ALIKE] * LEAST]) == pytest.approx(least)


@pytest.mark.parametrize(
    "other", [step_of(Kind.LAUNCH, Kind.GEMM), step_of(Kind.LAUNCH, Kind.GEMM, Kind.LAUNCH, name=2), step_of(Kind.GEMM)]
)
def test_steps_of_other_work_do_not_count(other):
    assert gaps([ALIKE, *[other] * 20]) == gaps([ALIKE] * LEAST) == []


@pytest.fixture(scope="module")
def measured():
    """A step, and its processor: 100 us before each of its records."""
    one = layer()
    made = made_of([one], gpu="h100-sxm", name="test")
    run = Run(0, "counted", gaps=[1e-4] * len(one.records), host_speed=2 * USUAL)
    return made.step, HostTimes.of(one, made.places[0], run), len(one.records)


def test_measured_gaps_are_priced_at_the_speed_of_the_other_processor(measured):
    step, host, records = measured
    assert sum(host.seconds) == pytest.approx(1e-4 * records)
    price = Machine(MACHINE).predict
    usual, same = price(host.in_step(step, None)), price(host.in_step(step, 2 * USUAL))
    assert 2e-4 * records < usual.issue_s < 2.2e-4 * records and 1e-4 * records < same.issue_s < 1.2e-4 * records
    assert usual.seconds == pytest.approx(usual.issue_s, rel=0.1), "the processor limits it"
    unknown, known = (one.high_s / one.seconds for one in (usual, same))
    assert unknown > 1.6 and known < unknown / 1.15, "a known processor is nearer"


def test_without_measured_gaps_the_constants_take_the_speed(measured):
    step, nothing = measured[0], HostTimes()
    assert nothing.in_step(step, None) is step
    price = Machine(MACHINE).predict
    assert price(nothing.in_step(step, USUAL / 3)).issue_s > 2 * price(nothing.in_step(step, USUAL)).issue_s


def test_measured_times_lie_beside_the_recording_whose_bytes_stay(tmp_path, measured):
    step, host, _ = measured
    facts = {"ranks": [], "gpu": "h100-sxm"}
    for name, one in (("with", host), ("without", HostTimes())):
        Recording(step, facts, one).save(tmp_path / name)
    assert (tmp_path / "with").read_bytes() == (tmp_path / "without").read_bytes()
    assert HostTimes.load(tmp_path / "with", len(host.seconds)) == host
    assert HostTimes.load(tmp_path / "with", 3) == HostTimes.load(tmp_path / "without", 3) == HostTimes()
    HostTimes.beside(tmp_path / "with").write_text(json.dumps({"seconds": ["x"]}))
    assert HostTimes.load(tmp_path / "with", 1) == HostTimes()


def test_a_speed_is_a_number_that_a_user_can_pass():
    assert host_speed() > 0


LONG = """
import sys
sys.path.insert(0, {folder!r})
from itertools import count
import torch
weights = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.SGD(weights.parameters(), lr=0.1)
for step in count():
    weights(torch.ones(4, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, flush=True)
    {more}
"""


@PATIENT
@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("pass", ""),
        ("weights(torch.ones(4, 64, device='cuda')) if step > 1 else 0", "later steps do other work"),
        ("step < 5 or open('left', 'w')", "9 more steps are needed"),
        ("assert step < 5", "9 more steps are needed"),
    ],
)
def test_further_steps_are_measured_and_leave_no_trace(tmp_path, more, why):
    script = tmp_path / "long.py"
    script.write_text(LONG.format(folder=str(SCRIPTS), more=more))
    [(out, run, recording)] = Children(tmp_path).run(script, steps=2, world_size=1, measures_host=True, cwd=tmp_path)
    assert (run.status, run.steps, run.unmeasured) == ("counted", 2, why), out
    assert len(run.gaps) == (0 if why else len(recording.records)) and all(one >= 0 for one in run.gaps)
    assert "step 0" in out and "step 3" not in out and not (tmp_path / "left").exists()
