"""`ServingReport`: the output of ``nvcoll serve`` as text and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nvcoll._nvcoll import InvalidArgument, ServingPrediction
from nvcoll.serving import page
from nvcoll.text.blocks import Block, Blocks, Line, Table, under
from nvcoll.text.formatting import counted, duration
from nvcoll.training.prediction import PARTS

ROWS: Final = 12
"""Layouts that the text shows, as many of each machine. Chosen."""


Request = Mapping[str, Any]


def _requests(request: Request) -> tuple[str, float]:
    load = request["load"]
    number = load.get("concurrency", load.get("rate"))
    return f"{number:,g}{'' if 'concurrency' in load else ' a second'}", number


def _drafts(request: Request) -> tuple[str, object]:
    if (one := request.get("speculation")) is None:
        return "none", 0
    draft = one["draft"]["model"]["name"] if isinstance(one["draft"], dict) else one["draft"]
    return f"{one['tokens']} by {draft}, {100 * one['acceptance']:.0f} % accepted", one["tokens"]


ASKED: Final[Mapping[str, Callable[[Request], tuple[str, object]]]] = {
    "requests": _requests,
    "in": lambda request: (f"{request['load']['input']:,g}", request["load"]["input"]),
    "out": lambda request: (f"{request['load']['output']:,g}", request["load"]["output"]),
    "weights": lambda request: 2 * (request["precision"],),
    "cache": lambda request: (f"{8 * request['cache_bytes']:g} bits", request["cache_bytes"]),
    "server": lambda request: 2 * (request["software"]["name"],),
    "drafts": _drafts,
}
"""What may differ between servers of a sweep: a heading, and of a request the text and the value by which it sorts."""


def token(one: ServingPrediction) -> str:
    """Returns what an iteration is called that generates: a token, or more if drafts are checked."""
    return "an iteration" if one.request.get("speculation") else "a token"


def pareto(found: Sequence[ServingPrediction]) -> list[ServingPrediction]:
    """Returns the servers that no other on the same machine beats in tokens per second and GPU, and in TPOT."""
    most, kept = dict[str, float](), []
    for one in sorted(found, key=lambda one: (one.tpot_s, -one.tokens_per_second)):
        if one.tokens_per_second > most.get(one.machine.name, 0.0):
            most[one.machine.name] = one.tokens_per_second
            kept.append(one)
    order = list(dict.fromkeys(one.machine.name for one in found))
    return sorted(kept, key=lambda one: order.index(one.machine.name))


def interval(ends: Sequence[float]) -> str:
    """Returns the ends of an interval of times."""
    return f"(90 %: {duration(*ends)})"


def row(found: ServingPrediction) -> dict[str, Any]:
    """Returns what programs get of an answer."""
    report, request = json.loads(found.to_json())
    kept = ("seconds", "parts")
    steps = {name: {word: report[name][word] for word in kept} for name in ("decode", "prefill")}
    asked = {name: request.get(name) for name in ("layout", "load", "precision", "speculation")}
    return {"machine": found.machine.name, **asked, "server": request["software"]["name"], **report, **steps}


@dataclass(frozen=True)
class ServingReport(Blocks):
    """Answers for a model server: layouts on machines, best first, or one in detail."""

    title: str
    found: Sequence[ServingPrediction]
    refused: Mapping[str, int]
    dollars: Mapping[str, float] = field(default_factory=dict)
    assumed: Sequence[str] = ()

    def blocks(self) -> Iterator[Block]:
        """Yields the parts of the text."""
        yield Line("", self.title)
        yield from under("assumed", self.assumed)
        if len(self.found) == 1:
            yield from self._detail(self.found[0])
        elif self.found:
            shown = self._shown()
            yield None
            heads = self._columns(shown)
            rows = [list(cells) for cells in zip(*([text for text, _ in one] for one in heads.values()), strict=True)]
            yield Table([*heads], rows, left=page.WORDS, optional=["90 % interval", "limit"])
            if len(self.found) > len(shown):
                yield Line("", f"and {len(self.found) - len(shown)} more: pass --json, or --html")
        if self.refused:
            yield from under("refused", [f"{counted(many, 'layout')}: {why}" for why, many in self.refused.items()])
        notes = dict.fromkeys(f"{one.machine.name}: {note}" for one in self._shown() for note in one.notes)
        yield from under("note", notes)

    def price(self, found: ServingPrediction) -> float | None:
        """Returns dollars of a million generated tokens, if the price of a GPU is known."""
        hour = self.dollars.get(found.machine.name)
        return None if hour is None else hour / (found.tokens_per_second * 3600) * 1e6

    def to_dict(self) -> dict[str, Any]:
        """Returns what ``--json`` prints."""
        best = pareto(self.found)
        rows = [
            {**row(one), "is_on_front": one in best, "dollars_per_million_tokens": self.price(one)}
            for one in self.found
        ]
        return {"title": self.title, "assumed": list(self.assumed), "found": rows, "refused": dict(self.refused)}

    def page(self) -> str:
        """Returns a page with charts: all layouts, and the first in detail.

        Raises:
            InvalidArgument: a library that draws is not installed, or there is no layout.
        """
        if not self.found:
            raise InvalidArgument("no layout can be: there is nothing to draw")
        one = self.found[0]
        facts = [("machine", f"{one.machine.name}: {one.machine.title}"), ("layout", f"{one.words}, {one.gpus} GPUs")]
        facts += [(name, read(one.request)[0]) for name, read in ASKED.items()]
        facts += [
            ("memory", self._memory(one)),
            ("limit", one.limit),
            *(("note", note) for note in (*self.assumed, *one.notes)),
        ]
        facts += [("price", f"{cost:.2f} dollars a million tokens")] if (cost := self.price(one)) is not None else []
        facts += [("left out", f"{counted(many, 'layout')}: {why}") for why, many in self.refused.items()]
        steps = {token(one): one.decode, "a prompt": one.prefill}
        return page.of(self.title, self.found, pareto(self.found), self._columns(self.found), steps, facts)

    def _memory(self, one: ServingPrediction) -> str:
        return f"weights {one.weights_gib:.1f} GiB, KV cache {one.cache_gib:.1f} GiB on a GPU"

    def _asked(self) -> dict[str, Callable[[Request], tuple[str, object]]]:
        """Returns what of a request differs between the servers."""
        requests = [one.request for one in self.found]
        return {name: read for name, read in ASKED.items() if len({read(one)[0] for one in requests}) > 1}

    def _detail(self, one: ServingPrediction) -> Iterator[Block]:
        servers = f"{one.cache_tokens:,.0f} tokens of KV cache a server, room for {one.at_once:,.0f} requests at once"
        yield Line("layout", f"{one.words} on {one.machine.name}, {counted(one.gpus, 'GPU')}: {servers}")
        yield Line("TTFT", f"{duration(one.ttft_s)} {interval(one.ttft_90)}")
        yield Line("TPOT", f"{duration(one.tpot_s)} {interval(one.tpot_90)}")
        low, high = one.tokens_per_second_90
        rate = f"{one.tokens_per_second:,.0f} a second and GPU (90 %: {low:,.0f} to {high:,.0f})"
        cost = self.price(one)
        yield Line("tokens", rate if cost is None else f"{rate}, {cost:.2f} dollars a million")
        yield Line("memory", self._memory(one))
        yield Line("limit", one.limit)
        yield None
        steps = {f"{token(one)} of {one.batch:,.1f} sequences": one.decode, "a prompt": one.prefill}
        names = [name for name in PARTS if any(name in parts for parts in steps.values())]
        rows = [[PARTS[name], *(duration(parts.get(name, 0.0)) for parts in steps.values())] for name in names]
        rows.append(["all", *(duration(sum(parts.values())) for parts in steps.values())])
        yield Table(["where the time goes", *steps], rows, left=["where the time goes"])

    def _shown(self) -> list[ServingPrediction]:
        """The first layouts of each machine, in their order; of a sweep the first for each of its values."""
        if asked := self._asked():
            first: dict[tuple[object, ...], ServingPrediction] = {}
            order = list(dict.fromkeys(one.machine.name for one in self.found))
            for one in self.found:
                values = (read(one.request)[1] for read in asked.values())
                first.setdefault((order.index(one.machine.name), *values), one)
            return [first[key] for key in sorted(first)]
        machines = dict.fromkeys(one.machine.name for one in self.found)
        most, seen = max(ROWS // max(len(machines), 1), 1), Counter[str]()
        shown = []
        for one in self.found:
            seen[one.machine.name] += 1
            if seen[one.machine.name] <= most:
                shown.append(one)
        return shown

    def _columns(self, some: Sequence[ServingPrediction]) -> dict[str, list[tuple[str, object]]]:
        """Returns the cells of a table by heading: the text of each, and the value by which it sorts."""
        requests = [one.request for one in some]
        cells: dict[str, list[tuple[str, object]]] = {
            "machine": [2 * (one.machine.name,) for one in some],
            "layout": [2 * (one.words,) for one in some],
        }
        if len({one.gpus for one in self.found}) > 1:
            cells["GPUs"] = [(f"{one.gpus}", one.gpus) for one in some]
        cells |= {name: [read(one) for one in requests] for name, read in self._asked().items()}
        cells |= {
            "KV tokens": [(f"{one.cache_tokens:,.0f}", one.cache_tokens) for one in some],
            "at once": [(f"{one.at_once:,.0f}", one.at_once) for one in some],
            "TTFT": [(duration(one.ttft_s), one.ttft_s) for one in some],
            "TPOT": [(duration(one.tpot_s), one.tpot_s) for one in some],
            "90 % interval": [(duration(*one.tpot_90), one.tpot_90[0]) for one in some],
            "tokens/s/GPU": [(f"{one.tokens_per_second:,.0f}", one.tokens_per_second) for one in some],
        }
        if self.dollars:
            prices = [self.price(one) for one in some]
            cells["$/M tokens"] = [("", 0.0) if cost is None else (f"{cost:.2f}", cost) for cost in prices]
        return cells | {"limit": [2 * (one.limit.removesuffix(" of a token"),) for one in some]}
