"""Memory of the counted step, as torch's caching allocator counts it: the peak, its categories, and its line.

The allocator's history has each allocation and release with its Python stack, in order. Replayed from the blocks that
were alive at the start, it gives the set of blocks at the peak. A block belongs to the first category that matches:

| category | condition |
|---|---|
| parameters | contains a parameter of a module or of an optimizer |
| frozen parameters | the same, and no optimizer has it, or it needs no gradient |
| gradients | contains a gradient when the optimizer is called; also Megatron's `main_grad` |
| optimizer state | contains a tensor of an optimizer's state |
| communication buffers | FSDP made it in the step: gathered parameters, gradients to be reduced |
| activations | a thread of the script made it in the step, and it outlives an allocation of autograd's thread |
| temporary | made in the step |
| CUDA graphs | captured kernels use it, though no tensor has it when the graph is launched |
| other | made before the step |

Autograd runs backward operators for GPUs in a thread of its own, so a stack without the first frame of the script or of
a thread of Python is one of a backward pass.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.lines import Lines
from nvcoll.dryrun.inside.tensors import tensors_of
from nvcoll.dryrun.wire.rank_recording import Memory

CATEGORIES = (
    *("parameters", "frozen parameters", "communication buffers", "gradients", "optimizer state"),
    *("activations", "temporary", "CUDA graphs", "other"),
)
CALLING = (
    *("/nvcoll/", "/torch/_ops", "/torch/_compile", "/torch/_dynamo/", "/torch/_library/", "/torch/utils/", "/storage"),
)
"""Parts of the names of files through which operators are called."""


class Block(NamedTuple):
    """A block of the allocator, and the positions in the history at which it was made (-1: before) and freed."""

    address: int
    nbytes: int
    made: int
    end: int


class MemoryWatch:
    """The allocator's history in the counted step."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._device = 0
        self._start: dict[int, int] = {}
        self._noted: dict[int, tuple[str, int]] = {}
        self._most = 0
        self._modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        register_module_parameter_registration_hook(lambda module, *_: self._modules.add(module))
        private.wrap(torch.nn.Module, "__setstate__", self._of_copies)
        register_optimizer_step_pre_hook(lambda optimizer, *_: self._optimizers.add(optimizer))
        self._stack: tuple[str, ...] = ()

    def _of_copies(self, plain: Callable[..., None]) -> Callable[..., None]:
        """Notes modules that `copy.deepcopy` makes, which registers no parameters."""

        def restored(module: torch.nn.Module, state: dict[str, object]) -> None:
            plain(module, state)
            self._modules.add(module)

        return restored

    def look(self, line: int, is_backward: bool) -> None:
        """Notes the stack if more memory is in use than before in the step. It is called after each operator."""
        now = private.memory_statistics(self._device)["allocated_bytes"]["all"]["current"]
        if now > self._most:
            self._most = now
            rows = self._lines.stack_here()
            if is_backward:
                rows = (f"{self._lines.texts[line]} (backward)", *rows)
            self._stack = tuple(dict.fromkeys(rows))

    def begin(self) -> None:
        """Begins the step: notes the blocks that are alive."""
        self._device = torch.cuda.current_device()
        private.record_history(None)
        segments = private.memory_snapshot()["segments"]
        self._start = {
            block["address"]: block["size"]
            for segment in segments
            if segment["device"] == self._device
            for block in segment["blocks"]
            if block["state"] != "inactive"
        }
        self._noted, self._most, self._stack = {}, torch.cuda.memory_allocated(), ()
        self.note()
        private.record_history("all", context="all", stacks="python", max_entries=2**31 - 1)

    def note(self) -> None:
        """Notes the addresses of parameters, gradients and the state of optimizers."""
        of_modules = [each for module in self._modules for each in module._parameters.values() if each is not None]
        of_optimizers = [each for one in self._optimizers for group in one.param_groups for each in group["params"]]
        is_trained = {id(each) for each in of_optimizers}
        if not any(id(each) in is_trained for each in of_modules):  # the optimizer has copies or pieces
            is_trained.update(map(id, of_modules))
        for parameter in (*of_modules, *of_optimizers):
            gradients = parameter.grad, getattr(parameter, "main_grad", None)
            trains = id(parameter) in is_trained or any(each is not None for each in gradients)
            for each in (parameter, getattr(parameter, "ds_tensor", None)):  # DeepSpeed's shard
                self._note(each, "parameters" if trains and parameter.requires_grad else "frozen parameters")
            for each in gradients:
                self._note(each, "gradients")
        for state in (each for one in self._optimizers for each in one.state.values()):
            for each in state.values() if isinstance(state, dict) else ():
                self._note(each, "optimizer state")

    def _note(self, tensor: object, category: str) -> None:
        for each in tensors_of(getattr(tensor, "_local_tensor", tensor)):
            if not each.is_cuda:
                continue
            storage = each.untyped_storage()
            self._noted[storage.data_ptr()] = category, storage.nbytes()

    def held(self) -> str:
        """Returns the memory in tensors by category, in words: for a step that runs out of memory."""
        self._noted = {}
        self.note()
        parts = Counter(dict.fromkeys(("parameters", "gradients", "optimizer state"), 0))
        for category, nbytes in self._noted.values():
            parts[category] += nbytes
        parts["activations and others"] = torch.cuda.memory_allocated() - sum(parts.values())
        shown = {name: f"{size / 2**30:.2f} GiB" for name, size in parts.items()}
        return ", ".join(f"{name} {size}" for name, size in shown.items() if size != "0.00 GiB") or "less than 0.01 GiB"

    def end(self, capacity: int) -> Memory:
        """Ends the history, and returns the memory of the step."""
        statistics = torch.cuda.memory_stats()
        reserved = int(statistics["reserved_bytes.all.peak"])
        if not self._noted:  # it never began: there was one step
            peak = int(statistics["allocated_bytes.all.peak"])
            return Memory(allocated=peak, reserved=reserved, parts=(("other", peak),), capacity=capacity)
        snapshot = private.memory_snapshot()
        history = snapshot["device_traces"][self._device]
        private.record_history(None)
        blocks, peak = self._blocks(history)
        parts = Counter(dict.fromkeys(CATEGORIES, 0))
        parts["CUDA graphs"] = _bytes_of_graphs(snapshot["segments"], self._device)
        for block in blocks:
            if block.made <= peak < block.end:
                parts[self._category(block, history)] += block.nbytes
        return Memory(
            allocated=sum(parts.values()),
            reserved=reserved,
            parts=tuple((name, size) for name, size in parts.items() if size),
            stack=self._stack,
            capacity=capacity,
            kept_by=self._kept_by(blocks, history),
        )

    def _kept_by(self, blocks: list[Block], history: private.History) -> str:
        """Returns the line that made most of the bytes that are left of the step, or ""."""
        kept = Counter[str]()
        for block in blocks:
            if block.made >= 0 and block.end == len(history) and block.address not in self._noted:
                kept[self._lines.of_frames(history[block.made]["frames"])] += block.nbytes
        del kept[""]
        return max(kept, key=lambda line: kept[line], default="")

    def _blocks(self, history: private.History) -> tuple[list[Block], int]:
        """Returns all blocks of the step, and the position in the history at which most bytes are alive."""
        alive = {address: (size, -1) for address, size in self._start.items()}
        now = most = sum(self._start.values())
        blocks, peak = list[Block](), -1
        for place, event in enumerate(history):
            if event["action"] == "alloc":
                now += event["size"]
                alive[event["addr"]] = event["size"], place
                if now > most:
                    most, peak = now, place
            elif event["action"] == "free_completed":
                now -= event["size"]
                if event["addr"] in alive:
                    blocks.append(Block(event["addr"], *alive.pop(event["addr"]), place))
        return [*blocks, *(Block(address, *each, len(history)) for address, each in alive.items())], peak

    def _category(self, block: Block, history: private.History) -> str:
        known, _ = self._noted.get(block.address, ("", 0))
        if known and (block.made < 0 or known == "gradients" or block.end == len(history)):
            return known
        if block.made < 0:
            return "other"
        frames = history[block.made]["frames"]
        if "/torch/distributed/fsdp/" in _maker(frames):
            return "communication buffers"
        if _is_main(frames):
            later = (event["frames"] for event in history[block.made : block.end] if event["action"] == "alloc")
            if not all(map(_is_main, later)):
                return "activations"
        return "temporary"


def _bytes_of_graphs(segments: private.History, device: int) -> int:
    """Returns the bytes in pools of CUDA graphs outside of tensors: a graph keeps memory released in its capture."""
    return sum(
        segment["total_size"] - segment["active_size"]
        for segment in segments
        if segment["device"] == device and tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    )


def _is_main(frames: private.History) -> bool:
    return bool(frames) and frames[-1]["filename"].endswith(("runpy.py", "<frozen runpy>", "/threading.py"))


def _maker(frames: private.History) -> str:
    """Returns the file of the innermost frame outside of the files that call operators."""
    return next((frame["filename"] for frame in frames if not any(each in frame["filename"] for each in CALLING)), "")
