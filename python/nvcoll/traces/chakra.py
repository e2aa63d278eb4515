"""Reads and writes execution traces of MLCommons Chakra, the format of simulators such as ASTRA-sim.

One file per rank, ``NAME.RANK.et``: protobuf messages, each after its length; first `GlobalMetadata`, then nodes.
`SCHEMA` declares the used part of schema 1.0 (``et_def.proto`` of mlcommons/chakra).

Written: one node per operation. Its number is the position of the operation in the order of issue. It depends on the
operation before it on its stream, and on those for which its stream, or the processor, waited. Fields that Chakra lacks
(m, n and k of a product) stand in the attribute ``nvcoll``, which other readers ignore.

Read: data dependencies become events between streams; control dependencies name callers, and order nothing. Nodes
without attribute ``stream`` (or ``tid``) are on one stream if they compute, and on another if they communicate, as in
ASTRA-sim. Nodes of the processor take its time. A node with a duration keeps it; a node with FLOPs alone counts as a
square product of these FLOPs.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final

from nvcoll._nvcoll import WorkStep
from nvcoll.errors import InvalidArgument
from nvcoll.traces.program import HOST, MOST, Groups, Node, Row, Trace, ops_of, recorded_step
from nvcoll.training.group_words import moved, timed

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

VERSION: Final = "1.0.0"

OURS: Final = "nvcoll"
"""The attribute for fields that Chakra lacks, as JSON."""

GROUPS: Final = "comm_groups.json"
"""The file of groups beside traces: ranks by the number of the group, as ASTRA-sim reads it."""


@cache
def messages() -> Mapping[str, Any]:
    """Returns the classes of messages.

    Raises:
        InvalidArgument: protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise InvalidArgument("traces of Chakra need protobuf: pip install 'nvcoll[chakra]'") from error
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
    ours: dict[int, Mapping[str, Any]] = {}
    nodes_of: dict[int, list[Any]] = {}
    for nth, (where, data) in enumerate(files):
        metadata, nodes = _parsed(where, data)
        own = _own(where, metadata)
        found = re.search(r"\.(\d{1,6})\.et", where)
        rank = own["rank"]["rank"] if own else int(found[1]) if found else nth
        if not isinstance(rank, int) or rank in nodes_of:
            raise InvalidArgument(f"{where} is of rank {rank}, as another file: pass one file of each rank")
        ours |= {rank: own} if own else {}
        nodes_of[rank] = _sorted(where, nodes)
    if len(ours) == len(files):
        return _restored(files[0][0], ours, nodes_of)
    title = re.sub(r"(\.\d+)?\.et(\.gz)?$", "", Path(files[0][0]).name)
    reader = _Reader(max(nodes_of) + 1, ranks_of or {})
    reader.world = max([reader.world, *(rank + 1 for ranks in reader.ranks_of.values() for rank in ranks)])
    rows = [(rank, 1, ops_of(reader.nodes(rank, some))) for rank, some in nodes_of.items()]
    rows[0] = (rows[0][0], reader.world - len(rows) + 1, rows[0][2])
    step = recorded_step(name=title, gpus=reader.world, groups=reader.groups, ranks=rows, gpu=gpu)
    return Trace([step], [*reader.notes, *sorted(reader.groups.notes)])


def _parsed(where: str, data: bytes) -> tuple[Any, list[Any]]:
    """Returns metadata and nodes of a file."""
    kinds, at = messages(), 0
    found: list[Any] = []
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
    return found[0], found[1:]


def _attributes(message: Any) -> dict[str, Any]:
    """Returns the attributes of a message by name."""
    return {one.name: getattr(one, kind) for one in message.attr if (kind := one.WhichOneof("value"))}


def _sorted(where: str, nodes: Sequence[Any]) -> list[Any]:
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
        self.groups = Groups()
        self.notes: dict[str, None] = {}

    def nodes(self, rank: int, nodes: Sequence[Any]) -> list[Node]:
        """Returns the operations of a rank."""
        made: list[Node] = []
        place: dict[int, int] = {}
        for one in nodes:
            attributes = _attributes(one)
            row = self.op(rank, one, attributes)
            is_host = bool(attributes.get("is_cpu_op", False)) or one.type <= 1
            default = 1 if one.type in (SEND, RECEIVE, COLLECTIVE) else 0
            stream = HOST if is_host else _whole(attributes.get("stream", attributes.get("tid", default))) % 2**31
            after = tuple(place[other] for other in one.data_deps if other in place)
            place[one.id] = len(made)
            made.append(Node(row, stream, after))
        return made

    def op(self, rank: int, node: Any, attributes: Mapping[str, Any]) -> Row:
        """Returns the recorded operation of a node."""
        row: Row = {"name": node.name[:80]}
        seconds = node.duration_micros * 1e-6
        nbytes = max(_whole(attributes.get(key)) for key in ("comm_size", "tensor_size"))
        if attributes.get("is_cpu_op", False) or node.type <= 1:
            return {"work": "host", "seconds": seconds} if seconds else {}
        if node.type == COLLECTIVE:
            kind = _whole(attributes.get("comm_type"))
            pattern = PATTERNS[kind] if kind < len(PATTERNS) else "all_reduce"
            name = str(attributes.get("pg_name", ""))
            if name and name not in self.ranks_of:
                self.notes["groups whose ranks no file says hold all ranks"] = None
            ranks = self.ranks_of.get(name, range(self.world))
            group = self.groups.named(ranks, name)
            nbytes = nbytes * len(ranks) if pattern == "all_gather" else max(nbytes, int(kind == 9))
            return row | {"work": "collective", "pattern": pattern, "bytes": nbytes, "group": group}
        if node.type in (SEND, RECEIVE):
            is_send = node.type == SEND
            peer, tag = (_whole(attributes.get(key)) for key in ("comm_dst" if is_send else "comm_src", "comm_tag"))
            self.world = max(self.world, min(peer + 1, 2**20))
            return row | {
                "work": "message",
                "way": "send" if is_send else "recv",
                "bytes": nbytes,
                "peer": peer,
                "tag": tag,
            }
        if seconds:
            return row | timed(node.name, seconds)
        if (flops := _whole(attributes.get("num_ops"))) > nbytes:
            side = (flops / 2) ** (1 / 3)
            self.notes["nodes that have FLOPs and no duration count as square products in bf16"] = None
            return row | {"work": "gemm", "m": side, "n": side, "k": side, "dtype": "bf16"}
        return row | moved(node.name, nbytes)


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**63 else 0


def _own(where: str, metadata: Any) -> Mapping[str, Any] | None:
    """Returns nvcoll's attribute in the metadata of a file; None: another tool wrote the file."""
    text = _attributes(metadata).get(OURS)
    if text is None:
        return None
    try:
        row = json.loads(text)
        if isinstance(row["step"], dict) and isinstance(row["rank"]["rank"], int):
            return dict(row)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise InvalidArgument(f"{where} has an attribute `{OURS}` that nvcoll did not write: remove it")


def _restored(where: str, ours: Mapping[int, Mapping[str, Any]], nodes_of: Mapping[int, Sequence[Any]]) -> Trace:
    """Returns a step that nvcoll wrote."""
    ranks = []
    for rank, nodes in nodes_of.items():
        made: list[Node] = []
        place: dict[int, int] = {}
        for one in nodes:
            attributes = _attributes(one)
            try:
                row = json.loads(attributes.get(OURS, ""))
            except (ValueError, RecursionError, TypeError) as error:
                raise InvalidArgument(
                    f"{where}: node {one.id} has no attribute `{OURS}`: nvcoll wrote the others"
                ) from error
            place[one.id] = len(made)
            stream = HOST if attributes.get("is_cpu_op", False) else _whole(attributes.get("stream", 0))
            made.append(
                Node(row if isinstance(row, dict) else {}, stream, [place[n] for n in one.data_deps if n in place])
            )
        ranks.append({**ours[rank]["rank"], "issued": ops_of(made)})
    step = {**next(iter(ours.values()))["step"]}
    streams = step.get("streams")
    step["streams"] = {**(streams if isinstance(streams, dict) else {}), "ranks": ranks}
    return Trace([WorkStep.from_json(json.dumps(step))])


def write(step: WorkStep, folder: str | Path) -> list[Path]:
    """Writes a recorded step, a file for each recorded rank, and the groups of ranks as ASTRA-sim reads them.

    A wait for an event of the step before is left out: a trace is one step.

    Args:
        step: a recorded step.
        folder: the folder, which is made if it is missing.

    Returns:
        The files.

    Raises:
        InvalidArgument: the step was planned, not recorded, or protobuf is not installed.
    """
    whole = json.loads(step.to_json())
    if "streams" not in whole:
        raise InvalidArgument(f"`{step.name}` was planned: only a recorded step is a trace; see docs/traces.md")
    ranks = whole["streams"].pop("ranks")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    members = _members(ranks, whole["groups"])
    ids = {key: number for number, key in enumerate(members, 1)}
    files = []
    for row in ranks:
        ops = row.pop("issued")
        metadata = messages()["GlobalMetadata"](version=VERSION)
        metadata.attr.add(name=OURS, string_val=json.dumps({"step": whole, "rank": row}))
        group_of = {
            name: (ids[name, _first(row["rank"], group)], group["size"]) for name, group in whole["groups"].items()
        }
        data = [metadata, *_written(ops, row["rank"], group_of)]
        file = folder / f"step.{row['rank']}.et"
        file.write_bytes(b"".join(_delimited(one.SerializeToString(deterministic=True)) for one in data))
        files.append(file)
    listed = {str(ids[key]): some for key, some in members.items()}
    (folder / GROUPS).write_text(json.dumps(listed), encoding="utf-8")
    return [*files, folder / GROUPS]


def _first(rank: int, group: Mapping[str, int]) -> int:
    """Returns the first rank of the group in which a rank is."""
    return rank - rank // group["stride"] % group["size"] * group["stride"]


def _members(ranks: Sequence[Row], groups: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, int], list[int]]:
    """Returns the ranks of each group that contains a recorded rank, by its name and its first rank."""
    keys = sorted({(name, _first(row["rank"], group)) for row in ranks for name, group in groups.items()})
    return {
        (name, first): [first + groups[name]["stride"] * nth for nth in range(groups[name]["size"])]
        for name, first in keys
    }


def _delimited(data: bytes) -> bytes:
    size, head = len(data), bytearray()
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + data


def _written(ops: Sequence[Row], rank: int, groups: Mapping[str, tuple[int, int]]) -> Iterator[Any]:
    """Yields the nodes of a rank; `groups` has number and size of each group."""
    last: dict[int, int] = {}  # of each stream, and of the processor, the number of its last node
    events: dict[int, int] = {}
    waiting: dict[int, list[int]] = defaultdict(list)
    for number, op in enumerate(ops):
        op = {**op}
        work, stream = op["work"], op.pop("stream", 0)
        if work == "record":
            events[op["event"]] = last.get(stream, -1)
            continue
        if work == "stream_wait":
            waiting[stream].append(events.get(op["event"], -1))
            continue
        is_host = work in ("host", "host_wait")
        node = messages()["Node"](id=number, name=op.get("name") or work, type=COMPUTE)
        own = HOST if is_host else stream
        needed = {last.get(own, -1), last.get(HOST, -1), *waiting.pop(own, [])}
        if work == "host_wait":
            target = op["for"]
            needed |= {*last.values()} if target == "device" else set()
            if isinstance(target, dict):
                needed.add(last.get(target.get("stream", -2), -1))
                needed.add(events.get(target.get("event", -1), -1))
            op = {}
        node.data_deps.extend(sorted(needed - {-1}))
        node.attr.add(name="is_cpu_op", bool_val=is_host)
        if not is_host:
            node.attr.add(name="stream", int64_val=stream)
        _describe(node, op, rank, groups)
        node.attr.add(name=OURS, string_val=json.dumps(op))
        last[own] = number
        yield node


def _describe(node: Any, op: Row, rank: int, groups: Mapping[str, tuple[int, int]]) -> None:
    """Adds the attributes of an operation to its node."""
    work, nbytes = op.get("work"), int(op.get("bytes", 0))
    if work == "collective":
        group, size = groups[op["group"]]
        node.type = COLLECTIVE
        kind = PATTERNS.index(op["pattern"] if op["pattern"] in PATTERNS else "all_to_all")
        node.attr.add(name="comm_type", int64_val=kind)
        node.attr.add(name="comm_size", int64_val=nbytes // (size if kind == 2 else 1))
        node.attr.add(name="pg_name", string_val=str(group))
    elif work == "message":
        is_sent = op["way"] == "send"
        node.type = SEND if is_sent else RECEIVE
        source, target = (rank, op["peer"]) if is_sent else (op["peer"], rank)
        for name, value in (("comm_src", source), ("comm_dst", target), ("comm_tag", op.get("tag", 0) % 2**31)):
            node.attr.add(name=name, int32_val=value)
        node.attr.add(name="comm_size", int64_val=nbytes)
    elif "seconds" in op:
        node.duration_micros = max(round(op["seconds"] * 1e6), 1)
    else:
        flops = 2 * op.get("m", 0) * op.get("n", 0) * op.get("k", 0) * op.get("batch", 1) * op.get("count", 1)
        if work == "attention":
            width = op["qk_dim"] + op["v_dim"]
            flops = 2 * op["sequences"] * op["heads"] * op["queries"] * op["keys"] * width * op.get("count", 1)
            flops *= (2.5 if op.get("backward") else 1) * (0.5 if op.get("causal", True) else 1)
        if work == "gemm":
            m, n, k, element = op["m"], op["n"], op["k"], 1 if op["dtype"] in ("fp8", "fp4") else 2
            nbytes = int(element * (m * k + k * n + m * n) * op.get("batch", 1) * op.get("count", 1))
        node.attr.add(name="num_ops", int64_val=int(min(max(flops, 1), 2**62)))
        node.attr.add(name="tensor_size", uint64_val=min(max(nbytes, 1), 2**62))
