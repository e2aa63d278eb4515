"""``nvcoll dryrun``: runs a training script, unmodified, on virtual GPUs, and predicts its step.

::

    for each model of GPU in --on      record the script (or take the recording from the cache)
    for each machine                   predict the recording of its GPU
    report                             to standard output; the output of the script goes to standard error

A script that runs out of memory on a model of GPU has no recording for it: the report says for these machines that the
script does not fit, with the message of torch's allocator, and the exit status is 3.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from nvcoll._nvcoll import Fabric, GpuRow, InvalidArgument
from nvcoll.cli import progress
from nvcoll.cli.gathered import gathered
from nvcoll.cli.machines import Conditions, Gpu, On, one_machine
from nvcoll.cli.machines import machines as machines_of
from nvcoll.cli.outputs import HostSpeed, Outputs
from nvcoll.dryrun.parent.launch import REQUESTS, SILENCE_S, Request
from nvcoll.dryrun.parent.recording import Recording
from nvcoll.dryrun.parent.report import report_of
from nvcoll.dryrun.parent.script import recorded_on
from nvcoll.dryrun.wire.spec import STEPS

OF_MACHINES = ("--on", "-n", "--world-size")
"""Options whose place after the script is worth a note: without them the answer is for another machine."""


@dataclass(frozen=True)
class Running:
    """How a script is run: ranks, hosts, steps, limits, and what its output and its recording become."""

    world_size: Annotated[
        int | None,
        typer.Option("-n", "--world-size", help="The number of ranks. Default: the GPUs of the first machine.", min=1),
    ] = None
    gpus_per_node: Annotated[int | None, typer.Option(help="Ranks on a host. Default: the machine's.", min=1)] = None
    steps: Annotated[int, typer.Option(help="Steps of the optimizer to run; the last one counts.", min=1)] = STEPS
    step_at: Annotated[
        str | None,
        typer.Option("--step-at", help="Line that ends a step, if no torch.optim does.", metavar="FILE:LINE"),
    ] = None
    serve: Annotated[
        bool, typer.Option("--serve", help="The script is a model server: its iterations are the steps.")
    ] = False
    requests: Annotated[
        str,
        typer.Option(
            help="Requests that a waiting server gets at once, and their tokens; several in turn.", metavar="NxTOKENS"
        ),
    ] = REQUESTS
    loss: Annotated[
        float | None, typer.Option(help="What losses and other numbers that cannot be computed read as. Default: 0.")
    ] = None
    response_tokens: Annotated[
        str | None,
        typer.Option(help="Length of what `generate` makes. Default: as long as it may be.", metavar="N|uniform:N-N"),
    ] = None
    only_ranks: Annotated[
        str | None,
        typer.Option("--only-ranks", help="Ranks to run, for example 0,256. Default: one of each kind of rank."),
    ] = None
    time_limit: Annotated[float, typer.Option(help="Seconds after which the script is ended.", min=1)] = 1800
    memory_limit: Annotated[
        float | None, typer.Option(help="GB of this machine that ranks may use. Default: 90 % of free memory.", min=0)
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Hide the output of the script.")] = False
    no_host: Annotated[
        bool, typer.Option("--no-host", help="Do not measure the processor: its time is assumed, alike in each run.")
    ] = False
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Record again, and keep nothing.")] = False
    profile: Annotated[
        bool, typer.Option("--profile", help="Run the script again, with predicted times in its profiler and events.")
    ] = False
    clock: Annotated[
        bool, typer.Option("--clock", help="Like --profile; the clock of the script also shows predicted times.")
    ] = False

    def request(self, script: str, arguments: Sequence[str], is_module: bool, size: int, gpu: GpuRow) -> Request:
        """Returns what to run."""
        return Request(
            script,
            tuple(arguments),
            is_module,
            world_size=size,
            gpu=gpu,
            steps=self.steps,
            step_at=self.step_at or "",
            serves=self.requests if self.serve else "",
            loss=self.loss,
            response_tokens=self.response_tokens or "",
            time_limit_s=self.time_limit,
            memory_limit_bytes=None if self.memory_limit is None else self.memory_limit * 1e9,
            is_quiet=self.quiet,
            gpus_per_node=self.gpus_per_node,
            ranks=_numbers(self.only_ranks),
            is_cached=not self.no_cache,
            measures_host=not (self.no_host or self.clock or self.profile),
            again="clock" if self.clock else "profile" if self.profile else "",
        )


@gathered
def dryrun(
    script: Annotated[str, typer.Argument(help="A training script that uses torch; with -m a module.")],
    running: Running,
    conditions: Conditions,
    outputs: Outputs,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Arguments of the script.")] = None,
    is_module: Annotated[bool, typer.Option("-m", help="Run a module, as python -m.")] = False,
    on: On = None,
    gpu: Gpu = None,
    tokens: Annotated[
        float | None, typer.Option(help="Tokens in a step of all ranks. Default: found in the recording.", min=0)
    ] = None,
    host_speed: HostSpeed = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write the recording, for nvcoll price.", metavar="FILE")
    ] = None,
) -> None:
    """Runs a training script, unmodified, on virtual GPUs, and predicts its step on machines that you do not have.

    It needs torch's CUDA build on Linux x86-64, but no GPU and no driver. Options of nvcoll come before the script, its
    own after it. The exit status is 3 if the script runs out of GPU memory, or a step is above a limit (--max-...).

    Example: nvcoll dryrun -n 512 --on hgx-h100x64+ib-ndr-8,hgx-b200x64+ib-ndr-8 train.py --layers 32
    """
    machines = machines_of(on, gpu)
    outputs.check(machines)
    script, arguments, is_module = _without_python(script, arguments or [], is_module)
    _note_late_options(arguments)
    models = list(dict.fromkeys(one.gpu_model.name for one in machines))
    if save is not None and len(models) > 1:
        raise InvalidArgument(f"--save takes one model of GPU, and there are {', '.join(models)}: pass one")
    if (running.profile or running.clock) and len(machines) > 1:
        raise InvalidArgument(one_machine("--clock" if running.clock else "--profile", len(machines)))
    size = machines[0].world_size if running.world_size is None else running.world_size
    if small := [one for one in machines if one.world_size < size]:
        what = f"{small[0].name} has {small[0].world_size} GPUs, and {size} ranks need {size}"
        raise InvalidArgument(f"{what}: pass a larger machine, or another -n")
    request = running.request(script, arguments, is_module, size, machines[0].gpu_model)
    tell = progress.lines(SILENCE_S)
    found = recorded_on(machines, request, conditions.machine, tokens, tell)
    if (running.world_size or 1) > 1:
        what = f"; the {size} ranks of -n do not communicate"
        for nth, one in enumerate(found):
            if isinstance(one, Recording) and (why := one.facts["alone"]):
                found[nth] = one.with_facts(alone=f"{why}{what}")
    if save is not None and isinstance(found[0], Recording):
        found[0].with_facts(machine=_typed(on, machines)).save(save)
    outputs.write(report_of("dryrun", machines, found, conditions.machine, host_speed=host_speed))


def _without_python(script: str, arguments: list[str], is_module: bool) -> tuple[str, list[str], bool]:
    """Returns what `python` would run, of a command that begins with it."""
    if is_module or not (arguments and re.fullmatch(r"python[\d.]*", script)):
        return script, arguments, is_module
    runs_module = arguments[0] == "-m" and len(arguments) > 1
    return arguments[runs_module], arguments[1 + runs_module :], runs_module


def _typed(on: Sequence[str] | None, machines: Sequence[Fabric]) -> str:
    """Returns the first machine as `nvcoll.machines` takes it: a file by its path."""
    return on[0] if on and len(machines) == 1 else machines[0].name


def _note_late_options(arguments: Sequence[str]) -> None:
    for name in dict.fromkeys(word.partition("=")[0] for word in arguments):
        if name in OF_MACHINES:
            print(f"nvcoll: {name} stands after the script and is passed to it", file=sys.stderr)


def _numbers(text: str | None) -> tuple[int, ...] | None:
    try:
        numbers = None if text is None else tuple(sorted({int(one) for one in text.split(",")}))
    except ValueError:
        raise InvalidArgument(f"--only-ranks {text} are no ranks: pass numbers separated by commas, as 0,256") from None
    return numbers
