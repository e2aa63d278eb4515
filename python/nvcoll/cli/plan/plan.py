"""``nvcoll plan``: how long a step of training takes on machines that you do not have, what is exposed, what fits.

One machine: the step in detail. Several: side by side. ``--sweep``: layouts, best first. ``--what-if``: the same step
on a machine with one thing changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from nvcoll._nvcoll import Fabric, InvalidArgument
from nvcoll.cli import completion, progress
from nvcoll.cli.machines import Env, named, one_machine, settings
from nvcoll.cli.plan import show
from nvcoll.text.formatting import counted
from nvcoll.text.tables import print_labelled
from nvcoll.training import configurations, layouts, page, trace
from nvcoll.training.models import is_model, models, software
from nvcoll.training.neighbours import neighbours
from nvcoll.training.planning import GLOBAL_BATCH, SOFTWARE, Machine
from nvcoll.training.prediction import Calibration, StepPrediction
from nvcoll.training.sweep import VARIED, Candidate, Sweep, sweep

SCHEMA, SWEEP_SCHEMA = "nvcoll.plan/1", "nvcoll.plan-sweep/1"


def _numbers(text: str | None) -> list[int]:
    """Reads numbers with commas between.

    Raises:
        InvalidArgument: one is no number.
    """
    try:
        return [int(one) for one in text.split(",")] if text else []
    except ValueError:
        raise InvalidArgument(f"-n {text} is no number of GPUs: pass one, or several with commas") from None


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


def _fields(given: Sequence[str]) -> dict[str, Any]:
    """Reads ``--set NAME=VALUE``; a value is JSON, as 25 or true, or else a word, as cudnn.

    Raises:
        InvalidArgument: one has no value.
    """
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not (name and sign and value):
            raise InvalidArgument(
                f"--set {one}: pass NAME=VALUE, as bucket_mb=25, overlaps_data=false or attention=cudnn"
            )
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _configured(files: Sequence[str], counts: Sequence[int], quiet: bool) -> dict[str, Any]:
    """Returns what files say, the last first; the first may be the name of a model. Prints what they leave open.

    Raises:
        InvalidArgument: one cannot be read, or none has a model.
    """
    how: dict[str, Any] = {"global_batch": GLOBAL_BATCH}
    for nth, file in enumerate(files):
        if nth == 0 and (not Path(file).is_file() or is_model(file)):
            how["model"] = file
            continue
        found = configurations.read(file, gpus=counts[0] if counts else None)
        said = found.words()
        if "model" in how and "model" in said:
            del said["model"]
            found.notes.append(f"its model is not used, {files[0]} is")
        how |= said
        for note in [] if quiet else found.notes:
            print_labelled("assumed", f"{file}: {note}")
    if "model" not in how:
        raise InvalidArgument(f"{files[0]} has no model: pass one, as nvcoll plan llama3-8b --config {files[0]}")
    return how


def _prices(given: Sequence[str] | None, machines: Sequence[Fabric]) -> dict[str, float]:
    """Reads prices of a GPU and hour: one for all machines, or one for each.

    Raises:
        InvalidArgument: one is no price, or their number fits no number of machines.
    """
    try:
        prices = [float(price) for one in given or () for price in one.split(",")]
    except ValueError:
        raise InvalidArgument(
            "--dollars-per-gpu-hour takes numbers, as 2.5, or one for each machine, as 2.5,4"
        ) from None
    if any(not price >= 0 for price in prices):
        raise InvalidArgument(f"--dollars-per-gpu-hour has the price {min(prices):g}: pass 0 or more")
    if prices and len(prices) not in (1, len(machines)):
        raise InvalidArgument(f"there are {len(prices)} prices for {len(machines)} machines: pass one, or one for each")
    return dict(
        zip([one.name for one in machines], prices * len(machines) if len(prices) == 1 else prices, strict=False)
    )


def _show_list(wanted: bool) -> None:
    if wanted:
        print("models    ", ", ".join(models()))
        print("software  ", ", ".join(software()))
        raise typer.Exit


def _sweeps(model: str, machine: Fabric, gpus: Sequence[int], on: dict[str, Any], how: dict[str, Any]) -> Sweep:
    """Sweeps the layouts of each number of GPUs."""
    found: list[Candidate] = []
    refused: dict[str, int] = {}
    with progress.line() as tell:
        for count in gpus or [machine.world_size]:
            priced = lambda done, all_, count=count: tell(f"{done} of {all_} layouts of {count} GPUs priced")  # noqa: E731
            some = sweep(model, Machine(machine, count, **on), tell=priced, **how)
            found += some.candidates
            refused |= some.refused
    return Sweep.of(found, refused)


def plan(
    model: Annotated[
        str,
        typer.Argument(
            help="A model, as llama3-70b; its TOML; or a configuration of a framework that has a model.",
            autocompletion=completion.among(models),
        ),
    ],
    on: Annotated[
        str, typer.Option("--on", help="Machines, separated by commas, as hgx-h100x64+ib-ndr-8.")
    ] = "hgx-h100",
    gpus: Annotated[
        str | None,
        typer.Option(
            "-n", "--world-size", help="The number of GPUs; several with --sweep. Default: all of the machine."
        ),
    ] = None,
    global_batch: Annotated[
        int | None, typer.Option(help=f"Sequences of a step. Default: {GLOBAL_BATCH}.", min=1)
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option(help="Sequences of a micro-batch on one rank. Default: 1.", min=1)
    ] = None,
    sequence: Annotated[int | None, typer.Option(help="Tokens of a sequence. Default: the model's.", min=1)] = None,
    tp: Annotated[int | None, typer.Option("--tp", help="Tensor-parallel ranks. Default: 1.", min=1)] = None,
    pp: Annotated[int | None, typer.Option("--pp", help="Stages of the pipeline. Default: 1.", min=1)] = None,
    vp: Annotated[
        int | None, typer.Option("--vp", help="Chunks of each stage (virtual stages). Default: 1.", min=1)
    ] = None,
    cp: Annotated[int | None, typer.Option("--cp", help="Context-parallel ranks. Default: 1.", min=1)] = None,
    ep: Annotated[int | None, typer.Option("--ep", help="Expert-parallel ranks. Default: 1.", min=1)] = None,
    dp: Annotated[
        int | None, typer.Option("--dp", help="Data-parallel ranks. Default: what the others leave.", min=1)
    ] = None,
    zero: Annotated[
        int | None, typer.Option(help="Sharded: 0 nothing, 1 optimizer, 2 gradients, 3 parameters (FSDP). Default: 1.")
    ] = None,
    shard_ranks: Annotated[
        int | None, typer.Option(help="Ranks that share one copy: HSDP. Default: all.", min=1)
    ] = None,
    recompute: Annotated[
        str | None,
        typer.Option(
            help="Computed again: none, selective (attention), full (layers). Default: none.",
            autocompletion=completion.among(lambda: ("none", "selective", "full")),
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help=f"Precision of products: {', '.join(layouts.DTYPES)}. Default: bf16.",
            autocompletion=completion.among(lambda: layouts.DTYPES),
        ),
    ] = None,
    schedule: Annotated[str | None, typer.Option(help=f"Of the pipeline: {', '.join(layouts.SCHEDULES)}.")] = None,
    order: Annotated[str | None, typer.Option(help=f"Ranks, innermost first: {', '.join(layouts.ORDERS)}.")] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            "--software",
            help=f"The framework; --list names them. Default: {SOFTWARE}.",
            autocompletion=completion.among(software),
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", help="A file of Megatron-LM, torchtitan, transformers or DeepSpeed.", metavar="FILE"),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--set", help="A field of the software, as bucket_mb=25 or gradient_bytes=2; repeatable."),
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU whose computing counts. Default: that of the machine.")] = None,
    nccl_version: Annotated[str | None, typer.Option("--nccl-version", help="Version of NCCL, as 2.27.7.")] = None,
    env: Env = None,
    sweeps: Annotated[bool, typer.Option("--sweep", help="Price all usual layouts; those given stay.")] = False,
    what_if: Annotated[
        list[str] | None, typer.Option("--what-if", help='The machine with a change: "nvlink x2", "nics 4", "pcie".')
    ] = None,
    measured: Annotated[
        str | None, typer.Option(help="The step of this layout as measured, as 11.3s; scales all times.")
    ] = None,
    dollars: Annotated[
        list[str] | None, typer.Option("--dollars-per-gpu-hour", help="Price of a GPU and hour, one for each machine.")
    ] = None,
    write_step: Annotated[Path | None, typer.Option("--save", help="Write the step as JSON.", metavar="FILE")] = None,
    write_trace: Annotated[
        Path | None, typer.Option("--trace", help="Write the pipeline for ui.perfetto.dev.", metavar="FILE")
    ] = None,
    write_html: Annotated[
        Path | None, typer.Option("--html", help="Write a page with charts; of the best with --sweep.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    _list: Annotated[
        bool, typer.Option("--list", help="List models and software.", callback=_show_list, is_eager=True)
    ] = False,
) -> None:
    """Predicts a step of training: time with its 90 % interval, MFU, where the time goes, memory, what to try next.

    Example: nvcoll plan llama3-70b --on hgx-h100x64+ib-ndr-8 --tp 8 --pp 4 --global-batch 1024
    """
    machines = [named(one) for one in on.split(",")]
    counts = _numbers(gpus)
    _check_size(machines, counts)
    conditions: dict[str, Any] = {"gpu": gpu, "version": nccl_version, "settings": settings(env or ())}
    words: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "vp": vp,
        "cp": cp,
        "ep": ep,
        "dp": dp,
        "zero": zero,
        "shard_ranks": shard_ranks,
    }
    words |= {"micro_batch": micro_batch, "global_batch": global_batch, "sequence": sequence, "recompute": recompute}
    words |= {"dtype": dtype, "schedule": schedule, "order": order, "software": framework}
    how = _configured([model, *([config] if config else [])], counts, quiet=as_json)
    words = {word: value for word, value in words.items() if value is not None}
    if words.keys() & {"tp", "pp", "cp"}:
        how.pop("dp", None)  # data parallelism takes the GPUs that sizes of the command line leave
    how |= words
    how["overrides"] = how.get("overrides", {}) | _fields(given or ())
    model = how.pop("model")
    calibration: Calibration | None = None
    if write_html is not None:
        page.libraries()
    if sweeps:
        of_one = {"--save": write_step, "--trace": write_trace}
        if given := [name for name, value in of_one.items() if value is not None]:
            raise InvalidArgument(f"{given[0]} is of one layout: pass it without --sweep, with the layout of a row")
        machines += _changed(machines, what_if)
        if measured is not None:
            first = Machine(machines[0], *counts[:1], **conditions).plan(model, **how)
            calibration = _calibration(first, measured, quiet=as_json)
            how = {word: value for word, value in how.items() if word not in VARIED}
        found_there = [_sweeps(model, one, counts, conditions, how) for one in machines]
        if calibration is not None:
            found_there = [one.scaled(calibration) for one in found_there]
        _show_sweeps(model, machines, found_there, _prices(dollars, machines), as_json)
        if write_html is not None:
            best = found_there[0]
            there = Machine(machines[0], best.best.gpus, **conditions)
            request = {**there.request(model, **how), "layout": best.best.layout}
            found_best = there.planned(request)
            text = page.of(found_best, timeline=there.timeline(found_best.step), sweep=best.candidates)
            write_html.write_text(text, encoding="utf-8")
        return
    if len(counts) > 1:
        raise InvalidArgument("several numbers of GPUs are for --sweep: pass one")
    asked = [Machine(one, *counts, **conditions) for one in (*machines, *_changed(machines, what_if))]
    of_first = {"--save": write_step, "--trace": write_trace, "--html": write_html}
    if len(asked) > 1 and (given := [name for name, value in of_first.items() if value is not None]):
        raise InvalidArgument(one_machine(given[0], len(asked)))
    found = [machine.plan(model, **how) for machine in asked]
    if measured is not None:
        calibration = _calibration(found[0], measured, quiet=as_json)
        found = [calibration.of(one) for one in found]
    if write_step is not None:
        write_step.write_text(found[0].step.to_json(), encoding="utf-8")
    if write_trace is not None:
        trace.save(asked[0].timeline(found[0].step), write_trace)
    if write_html is not None:
        timeline = asked[0].timeline(found[0].step)
        write_html.write_text(page.of(found[0], timeline=timeline), encoding="utf-8")
    prices = _prices(dollars, [one.fabric for one in asked])
    if as_json:
        print(json.dumps({"schema": SCHEMA, "predictions": [one.to_dict() for one in found]}, indent=2))
    elif len(found) == 1:
        show.show_step(found[0], neighbours(asked[0], found[0]), prices.get(found[0].machine.name))
    else:
        show.show_machines(found, prices)


def _show_sweeps(
    model: str, machines: Sequence[Fabric], found: Sequence[Sweep], dollars: dict[str, float], as_json: bool
) -> None:
    if as_json:
        rows = [
            {"machine": machine.name, "refused": one.refused, "candidates": [vars(row) for row in one.candidates]}
            for machine, one in zip(machines, found, strict=True)
        ]
        print(json.dumps({"schema": SWEEP_SCHEMA, "sweeps": rows}, indent=2))
        return
    for nth, (machine, one) in enumerate(zip(machines, found, strict=True)):
        if nth:
            print()
        show.show_sweep(f"{model} on {machine.name}", one, dollars.get(machine.name))


def _changed(machines: Sequence[Fabric], changes: Sequence[str] | None) -> list[Fabric]:
    """Returns each machine with each change."""
    return [machine.what_if(change) for machine in machines for change in changes or ()]


def _calibration(found: StepPrediction, measured: str, quiet: bool) -> Calibration:
    """Compares a prediction with the step as it was measured.

    Raises:
        InvalidArgument: the text is no time.
    """
    number, unit = (measured[:-2], 1e-3) if measured.endswith("ms") else (measured.removesuffix("s"), 1.0)
    try:
        time = float(number) * unit
    except ValueError:
        raise InvalidArgument(f"--measured {measured} is no time: pass seconds, as 11.3s") from None
    calibration = found.calibrated(time)
    if not quiet:
        ratio, scale = calibration.ratio, calibration.scale
        noise = "one run has noise of its own"
        print(f"measured {ratio:.2f} times the prediction; {noise}: times are scaled by {scale:.2f}")
    return calibration
