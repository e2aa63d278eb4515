"""`dryrun`: a training script on virtual GPUs, for tests of its memory and overlap."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypedDict, Unpack

from nvcoll._nvcoll import CollectivePrice, Fabric, StepPrediction, fabric
from nvcoll.dryrun.parent.failures import OutOfGpuMemory
from nvcoll.dryrun.parent.launch import REQUESTS, Request
from nvcoll.dryrun.parent.recording import Recording
from nvcoll.dryrun.parent.report import report_of
from nvcoll.dryrun.parent.script import recorded_on
from nvcoll.dryrun.wire.spec import STEPS
from nvcoll.training.planning import Machine
from nvcoll.training.report import Report


class Conditions(TypedDict, total=False):
    """What of NCCL is not the default, as of `nvcoll.training.Machine`."""

    version: str | None
    settings: Mapping[str, str | int] | None


@dataclass(frozen=True)
class DryRun:
    """A step of a script on a machine; of a model server a decode iteration.

    Attributes:
        seconds: the predicted time of the step.
        peak_gib: GiB in tensors at the peak of the fullest rank, as torch's allocator counts.
        reserved_gib: the most GiB that the allocator of a rank held.
        memory_gib: GiB of the fullest GPU in use: reserved, NCCL and CUDA, as the report says.
        exposed: the share of the step in which computing waits for communication: ``prediction.exposed_s``.
        fits: whether even all memory that the allocator reserved fits into the GPU, with NCCL and CUDA.
        tokens_per_second: tokens per second per GPU; 0: no tokens were found.
        collectives: the collectives of the step with predicted times.
        prediction: the whole prediction.
        recording: the whole recording.
        kv_tokens: tokens for which a model server has room in its cache of keys and values, as it prints; 0: no server.
        prefill: the whole prediction of the server's prefill iteration, if it had one.
        report: the report of ``nvcoll dryrun``; ``print(step.report)`` shows it.
    """

    seconds: float
    peak_gib: float
    reserved_gib: float
    memory_gib: float
    exposed: float
    fits: bool
    tokens_per_second: float
    collectives: Sequence[CollectivePrice] = field(repr=False)
    prediction: StepPrediction = field(repr=False)
    recording: Recording = field(repr=False)
    kv_tokens: int
    prefill: StepPrediction | None = field(repr=False)
    report: Report = field(repr=False)


def dryrun(
    script: str | os.PathLike[str],
    *args: str,
    on: str | os.PathLike[str] | Fabric = "hgx-h100",
    world_size: int | None = None,
    is_module: bool = False,
    steps: int = STEPS,
    serve: bool = False,
    ranks: Sequence[int] | None = None,
    tokens: float | None = None,
    time_limit: float = 600.0,
    environment: dict[str, str] | None = None,
    is_cached: bool = True,
    **conditions: Unpack[Conditions],
) -> DryRun:
    """Runs a training script, unmodified, on virtual GPUs, and predicts its step.

    >>> step = dryrun("train.py", "--layers", "80", world_size=512, on="hgx-h100x64+ib-ndr-8")
    >>> assert step.fits and step.memory_gib < 70 and step.exposed < 0.15

    Args:
        script: the script; with ``is_module`` a module.
        args: its arguments.
        on: the machine, as in `nvcoll.machines`. Default: that of ``nvcoll dryrun``.
        world_size: the number of ranks. Default: the GPUs of the machine.
        is_module: runs the script as ``python -m``.
        steps: steps of the optimizer to run; the last one counts.
        serve: whether the script is a model server, whose iterations are the steps, as ``--serve``.
        ranks: ranks to run. Default: one of each kind of rank.
        tokens: tokens in a step of all ranks. Default: found in the recording.
        time_limit: seconds after which the script is ended.
        environment: environment variables of the script.
        is_cached: whether an earlier recording of the same script is used, and this one is kept.
        conditions: ``version`` and ``settings`` of NCCL, as of `nvcoll.training.Machine`.

    Raises:
        OutOfGpuMemory: the script runs out of memory; the message is that of torch's allocator, with the line.
        ScriptFailed: the script did not reach the counted step.
        DryRunLimit: the limit of time or memory was reached.
        CannotDryRun: this machine or its torch cannot do a dry run.
    """
    machine = fabric(on)
    request = Request(
        os.fspath(script),
        tuple(map(str, args)),
        is_module,
        world_size=machine.world_size if world_size is None else world_size,
        gpu=machine.gpu_model,
        steps=steps,
        time_limit_s=time_limit,
        environment=environment or {},
        ranks=None if ranks is None else tuple(ranks),
        is_cached=is_cached,
        serves=REQUESTS if serve else "",
    )
    price = partial(Machine, **conditions)
    (recording,) = recorded_on([machine], request, price, tokens)
    if isinstance(recording, OutOfGpuMemory):
        raise recording
    recording = recording.with_facts(machine=machine.name)
    report = report_of("dryrun", [machine], [recording], price)
    found, *others = report.found
    return DryRun(
        seconds=found.seconds,
        peak_gib=max(rank["allocated"] for rank in recording.facts["ranks"]) / 2**30,
        reserved_gib=recording.fullest["reserved"] / 2**30,
        memory_gib=found.memory_gib,
        exposed=found.exposed_s / found.seconds,
        fits=found.fits,
        tokens_per_second=found.tokens_per_second,
        collectives=found.collectives,
        prediction=found,
        recording=recording,
        kv_tokens=recording.facts["served"]["kv_tokens"] if "served" in recording.facts else 0,
        prefill=others[0] if others else None,
        report=report,
    )
