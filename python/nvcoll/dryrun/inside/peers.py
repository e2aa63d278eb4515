"""The other ranks: their objects on the host, and the groups that they form with this rank.

```
objects       of ranks that run: by mail. Of all others: copies of this rank's objects
values        of small tensors in collectives: `inside.exchange`
gloo          torch's fake process group, in which all ranks hold the same data as this rank
groups        torch gives name and ranks, the log of the virtual GPU gives number and name of the communicator: the
              group's name (torch 2.15), `description:name` (2.14, and 2.15's older backend), or the NCCL id in the
              store, whose key holds the name (2.13 and older). Splits have no id: they are noted when they are made
send, recv    without a batch, NCCL gets a communicator of two ranks for each pair: its ranks are noted here
mp.spawn      runs the function for this rank only, in this process, as does torchrun's agent (`elastic_launch`)
```
"""

from __future__ import annotations

import inspect
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from nvcoll._nvcoll import group_word
from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.gpu import Gpu
from nvcoll.dryrun.inside.lines import Lines
from nvcoll.dryrun.inside.mail import Mail
from nvcoll.dryrun.inside.ops import Operators
from nvcoll.dryrun.inside.refusals import no_peer, no_stages
from nvcoll.dryrun.inside.store import Answers
from nvcoll.dryrun.wire.rank_recording import Group
from nvcoll.dryrun.wire.virtual_gpu import CAPTURED, Kind, Records
from nvcoll.errors import DryRunError

ON_THE_HOST = (
    *("all_gather_object", "gather_object", "broadcast_object_list", "send_object_list", "recv_object_list"),
    "scatter_object_list",
)
"""Functions of torch.distributed by which ranks exchange objects on the host; methods of `Peers` replace them."""

STAGES = 64
"""The most ranks of a group that counts as a pipeline when one of them waits for an object of another. Chosen."""


class Peers:
    """The other ranks of the world."""

    def __init__(self, gpu: Gpu, mail: Mail, lines: Lines, recorder: Operators, finds_roles: bool = False) -> None:
        self._finds_roles = finds_roles
        self._gpu, self._mail, self._lines, self._recorder = gpu, mail, lines, recorder
        self._named: dict[str, Group] = {}
        self._made: dict[int, Group] = {}
        self.called = ""
        """The description of groups that are made now, in place of their own."""
        self.wanted: set[int] = set()
        """Ranks that do not run, and for whose objects this rank waited."""

    def install(self) -> None:
        """Replaces functions of torch.distributed that need other processes."""
        for name in ON_THE_HOST:
            stands_in = _by_name(getattr(dist, name), getattr(self, f"_{name}"))
            for module in (dist, private.c10d):
                private.replace(module, name, stands_in)
        private.replace(dist, "_verify_params_across_processes", lambda *_args, **_kwargs: None)
        private.replace(dist.ProcessGroup, "monitored_barrier", lambda *_args, **_kwargs: None)
        private.replace_gloo(lambda _store, rank, size, timeout=None: private.uniform_group(rank, size))
        private.wrap(private.c10d, "_new_process_group_helper", self._hinting)
        private.wrap(dist.ProcessGroup, "split_group", self._splitting)
        for name in ("send", "recv"):
            private.wrap(dist.ProcessGroup, name, self._pairing)
        private.wrap(dist.ProcessGroup, "_end_coalescing", self._ending_batch)
        for name in ("spawn", "start_processes"):
            private.replace(torch.multiprocessing, name, spawn)
        private.replace(private.launcher, "launch_agent", launch)

    def groups(self, communicators: Records, records: Records, names: list[str]) -> dict[int, Group]:
        """Returns the groups by number of communicator.

        Args:
            communicators: all records of communicators.
            records: of the step.
            names: of both.

        Raises:
            DryRunError: the step uses a communicator whose ranks are not known.
        """
        found: dict[int, Group] = {}
        used = set(records["args"][records["kind"] & ~np.uint16(CAPTURED) == Kind.COLLECTIVE, 2].tolist())
        keys = {value.rstrip(b"\0"): key for key, value in Answers.values.items()}
        for (number, size, *_), called in zip(communicators["args"].tolist(), communicators["name"], strict=True):
            name = names[int(called)]
            in_key = keys.get(name.encode(), name).split("//cuda//")[0].rsplit("/", 1)[-1]
            group = self._made.get(number) or self._named.get(name) or self._named.get(in_key)
            if group is None or len(group.ranks) != size:
                group = Group(name, tuple(range(size)))
                if 1 < size < dist.get_world_size() and number in used:
                    raise DryRunError(
                        f"the step uses the NCCL communicator `{name}` of {size} ranks, and no group of "
                        "torch.distributed tells which: make it with torch.distributed.new_group"
                    )
            found[number] = group
        return found

    # ---- groups ----

    def position(self) -> int:
        """Returns the position of the log, for `note`."""
        return self._gpu.count()

    def ranks_of(self, name: str) -> Sequence[int]:
        """Returns the global ranks of a group; none if it is not known."""
        return self._named[name].ranks if name in self._named else ()

    def _hinting(self, make: Callable[..., object]) -> Callable[..., object]:
        def hinting(size: int, rank: int, ranks: Sequence[int], *args: object, **kwargs: str) -> object:
            self._gpu.split_hint(size, rank if rank is not None else 0)
            before = self._gpu.count()
            made = make(size, rank, ranks, *args, **kwargs)
            name = kwargs.get("group_name") or args[2]
            self.note(str(name), self.called or kwargs.get("group_desc"), ranks or range(size), before)
            return made

        return hinting

    def _splitting(self, split: Callable[..., dist.ProcessGroup | None]) -> Callable[..., dist.ProcessGroup | None]:
        def splitting(
            parent: dist.ProcessGroup, ranks: Sequence[int], *args: object, **kwargs: object
        ) -> dist.ProcessGroup | None:
            self._gpu.split_hint(len(ranks), ranks.index(parent.rank()) if parent.rank() in ranks else 0)
            before = self._gpu.count()
            made = split(parent, ranks, *args, **kwargs)
            if made is not None:
                above = self._named.get(parent.group_name)
                world = above.ranks if above else range(parent.size())
                self.note(made.group_name, made.group_desc, [world[rank] for rank in ranks], before)
            return made

        return splitting

    def note(self, name: str, description: str | None, ranks: Sequence[int], before: int) -> None:
        """Notes a group, and that communicators are its, which were made after a position of the log."""
        shown = description if description and description != "undefined" else name
        group = self._named[name] = self._named[f"{description or 'undefined'}:{name}"] = Group(shown, tuple(ranks))
        for number, size in self._made_since(before):
            if size == len(group.ranks):
                self._made[number] = group
        is_mine = self._finds_roles and self._mail.rank in ranks
        if is_mine and group_word(shown) == "pp" and not self._mail.ranks.issuperset(ranks):
            self.wanted.update(ranks)
            raise no_stages(shown, self._lines.of_script())

    def _made_since(self, before: int) -> Iterator[tuple[int, int]]:
        """Yields number and size of each communicator that was made after a position of the log."""
        records = self._gpu.records(before)
        for number, size, *_ in records["args"][records["kind"] == Kind.COMMUNICATOR].tolist():
            yield number, size

    def _pairing(self, call: Callable[..., object]) -> Callable[..., object]:
        def pairing(group: dist.ProcessGroup, tensors: object, peer: int, *args: object, **kwargs: object) -> object:
            before = self._gpu.count()
            work = call(group, tensors, peer, *args, **kwargs)
            for number, size in self._made_since(before):
                known = self._named.get(group.group_name)
                if size == 2 and known:
                    pair = sorted((group.rank(), peer))
                    self._made[number] = Group(known.name, tuple(known.ranks[each] for each in pair))
            return work

        return pairing

    def _ending_batch(self, end: Callable[..., object]) -> Callable[..., object]:
        def ending(*args: object, **kwargs: object) -> object:
            with self._recorder.again():
                return end(*args, **kwargs)

        return ending

    # ---- objects ----

    def _members(self, group: dist.ProcessGroup | None) -> list[int]:
        return list(dist.get_process_group_ranks(group if group is not None else dist.group.WORLD))

    def _end(self, given: SimpleNamespace, end: str) -> int:
        """Returns the global rank at one end (`src` or `dst`) of a call."""
        rank: int | None = getattr(given, end)
        return rank if rank is not None else self._members(given.group)[getattr(given, f"group_{end}") or 0]

    def _heard(self, rank: int, what: str) -> object:
        """Waits for an object of another rank.

        Raises:
            DryRunError: it does not run.
        """
        if rank not in self._mail.ranks:
            self.wanted.add(rank)
            raise no_peer(what, rank, self._lines.of_script())
        return self._mail.receive(rank, what)

    def _tell(self, rank: int, what: str, message: object) -> None:
        if rank in self._mail.ranks:
            self._mail.send(rank, what, message)

    def _all_gather_object(self, given: SimpleNamespace) -> None:
        members = self._members(given.group)
        heard = self._mail.exchange(members, "all_gather", given.obj)
        given.object_list[:] = [heard.get(rank, given.obj) for rank in members]

    def _gather_object(self, given: SimpleNamespace) -> None:
        to, me = self._end(given, "dst"), dist.get_rank()
        if to != me:
            self._tell(to, "gather", given.obj)
        elif given.object_gather_list is not None:
            others = self._mail.ranks - {me}
            given.object_gather_list[:] = [
                self._heard(rank, "gather") if rank in others else given.obj for rank in self._members(given.group)
            ]

    def _broadcast_object_list(self, given: SimpleNamespace) -> None:
        source, me = self._end(given, "src"), dist.get_rank()
        if source == me:
            for rank in self._members(given.group):
                if rank != me:
                    self._tell(rank, "broadcast", list(given.object_list))
        elif source in self._mail.ranks or all(each is None for each in given.object_list):
            given.object_list[:] = self._heard(source, "broadcast")

    def _send_object_list(self, given: SimpleNamespace) -> None:
        self._tell(self._end(given, "dst"), "send", list(given.object_list))

    def _recv_object_list(self, given: SimpleNamespace) -> int:
        source, members = self._end(given, "src"), self._members(given.group)
        if source not in self._mail.ranks and len(members) <= STAGES:
            self.wanted.update(members)  # stages of a pipeline, which send each other shapes
        given.object_list[:] = self._heard(source, "send")
        return source

    def _scatter_object_list(self, given: SimpleNamespace) -> None:
        source, me = self._end(given, "src"), dist.get_rank()
        if source != me:
            given.scatter_object_output_list[0] = self._heard(source, "scatter")
            return
        for rank, each in zip(self._members(given.group), given.scatter_object_input_list or [], strict=True):
            if rank == me:
                given.scatter_object_output_list[0] = each
            else:
                self._tell(rank, "scatter", each)


def _by_name(function: Callable[..., object], answer: Callable[[SimpleNamespace], object]) -> Callable[..., object]:
    """Returns a function with the signature of `function` that passes its arguments by name, defaults included."""
    signature = inspect.signature(function)

    def answering(*args: object, **kwargs: object) -> object:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return answer(SimpleNamespace(**given.arguments))

    return answering


def spawn(fn: Callable[..., object], args: tuple[object, ...] = (), *_args: object, **_kwargs: object) -> None:
    """Stands for `torch.multiprocessing.spawn` and `start_processes`: this process is one rank of its host."""
    fn(int(os.environ["LOCAL_RANK"]), *args)


def launch(
    _config: object, entrypoint: Callable[..., object] | str, args: Sequence[Any], *_more: object, **_named: object
) -> dict[int, object]:
    """Stands for torchrun's agent: runs its function, or its program, for this rank only."""
    if callable(entrypoint):
        return {int(os.environ["LOCAL_RANK"]): entrypoint(*args)}
    subprocess.run([entrypoint, *args], check=True)  # of which `inside.children` runs a training script here
    return {}
