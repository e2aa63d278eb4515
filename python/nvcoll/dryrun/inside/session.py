"""The observers of a script in the child: made before the script starts, read when the counted step has ended."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np
import torch
import torch._dynamo  # the first operator would import it, perhaps where a framework has replaced names of torch

from nvcoll.dryrun.inside import children, compiled, cute, generation, host, private, shards, store, threads
from nvcoll.dryrun.inside.checkpoints import Checkpoints
from nvcoll.dryrun.inside.data import Data, with_numbers
from nvcoll.dryrun.inside.exchange import Exchange
from nvcoll.dryrun.inside.gpu import Gpu
from nvcoll.dryrun.inside.lines import Lines
from nvcoll.dryrun.inside.mail import Mail
from nvcoll.dryrun.inside.memory import MemoryWatch
from nvcoll.dryrun.inside.ops import Operators, Watch
from nvcoll.dryrun.inside.peers import Peers
from nvcoll.dryrun.inside.servers import sglang, transformers, vllm
from nvcoll.dryrun.inside.servers.given import Given
from nvcoll.dryrun.inside.serving import Iterations
from nvcoll.dryrun.inside.steps import Steps
from nvcoll.dryrun.inside.writes import Writes
from nvcoll.dryrun.wire.rank_recording import Growth, RankRecording
from nvcoll.dryrun.wire.served import Served
from nvcoll.dryrun.wire.spec import Spec

JUDGED = {
    **{name: name for name in ("torch", "triton", "transformers", "accelerate", "lightning", "deepspeed")},
    **{name: name for name in ("peft", "trl", "torchtitan", "torchao")},
    **{"megatron.core": "megatron-core", "transformer_engine": "transformer-engine", "flash_attn": "flash-attn"},
}
"""Packages whose versions decide the launches of a script, by the modules that scripts import. Reports name them."""

MORE_STEPS = 3
"""The most further steps until torch prepares nothing in a step. Chosen: graphs of torch.compile need two."""


LEAST_STEPS = 3
"""The fewest steps after which growing memory is reported. Chosen: the first makes state, the second DDP's buckets."""

GROWTH_BYTES = 1 << 20
"""The smallest growth that is reported. Chosen: metrics that a script collects are smaller."""


LEAST_PASS = 1e-4
"""The least share of FLOPs of a pass without gradients. Chosen: rotary embeddings make tiny products in training."""


class Session:
    """The observers of the script.

    Args:
        spec: the parent's spec.
        finished: is called in the optimizer when the counted step has ended.
        failed: is called with an error that has ended a thread of the script.
        become: as of `children.listen`.
        keep: is called with an iteration of a server that was recorded.
        served: is called when the last wanted iteration has ended.
    """

    def __init__(
        self,
        spec: Spec,
        finished: Callable[[], object],
        failed: Callable[[BaseException], object],
        become: Callable[[children.Training], object],
        keep: Callable[[Served], object],
        served: Callable[[], object],
    ) -> None:
        self.spec = spec
        np.random.seed(0)
        self.gpu = Gpu()
        self._rebuilt = private.count_rebuilt_buckets()
        self._made = (0, 0, 0)
        self.lines = Lines("" if spec.is_module else spec.script)
        self.mail = Mail(spec.mail, spec.rank, spec.roles)
        self.data = Data(self.gpu, self.lines, spec.loss)
        self.memory = MemoryWatch(self.lines)
        self.recorder = Operators(self.gpu, self.lines, self.memory)
        wanted = sys.maxsize if spec.times else spec.steps
        self.steps = Steps(wanted, self.gpu.count, self._begin, finished, self.memory.note, self.recorder.capture)
        if spec.times:
            self._times = np.load(spec.times)
            self.steps.ended = self._show_times
        self.peers = Peers(self.gpu, self.mail, self.lines, self.recorder, spec.finds_roles)
        store.install(spec.world_size, self.mail)
        self.peers.install()
        Exchange(self.mail, self.data, self.peers.ranks_of).install()
        self.steps.watch_graphs()
        self.writes = Writes(self.steps, self.lines)
        if spec.serves:
            last = spec.serves[-2] if len(spec.serves) > 2 else 0
            iterations = Iterations(wanted, self.steps, self._begin_iteration, keep, served, last)
            stand_in = partial(compiled.stand_in, self.gpu, self.recorder, self.data)
            given = Given(iterations, self.peers, spec.world_size, spec.serves, self.data.assume, stand_in)
            for server in (vllm, sglang):
                server.install(given)
            transformers.install(iterations)
        else:
            self.steps.install(spec.step_at)
            if spec.step_at is None:
                self.writes.install()
        shards.install()
        compiled.install(self.recorder, self.data)
        cute.install(self.recorder, self.data)
        generation.install(self.data, spec.response_tokens)
        private.wrap(private.printer, "_tensor_str", self.data.printing)
        private.wrap(torch, "ctc_loss", with_numbers)
        private.wrap(torch.distributed, "_broadcast_coalesced", self.data.broadcasting)
        private.trace_unseen()
        Checkpoints(self.recorder, self.data, self.lines).install()
        self.watch = Watch(self.recorder, self.data, self.lines, self.writes)
        self.watch.__enter__()
        threads.install(self.watch.of_thread, failed)
        self.host: host.HostPass | None = None
        self.unmeasured = ""
        self.started = children.listen(self.data.assume, spec.script, become)
        children.run_as_rank(self.data.assume)
        if spec.steps == 1 and not spec.serves:  # the step begins with the script
            self.recorder.start()

    def _show_times(self, ended: int) -> None:
        """Makes the next step show predicted times, if it is the counted step of the first run or a later one."""
        if ended + 1 >= self.spec.steps:
            self.gpu.show(self._times, self.spec.period_ns)

    def _begin_iteration(self, served: Served) -> None:
        self.recorder.table = served.cache.sequences, len(served.new)
        self._begin()

    def _begin(self) -> None:
        self.lines.train_here()
        self.memory.begin()
        self.recorder.start()
        self._made = self._prepared()

    def _prepared(self) -> tuple[int, int, int]:
        """Returns counts so far: graphs compiled, graphs captured, and DDP's arrangements of buckets."""
        return private.compiled_graphs(), self.recorder.captures, self._rebuilt[True]

    def goes_on(self) -> bool:
        """Says whether another step counts, as torch.compile, a graph or DDP prepared something in the last one."""
        if self._made == self._prepared() or self.steps.wanted >= self.spec.steps + MORE_STEPS:
            return False
        self.steps.wanted += 1
        self._begin()
        return True

    def measure(self, ended: Callable[[], object]) -> bool:
        """Begins the pass without observers after the counted step, if the processor may matter, and says so."""
        counted = self.steps.counted
        may = self.spec.measures_host and host.may_limit(self.recorder.ops(), self.gpu.records(*counted))
        why = "several ranks run" if len(self.spec.roles) > 1 else "--step-at takes time" if self.spec.step_at else ""
        why = "writes of parameters end steps" if self.steps.written_at else why
        if not may or why:
            self.unmeasured = why if may else ""
            return False
        self.watch.__exit__(None, None, None)
        self.host = host.HostPass(self.gpu, counted, ended)
        self.steps.ended = self.host.step_ended
        self.host.begin()
        return True

    def _ended_by(self) -> str:
        """Returns where steps end: the place, if it is no optimizer of torch."""
        place = self.spec.step_at.place if self.spec.step_at else self.steps.written_at
        return place or type(self.steps.optimizer).__name__

    def recording(self, served: Served | None = None) -> RankRecording:
        """Returns the counted step, perhaps an iteration of a server."""
        self.recorder.is_on = False
        if self.steps.written_at:
            self.data.assume("steps end where the script writes parameters: --step-at sets another line")
        positions = self.steps.positions
        memory = self.memory.end(self.spec.memory)
        records, names, communicators = self.gpu.written(*self.steps.counted)
        return RankRecording(
            rank=self.spec.rank,
            world_size=self.spec.world_size,
            records=records,
            names=names,
            ops=self.recorder.ops(),
            lines=self.lines.texts,
            groups=self.peers.groups(communicators, records, names),
            memory=memory,
            host_ops=self.recorder.host_ops,
            steps=list(positions),
            optimizer=self._ended_by() if served is None else served.server,
            unanswered=self.gpu.unanswered(),
            assumed=self.data.assumed(),
            versions=_versions(),
            ddp_waits=bool(self._rebuilt) and private.futures_wait(),
            is_alone=len(communicators) == 0 and not torch.distributed.is_initialized(),
            without_gradients=self._without_gradients(positions) if served is None else {},
            passes=self._passes() if served is None else [],
            saves=list(dict.fromkeys(self.recorder.saves)),
            growth=self._growth(memory.kept_by) if served is None else Growth(),
            served=served,
        )

    def _growth(self, line: str) -> Growth:
        """Returns by how much tensors grew in the counted step, if they did in the step before: batches differ."""
        held = self.steps.held
        grown = held[-1] - held[-2] if len(held) >= LEAST_STEPS and held[-2] - held[-3] >= GROWTH_BYTES else 0
        return {"bytes": grown, "step": len(held), "line": line} if grown >= GROWTH_BYTES else {}

    def _passes(self) -> list[tuple[int, str]]:
        flops, texts = sum(op.flops for op in self.recorder.ops()), self.lines.texts
        large = {line for line, each in self.recorder.without_gradients.items() if each >= LEAST_PASS * flops}
        return [(number, texts[line] if line in large else "") for number, line in self.recorder.passes]

    def _without_gradients(self, positions: list[int]) -> dict[str, float]:
        """Returns shares of passes that the step before had not: generation and reference models are of each step."""
        flops = sum(op.flops for op in self.recorder.ops())
        first, before = [0, 0, 0, *positions][-3], self.recorder.before
        new = {line: each for line, each in self.recorder.without_gradients.items() if before.get(line, -1) <= first}
        return {self.lines.texts[line]: each / flops for line, each in new.items()}


def _versions() -> dict[str, str]:
    """Returns the versions of Python, torch, and the judged packages that the script imported."""
    found = {"python": platform.python_version()}
    for module, package in JUDGED.items():
        with suppress(importlib.metadata.PackageNotFoundError):
            if module in sys.modules:
                found[package] = importlib.metadata.version(package)
    return found | {"torch": str(torch.__version__)}  # of torch's own class, reading it would have to import torch
