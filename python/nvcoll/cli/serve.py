"""``nvcoll serve``: what requests see of a model server on machines that you do not have, and the best layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from nvcoll._nvcoll import InvalidArgument, ServingPrediction, precisions
from nvcoll.cli import completion, formats, progress
from nvcoll.cli.gathered import gathered
from nvcoll.cli.machines import Conditions, Gpu, On, machines, taken
from nvcoll.cli.outputs import Html
from nvcoll.cli.plan.given import configured, fields, numbers, prices, seconds, titled
from nvcoll.cli.sweeps import FIELDS, drafter, swept, weights
from nvcoll.serving.options import CACHE_BYTES, CONCURRENCY, LENGTH, SERVER, ServeOptions, server_of, servers
from nvcoll.serving.planning import layouts
from nvcoll.serving.report import ServingReport
from nvcoll.text.tables import print_lines
from nvcoll.training import hub, page
from nvcoll.training.models import models
from nvcoll.training.planning import Machine


@dataclass(frozen=True)
class Load:
    """What clients send."""

    input: Annotated[float, typer.Option("--in", help="Tokens of a prompt, mean.", min=1)] = LENGTH
    output: Annotated[float, typer.Option("--out", help="Tokens of an answer, mean.", min=1)] = LENGTH
    concurrency: Annotated[
        float | None, typer.Option(help=f"Requests under way at once. Default: {CONCURRENCY}.", min=1)
    ] = None
    rate: Annotated[float | None, typer.Option(help="Requests a second, at random times, instead.", min=1e-6)] = None

    def words(self, swept: Mapping[str, Sequence[Any]]) -> str:
        """What is sent, in words, with the values of a sweep."""
        values = {name: swept.get(name, [value or CONCURRENCY]) for name, value in vars(self).items()}
        shown = {name: ", ".join(f"{one:g}" for one in some) for name, some in values.items()}
        has_rate = self.rate is not None or "rate" in swept
        many = f"{shown['rate']} requests a second" if has_rate else f"{shown['concurrency']} requests at once"
        return f"{many}, {shown['input']} tokens in, {shown['output']} out"


@dataclass(frozen=True)
class Speculation:
    """How the server drafts tokens."""

    speculate: Annotated[int | None, typer.Option(help="Tokens that are drafted in an iteration.", min=0, max=64)] = (
        None
    )
    accept: Annotated[
        float | None,
        typer.Option(help="The part of drafts that is accepted, of those whose predecessors were.", min=0, max=1),
    ] = None
    draft: Annotated[
        str | None, typer.Option(help="What drafts: head (EAGLE, MTP; the default), ngram, or a model.")
    ] = None


@dataclass(frozen=True)
class Layout:
    """How the server divides requests and the model; sizes that are not given vary."""

    tp: Annotated[int | None, typer.Option(help="Ranks that divide layers.", min=1)] = None
    pp: Annotated[int | None, typer.Option(help="Stages of the pipeline.", min=1)] = None
    ep: Annotated[int | None, typer.Option(help="Parts of the experts.", min=1)] = None
    dp_attention: Annotated[
        int | None, typer.Option(help="Groups of ranks that attend to requests of their own.", min=1)
    ] = None
    copies: Annotated[int | None, typer.Option(help="Servers. Default: as many as the GPUs hold.", min=1)] = None


REMEDY = "milliseconds or seconds, as 20ms or 0.5s"
"""What to pass as a limit of a time."""


def limit(option: str, text: str) -> float:
    """Reads a limit of a time.

    Raises:
        InvalidArgument: it is none, or has no unit: benchmarks print milliseconds.
    """
    if not text.endswith("s"):
        raise InvalidArgument(f"{option} {text} is no time: pass {REMEDY}")
    return seconds(option, text, REMEDY)


@dataclass(frozen=True)
class Wanted:
    """What an answer must keep; those that do not are left out."""

    ttft: Annotated[
        str | None, typer.Option(help="The most time to the first token: 500ms. The fewest GPUs come first.")
    ] = None
    tpot: Annotated[str | None, typer.Option(help="The most time of each token after it: 20ms.")] = None

    def keeps(self, found: ServingPrediction) -> bool:
        """Says whether an answer keeps both; a server that falls behind keeps none."""
        limits = ((self.ttft, "--ttft", found.ttft_s), (self.tpot, "--tpot", found.tpot_s))
        kept = [of <= limit(name, most) and not found.is_saturated for most, name, of in limits if most]
        return all(kept)


@gathered
def serve(
    model: Annotated[
        str,
        typer.Argument(
            help="A model, for example llama3-70b or Qwen/Qwen3-32B-AWQ; a TOML file; a config.json or its folder.",
            autocompletion=completion.among(models),
        ),
    ],
    load: Load,
    layout: Layout,
    speculation: Speculation,
    wanted: Wanted,
    conditions: Conditions,
    on: On = None,
    gpus: Annotated[
        str | None,
        typer.Option("-n", "--world-size", help="The number of GPUs, or several. Default: all of the machine."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", help="Values of an option, for example concurrency=1,4,16,64; repeatable."),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help=f"Weights: {', '.join(precisions())}. Default: what the model's name or file says, or else bf16.",
            autocompletion=completion.among(precisions),
        ),
    ] = None,
    cache: Annotated[str, typer.Option("--kv-cache", help=f"Keys and values: {', '.join(CACHE_BYTES)}.")] = "bf16",
    server: Annotated[
        str, typer.Option(help=f"The server: {', '.join(servers())}.", autocompletion=completion.among(servers))
    ] = SERVER,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="A field of the server, for example chunk=2048; repeatable.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            help="Iterations of the installed server in this file, in the place of planned ones. No file: record them.",
            metavar="FILE",
        ),
    ] = None,
    gpu: Gpu = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option("--what-if", help='Also the machine with this change: "nvlink x2", pcie, "gpu h200".'),
    ] = None,
    dollars: Annotated[
        list[str] | None,
        typer.Option("--dollars-per-gpu-hour", help="Dollars per GPU-hour; one price, or one for each machine."),
    ] = None,
    html: Html = None,
    as_json: formats.AsJson = False,
    schema: formats.Schema = False,
) -> None:
    """Predicts a model server: first token, time of a token, tokens per second, requests that fit, and what limits.

    Example: nvcoll serve llama3-70b --on hgx-h100,l40s-8-p2p --precision fp8 --concurrency 64
    """
    varied = swept(sweep or ())
    fields_of_model, _, assumed = configured([model], [])
    if precision is None and "precision" not in varied and (stored := hub.weights(model, models())):
        precision = stored
        assumed.append(f"weights in {stored}, as published: pass --precision for another format")
    precision = weights(precision or "bf16")
    _check(varied, load, {"precision": precision, "kv-cache": cache})
    if html is not None:
        page.libraries()
    fabrics = machines(on, gpu)
    assumed += taken(on, fabrics)
    fabrics += [one.what_if(change) for one in fabrics for change in what_if or ()]
    counts: Sequence[int | None] = varied.pop("n", []) or numbers(gpus) or (None,)
    formats_ = {"precision": precision, "cache": cache}
    other = {"server": server, "overrides": fields(overrides or ()), "record": record}
    how = {**vars(load), **vars(layout), **vars(speculation), "draft": drafter(speculation.draft), **formats_, **other}
    asked = [conditions.machine(one, count) for one, count in product(fabrics, counts)]
    if record is not None:
        from nvcoll.serving.recorded import recorded  # loads the dry run

        assumed.append(f"iterations recorded in {record}")
        with progress.line() as tell:
            recorded(record, model, asked[0], how, tell)
    found, refused = _priced(model if record else fields_of_model, asked, how, varied)
    kept = [one for one in found if wanted.keeps(one)]
    if wanted.ttft or wanted.tpot:
        kept.sort(key=lambda one: (one.gpus, -one.tokens_per_second))
        refused |= {"slower than was asked": len(found) - len(kept)} if len(found) > len(kept) else {}
    by = " or ".join(server_of(one)["title"] for one in varied.get("server", [server]))
    stored_in = ", ".join(varied.get("precision", [precision]))
    title = f"{titled(model, fields_of_model)} in {stored_in} by {by}: {load.words(varied)}"
    report = ServingReport(title, kept, refused, prices(dollars, fabrics), assumed)
    if html is not None and kept:
        html.write_text(report.page(), encoding="utf-8")
    if as_json:
        formats.print_json("serve", report.to_dict())
    else:
        print_lines(report.lines())
    if not found:
        raise typer.Exit(1)


def _check(varied: Mapping[str, Sequence[Any]], load: Load, formats: Mapping[str, str]) -> None:
    """Refuses formats that are not known, and two ways to send requests.

    Raises:
        InvalidArgument: there are.
    """
    for option, known in (("precision", precisions()), ("kv-cache", list(CACHE_BYTES))):
        given = varied.get(FIELDS.get(option, option), [formats[option]])
        if unknown := [one for one in given if one not in known]:
            raise InvalidArgument(f"--{option} {unknown[0]} is unknown: choose from {', '.join(known)}")
    if (load.rate is not None or "rate" in varied) and (load.concurrency is not None or "concurrency" in varied):
        raise InvalidArgument("--rate and --concurrency say two different things: pass one of them")


def _priced(
    model: str | dict[str, Any],
    machines: Sequence[Machine],
    how: Mapping[str, Any],
    varied: Mapping[str, Sequence[Any]],
) -> tuple[list[ServingPrediction], dict[str, int]]:
    """Prices all layouts on each machine with each value of a sweep."""
    found: list[ServingPrediction] = []
    refused: dict[str, int] = {}
    for machine, *values in product(machines, *varied.values()):
        asked = cast(ServeOptions, {**how, **dict(zip(varied, values, strict=True))})
        some, others = layouts(model, on=machine, **asked)
        found += some
        refused |= others
    return sorted(found, key=lambda one: -one.tokens_per_second) if varied else found, refused
