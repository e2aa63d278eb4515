"""Reads execution traces of MLCommons Chakra, the format of simulators such as ASTRA-sim.

One file per rank, ``NAME.RANK.et``: protobuf messages, each after its length; first `GlobalMetadata`, then nodes.
`SCHEMA` declares the used part of schema 1.0 (``et_def.proto`` of mlcommons/chakra).

Data dependencies become events between streams; control dependencies name callers, and order nothing. Nodes
without attribute ``stream`` (or ``tid``) are on one stream if they compute, and on another if they communicate, as in
ASTRA-sim. Nodes of the processor take its time. A node with a duration keeps it; a node with FLOPs alone counts as a
square product of these FLOPs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final, Protocol

from nvcoll._nvcoll import StepBuilder
from nvcoll.errors import InvalidArgument
from nvcoll.traces.program import (
    HOST,
    MOST,
    Call,
    Host,
    Members,
    Message,
    Moved,
    Node,
    Product,
    Timed,
    Trace,
    Work,
    issue,
)

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""Types of nodes; 1 is metadata, 2 and 3 load and store memory."""

PATTERNS: Final = (
    *("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all"),
    *("reduce_scatter", "reduce_scatter"),
)
"""Collectives by the number of their type; 9 is a barrier."""

VALUES: Final = {
    **{"double": 1, "float": 2, "int32": 5, "int64": 3, "uint32": 13, "uint64": 4, "sint32": 17, "sint64": 18},
    **{"fixed32": 7, "fixed64": 6, "sfixed32": 15, "sfixed64": 16, "bool": 8, "string": 9},
}
"""Types of attribute values, with their numbers in protobuf; their fields are 3, 5, 7 and so on."""

_VALUES = [(f"{name}_val", 3 + 2 * nth, kind, False) for nth, (name, kind) in enumerate(VALUES.items())]

SCHEMA: Final[Mapping[str, Sequence[tuple[str, int, int | str, bool]]]] = {
    "AttributeProto": [("name", 1, 9, False), *_VALUES],
    "GlobalMetadata": [("version", 1, 9, False), ("attr", 2, "AttributeProto", True)],
    "Node": [
        ("id", 1, 4, False),
        ("name", 2, 9, False),
        ("type", 3, 5, False),
        ("ctrl_deps", 4, 4, True),
        ("data_deps", 5, 4, True),
        ("start_time_micros", 6, 4, False),
        ("duration_micros", 7, 4, False),
        ("attr", 10, "AttributeProto", True),
    ],
}
"""Fields of each message: name, number, type (a protobuf number, or a message), and whether it is repeated."""


class Attribute(Protocol):
    """An attribute of a node, as protobuf reads it."""

    name: str

    def WhichOneof(self, group: str) -> str | None: ...


class Proto(Protocol):
    """A node, as protobuf reads it."""

    id: int
    name: str
    type: int
    duration_micros: int
    data_deps: Sequence[int]
    attr: Sequence[Attribute]


@cache
def messages() -> Mapping[str, Any]:
    """Returns the classes of messages.

    Raises:
        InvalidArgument: protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise InvalidArgument("traces of Chakra need protobuf: pip install '.[chakra]' in a clone of nvcoll") from error
    file = descriptor_pb2.FileDescriptorProto(name="nvcoll/chakra.proto", package="nvcoll.chakra", syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for field, number, kind, is_repeated in fields:
            row = message.field.add(name=field, number=number, label=3 if is_repeated else 1)
            row.type = 11 if isinstance(kind, str) else kind
            if isinstance(kind, str):
                row.type_name = f".nvcoll.chakra.{kind}"
            if field.endswith("_val"):
                row.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"nvcoll.chakra.{name}") for name in SCHEMA}
    return {name: message_factory.GetMessageClass(one) for name, one in found.items()}


_BEGIN: Final = re.compile(
    rb"[\x80-\xff]{0,3}[\x02-\x7f](?:\x0a[\x01-\x20]\d|\x12[\x80-\xff]{0,3}[\x02-\x7f]\x0a[\x01-\x20]\w)"
)
"""A length, then a version in field 1, or an attribute with a name in field 2."""


def is_read(data: bytes) -> bool:
    """Says whether a file begins as traces do."""
    return _BEGIN.match(data[:40]) is not None


def read(files: Sequence[tuple[str, bytes]], gpu: str, ranks_of: Mapping[str, Sequence[int]] | None = None) -> Trace:
    """Returns the step of the files of all ranks, or of some.

    Args:
        files: name and content of each rank's file; the name says the rank, as ``step.3.et``.
        gpu: the model of GPU, if the files do not say it.
        ranks_of: the ranks of groups, by the ``pg_name`` of nodes: ASTRA-sim's file of communicator groups.

    Raises:
        InvalidArgument: a file is cut or no such trace, its nodes wait in a ring, or protobuf is not installed.
    """
    nodes_of: dict[int, list[Proto]] = {}
    for nth, (where, data) in enumerate(files):
        found = re.search(r"\.(\d{1,6})\.et", where)
        rank = int(found[1]) if found else nth
        if rank in nodes_of:
            raise InvalidArgument(f"{where} is of rank {rank}, as another file: pass one file of each rank")
        nodes_of[rank] = _sorted(where, _parsed(where, data))
    title = re.sub(r"(\.\d+)?\.et(\.gz)?$", "", Path(files[0][0]).name)
    reader = _Reader(max(nodes_of) + 1, ranks_of or {})
    reader.world = max([reader.world, *(rank + 1 for ranks in reader.ranks_of.values() for rank in ranks)])
    made = {rank: reader.nodes(rank, some) for rank, some in nodes_of.items()}
    builder = StepBuilder(title, gpus=reader.world, gpu=gpu)
    for nth, (rank, nodes) in enumerate(made.items()):
        stands_for = 1 if nth else reader.world - len(made) + 1
        issue(builder, builder.rank(rank, stands_for=stands_for, name=f"rank {rank}", timed=True), rank, nodes)
    return Trace([builder.finish(dtype="bf16")], [*reader.notes, *builder.notes])


def _parsed(where: str, data: bytes) -> list[Proto]:
    """Returns the nodes of a file."""
    kinds, at = messages(), 0
    found: list[Proto] = []
    while at < len(data):
        start, size, shift = at, 0, 0
        while True:  # the length, 7 bits in each byte
            if at == len(data) or shift > 28:
                raise InvalidArgument(f"{where} is cut or no trace: no length of a message at byte {start}")
            size |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 0x80:
                break
        if at + size > len(data):
            raise InvalidArgument(
                f"{where} is cut: {size} bytes were expected at byte {at}, {len(data) - at} are there"
            )
        try:
            found.append(kinds["Node" if found else "GlobalMetadata"].FromString(data[at : at + size]))
        except Exception as error:  # protobuf's own, whose module differs between its versions
            raise InvalidArgument(f"{where} has no message of Chakra at byte {at}: {str(error)[:80]}") from error
        at += size
        if len(found) > MOST:
            raise InvalidArgument(f"{where} has more than {MOST} nodes: trace fewer steps")
    if len(found) < 2:
        raise InvalidArgument(f"{where} has no nodes: pass the trace of a step")
    return found[1:]


def _attributes(message: Proto) -> dict[str, object]:
    """Returns the attributes of a message by name."""
    return {one.name: getattr(one, kind) for one in message.attr if (kind := one.WhichOneof("value"))}


def _sorted(where: str, nodes: Sequence[Proto]) -> list[Proto]:
    """Returns nodes in topological order; of several nodes that are ready, the least number comes first.

    Raises:
        InvalidArgument: some nodes wait for each other, or two have the same number.
    """
    by_id = {one.id: one for one in nodes}
    if len(by_id) < len(nodes):
        raise InvalidArgument(f"{where}: {len(nodes)} nodes have {len(by_id)} numbers, each its own was expected")
    order = TopologicalSorter({one.id: [other for other in one.data_deps if other in by_id] for one in nodes})
    try:
        order.prepare()
    except CycleError as error:
        ring = len(set(error.args[1]))
        raise InvalidArgument(f"{where}: {ring} nodes wait for each other in a ring: correct data_deps") from None
    ready, found = sorted(order.get_ready()), []
    while ready:
        number = heappop(ready)
        found.append(by_id[number])
        order.done(number)
        for other in order.get_ready():
            heappush(ready, other)
    return found


class _Reader:
    """Makes operations of Chakra's nodes."""

    def __init__(self, world: int, ranks_of: Mapping[str, Sequence[int]]) -> None:
        self.world = world
        self.ranks_of = ranks_of
        self.notes: dict[str, None] = {}

    def nodes(self, rank: int, nodes: Sequence[Proto]) -> list[Node]:
        """Returns the operations of a rank."""
        made: list[Node] = []
        place: dict[int, int] = {}
        for one in nodes:
            attributes = _attributes(one)
            work = self.work(one, attributes)
            is_host = bool(attributes.get("is_cpu_op", False)) or one.type <= 1
            default = 1 if one.type in (SEND, RECEIVE, COLLECTIVE) else 0
            stream = HOST if is_host else _whole(attributes.get("stream", attributes.get("tid", default))) % 2**31
            after = tuple(place[other] for other in one.data_deps if other in place)
            place[one.id] = len(made)
            made.append(Node(work, stream, after))
        return made

    def work(self, node: Proto, attributes: Mapping[str, object]) -> Work:
        """Returns the work of a node."""
        name, seconds = node.name[:80], node.duration_micros * 1e-6
        nbytes = max(_whole(attributes.get(key)) for key in ("comm_size", "tensor_size"))
        if attributes.get("is_cpu_op", False) or node.type <= 1:
            return Host(seconds) if seconds else None
        if node.type == COLLECTIVE:
            kind = _whole(attributes.get("comm_type"))
            pattern = PATTERNS[kind] if kind < len(PATTERNS) else "all_reduce"
            called = str(attributes.get("pg_name", ""))
            if called and called not in self.ranks_of:
                self.notes["groups whose ranks are in no file contain all ranks"] = None
            ranks = tuple(self.ranks_of.get(called, range(self.world)))
            nbytes = nbytes * len(ranks) if pattern == "all_gather" else max(nbytes, int(kind == 9))
            return Call(name, pattern, nbytes, Members(ranks, called=called))
        if node.type in (SEND, RECEIVE):
            is_send = node.type == SEND
            peer, tag = (_whole(attributes.get(key)) for key in ("comm_dst" if is_send else "comm_src", "comm_tag"))
            self.world = max(self.world, min(peer + 1, 2**20))
            return Message(name, "send" if is_send else "recv", nbytes, min(peer, 2**32 - 1), tag)
        if seconds:
            return Timed(name, seconds)
        if (flops := _whole(attributes.get("num_ops"))) > nbytes:
            side = (flops / 2) ** (1 / 3)
            self.notes["nodes that have FLOPs and no duration count as square products in bf16"] = None
            return Product(name, side, side, side, "bf16")
        return Moved(name, nbytes)


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**63 else 0
