"""Values on the virtual GPU: small tensors are computed, large floats have no values, and no shape may depend on them.

A launch does nothing, so an operator on small tensors is computed a second time: by the same operator, on CPU tensors
over the GPU's memory (`Mirror`). A small result of a large tensor is zero and *unknown*; a result of an unknown tensor
is computed (from zeros) and unknown, too, and zero where it is not finite.

| operator | rule |
|---|---|
| all tensors small | computed; unknown if one of its inputs is |
| large floats put in their places: zeros, a mask of `scatter`, `tril` | computed, if what they are made of is known |
| some large | small results are zero and unknown; comparisons are of zeros, `all` is true |
| `topk`, `argmax`, `max`, `sort` of unknown values | indices in turn, so that experts are balanced: known, and noted |
| `histc` of unknown values | equal counts: known, and noted |
| `nonzero`, `masked_select`, masks as indices | the shape follows from the real mask; refused if the mask is unknown |
| `unique`, `bincount` and others whose shape is data | computed; refused if an input is unknown |
| sparse tensors | indices are computed, values are those of a dense tensor; refused if indices are unknown |
| one float without values, as a loss | 0, or a result of zeros; with `--loss` its number |
| `item` of an unknown value | that, and noted with the line |

Unknown is a property of a storage, by its address. Each operator sets it for the storages that it writes, so an address
that the allocator reuses has no stale mark. Random numbers come from a generator of this file, not from the script's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock, local

import torch

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.gpu import Gpu
from nvcoll.dryrun.inside.lines import Lines
from nvcoll.dryrun.inside.refusals import second_gpu, unknown_shape
from nvcoll.dryrun.inside.rules import Args, Kwargs, Rule
from nvcoll.dryrun.inside.tensors import (
    IS_PLAIN,
    PLACED_BYTES,
    Mirror,
    Parts,
    is_large_on_host,
    is_small,
    is_whole,
    replaced,
    tensors_of,
)
from nvcoll.dryrun.wire.rank_recording import Assumption

aten = torch.ops.aten
COUNTING = ("/torch/nn/modules/_functions.py",)
"""Files whose masks are of counts, which are known, in one tensor with unknown floats: SyncBatchNorm's."""
MOVED_BYTES = 4 << 20
"""Results of collectives have values up to this size: `INTEGER_BYTES` of the virtual GPU's NCCL."""
Handler = Callable[..., object]


class Within(local):
    """How many operators that read values back this thread is in."""

    depth = 0


class Data:
    """The values of the rank's GPU."""

    def __init__(self, gpu: Gpu, lines: Lines, loss: float | None = None) -> None:
        self._lines, self._device, self._loss = lines, -1, loss
        self.mirror = Mirror(gpu)
        self._unknown: set[int] = set()
        self._known: set[int] = set()
        """Addresses of large floats that have values."""
        self._fresh: set[int] = set()
        self._random_state, self.drawing = torch.Generator().get_state(), RLock()
        self._within = Within()
        self._assumed: dict[tuple[str, int], int] = {}
        self.last_read = ("", "")
        """The last value that the host read and that was not computed, in words, and its place; empty: none."""
        self.handlers: dict[object, Handler] = {
            aten.nonzero.default: self._nonzero,
            aten.masked_select.default: self._masked_select,
            aten.index.Tensor: self._index,
            aten.index_put_.default: self._index,
            aten.index_put.default: self._index,
            aten._index_put_impl_.default: self._index,
            aten._local_scalar_dense.default: self._item,
            aten.equal.default: self._equal,
            aten._coalesce.default: self._coalesce,
            torch.ops.c10d.allgather_.default: self._gathered,
        }
        """Functions that are called with an operator and its arguments in its place; they may return NotImplemented."""

    @property
    def uses_gpu(self) -> bool:
        """Whether an operator has written to a GPU."""
        return self._device >= 0

    def assumed(self) -> list[Assumption]:
        """Returns assumptions, in the order of their first time."""
        return [Assumption(text, line, times) for (text, line), times in self._assumed.items()]

    def assume(self, text: str) -> None:
        """Notes an assumption at the current line."""
        key = text, self._lines.here(2)
        self._assumed[key] = self._assumed.get(key, 0) + 1

    def _read(self, text: str) -> None:
        self.assume(text)
        self.last_read = text, self._lines.place()

    def is_unknown(self, tensor: torch.Tensor) -> bool:
        """Says whether a tensor on the GPU has no values, or values that depend on large floats."""
        if not tensor.is_cuda or tensor.numel() == 0:
            return False
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        return address in self._unknown or not (is_small(tensor, storage) or address in self._known)

    def _state(self, tensors: list[torch.Tensor]) -> tuple[bool, bool]:
        """Says whether all of some tensors on the GPU have values, and then whether one is unknown."""
        is_unknown = False
        for each in tensors:
            storage = each.untyped_storage()
            address = storage.data_ptr()
            if not is_small(each, storage) and address not in self._known:
                return False, True
            is_unknown = is_unknown or (address in self._unknown and each.numel() > 0)
        return True, is_unknown

    def _has_values(self, tensor: torch.Tensor) -> bool:
        return is_small(tensor) or tensor.untyped_storage().data_ptr() in self._known

    def ran(self, rule: Rule, args: Args, kwargs: Kwargs, inputs: list[torch.Tensor], result: object) -> None:
        """Computes the values that an operator has written, as `_ran`; a loss that has none is that of `--loss`."""
        self._ran(rule, args, kwargs, inputs, result)
        if self._loss is None or rule.is_mutable or rule.leaves_data:  # flags of Inf and counts are written in place
            return
        for each in tensors_of(result):
            if each.numel() == 1 and each.is_floating_point() and is_small(each) and self.is_unknown(each):
                self.mirror(each).fill_(self._loss)

    def _ran(self, rule: Rule, args: Args, kwargs: Kwargs, inputs: list[torch.Tensor], result: object) -> None:
        """Computes the values that an operator has written.

        Raises:
            DryRunError: it wrote to another GPU than the operators before it.
        """
        if rule.is_view and not rule.is_from_host and inputs and inputs[0].get_device() == self._device:
            return
        touched = results = tensors_of(result)
        if rule.is_mutable:  # what is returned, once
            mutated = tensors_of(rule.mutated(args, kwargs))
            touched = [*results, *(each for each in mutated if all(each is not one for one in results))]
        written = [each for each in touched if each.is_cuda]
        if not written:
            if touched and any(each.is_cuda for each in inputs):
                self._copied_to_host(rule, args, kwargs, inputs, results)
            return
        if (device := written[0].get_device()) != self._device:
            if self._device >= 0:
                raise second_gpu(self._device, device, self._lines.of_script())
            self._device = device
        if rule.is_from_host:
            self._mark(written, is_unknown=False)
        if rule.leaves_data or rule.is_from_host:
            return
        if rule.is_new:
            if self._within.depth:  # results of kernels of libraries: a status is 0
                for each in written:
                    self._forget(each)
            self._mark(written, is_unknown=False)
            self._fresh.update(each.untyped_storage().data_ptr() for each in written)
            return
        if isinstance(results, Parts):  # its inner operators have made the indices; in place, also the values
            if rule.is_mutable:
                return
            written = [each for each in written if not is_whole(each)]
        involved = [] if rule.reads_no_values else [each for each in inputs if each.is_cuda]
        if rule.fills and involved and _fills_storage(involved[0]):
            involved = involved[1:]
        have_values, is_unknown = self._state(involved)
        are_small = all(map(is_small, written))
        if have_values and (are_small or self._places(rule, involved, written)):
            if is_unknown and (self._choose(rule, args, inputs, results) or self._agree(rule, results)):
                return
            if self._compute(rule, args, kwargs, results) or isinstance(results, Parts):
                self._mark(written, is_unknown)
                if not are_small:
                    self._known.update(each.untyped_storage().data_ptr() for each in written if not is_small(each))
                for each in written if is_unknown else ():
                    self._make_finite(each)
                return
        elif self._choose(rule, args, inputs, results) or self._decide(rule, args, kwargs, results):
            return
        for each in written:
            self._forget(each)

    def _places(self, rule: Rule, involved: list[torch.Tensor], written: list[torch.Tensor]) -> bool:
        """Says whether a large result has values: one that an operator puts in their places, all of them known."""
        storages = {each.untyped_storage().data_ptr() for each in written}
        if not rule.places or len(storages) != 1 or any(map(self.is_unknown, involved)):
            return False
        is_held = _fills_storage(written[0]) or self._has_values(written[0])
        return is_held and written[0].untyped_storage().nbytes() <= PLACED_BYTES

    def _make_finite(self, tensor: torch.Tensor) -> None:
        """Makes results of unknown values finite: zero has a logarithm and a reciprocal that the real values lack."""
        if not is_whole(tensor) and tensor.element_size() > 1:
            self.mirror(tensor).nan_to_num_(0, 0, 0)

    def _decide(self, rule: Rule, args: Args, kwargs: Kwargs, results: list[torch.Tensor]) -> bool:
        """Computes comparisons of large floats from zeros, and `all` as true. Returns whether it did."""
        if not results or results[0].dtype is not torch.bool or not is_small(results[0]):
            return False
        args, kwargs = replaced(args, self._zeros), replaced(kwargs, self._zeros)
        if self._agree(rule, results):
            return True
        if not rule.is_pointwise or not self._compute(rule, args, kwargs, results):
            return False
        self._mark(results, is_unknown=True)
        return True

    def _agree(self, rule: Rule, results: list[torch.Tensor]) -> bool:
        """Makes `all` of unknown values true. Returns whether it did."""
        if rule.shown != "aten::all":
            return False
        self.mirror(results[0]).fill_(True)
        self._mark(results, is_unknown=True)
        return True

    def _zeros(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros((), dtype=tensor.dtype).expand(tensor.shape) if self.is_unknown(tensor) else tensor

    def _copied_to_host(
        self, rule: Rule, args: Args, kwargs: Kwargs, inputs: list[torch.Tensor], results: list[torch.Tensor]
    ) -> None:
        on_gpu = [each for each in inputs if each.is_cuda]
        if any(self.is_unknown(each) for each in on_gpu):
            self._read("values that were not computed are copied to the host")
        if all(map(self._has_values, on_gpu)) and not any(map(is_large_on_host, results)):
            self._compute(rule, args, kwargs, results)

    def _mark(self, written: list[torch.Tensor], is_unknown: bool) -> None:
        addresses = [each.untyped_storage().data_ptr() for each in written]
        self._fresh.difference_update(addresses)
        self._known.difference_update(addresses)
        if is_unknown:
            self._unknown.update(addresses)
        else:
            self._unknown.difference_update(addresses)

    def heard(self, tensors: list[torch.Tensor], is_unknown: bool) -> None:
        """Marks tensors that have got values of other ranks."""
        self._mark([each for each in tensors if each.is_cuda], is_unknown)

    def _forget(self, tensor: torch.Tensor) -> None:
        if self._has_values(tensor):
            self.mirror.clear(tensor)
            self._mark([tensor], is_unknown=True)

    def forget_fresh(self, tensors: list[torch.Tensor]) -> None:
        """Marks tensors that no operator has written yet: they are results of a kernel that nvcoll does not know."""
        for each in tensors:
            if each.is_cuda and each.untyped_storage().data_ptr() in self._fresh:
                self._forget(each)

    @contextmanager
    def within(self, mutated: list[torch.Tensor]) -> Iterator[None]:
        """Marks what this thread does as a part of one operator, whose shape does not depend on values.

        Tensors that it changes get their values back: the operator is computed as a whole when it has run.
        """
        dense = [self.mirror(each) for each in mutated if each.layout is torch.strided and is_small(each)]
        values = [each.clone() for each in dense]
        self._within.depth += 1
        try:
            yield
        finally:
            self._within.depth -= 1
            for each, value in zip(dense, values, strict=True):
                each.copy_(value)

    def forget(self, tensors: list[torch.Tensor]) -> None:
        """Marks tensors that a kernel of Triton wrote."""
        for each in tensors:
            self._forget(each)

    def _compute(self, rule: Rule, args: Args, kwargs: Kwargs, results: list[torch.Tensor]) -> bool:
        if rule.is_collective:  # the virtual GPU has moved the data, up to some size
            return all(each.numel() * each.element_size() <= MOVED_BYTES for each in results or tensors_of(args))
        kwargs = {name: torch.device("cpu") if name == "device" else each for name, each in kwargs.items()}
        try:
            if rule.is_random:
                kwargs.pop("generator", None)
                with self._own_random_state():
                    self._write(rule, args, kwargs, results)
            else:
                self._write(rule, args, kwargs, results)
        except Exception:
            return self._computed_otherwise(rule, args, results)
        return True

    def _write(self, rule: Rule, args: Args, kwargs: Kwargs, results: list[torch.Tensor]) -> None:
        if rule.zeroes:  # by giving pages back
            for each in results:
                self.mirror.clear(each)
            return
        real = tensors_of(rule.op(*replaced(args, self.mirror), **replaced(kwargs, self.mirror)))
        for value, result in zip(real, results, strict=True):
            mirrored = self.mirror(result)
            if value.data_ptr() != mirrored.data_ptr():
                mirrored.copy_(value)

    @contextmanager
    def _own_random_state(self) -> Iterator[None]:
        with self.drawing:
            state = torch.get_rng_state()
            torch.set_rng_state(self._random_state)
            try:
                yield
            finally:
                self._random_state = torch.get_rng_state()
                torch.set_rng_state(state)

    def _computed_otherwise(self, rule: Rule, args: Args, results: list[torch.Tensor]) -> bool:
        """Computes operators that torch lacks on CPUs: counts of integers."""
        if rule.op is not aten.histc.default:
            return False
        self.mirror(results[0]).copy_(torch.histc(self.mirror(args[0]).double(), *args[1:]))
        return True

    # ---- choices that large floats would make ----

    def _choose(self, rule: Rule, args: Args, inputs: list[torch.Tensor], results: list[torch.Tensor]) -> bool:
        """Makes choices among unknown values in turn, and counts of them equal. Returns whether it did."""
        if not rule.chooses or not results:
            return False
        indices = results[-1]
        if rule.counts:
            self.mirror(indices).fill_(inputs[0].numel() // max(indices.numel(), 1))
            self.assume(f"{rule.shown} of values that were not computed: equal counts")
        else:
            choices = _choices(rule, args, inputs[0])
            if not is_whole(indices) or not is_small(indices):
                return False
            order = torch.arange(indices.numel(), dtype=indices.dtype) % max(choices, 1)
            self.mirror(indices).copy_(order.view(indices.shape))
            if rule.picks:
                self.assume(f"{rule.shown} of values that were not computed: indices in turn")
        for each in results[:-1]:
            self._forget(each)
        self._mark([indices], is_unknown=False)
        return True

    # ---- shapes that are data ----

    def shape_is_data(self, rule: Rule, args: Args, kwargs: Kwargs, inputs: list[torch.Tensor]) -> object:
        """Runs an operator whose shape depends on values: on the CPU."""
        on_gpu = [each for each in inputs if each.is_cuda]
        if not on_gpu:
            return NotImplemented
        for each in on_gpu:
            self._need(each, rule.name)
        real = rule.op(*replaced(args, self.mirror), **replaced(kwargs, self.mirror))
        return replaced(real, lambda each: each.to(on_gpu[0].device))

    def _need(self, tensor: torch.Tensor, name: str) -> None:
        if self.is_unknown(tensor) and not self._lines.is_within(COUNTING):
            if self._within.depth:
                self.assume(f"an operator reads back `{name}` of values that were not computed: of zeros")
                return
            line, place = self._lines.of_script(), self._lines.place()
            raise unknown_shape(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), line, place)

    def _indices(self, mask: torch.Tensor, name: str) -> torch.Tensor:
        """Returns the places where a mask is true, with the launches and the wait of `nonzero`."""
        self._need(mask, name)
        places = self.mirror(mask).nonzero()
        mask.sum().item()  # as `nonzero`: counts, and waits for the count
        result = torch.empty(places.shape[::-1], dtype=torch.int64, device=mask.device).t()
        result.zero_()  # the kernel that writes the places
        self.mirror(result).copy_(places)
        self._mark([result], is_unknown=False)
        return result

    def _coalesce(self, op: private.Operator, tensor: torch.Tensor) -> object:
        """Adds elements of equal indices: computed for indices, with the launches of a sort and of a sum."""
        indices, values = tensor._indices(), tensor._values()
        if not tensor.is_cuda:
            return NotImplemented
        self._need(indices, "coalesce")
        shape, no_values = [*tensor.shape[: tensor.sparse_dim()], 0], torch.empty(tensor._nnz(), 0)
        real = op(torch.sparse_coo_tensor(self.mirror(indices), no_values, shape, check_invariants=False))._indices()
        indices[0].sort()
        found = indices.new_zeros(real.shape)
        self.mirror(found).copy_(real)
        self._mark([found], is_unknown=False)
        total = values.new_zeros((real.shape[1], *values.shape[1:]))
        return torch.sparse_coo_tensor(found, total, tensor.shape, is_coalesced=True, check_invariants=False)

    def _gathered(
        self, op: private.Operator, rows: list[list[torch.Tensor]], inputs: list[torch.Tensor], *more: object
    ) -> object:
        """Gives all ranks' tensors the values of this rank: torch copies them from NCCL's buffer by kernels."""
        result = op(rows, inputs, *more)
        for row, each in zip(rows, inputs, strict=True):
            for output in row if each.is_cuda and is_small(each) else ():
                if output.numel() == each.numel() and is_small(output):
                    self.mirror(output).copy_(self.mirror(each).view_as(output))
        return result

    def _nonzero(self, _op: private.Operator, tensor: torch.Tensor) -> object:
        return self._indices(tensor, "nonzero") if tensor.is_cuda else NotImplemented

    def _masked_select(self, _op: private.Operator, tensor: torch.Tensor, mask: torch.Tensor) -> object:
        if not mask.is_cuda:
            return NotImplemented
        tensor, mask = (each.reshape(each.shape or 1) for each in aten.broadcast_tensors([tensor, mask]))
        return tensor[self._indices(mask, "masked_select").unbind(1)]

    def _index(
        self, op: private.Operator, tensor: torch.Tensor, places: Sequence[torch.Tensor | None], *more: object
    ) -> object:
        if not any(each is not None and each.is_cuda and _is_mask(each) for each in places):
            return NotImplemented
        indices: list[torch.Tensor | None] = []
        for each in places:
            indices += self._indices(each, "mask as index").unbind(1) if each is not None and _is_mask(each) else [each]
        return op(tensor, indices, *more)

    def broadcasting(self, plain: Callable[..., object]) -> Callable[..., object]:
        """Makes DDP's broadcast of parameters and buffers keep values, which its large buffer has not."""

        def broadcast(group: object, tensors: list[torch.Tensor], *args: object) -> object:
            known = [each for each in tensors_of(tensors) if each.is_cuda and not self.is_unknown(each)]
            values = [self.mirror(each).clone() for each in known]
            result = plain(group, tensors, *args)
            for each, value in zip(known, values, strict=True):
                self.mirror(each).copy_(value)
            self._mark([each for each in known if is_small(each)], is_unknown=False)
            return result

        return broadcast

    # ---- values that the host reads ----

    def printing(self, plain: Callable[..., str]) -> Callable[..., str]:
        """Makes torch's text of a tensor read elements of the GPU from the CPU: torch prints without modes."""

        def text(tensor: torch.Tensor, *args: object, **kwargs: object) -> str:
            if not tensor.is_cuda or not IS_PLAIN[type(tensor)]:
                return plain(tensor, *args, **kwargs)
            parts = tensors_of(tensor)
            if parts[0].numel():
                parts[0].reshape(-1)[:1].cpu()  # the copy for which the host waits
            if any(map(self.is_unknown, parts)):
                self.assume("values that were not computed are printed")
            return plain(replaced(tensor, self.mirror), *args, **kwargs)

        return text

    def _item(self, op: private.Operator, tensor: torch.Tensor) -> object:
        if not self.is_unknown(tensor):
            return NotImplemented
        dtype = str(tensor.dtype).removeprefix("torch.")
        gets = "0, or a result of zeros" if self._loss is None else f"{self._loss:g} (--loss), or a result of zeros"
        self._read(f"the script reads a {dtype} value that was not computed: it gets {gets}")
        found = op(tensor)
        return found if self._has_values(tensor) else type(found)(0)

    def _equal(self, _op: private.Operator, one: torch.Tensor, other: torch.Tensor) -> object:
        if not (one.is_cuda or other.is_cuda):
            return NotImplemented
        if self.is_unknown(one) or self.is_unknown(other):
            self._read("tensors without values are compared: equal")
            return one.shape == other.shape
        return torch.equal(self.mirror(one), self.mirror(other))


def with_numbers(ctc_loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Makes `torch.ctc_loss` get lengths on the CPU as numbers, as torch makes it by itself where no mode is active."""

    def loss(logs: torch.Tensor, targets: torch.Tensor, *args: object) -> torch.Tensor:
        if any(each.device.type == "cpu" for each in tensors_of(args)):
            args = tuple(each.tolist() if isinstance(each, torch.Tensor) else each for each in args)
        return ctc_loss(logs, targets, *args)

    return loss


def _fills_storage(tensor: torch.Tensor) -> bool:
    return bool(tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes())


def _is_mask(index: torch.Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def _choices(rule: Rule, args: Args, tensor: torch.Tensor) -> int:
    """Returns the number of elements among which an operator picks."""
    if not tensor.dim():
        return 1
    dim = next((each for each in args[1:] if isinstance(each, int)), None)
    if rule.name.startswith("aten::topk"):
        dim = args[2] if len(args) > 2 else -1
    elif rule.name.startswith("aten::multinomial"):
        dim = -1
    elif dim is None and rule.name.startswith("aten::arg"):
        return int(tensor.numel())
    return int(tensor.shape[-1 if dim is None else dim])
