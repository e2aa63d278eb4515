"""Ends steps without a `torch.optim.Optimizer`: each write of a parameter after a backward pass is a call of one.

```
backward()                    leaves of the graph that it runs: parameters
w1.add_(...)  w2.add_(...)    writes of their memory without a forward pass between them: a series
                              from the write after which half of the parameters are written: calls (`Steps`)
```

So weights that are clipped, masked or averaged alone end no step. With the first step of a `torch.optim.Optimizer` all
this ends, and what it found is forgotten. It does not see a parameter that is replaced (`p.data = ...`), kernels that
write parameters (Triton, torch.compile), and FSDP2, whose leaves are no parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import ref

import torch
from torch.autograd.graph import GradientEdge

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.lines import Lines
from nvcoll.dryrun.inside.rules import Args, Kwargs, Rule
from nvcoll.dryrun.inside.steps import Steps


class Writes:
    """Watches parameters until an optimizer of torch takes its first step."""

    def __init__(self, steps: Steps, lines: Lines) -> None:
        self._steps, self._lines = steps, lines
        self._leaves: dict[int, ref[torch.Tensor]] = {}
        self._written: set[int] = set()
        self._half, self._number = 0, -1

    def install(self) -> None:
        """Watches backward passes."""
        private.wrap(torch.autograd, "_engine_run_backward", self._around)

    def _around(self, run: Callable[..., object]) -> Callable[..., object]:
        def watched(outputs: Iterable[torch.Tensor | GradientEdge], *args: Any, **kwargs: Any) -> object:
            if not self._steps.has_optimizer:
                found = ((each.untyped_storage().data_ptr(), ref(each)) for each in _leaves_of(outputs))
                self._leaves.update(found)
            return run(outputs, *args, **kwargs)

        return watched

    def ran(self, rule: Rule, args: Args, kwargs: Kwargs) -> None:
        """Notes an operator that has run."""
        if not self._leaves or private.current_node() is not None:
            return
        if self._steps.has_optimizer:
            self._leaves.clear()
        written = {each.untyped_storage().data_ptr() for each in rule.mutated(args, kwargs) if each.is_cuda}
        if not written & self._leaves.keys():
            return
        if self._number != private.sequence_number():
            self._leaves = {address: leaf for address, leaf in self._leaves.items() if leaf() is not None}
            if not written & self._leaves.keys():  # other tensors have the memory now
                return
            self._written, self._half = set(), len(self._leaves) // 2
            self._number = private.sequence_number()
            self._steps.writes_begin()
        self._written |= written & self._leaves.keys()
        if len(self._written) > self._half:
            self._steps.wrote(self._lines.of_script())


def _leaves_of(outputs: Iterable[torch.Tensor | GradientEdge]) -> list[torch.Tensor]:
    """Returns the leaves on the GPU in whose gradients a backward pass of these outputs ends."""
    nodes: list[Any] = [each.node if isinstance(each, GradientEdge) else each.grad_fn for each in outputs]
    seen, leaves = {None}, list[torch.Tensor]()
    while nodes:
        if (node := nodes.pop()) in seen:
            continue
        seen.add(node)
        nodes += (after for after, _ in node.next_functions)
        if type(node).__name__ == "AccumulateGrad":
            leaf = private.unwrapped(getattr(node.variable, "_local_tensor", node.variable))
            leaves += [leaf] if leaf.is_cuda and not private.is_functorch(leaf) else []
    return leaves
