"""``nvcoll price``: predicts a step from a file: a recording, JSON of a step, a trace, an execution trace, HLO."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nvcoll._nvcoll import Fabric, InvalidArgument, fabric, fabrics
from nvcoll.cli.gathered import gathered
from nvcoll.cli.machines import DEFAULT_MACHINE, Conditions, Gpu, beginning
from nvcoll.cli.machines import machines as machines_of
from nvcoll.cli.outputs import HostSpeed, Outputs
from nvcoll.dryrun.parent import report as of_recordings
from nvcoll.dryrun.parent.recording import Recording, with_tokens
from nvcoll.text.formatting import counted
from nvcoll.traces import formats
from nvcoll.traces import report as of_traces
from nvcoll.traces.program import Measured, Trace


@gathered
def price(
    files: Annotated[
        list[Path],
        typer.Argument(help="A recording of nvcoll dryrun, a step as JSON, a trace of torch.profiler, Chakra, or HLO."),
    ],
    conditions: Conditions,
    outputs: Outputs,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            help="Machines, separated by commas. Default: the recording's, or that of --from; other files need it.",
            autocompletion=beginning,
        ),
    ] = None,
    gpu: Gpu = None,
    traced: Annotated[
        str | None, typer.Option("--from", help="The traced machine: compares its prediction with the trace.")
    ] = None,
    tokens: Annotated[
        float | None, typer.Option(help="Tokens in a step of all ranks. Default: found in the file.", min=0)
    ] = None,
    host_speed: HostSpeed = None,
    step: Annotated[
        int | None, typer.Option(help="The number N of ProfilerStep#N. Default: the step of median time.")
    ] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Write the step as JSON.", metavar="FILE")] = None,
) -> None:
    """Predicts a step that was recorded or traced on machines, without running it again.

    A trace of torch.profiler keeps the measured times of its kernels and its processor.

    Example: nvcoll price train.json.gz --on hgx-h100x64+ib-ndr-8,hgx-h100x64+roce-100-8
    """
    recorded = Recording.load(files[0]) if len(files) == 1 and formats.is_recording(files[0]) else None
    if recorded is None and host_speed is not None:
        raise InvalidArgument("--host-speed is for recordings of nvcoll dryrun: leave it out")
    if recorded is not None and (traced, step) != (None, None):
        raise InvalidArgument("--from and --step are for traces of torch.profiler: leave them out")
    there, assumed = (None if traced is None else fabric(traced)), list[str]()
    if recorded is not None and on is None:
        known, assumed = _machine_of(recorded)
        on = [known]
    if on is None and there is None:
        files[0].stat()  # of a missing file the error says so
        raise InvalidArgument(f"{files[0]} does not name its machine: pass --on, or --from for the machine of a trace")
    asked = [*([there] if there else []), *(machines_of(on, gpu) if on else ())]
    asked = list({one.name: one for one in asked}.values())
    outputs.check(asked)
    if recorded is not None:
        _check_size(asked, recorded.step.gpus, "recording", f", or record again with -n {asked[0].world_size}")
        recorded = recorded.with_tokens(tokens)
        report = of_recordings.report_of(
            "price", asked, [recorded] * len(asked), conditions.machine, assumed, host_speed
        )
    else:
        read = _opened(files, asked[0], step, traced)
        if tokens is not None:
            read.steps = [with_tokens(read.steps[0], tokens)]
        _check_size(asked, read.steps[0].gpus, "step")
        machines = [conditions.machine(one, read.steps[0].gpus) for one in asked]
        report = of_traces.report_of(read, machines, there and there.name)
    if save is not None:
        save.write_text(report.found[0].step.to_json(), encoding="utf-8")
    outputs.write(report)


def _check_size(machines: Sequence[Fabric], ranks: int, what: str, instead: str = "") -> None:
    """Refuses machines with fewer GPUs than a step has ranks.

    Raises:
        InvalidArgument: there is one.
    """
    for one in machines:
        if one.world_size < ranks:
            has = f"{one.name} has {counted(one.world_size, 'GPU')}, and a {what} keeps its {counted(ranks, 'rank')}"
            raise InvalidArgument(f"{has}: pass a machine of at least {ranks} GPUs{instead}")


def _opened(files: list[Path], on: Fabric, step: int | None, traced: str | None) -> Trace:
    """Reads files of other tools.

    Raises:
        InvalidArgument: it cannot be read, or options of traces are given for another file, or a trace is from a
            dry run: its processor's times are of the machine that ran it.
    """
    read = formats.opened(files, gpu=on.gpu_model.name, step=step)
    if isinstance(read.measured, Measured):
        if read.measured.is_virtual:
            raise InvalidArgument(
                f"{files[0]} is the trace of a dry run: its processor's times are of the machine that ran it, not of a "
                "GPU's host; pass the recording (nvcoll dryrun --save) to nvcoll price"
            )
    elif (traced, step) != (None, None):
        raise InvalidArgument(f"{files[0]} is no trace of torch.profiler: leave out --from and --step")
    return read


def _machine_of(recorded: Recording) -> tuple[str, list[str]]:
    """Returns the machine on which a script was recorded; if it does not say, one that fits, and a sentence."""
    if (found := recorded.facts.get("machine")) is not None:
        return str(found), []
    size, title = recorded.step.gpus, recorded.facts["gpu_title"]
    node = next((one for one in fabrics() if one.gpu == title), fabric(DEFAULT_MACHINE))
    nodes = -(-size // node.world_size)
    name = f"{node.name}x{nodes}+ib-ndr-8" if nodes > 1 else node.name
    return name, [f"the recording of {counted(size, 'GPU')} ({title}) does not name its machine: {name}; pass --on"]
