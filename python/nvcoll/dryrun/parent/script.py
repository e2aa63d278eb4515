"""`record` makes a recorded step of a script, in several attempts if more ranks must run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from nvcoll._nvcoll import Fabric
from nvcoll.dryrun.parent import cache, roles
from nvcoll.dryrun.parent.facts import facts_of
from nvcoll.dryrun.parent.failures import OUT_OF_MEMORY, OutOfGpuMemory, ScriptFailed
from nvcoll.dryrun.parent.inputs import UnknownInputs, inputs_of
from nvcoll.dryrun.parent.launch import Predicted, Request, run_ranks
from nvcoll.dryrun.parent.recording import HostTimes, Recording
from nvcoll.dryrun.parent.step import made_of
from nvcoll.dryrun.parent.times import saved, times_of
from nvcoll.dryrun.wire.rank_recording import NO_GPU, USE_GPU, RankRecording, Run
from nvcoll.dryrun.wire.stamps import Note
from nvcoll.text.formatting import counted, listed
from nvcoll.training.planning import Machine

NOISE = r" Process \d+ has .*? memory in use\."
"""A part of torch's out-of-memory message that says nothing of the script."""


def record(request: Request, tell: Callable[[str], None] = lambda _: None) -> Recording:
    """Records a script; ``tell`` is called with each line of progress.

    Raises:
        CannotDryRun: this machine cannot do a dry run.
        OutOfGpuMemory: the script does not fit.
        ScriptFailed: the script did not reach the counted step.
        DryRunLimit: the limit of time or memory was reached.
    """
    key = cache.key_of(request) if request.is_cached else ""
    if request.is_cached and (found := cache.cached(key)) is not None:
        return found
    recordings, runs = recordings_of(request, tell)
    recorded = _recorded(request, recordings, runs)[0]
    if not request.is_cached:
        return recorded
    try:
        cache.keep(key, recorded, inputs_of(_noted(runs)))
    except UnknownInputs as why:
        return replace(recorded, not_kept=str(why))
    return recorded


def recorded_on(
    machines: Sequence[Fabric],
    request: Request,
    price: Callable[[Fabric, int], Machine],
    tokens: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Recording | OutOfGpuMemory]:
    """Records a script once for each model of GPU.

    Args:
        machines: the machines.
        request: the request, of any GPU.
        price: returns a number of the GPUs of a machine, to price steps.
        tokens: tokens in a step of all ranks. Default: found in the recording.
        tell: is called with each line of progress.

    Returns:
        For each machine the recording, or the error of a script that does not fit.

    Raises:
        DryRunError: as of `record`.
    """
    for one in machines:
        price(one, request.world_size)  # refuses what it cannot price before the script runs
    requests = {one.gpu_model.name: (request.on(one), one) for one in reversed(machines)}
    found: dict[str, Recording | OutOfGpuMemory] = {}
    for name, (asked, one) in reversed(requests.items()):
        try:
            again = record_twice(asked, partial(price, one)) if request.again else record(asked, tell)
            found[name] = again.with_tokens(tokens)
        except OutOfGpuMemory as error:
            found[name] = error
    return [found[one.gpu_model.name] for one in machines]


def _noted(runs: Sequence[Run]) -> Iterator[Note]:
    for run in runs:
        if run.noted is None:
            raise UnknownInputs(f"rank {run.rank} could not note what the script reads")
        yield from run.noted


def _recorded(
    request: Request, recordings: Sequence[RankRecording], runs: Sequence[Run]
) -> tuple[Recording, list[list[int]]]:
    """Returns the recorded step, and the positions of each rank's records in it; for one GPU without a group."""
    if len(recordings) == 1 and recordings[0].is_alone:
        request, recordings = replace(request, world_size=1), [replace(recordings[0], rank=0, world_size=1)]
    name = f"{request.words} on {counted(request.world_size, 'GPU')}"
    made = made_of(recordings, gpu=request.gpu.name, name=name)
    host = HostTimes.of(recordings[0], made.places[0], runs[0])
    others = zip(*(one.also for one in recordings), strict=True)
    also = tuple(_recorded(request, one, runs)[0] for one in others)
    return Recording(made.step, facts_of(request, recordings, runs, made), host, tuple(runs), also=also), made.places


def record_twice(request: Request, price: Callable[[int], Machine]) -> Recording:
    """Records a script, then runs it again, to its end, with predicted times of a machine.

    The output of the second run is shown: its profiler and its events have predicted times.

    Args:
        request: the request.
        price: returns the machine whose times the script shows, for a number of its GPUs.

    Raises:
        ScriptFailed: the script did not reach the counted step, or its end.
    """
    recordings, runs = recordings_of(replace(request, is_quiet=True))
    recorded, places = _recorded(request, recordings, runs)
    timeline = json.loads(price(recorded.step.gpus).pricer.timeline(recorded.step))
    files = {
        one.rank: saved(times_of(one, of_rank, row, timeline["period_ns"]))
        for one, of_rank, row in zip(recordings, places, timeline["ranks"], strict=True)
    }
    ended = run_ranks(request, list(files), Predicted(files, timeline["period_ns"], request.again == "clock"))
    if failed := [run for _, run in ended if run.status != "ended" or run.exit_status]:
        raise failure_of(request, failed)
    return recorded


def recordings_of(
    request: Request, tell: Callable[[str], None] = lambda _: None
) -> tuple[list[RankRecording], list[Run]]:
    """Runs rank 0, then again with more ranks until all needed ranks run; returns their recordings."""
    running = request.ranks or (0,)
    earlier: list[Note] = []
    for _ in range(roles.ATTEMPTS):
        tell(f"{listed(running)} of {request.world_size} on a virtual {request.gpu.title}")
        ended = run_ranks(request, running, tell=tell)
        recordings, runs = [one for one, _ in ended], [run for _, run in ended]
        more = running if request.ranks else roles.wanted(running, recordings, runs)
        if more != running:
            running = more
            earlier += [row for run in runs for row in run.noted or ()]
            continue
        found = [one for one in recordings if one is not None]
        if len(found) == len(running):
            if runs[0].noted is not None:
                runs[0].noted = earlier + runs[0].noted
            return found, runs
        raise failure_of(request, runs)
    raise ScriptFailed(f"ranks wait for more and more other ranks, at last {listed(running)}: pass --only-ranks")


def failure_of(request: Request, runs: Sequence[Run]) -> ScriptFailed:
    """Returns the error of the first rank that failed."""
    order: dict[str, int] = {"failed": 0, "refused": 1, "ended": 2, "counted": 3}
    # ranks that were killed because another one failed come last
    run = min(runs, key=lambda one: (one.follows == "killed", order[one.status], one.follows == "ended"))
    where = "" if not run.line or run.line in run.message else f"{run.line}: "
    who, message = f"rank {run.rank} of {request.world_size}, {where}", run.message.removeprefix("DryRunError: ")
    if run.status == "ended":
        advice = "its output says why" if run.exit_status else "have it do more, or pass another --steps"
        if run.message.endswith(NO_GPU) and not run.exit_status:
            advice = USE_GPU
        elif request.serves and not run.exit_status:
            advice = "--serve is for scripts that serve requests with vLLM or SGLang, or by `generate` of transformers"
        elif not run.steps and not run.exit_status:
            advice += ", or --step-at FILE:LINE with the line that ends a step if its optimizer is none of torch.optim"
        message += f": {advice}"
    if run.read:
        is_plain = request.loss is None and "it gets 0" in run.read
        message += f". Before this, {run.read}" + ("; --loss NUMBER sets what it reads as" if is_plain else "")
    if any(word in run.message for word in OUT_OF_MEMORY):
        kept = re.sub(NOISE, "", run.message).partition(" If reserved")[0]
        return OutOfGpuMemory(f"{who}{kept}", line=run.line)
    return ScriptFailed(f"{who}{message}", line=run.line)
