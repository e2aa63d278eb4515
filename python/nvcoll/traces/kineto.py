"""Reads traces of torch.profiler (JSON of Kineto): measured kernels, and collectives to predict on other machines.

One file per rank. A kernel keeps its measured time and its stream. A collective of NCCL keeps its pattern, bytes and
group. The processor keeps the time between two launches, without waits for the GPU. Dependencies come from one of two
sources:

1. events ``cuda_sync``, if there are any: they name stream and event
   (``_ExperimentalConfig(enable_cuda_sync_events=True)`` of torch.profiler writes them);
2. otherwise calls and times: a collective waits for the last operation that its thread launched before it. An operation
   after any other ``cudaStreamWaitEvent`` waits for operations that were launched before the call and had ended when it
   began. A call that waits does so for operations that were launched before it and ended by its end. An order that was
   chance is kept, too.

What it does not do: the peer of a send is not in all traces, so sends and receives keep their measured time. A kernel
that ran slower beside a collective keeps its time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from nvcoll._nvcoll import StepBuilder, WorkStep, gpus_called
from nvcoll.errors import InvalidArgument
from nvcoll.traces.kineto_rank import (
    SAME_US,
    US,
    Event,
    Rank,
    fields_of,
    is_collective,
    key_of,
    rank_of,
    rows_of,
    stream_of,
    whole,
)
from nvcoll.traces.program import Call, Host, Measured, Members, Node, Timed, Trace, issue

LONGEST_LAUNCH_US: Final = 20.0
"""The most time of a launch behind unfinished work that counts: the rest waits for the queue. Chosen: twice usual."""

LONGEST_IDLE_US: Final = 50.0
"""The longest usual time from a launch to its start in which the GPU runs nothing. Chosen."""

LONGEST_IDLE: Final = 0.01
"""The least part of a step of longer such times that gives a note. Chosen."""

PATTERNS: Final = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "barrier": "all_reduce",
    "gather": "gather",
    "scatter": "scatter",
}
"""Patterns by a part of the collective's name without underscores; the first match counts."""

VIRTUAL: Final = re.compile(r"gemm_[a-z0-9]+_[nt]{2}_\d+x\d+x\d+(x\d+)?")
"""Names of matrix products on the virtual GPU of a dry run; names of cuBLAS have no shapes."""

BYTES: Final = {"double": 8, "long": 8, "complexfloat": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "short": 2}
"""Bytes of an element by torch's name of its type in lower case; other types have 1."""


def is_read(document: object) -> bool:
    """Says whether a document of JSON is a trace: an object with events, or a list of them."""
    return any("ph" in fields_of(one) for one in rows_of(document)[:100])


def read(documents: Sequence[tuple[str, object]], named_gpu: str, number: int | None = None) -> Trace:
    """Returns the step of a trace.

    Args:
        documents: file and document of each rank.
        named_gpu: the model of GPU, if the trace names none.
        number: the number of the ProfilerStep. Default: the step of median time of the first file.

    Raises:
        InvalidArgument: a document has no launches, no kernels, or no such step.
    """
    ranks = [rank_of(*documents[0], number)]
    ranks += [rank_of(where, document, ranks[0].step) for where, document in documents[1:]]
    if len({one.number for one in ranks}) < len(ranks):
        raise InvalidArgument(f"{ranks[-1].where}: several files are of rank {ranks[-1].number}: pass one of each rank")
    rows: list[tuple[int, int, list[Node]]] = []
    notes: dict[str, None] = {}
    world = max(one.world for one in ranks)
    for nth, one in enumerate(ranks):
        nodes = list(_nodes(one, notes))
        idle = sum(held for held in map(one.idle, one.launches, one.ops) if held > LONGEST_IDLE_US)
        if idle > LONGEST_IDLE * (one.end - one.start):
            what = f"for {idle / 1e3:.3g} ms the GPU ran nothing though work was launched"
            notes[f"{what}; the trace does not say why"] = None
        stands_for = world // len(ranks) + (nth < world % len(ranks))
        rows.append((one.number, max(stands_for, 1), nodes))
    first = ranks[0]
    title = f"{first.title} of {Path(first.where).name}" + (f" and {len(ranks) - 1} more" if len(ranks) > 1 else "")
    gpu = _gpu(first.facts) or named_gpu
    calls = [node.work for *_, nodes in rows for node in nodes if isinstance(node.work, Call)]
    world = max([world, *(one.members.extent for one in calls)])

    def step(is_replayed: bool) -> tuple[WorkStep, StepBuilder]:
        builder = StepBuilder(title, gpus=world, gpu=gpu)
        for number, stands_for, nodes in rows:
            maker = builder.rank(number, stands_for=stands_for, name=f"rank {number}", timed=True)
            issue(builder, maker, number, _replayed(nodes) if is_replayed else nodes)
        return builder.finish(dtype="bf16"), builder

    made, builder = step(is_replayed=False)
    replay, _ = step(is_replayed=True)
    times = [_measured(one, _times(row[2], row[0], builder), replay) for one, row in zip(ranks, rows, strict=True)]
    notes |= dict.fromkeys(builder.notes)
    return Trace([made], list(notes), max(times, key=lambda one: one.seconds))


def _replayed(nodes: Sequence[Node]) -> list[Node]:
    """Returns operations with measured times of collectives."""
    return [
        replace(node, work=Timed("", node.work.measured_s)) if isinstance(node.work, Call) else node for node in nodes
    ]


def _times(nodes: Sequence[Node], number: int, builder: StepBuilder) -> list[tuple[str, str, float, float]]:
    """Returns pattern, group, bytes and measured seconds of the collectives of a rank."""
    calls = [node.work for node in nodes if isinstance(node.work, Call)]
    return [
        (one.pattern, builder.name_of(one.members.number(builder, number)), one.nbytes, one.measured_s) for one in calls
    ]


def _gpu(facts: Mapping[str, object]) -> str:
    """Returns nvcoll's name of the GPU of a trace; the trace's own if no model or several fit it; "" if it has none."""
    devices = facts.get("deviceProperties")
    device = fields_of(devices[0] if isinstance(devices, list) and devices else None)
    name = str(device.get("name") or "")
    called = gpus_called(name)
    return called[0].name if len(called) == 1 else name


def _nodes(rank: Rank, notes: dict[str, None]) -> Iterator[Node]:
    """Yields the operations of a rank, GPU and processor; numbers in `after` are positions of nodes."""
    after, waits = _order(rank, notes)
    place: dict[int, int] = {}  # of each operation in what was yielded
    count, clock = 0, rank.start
    moments = [(call.end, 1, number) for number, call in enumerate(rank.launches)]
    moments += [
        (call.end, 2 if call.correlation in rank.blocking else 0, number) for number, (call, _) in enumerate(waits)
    ]
    ended: dict[object, float] = {}
    for _, kind, number in sorted(moments):
        is_launch = kind == 1
        call = rank.launches[number] if is_launch else waits[number][0]
        spent = call.end - clock if is_launch else call.start - clock
        is_blocking = call.correlation in rank.blocking
        is_queued = is_launch and ended.get(stream_of(rank.ops[number]), 0.0) > call.end
        if is_launch and (is_queued or is_blocking):
            spent = min(spent, max(call.start - clock, 0.0) + LONGEST_LAUNCH_US)
        if spent > 0:
            yield Node(Host(spent * US))
            count += 1
        others = after[number] if is_launch else waits[number][1]
        released = [call.start, *(rank.ops[one].end for one in others)]
        clock = max(clock, min(call.end, max(released)) if kind == 0 else call.end)
        known = tuple(place[one] for one in others if one in place)
        if is_launch:
            op = rank.ops[number]
            place[number] = count
            ended[stream_of(op)] = op.end
            yield Node(_work(rank, number, notes), stream_of(op), known)
            count += 1
        elif known:
            yield Node(None, after=known)
            count += 1
    if rank.end > clock:
        yield Node(Host((rank.end - clock) * US))


def _work(rank: Rank, number: int, notes: dict[str, None]) -> Timed | Call:
    """Returns the operation of a GPU event; a kernel's time includes the gap before a next one that was ready."""
    op = rank.ops[number]
    seconds = (op.end - op.start) * US
    measured = Timed(op.name[:80], seconds + rank.gaps.get(number, 0.0) * US)
    if not is_collective(op):
        return measured
    meta = op.args if "Collective name" in op.args else rank.meta.get(op.external or "none", {})
    name = str(meta.get("Collective name") or "").lower().replace("_", "")
    pattern = next((row for word, row in PATTERNS.items() if word in name), None)
    most = max(whole(meta.get("In msg nelems")), whole(meta.get("Out msg nelems")))
    nbytes = max(most, "barrier" in name) * BYTES.get(str(meta.get("dtype")).lower(), 1)
    if pattern is None or not nbytes:
        why = "sends and receives" if name in ("send", "recv") or "SendRecv" in op.name else "collectives without sizes"
        notes[f"{why} keep their measured time"] = None
        return measured
    size, ranks = _members(rank, meta)
    description = str(meta.get("Process Group Description") or "")
    members = Members(ranks=tuple(ranks), size=size, called=description)
    return Call(pattern, pattern, float(nbytes), members, seconds)


def _members(rank: Rank, meta: Mapping[str, object]) -> tuple[int, list[int]]:
    """Returns the size of the group of a collective, and its ranks if they are known."""
    size = whole(meta.get("Group size"), 1) or 1
    listed = meta.get("Process Group Ranks")
    ranks = [whole(one) for one in (listed if isinstance(listed, list) else re.findall(r"\d{1,9}", str(listed)))]
    if len(ranks) != size:  # torch shortens long lists
        config = fields_of(rank.facts.get("distributedInfo")).get("pg_config")
        known = [fields_of(one) for one in (config if isinstance(config, list) else [])]
        name = meta.get("Process Group Name")
        full = next((one.get("ranks") for one in known if one.get("pg_name") == name), None)
        ranks = [whole(one) for one in full] if isinstance(full, list) and len(full) == size else ranks[:2]
    if 1 < len(ranks) < size and ranks[1] > ranks[0]:
        ranks = [*range(ranks[0], ranks[0] + size * (ranks[1] - ranks[0]), ranks[1] - ranks[0])][:size]
    return size, ranks if len(ranks) == size else []


def _order(rank: Rank, notes: dict[str, None]) -> tuple[list[list[int]], list[tuple[Event, list[int]]]]:
    """Returns for each operation, and for each call that waits, the operations for which it waits."""
    after: list[list[int]] = [[] for _ in rank.ops]
    waits: list[tuple[Event, list[int]]] = []
    threads = {call.thread for call in rank.launches}
    of_collectives = {op.external for op in rank.ops if is_collective(op)} - {None}
    records = {call.correlation: call for call in rank.calls if "EventRecord" in call.name}
    guessed = False
    for call in rank.calls:
        sync = rank.syncs.get(call.correlation)
        if "StreamWaitEvent" in call.name or "StreamWaitEvent" in (sync.name.replace(" ", "") if sync else ""):
            guessed |= _stream_waits(rank, call, sync, records, of_collectives, after)
        elif "Synchronize" in call.name and call.thread in threads:
            waits.append((call, _host_waits(rank, call, sync, records)))
    for number, (op, call) in enumerate(zip(rank.ops, rank.launches, strict=True)):
        if is_collective(op) and not rank.syncs:
            after[number] += _launched_before(rank, number)
        if rank.blocking.get(call.correlation) is op:
            waits.append((call, [number]))
    if guessed:
        notes["waits of streams are derived from times: the trace has no events of synchronisation"] = None
    return after, waits


def _stream_waits(
    rank: Rank,
    call: Event,
    sync: Event | None,
    records: Mapping[object, Event],
    of_collectives: set[object],
    after: list[list[int]],
) -> bool:
    """Adds the operations for which a stream waits after a call; says whether they were guessed."""
    if sync is not None:
        record = records.get(key_of(sync.args.get("wait_on_cuda_event_record_corr_id")))
        waiting, stream = stream_of(sync), whole(sync.args.get("wait_on_stream"))
        later = rank.streams[waiting][rank.before(call.end, waiting) :]
        if record is not None and later and (last := rank.before(record.end, stream)):
            after[later[0]].append(rank.streams[stream][last - 1])
        return False
    if call.external in of_collectives and call.external is not None:
        return False
    first = bisect_left(rank.launches, call.end, key=lambda one: one.end)
    following = (number for number in range(first, len(rank.ops)) if rank.launches[number].thread == call.thread)
    number = next((one for one in following if not is_collective(rank.ops[one])), None)
    if number is not None:
        others = [stream for stream in rank.streams if stream != stream_of(rank.ops[number])]
        after[number] += _ended(rank, others, call.end, rank.ops[number].start)
    return True


def _host_waits(rank: Rank, call: Event, sync: Event | None, records: Mapping[object, Event]) -> list[int]:
    """Returns the operations for which a call waits."""
    if "Event" not in call.name:
        of_one = sync is not None and "Stream" in call.name
        streams: Iterable[object] = [stream_of(sync)] if of_one and sync is not None else list(rank.streams)
        return _ended(rank, streams, call.start, call.end)
    record = records.get(key_of(sync.args.get("wait_on_cuda_event_record_corr_id"))) if sync else None
    if record is not None and sync is not None:
        stream = whole(sync.args.get("wait_on_stream"))
        last = rank.before(record.end, stream)
        return [rank.streams[stream][last - 1]] if last else []
    if sync is not None or call.end - call.start < 5 * SAME_US:
        return []  # the event is of a step before, or had passed
    return sorted(_ended(rank, list(rank.streams), call.start, call.end), key=lambda one: rank.ops[one].end)[-1:]


def _ended(rank: Rank, streams: Iterable[object], launched: float, ended: float) -> list[int]:
    """Returns of each stream the last operation launched before the time `launched` that ended by the time `ended`."""
    found = []
    for stream in streams:
        numbers = rank.streams[stream][: rank.before(launched, stream)]
        found += next(([one] for one in reversed(numbers) if rank.ops[one].end <= ended + SAME_US), [])
    return found


def _launched_before(rank: Rank, number: int) -> list[int]:
    """Returns the operation that the thread of a collective launched last before it."""
    thread = rank.launches[number].thread
    before = (one for one in range(number - 1, -1, -1) if rank.launches[one].thread == thread)
    return next(([one] for one in before if not is_collective(rank.ops[one])), [])


def _measured(rank: Rank, collectives: Sequence[tuple[str, str, float, float]], replay: WorkStep) -> Measured:
    computing = _length([(op.start, op.end) for op in rank.ops if not is_collective(op)]) * US
    busy = _length([(op.start, op.end) for op in rank.ops]) * US
    seconds = max((rank.end - rank.start) * US, busy)
    is_virtual = any(VIRTUAL.fullmatch(op.name) for op in rank.ops)
    exposed, idle = round(busy - computing, 12), round(seconds - busy, 12)
    return Measured(seconds, computing, exposed, idle, collectives, is_virtual, replay)


def _length(spans: Sequence[tuple[float, float]]) -> float:
    """Returns the length of the union of spans."""
    total, reached = 0.0, -float("inf")
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return total
