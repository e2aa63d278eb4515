"""`ServingReport`: the output of ``nvcoll serve`` as text and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nvcoll._nvcoll import ServingPrediction
from nvcoll.text.blocks import Block, Blocks, Line, Table, under
from nvcoll.text.formatting import counted, duration
from nvcoll.training.prediction import PARTS

ROWS: Final = 12
"""Layouts that the text shows, as many of each machine. Chosen."""


def interval(ends: Sequence[float]) -> str:
    """Returns the ends of an interval of times."""
    return f"(90 %: {duration(*ends)})"


def row(found: ServingPrediction) -> dict[str, Any]:
    """Returns what programs get of an answer."""
    report, request = json.loads(found.to_json())
    kept = ("seconds", "parts")
    steps = {name: {word: report[name][word] for word in kept} for name in ("decode", "prefill")}
    return {"machine": found.machine.name, "layout": request["layout"], **report, **steps}


@dataclass(frozen=True)
class ServingReport(Blocks):
    """Answers for a model server: layouts on machines, best first, or one in detail."""

    title: str
    found: Sequence[ServingPrediction]
    refused: Mapping[str, int]
    dollars: Mapping[str, float] = field(default_factory=dict)

    def blocks(self) -> Iterator[Block]:
        """Yields the parts of the text."""
        yield Line("", self.title)
        if len(self.found) == 1:
            yield from self._detail(self.found[0])
        elif self.found:
            yield None
            shown = self._shown()
            yield self._table(shown)
            if len(self.found) > len(shown):
                yield Line("", f"and {len(self.found) - len(shown)} more: pass --json")
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
        rows = [{**row(one), "dollars_per_million_tokens": self.price(one)} for one in self.found]
        return {"title": self.title, "found": rows, "refused": dict(self.refused)}

    def _detail(self, one: ServingPrediction) -> Iterator[Block]:
        servers = f"{one.cache_tokens:,.0f} tokens of KV cache a server, room for {one.at_once:,.0f} requests at once"
        yield Line("layout", f"{one.words} on {one.machine.name}, {counted(one.gpus, 'GPU')}: {servers}")
        yield Line("TTFT", f"{duration(one.ttft_s)} {interval(one.ttft_90)}")
        yield Line("TPOT", f"{duration(one.tpot_s)} {interval(one.tpot_90)}")
        low, high = one.tokens_per_second_90
        rate = f"{one.tokens_per_second:,.0f} a second and GPU (90 %: {low:,.0f} to {high:,.0f})"
        cost = self.price(one)
        yield Line("tokens", rate if cost is None else f"{rate}, {cost:.2f} dollars a million")
        yield Line("memory", f"weights {one.weights_gib:.1f} GiB, KV cache {one.cache_gib:.1f} GiB on a GPU")
        yield Line("limit", one.limit)
        yield None
        steps = {f"a token of {one.batch:,.1f} sequences": one.decode, "a prompt": one.prefill}
        names = [name for name in PARTS if any(name in parts for parts in steps.values())]
        rows = [[PARTS[name], *(duration(parts.get(name, 0.0)) for parts in steps.values())] for name in names]
        rows.append(["all", *(duration(sum(parts.values())) for parts in steps.values())])
        yield Table(["where the time goes", *steps], rows, left=["where the time goes"])

    def _shown(self) -> list[ServingPrediction]:
        """The first layouts of each machine, in their order."""
        machines = dict.fromkeys(one.machine.name for one in self.found)
        most, seen = max(ROWS // max(len(machines), 1), 1), Counter[str]()
        shown = []
        for one in self.found:
            seen[one.machine.name] += 1
            if seen[one.machine.name] <= most:
                shown.append(one)
        return shown

    def _table(self, shown: Sequence[ServingPrediction]) -> Table:
        heads = ["machine", "layout", "KV tokens", "at once", "TTFT", "TPOT", "90 % interval", "tokens/s/GPU", "limit"]
        rows = [
            [
                one.machine.name,
                one.words,
                f"{one.cache_tokens:,.0f}",
                f"{one.at_once:,.0f}",
                duration(one.ttft_s),
                duration(one.tpot_s),
                duration(*one.tpot_90),
                f"{one.tokens_per_second:,.0f}",
                one.limit.removesuffix(" of a token"),
            ]
            for one in shown
        ]
        if self.dollars:
            heads.insert(-1, "$/M tokens")
            for cells, one in zip(rows, shown, strict=True):
                cells.insert(-1, "" if (cost := self.price(one)) is None else f"{cost:.2f}")
        return Table(heads, rows, left=["machine", "layout", "limit"], optional=["90 % interval", "limit"])
