"""``nvcoll plan``: how long a step of training takes on machines that you do not have, what is exposed, what fits.

One machine: the step in detail. Several: side by side. ``--sweep``: layouts, best first. ``--what-if``: the same step
on a machine with one thing changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from nvcoll._nvcoll import Calibration, Fabric, InvalidArgument, StepPrediction
from nvcoll.cli import completion, progress
from nvcoll.cli.gathered import gathered
from nvcoll.cli.machines import ANY, Conditions, Gpu, On, any_machines, machines, one_machine, taken
from nvcoll.cli.outputs import Outputs
from nvcoll.cli.plan.given import configured, fields, job_gpus, numbers, paged, prices, ram, seconds, titled
from nvcoll.text.blocks import Line, under
from nvcoll.text.formatting import counted, duration
from nvcoll.training.models import models, software
from nvcoll.training.options import PlanOptions
from nvcoll.training.planning import Machine
from nvcoll.training.prediction import fit_words
from nvcoll.training.report import Detail, MeasuredStep, Report
from nvcoll.training.sweep import VARIED, Sweep, neighbours, sweep


def _show_list(wanted: bool) -> None:
    if wanted:
        print("models    ", ", ".join(models()))
        print("software  ", ", ".join(software()))
        raise typer.Exit


def _check_size(machines: Sequence[Fabric], counts: Sequence[int]) -> None:
    """Refuses more GPUs than a node has, and names a cluster of such nodes.

    Raises:
        InvalidArgument: a machine of one node is too small.
    """
    for one in machines:
        if counts and one.nodes == 1 and max(counts) > one.world_size:
            nodes = -(-max(counts) // one.world_size)
            has = f"{one.name} has {counted(one.world_size, 'GPU')}, and -n is {max(counts)}"
            raise InvalidArgument(f"{has}: pass a cluster, as --on {one.name}x{nodes}+ib-ndr-8")


@dataclass(frozen=True)
class Sources:
    """Options that say more than the layout: files, fields of the software, the GPU of a machine that names none."""

    config: Annotated[
        str | None,
        typer.Option("--config", help="A file of a framework: a script, YAML, TOML or JSON.", metavar="FILE"),
    ] = None
    fields: Annotated[
        list[str] | None,
        typer.Option("--set", help="A field of the software, for example bucket_mb=25; repeatable."),
    ] = None
    gpu: Gpu = None
    listed: Annotated[
        bool, typer.Option("--list", help="List models and software.", callback=_show_list, is_eager=True)
    ] = False


@gathered
def plan(
    model: Annotated[
        str,
        typer.Argument(
            help="A model, for example llama3-70b; a TOML file; or a framework's configuration with a model.",
            autocompletion=completion.among(models),
        ),
    ],
    how: PlanOptions,
    sources: Sources,
    conditions: Conditions,
    outputs: Outputs,
    on: On = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            "-n", "--world-size", help="The number of GPUs; several with --sweep. Default: all of the machine."
        ),
    ] = None,
    sweeps: Annotated[
        bool,
        typer.Option(
            "--sweep", help="Try all common sizes of the layout; ZeRO, --schedule, --dtype and given sizes are fixed."
        ),
    ] = False,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if", help='Also predict the machine with this change: "nvlink x2", "nics 4", pcie, "gpu h200".'
        ),
    ] = None,
    measured: Annotated[
        str | None, typer.Option(help="Measured step time, for example 11.3s; all predictions are scaled to it.")
    ] = None,
    dollars: Annotated[
        list[str] | None,
        typer.Option("--dollars-per-gpu-hour", help="Dollars per GPU-hour; one price, or one for each machine."),
    ] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Write the step as JSON.", metavar="FILE")] = None,
) -> None:
    """Predicts a step of training: time with its 90 % interval, MFU, where the time goes, memory, what to try next.

    Example: nvcoll plan llama3-70b --on hgx-h100x64+ib-ndr-8 --tp 8 --pp 4 --global-batch 1024
    """
    is_any = on == [ANY]
    if is_any and not sweeps:
        raise InvalidArgument("--on any is for --sweep: pass it, or one machine")
    fabrics = any_machines() if is_any else machines(on, sources.gpu)
    notes = [] if is_any else taken(on, fabrics)
    fabrics += [one.what_if(change) for one in fabrics for change in what_if or ()]
    counts = numbers(gpus)
    found_model, read, assumed = configured([model, *([sources.config] if sources.config else [])], counts, fabrics)
    if how.keys() & {"tp", "pp", "cp"}:
        read.pop("dp", None)  # data parallelism takes the GPUs that sizes of the command line leave
    if not counts and "dp" not in how:
        counts = job_gpus(read, fabrics)
    how = {**read, **how, "overrides": {**read.get("overrides", {}), **fields(sources.fields or ())}}
    assumed = [*notes, *assumed, *paged(how)]
    _check(sweeps, {"--save": save, "--trace": outputs.trace}, counts, len(fabrics))
    _check_size(fabrics, counts)
    outputs.check(fabrics)
    no_peaks: Counter[str] = Counter()
    asked = []
    for one in fabrics:
        try:
            asked.append([conditions.machine(one, count) for count in counts or (None,)])
        except InvalidArgument as error:
            if not is_any:
                raise
            no_peaks[str(error)] += 1
    assumed += [f"{counted(number, 'machine')} left out: {why}" for why, number in no_peaks.items()]
    report = Report("plan", titled(model, found_model), [], [], dollars=prices(dollars, fabrics), assumed=assumed)
    calibration = None
    if measured is not None:
        calibration, shown = _calibration(asked[0][0].plan(found_model, **how), measured)
        report = replace(report, measured=shown)
    if sweeps:
        report = _swept(report, asked, found_model, how, calibration)
    else:
        report = _planned(report, [one for one, *_ in asked], found_model, how, calibration)
    if save is not None:
        save.write_text(report.found[0].step.to_json(), encoding="utf-8")
    outputs.write(report)


def _check(sweeps: bool, files: dict[str, Path | None], counts: Sequence[int], machines: int) -> None:
    """Refuses files of one step where there are several.

    Raises:
        InvalidArgument: there are.
    """
    given = [name for name, file in files.items() if file is not None]
    if sweeps and given:
        raise InvalidArgument(f"{given[0]} is of one layout: pass it without --sweep, with the layout of a row")
    if len(counts) > 1 and not sweeps:
        raise InvalidArgument("several numbers of GPUs are for --sweep: pass one")
    if machines > 1 and given:
        raise InvalidArgument(one_machine(given[0], machines))


def _planned(
    report: Report,
    machines: Sequence[Machine],
    model: str | dict[str, Any],
    how: PlanOptions,
    calibration: Calibration | None,
) -> Report:
    """Adds the step on each machine; on one machine, what to try next."""
    found = [one.plan(model, **how) for one in machines]
    tries = neighbours(machines[0], found[0]) if len(found) == 1 else []
    if calibration is not None:
        found, tries = (
            [one.scaled(calibration.scale) for one in found],
            [one.scaled(calibration.scale) for one in tries],
        )
    names, layouts = list(dict.fromkeys(one.step.name for one in found)), dict.fromkeys(one.words for one in found)
    if len(found) == 1:
        title, details = f"{names[0]}, {found[0].machine.name}", [Detail(last=[*_tries(tries, found[0])])]
    else:
        title = names[0] if len(names) == 1 else f"{names[0]}; other machines have more or fewer GPUs"
        details = []
    asked = [one.request["layout"] for one in found if one.request]
    sizes = dict.fromkeys(f"{one['global_batch']:,}, {one['sequence']:,} tokens each" for one in asked)
    layout = f"{', or '.join(layouts)}; global batch {', or '.join(sizes)}"
    assumed = [*report.assumed, *ram(found)]
    head = [*under("assumed", assumed), Line("", title), Line("layout", layout)]
    return replace(report, machines=machines, found=found, head=head, details=details, assumed=assumed)


def _tries(tries: Sequence[StepPrediction], found: StepPrediction) -> Sequence[Line]:
    """Says which neighbouring layouts are faster, or fit."""
    lines = []
    for one in tries[:3]:
        share = 100 * (1 - one.seconds / found.seconds)
        change = f"{share:.0f} % faster" if share > 0 else f"{-share:.0f} % slower"
        fit = f"{one.memory_gib:.0f} GiB, {fit_words(one)}"
        lines.append(f"{one.words}: {duration(one.seconds)}, {change}, {fit}")
    fits = found.fit != "too_large"
    none = "is faster by 2 % or more and fits" if fits else "fits: pass --sweep, or more GPUs"
    return [*under("try", lines or [f"no neighbouring layout {none}"])]


def _swept(
    report: Report,
    asked: Sequence[Sequence[Machine]],
    model: str | dict[str, Any],
    how: PlanOptions,
    calibration: Calibration | None,
) -> Report:
    """Adds a sweep on each machine, and the best layout of each that has one."""
    if calibration is not None:
        how = cast(PlanOptions, {word: value for word, value in how.items() if word not in VARIED})
    given = {word: value for word, value in how.items() if word in ("software", "overrides")}
    machines, found, sweeps = [], [], {}
    for sizes in asked:
        one = _sweep(model, sizes, how)
        if one.candidates and (best := one.candidates[0]).fit != "too_large":
            machines.append(next(size for size in sizes if size.gpus == best.gpus))
            found.append(machines[-1].plan(model, **cast(PlanOptions, {**given, **best.layout})))
        sweeps[sizes[0].fabric.name] = one
    if calibration is not None:
        found = [one.scaled(calibration.scale) for one in found]
        sweeps = {name: one.scaled(calibration) for name, one in sweeps.items()}
    assumed = [*report.assumed, *ram(row for one in sweeps.values() for row in one.candidates)]
    head = [*under("assumed", assumed)]
    return replace(report, machines=machines, found=found, sweeps=sweeps, head=head, assumed=assumed)


def _sweep(model: str | dict[str, Any], sizes: Sequence[Machine], how: PlanOptions) -> Sweep:
    """Sweeps the layouts of each number of GPUs of a machine."""
    found: list[StepPrediction] = []
    refused: dict[str, int] = {}
    with progress.line() as tell:
        for one in sizes:

            def priced(done: int, all_: int, count: int = one.gpus) -> None:
                tell(f"{done} of {all_} layouts of {count} GPUs priced")

            some = sweep(model, one, tell=priced, **how)
            found += some.candidates
            refused |= some.refused
    return Sweep.of(found, refused)


def _calibration(found: StepPrediction, measured: str) -> tuple[Calibration, MeasuredStep]:
    """Compares a prediction with the step as it was measured.

    Raises:
        InvalidArgument: the text is no time.
    """
    time = seconds("--measured", measured, "seconds, as 11.3s")
    calibration = found.calibrated(time)
    noise = "one run has noise of its own"
    scaled = f"{calibration.ratio:.2f} times the prediction; {noise}: times are scaled by {calibration.scale:.2f}"
    shown = [Line("measured", scaled)]
    return calibration, MeasuredStep(time, found.machine.name, scale=calibration.scale, shown=shown)
