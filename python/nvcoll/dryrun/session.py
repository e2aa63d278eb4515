"""All that watches a script in the child: made before the script starts, read when the counted step has ended."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
import torch
import torch._dynamo  # the first operator would import it, perhaps where a framework has replaced names of torch

from nvcoll.dryrun import compiled, private, store
from nvcoll.dryrun.data import Data
from nvcoll.dryrun.gpu import Gpu
from nvcoll.dryrun.lines import Lines
from nvcoll.dryrun.mail import Mail
from nvcoll.dryrun.memory import MemoryWatch
from nvcoll.dryrun.ops import Recorder, Watch
from nvcoll.dryrun.peers import Peers
from nvcoll.dryrun.recording import Kind, Recording
from nvcoll.dryrun.second_pass import SecondPass
from nvcoll.dryrun.spec import Spec
from nvcoll.dryrun.steps import Steps

FRAMEWORKS = {  # module: distribution
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "lightning": "lightning",
    "megatron.core": "megatron-core",
    "torchao": "torchao",
    "torchtitan": "torchtitan",
    "transformer_engine": "transformer-engine",
    "transformers": "transformers",
    "triton": "triton",
}


MORE_STEPS = 3
"""How many steps more may run until nothing is prepared in a step; chosen: graphs of torch.compile need two."""


class Session:
    """What watches the script.

    Args:
        spec: what the parent asks.
        finished: is called in the optimizer when the counted step has ended.
    """

    def __init__(self, spec: Spec, finished: Callable[[], Any]) -> None:
        self.spec = spec
        np.random.seed(0)
        self.gpu = Gpu()
        self._rebuilt = private.count_rebuilt_buckets()
        self._made = (0, 0, 0)
        self.lines = Lines("" if spec.is_module else spec.script)
        self.mail = Mail(spec.mail, spec.rank, spec.roles) if spec.mail else None
        self.data = Data(self.gpu, self.lines)
        self.memory = MemoryWatch(self.lines)
        self.recorder = Recorder(self.gpu, self.lines, self.memory)
        wanted = sys.maxsize if spec.times else spec.steps
        self.steps = Steps(wanted, self.gpu.count, self._begin, finished, self.memory.note, self.recorder.capture)
        if spec.times:
            self.steps.ended = SecondPass(self.gpu, spec.times, spec.period_ns, spec.steps).ended
        self.peers = Peers(self.gpu, self.mail, self.lines, self.recorder)
        store.install(spec.world_size, self.mail)
        self.peers.install()
        self.steps.install()
        compiled.install(self.recorder, self.data)
        self.watch = Watch(self.recorder, self.data, self.lines)
        self.watch.__enter__()
        if spec.steps == 1:  # the step begins with the script
            self.recorder.start()

    def _begin(self) -> None:
        self.memory.begin(self.steps.optimizer)
        self.recorder.start()
        self._made = self._prepared()

    def _prepared(self) -> tuple[int, int, int]:
        """Returns how many graphs were compiled and captured so far, and how often DDP has arranged its buckets."""
        return private.compiled_graphs(), self.recorder.captures, self._rebuilt[True]

    def goes_on(self) -> bool:
        """Says whether another step shall count: torch.compile, a graph or DDP prepared something in the last one."""
        if self._made == self._prepared() or self.steps.wanted >= self.spec.steps + MORE_STEPS:
            return False
        self.steps.wanted += 1
        self._begin()
        return True

    def end(self) -> None:
        """Tells the other ranks that this one says nothing more."""
        if self.mail is not None:
            self.mail.end()

    def _priorities(self, records: Any) -> dict[int, int]:
        whole = self.gpu.records()
        made = whole[whole["kind"] == Kind.STREAM]
        priorities = made["args"][:, 1].astype(np.int64)
        used = set(records["stream"].tolist())
        return {
            number: int(priority) for number, priority in zip(made["stream"].tolist(), priorities, strict=True)
            if number in used
        }  # fmt: skip

    def recording(self) -> Recording:
        """Returns the counted step."""
        self.recorder.is_on = False
        positions = self.steps.positions
        memory = self.memory.end(self.spec.memory)
        records, names, communicators = self.gpu.written(positions[-2] if len(positions) > 1 else 0, positions[-1])
        return Recording(
            rank=self.spec.rank,
            world_size=self.spec.world_size,
            records=records,
            names=names,
            ops=self.recorder.ops(),
            lines=self.lines.texts,
            groups=self.peers.groups(communicators, names),
            memory=memory,
            host_ops=self.recorder.host_ops,
            streams=self._priorities(records),
            steps=list(positions),
            optimizer=type(self.steps.optimizer).__name__,
            unanswered=self.gpu.unanswered(),
            assumed=self.data.assumed(),
            versions=_versions(),
            ddp_waits=bool(self._rebuilt) and private.futures_wait(),
        )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for module, distribution in FRAMEWORKS.items():
        if module in sys.modules:
            found[module] = metadata.version(distribution)
    return found
