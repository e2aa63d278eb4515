"""Large float tensors on the CPU: they have no values and take no memory.

A model that is built on the CPU and sharded later would take its whole size, and minutes of random numbers. So a large
float tensor on the CPU is address space without pages: operators that write to it do nothing, operators that make one
only make its shape, and their small results (a sum, a mask) are zero. A tensor that an operator made of tensors that
have values (samples of a data set, by `cat`) has values, and so has what is made of it, up to 1 GiB in an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import torch

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.lines import Lines
from nvcoll.dryrun.inside.refusals import unknown_shape
from nvcoll.dryrun.inside.rules import Args, Kwargs, Rule
from nvcoll.dryrun.inside.tensors import HOST_FLOAT_BYTES, is_large_on_host, replaced, tensors_of

FILLED = tuple(f"aten::{name}" for name in ("zeros", "ones", "full", "rand", "randn", "normal.float_float", "eye"))
"""Operators that make a tensor from its sizes and write all of it."""

MOST_BYTES = 1 << 30
"""The most bytes that an operator reads for values. Chosen: data sets that fit in memory are smaller, models larger."""

VALUED: dict[int, Any] = {}
"""Weak references to the memory of large tensors with values, by address."""


def without_values(rule: Rule, args: Args, kwargs: Kwargs, inputs: list[torch.Tensor], lines: Lines) -> object:
    """Runs an operator on large float tensors of the CPU without their values.

    Returns:
        Its result, or NotImplemented if the operator must run as it is.

    Raises:
        DryRunError: its shape depends on values.
    """
    if inputs and inputs[0].is_cuda:
        return NotImplemented
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        return NotImplemented
    if not inputs:
        return _made(rule, args, kwargs)
    if rule.leaves_data or rule.is_new or any(each.device.type != "cpu" for each in inputs):
        return NotImplemented
    if _have_values(inputs):
        return _computed(rule, args, kwargs)
    if rule.shape_is_data:
        first = inputs[0]
        dtype = str(first.dtype).removeprefix("torch.")
        raise unknown_shape(rule.shown, tuple(first.shape), dtype, lines.of_script(), lines.place())
    if rule.is_mutable:
        written = rule.mutated(args, kwargs)
        if not any(is_large_on_host(each) for each in written):
            return NotImplemented
        for each in written:
            VALUED.pop(each.untyped_storage().data_ptr(), None)
        count = len(rule.op._schema.returns)
        return None if count == 0 else written[0] if count == 1 else tuple(written)
    return _shaped(rule, args, kwargs)


def _have_values(tensors: Sequence[torch.Tensor]) -> bool:
    large = [each for each in tensors if is_large_on_host(each)]
    if not large:
        return True
    known = (VALUED.get(each.untyped_storage().data_ptr()) for each in large)
    return all(each is not None and not each.expired() for each in known) and sum(map(_bytes, large)) <= MOST_BYTES


def _computed(rule: Rule, args: Args, kwargs: Kwargs) -> object:
    """Runs an operator whose inputs have values: what it makes has values, too, unless it draws them."""
    if rule.is_random:
        return NotImplemented
    result = rule.op(*args, **kwargs)
    for each in tensors_of(result):
        if is_large_on_host(each):
            storage = each.untyped_storage()
            VALUED[storage.data_ptr()] = private.StorageWeakRef(storage)
    return result


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


def _made(rule: Rule, args: Args, kwargs: Kwargs) -> object:
    if rule.shown not in FILLED and rule.name not in FILLED:
        return NotImplemented
    sizes = next((each for each in args if isinstance(each, list | tuple)), ())
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    if rule.shown == "aten::full" and not (kwargs.get("dtype") or isinstance(args[1], float)):
        return NotImplemented
    if not (dtype.is_floating_point and prod(sizes) * dtype.itemsize >= HOST_FLOAT_BYTES):
        return NotImplemented
    return _shaped(rule, args, kwargs)


def _shaped(rule: Rule, args: Args, kwargs: Kwargs) -> object:
    if rule.shown == "aten::_pin_memory":
        return _on_host(args[0], is_pinned=True)
    options = {name: each for name, each in kwargs.items() if name not in ("device", "pin_memory", "generator")}
    if any(each.name == "device" for each in rule.op._schema.arguments):
        options["device"] = torch.device("meta")
    try:
        result = rule.op(*replaced(args, _on_meta), **replaced(options, _on_meta))
    except NotImplementedError:
        return NotImplemented
    return replaced(result, partial(_on_host, is_pinned=bool(kwargs.get("pin_memory"))))


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _on_host(tensor: torch.Tensor, is_pinned: bool) -> torch.Tensor:
    result = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, pin_memory=is_pinned)
    return result if is_large_on_host(result) else result.zero_()
