"""``nvcoll dryrun``: runs a training script, unmodified, on virtual GPUs; ``nvcoll price``: predicts its recording.

::

    for each model of GPU in --on      record the script (or take the recording from the cache)
    for each machine                   predict the recording of its GPU
    report                             to standard output; the output of the script goes to standard error

A script that runs out of memory on a model of GPU has no recording for it: the report says for these machines that the
script does not fit, with the message of torch's allocator, and the exit status is 3.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from nvcoll._nvcoll import InvalidArgument, fabrics
from nvcoll.cli import progress, traces
from nvcoll.cli.dryrun.answer import answer
from nvcoll.cli.dryrun.options import Html, Json, On, Outputs, Recorders, Tokens, Trace, Version
from nvcoll.cli.machines import DEFAULT_MACHINE, Env, named, one_machine, settings
from nvcoll.dryrun.failures import OutOfGpuMemory
from nvcoll.dryrun.launch import Request, gpu_of, hosts_of
from nvcoll.dryrun.recorded import Recorded
from nvcoll.dryrun.script import record, record_twice
from nvcoll.dryrun.spec import STEPS
from nvcoll.text.formatting import counted
from nvcoll.traces import chakra
from nvcoll.traces.formats import is_recording, opened
from nvcoll.training.planning import Machine

OF_MACHINES = ("--on", "-n", "--world-size")
"""Options whose place after the script is worth a note: without them the answer is for another machine."""


def dryrun(
    script: Annotated[str, typer.Argument(help="A training script that uses torch; with -m a module.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Arguments of the script.")] = None,
    is_module: Annotated[bool, typer.Option("-m", help="Run a module, as python -m.")] = False,
    on: On = DEFAULT_MACHINE,
    world_size: Annotated[
        int | None,
        typer.Option("-n", "--world-size", help="The number of ranks. Default: the GPUs of the first machine.", min=1),
    ] = None,
    gpus_per_node: Annotated[int | None, typer.Option(help="Ranks on a host. Default: the machine's.", min=1)] = None,
    steps: Annotated[int, typer.Option(help="Steps of the optimizer to run; the last one counts.", min=1)] = STEPS,
    ranks: Annotated[
        str | None, typer.Option("--only-ranks", help="Ranks to run, as 0,256. Default: those that differ.")
    ] = None,
    tokens: Tokens = None,
    nccl_version: Version = None,
    env: Env = None,
    time_limit: Annotated[float, typer.Option(help="Seconds after which the script is ended.", min=1)] = 1800,
    memory_limit: Annotated[
        float | None, typer.Option(help="GB of this machine that ranks may use. Default: 90 % of free memory.", min=0)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Hide the output of the script.")] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Record again, and keep nothing.")] = False,
    record_file: Annotated[
        Path | None, typer.Option("--save", help="Write the recording, for nvcoll price.", metavar="FILE")
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Run the script again, with predicted times in its profiler and events.")
    ] = False,
    clock: Annotated[
        bool, typer.Option("--clock", help="As --profile, with predicted times in its clock, too.")
    ] = False,
    html: Html = None,
    write_trace: Trace = None,
    as_json: Json = False,
) -> None:
    """Runs a training script, unmodified, on virtual GPUs, and predicts its step on machines that you do not have.

    It needs torch's CUDA build on Linux x86-64, but no GPU and no driver. Options of nvcoll come before the script, its
    own after it. The exit status is 3 if the script runs out of GPU memory.

    Example: nvcoll dryrun -n 512 --on hgx-h100x64+ib-ndr-8,hgx-b200x64+ib-ndr-8 train.py --layers 32
    """
    machines, outputs = [named(one) for one in on.split(",")], Outputs(html, write_trace, as_json)
    outputs.check(machines)
    _note_late_options(arguments or ())
    models = list(dict.fromkeys(gpu_of(one).name for one in machines))
    if record_file is not None and len(models) > 1:
        raise InvalidArgument(f"--save takes one model of GPU, and there are {', '.join(models)}: pass one")
    if (profile or clock) and len(machines) > 1:
        raise InvalidArgument(one_machine("--clock" if clock else "--profile", len(machines)))
    size = machines[0].world_size if world_size is None else world_size
    if small := [one for one in machines if one.world_size < size]:
        what = f"{small[0].name} has {small[0].world_size} GPUs, and {size} ranks need {size}"
        raise InvalidArgument(f"{what}: pass a larger machine, or another -n")
    found: dict[str, Recorded | OutOfGpuMemory] = {}
    with progress.line() as tell:
        for machine in machines:
            gpu = gpu_of(machine)
            if gpu.name in found:
                continue
            request = Request(
                script,
                tuple(arguments or ()),
                is_module,
                world_size=size,
                gpu=gpu,
                gpus_per_node=gpus_per_node or hosts_of(machine),
                steps=steps,
                time_limit_s=time_limit,
                memory_limit_bytes=None if memory_limit is None else memory_limit * 1e9,
                is_quiet=quiet,
            )
            try:
                if profile or clock:
                    there = partial(Machine, machine, version=nccl_version, settings=settings(env or ()))
                    recorded = record_twice(request, there, ranks=_numbers(ranks), has_clock=clock)
                else:
                    recorded = record(request, ranks=_numbers(ranks), is_cached=not no_cache, tell=tell)
                if recorded.facts["alone"] and (world_size or 1) > 1:
                    what = f"the {world_size} ranks of -n do not communicate"
                    recorded = recorded.with_facts(alone=f"{recorded.facts['alone']}; {what}")
                found[gpu.name] = recorded
            except OutOfGpuMemory as error:
                found[gpu.name] = error
    for one in found.values():
        if record_file is not None and isinstance(one, Recorded):
            one.with_tokens(tokens).with_facts(machine=on.split(",")[0]).save(record_file)
    each = [_known(found[gpu_of(machine).name], tokens) for machine in machines]
    answer(machines, each, nccl_version, env, outputs)


def price(
    files: Annotated[
        list[Path],
        typer.Argument(help="A recording of nvcoll dryrun --save, or a step of another tool (docs/traces.md)."),
    ],
    on: Recorders = None,
    tokens: Tokens = None,
    nccl_version: Version = None,
    env: Env = None,
    html: Html = None,
    write_trace: Trace = None,
    chakra_folder: Annotated[
        Path | None, typer.Option("--chakra", help="Write execution traces of Chakra.", metavar="FOLDER")
    ] = None,
    as_json: Json = False,
) -> None:
    """Predicts a recorded script on machines, without running it again. Also reads steps of Chakra and JAX.

    Example: nvcoll price train.json.gz --on hgx-h100x64+ib-ndr-8,hgx-h100x64+roce-100-8
    """
    outputs = Outputs(html, write_trace, as_json)
    recorded = Recorded.load(files[0]) if len(files) == 1 and is_recording(files[0]) else None
    on = on or (DEFAULT_MACHINE if recorded is None else _machine_of(recorded, files[0]))
    machines = [named(one) for one in on.split(",")]
    outputs.check(machines)
    if recorded is None:
        read = opened(files, gpu=gpu_of(machines[0]).name)
        traces.refuse_virtual(read, files[0])
        conditions = {"version": nccl_version, "settings": settings(env or ())}
        traces.price(read, machines, conditions, outputs, chakra_folder)
        return
    recorded = recorded.with_tokens(tokens)
    if chakra_folder is not None:
        chakra.write(recorded.step, chakra_folder)
    answer(machines, [recorded] * len(machines), nccl_version, env, outputs)


def _note_late_options(arguments: Sequence[str]) -> None:
    for name in dict.fromkeys(word.partition("=")[0] for word in arguments):
        if name in OF_MACHINES:
            print(f"nvcoll: {name} stands after the script and is passed to it", file=sys.stderr)


def _machine_of(recorded: Recorded, file: Path) -> str:
    """Returns the machine on which a script was recorded."""
    if (found := recorded.facts.get("machine")) is not None:
        return str(found)
    size, title = recorded.row["gpus"], recorded.facts["gpu_title"]
    node = next((one for one in fabrics() if one.gpu == title and one.nodes == 1), named(DEFAULT_MACHINE))
    nodes = -(-size // node.world_size)
    name = f"{node.name}x{nodes}+ib-ndr-8" if nodes > 1 else node.name
    raise InvalidArgument(f"{file} does not name its machine of {counted(size, 'GPU')} ({title}): pass --on {name}")


def _known(one: Recorded | OutOfGpuMemory, tokens: float | None) -> Recorded | OutOfGpuMemory:
    return one.with_tokens(tokens) if isinstance(one, Recorded) else one


def _numbers(text: str | None) -> list[int] | None:
    try:
        numbers = None if text is None else sorted({int(one) for one in text.split(",")})
    except ValueError:
        raise InvalidArgument(f"--only-ranks {text} are no ranks: pass numbers separated by commas, as 0,256") from None
    return numbers
