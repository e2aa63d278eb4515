"""Predicted times of each record, for a second pass."""

import io
import json

import numpy as np
from dryrun_recordings import Log, layer

from nvcoll.dryrun.parent.step import made_of
from nvcoll.dryrun.parent.times import saved, times_of
from nvcoll.dryrun.wire.virtual_gpu import CAPTURED, Kind


def test_every_record_has_the_time_of_its_operation_or_its_share():
    log = Log()
    add = log.op("aten::add", 100)
    log.launch(add, count=2)
    log.add(Kind.EVENT_RECORD, 7, None, 0, 5)
    log.launch(add, stream=8)
    log.add(Kind.GEMM | CAPTURED, 7, "cublasGemmEx", 0, 8, 8, 8, 1, 0, 14)
    log.gemm(8, 8, 8)
    recording = log.recording()
    made = made_of([recording], gpu="h100-sxm", name="test")
    row, (places,) = json.loads(made.step.to_json()), made.places
    assert [op["work"] for op in row["streams"]["ranks"][0]["issued"]] == ["move", "move", "gemm"]
    assert places == [0, 0, -1, 1, 2], "one for each record that ran"
    times = times_of(recording, places, {"start_ns": [10, 50, 30], "end_ns": [30, 60, 80]}, 100)
    assert times.tolist() == [[10, 20, 30, 50, 60, 30], [20, 30, 30, 60, 60, 80]]
    assert np.array_equal(np.load(io.BytesIO(saved(times))), times) and times.dtype == np.uint64


def test_an_event_before_all_work_waits_for_the_step_before():
    log = Log()
    log.add(Kind.EVENT_RECORD, 7, None, 0, 5)
    log.gemm(8, 8, 8)
    log.add(Kind.EVENT_RECORD, 7, None, 0, 6)
    recording = log.recording()
    (places,) = made_of([recording], gpu="h100-sxm", name="test").places
    times = times_of(recording, places, {"start_ns": [50], "end_ns": [140]}, 100)
    assert times.tolist() == [[40, 50, 140], [40, 140, 140]], "the last event is 100 after the first of the next step"


def test_each_record_of_a_step_has_a_place_or_none():
    recording = layer()
    made = made_of([recording], gpu="h100-sxm", name="test")
    row, (places,) = json.loads(made.step.to_json()), made.places
    assert len(places) == len(recording.records)
    assert sorted(set(places)) == list(range(len(row["streams"]["ranks"][0]["issued"])))
