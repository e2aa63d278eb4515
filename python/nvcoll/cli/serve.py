"""``nvcoll serve``: what requests see of a model server on machines that you do not have, and the best layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, cast

import typer

from nvcoll._nvcoll import InvalidArgument, ServingPrediction, precisions
from nvcoll.cli import completion, formats
from nvcoll.cli.gathered import gathered
from nvcoll.cli.machines import Gpu, On, machines
from nvcoll.cli.outputs import Conditions
from nvcoll.cli.plan.given import configured, fields, numbers, prices, seconds, titled
from nvcoll.serving.options import CACHE_BYTES, CONCURRENCY, LENGTH, SERVER, ServeOptions, servers
from nvcoll.serving.planning import layouts
from nvcoll.serving.report import ServingReport
from nvcoll.text.tables import print_lines
from nvcoll.training.models import models


@dataclass(frozen=True)
class Load:
    """What clients send."""

    input: Annotated[float, typer.Option("--in", help="Tokens of a prompt, mean.", min=1)] = LENGTH
    output: Annotated[float, typer.Option("--out", help="Tokens of an answer, mean.", min=1)] = LENGTH
    concurrency: Annotated[
        float | None, typer.Option(help=f"Requests under way at once. Default: {CONCURRENCY}.", min=1)
    ] = None
    rate: Annotated[float | None, typer.Option(help="Requests a second, at random times, instead.", min=1e-6)] = None

    def __str__(self) -> str:
        """What is sent, in words."""
        number = self.concurrency or CONCURRENCY
        many = f"{number:g} requests at once" if self.rate is None else f"{self.rate:g} requests a second"
        return f"{many}, {self.input:g} tokens in, {self.output:g} out"


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


@dataclass(frozen=True)
class Wanted:
    """What an answer must keep; those that do not are left out."""

    ttft: Annotated[
        str | None, typer.Option(help="The most time to the first token: 500ms. The fewest GPUs come first.")
    ] = None
    tpot: Annotated[str | None, typer.Option(help="The most time of each token after it: 20ms.")] = None

    def keeps(self, found: ServingPrediction) -> bool:
        """Says whether an answer keeps both."""
        limits = ((self.ttft, "--ttft", found.ttft_s), (self.tpot, "--tpot", found.tpot_s))
        return not found.is_saturated and all(of <= seconds(name, most, REMEDY) for most, name, of in limits if most)


@gathered
def serve(
    model: Annotated[
        str,
        typer.Argument(
            help="A model, for example llama3-70b; a TOML file; or a model's config.json.",
            autocompletion=completion.among(models),
        ),
    ],
    load: Load,
    layout: Layout,
    wanted: Wanted,
    conditions: Conditions,
    on: On = None,
    gpus: Annotated[
        str | None,
        typer.Option("-n", "--world-size", help="The number of GPUs, or several. Default: all of the machine."),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(help=f"Weights: {', '.join(precisions())}.", autocompletion=completion.among(precisions)),
    ] = "bf16",
    cache: Annotated[str, typer.Option("--kv-cache", help=f"Keys and values: {', '.join(CACHE_BYTES)}.")] = "bf16",
    server: Annotated[
        str, typer.Option(help=f"The server: {', '.join(servers())}.", autocompletion=completion.among(servers))
    ] = SERVER,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="A field of the server, for example chunk=2048; repeatable.")
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
    as_json: formats.AsJson = False,
    schema: formats.Schema = False,
) -> None:
    """Predicts a model server: first token, time of a token, tokens per second, requests that fit, and what limits.

    Example: nvcoll serve llama3-70b --on hgx-h100,l40s-8-p2p --precision fp8 --concurrency 64
    """
    for name, given, known in (("--precision", precision, precisions()), ("--kv-cache", cache, list(CACHE_BYTES))):
        if given not in known:
            raise InvalidArgument(f"{name} {given} is unknown: choose from {', '.join(known)}")
    if load.rate is not None and load.concurrency is not None:
        raise InvalidArgument("--rate and --concurrency say two different things: pass one of them")
    fabrics = machines(on, gpu)
    fabrics += [one.what_if(change) for one in fabrics for change in what_if or ()]
    counts: Sequence[int | None] = numbers(gpus) or (None,)
    fields_of_model, _, assumed = configured([model], [])
    formats_ = {"precision": precision, "cache": cache}
    other = {"server": server, "overrides": fields(overrides or ())}
    how = cast(ServeOptions, {**vars(load), **vars(layout), **formats_, **other})
    found: list[ServingPrediction] = []
    refused: dict[str, int] = {}
    for one in fabrics:
        for count in counts:
            some, others = layouts(fields_of_model, on=conditions.machine(one, count), **how)
            found += some
            refused |= others
    kept = [one for one in found if wanted.keeps(one)]
    if wanted.ttft or wanted.tpot:
        kept.sort(key=lambda one: (one.gpus, -one.tokens_per_second))
        refused |= {"slower than was asked": len(found) - len(kept)} if len(found) > len(kept) else {}
    title = f"{titled(model, fields_of_model)} in {precision} by {servers()[server]['title']}: {load}"
    report = ServingReport("; ".join([title, *assumed]), kept, refused, prices(dollars, fabrics))
    if as_json:
        formats.print_json("serve", report.to_dict())
    else:
        print_lines(report.lines())
