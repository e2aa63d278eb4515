# Written by tools/generate/stub.py from the types and docstrings in rust/nvcoll-python: change those.
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from enum import Enum
from os import PathLike
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar, final, overload
from numpy import ufunc
from numpy.typing import NDArray
from typing_extensions import disjoint_base
from nvcoll.authoring.algorithms import Algorithm
from nvcoll.training.options import PlanOptions

_OpName: TypeAlias = Literal["sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "mean"]
_AlgorithmName: TypeAlias = Literal[
    "auto",
    "nvswitch",
    "one_shot",
    "two_shot",
    "ring",
    "tree",
    "recursive_doubling",
    "halving_doubling",
    "two_level",
    "two_level(outer=halving_doubling)",
    "host_chain",
    "direct",
    "recursive_halving",
    "pat",
    "bruck",
    "neighbor_exchange",
    "chain",
    "scatter_all_gather",
    "pairwise",
]
_Collective: TypeAlias = Literal[
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "scan",
    "exscan",
    "barrier",
]
_Dtype: TypeAlias = Literal[
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
]
_Launch: TypeAlias = Literal["process_per_gpu", "single_process", "framework"]
_Server: TypeAlias = Literal["vllm", "sglang", "trtllm"]
__version__: str
HAS_ENGINE: bool
MAX_WORLD_SIZE: int
MAX_RUNNING_RANKS: int
_ArraysT = TypeVar("_ArraysT")
_OutT = TypeVar("_OutT")
_Size: TypeAlias = int | float | str
_Op: TypeAlias = _OpName | PremulSum | ufunc | Enum
_Path: TypeAlias = Literal["mapped", "staged", "pushed"]
_Algorithm: TypeAlias = _AlgorithmName | str | Algorithm | Schedule
'A registered name, a name with parameters such as `"two_level(per_node=4)"`, or an algorithm of the user.'
_Sizes: TypeAlias = list[_Size] | tuple[_Size, ...] | Iterable[int | float]

class Error(Exception):
    """Any error of nvcoll. What a program may want to know of a failure are attributes: it need not read messages.

    Ranks are those of the communicator whose call failed; across hosts, those of the job. An error that is about no
    rank, or does not know which, has empty tuples. Errors keep their attributes when they are pickled.

    Attributes:
        ranks: the ranks that the error is about: those that failed, disagree, or are late.
        late: the ranks that a wait missed at its deadline.
        stopped: the late ranks whose process is stopped.
        left: the ranks whose program has returned or left the job.
        host: the name of the host of the rank that failed; None if that is this host.

    Example:
        >>> import nvcoll
        >>> try:
        ...     nvcoll.Node(0)
        ... except nvcoll.Error as error:
        ...     type(error).__name__, error.ranks
        ('InvalidArgument', ())"""

    ranks: tuple[int, ...]
    late: tuple[int, ...]
    stopped: tuple[int, ...]
    left: tuple[int, ...]
    host: str | None

    def __init__(self, *args: object, ranks: tuple[int, ...] = ()) -> None: ...

class InvalidArgument(Error, ValueError):
    """An argument that cannot be used; the message says which, and what to pass.

    Example:
        >>> import nvcoll
        >>> nvcoll.Node(0)
        Traceback (most recent call last):
            ...
        nvcoll.InvalidArgument: world_size is 0: it must be a whole number, from 1 to 1024"""

class BuildError(Error):
    """An algorithm broke a rule of the builder; `step` is the number of the step that did, if it is known.

    Example:
        >>> import nvcoll
        >>> nvcoll.Builder("all_reduce", 2).input(2, 0)
        Traceback (most recent call last):
            ...
        nvcoll.BuildError: rank 2 is not one of 0 to 1"""

    step: int | None

class Refuted(Error):
    """A proof failed; `places` names the steps in conflict, `missing` the missing wait.

    Example:
        >>> import nvcoll
        >>> nvcoll.verify(nvcoll.Builder("all_reduce", 2).finish("nothing"))
        Traceback (most recent call last):
            ...
        nvcoll.Refuted: ..."""

    places: tuple[str, ...]
    missing: str | None

class Mismatch(Error):
    """Ranks made different calls; the message names both. `left` names a rank that made none, because it has left.

    Example:
        >>> import numpy as np, nvcoll
        >>> nvcoll.Node(2).run(lambda comm: comm.all_reduce(np.ones(comm.rank + 1)))
        Traceback (most recent call last):
            ...
        nvcoll.Mismatch: ..."""

class Aborted(Error):
    """Another rank failed; the message and `ranks` name it. `status` is its exit status, if it ended with one.

    Example:
        >>> import nvcoll
        >>> def program(comm):
        ...     if comm.rank == 1:
        ...         comm.abort()
        ...     try:
        ...         comm.barrier()
        ...     except nvcoll.Aborted as error:
        ...         return error.ranks
        >>> nvcoll.Node(2).run(program)
        [(1,), (1,)]"""

    status: int | None

class PeerLost(Aborted):
    """The process of another rank ended without leaving the job.

    `rank` is its rank in the communicator, `pid` its process number, `signal` the signal that killed it or None,
    `status` its exit status or None; what nobody could tell is None. `rank` is None if a whole host is lost.

    Example:
        >>> import nvcoll
        >>> def survive(comm, x):
        ...     try:
        ...         return comm.all_reduce(x)
        ...     except nvcoll.PeerLost as error:
        ...         print(f"rank {error.rank} was killed by signal {error.signal}")
        ...         return comm.shrink().all_reduce(x)"""

    rank: int | None
    pid: int | None
    signal: int | None

class Timeout(Error, TimeoutError):
    """A deadline passed; the message, `late` and `stopped` name the missing ranks.

    Example:
        >>> import numpy as np, nvcoll
        >>> nvcoll.Node(2).run(lambda comm: comm.recv(np.empty(3), timeout=0.1))
        Traceback (most recent call last):
            ...
        nvcoll.Timeout: ..."""

class Busy(Error, RuntimeError):
    """The node is in a call of another thread, or in a run of its ranks, or an array is in flight in another call.

    Example:
        >>> import nvcoll
        >>> node = nvcoll.Node(2)
        >>> node.run(lambda comm: node.barrier())
        Traceback (most recent call last):
            ...
        nvcoll.Busy: ..."""

class Closed(Error, RuntimeError):
    """The peers of a communicator are gone: its run has ended, or the process was forked.

    Example:
        >>> import nvcoll
        >>> comm = nvcoll.Node(2).run(lambda comm: comm)[0]  # the run has ended
        >>> comm.barrier()
        Traceback (most recent call last):
            ...
        nvcoll.Closed: ..."""

class NoEngine(Error, RuntimeError):
    """This build of nvcoll has no engine, which runs collectives and needs Linux; the message says what needs it.

    Example:
        >>> import nvcoll
        >>> try:
        ...     node = nvcoll.Node(2)
        ... except nvcoll.NoEngine as error:
        ...     print(error)"""

class AlgorithmRow(NamedTuple):
    """A registered algorithm. `order` says how it reduces: `rank`, in the order of ranks; `tree`; or `none`."""

    collective: str
    name: str
    order: str
    summary: str
    source: str

class AutoChoice(NamedTuple):
    """What `auto` chooses for a call, why, and what it expects of each candidate."""

    algorithm: str
    why: str
    candidates: list[CandidateRow]

class Calibration(NamedTuple):
    """One measured step against its prediction: `ratio` as measured, `scale` as it counts for other steps, to which `scaled`
    applies it. A run has noise of its own (3 to 5 % between equal runs), so `scale` is nearer to 1. It holds for the same model,
    GPU, precision and software."""

    ratio: float
    scale: float

class CandidateRow(NamedTuple):
    """What `auto` expects of one algorithm: bytes that all ranks read and write, waits and steps of the longest chain, the
    factor of each coefficient, and seconds."""

    algorithm: str
    moved_bytes: float
    waits: int
    steps: int
    terms: list[float]
    seconds: float

class CoefficientRow(NamedTuple):
    """A coefficient of the cost model; `per_second` of its units are a second."""

    name: str
    per_second: float

class CollectiveRow(NamedTuple):
    """A collective. `folds` says which ranks' arrays a result reduces: `nothing`, `everyone` or `predecessors`."""

    name: str
    summary: str
    has_root: bool
    can_be_in_place: bool
    folds: str

class ConstantRow(NamedTuple):
    """A constant of predictions. `kind` says how it is known: cited, fitted or chosen; `low` and `high` are its least and
    greatest value with a family of machines held out."""

    name: str
    value: float
    unit: str
    kind: str
    low: float
    high: float
    source: str

class CostModel(NamedTuple):
    """The model by which `auto` chooses: its modes, its coefficients, and the most ranks for which it estimates candidates."""

    modes: list[str]
    coefficients: list[CoefficientRow]
    most_ranks: int

class DtypeRow(NamedTuple):
    """A dtype: the bytes of an element, its kind, and the dtype in which it is accumulated."""

    name: str
    nbytes: int
    kind: str
    accumulator: str

class GpuRow(NamedTuple):
    """A model of GPU. `nvlink` is the medium of its NVLinks, or of its links of Infinity Fabric, or None; `pcie` is the medium
    of its PCIe lanes; `memory_gbps` is the bandwidth of its memory in GB/s. `sm` is its compute capability, as 90; `sms` are
    its streaming multiprocessors; `memory_gb` is the memory of its name, `usable_gib` what programs see of it, in GiB; `board` is
    the machine on which it is sold, if there is one; `names` are how the names begin that nvidia-smi and amd-smi print, without the
    maker's. What is not known is None."""

    name: str
    title: str
    nvlink: str | None
    nvlinks: int
    pcie: str
    pcie_lanes: int
    memory_gbps: float
    sm: int | None
    sms: int | None
    memory_gb: float | None
    usable_gib: float | None
    board: str | None
    names: list[str]
    source: str

class LinePrice(NamedTuple):
    """What the GPU of a recorded step loses for a line of the script, in seconds of a step. `exposed_s`, `copies_s`: its
    collectives and messages, and its copies, that nothing hides. `waits_s`: it waits for other ranks. `host_s`: the GPU waits
    for the processor to issue its operations."""

    line: str
    exposed_s: float
    copies_s: float
    waits_s: float
    host_s: float

class MediumRow(NamedTuple):
    """A medium of links. `lane_gbps` is the line rate of one lane or link one way, in GB/s; `efficiency` is the part of it
    that a long transfer reaches; `latency_ns` passes until the first byte is across."""

    name: str
    title: str
    family: str
    lane_gbps: float
    efficiency: float
    latency_ns: int
    source: str

class MemoryTable(NamedTuple):
    """Memory of a GPU of some role: bytes by line, their sum in GiB, and the least and the most bytes that it may need."""

    role: str
    gib: float
    least_bytes: float
    most_bytes: float
    lines: dict[str, float]

class OpRow(NamedTuple):
    """An op, and the names of the dtypes on which it is defined."""

    name: str
    dtypes: list[str]

class ParameterRow(NamedTuple):
    """A parameter of a registered algorithm: the values that it takes, and its default, in words."""

    name: str
    choices: str
    default: str
    summary: str

class PatternRow(NamedTuple):
    """A pattern that predictions know; `is_of_sends` says whether NCCL builds it of sends and receives."""

    name: str
    is_of_sends: bool

class RolePrice(NamedTuple):
    """The time of the ranks of some stages: seconds of one micro-batch by chunk, and seconds once in a step."""

    name: str
    stages: list[int]
    forward_s: list[float]
    backward_s: list[float]
    once_s: float

class SettingRow(NamedTuple):
    """An environment variable of NCCL that `settings=` takes. `since` is the first version that reads it, from 2.8.4; `default`
    is None if it depends on the machine or the version."""

    name: str
    since: str
    values: str
    default: int | None
    changes: str

@final
class Builder:
    """Records one sequential program of all ranks. A step sees the writes of all steps before it; `finish` derives the waits.

    Views are places. In place, `output(r, c)` is the memory of `input(r, c)`: a step that writes it overwrites the
    contribution of rank r.

    Args:
        collective: the name of a collective.
        world_size: the number of ranks.
        root: the root, for a collective that has one. Default: 0.
        in_place: whether input and output are the same memory.

    Raises:
        InvalidArgument: the collective is unknown, or a number is out of range.
        BuildError: here, and at each method: the call broke a rule of the builder; the message names it.

    Example:
        >>> import nvcoll
        >>> b = nvcoll.Builder("broadcast", 2)
        >>> for rank in range(2):
        ...     view = b.copy(b.input(0, 0), into=b.output(rank, 0))
        >>> nvcoll.verify(b.finish("star")).expression(0)
        'r0'"""

    def __new__(cls, collective: str, world_size: int, *, root: int | None = None, in_place: bool = False) -> Self: ...
    def all_gather(
        self,
        views: Sequence[View],
        *,
        into: Sequence[View],
        over: Sequence[Sequence[int]],
        algorithm: Any | None = "auto",
    ) -> list[View]:
        """Gathers the shares of each group into `into` on every member.

        Args:
            views: the shares, one view per rank.
            into: the destinations, one view per rank.
            over: groups of ranks, in which every rank occurs once.
            algorithm: a name, or an algorithm of all_gather.

        Returns:
            `into`."""

    def all_reduce(
        self, views: Sequence[View], *, over: Sequence[Sequence[int]], algorithm: Any | None = "auto"
    ) -> list[View]:
        """Reduces the views of each group; every member receives the whole result.

        Args:
            views: one view per rank.
            over: groups of ranks, in which every rank occurs once.
            algorithm: a name, or an algorithm of all_reduce.

        Returns:
            The results, one view per rank."""

    def channel(self, channel: int) -> None:
        """Puts the following steps into `channel`. The queues of different channels are independent."""

    def chunks(self, per_part: int) -> list[int]:
        """Cuts every part into `per_part` chunks and returns the numbers of all chunks, part by part."""

    def copy(self, view: View, into: View | Sequence[View], *, at: str | None = None) -> View:
        """Copies a view into every view of `into`. Returns the first view of `into`. `at="switch"`: a fabric that can does the step in
        the switch."""

    def fail_at(self, step: int, message: str) -> None:
        """Makes the call that records a step raise BuildError with a message. The package runs an algorithm again in this way, so that
        an error of `finish` is raised at the line of the step."""

    def finish(self, name: str) -> Schedule:
        """Derives queues and waits, and returns the mapped schedule. `name` is one word, without blanks and `#`."""

    def fold(self, *views: View | Sequence[View], into: View | Sequence[View], at: str | None = None) -> View:
        """Folds views, in the order of the arguments, and stores the result in every view of `into`. Returns the first view of `into`.

        Args:
            views: views, or lists of views, of one rank or several.
            into: a view, or a list of views.
            at: ``"switch"``: a fabric that can does the step in the switch."""

    def groups(self, per_group: int | None = None, *, stride: int | None = None) -> list[list[int]]:
        """Returns the groups of `per_group` neighbouring ranks, or of the ranks at distances of `stride`."""

    @property
    def in_place(self) -> bool:
        """Whether input and output are the same memory."""

    def input(self, rank: int, chunk: int | range) -> View:
        """Returns the view of a chunk, or of a `range` of chunks, of a rank's input."""

    @property
    def inputs(self) -> list[View]:
        """The whole input of every rank, by rank."""

    def output(self, rank: int, chunk: int | range) -> View:
        """Returns the view of a chunk, or of a `range` of chunks, of a rank's output."""

    @property
    def outputs(self) -> list[View]:
        """The whole output of every rank, by rank."""

    def push(self, view: View, into: View | Sequence[View]) -> View:
        """Copies a view into every view of `into`; the rank that owns the view executes the step. Returns the first view of `into`."""

    def reduce_scatter(
        self, views: Sequence[View], *, over: Sequence[Sequence[int]], algorithm: Any | None = "auto"
    ) -> list[View]:
        """Reduces the views of each group; member i receives the i-th share.

        Args:
            views: one view per rank.
            over: groups of ranks, in which every rank occurs once.
            algorithm: a name, or an algorithm of reduce_scatter.

        Returns:
            The shares, one view per rank."""

    @property
    def root(self) -> int:
        """The root; 0 if the collective has none."""

    def scratch(self, rank: int, chunk: int | range, *, layer: int = 0) -> View:
        """Returns the view of a chunk, or of a `range` of chunks, of a rank's scratch: memory for intermediate values. Each layer is as
        long as the data."""

    @property
    def world_size(self) -> int:
        """The number of ranks."""

@final
class CallCounts:
    """Counts the calls of a node, or of a rank that is a process, by kind. Not public: reports tabulate it.

    It is filled while the node is used, and keeps nothing of the node alive."""

    def calls(self) -> list[Calls]:
        """Returns the kinds of calls in the order of their first call. Calls that failed are not counted."""

    @property
    def others(self) -> int:
        """The number of calls that are not in `calls`, because there were too many kinds of them."""

    @property
    def world_size(self) -> int:
        """The number of ranks of the node."""

@final
class Calls:
    """Counts the calls of one collective, algorithm, dtype, op, root, size and set of ranks. Not public."""

    @property
    def algorithm(self) -> str:
        """The algorithm as the caller named it."""

    @property
    def collective(self) -> str:
        """The name of the collective; `sendrecv` of sends, which their senders count."""

    @property
    def dtype(self) -> str | None:
        """The name of the dtype; None in a barrier."""

    @property
    def grouped(self) -> int:
        """The number of calls of a group that are counted as one; 1 outside of groups."""

    @property
    def nbytes(self) -> int:
        """The bytes of the longest buffer of a rank; in a group, of all its calls of the kind."""

    @property
    def op(self) -> str | None:
        """The name of the op; None if the collective reduces nothing."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the run that took part, by rank in the call."""

    @property
    def root(self) -> int | None:
        """The root, as a position in `ranks`; None if the collective has none."""

    @property
    def schedule(self) -> Schedule | None:
        """The schedule that the first of these calls ran; None of sends. Of a registered algorithm it is the mapped one, however ranks reach each
        other's memory here: a machine of GPUs does it in its own way."""

    @property
    def times(self) -> int:
        """The number of such calls."""

@final
class CollectivePrice:
    """One collective of a step: where it is, among which ranks, what it takes."""

    def __eq__(self, value: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    @staticmethod
    def _restored(saved: str) -> CollectivePrice: ...
    @property
    def bytes(self) -> float:
        """Bytes, as nccl-tests counts."""

    @property
    def count(self) -> float:
        """The number of its calls there."""

    @property
    def exposed_s(self) -> float | None:
        """Seconds of all calls that nothing hides, where the step was recorded."""

    @property
    def group(self) -> str:
        """The name of its group."""

    @property
    def hides(self) -> str | None:
        """What it hides behind; ``nothing``: computing waits for it. None where the step was recorded."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def of(self) -> str:
        """The block or role in which it is."""

    @property
    def pass_(self) -> str:
        """``forward``, ``backward``, ``once``, ``pipeline``, or ``streams`` of a recorded step."""

    @property
    def ranks(self) -> str:
        """Where the ranks of the group are."""

    @property
    def seconds(self) -> float:
        """Seconds of one call, if nothing hid it."""

@disjoint_base
class Communicator:
    """The collectives of one rank. `nvcoll.init` returns the communicator of a rank that is a process, `Node.run` passes one to the
    program of each rank that is a thread, and `split` makes others. A communicator ends with the program of its rank. One thread
    at a time may use it; several threads of a rank use one each.

    Example:
        >>> import numpy as np, nvcoll
        >>> nvcoll.Node(2).run(lambda comm: comm.all_reduce(np.full(2, comm.rank + 1)).tolist())
        [[3, 3], [3, 3]]"""

    @property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of this communicator on each host, hosts in the order of their lowest ranks: `((0, 1), (2, 3))`. A communicator of this
        class is on one host."""

    @overload
    def barrier(self, *, timeout: float | None = None, async_op: Literal[False] = False) -> None:
        """Waits until every rank has called it.

        Args:
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
            async_op: whether to return at once, with a `Work` to wait for. Its `timeout` counts from its turn. Default: false.

        Raises:
            InvalidArgument: a group is open.
            Mismatch: another rank made a different call; the message names both.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the deadline passed; the message names the ranks that have not entered the call."""

    @overload
    def barrier(self, *, timeout: float | None = None, async_op: Literal[True]) -> Work: ...
    @overload
    def split(self, color: int, key: int | None = None, *, timeout: float | None = None) -> Communicator:
        """Splits the ranks into groups, each with its own communicator. Every rank must call it.

        A mismatch, a timeout or `abort` ends the calls of one communicator. A rank whose program raises ends the calls of all
        its communicators. A rank that deletes its communicator leaves the group.

        Args:
            color: a whole number from 0: ranks of one color form a group. None: this rank joins no group.
            key: a whole number that orders the ranks of a group; equal keys by rank. Default: 0.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.

        Returns:
            The communicator of this rank's group, with ranks of its own and the default timeout of this communicator; None
            without a color.

        Raises:
            InvalidArgument: the color or the key is not such a number, or a group of calls is open.
            Mismatch: another rank made a different call; the message names both.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the deadline passed; the message names the ranks that have not entered the call.

        Example:
            >>> def program(comm):
            ...     row = comm.split(comm.rank // 2)
            ...     return row.ranks, row.rank
            >>> nvcoll.Node(4).run(program)
            [((0, 1), 0), ((0, 1), 1), ((2, 3), 0), ((2, 3), 1)]"""

    @overload
    def split(self, color: None, key: int | None = None, *, timeout: float | None = None) -> None: ...
    @overload
    def split(
        self, color: int | None, key: int | None = None, *, timeout: float | None = None
    ) -> Communicator | None: ...
    def __new__(cls, inner: Communicator) -> Self: ...
    def _add_to_group(self, call: Callable[[float | None], object], timeout: float | None, is_async: bool) -> bool: ...
    def _awaits(self, source: Any) -> bool: ...
    def _deliver(self, source: Any, tag: int, dtype: str, data: Any) -> None: ...
    def _message(self) -> Message: ...
    def _name_ranks(self, numbers: Sequence[int]) -> None: ...
    def _refuse_in_flight(self, arrays: Sequence[Any], is_written: bool) -> None: ...
    def _refuse_in_group(self, call: str) -> None: ...
    def _work(self, call: str) -> Work: ...
    def abort(self) -> None:
        """Ends the current calls and all later calls of this communicator on every rank. The calls raise `Aborted`; it names this rank.

        Any thread may call `abort`, also while another thread is in a call. Other communicators of the same ranks stay usable.

        Raises:
            Closed: the program of this rank has ended."""

    @overload
    def all_gather(
        self,
        x: _ArraysT,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _ArraysT:
        """Gives every rank the arrays of all ranks, one after the other.

        Args:
            x: this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype, equal on all ranks,
                and any strides.
                It has (counts[r],) elements on rank r. Read.
            counts: elements per input, one number per rank, equal on all ranks. Default: the length of `x` for all ranks.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: this rank's array for the result.
                It has (sum of `counts`,) elements. In place if the input is part r of it.
                Default: new arrays of the kind of the input, with the input's axes after the first if all parts have whole rows.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped between threads, staged
                between processes.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
            async_op: whether to return at once, with a `Work` whose `wait` returns the result. The arrays must not be touched until
                the call is over, and its `timeout` counts from its turn. Default: false.

        Returns:
            `out` if it is given, else the new array.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank.
            Busy: an array is in flight in another call, and one of the two writes it. Calls of one communicator
                with `async_op` may share arrays: they run in the order of issue.
            Mismatch: another rank made a different call; the message names both.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the deadline passed; the message names the ranks that have not entered the call."""

    @overload
    def all_gather(
        self,
        x: Any,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _OutT: ...
    @overload
    def all_gather(
        self,
        x: Any,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: Any = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def all_reduce(
        self,
        x: _ArraysT,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _ArraysT:
        """Reduces the arrays of all ranks element by element and gives every rank the result.

        Args:
            x: this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype, equal on all ranks,
                and any strides.
                It has (count,) elements, count equal on all ranks. Written, unless `out` is given.
            op: a name, a ufunc such as `np.add`, or `nvcoll.premul_sum(scalar)` with the scalar of this rank. Default: sum.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: this rank's array for the result.
                It has (count,) elements.
                Either it is the memory of the input, or it shares no byte with it. Default: in place.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped between threads, staged
                between processes.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
            async_op: whether to return at once, with a `Work` whose `wait` returns the result. The arrays must not be touched until
                the call is over, and its `timeout` counts from its turn. Default: false.

        Returns:
            `out` if it is given, else `x`.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank.
            Busy: an array is in flight in another call, and one of the two writes it. Calls of one communicator
                with `async_op` may share arrays: they run in the order of issue.
            Mismatch: another rank made a different call; the message names both.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the deadline passed; the message names the ranks that have not entered the call."""

    @overload
    def all_reduce(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _OutT: ...
    @overload
    def all_reduce(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: Any = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def all_to_all(
        self,
        x: _ArraysT,
        *,
        counts: Sequence[int] | Sequence[Sequence[int]] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _ArraysT:
        """Gives rank r part r of the array of every rank, in the order of ranks.

        Ranks that pass rows of `counts` tell each other their rows in a call of their own. A table needs no such call. All ranks
        pass rows, or none does.

        Args:
            x: this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype, equal on all
                ranks, and any strides. It has the elements to rank 0, to rank 1, …. Read.
            counts: a row: the elements from this rank to each rank, 0 allowed. Or a table, equal on all ranks: row q has the
                elements from rank q to each rank. Default: `x` has one length on all ranks, and is cut as numpy's
                `array_split` does.
            recv_counts: the elements that this rank receives from each rank, which nvcoll checks; only with a row of `counts`.
            algorithm: a name, an algorithm or a schedule. Default: selected by `auto`.
            out: this rank's array for the result. It has the elements from rank 0, from rank 1, …; it is never in place.
                Default: a new array of the kind of the input, with the input's axes after the first if all parts have whole
                rows.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped between threads, staged between
                processes.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
            async_op: whether to return at once, with a `Work` whose `wait` returns the result. The arrays must not be touched until
                the call is over, and its `timeout` counts from its turn. Default: false.

        Returns:
            `out` if it is given, else the new array.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank.
            Busy: an array is in flight in another call, and one of the two writes it. Calls of one communicator
                with `async_op` may share arrays: they run in the order of issue.
            Mismatch: another rank made a different call, or `counts` and `recv_counts` of two ranks differ.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the deadline passed; the message names the ranks that have not entered the call."""

    @overload
    def all_to_all(
        self,
        x: Any,
        *,
        counts: Sequence[int] | Sequence[Sequence[int]] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _OutT: ...
    @overload
    def all_to_all(
        self,
        x: Any,
        *,
        counts: Sequence[int] | Sequence[Sequence[int]] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: Any = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    def array(self, x: Any, dtype: Any | None = None) -> NDArray[Any]:
        """Copies an array into one that every rank can reach: see `empty`.

        Args:
            x: an array, or anything that numpy converts to an array.
            dtype: the dtype. Default: that of `x`."""

    @overload
    def broadcast(
        self,
        x: _ArraysT,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _ArraysT:
        """Gives every rank the array of the root.

        Args:
            x: this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype, equal on all ranks,
                and any strides.
                It has (count,) elements, count equal on all ranks. Read on the root, written elsewhere. With `out`, only the root's is used.
            root: the rank whose array is read.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: this rank's array for the result.
                It has (count,) elements. Written on every rank.
                Either it is the memory of the input, or it shares no byte with it. Default: in place.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped between threads, staged
                between processes.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
            async_op: whether to return at once, with a `Work` whose `wait` returns the result. The arrays must not be touched until
                the call is over, and its `timeout` counts from its turn. Default: false.

        Returns:
            `out` if it is given, else `x`.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank.
            Busy: an array is in flight in another call, and one of the two writes it. Calls of one communicator
                with `async_op` may share arrays: they run in the order of issue.
            Mismatch: another rank made a different call; the message names both.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the deadline passed; the message names the ranks that have not entered the call."""

    @overload
    def broadcast(
        self,
        x: Any,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _OutT: ...
    @overload
    def broadcast(
        self,
        x: Any,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: Any = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    def empty(self, shape: int | Sequence[int], dtype: Any | None = None) -> NDArray[Any]:
        """Makes an uninitialized array that every rank can reach. Between processes, collectives on such arrays move each byte once,
        if all ranks pass them; other arrays are copied on the way. Between threads it is an ordinary array.

        The memory belongs to this rank. It is free again when the array, its slices and its DLPack consumers are gone.

        Args:
            shape: the lengths of the axes, or one length.
            dtype: the dtype, as numpy takes it. Default: float64.

        Returns:
            A numpy array.

        Raises:
            InvalidArgument: a length is negative or too large, or the dtype is of Python objects.
            MemoryError: there is no memory that ranks can share.
            OSError: this process may have no more descriptors.

        Example:
            >>> comm = nvcoll.init()
            >>> comm.all_reduce(comm.full(3, 2.0))
            array([2., 2., 2.])
            >>> nvcoll.finalize()"""

    @overload
    def exscan(
        self,
        x: _ArraysT,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _ArraysT:
        """Gives rank r the reduction of the arrays of ranks 0 to r - 1. Rank 0 receives nothing.

        Args:
            x: this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype, equal on all ranks,
                and any strides.
                It has (count,) elements, count equal on all ranks. Written, unless `out` is given; unchanged on rank 0.
            op: a name or a ufunc: any op but avg and premul_sum. Default: sum.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: this rank's array for the result.
                It has (count,) elements; rank 0 passes one too, which stays unchanged.
                Either it is the memory of the input, or it shares no byte with it. Default: in place.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped between threads, staged
                between processes.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
            async_op: whether to return at once, with a `Work` whose `wait` returns the result. The arrays must not be touched until
                the call is over, and its `timeout` counts from its turn. Default: false.

        Returns:
            `out` if it is given, else `x`.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank.
            Busy: an array is in flight in another call, and one of the two writes it. Calls of one communicator
                with `async_op` may share arrays: they run in the order of issue.
            Mismatch: another rank made a different call; the message names both.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the deadline passed; the message names the ranks that have not entered the call."""

    @overload
    def exscan(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _OutT: ...
    @overload
    def exscan(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: Any = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    def full(self, shape: int | Sequence[int], fill_value: Any, dtype: Any | None = None) -> NDArray[Any]:
        """Makes an array of one value that every rank can reach: see `empty`.

        Args:
            shape: as in `empty`.
            fill_value: the value of each element, or an array that numpy broadcasts.
            dtype: the dtype. Default: that of `fill_value`."""

    @overload
    def gather(
        self,
        x: _ArraysT,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _ArraysT | None:
        """Gives the root the arrays of all ranks, one after the other.

        Args:
            x: this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype, equal on all ranks,
                and any strides.
                It has (counts[r],) elements on rank r. Read.
            root: the rank that receives the result.
            counts: elements per input, one number per rank, equal on all ranks. Default: the length of `x` for all ranks.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: on the root, the array for the result; ignored elsewhere.
                It has (sum of `counts`,) elements. In place if the root's input is its part of it.
                Default: new arrays of the kind of the input, with the input's axes after the first if all parts have whole rows.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped between threads, staged
                between processes.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
            async_op: whether to return at once, with a `Work` whose `wait` returns the result. The arrays must not be touched until
                the call is over, and its `timeout` counts from its turn. Default: false.

        Returns:
            On the root `out` if it is given, else the new array; elsewhere None.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank.
            Busy: an array is in flight in another call, and one of the two writes it. Calls of one communicator
                with `async_op` may share arrays: they run in the order of issue.
            Mismatch: another rank made a different call; the message names both.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the deadline passed; the message names the ranks that have not entered the call."""

    @overload
    def gather(
        self,
        x: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _OutT: ...
    @overload
    def gather(
        self,
        x: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: Any = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    def group(self, *, timeout: float | None = None, async_op: bool = False) -> Group:
        """Groups the calls in a `with` block. nvcoll launches them together at the end of the block, as in `Node.group`.

        Every rank must make the same collectives in the block, in the same order. If the block raises, this rank makes none of its calls.
        Its peers then get `Mismatch` at its next call or at the end of its program, or `Aborted` if its program raises.

        Args:
            timeout: seconds per part of the group. The calls of one algorithm form a part. Default: that of `Node.run` or `init`.
            async_op: whether the program continues after the block while the calls run. The group then has a `Work` in `work`.
                Default: false.

        Returns:
            The group. Its `run` launches the same calls again.

        Raises:
            Mismatch: at the end of the block, if another rank made different calls; the message names the call in the group.
            InvalidArgument: at the end of the block, if arrays of two calls share memory and one call writes to its array.
            Busy: another group of this communicator is open."""

    def irecv(self, x: Any, src: int | None = None, *, tag: int | None = None, timeout: float | None = None) -> Work:
        """Begins to receive an array that a rank sends, and returns immediately. Do not read or write the array before the `Work` is done.

        Args:
            x, src, tag: as in `recv`. Receives take messages in the order of their calls.
            timeout: seconds that the call may take, counted from now. Default: that of `Node.run` or `init`.

        Returns:
            A `Work`. Its `wait` returns the `Message`.

        Raises:
            InvalidArgument, Aborted: as `recv`. The `wait` of the `Work` raises `Mismatch`.
            Busy: another call in flight reads or writes the array.

        Example:
            >>> def program(comm):
            ...     x, out = np.array([comm.rank]), np.array([0])
            ...     works = [comm.irecv(out), comm.isend(x, 1 - comm.rank, tag=3)]
            ...     return [work.wait() for work in works][0].tag, int(out[0])
            >>> nvcoll.Node(2).run(program)
            [(3, 1), (3, 0)]"""

    def isend(self, x: Any, dst: int, *, tag: int | None = None, timeout: float | None = None) -> Work:
        """Begins to send an array to a rank, and returns immediately. Do not write to the array before the `Work` is done.

        The message moves while the program computes: a thread that waits for messages of the communicator moves it, else a thread of nvcoll.

        Args:
            x, dst, tag: as in `send`.
            timeout: seconds that the call may take, counted from now. Default: that of `Node.run` or `init`.

        Returns:
            A `Work`. Its `wait` returns None.

        Raises:
            InvalidArgument, Mismatch, Aborted: as `send`.
            Busy: another call in flight writes to the array.

        Example:
            See `irecv`."""

    @property
    def rank(self) -> int:
        """This rank, from 0."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the run, or of the job, that form this communicator, in the order of ranks here."""

    def recent_calls(self) -> list[tuple[int, str]]:
        """Returns the last calls of this rank in this communicator, newest first, at most 15. Each call is a number and a description.

        The first call of the communicator has number 1. Any thread may call `recent_calls`, also while another thread is in a call.
        Sends and receives are not among them.

        Example:
            >>> def program(comm):
            ...     comm.barrier()
            ...     comm.all_gather(np.zeros(2))
            ...     return comm.recent_calls()
            >>> nvcoll.Node(2).run(program)[0]
            [(2, 'all_gather of 4 float64, out of place, mapped, auto'), (1, 'barrier')]"""

    def recv(self, x: Any, src: int | None = None, *, tag: int | None = None, timeout: float | None = None) -> Message:
        """Receives an array that a rank sends.

        Args:
            x: this rank's array for the message, as in `send`. It must have the message's dtype and number of elements. Written.
            src: the rank that sends. Default: any. If several messages match, `recv` takes the one that arrived first.
            tag: the tag of the message. Default: any.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`. A timeout ends the communicator.

        Returns:
            A `Message` with `source`, `tag` and `count`. In a group these are None before the end of the block.

        Raises:
            InvalidArgument: an argument cannot be used, or there is no such rank.
            Mismatch: the dtype or the number of elements of `x` and of the message differ, or the program of the sender has returned.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: no such message came before the deadline; the error names the tags of the messages that came.

        Example:
            See `send`."""

    @overload
    def reduce(
        self,
        x: _ArraysT,
        op: _Op | None = None,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _ArraysT | None:
        """Reduces the arrays of all ranks element by element and gives the root the result.

        Args:
            x: this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype, equal on all ranks,
                and any strides.
                It has (count,) elements, count equal on all ranks. Written on the root, unless `out` is given; read elsewhere.
            op: a name, a ufunc such as `np.add`, or `nvcoll.premul_sum(scalar)` with the scalar of this rank. Default: sum.
            root: the rank that receives the result.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: on the root, the array for the result; ignored elsewhere.
                It has (count,) elements.
                Either it is the memory of the input, or it shares no byte with it. Default: in place.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped between threads, staged
                between processes.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
            async_op: whether to return at once, with a `Work` whose `wait` returns the result. The arrays must not be touched until
                the call is over, and its `timeout` counts from its turn. Default: false.

        Returns:
            On the root `out` if it is given, else `x`; elsewhere None.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank.
            Busy: an array is in flight in another call, and one of the two writes it. Calls of one communicator
                with `async_op` may share arrays: they run in the order of issue.
            Mismatch: another rank made a different call; the message names both.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the deadline passed; the message names the ranks that have not entered the call."""

    @overload
    def reduce(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _OutT: ...
    @overload
    def reduce(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: Any = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def reduce_scatter(
        self,
        x: _ArraysT,
        op: _Op | None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _ArraysT:
        """Reduces the arrays of all ranks element by element and gives rank r part r of the result.

        Args:
            x: this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype, equal on all ranks,
                and any strides.
                It has (sum of `counts`,) elements. Read.
            op: a name, a ufunc such as `np.add`, or `nvcoll.premul_sum(scalar)` with the scalar of this rank. Default: sum.
            counts: elements per part, one number per rank, 0 allowed, equal on all ranks. Default: the input cut as numpy's
                `array_split` does; without an input, parts as long as `out`.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: this rank's array for the result.
                It has (counts[r],) elements on rank r. In place if it is part r of the input.
                Default: new arrays of the kind of the input, with the input's axes after the first if all parts have whole rows.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped between threads, staged
                between processes.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
            async_op: whether to return at once, with a `Work` whose `wait` returns the result. The arrays must not be touched until
                the call is over, and its `timeout` counts from its turn. Default: false.

        Returns:
            `out` if it is given, else the new array.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank.
            Busy: an array is in flight in another call, and one of the two writes it. Calls of one communicator
                with `async_op` may share arrays: they run in the order of issue.
            Mismatch: another rank made a different call; the message names both.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the deadline passed; the message names the ranks that have not entered the call."""

    @overload
    def reduce_scatter(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _OutT: ...
    @overload
    def reduce_scatter(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: Any = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def scan(
        self,
        x: _ArraysT,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _ArraysT:
        """Gives rank r the reduction of the arrays of ranks 0 to r.

        Args:
            x: this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype, equal on all ranks,
                and any strides.
                It has (count,) elements, count equal on all ranks. Written, unless `out` is given.
            op: a name or a ufunc: any op but avg and premul_sum. Default: sum.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: this rank's array for the result.
                It has (count,) elements.
                Either it is the memory of the input, or it shares no byte with it. Default: in place.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped between threads, staged
                between processes.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
            async_op: whether to return at once, with a `Work` whose `wait` returns the result. The arrays must not be touched until
                the call is over, and its `timeout` counts from its turn. Default: false.

        Returns:
            `out` if it is given, else `x`.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank.
            Busy: an array is in flight in another call, and one of the two writes it. Calls of one communicator
                with `async_op` may share arrays: they run in the order of issue.
            Mismatch: another rank made a different call; the message names both.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the deadline passed; the message names the ranks that have not entered the call."""

    @overload
    def scan(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _OutT: ...
    @overload
    def scan(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: Any = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def scatter(
        self,
        x: _ArraysT,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _ArraysT:
        """Gives rank r part r of the root's array.

        Args:
            x: on the root, its array: numpy, or CPU memory with DLPack or the buffer protocol; any supported dtype and any
                strides. Elsewhere None, or, without `out`, an array like the root's, which gives dtype, kind and length and is not
                read. The root's has (sum of `counts`,) elements. Read.
            root: the rank whose array is read.
            counts: elements per part, one number per rank, 0 allowed, equal on all ranks. Default: the input cut as numpy's
                `array_split` does; without an input, parts as long as `out`.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: this rank's array for the result.
                It has (counts[r],) elements on rank r. In place if the root's is its part of the input.
                Default: new arrays of the kind of the input, with the input's axes after the first if all parts have whole rows.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped between threads, staged
                between processes.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.
            async_op: whether to return at once, with a `Work` whose `wait` returns the result. The arrays must not be touched until
                the call is over, and its `timeout` counts from its turn. Default: false.

        Returns:
            `out` if it is given, else the new array.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank.
            Busy: an array is in flight in another call, and one of the two writes it. Calls of one communicator
                with `async_op` may share arrays: they run in the order of issue.
            Mismatch: another rank made a different call; the message names both.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the deadline passed; the message names the ranks that have not entered the call."""

    @overload
    def scatter(
        self,
        x: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[False] = False,
    ) -> _OutT: ...
    @overload
    def scatter(
        self,
        x: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: Any = None,
        path: _Path | None = None,
        timeout: float | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    def send(self, x: Any, dst: int, *, tag: int | None = None, timeout: float | None = None) -> None:
        """Sends an array to a rank. That rank calls `recv`.

        If the array has at most 16 KiB, `send` normally does not wait for the receiver. If it is larger, `send` waits until the receiver
        takes it. So two ranks that both send large arrays first wait for each other: use `sendrecv` or a `group`.

        Messages with one tag from one rank to another arrive in the order of their sends. Sends and receives are not collectives: other
        ranks make no call. Messages in flight move while the program computes.

        Args:
            x: this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype and strides. Read.
            dst: the rank that receives.
            tag: a whole number from 0. The receiver selects messages by it. Default: 0.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`. A timeout ends the communicator.

        Raises:
            InvalidArgument: an argument cannot be used, or there is no such rank.
            Mismatch: the program of the receiver has returned.
            Aborted: the program of another rank failed, a rank called `abort`, or the receiver's array does not fit the message.
            Timeout: the receiver did not take the message before the deadline.

        Example:
            >>> def program(comm):
            ...     if comm.rank == 0:
            ...         comm.send(np.arange(3.0), 1, tag=7)
            ...     else:
            ...         x = np.empty(3)
            ...         message = comm.recv(x)
            ...         return x, message.source, message.tag
            >>> nvcoll.Node(2).run(program)[1]
            (array([0., 1., 2.]), 0, 7)"""

    def sendrecv(
        self,
        x: Any,
        dst: int,
        out: Any,
        src: int | None = None,
        *,
        tag: int | None = None,
        recv_tag: int | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Sends an array to one rank and receives an array from the same or another rank. Both run at the same time.

        Args:
            x: the array to send, as in `send`. Read.
            dst: the rank that receives it.
            out: the array for the received message, as `x` in `recv`. It must not share memory with `x`. Written.
            src: the rank that sends to this rank. Default: any.
            tag: the tag of the sent message. Default: 0.
            recv_tag: the tag of the received message. Default: any.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`. A timeout ends the communicator.

        Returns:
            The received `Message`.

        Raises:
            InvalidArgument, Mismatch, Aborted, Timeout: as `send` and `recv`.

        Example:
            >>> def program(comm):
            ...     x, out, n = np.array([comm.rank]), np.array([0]), comm.world_size
            ...     comm.sendrecv(x, (comm.rank + 1) % n, out, (comm.rank - 1) % n)
            ...     return int(out[0])
            >>> nvcoll.Node(3).run(program)
            [2, 0, 1]"""

    def shrink(self, *, timeout: float | None = None) -> Communicator:
        """Returns a communicator of the remaining ranks, after a rank was lost.

        A rank remains if its process runs and its program has not ended. All remaining ranks must call `shrink`. If a rank ends meanwhile,
        `shrink` leaves it out and continues with the others. The remaining ranks keep their order.

        The outputs of a call that failed are undefined. Everything else is intact, also other communicators. You can shrink every
        communicator that contains the lost rank: one after the other, in the same order on every rank.

        Args:
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.

        Returns:
            The communicator. It numbers its ranks from 0, and has the default timeout of this communicator.

        Raises:
            Timeout: a rank runs and has not called `shrink`; the message names it.
            Aborted: a rank has no memory or descriptors for the communicator.
            InvalidArgument: a group of calls is open.

        Example:
            >>> def program(comm):
            ...     return comm.shrink().ranks
            >>> nvcoll.Node(2).run(program)
            [(0, 1), (0, 1)]"""

    def subset(self, ranks: Sequence[int], tag: int | None = None, *, timeout: float | None = None) -> Communicator:
        """Makes a communicator of some ranks. Only these ranks call it, all with the same list and tag.

        `subset` is no call of this communicator: another thread may be in one. Ranks that make several subsets of the same ranks with
        one tag make them in the same order.

        Args:
            ranks: ranks of this communicator, in the order that the new communicator gives them. This rank is among them.
            tag: a whole number from 0 that tells apart subsets of the same ranks. Default: 0.
            timeout: seconds that the call may take. Default: that of `Node.run` or `init`.

        Returns:
            The communicator of these ranks, with the default timeout of this one.

        Raises:
            InvalidArgument: the list is empty, has a rank twice or one that does not exist, or leaves out the rank that calls.
            Timeout: a rank of the list has not called it; between threads, `subset` does not wait.
            PeerLost, Aborted: a rank of the list died, or has no memory or descriptors for the communicator.

        Example:
            >>> def program(comm):
            ...     if comm.rank != 1:
            ...         pair = comm.subset([2, 0])
            ...         return pair.ranks, pair.rank
            >>> nvcoll.Node(3).run(program)
            [((2, 0), 1), None, ((2, 0), 0)]"""

    @property
    def world_size(self) -> int:
        """The number of ranks."""

    def zeros(self, shape: int | Sequence[int], dtype: Any | None = None) -> NDArray[Any]:
        """Makes an array of zeros that every rank can reach: see `empty`.

        Args:
            shape, dtype: as in `empty`."""

@final
class CriticalPiece:
    """A piece of the critical path: a rank, an interval and the reason why time passes.

    Example:
        >>> import nvcoll
        >>> timeline = nvcoll.fabric("hgx-h100").simulate("ring", "1M", collective="all_reduce")
        >>> last = timeline.critical[-1]
        >>> last.end_us == timeline.time_us
        True"""

    @property
    def end_us(self) -> float:
        """The time at which the piece ends, in microseconds."""

    @property
    def link(self) -> tuple[str, str] | None:
        """The link, as the names of its ends; None if it is no link."""

    @property
    def other(self) -> int | None:
        """The rank that is waited for, or that owns the memory; None if there is none."""

    @property
    def queue(self) -> int | None:
        """The queue of that rank; None where the rank leaves the call."""

    @property
    def rank(self) -> int:
        """The rank that waits or works."""

    @property
    def reason(self) -> str:
        """The reason why time passes: `starting` (the call, before ranks enter), `entering` (`other` has not entered), `signal` (of
        `other`), `fixed` (the cost of every step), `latency`, `link` (bytes cross the narrowest link), `shared_link`, `memory`
        (of `other`), or `shared_memory`."""

    @property
    def start_us(self) -> float:
        """The time at which the piece begins, in microseconds."""

    @property
    def step(self) -> int | None:
        """The step in that queue; None where the rank leaves the call."""

    @property
    def tile(self) -> int:
        """The number of the tile."""

    @property
    def users(self) -> int | None:
        """The number of transfers that shared the link or the memory; None if it was not shared."""

    @property
    def words(self) -> str:
        """The piece as a sentence."""

@final
class Fabric:
    """A machine, or several machines and a network: devices, links and abilities.

    Made by :func:`fabric`, :meth:`from_text`, :meth:`from_file` and :func:`cluster`. The GPUs are the ranks. Rates are decimal GB/s in
    one direction.

    Example:
        >>> import nvcoll
        >>> machine = nvcoll.fabric("hgx-h100")
        >>> machine.predict("all_reduce", "1G").algorithm
        'NVLS'"""

    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def _repr_svg_(self) -> str | None: ...
    @staticmethod
    def _restored(saved: str) -> Fabric: ...
    @property
    def abilities(self) -> list[str]:
        """The abilities: some of `peer_access`, `multicast`, `switch_reduction`, `gpu_direct`, `forwards`."""

    def alone(self, *, first: int | None = None) -> list[list[float]]:
        """Returns the GB/s of each pair of GPUs without other traffic: a row per source, a column per target, NaN on the diagonal.

        Args:
            first: the number of GPUs in the matrix, from the first. Default: all.

        Raises:
            InvalidArgument: `first` is not a whole number from 0.
            KeyboardInterrupt: Ctrl-C ended the search for routes."""

    def among(self, ranks: Sequence[int]) -> Fabric:
        """Returns the machine with some of its GPUs as ranks.

        Args:
            ranks: the ranks here, in the order of the new ranks.

        Raises:
            InvalidArgument: there is no rank, one does not exist, or one occurs twice."""

    def at_once(self, *, first: int | None = None) -> list[list[float]]:
        """Returns the GB/s of each pair of GPUs while every pair sends in both directions: a row per source, a column per target, NaN on
        the diagonal.

        Args:
            first: the number of GPUs in the matrix, from the first. Default: all. All GPUs send in any case.

        Raises:
            InvalidArgument: `first` is not a whole number from 0.
            KeyboardInterrupt: Ctrl-C ended the search for routes."""

    @property
    def cards(self) -> int | None:
        """The number of network cards of each node of a cluster, or of each tray; None without a network."""

    def cut(self, ranks: Sequence[int]) -> float:
        """Returns the GB/s from these ranks to all others.

        Args:
            ranks: the ranks, at least one.

        Raises:
            InvalidArgument: there is no rank, one does not exist, or one occurs twice."""

    def damaged(self, lost: str, part: int = 1, *, of_all: bool = True, gbit: float = 100.0) -> Fabric:
        """Returns the machine with something lost, in each node.

        Args:
            lost: ``nvlink``, ``pcie`` or another family: lanes of its links to GPUs; ``cards``: network cards; ``rate``: of each port of
                the network; ``gpu_direct``; or the name of a medium: one port of it replaces all cards. One node has no network to
                lose.
            part: what there was over what is left. 0, of lanes: nothing is left.
            of_all: whether all GPUs lose lanes, or the first of each node.
            gbit: Gbit/s of the port.

        Raises:
            InvalidArgument: `lost` is unknown, or the machine cannot lose it."""

    @property
    def devices(self) -> list[tuple[str, str, int | None, int]]:
        """The devices: (name, kind, node or None, chips)."""

    @overload
    def floor(self, collective: str, nbytes: _Size) -> float:
        """Returns the lower bound of a collective's time in microseconds, for any schedule.

        Args:
            collective: the name of a collective, as ``all_reduce``.
            nbytes: a size in bytes, a text such as `"64K"`, or several sizes. nccl-tests' count.

        Returns:
            The lower bound; for several sizes a list in their order.

        Raises:
            InvalidArgument: the collective is unknown or has no lower bound; a size is out of range."""

    @overload
    def floor(self, collective: str, nbytes: _Sizes) -> list[float]: ...
    @staticmethod
    def from_file(path: str | PathLike[str], *, gpu: str | None = None) -> Fabric:
        """Reads a machine from a file in a format of :meth:`from_text`, in UTF-8 or UTF-16. The name of the file does not matter.

        Args:
            path: str or path-like.
            gpu: the model of the GPUs, as ``h100-sxm``, if the text does not name it.

        Raises:
            InvalidArgument: no format recognises the text, or it is incomplete or wrong; ``gpu`` is unknown, is missing,
                contradicts the text, or is given for TOML.
            OSError: the file cannot be read."""

    @staticmethod
    def from_text(text: str, *, gpu: str | None = None) -> Fabric:
        """Reads a machine from a text: the output of ``nvidia-smi topo -m``, ``rocm-smi --showtopo`` or ``amd-smi topology``, the
        ``NCCL_TOPO_DUMP_FILE`` of NCCL or RCCL, or TOML. nvcoll recognises the format.

        Args:
            text: the text.
            gpu: the model of the GPUs, as ``h100-sxm``, if the text does not name it.

        Raises:
            InvalidArgument: no format recognises the text, or it is incomplete or wrong; ``gpu`` is unknown, is missing,
                contradicts the text, or is given for TOML."""

    @property
    def gpu(self) -> str:
        """The model of the GPUs."""

    @property
    def gpu_model(self) -> GpuRow:
        """The row of the table of models for the GPUs."""

    @property
    def links(self) -> list[tuple[str, str, str, int, float, float]]:
        """The links, each in one direction: (from, to, medium, lanes, GB/s at line rate, GB/s of a long transfer)."""

    def matrix(self, *, first: int | None = None) -> list[list[str]]:
        """Returns the matrix of ``nvidia-smi topo -m``: the kind of connection of each pair of GPUs.

        Args:
            first: the number of GPUs in the matrix, from the first. Default: all.

        Raises:
            InvalidArgument: `first` is not a whole number from 0.
            KeyboardInterrupt: Ctrl-C ended the search for routes."""

    @property
    def name(self) -> str:
        """The name."""

    @overload
    def nccl(
        self,
        collective: str,
        nbytes: _Size,
        *,
        version: str | None = None,
        settings: Mapping[str, str | int] | None = None,
    ) -> NcclEstimate:
        """Returns the algorithm that NCCL's tuning model selects for a collective among all GPUs, and its estimate.

        The model is a port of the public source. It answers which algorithm NCCL selects, not how long a call takes: it has no
        term for the launch of a call or for filling a pipeline. The Rust module `nvcoll_fabric::nccl` lists its known
        differences. :meth:`predict` predicts the time.

        Args:
            collective: all_reduce, all_gather, reduce_scatter, broadcast or reduce: NCCL models no other.
            nbytes: a size in bytes, a text such as `"1G"`, or several sizes. nccl-tests' count: of all ranks together for all_gather
                and reduce_scatter.
            version: a version of NCCL, as ``2.27.7`` or ``2.27``. Default: the newest whose release was read. Another version has
                the constants of the last known version before it.
            settings: environment variables of NCCL, as ``{"NCCL_ALGO": "Tree"}``; ``docs/predict/predictions.md`` lists them. Default: none
                is set.

        Returns:
            An `NcclEstimate`, in microseconds; for several sizes a list in their order.

        Raises:
            InvalidArgument: NCCL has no model of the collective; a size or a version is unknown; NCCL does not know a GPU or a link;
                a setting is unknown, has a wrong value, is not read by the version, or leaves NCCL no algorithm.

        Source: github.com/NVIDIA/nccl, src/graph/tuning.cc and search.cc, at the tags of ``versions.toml``."""

    @overload
    def nccl(
        self,
        collective: str,
        nbytes: _Sizes,
        *,
        version: str | None = None,
        settings: Mapping[str, str | int] | None = None,
    ) -> list[NcclEstimate]: ...
    @property
    def node(self) -> str:
        """The name of one node of a cluster; of another machine, its own."""

    @property
    def nodes(self) -> int:
        """The number of nodes."""

    def port_rates(self) -> tuple[float, float | None]:
        """Returns two line rates of a GPU in GB/s, in one direction. The first is that of its links to the other GPUs of the node, or to
        the host if NVLink does not connect all of them. The second is its share of the node's network cards, None on one node."""

    @overload
    def predict(
        self,
        collective: str,
        nbytes: _Size,
        *,
        launch: _Launch = "process_per_gpu",
        algorithm: str | None = None,
        protocol: str | None = None,
        version: str | None = None,
        settings: Mapping[str, str | int] | None = None,
        as_: _Server | None = None,
    ) -> Prediction:
        """Predicts how long a collective of NCCL takes among all GPUs.

        NCCL's tuning model selects the algorithm; closed forms over physical constants give the time. The constants and
        their accuracy are in ``docs/predict/predictions.md``.

        Args:
            collective: all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter; or sendrecv,
                nccl-tests' own.
            nbytes: a size in bytes, a text such as `"1G"`, or several sizes. nccl-tests' count: of all ranks together for all_gather
                and reduce_scatter.
            launch: ``process_per_gpu``: a process per GPU; ``single_process``: one process for all GPUs of a node;
                ``framework``: a process per GPU that calls from torch or a similar framework.
            algorithm: an algorithm of NCCL, as ``Ring``, in any case. Default: NCCL's tuning model selects it.
            protocol: a protocol of NCCL, as ``LL``, in any case. Default: the one that NCCL chooses.
            version: a version of NCCL, as ``2.27.7``. Default: the newest whose release was read.
            settings: environment variables of NCCL, as ``{"NCCL_ALGO": "Tree"}``; ``docs/predict/predictions.md`` lists them. Default: none
                is set.
            as_: ``vllm``, ``sglang`` or ``trtllm``: the all_reduce of bf16 as this model server runs it in a CUDA graph. Its rule chooses
                one of its kernels or NCCL. Default: NCCL.

        Returns:
            A `Prediction`, in microseconds; for several sizes a list in their order. A fabric keeps the work that is equal for
            all sizes.

        Raises:
            InvalidArgument: a name or a version is unknown; the fabric cannot run the algorithm or the protocol; the fabric has
                one GPU, or nodes that differ; a setting is unknown, has a wrong value, is not read by the version, or changes
                the time in a way that nvcoll cannot predict; ``as_`` with another collective than all_reduce, with another launch or a
                forced algorithm, or on a machine whose kernels nvcoll does not know."""

    @overload
    def predict(
        self,
        collective: str,
        nbytes: _Sizes,
        *,
        launch: _Launch = "process_per_gpu",
        algorithm: str | None = None,
        protocol: str | None = None,
        version: str | None = None,
        settings: Mapping[str, str | int] | None = None,
        as_: _Server | None = None,
    ) -> list[Prediction]: ...
    def route(self, source: int, target: int) -> tuple[list[str], str]:
        """Returns the names of the devices on the route between two ranks, and the kind of the route.

        Raises:
            InvalidArgument: a rank does not exist, or there is no path."""

    @overload
    def simulate(
        self,
        schedule: Schedule | Algorithm | str,
        nbytes: _Size,
        *,
        collective: str | None = None,
        dtype: str = "float32",
        protocol: str = "simple",
        slice_bytes: int | Sequence[int] | None = None,
        spans: bool = False,
        at_switch: Literal["refuse", "ignore"] = "refuse",
        launch: _Launch | None = None,
        starts: Sequence[float] | Mapping[int, float] | None = None,
        slowdowns: Sequence[float] | Mapping[int, float] | None = None,
        damage: Mapping[tuple[str, str], float] | None = None,
    ) -> Timeline:
        """Simulates a schedule in virtual time. No bytes move. The first GPUs are its ranks.

        Nothing is proved: a schedule that :func:`verify` refutes has a time too. Time is whole picoseconds inside, so the same
        input gives the same output on every machine. Without `launch`, a step costs its bytes and NCCL's published latencies of
        the protocol: the times compare schedules and predict no call. For several sizes, routes are found once.

        Args:
            schedule: a `Schedule` for at most ``world_size`` ranks; or an algorithm for all GPUs, written in
                Python or named.
            nbytes: a size in bytes, a text such as `"1M"`, or several sizes: the longer buffer of a rank, a multiple of the
                element's bytes. nccl-tests' count.
            collective: the collective of a named algorithm; None for others.
            dtype: the dtype of the elements, by name.
            protocol: ``ideal`` (bytes over links alone), ``ll``, ``ll128`` or ``simple``.
            slice_bytes: bytes of every chunk in one tile; for several sizes also one number per size. Default: 1 MiB.
            spans: whether to keep every step in every tile.
            at_switch: for steps at a switch, where no switch can do them: ``refuse``, or ``ignore`` (ranks do them point to
                point).
            launch: None, or a launch of :meth:`predict`. With a launch, rates, latencies and the time before the first step
                are the fitted constants of :meth:`predict`. A ring with slices of the whole size takes the time that it
                predicts.
            starts: the microseconds at which ranks enter: a number per rank, or a mapping from ranks. Default: 0.
            slowdowns: the factor by which the steps of ranks take longer, 1 to 1000: a number per rank, or a mapping from
                ranks. Default: 1.
            damage: the part of the rate that links keep, 0 (cut, routes go round) to 1: a mapping from pairs of names in
                `devices`, as ``{("gpu0", "nvswitch"): 0.5}``. A pair holds for both directions, unless the mapping has the
                reverse pair too.

        Returns:
            A `Timeline`, in microseconds; for several sizes a list in their order.

        Raises:
            InvalidArgument: a name is unknown; a number is out of range; there are fewer GPUs than ranks; no switch can do a
                step; there is no path; there are more than 2^26 steps.
            BuildError: the waits of the schedule form a cycle, or an algorithm broke a rule of the builder.
            KeyboardInterrupt: Ctrl-C ended the simulation."""

    @overload
    def simulate(
        self,
        schedule: Schedule | Algorithm | str,
        nbytes: _Sizes,
        *,
        collective: str | None = None,
        dtype: str = "float32",
        protocol: str = "simple",
        slice_bytes: int | Sequence[int] | None = None,
        spans: bool = False,
        at_switch: Literal["refuse", "ignore"] = "refuse",
        launch: _Launch | None = None,
        starts: Sequence[float] | Mapping[int, float] | None = None,
        slowdowns: Sequence[float] | Mapping[int, float] | None = None,
        damage: Mapping[tuple[str, str], float] | None = None,
    ) -> list[Timeline]: ...
    @property
    def sources(self) -> list[str]:
        """The sources of the numbers."""

    @property
    def title(self) -> str:
        """The description in a few words."""

    @property
    def trust(self) -> str:
        """The evidence for predictions of all_reduce, at the sizes with the most measurements: `validated on k systems` or `not validated`."""

    def what_if(self, change: str) -> Fabric:
        """Returns the machine with one change.

        Args:
            change: ``nvlink x2``, ``pcie x0.5`` or another family of links with a factor; ``nics 4``: cards of a node; ``pcie``: no
                NVLink; ``gpu a100-sxm-40gb``: another model with the same links; ``socket epyc x3``: links between sockets. The title
                of the result says what changed, and its name is that of :func:`machines`.

        Raises:
            InvalidArgument: the change is unknown, or the machine cannot have it."""

    def with_nodes(self, nodes: int) -> Fabric:
        """Returns the cluster with another number of the same nodes; with 1, one node without the network.

        Args:
            nodes: the number of nodes.

        Raises:
            InvalidArgument: the machine is no cluster, or its network holds fewer nodes."""

    @property
    def world_size(self) -> int:
        """The number of GPUs."""

@final
class Group:
    """Calls that launch together. Made by `Node.group` and `Communicator.group`.

    Example:
        >>> import numpy as np, nvcoll
        >>> def program(comm):
        ...     x, y = np.ones(1), np.ones(1)
        ...     with comm.group():
        ...         comm.all_reduce(x)
        ...         comm.all_reduce(y)
        ...     return float(x[0] + y[0])
        >>> nvcoll.Node(2).run(program)
        [4.0, 4.0]"""

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None, /
    ) -> Literal[False]: ...
    def __enter__(self) -> Group: ...
    def __len__(self) -> int: ...
    def run(self, *, timeout: float | None = None) -> None:
        """Launches the calls of the group again, on the same arrays with their present elements.

        Do not resize a torch tensor, or another tensor with DLPack, while its group lives: its library does not refuse, and the
        group cannot see it.

        Args:
            timeout: seconds that the calls may take together. Default: that of `group()`.

        Raises:
            InvalidArgument: a numpy array has moved, changed its shape or become read-only since the group was launched.
            Busy: the group runs in another thread, or its `with` block has not ended.
            Mismatch, Aborted: in a group of a communicator, as in its collectives.
            Timeout, KeyboardInterrupt: the calls ended early. Strided arrays are unchanged; contiguous outputs are undefined."""

    @property
    def work(self) -> Work | None:
        """The `Work` of the calls, if `group` got `async_op` and the block has ended; else None."""

@final
class Issue:
    """When and where an operation is issued, and what people call it.

    Args:
        stream: its stream.
        name: its name; of work that moves bytes and of known time, it tells the part of the time.
        line: the line of the script.
        backward: whether it is of the backward pass.
        by_graph: whether a CUDA graph launched it.
        together: the number of a group call."""

    def __new__(
        cls,
        stream: int,
        name: str = "",
        *,
        line: str | None = None,
        backward: bool = False,
        by_graph: bool = False,
        together: int | None = None,
    ) -> Self: ...

@final
class Job:
    """One rank of a job of processes. Not public."""

    def __new__(
        cls,
        rank: int,
        world_size: int,
        job: str,
        token: bytes | None,
        join_timeout: float | None,
        _timeout: float | None,
    ) -> Self: ...
    @property
    def call_counts(self) -> CallCounts:
        """The counts of calls by kind, of the communicators whose first rank this is."""

    def communicator(self, timeout: float | None) -> Communicator:
        """Returns the communicator of all ranks. `timeout` is the default of its calls."""

    def fail(self) -> None:
        """Ends every call of every communicator that contains this rank, because its program failed."""

    def leave(self) -> None:
        """Ends the communicators of this rank, after its calls in flight. Peers that make one more call get an error."""

    def leave_at_exit(self) -> None:
        """Ends the communicators of this rank when its process ends. The exit status says whether it returned or failed."""

@final
class Message:
    """A received message. In a group or after `irecv`, its attributes are None until the receive has ended.

    Example:
        >>> import numpy as np, nvcoll
        >>> def program(comm):
        ...     peer = 1 - comm.rank
        ...     return comm.sendrecv(np.ones(3), peer, np.empty(3), peer)
        >>> message = nvcoll.Node(2).run(program)[0]
        >>> message.source, message.count
        (1, 3)"""

    def _take(self, other: Message) -> None: ...
    @property
    def count(self) -> int | None:
        """The number of elements of the message."""

    @property
    def source(self) -> int | None:
        """The rank that sent the message."""

    @property
    def tag(self) -> int | None:
        """The tag of the message."""

@final
class NcclCandidate:
    """An algorithm and a protocol that NCCL weighs for a call of one size.

    Example:
        >>> import nvcoll
        >>> estimate = nvcoll.fabric("hgx-h100").nccl("all_reduce", "1G")
        >>> [one.algorithm for one in estimate.candidates if one.protocol == "Simple"]
        ['NVLS', 'Ring', 'Tree', 'NVLSTree', 'PAT']"""

    @property
    def algbw(self) -> float | None:
        """Bytes over the estimate, decimal GB/s; None if there is no estimate or it is 0."""

    @property
    def algorithm(self) -> str:
        """The algorithm as NCCL prints it: `Tree`, `Ring`, `NVLS`, `NVLSTree`, `PAT`."""

    @property
    def busbw(self) -> float | None:
        """algbw times nccl-tests' factor, decimal GB/s."""

    @property
    def channels(self) -> int:
        """The most channels that the call has; 0 if the pair is not considered."""

    @property
    def protocol(self) -> str:
        """The protocol as NCCL prints it: `LL`, `LL128`, `Simple`."""

    @property
    def time_us(self) -> float | None:
        """NCCL's own estimate, in microseconds; None if the pair is not considered."""

    @property
    def why_disabled(self) -> str | None:
        """The reason why the pair is not considered; None if it is."""

@final
class NcclEstimate:
    """The algorithm that NCCL's tuning model selects for a call of one size, and its estimate. Made by :meth:`Fabric.nccl`.

    Example:
        >>> import nvcoll
        >>> estimate = nvcoll.fabric("hgx-h100").nccl("all_reduce", "1G")
        >>> estimate.chosen.algorithm, estimate.chosen.protocol
        ('NVLS', 'Simple')"""

    @property
    def candidates(self) -> list[NcclCandidate]:
        """The candidates: first the selected one, then the others by estimate, then candidates that NCCL does not consider."""

    @property
    def chosen(self) -> NcclCandidate:
        """The candidate that NCCL selects: the first one."""

    @property
    def is_last_resort(self) -> bool:
        """Whether NCCL found no ring and runs one channel as a last resort. Its estimates then mean nothing."""

    @property
    def nbytes(self) -> int:
        """The size in bytes, as nccl-tests counts it."""

    @property
    def tag(self) -> str:
        """The tag of NCCL whose constants these are, as `v2.27.7-1`."""

@final
class Network:
    """A network between nodes: its cards, ports and switches. Made by :meth:`from_text` and :meth:`from_file`; :func:`cluster` takes it.

    Example:
        >>> import nvcoll
        >>> network = nvcoll.Network.from_text(
        ...     'name = "mine"\\ntitle = "my network"\\nsource = "its manual"\\nmedium = "ib-ndr"\\n'
        ...     'nics = 8\\nhost_medium = "pcie5"\\nhost_lanes = 16'
        ... )
        >>> nvcoll.cluster("hgx-h100", nodes=2, network=network).world_size
        16"""

    def __eq__(self, value: object, /) -> bool: ...
    @staticmethod
    def from_file(path: str | PathLike[str]) -> Network:
        """Reads the description of a network from a file in TOML, in UTF-8 or UTF-16.

        Args:
            path: str or path-like.

        Raises:
            InvalidArgument: a field is missing, unknown or wrong; the message names it.
            OSError: the file cannot be read."""

    @staticmethod
    def from_text(text: str) -> Network:
        """Reads the description of a network in TOML.

        Args:
            text: the description.

        Raises:
            InvalidArgument: a field is missing, unknown or wrong; the message names it."""

    @property
    def gbps(self) -> float:
        """The line rate of the cards of a node, or of a tray of a rack, one way, in GB/s."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def source(self) -> str:
        """The source of the numbers."""

    @property
    def title(self) -> str:
        """The description in a few words."""

@disjoint_base
class Node:
    """Ranks in this process: a node of virtual GPUs."""

    def __new__(
        cls,
        world_size: int,
        *,
        workers: int | None = None,
        isa: str | None = None,
        tuning: str | PathLike[str] | None = None,
    ) -> Self: ...
    @property
    def _call_counts(self) -> CallCounts: ...
    def _team(self) -> Team: ...
    @overload
    def all_gather(
        self,
        arrays: Any,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> list[Any]:
        """Gives every rank the arrays of all ranks, one after the other.

        Args:
            arrays: one array per rank, as a list, or as one array whose axis 0 is the rank: numpy, or CPU memory with DLPack or the
                buffer protocol. Any supported dtype, equal on all ranks, and any strides.
                Each has (counts[r],) elements on rank r. Read.
            counts: elements per input, one number per rank. Default: the lengths of the inputs.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: one array per rank for the results, as `arrays`.
                Each has (sum of `counts`,) elements. In place if the input is part r of it.
                Default: new arrays of the kind of the input, with the input's axes after the first if all parts have whole rows.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped.
            timeout: seconds that the call may take. Default: no limit.

        Returns:
            `out` if it is given, else the list of new arrays.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank. Nothing was written.
            Busy: another thread uses the node.
            Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined."""

    @overload
    def all_gather(
        self,
        arrays: Any,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def all_reduce(
        self,
        arrays: _ArraysT,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _ArraysT:
        """Reduces the arrays of all ranks element by element and gives every rank the result.

        Args:
            arrays: one array per rank, as a list, or as one array whose axis 0 is the rank: numpy, or CPU memory with DLPack or the
                buffer protocol. Any supported dtype, equal on all ranks, and any strides.
                Each has (count,) elements, count equal on all ranks. Written, unless `out` is given.
            op: a name, a ufunc such as `np.add`, or `nvcoll.premul_sum(scalars)`. Default: sum.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: one array per rank for the results, as `arrays`.
                Each has (count,) elements.
                Either it is the memory of the input, or it shares no byte with it. Default: in place.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped.
            timeout: seconds that the call may take. Default: no limit.

        Returns:
            `out` if it is given, else `arrays`.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank. Nothing was written.
            Busy: another thread uses the node.
            Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined."""

    @overload
    def all_reduce(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def all_to_all(
        self,
        arrays: Any,
        *,
        counts: Sequence[Sequence[int]] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> list[Any]:
        """Gives rank r part r of the array of every rank, in the order of ranks.

        Args:
            arrays: one array per rank, as a list, or as one array whose axis 0 is the rank: numpy, or CPU memory with DLPack or the
                buffer protocol. Any supported dtype, equal on all ranks, and any strides.
                Each has the elements to rank 0, to rank 1, …. Read.
            counts: a table with one row per rank: row q has the elements from rank q to each rank, 0 allowed. Default: all inputs
                have one length, and are cut as numpy's `array_split` does.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: one array per rank for the results, as `arrays`.
                Each has the elements from rank 0, from rank 1, …; it is never in place.
                Default: new arrays of the kind of the input, with the input's axes after the first if all parts have whole rows.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped.
            timeout: seconds that the call may take. Default: no limit.

        Returns:
            `out` if it is given, else the list of new arrays.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank. Nothing was written.
            Busy: another thread uses the node.
            Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined."""

    @overload
    def all_to_all(
        self,
        arrays: Any,
        *,
        counts: Sequence[Sequence[int]] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _OutT: ...
    def barrier(self, *, timeout: float | None = None) -> None:
        """Makes a call of all ranks without data.

        Args:
            timeout: seconds that the call may take. Default: no limit.

        Raises:
            InvalidArgument: a group is open.
            Busy: another thread uses the node."""

    @overload
    def broadcast(
        self,
        arrays: _ArraysT,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _ArraysT:
        """Gives every rank the array of the root.

        Args:
            arrays: one array per rank, as a list, or as one array whose axis 0 is the rank: numpy, or CPU memory with DLPack or the
                buffer protocol. Any supported dtype, equal on all ranks, and any strides.
                Each has (count,) elements, count equal on all ranks. Read on the root, written elsewhere. With `out`, only the root's is used.
            root: the rank whose array is read.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: one array per rank for the results, as `arrays`.
                Each has (count,) elements. Written on every rank.
                Either it is the memory of the input, or it shares no byte with it. Default: in place.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped.
            timeout: seconds that the call may take. Default: no limit.

        Returns:
            `out` if it is given, else `arrays`.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank. Nothing was written.
            Busy: another thread uses the node.
            Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined."""

    @overload
    def broadcast(
        self,
        arrays: Any,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _OutT: ...
    def estimates(
        self,
        collective: str,
        count: int,
        dtype: str = "float32",
        *,
        root: int | None = None,
        path: _Path | str = "mapped",
        in_place: bool = True,
        by_rank: bool = False,
    ) -> AutoChoice:
        """Returns the algorithm that `auto` selects for a call, and its estimate of each candidate.

        Args:
            collective: the name of the collective.
            count: elements of the longer buffer.
            dtype: the name of the dtype.
            root: the root, for a collective that has one. Default: 0.
            path: mapped, staged or pushed.
            in_place: whether input and output are the same memory.
            by_rank: whether every rank calls for itself, as in `Node.run`.

        Returns:
            The algorithm, the reason, and the candidates with their estimates in seconds; no candidates above 64 ranks.

        Raises:
            InvalidArgument: a name is unknown, a number is out of range, or the collective is never in place."""

    @overload
    def exscan(
        self,
        arrays: _ArraysT,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _ArraysT:
        """Gives rank r the reduction of the arrays of ranks 0 to r - 1. Rank 0 receives nothing.

        Args:
            arrays: one array per rank, as a list, or as one array whose axis 0 is the rank: numpy, or CPU memory with DLPack or the
                buffer protocol. Any supported dtype, equal on all ranks, and any strides.
                Each has (count,) elements, count equal on all ranks. Written, unless `out` is given; unchanged on rank 0.
            op: a name or a ufunc: any op but avg and premul_sum. Default: sum.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: one array per rank for the results, as `arrays`.
                Each has (count,) elements; rank 0 passes one too, which stays unchanged.
                Either it is the memory of the input, or it shares no byte with it. Default: in place.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped.
            timeout: seconds that the call may take. Default: no limit.

        Returns:
            `out` if it is given, else `arrays`.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank. Nothing was written.
            Busy: another thread uses the node.
            Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined."""

    @overload
    def exscan(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def gather(
        self,
        arrays: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Gives the root the arrays of all ranks, one after the other.

        Args:
            arrays: one array per rank, as a list, or as one array whose axis 0 is the rank: numpy, or CPU memory with DLPack or the
                buffer protocol. Any supported dtype, equal on all ranks, and any strides.
                Each has (counts[r],) elements on rank r. Read.
            root: the rank that receives the result.
            counts: elements per input, one number per rank. Default: the lengths of the inputs.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: the root's array for the result.
                It has (sum of `counts`,) elements. In place if the root's input is its part of it.
                Default: new arrays of the kind of the input, with the input's axes after the first if all parts have whole rows.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped.
            timeout: seconds that the call may take. Default: no limit.

        Returns:
            `out` if it is given, else the new array.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank. Nothing was written.
            Busy: another thread uses the node.
            Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined."""

    @overload
    def gather(
        self,
        arrays: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _OutT: ...
    def group(self, *, timeout: float | None = None) -> Group:
        """Groups the calls in a `with` block: they launch together at the end of the block.

        In the block, the collectives of this node on this thread check their arguments and return their results, in which new
        arrays hold zeros. No array is read or written before the end of the block. If the block raises, no call is made. The
        calls of a group have no order: an array that one call writes shares no byte with the arrays of another. Plans, other
        groups and the ranks of `run` run at once. A group that is deleted in its block ends the block without its calls.

        Args:
            timeout: seconds that the calls may take together. Default: no limit.

        Returns:
            The group. Its `run` launches the same calls again.

        Raises:
            InvalidArgument: at the end of the block: arrays of two calls share memory, and one of them is written.
            Busy: another group of this node is open.

        Example:
            >>> node, grads = nvcoll.Node(2), np.ones((3, 2, 5), dtype="f4")
            >>> with node.group() as group:
            ...     for grad in grads:
            ...         _ = node.all_reduce(grad)
            >>> len(group), grads.min(), grads.max()
            (3, 2.0, 2.0)"""

    def plan(
        self,
        collective: str,
        arrays: Any | None = None,
        op: _Op | None = None,
        *,
        root: int | None = None,
        counts: Sequence[int] | Sequence[Sequence[int]] | None = None,
        algorithm: _Algorithm | None = None,
        out: Any | None = None,
        path: _Path | str | None = None,
    ) -> Plan:
        """Prepares a call for repeated runs on the same arrays.

        A plan holds its arrays and reads them at every run. `Plan.run` refuses a numpy array that has moved. Do not resize a
        torch tensor while its plan lives: torch does not refuse, and the plan cannot see it.

        Args:
            collective: the name of a collective, such as `"all_gather"`.
            arrays: the arrays, as in the method of that name. None for a barrier.
            op, root, counts, algorithm, out, path: as in the method of that name.

        Returns:
            The plan. `Plan.result` is the result of the method.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank."""

    @overload
    def reduce(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Reduces the arrays of all ranks element by element and gives the root the result.

        Args:
            arrays: one array per rank, as a list, or as one array whose axis 0 is the rank: numpy, or CPU memory with DLPack or the
                buffer protocol. Any supported dtype, equal on all ranks, and any strides.
                Each has (count,) elements, count equal on all ranks. Written on the root, unless `out` is given; read elsewhere.
            op: a name, a ufunc such as `np.add`, or `nvcoll.premul_sum(scalars)`. Default: sum.
            root: the rank that receives the result.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: the root's array for the result.
                It has (count,) elements.
                Either it is the memory of the input, or it shares no byte with it. Default: in place.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped.
            timeout: seconds that the call may take. Default: no limit.

        Returns:
            `out` if it is given, else the root's array.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank. Nothing was written.
            Busy: another thread uses the node.
            Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined."""

    @overload
    def reduce(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def reduce_scatter(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> list[Any]:
        """Reduces the arrays of all ranks element by element and gives rank r part r of the result.

        Args:
            arrays: one array per rank, as a list, or as one array whose axis 0 is the rank: numpy, or CPU memory with DLPack or the
                buffer protocol. Any supported dtype, equal on all ranks, and any strides.
                Each has (sum of `counts`,) elements. Read.
            op: a name, a ufunc such as `np.add`, or `nvcoll.premul_sum(scalars)`. Default: sum.
            counts: elements per part, one number per rank, 0 allowed, equal on all ranks. Default: the input cut as numpy's
                `array_split` does; without an input, parts as long as `out`.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: one array per rank for the results, as `arrays`.
                Each has (counts[r],) elements on rank r. In place if it is part r of the input.
                Default: new arrays of the kind of the input, with the input's axes after the first if all parts have whole rows.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped.
            timeout: seconds that the call may take. Default: no limit.

        Returns:
            `out` if it is given, else the list of new arrays.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank. Nothing was written.
            Busy: another thread uses the node.
            Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined."""

    @overload
    def reduce_scatter(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def scan(
        self,
        arrays: _ArraysT,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _ArraysT:
        """Gives rank r the reduction of the arrays of ranks 0 to r.

        Args:
            arrays: one array per rank, as a list, or as one array whose axis 0 is the rank: numpy, or CPU memory with DLPack or the
                buffer protocol. Any supported dtype, equal on all ranks, and any strides.
                Each has (count,) elements, count equal on all ranks. Written, unless `out` is given.
            op: a name or a ufunc: any op but avg and premul_sum. Default: sum.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: one array per rank for the results, as `arrays`.
                Each has (count,) elements.
                Either it is the memory of the input, or it shares no byte with it. Default: in place.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped.
            timeout: seconds that the call may take. Default: no limit.

        Returns:
            `out` if it is given, else `arrays`.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank. Nothing was written.
            Busy: another thread uses the node.
            Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined."""

    @overload
    def scan(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def scatter(
        self,
        arrays: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> list[Any]:
        """Gives rank r part r of the root's array.

        Args:
            arrays: the root's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype and any strides.
                It has (sum of `counts`,) elements. Read.
            root: the rank whose array is read.
            counts: elements per part, one number per rank, 0 allowed, equal on all ranks. Default: the input cut as numpy's
                `array_split` does; without an input, parts as long as `out`.
            algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.
            out: one array per rank for the results, as `arrays`.
                Each has (counts[r],) elements on rank r. In place if the root's is its part of the input.
                Default: new arrays of the kind of the input, with the input's axes after the first if all parts have whole rows.
            path: how data move between ranks: mapped, staged or pushed. Default: mapped.
            timeout: seconds that the call may take. Default: no limit.

        Returns:
            `out` if it is given, else the list of new arrays.

        Raises:
            InvalidArgument: an argument cannot be used; the message names argument and rank. Nothing was written.
            Busy: another thread uses the node.
            Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined."""

    @overload
    def scatter(
        self,
        arrays: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path | None = None,
        timeout: float | None = None,
    ) -> _OutT: ...
    @property
    def tuning(self) -> dict[str, Any]:
        """The tuning table of `auto`: machine, caches in bytes, and the coefficients of each mode."""

    @property
    def workers(self) -> int:
        """The number of threads of a call, with the caller."""

    @property
    def world_size(self) -> int:
        """The number of ranks."""

@final
class Plan:
    """A call that runs again and again on the same arrays. Made by `Node.plan`.

    Example:
        >>> import numpy as np, nvcoll
        >>> arrays = np.ones((2, 3))
        >>> plan = nvcoll.Node(2).plan("all_reduce", arrays)
        >>> for _ in range(3):
        ...     _ = plan.run()
        >>> arrays[0].tolist()
        [8.0, 8.0, 8.0]"""

    @property
    def algorithm(self) -> str:
        """The name of the algorithm, which `auto` selected if the caller named none."""

    @property
    def result(self) -> Any:
        """The result of a run, as the method of the collective returns it. New arrays hold zeros before the first run."""

    def run(self, *, timeout: float | None = None) -> None:
        """Runs the call on the arrays of the plan with their present elements.

        Do not resize a torch tensor, or another tensor with DLPack, while its plan lives: its library does not refuse, and the
        plan cannot see it.

        Args:
            timeout: seconds that the call may take. Default: no limit.

        Raises:
            InvalidArgument: a numpy array has moved, changed its shape or become read-only since the plan was made.
            Busy: the plan, or its node, runs in another thread.
            Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined."""

    @property
    def tiles(self) -> int:
        """The number of tiles, each a pass over a part of the data."""

@final
class Prediction:
    """The predicted time of a call of one size. Made by :meth:`Fabric.predict`.

    Example:
        >>> import nvcoll
        >>> prediction = nvcoll.predict("all_reduce", "1G", on="hgx-h100")
        >>> prediction.algorithm, prediction.low_us < prediction.time_us < prediction.high_us
        ('NVLS', True)"""

    @property
    def launch(self) -> _Launch:
        """How the call is launched, as of :meth:`Fabric.predict`."""

    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    @staticmethod
    def _of_fields(fields: dict[str, Any]) -> Prediction: ...
    def _repr_html_(self) -> str: ...
    @property
    def algbw(self) -> float:
        """Bytes over the time, decimal GB/s."""

    @property
    def algorithm(self) -> str:
        """The algorithm as NCCL prints it: `Ring`, `Tree`, `NVLS`, `NVLSTree`; `SendRecv` for what it builds of sends and receives. Of a
        model server, its kernel."""

    @property
    def bottleneck(self) -> str:
        """The part of the machine that takes most of the time, in words."""

    @property
    def busbw(self) -> float:
        """algbw times nccl-tests' factor, decimal GB/s."""

    @property
    def channels(self) -> int | None:
        """The most channels that NCCL gives the call, or one message of a call of sends; None if NCCL's choice is not known."""

    @property
    def choice(self) -> str:
        """What chooses the algorithm: NCCL's cost model, the rule of a model server, or rings, with the reason."""

    @property
    def collective(self) -> str:
        """The name of the collective."""

    @property
    def fabric(self) -> str:
        """The name of the fabric."""

    @property
    def floor_us(self) -> float:
        """The lower bound in microseconds: no schedule takes less, on the machine as the settings leave it."""

    @property
    def high_us(self) -> float:
        """The upper end of the 90 % interval, in microseconds."""

    @property
    def implementation(self) -> str:
        """What runs the call: `NCCL`, or a model server and its kernel, as `vLLM one_shot`."""

    @property
    def is_by_nccl(self) -> bool:
        """Whether NCCL's cost model chooses it."""

    @property
    def is_validated(self) -> bool:
        """Whether measurements of such calls on such machines were compared with predictions."""

    @property
    def limited_by(self) -> str:
        """The same without its share: predictions with the same words are limited alike."""

    @property
    def low_us(self) -> float:
        """The lower end of the 90 % interval, in microseconds."""

    @property
    def nbytes(self) -> int:
        """The size in bytes, as nccl-tests counts it."""

    @property
    def nccl_us(self) -> float | None:
        """The estimate of NCCL's own tuning model, in microseconds; None where it has no model or is at its last resort."""

    @property
    def parts(self) -> list[tuple[str, float]]:
        """The parts of the time: (name, microseconds). They add up to `time_us`."""

    @property
    def protocol(self) -> str:
        """The protocol as NCCL prints it: `LL`, `LL128`, `Simple`. Empty for a kernel of a model server."""

    @property
    def time_us(self) -> float:
        """The predicted time in microseconds; never less than the lower bound."""

    @property
    def trust(self) -> str:
        """The accuracy of predictions of such sizes on such machines, as `validated on 9 systems` or `not validated`."""

@final
class PremulSum:
    """The op that multiplies each contribution by the scalar of its rank and adds. Made by `nvcoll.premul_sum`.

    Example:
        >>> import nvcoll
        >>> nvcoll.premul_sum(0.5)
        nvcoll.premul_sum(0.5)"""

@final
class Proof:
    """The proof of a schedule. Made by `nvcoll.verify`.

    Example:
        >>> import nvcoll
        >>> nvcoll.verify("all_reduce", "tree", world_size=4).expression(0)
        '((r0 + r1 + r2) + r3)'"""

    def __copy__(self) -> Proof: ...
    def __deepcopy__(self, _memo: object, /) -> Proof: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def _repr_html_(self) -> str: ...
    @property
    def cannot_run(self) -> str | None:
        """The reason why a node cannot run the schedule with elements of 4 bytes, with advice; None if it can."""

    def expression(self, chunk: int) -> str:
        """Returns the expression by which a chunk is reduced, as `(r0 + r1 + r2)`.

        Raises:
            InvalidArgument: the schedule has no such chunk."""

    @property
    def is_rank_order(self) -> bool:
        """Whether every element is reduced in the order of ranks, from rank 0."""

    @property
    def order(self) -> str:
        """The order of the reduction, the weakest of all chunks: rank, nested or own; none if nothing is reduced."""

    @property
    def schedule(self) -> Schedule:
        """The schedule."""

    @property
    def seconds(self) -> float:
        """The time of the proof in seconds."""

    @property
    def steps(self) -> int:
        """The number of steps of the schedule."""

@final
class RankBuilder:
    """Adds the operations of one rank, in the order in which its processor issued them. Each returns its handle."""

    def after(self, stream: int | None, handles: Sequence[int]) -> None:
        """Makes a stream wait for operations of other streams; None: the processor waits."""

    def attention(
        self,
        issue: Issue,
        queries: float,
        keys: float,
        *,
        sequences: float,
        heads: float,
        qk_dim: float,
        v_dim: float,
        kernel: str,
        again: bool = False,
        causal: bool = True,
        nbytes: float | None = None,
    ) -> int:
        """Adds attention of all heads of the rank, which moves ``nbytes``. ``again`` says that its kernel is one of the backward pass."""

    def collective(
        self, issue: Issue, pattern: str, nbytes: float, group: int, *, share: bool = False, server: str | None = None
    ) -> int:
        """Adds a collective of a group. ``share``: the bytes are one rank's; nccl-tests counts the bytes of all ranks. ``server``: the
        model server that makes it, as ``vllm``; else NCCL does."""

    def copy(self, issue: Issue, nbytes: float, direction: str) -> int:
        """Adds a copy: ``h2d``, ``d2h`` or ``d2d``."""

    def gemm(
        self,
        issue: Issue,
        m: float,
        n: float,
        k: float,
        *,
        dtype: str,
        batch: float = 1.0,
        experts: bool = False,
        nbytes: float | None = None,
        widened: float = 0.0,
    ) -> int:
        """Adds products of (m, k) and (k, n) in one kernel, which moves ``nbytes`` (default: of the matrices). Of these ``widened`` are weights of
        fewer bits than the products, which take longer to read."""

    def host(self, seconds: float) -> int:
        """Adds time of the processor."""

    def host_wait(self, *, stream: int | None = None, event: int | None = None, by_graph: bool = False) -> int:
        """Makes the processor wait for all work, or for a stream or an event."""

    def message(
        self, issue: Issue, way: str, nbytes: float, peer: int, *, group: int | None = None, tag: int = 0
    ) -> int:
        """Adds a message that is sent (``send``) to a peer, or received (``recv``) from it. A group gives it name and tag."""

    def more(self, handle: int, nbytes: float) -> bool:
        """Adds one more launch, of some bytes, to kernels that move bytes. Returns whether the operation of the handle is such."""

    def move(
        self, issue: Issue, nbytes: float, *, launches: float = 1.0, flops: float = 0.0, bound: bool = False
    ) -> int:
        """Adds kernels that read and write bytes. ``flops`` count for the model, and take no time. ``bound``: of the kernels only the bytes of their
        arguments are known."""

    def place(self, handle: int) -> int:
        """Returns the position of an operation in the finished step; -1: it was left out."""

    def record(self, issue: Issue, event: int) -> int:
        """Records an event on a stream."""

    def timed(self, issue: Issue, seconds: float) -> int:
        """Adds a kernel of known time."""

    def wait(self, issue: Issue, event: int) -> int:
        """Makes a stream wait for an event."""

@final
class Recorder:
    """The words of a rank that is a process, in one communicator, read from outside. Not public."""

    def __new__(cls, path: str | PathLike[str]) -> Self: ...
    @property
    def communicator(self) -> str:
        """The communicator, in words."""

    @staticmethod
    def cycle(recorders: Sequence[Recorder]) -> str | None:
        """Says the cycle of waits among the ranks of a job, if there is one. `recorders` are of the communicator of all ranks."""

    @property
    def is_of_all(self) -> bool:
        """Whether the communicator is that of all ranks."""

    @property
    def job(self) -> str:
        """The name of the job; empty unless the communicator is that of all ranks."""

    def look(self) -> dict[str, Any]:
        """Reads what the rank does: `call`, `is_in_call`, `has_left`, `progress`, `recent` (number and words, newest first), `waits` (words,
        seconds, whether it timed out)."""

    @property
    def process(self) -> int:
        """The process, as it numbers itself."""

    @property
    def rank(self) -> int:
        """The rank, by its number in the run."""

    @property
    def world_size(self) -> int:
        """The number of ranks of the run."""

@final
class Schedule:
    """The program of all ranks, for any count, dtype and op. Made by `nvcoll.schedule`, by `Algorithm.schedule` or by `parse`.
    `str` returns the text that `parse` reads.

    Example:
        >>> import nvcoll
        >>> ring = nvcoll.schedule("all_reduce", "ring", world_size=4)
        >>> ring.chunks, len(ring.steps)
        (4, 24)"""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def _repr_html_(self) -> str: ...
    def _repr_svg_(self) -> str | None: ...
    @property
    def algorithm(self) -> str:
        """The name of the algorithm, with its parameters."""

    def chunk_ranges(self, counts: int | Sequence[int]) -> list[tuple[int, int]]:
        """Returns (first element, end) of every chunk, counted from the start of its part.

        Args:
            counts: the number of elements, cut into parts as a call does; or a list of the elements per part.

        Raises:
            InvalidArgument: not whole numbers from 0, or not one per part."""

    @property
    def chunks(self) -> int:
        """The number of chunks of all parts."""

    def chunks_of(self, rank: int) -> tuple[list[int], list[int]]:
        """Returns the chunks of a rank's input and the chunks of its output, in memory order.

        Raises:
            InvalidArgument: the schedule has no such rank."""

    @property
    def collective(self) -> str:
        """The name of the collective."""

    def cost(self) -> tuple[float, int]:
        """Returns two numbers: the average data that a rank moves, in units of its longer buffer, and the waits on the longest chain."""

    def diff(self, other: Schedule) -> str:
        """Returns the line diff of the two text forms."""

    @property
    def in_place(self) -> bool:
        """Whether input and output are the same memory."""

    def lower(self, path: _Path | str, *, channels: int | None = None, slots: int | None = None) -> Schedule:
        """Returns the schedule for another path.

        Args:
            path: mapped, staged or pushed.
            channels: for pushed, the path of NCCL: the number of slices of every chunk, each with its own queues. Default: 1.
            slots: for pushed: the depth of the FIFO into which ranks push. Default: 2; NCCL has 8.

        Raises:
            InvalidArgument: the path is unknown, a number is out of range, or `channels` or `slots` is given for another path.
            BuildError: the schedule is lowered already, or would have too many steps."""

    def moved_by_busiest(self) -> float:
        """Returns the data that the busiest rank moves, in units of its longer buffer."""

    @property
    def needs_switch(self) -> bool:
        """Whether the schedule has steps for a switch, which reduces or multicasts."""

    @property
    def pairs(self) -> int:
        """The number of ordered pairs of ranks between which bytes move."""

    @staticmethod
    def parse(text: str) -> Schedule:
        """Reads a schedule from its text form.

        Raises:
            BuildError: the text is not a schedule; the message names the line."""

    @property
    def path(self) -> str:
        """The path by which data move: mapped, staged or pushed."""

    @property
    def root(self) -> int:
        """The root; 0 if the collective has none."""

    @property
    def slots(self) -> int:
        """The number of slots of staging; 0 for mapped memory."""

    @property
    def step_count(self) -> int:
        """The number of steps of all ranks."""

    @property
    def steps(self) -> list[Step]:
        """All steps, in the author's order."""

    @property
    def world_size(self) -> int:
        """The number of ranks."""

@final
class ServingPrediction:
    """What requests see of a model server on a machine: times, tokens per second, the cache, and what limits. `nvcoll.serving.serve` makes it."""

    @property
    def at_once(self) -> float:
        """Requests of the mean length for which there is room at once."""

    @property
    def batch(self) -> float:
        """Sequences of which a server generates a token at once, mean over time."""

    @property
    def cache_gib(self) -> float:
        """GiB of the cache on a GPU."""

    @property
    def cache_tokens(self) -> float:
        """Tokens for which the cache of one server has room."""

    @property
    def decode(self) -> dict[str, float]:
        """Seconds of an iteration that generates a token of as many sequences, by part of the time."""

    @property
    def exposed_s(self) -> float:
        """Seconds of a token in which collectives are exposed."""

    @property
    def gpus(self) -> int:
        """The number of GPUs."""

    @property
    def is_saturated(self) -> bool:
        """Whether requests come faster than they are served."""

    @property
    def limit(self) -> str:
        """What limits the tokens per second, in words."""

    @property
    def machine(self) -> Fabric:
        """The machine."""

    @property
    def notes(self) -> list[str]:
        """What the answer assumes, and why its interval is wider than usual."""

    @property
    def prefill(self) -> dict[str, float]:
        """Seconds of an iteration that reads a prompt, or a chunk of one, by part of the time."""

    @property
    def request(self) -> Any:
        """What was asked: model, software, layout, precision, load, and what drafts tokens."""

    def to_json(self) -> str:
        """Returns everything as JSON: the answer, and what was asked."""

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second and GPU."""

    @property
    def tokens_per_second_90(self) -> list[float]:
        """The ends of the 90 % interval of `tokens_per_second`."""

    @property
    def tpot_90(self) -> list[float]:
        """The ends of the 90 % interval of `tpot_s`."""

    @property
    def tpot_s(self) -> float:
        """Mean seconds of each token after it."""

    @property
    def ttft_90(self) -> list[float]:
        """The ends of the 90 % interval of `ttft_s`."""

    @property
    def ttft_s(self) -> float:
        """Mean seconds until the first token of a request."""

    @property
    def weights_gib(self) -> float:
        """GiB of weights on a GPU."""

    @property
    def words(self) -> str:
        """The layout in words."""

@final
class Step:
    """One step of a schedule, on one queue of one rank: it folds its sources into its destinations.

    Example:
        >>> import nvcoll
        >>> nvcoll.schedule("all_reduce", "ring", world_size=2).steps[0]
        <nvcoll.Step r1.q0.0: output[r1].0 = input[r0].0*s0 + input[r1].0*s1>"""

    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    @staticmethod
    def _of_fields(fields: dict[str, Any]) -> Step: ...
    @property
    def after(self) -> list[str]:
        """The waits before the step, as the text form writes them."""

    @property
    def at_switch(self) -> bool:
        """Whether a switch can do the step."""

    @property
    def destinations(self) -> list[tuple[int, str, int, int]]:
        """The destinations: (rank, buffer, first chunk, end of chunks)."""

    @property
    def dst(self) -> list[str]:
        """The destinations as the text form writes them."""

    @property
    def index(self) -> int:
        """The position in that queue."""

    @property
    def is_final(self) -> bool:
        """Whether the step completes a reduction."""

    @property
    def queue(self) -> int:
        """The queue of that rank."""

    @property
    def rank(self) -> int:
        """The rank that executes the step."""

    @property
    def sources(self) -> list[tuple[int, str, int, int, int | None]]:
        """The sources: (rank, buffer, first chunk, end of chunks, contributing rank or None)."""

    @property
    def src(self) -> list[str]:
        """The sources as the text form writes them."""

    @property
    def waits(self) -> list[tuple[int, int, int]]:
        """The steps of the same tile among the waits: (rank, queue, index)."""

@final
class StepBuilder:
    """Makes a recorded step, operation by operation.

    `group` and `rank` come first, then operations of ranks, then `finish`. Groups get names and kinds from what frameworks call them, or from
    their calls; events for which nothing waits are left out.

    Args:
        name: of the step, for people.
        gpus: the number of GPUs.
        gpu: the model of GPU for which its kernels were chosen, as ``h100-sxm``."""

    def __new__(cls, name: str, *, gpus: int, gpu: str) -> Self: ...
    def finish(self, *, tokens: float | None = None, dtype: str | None = None, has_passes: bool = False) -> WorkStep:
        """Makes the step.

        Args:
            tokens: of all ranks. Default: not known.
            dtype: the precision of most products. Default: found in the operations.
            has_passes: whether operations of the backward pass were marked: then FLOPs of the model are known.

        Raises:
            InvalidArgument: the step contradicts itself."""

    def group(self, ranks: Sequence[int], *, rank: int, called: str = "") -> int:
        """Returns the number of the group of a rank; the same group has the same number.

        Args:
            ranks: its ranks.
            rank: one of them that is recorded.
            called: what the framework calls it, as ``mesh_tp``.

        Raises:
            InvalidArgument: it has no ranks, or one twice."""

    def name_of(self, group: int) -> str:
        """Returns the name of a group in the finished step.

        Raises:
            InvalidArgument: the step is not finished, or there is no such group."""

    def note(self, text: str) -> None:
        """Adds an assumption."""

    @property
    def notes(self) -> list[str]:
        """The assumptions, each once."""

    def rank(
        self,
        number: int,
        *,
        stands_for: int,
        name: str,
        operators: float | None = None,
        timed: bool = False,
        memory: tuple[float, float, Mapping[str, float], Sequence[str]] | None = None,
    ) -> RankBuilder:
        """Adds a rank.

        Args:
            number: the rank.
            stands_for: the number of ranks that do the same.
            name: of these ranks.
            operators: operators that the processor dispatched. Default: one for each operation of the GPU.
            timed: whether operations `host` have all time of the processor: launches take none.
            memory: allocated and reserved bytes, bytes by part, and lines at the peak, innermost last. Default: not known."""

    def shape(self, size: int, stride: int, *, called: str = "") -> int:
        """Returns the number of a group if only its size and stride are known."""

@final
class StepPrediction:
    """The predicted time of a step on a machine, what it consists of, and whether it fits. `nvcoll.training.plan` and `sweep` make it."""

    @property
    def fit(self) -> Literal["fits", "tight", "too_large"] | None:
        """Whether the step fits in the GPUs and in RAM: ``fits``, ``tight`` (may fit) or ``too_large``; None: not known."""

    @property
    def flops_of(self) -> Literal["model", "recorded"]:
        """The FLOPs that `mfu` and `tflops` count: ``model`` (of the model) or ``recorded``."""

    @property
    def layout(self) -> PlanOptions:
        """The options of the layout: arguments of `nvcoll.training.plan`; empty for a step that was not planned here."""

    @property
    def request(self) -> dict[str, Any]:
        """What was planned: model, layout and software; empty for a step that was not planned here."""

    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def _repr_html_(self) -> str: ...
    @staticmethod
    def _restored(machine: Fabric, report: str, is_planned: bool, priced: str) -> StepPrediction: ...
    @property
    def blocks(self) -> dict[str, dict[str, dict[str, float]]]:
        """Seconds of one micro-batch by block, pass and part of the time; none of a recorded step."""

    def calibrated(self, measured_s: float) -> Calibration:
        """Compares the prediction with a step that was measured.

        Args:
            measured_s: seconds of the step, the median of several.

        Raises:
            InvalidArgument: it is not a positive number, or more than noise differs."""

    @property
    def collectives(self) -> list[CollectivePrice]:
        """Each collective of the step."""

    @property
    def computes_s(self) -> float:
        """Seconds in which the GPU computes: all that are neither exposed nor idle."""

    def dollars(self, per_gpu_hour: float, tokens: float = 1000000000000.0) -> float:
        """Returns the price of training on some tokens, in the currency of ``per_gpu_hour``.

        Raises:
            InvalidArgument: the number of tokens of the step is not known."""

    @property
    def exposed_s(self) -> float:
        """Seconds of exposed communication, and the seconds that compute loses because a call runs beside it."""

    @property
    def extrapolated(self) -> list[str]:
        """Why the interval is wider than usual."""

    @property
    def fits(self) -> bool:
        """Whether even the most memory that the step may need is in the GPU, and in RAM."""

    @property
    def gpu_fit(self) -> str | None:
        """Whether the step fits in the GPUs, as `fit`."""

    @property
    def gpu_memory_gib(self) -> float:
        """GiB that programs get of the GPU."""

    @property
    def gpus(self) -> int:
        """The number of GPUs."""

    @property
    def high_s(self) -> float:
        """The upper end of the 90 % interval, in seconds."""

    @property
    def host_ram_gib(self) -> tuple[int, int] | None:
        """The least and the most GiB of RAM of a host, which is a node or a tray of a rack; None: not known."""

    @property
    def idle_s(self) -> float:
        """Seconds in which the GPU waits for other stages, the processor, stalls of the software, and copies."""

    @property
    def is_recorded(self) -> bool:
        """Whether the step was recorded, and not planned."""

    @property
    def issue_s(self) -> float | None:
        """Seconds that the processor takes to issue a recorded step, which the GPU may hide; None: the step was planned."""

    @property
    def limit(self) -> str:
        """What takes most of the time, in words."""

    @property
    def lines(self) -> list[LinePrice]:
        """Lines of the script for which the GPU waits, most first; none of a planned step."""

    @property
    def low_s(self) -> float:
        """The lower end of the 90 % interval, in seconds."""

    @property
    def machine(self) -> Fabric:
        """The machine."""

    @property
    def memory(self) -> list[MemoryTable] | None:
        """The memory of each role; None: not known."""

    @property
    def memory_gib(self) -> float:
        """GiB of the fullest rank; 0 if the memory is not known."""

    @property
    def mfu(self) -> float | None:
        """The FLOPs over the dense peak of the step's precision; None: not known, as of a trace."""

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by part of the time, which sum up to `seconds`: of the slowest stage, or of the rank that waits least."""

    @property
    def ram_fit(self) -> str | None:
        """Whether what waits in RAM fits there, as `fit`; None: nothing waits."""

    @property
    def ram_gib(self) -> tuple[float, float] | None:
        """The least and the most GiB that wait in the RAM of the fullest host; None: nothing waits."""

    @property
    def roles(self) -> list[RolePrice]:
        """The roles of ranks."""

    def scaled(self, scale: float) -> StepPrediction:
        """Returns it with all times scaled; rates follow."""

    @property
    def seconds(self) -> float:
        """Seconds of the step."""

    @property
    def step(self) -> WorkStep:
        """The step."""

    @property
    def tflops(self) -> float | None:
        """10^12 FLOPs per second and GPU; None: not known."""

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as plain objects, for JSON: the step by its name, and None where something is unknown."""

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second and GPU; 0 if the tokens are not known."""

    @property
    def words(self) -> str:
        """The layout in the short words of the field; empty for a step that was not planned here."""

@final
class StepPricer:
    """Prices steps on one machine. What it learns of groups of ranks it keeps. Not public: `nvcoll.training` has the API."""

    def __new__(
        cls,
        fabric: Fabric,
        gpus: int,
        *,
        gpu: str | None = None,
        version: str | None = None,
        settings: Mapping[str, str | int] | None = None,
        measured: str | None = None,
    ) -> Self: ...
    @property
    def domain(self) -> int:
        """The number of GPUs that NVLink joins."""

    def iteration(self, asked: str, batch: str, constants: dict[str, float] | None = None) -> WorkStep:
        """Returns an iteration of a model server as a step.

        Args:
            asked: as of `serve`.
            batch: JSON: `decodes`, their tokens that are `cached`, `prompts`, their `tokens`, and the `pairs` of those.
            constants: constants by name, in place of those that are shipped."""

    def neighbours(self, found: StepPrediction) -> list[StepPrediction]:
        """Returns the layouts next to that of a planned step that are possible, fit or are tight, and are faster, best first; slower ones
        that fit, too, if it does not fit.

        Raises:
            InvalidArgument: the step was not planned here."""

    def plan(self, asked: str) -> StepPrediction:
        """Plans a step and prices it.

        Args:
            asked: JSON of model, software and options."""

    def predict(self, step: WorkStep, *, exact: bool = True) -> StepPrediction:
        """Prices a step.

        Args:
            step: the step.
            exact: whether its pipeline runs in virtual time, instead of a closed form."""

    def seconds(self, step: WorkStep, constants: dict[str, float]) -> float:
        """Returns the seconds of a step under other constants. For fits: the pipeline is the closed form."""

    def serve(
        self, asked: Sequence[str], constants: dict[str, float] | None = None
    ) -> list[tuple[ServingPrediction | None, str]]:
        """Answers for layouts of a model server, on all processors.

        Args:
            asked: JSON of each: model, software, layout, precision and load.
            constants: constants that replace those that are shipped. For fits.

        Returns:
            The answers, and for each other one why it has none."""

    def sweep(
        self, asked: str, tell: Callable[[int, int], None] | None = None
    ) -> tuple[list[StepPrediction], list[str]]:
        """Prices the layouts of a sweep, in closed form.

        Args:
            asked: JSON of model, software and options; the words that are open vary.
            tell: is called with the numbers of layouts priced and to price.

        Returns:
            The layouts, and for each other one the rule that it breaks."""

    def timeline(self, step: WorkStep) -> str:
        """Runs a step in virtual time; returns JSON.

        Of a planned step: the seconds of a send that nothing hides, and the timeline of its pipeline with spans. Of a recorded step:
        `period_ns` of the step, and for each of `ranks` the times `issued_ns`, `start_ns` and `end_ns` of its operations, in their order."""

@final
class Team:
    """The ranks of one `Node.run`. Not public. The node itself can make no call while a team exists."""

    def communicator(self, rank: int, timeout: float | None) -> Communicator:
        """Returns the communicator of a rank."""

    def end(self) -> None:
        """Gives the node back."""

    def fail(self, comm: Communicator) -> None:
        """Ends every call of every communicator that contains a rank, because its program failed."""

    def interrupt(self) -> None:
        """Ends every call of the run because the user interrupted the program."""

    def retire(self, comm: Communicator) -> None:
        """Ends the communicators of a rank whose program has returned. Peers that make one more call get an error."""

@final
class TextFormat:
    """A text format of machines, which :meth:`Fabric.from_text` reads. Made by :func:`text_formats`."""

    @property
    def ending(self) -> str:
        """The usual ending of file names, as ``.txt``."""

    @property
    def name(self) -> str:
        """The name of the format, as ``nvidia-smi topo -m``."""

    @property
    def takes_gpu(self) -> bool:
        """Whether the caller may pass the model of the GPUs, because some texts do not name it."""

@final
class Timeline:
    """A schedule in virtual time: the end of each rank, the load of each link, the critical path.

    Made by :meth:`Fabric.simulate`. Times are microseconds from 0. Ranks enter at 0 unless `starts` says otherwise.

    Example:
        >>> import nvcoll
        >>> timeline = nvcoll.fabric("hgx-h100").simulate("ring", "1M", collective="all_reduce")
        >>> len(timeline.end_us), timeline.time_us == max(timeline.end_us)
        (8, True)"""

    def __copy__(self) -> Timeline: ...
    def __deepcopy__(self, _memo: object, /) -> Timeline: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    @staticmethod
    def _again(on: Fabric, schedule: Schedule, asked: dict[str, Any]) -> Timeline: ...
    def _repr_html_(self) -> str: ...
    def _repr_svg_(self) -> str | None: ...
    def _ways(self) -> tuple[list[int], list[tuple[float, list[int]]]]: ...
    @property
    def bottleneck(self) -> str:
        """The links and latencies on which the time is spent, the most first: `62 % of the time is gpu3 -> nvswitch, 21 % latency`."""

    @property
    def critical(self) -> list[CriticalPiece]:
        """The critical path in order of time. Each piece begins at the end of the piece before."""

    @property
    def end_us(self) -> list[float]:
        """The time at which each rank left, in microseconds."""

    @property
    def fabric(self) -> str:
        """The name of the fabric."""

    @property
    def links(self) -> list[tuple[str, str, int, float]]:
        """For each link of one direction: (from, to, bytes that crossed it, the protocol's included, busy microseconds)."""

    @property
    def memory_bytes(self) -> list[int]:
        """For each rank, the bytes that its own steps read from and wrote to its memory."""

    def save_trace(self, path: str | PathLike[str]) -> None:
        """Writes :meth:`trace` to a file, which <https://ui.perfetto.dev> opens.

        Args:
            path: str or path; the file is made or replaced.

        Raises:
            InvalidArgument: spans were not kept.
            OSError: the file cannot be written."""

    @property
    def schedule(self) -> str:
        """The schedule, in words."""

    @property
    def spans(self) -> list[tuple[int, int, int, int, float, float]] | None:
        """Every step in every tile by rank, queue and time: (rank, queue, step, tile, start and end in microseconds); None
        unless asked for."""

    @property
    def steps(self) -> list[Step]:
        """The steps of the schedule, in the author's order."""

    @property
    def tiles(self) -> int:
        """The number of tiles, each a pass of the schedule over a part of the data."""

    @property
    def time_us(self) -> float:
        """The time at which the last rank left, in microseconds."""

    def to_svg(self, *others: Timeline) -> str:
        """Draws the timeline, and others below it on the same clock.

        Args:
            others: any number of timelines.

        Returns:
            A self-contained SVG document: ranks as rows, a bar for each step on a line for each queue.

        Raises:
            InvalidArgument: spans were not kept."""

    def trace(self) -> Any:
        """Returns the timeline as Perfetto and Chrome (`chrome://tracing`) read it: a process for each rank, a thread for each queue.

        Returns:
            A dict that `json` can write. `traceEvents` has an event for every step in every tile, in microseconds, the
            critical path as a process of its own, and for each link a counter of the steps whose bytes are on it.
            `otherData` names the schedule and the fabric, and has the bytes of each link.

        Raises:
            InvalidArgument: spans were not kept."""

@final
class Trial:
    """Predicts the same calls of one fabric for many sets of constants, for `tools/predict/fit.py`. Not public.

    The choice of NCCL, which no constant changes, is made once."""

    def __new__(
        cls,
        fabric: Fabric,
        collective: str,
        nbytes: Sequence[int],
        *,
        launch: _Launch = "process_per_gpu",
        algorithm: str | None = None,
        protocol: str | None = None,
        version: str | None = None,
        settings: Mapping[str, str | int] | None = None,
    ) -> Self: ...
    @property
    def fabric_class(self) -> str:
        """The class, in the table of measurements, to which the fabric belongs."""

    def limits(self) -> list[str]:
        """Returns, for each call, what joins the GPUs of a node and what takes most of the time."""

    @property
    def nodes(self) -> int:
        """The number of nodes; GPUs that an NVSwitch joins are one node."""

    def times(self, values: Mapping[str, float]) -> list[float]:
        """Predicts each call in microseconds with other values of constants, without a lower bound and an interval."""

@final
class View:
    """Chunks of one buffer of one rank. A view is a place, not a value: a later step can overwrite it.

    Example:
        >>> import nvcoll
        >>> b = nvcoll.Builder("all_reduce", 2)
        >>> b.input(1, 0)
        input[r1].0 of 1"""

    def __eq__(self, value: object, /) -> bool: ...
    @property
    def rank(self) -> int:
        """The rank that owns the memory."""

@final
class Work:
    """An asynchronous call. `isend`, `irecv` and calls of `Communicator` with `async_op=True` return a `Work` immediately. In asyncio,
    `await work` waits like `wait`, without blocking the loop. If the task is cancelled meanwhile, the call stays in flight.

    Example:
        >>> import numpy as np, nvcoll
        >>> def program(comm):
        ...     work = comm.all_reduce(np.ones(2), async_op=True)  # the program may compute after this line
        ...     return work.wait().tolist()
        >>> nvcoll.Node(2).run(program)
        [[2.0, 2.0], [2.0, 2.0]]"""

    def __await__(self) -> Generator[Any, None, Any]: ...
    def _explain(self, meaning: Callable[[BaseException], BaseException]) -> None: ...
    def _finish(self, result: Any, error: BaseException | None = None) -> None: ...
    def _keep(self, arrays: Sequence[Any]) -> None: ...
    def _when_done(self, ring: Callable[[], object]) -> None: ...
    def done(self) -> bool:
        """Says whether the call is over. A call that failed is over too."""

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits until the call is over. Returns its exception, or None if the call succeeded.

        Args:
            timeout: seconds that this wait may take, as in `wait`. Default: no limit.

        Raises:
            Timeout: the wait took too long; the call stays in flight."""

    def wait(self, timeout: float | None = None) -> Any:
        """Waits until the call is over, and returns the result that the call has without `async_op`.

        Args:
            timeout: seconds that this wait may take. When they have passed, the call stays in flight and you may wait again. The
                `timeout` of the call itself ends the call. Default: no limit.

        Returns:
            The result of the call.

        Raises:
            Timeout: the wait or the call took too long; the message says which.
            Mismatch, Aborted: as the call without `async_op`.
            Closed: this process is a fork, and the call was in flight at the fork.
            KeyboardInterrupt: Ctrl-C ended the wait; the call stays in flight."""

@final
class WorkStep:
    """A step of work: what each rank computes, sends and keeps in memory, in planned layers or on recorded streams.

    `nvcoll.training.plan` makes one; ``docs/reference/training-step.md`` documents its JSON."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def flops(self, at: int | None = None) -> float:
        """The FLOPs of products and attention on streams, recomputation included: of all ranks, or of one recorded rank by its position.

        Raises:
            InvalidArgument: the step has no streams, or fewer ranks."""

    @staticmethod
    def from_json(text: str) -> WorkStep:
        """Reads a step from JSON.

        Raises:
            InvalidArgument: it is no such JSON, or contradicts itself."""

    @property
    def gpus(self) -> int:
        """The number of GPUs."""

    @property
    def is_recorded(self) -> bool:
        """Whether it has streams, as recorded steps do, and not layers."""

    @property
    def model_flops(self) -> float | None:
        """The FLOPs of the model in a step of all GPUs together; None: not known."""

    @property
    def name(self) -> str:
        """What it is a step of."""

    @staticmethod
    def plan(asked: str, *, gpus: int, domain: int) -> WorkStep:
        """Plans a step.

        Args:
            asked: JSON of model, software and options.
            gpus: the number of GPUs.
            domain: the number of GPUs that NVLink joins.

        Raises:
            InvalidArgument: it is no such JSON, or the layout breaks a rule, which the message says."""

    def to_json(self) -> str:
        """Returns the step as JSON."""

    @property
    def tokens(self) -> float | None:
        """The tokens of a step of all GPUs together; None: not known."""

@final
class _Passed:
    @property
    def counts(self) -> list[int]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def input(self) -> memoryview: ...
    @property
    def op(self) -> str: ...
    @property
    def output(self) -> memoryview: ...
    @property
    def result(self) -> Any: ...
    @property
    def root(self) -> int: ...
    @property
    def scalar(self) -> float: ...
    def write_back(self) -> None: ...

def _end_attaching() -> None: ...
def _fold(sources: Any, out: Any, op: _Op, *, carry: Any | None = None, divide_by: int | None = None) -> None: ...
def _read(
    collective: str,
    rank: int,
    world_size: int,
    x: Any,
    *,
    op: _Op | None = None,
    root: Any | None = None,
    counts: Any | None = None,
    out: Any | None = None,
) -> _Passed: ...
def algorithm_parameters(collective: str, name: str) -> list[ParameterRow]:
    """Returns the parameters of a registered algorithm."""

def algorithms() -> list[AlgorithmRow]:
    """Returns all registered algorithms."""

def arm(
    comm: Communicator, is_of_messages: bool, call: int, step: int | None, strike: tuple[str, float], report: int | None
) -> None:
    """Has a fault strike this rank in a call of a communicator. Not public."""

def auto_candidates(collective: str) -> list[str]:
    """Returns the algorithms among which `auto` selects, the default first."""

def bus_factor(collective: str, world_size: int) -> float:
    """Returns busbw / algbw of a collective among `world_size` ranks, as nccl-tests defines it."""

def cluster(node: str | PathLike[str] | Fabric, *, nodes: int, network: str | PathLike[str] | Network) -> Fabric:
    """Returns a machine of equal nodes and a network.

    Args:
        node: a machine of one node, as in :func:`machines`.
        nodes: the number of nodes, from 1.
        network: the name of a network, as ``ib-ndr-8``: eight ports of InfiniBand NDR per node; a `Network`; or a file that
            describes one, as a path or as a name that ends in ``.toml``.

    Raises:
        InvalidArgument: a name is unknown, no NIC can be attached to the node, or the description of the network is wrong or
            holds fewer nodes.
        OSError: the file cannot be read.

    Example:
        >>> import nvcoll
        >>> nvcoll.cluster("hgx-h100", nodes=4, network="ib-ndr-8").world_size
        32"""

def collective_spelled(name: str) -> str | None:
    """Returns nvcoll's name of a collective, or of sendrecv, in the spelling of any tool, as `alltoall` or `AllReduce`; None if
    there is none."""

def collectives() -> list[CollectiveRow]:
    """Returns all collectives."""

def constants_of_predictions() -> list[ConstantRow]:
    """Returns the constants of predictions."""

def cost_model() -> CostModel:
    """Returns the cost model of `auto`."""

def dtypes() -> list[DtypeRow]:
    """Returns all dtypes."""

def fabric(on: str | PathLike[str] | Fabric, *, gpu: str | None = None) -> Fabric:
    """Returns a machine: what `machines` returns for a text, a file or a `Fabric` that is one machine.

    Args:
        on: the machine, as in :func:`machines`.
        gpu: the model of the GPUs of a file that does not name it.

    Raises:
        InvalidArgument: as :func:`machines`; these are several machines.
        OSError: a file cannot be read.

    Example:
        >>> import nvcoll
        >>> nvcoll.fabric("hgx-h100x2+ib-ndr-8").world_size
        16"""

def fabrics() -> list[Fabric]:
    """Returns every preset machine."""

def gpus() -> list[GpuRow]:
    """Returns every model of GPU."""

def gpus_called(text: str) -> list[GpuRow]:
    """Returns the models of GPU that a text may mean: a name of the table, the name that a driver prints, or what people type. None if it
    names no model, several if it does not tell them apart."""

def group_word(description: str) -> str | None:
    """Returns the part of the layout that the description of a process group names, as ``tp``; None: it names none, or several."""

def handoff_ns(first: int, second: int) -> float:
    """Measures the time from a store on one of two processors until the other one sees it. It takes some milliseconds.

    Args:
        first, second: the processors, by their numbers in the system.

    Returns:
        The time in nanoseconds.

    Raises:
        InvalidArgument: a number is no processor's."""

def launch_named(name: str) -> _Launch:
    """Returns the name of a launch.

    Raises:
        InvalidArgument: the name is unknown."""

def launches() -> list[_Launch]:
    """Returns the names of all launches."""

def machine() -> dict[str, Any]:
    """Returns the facts of this machine: CPU, usable CPUs, sizes of caches in bytes, instruction sets."""

def machine_names() -> list[str]:
    """Returns the names of every preset machine, and their other names."""

def machine_texts(list: str) -> list[str]:
    """Returns the texts of the machines of a list: what each of `machines` was made of."""

def machines(
    on: str | PathLike[str] | Fabric | Sequence[str | PathLike[str] | Fabric], *, gpu: str | None = None
) -> list[Fabric]:
    """Returns machines: what `on` names in every function, and ``--on`` in every command.

    Args:
        on: names, files, or a `Fabric`; or a sequence of them. A text is a list with commas. Each machine is the name of a preset
            (``hgx-h100``); some of its GPUs (``hgx-h100[0,3]``); a number of GPUs (``8xH100``, ``4x rtx4090``); a file that ends in
            ``.toml``, ``.txt`` or ``.xml``; or nodes and a network (``hgx-h100x4+ib-ndr-8``, ``mine.tomlx3+net.toml``). Changes may
            follow: ``hgx-h100 with nvlink x2, pcie x2``.
        gpu: the model of the GPUs of files that do not name it.

    Raises:
        InvalidArgument: the name is unknown (the message has the nearest names); a file is wrong; ``gpu`` is given and no file needs it.
        OSError: a file cannot be read.

    Example:
        >>> import nvcoll
        >>> [machine.world_size for machine in nvcoll.machines("hgx-h100,dgx2")]
        [8, 16]"""

def media() -> list[MediumRow]:
    """Returns every medium of links."""

def memory() -> dict[str, Any]:
    """Returns the memory that this process can still have, whether memory between processes has huge pages, and the staging of a rank: in a
    world of one rank per CPU and in one of twice as many."""

def model_servers() -> list[_Server]:
    """Returns the names of the model servers whose all_reduce is known."""

def nccl_settings() -> list[SettingRow]:
    """Returns the environment variables of NCCL that `settings=` takes."""

def nccl_versions() -> list[str]:
    """Returns the versions of NCCL with known constants, from the oldest."""

def networks() -> list[Network]:
    """Returns every network between nodes that is shipped."""

def ops() -> list[OpRow]:
    """Returns all ops."""

def parse_size(text: str) -> int:
    """Returns the bytes that a size names: `64K`, `16MiB`, `140GB`.

    Raises:
        InvalidArgument: the text is not a size, or the size is above 2^56 bytes."""

def patterns() -> list[PatternRow]:
    """Returns the patterns that predictions know."""

def precisions() -> list[str]:
    """Returns the names of formats of weights."""

def premul_sum(scalars: float | Sequence[float]) -> PremulSum:
    """Returns the op that multiplies the contribution of each rank by its scalar and adds.

    Args:
        scalars: one real number, or a list of one per rank for a call of a `Node`. Integer dtypes take integers alone.

    Raises:
        InvalidArgument: a scalar is not a real number, or a float64 cannot hold it.

    Example:
        >>> import numpy as np, nvcoll
        >>> op = nvcoll.premul_sum([0.5, 0.25])  # rank 0 times 0.5, rank 1 times 0.25
        >>> nvcoll.Node(2).all_reduce(np.full((2, 3), 4.0), op)[0].tolist()
        [3.0, 3.0, 3.0]"""

def roofline(arrays: Any, threads: int, *, non_temporal: bool = False) -> float:
    """Sums float32 arrays into each other with a hand-written loop, for benchmarks.

    Args:
        arrays: one array per rank, (count,), float32, contiguous and aligned. Written.
        threads: the number of threads, 1 to 1024.
        non_temporal: whether the loop uses non-temporal stores.

    Returns:
        The time in seconds.

    Raises:
        InvalidArgument: there is no array, or one cannot be used."""

def schedule(
    collective: str,
    algorithm: Any,
    *,
    world_size: int,
    root: int | None = None,
    path: _Path | str = "mapped",
    in_place: bool | None = None,
) -> Schedule:
    """Builds the schedule of an algorithm and lowers it to a path.

    Args:
        collective: the name of a collective.
        algorithm: a name, an algorithm that is written in Python, or a schedule.
        world_size: the number of ranks.
        root: the root, for a collective that has one. Default: 0.
        path: mapped, staged or pushed.
        in_place: whether input and output are the same memory, as in `Node.all_reduce` without `out`. A schedule runs calls
            of its own kind alone. Default: True, if the collective can be in place.

    Returns:
        The schedule, which is not proved.

    Raises:
        InvalidArgument: a name is unknown, a number is out of range, or the algorithm is for another collective.
        BuildError: the algorithm broke a rule of the builder, or has too many steps.

    Example:
        >>> import nvcoll
        >>> ring = nvcoll.schedule("all_reduce", "ring", world_size=8)
        >>> ring.cost()  # bytes per byte of data, and waits in the longest chain
        (4.375, 15)"""

def serving_software() -> str:
    """Returns the model servers that are known, as JSON."""

def step_words() -> tuple[list[tuple[str, str, str]], list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns the words of priced steps: name, kind and title of each part of the time; name and title of each line of memory, and of each
    answer about memory, best first."""

def text_formats() -> list[TextFormat]:
    """Returns every text format of machines."""

def training_constants() -> str:
    """Returns the constants of steps, as JSON."""

def training_models() -> str:
    """Returns the models that are shipped, as JSON."""

def training_software() -> str:
    """Returns the software that is shipped, as JSON."""

def verify(
    schedule: Schedule | str, algorithm: Algorithm | str | None = None, *, world_size: int | None = None
) -> Proof:
    """Proves that a schedule gives the promised result, without races and deadlocks, for any count.

    Args:
        schedule: the schedule; or the names of a collective and an algorithm, as in ``verify("all_reduce", "ring")``.
        algorithm: the algorithm of a collective, whose mapped schedule is proved.
        world_size: the number of its ranks. Default: 8.

    Returns:
        The proof.

    Raises:
        InvalidArgument: a name is unknown, or there is no schedule.
        Refuted: the schedule is wrong. `places` names the steps in conflict; `missing` names the missing wait, or is None.
        KeyboardInterrupt: Ctrl-C ended the proof.

    Example:
        >>> import nvcoll
        >>> proof = nvcoll.verify("all_reduce", "ring", world_size=4)
        >>> proof.expression(1)
        '(((r1 + r2) + r3) + r0)'"""

def why(schedules: Sequence[Schedule]) -> str:
    """Explains in one line the data that each schedule moves and its longest chain of waits."""
