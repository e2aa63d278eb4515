# Written by tools/stub.py from tools/stub_types.pyi and the docstrings in rust/nvcoll-python: change those.
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from os import PathLike
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar, final, overload
from numpy import ufunc
from typing_extensions import disjoint_base
from nvcoll.algorithms import Algorithm

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
__version__: str
_ArraysT = TypeVar("_ArraysT")
_OutT = TypeVar("_OutT")
_Size: TypeAlias = int | float | str
_Op: TypeAlias = _OpName | PremulSum | ufunc | Enum
_Path: TypeAlias = Literal["mapped", "staged", "pushed"]
_Launch: TypeAlias = Literal["process_per_gpu", "single_process", "framework"] | str
_Algorithm: TypeAlias = _AlgorithmName | str | Algorithm | Schedule
_Sizes: TypeAlias = list[_Size] | tuple[_Size, ...] | Iterable[int | float]

class Error(Exception):
    """Any error of nvcoll."""

class InvalidArgument(Error, ValueError):
    """An argument that cannot be used; the message says which, and what to pass."""

class BuildError(Error):
    """An algorithm broke a rule of the builder."""

class Refuted(Error):
    """A proof failed; `places` names the steps, `missing` what would have to be added."""

    places: tuple[str, ...]
    missing: str | None

class Mismatch(Error):
    """Ranks made different calls; the message names both."""

class Aborted(Error):
    """Another rank failed; the message names it."""

class Timeout(Error, TimeoutError):
    """A deadline passed; the message says who is missing."""

class Busy(Error, RuntimeError):
    """The node is in a call of another thread, or in a run of its ranks."""

class Closed(Error, RuntimeError):
    """The peers of a communicator are gone: its run has ended, or the process was forked."""

class AlgorithmRow(NamedTuple):
    """A registered algorithm. `order` says how it reduces: `rank`, in the order of ranks; `tree`; or `none`."""

    collective: str
    name: str
    order: str
    summary: str
    source: str

class ParameterRow(NamedTuple):
    """A parameter of a registered algorithm: the values that it takes, and its default, in words."""

    name: str
    choices: str
    default: str
    summary: str

class CollectiveRow(NamedTuple):
    """A collective. `folds` says which ranks' arrays a result reduces: `nothing`, `everyone` or `predecessors`."""

    name: str
    summary: str
    has_root: bool
    can_be_in_place: bool
    folds: str

class DtypeRow(NamedTuple):
    """A dtype: the bytes of an element, its kind, and the dtype in which it is accumulated."""

    name: str
    nbytes: int
    kind: str
    accumulator: str

class OpRow(NamedTuple):
    """An op, and the names of the dtypes on which it is defined."""

    name: str
    dtypes: list[str]

class NetworkRow(NamedTuple):
    """A network between nodes; `gbps` is the line rate of a node one way, in GB/s."""

    name: str
    title: str
    gbps: float
    source: str

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

class GpuRow(NamedTuple):
    """A model of GPU. `nvlink` is the medium of its NVLinks, or of its links of Infinity Fabric, or None; `pcie` is the medium
    of its PCIe lanes; `memory_gbps` is the bandwidth of its memory in GB/s."""

    name: str
    title: str
    nvlink: str | None
    nvlinks: int
    pcie: str
    pcie_lanes: int
    memory_gbps: float
    source: str

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

class PatternRow(NamedTuple):
    """A pattern that predictions know; `is_of_sends` says whether NCCL builds it of sends and receives."""

    name: str
    is_of_sends: bool

class CoefficientRow(NamedTuple):
    """A coefficient of the cost model; `per_second` of its units are a second."""

    name: str
    per_second: float

class CostModel(NamedTuple):
    """The model by which `auto` chooses: its modes, its coefficients, and the most ranks for which it estimates candidates."""

    modes: list[str]
    coefficients: list[CoefficientRow]
    most_ranks: int

class CandidateRow(NamedTuple):
    """What `auto` expects of one algorithm: bytes that all ranks read and write, waits and steps of the longest chain, the
    factor of each coefficient, and seconds."""

    algorithm: str
    moved_bytes: float
    waits: int
    steps: int
    terms: list[float]
    seconds: float

class AutoChoice(NamedTuple):
    """What `auto` chooses for a call, why, and what it expects of each candidate."""

    algorithm: str
    why: str
    candidates: list[CandidateRow]

@final
class PremulSum:
    """The sum of contributions, each multiplied by its rank's scalar."""

def premul_sum(scalars: float | Sequence[float]) -> PremulSum:
    """premul_sum(scalars): the op that multiplies each rank's contribution by its scalar and adds.

    Args:
        scalars: one number, or one per rank for a call that drives all ranks."""

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
    def world_size(self) -> int:
        """The number of ranks."""

    @property
    def workers(self) -> int:
        """The number of threads that work for a call, the caller included."""

    @property
    def tuning(self) -> dict[str, Any]:
        """The table by which `auto` chooses: machine, caches, and the coefficients of each mode."""

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
        """Returns what `auto` chooses for a call of `count` elements, and the time it expects of each candidate.

        Args:
            collective: its name.
            count: elements, as `all_reduce` counts them; of the whole buffer where that is cut among ranks.
            dtype: the name of the elements' type.
            root: the root, if the collective has one.
            path: mapped or staged.
            in_place: whether input and output are the same memory.
            by_rank: whether every rank calls for itself, as in `Node.run`.

        Returns:
            The choice: algorithm, why in words, and candidates with what is expected of each. No candidates above 64 ranks."""

    def barrier(self, *, timeout: float | None = None) -> None:
        """Returns when every rank has taken part: a call for all ranks that moves nothing."""

    def plan(
        self,
        collective: str,
        arrays: Any = None,
        op: _Op | None = None,
        *,
        root: int | None = None,
        counts: Sequence[int] | Sequence[Sequence[int]] | None = None,
        algorithm: _Algorithm | None = None,
        out: Any = None,
        path: _Path | str = "mapped",
    ) -> Plan:
        """Prepares a call that runs again and again on the same arrays.

        A plan keeps the memory of its arrays and reads them anew each time. `Plan.run` refuses a numpy array that has moved
        since; do not resize a torch tensor while the plan lives, because torch does not refuse to.

        Args:
            collective: a name, such as `"all_gather"`.
            arrays: as in the method of that name, and so are all others. None for a barrier.

        Returns:
            A plan; its `result` is what the method would return."""

    def group(self, *, timeout: float | None = None) -> Group:
        """Groups calls: those that are made in a `with` block of it are launched as one when the block ends.

        Inside the block the collectives of this node, on this thread, check their arguments and return what they will return
        (a new array holds zeros until then); nothing is read or written before the block ends, and nothing at all if it raises.
        The calls of a group have no order, and what one of them writes shares no byte with what another touches. Plans, other
        groups and the ranks of `run` are not affected: they run at once. A group that is dropped inside its block ends it, and
        its calls are not made.

        Args:
            timeout: seconds that the calls may take together.

        Returns:
            The group, whose `run` launches the same calls again.

        Raises:
            InvalidArgument: at the end of the block, arrays of two calls that share memory of which some is written.
            Busy: another group of this node is open.

        Example:
            >>> node, grads = nvcoll.Node(2), np.ones((3, 2, 5), dtype="f4")
            >>> with node.group() as group:
            ...     for grad in grads:
            ...         _ = node.all_reduce(grad)
            >>> len(group), grads.min(), grads.max()
            (3, 2.0, 2.0)"""

    @property
    def _tallies(self) -> Tallies: ...
    def _team(self) -> Team: ...
    @overload
    def all_reduce(
        self,
        arrays: _ArraysT,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT:
        """Reduces the arrays of all ranks element by element and gives every rank the result.

        Args:
            arrays: a list of one array per rank, or one array whose axis 0 is the rank: numpy arrays, or anything in CPU
                memory with DLPack or the buffer protocol. Any supported dtype and any strides; dtype and count are the same
                on every rank. Written on every rank, unless there is `out`.
            op: a name, or `nvcoll.premul_sum(scalars)`. Default: sum.
            algorithm: a name, an algorithm or a schedule. Default: one that folds in the order of ranks.
            out: where the results go, like `arrays`. Either it is the memory of `arrays`, rank by rank, or it shares no byte
                with it. No two written arrays share a byte.
            path: how ranks reach each other, mapped, staged or pushed.
            timeout: seconds that the call may take.

        Returns:
            `out` if it is given, else `arrays`.

        Raises:
            InvalidArgument: an array that cannot be used; the message names argument and rank. Nothing was written.
            Timeout, KeyboardInterrupt: the call ended early. Strided arrays are as they were; packed arrays that the call
                writes hold no particular values."""

    @overload
    def all_reduce(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
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
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> list[Any]:
        """Reduces the arrays of all ranks and gives rank r part r of the result.

        Args:
            arrays: one array per rank, of all parts, as in `all_reduce`. Read.
            counts: elements of each part, one number per rank, 0 allowed. Default: the length cut as numpy's `array_split` does.
            out: one array per rank, of its part. In place if each is part r of `arrays[r]`. Default: new arrays with the trailing axes of the input, of
                the kind of `arrays`.
            op, algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out`, or the list of new arrays.

        Raises:
            InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`."""

    @overload
    def reduce_scatter(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def all_gather(
        self,
        arrays: Any,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> list[Any]:
        """Gives every rank the arrays of all ranks, one after the other.

        Args:
            arrays: one array per rank, as in `all_reduce`; they may differ in length. Read.
            counts: elements of each array, one number per rank. Default: what the arrays hold.
            out: one array per rank, of all elements. In place if `arrays[r]` is part r of each. Default: new arrays with the trailing axes of the input, of
                the kind of `arrays`.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out`, or the list of new arrays.

        Raises:
            InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`."""

    @overload
    def all_gather(
        self,
        arrays: Any,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def broadcast(
        self,
        arrays: _ArraysT,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT:
        """Gives every rank the array of the root.

        Args:
            arrays: one array per rank, of one length, as in `all_reduce`. Read on the root, written elsewhere; with `out` only the
                root's is looked at.
            root: the rank whose array it is.
            out: one array per rank, written on every rank. Default: in place.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out` if it is given, else `arrays`.

        Raises:
            InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`."""

    @overload
    def broadcast(
        self,
        arrays: Any,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def reduce(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> Any:
        """Reduces the arrays of all ranks element by element and gives the root the result.

        Args:
            arrays: one array per rank, as in `all_reduce`. Written on the root, unless there is `out`; read elsewhere.
            root: the rank that has the result.
            out: the root's array. Default: in place.
            op, algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out` if it is given, else the root's array.

        Raises:
            InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`."""

    @overload
    def reduce(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
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
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> Any:
        """Gives the root the arrays of all ranks, one after the other.

        Args:
            arrays: one array per rank, as in `all_reduce`; they may differ in length. Read.
            root: the rank that has the result.
            counts: elements of each array, one number per rank. Default: what the arrays hold.
            out: the root's array, of all elements. In place if `arrays[root]` is its part. Default: a new array with the trailing axes of the input, of the
                kind of the root's.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out`, or the new array.

        Raises:
            InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`."""

    @overload
    def gather(
        self,
        arrays: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
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
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> list[Any]:
        """Gives rank r part r of the root's array.

        Args:
            arrays: the root's array, of all parts. Read.
            root: the rank whose array it is.
            counts: elements of each part, one number per rank, 0 allowed. Default: the length cut as numpy's `array_split` does.
            out: one array per rank, of its part. In place if the root's is its part of `arrays`. Default: new arrays with the trailing axes of the input,
                of the kind of `arrays`.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out`, or the list of new arrays.

        Raises:
            InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`."""

    @overload
    def scatter(
        self,
        arrays: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
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
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> list[Any]:
        """Gives rank r part r of the array of every rank, in the order of ranks.

        Args:
            arrays: one array per rank, of all that it sends, first what rank 0 receives. Read.
            counts: a table of numbers, one row per rank: row q is how many elements rank q sends to each rank, 0 allowed. Default:
                the length, the same on every rank, cut as numpy's `array_split` does.
            out: one array per rank, of all that it receives; never in place. Default: new arrays with the trailing axes of the input, of the kind of
                `arrays`.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out`, or the list of new arrays.

        Raises:
            InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`."""

    @overload
    def all_to_all(
        self,
        arrays: Any,
        *,
        counts: Sequence[Sequence[int]] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
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
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT:
        """Gives rank r the reduction of the arrays of ranks 0 to r.

        Args:
            arrays: one array per rank, as in `all_reduce`. Written, unless there is `out`.
            out: one array per rank, as in `all_reduce`. Default: in place.
            op: a name: all but avg and premul_sum. Default: sum.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out` if it is given, else `arrays`.

        Raises:
            InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`."""

    @overload
    def scan(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def exscan(
        self,
        arrays: _ArraysT,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT:
        """Gives rank r the reduction of the arrays of ranks 0 to r - 1; rank 0 receives nothing.

        Args:
            arrays: one array per rank, as in `all_reduce`. Written, unless there is `out`; that of rank 0 stays as it is.
            out: one array per rank, as in `all_reduce`; that of rank 0 is not looked at. Default: in place.
            op: a name: all but avg and premul_sum. Default: sum.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out` if it is given, else `arrays`.

        Raises:
            InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`."""

    @overload
    def exscan(
        self,
        arrays: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...

@final
class Group:
    """Calls that are launched as one. Made by `Node.group` and `Communicator.group`."""

    def __enter__(self) -> Group: ...
    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None, /
    ) -> Literal[False]: ...
    def __len__(self) -> int: ...
    def run(self, *, timeout: float | None = None) -> None:
        """Launches the calls of the group again, on the same arrays, which are read anew.

        A group keeps the memory of its arrays. Tensors of torch and other libraries that lend their memory through DLPack must
        not be resized while it lives: it cannot see that, and their library does not refuse to.

        Args:
            timeout: seconds that they may take together. Default: that of `group()`.

        Raises:
            InvalidArgument: a numpy array has moved, changed its shape or become read-only since the group was launched.
            Timeout, KeyboardInterrupt: as in `Node.all_reduce`.
            Busy: the group runs in another thread, or its `with` block has not ended."""

@final
class Plan:
    """A call with everything resolved: proof, kernels, addresses. Made by `Node.plan`."""

    @property
    def result(self) -> Any:
        """What a run writes: what the method of the collective would return. A new array holds zeros before the first run."""

    @property
    def tiles(self) -> int:
        """The number of tiles in which the plan passes over the data."""

    @property
    def algorithm(self) -> str:
        """The name of the algorithm that the plan runs: what `auto` chose, if none was named."""

    def run(self, *, timeout: float | None = None) -> None:
        """Runs the call on the arrays that the plan was made for, which are read anew.

        A plan keeps the memory of its arrays. Tensors of torch and other libraries that lend their memory through DLPack must
        not be resized while it lives: it cannot see that, and their library does not refuse to.

        Args:
            timeout: seconds that the call may take.

        Raises:
            InvalidArgument: a numpy array has moved, changed its shape or become read-only since the plan was made.
            Busy: the plan runs in another thread.
            Timeout, KeyboardInterrupt: as in `Node.all_reduce`."""

@final
class Tallies:
    """Counts the calls of a node by kind. Not public: `Node.report` tabulates it.

    It is filled while the node is used, and keeps nothing of the node alive."""

    @property
    def world_size(self) -> int:
        """The number of ranks of the node."""

    def calls(self) -> list[Calls]:
        """Returns the kinds of calls in the order of their first call. Calls that failed are not counted."""

    @property
    def others(self) -> int:
        """The number of calls that are not in `calls`, because there were too many kinds of them."""

@final
class Calls:
    """Counts the calls of one collective, algorithm, dtype, op, root, size and set of ranks. Not public."""

    @property
    def collective(self) -> str:
        """The name of the collective."""

    @property
    def root(self) -> int | None:
        """The rank in `ranks` that has or receives everything; None if the collective has none."""

    @property
    def algorithm(self) -> str:
        """The algorithm as the caller named it."""

    @property
    def dtype(self) -> str | None:
        """The name of the dtype; None in a barrier."""

    @property
    def op(self) -> str | None:
        """The name of the op; None if the collective reduces nothing."""

    @property
    def nbytes(self) -> int:
        """Bytes of the longest buffer that a rank brings; in a group, of all its calls of the kind."""

    @property
    def grouped(self) -> int:
        """The number of calls of a group that are counted as one; 1 outside of groups."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the run that took part, by rank in the call."""

    @property
    def times(self) -> int:
        """The number of times that such a call was made."""

    @property
    def schedule(self) -> Schedule:
        """The schedule that the first of these calls ran."""

@final
class Team:
    """The ranks of one `Node.run`. Not public.

    While a team lasts, the node itself can make no call."""

    def communicator(self, rank: int, timeout: float | None) -> Communicator:
        """The communicator of a rank; each rank has one."""

    def retire(self, comm: Communicator) -> None:
        """Ends the communicators of a rank whose program has returned: peers that make one more call are told so."""

    def fail(self, comm: Communicator) -> None:
        """Ends every call of every communicator that contains a rank, because its program failed."""

    def interrupt(self) -> None:
        """Ends every call of the run because the user interrupted the program."""

    def end(self) -> None:
        """Gives the node back."""

@final
class Communicator:
    """One rank's door to its peers: what `Node.run` passes to the program of a rank, for as long as that runs, and what
    `split` makes of it. One thread at a time may use a communicator; several threads of a rank may use one each."""

    @property
    def rank(self) -> int:
        """This rank, from 0."""

    @property
    def world_size(self) -> int:
        """The number of ranks."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the run that form this communicator, by their rank here: 0, 1, … unless it was split off."""

    def barrier(self, *, timeout: float | None = None) -> None:
        """Returns when every rank has called it."""

    @overload
    def split(self, color: int, key: int | None = None, *, timeout: float | None = None) -> Communicator:
        """Splits the ranks into groups, each with a communicator of its own; every rank must call it.

        Args:
            color: ranks of the same color, a whole number from 0, form a group. None: this rank joins no group.
            key: ranks of a group are ordered by it; those of the same key by their rank here.
            timeout: seconds that the call may take. Default: that of `Node.run`.

        Returns:
            The communicator of this rank's group; None without a color. It has numbers, calls and errors of its own, and
            the default timeout of this one. A mismatch, a timeout or `abort` ends the calls of the communicator in which
            it happens, not those of others; a rank whose program raises ends the calls of every communicator that it is in.
            It lasts as long as the program of its rank; a rank that drops it leaves it.

        Raises:
            InvalidArgument: a color or a key that is none; nothing was called.
            Mismatch, Aborted, Timeout: as in `all_reduce`.

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
    def group(self, *, timeout: float | None = None) -> Group:
        """Groups calls: those that are made in a `with` block of it are launched as one when the block ends; see `Node.group`.

        Every rank must make the same calls in it, in the same order. If the block raises, none of this rank's calls is made: its
        peers, which wait for them, get `Mismatch` when it makes another call or its program returns, `Aborted` when that raises.

        Args:
            timeout: seconds that each part of the group may take: calls by one algorithm are one part. Default: that of
                `Node.run`.

        Raises:
            Mismatch: at the end of the block; the message names the call in the group.
            InvalidArgument, Busy: as in `Node.group`."""

    def abort(self) -> None:
        """Ends every call of this communicator, now and later, on every rank: they raise `Aborted`, which names this rank.

        Any thread may call it, also while another is in a call. Other communicators of the same ranks stay usable: those
        that were split off this one, and the one that this was split off.

        Raises:
            Closed: the program of this rank has ended."""

    @overload
    def all_reduce(
        self,
        x: _ArraysT,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT:
        """Reduces `x` with the arrays that the other ranks pass, element by element; every rank must make the same call.

        Args:
            x: this rank's array, as in `Node.all_reduce`. Written, unless there is `out`.
            op: a name, or `nvcoll.premul_sum(scalar)` with the scalar of this rank. Default: sum.
            algorithm: a name, an algorithm or a schedule. Default: one that folds in the order of ranks.
            out: where the result goes: the memory of `x`, or no byte of it.
            path: how ranks reach each other, mapped, staged or pushed.
            timeout: seconds that the call may take. Default: that of `Node.run`.

        Returns:
            `out` if it is given, else `x`.

        Raises:
            Mismatch: another rank made a different call; the message names both.
            Aborted: the program of another rank failed, or a rank called `abort`.
            Timeout: the message says which ranks have not entered the call."""

    @overload
    def all_reduce(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def reduce_scatter(
        self,
        x: _ArraysT,
        op: _Op | None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT:
        """Reduces `x` with the arrays of the other ranks; this rank, r, receives part r of the result.

        Args:
            x: this rank's array, of all parts. Read.
            counts: elements of each part, one number per rank, the same on every rank. Default: the length cut as numpy's
                `array_split` does.
            out: this rank's part. In place if it is part r of `x`. Default: a new array with the trailing axes of the input, of the kind of `x`.
            op, algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out`, or the new array.

        Raises:
            InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`."""

    @overload
    def reduce_scatter(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def all_gather(
        self,
        x: _ArraysT,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT:
        """Gives every rank the arrays of all ranks, one after the other.

        Args:
            x: this rank's array. Read.
            counts: elements of each rank's array, one number per rank, the same on every rank. Default: as many as `x` on every rank.
            out: an array of all elements. In place if `x` is this rank's part of it. Default: a new array with the trailing axes of the input, of the kind
                of `x`.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out`, or the new array.

        Raises:
            InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`."""

    @overload
    def all_gather(
        self,
        x: Any,
        *,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def broadcast(
        self,
        x: _ArraysT,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT:
        """Gives every rank the array of the root.

        Args:
            x: this rank's array. Read on the root, written elsewhere; with `out` only the root's is looked at.
            root: the rank whose array it is.
            out: where the result goes, on every rank. Default: in place.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out` if it is given, else `x`.

        Raises:
            InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`."""

    @overload
    def broadcast(
        self,
        x: Any,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def reduce(
        self,
        x: _ArraysT,
        op: _Op | None = None,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT | None:
        """Reduces `x` with the arrays of the other ranks, element by element, and gives the root the result.

        Args:
            x: this rank's array. Written on the root, unless there is `out`; read elsewhere.
            root: the rank that has the result.
            out: on the root, where the result goes; elsewhere not looked at. Default: in place.
            op, algorithm, path, timeout: as in `all_reduce`.

        Returns:
            On the root `out` if it is given, else `x`; elsewhere None.

        Raises:
            InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`."""

    @overload
    def reduce(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        root: int = 0,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def gather(
        self,
        x: _ArraysT,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT | None:
        """Gives the root the arrays of all ranks, one after the other.

        Args:
            x: this rank's array. Read.
            root: the rank that has the result.
            counts: elements of each rank's array, one number per rank, the same on every rank. Default: as many as `x` on every rank.
            out: on the root, an array of all elements; in place if `x` is the root's part of it. Elsewhere not looked at. Default: a
                new array of one axis, of the kind of the root's `x`.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            On the root `out`, or the new array; elsewhere None.

        Raises:
            InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`."""

    @overload
    def gather(
        self,
        x: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def scatter(
        self,
        x: _ArraysT,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT:
        """Gives this rank, r, part r of the root's array.

        Args:
            x: on the root, the array of all parts. Read. Elsewhere None; without `out`, an array like the root's, which says dtype,
                kind and length, and is not read.
            root: the rank whose array it is.
            counts: elements of each part, one number per rank, the same on every rank. Default: the length of `x` cut as numpy's
                `array_split` does; a rank that passes only `out` takes all parts to be as long as that.
            out: this rank's part. On the root, in place if it is its part of `x`. Default: a new array with the trailing axes of the input, of the kind of
                `x`.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out`, or the new array.

        Raises:
            InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`."""

    @overload
    def scatter(
        self,
        x: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def all_to_all(
        self,
        x: _ArraysT,
        *,
        counts: Sequence[int] | Sequence[Sequence[int]] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT:
        """Gives this rank, r, part r of the array of every rank, in the order of ranks.

        Args:
            x: all that this rank sends, first what rank 0 receives. Read.
            counts: how many elements this rank sends to each rank, 0 allowed. Or, the same on every rank, a table whose row q is
                what rank q sends to each. Default: the length, the same on every rank, cut as numpy's `array_split` does.
            recv_counts: how many elements this rank receives from each rank, for a check, and only without a table.
            out: all that this rank receives; never in place. Default: a new array with the trailing axes of the input, of the kind of `x`.
            algorithm, path, timeout: as in `all_reduce`.

        A table needs no second call. Rows do: ranks tell each other theirs first, so all ranks pass rows or none.

        Returns:
            `out`, or the new array.

        Raises:
            Mismatch: as in `all_reduce`; or a rank does not receive what another sends it, on every rank.
            InvalidArgument, Aborted, Timeout: as in `all_reduce`."""

    @overload
    def all_to_all(
        self,
        x: Any,
        *,
        counts: Sequence[int] | Sequence[Sequence[int]] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def scan(
        self,
        x: _ArraysT,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT:
        """Reduces `x` with the arrays of the ranks before this one.

        Args:
            x: this rank's array. Written, unless there is `out`.
            out: where the result goes: the memory of `x`, or no byte of it.
            op: a name: all but avg and premul_sum. Default: sum.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out` if it is given, else `x`.

        Raises:
            InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`."""

    @overload
    def scan(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def exscan(
        self,
        x: _ArraysT,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: None = None,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT:
        """Reduces the arrays of the ranks before this one; rank 0 receives nothing.

        Args:
            x: this rank's array. Written, unless there is `out`; on rank 0 it stays as it is.
            out: where the result goes: the memory of `x`, or no byte of it. On rank 0 it stays as it is, and is given if it is on
                other ranks.
            op: a name: all but avg and premul_sum. Default: sum.
            algorithm, path, timeout: as in `all_reduce`.

        Returns:
            `out` if it is given, else `x`.

        Raises:
            InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`."""

    @overload
    def exscan(
        self,
        x: Any,
        op: _Op | None = None,
        *,
        algorithm: _Algorithm | None = None,
        out: _OutT,
        path: _Path = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...

@final
class Schedule:
    """The program of all ranks, for any count, dtype and op. Made by `nvcoll.schedule`, by an algorithm's `schedule` or by
    `parse`; `str` gives the text that `parse` reads."""

    @staticmethod
    def parse(text: str) -> Schedule:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument.
        To declare a static method, use this idiom:

             class C:
                 @staticmethod
                 def f(arg1, arg2, argN):
                     ...

        It can be called either on the class (e.g. C.f()) or on an instance
        (e.g. C().f()). Both the class and the instance are ignored, and
        neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++.
        For a more advanced concept, see the classmethod builtin."""

    @property
    def collective(self) -> str: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def world_size(self) -> int: ...
    @property
    def root(self) -> int:
        """The rank that has or receives everything; 0 if the collective has no root."""

    @property
    def path(self) -> str: ...
    @property
    def in_place(self) -> bool: ...
    @property
    def chunks(self) -> int: ...
    @property
    def steps(self) -> list[Step]:
        """All steps, in the author's order."""

    @property
    def step_count(self) -> int:
        """The number of all steps."""

    @property
    def pairs(self) -> int:
        """The number of ordered pairs of ranks between which bytes move."""

    @property
    def needs_switch(self) -> bool:
        """Whether a step asks a switch to reduce or to multicast."""

    @property
    def slots(self) -> int:
        """How many slots staging has; 0 where memory is mapped."""

    def lower(self, path: _Path | str, *, channels: int | None = None, slots: int | None = None) -> Schedule:
        """The schedule for another path.

        `channels` and `slots` are of the path `pushed`, by which NCCL runs: into how many slices every chunk is cut, each with
        queues of its own (default: 1), and how deep the FIFO is into which ranks push (default: 2; NCCL has 8)."""

    def diff(self, other: Schedule) -> str:
        """A line diff of the two text forms."""

    def cost(self) -> tuple[float, int]:
        """What a rank moves, in units of its buffer, on average; and the longest chain of waits."""

    def moved_by_busiest(self) -> float:
        """What the busiest rank moves, in units of its buffer."""

    def chunk_ranges(self, counts: int | Sequence[int]) -> list[tuple[int, int]]:
        """The boundaries of all chunks, counted from the start of their part. `counts` is the number of elements, cut as a call
        does, or a list of the numbers of every part."""

    def chunks_of(self, rank: int) -> tuple[list[int], list[int]]:
        """The chunks that the input and the output of a rank hold, in memory order."""

    def _repr_html_(self) -> str: ...
    def _repr_svg_(self) -> str | None: ...

@final
class Step:
    """One step of a schedule: folds its sources into its destinations, on one queue of one rank."""

    @property
    def rank(self) -> int: ...
    @property
    def queue(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def sources(self) -> list[tuple[int, str, int, int, int | None]]:
        """What is folded: (rank, buffer, first chunk, end of chunks, rank whose contribution it is)."""

    @property
    def destinations(self) -> list[tuple[int, str, int, int]]:
        """Where it goes: (rank, buffer, first chunk, end of chunks)."""

    @property
    def src(self) -> list[str]: ...
    @property
    def dst(self) -> list[str]: ...
    @property
    def is_final(self) -> bool: ...
    @property
    def at_switch(self) -> bool: ...
    @property
    def after(self) -> list[str]: ...

@final
class Proof:
    """What `nvcoll.verify` found."""

    @property
    def schedule(self) -> Schedule: ...
    @property
    def seconds(self) -> float: ...
    @property
    def is_rank_order(self) -> bool:
        """Whether every element is the left fold over ranks 0..n-1."""

    @property
    def order(self) -> str:
        """The order of the folds, the weakest over all chunks: rank, nested, own, or none where nothing is folded."""

    @property
    def steps(self) -> int:
        """The number of steps proved."""

    @property
    def cannot_run(self) -> str | None:
        """Why a node cannot run what was proved, on elements of four bytes: the limit and what to change; None if it can."""

    def expression(self, chunk: int) -> str:
        """The fold expression of a chunk."""

    def _repr_html_(self) -> str: ...

@final
class View:
    """Chunks of one buffer of one rank: a place, not a value. A later step that writes it changes what it holds."""

    @property
    def rank(self) -> int:
        """The rank whose memory it is."""

    def __eq__(self, value: object, /) -> bool: ...

@final
class Builder:
    """Records the sequential program of all ranks, step by step: a step sees what the steps before it have written.

    Views are places. In place, `output(r, c)` is the memory of `input(r, c)`: a step that writes it replaces the
    contribution of rank r. What must wait for what is derived from the order of the program."""

    def __new__(
        cls, collective: str, world_size: int, *, root: int | None = None, in_place: bool = False
    ) -> Builder: ...
    @property
    def root(self) -> int:
        """The rank that has or receives everything; 0 if the collective has no root."""

    @property
    def world_size(self) -> int:
        """The number of ranks."""

    @property
    def in_place(self) -> bool:
        """Whether input and output are the same memory."""

    @property
    def inputs(self) -> list[View]:
        """The whole input of every rank, by rank."""

    @property
    def outputs(self) -> list[View]:
        """The whole output of every rank, by rank."""

    def chunks(self, per_part: int) -> list[int]:
        """Cuts every part into `per_part` chunks and returns the indices of all chunks, part by part."""

    def channel(self, channel: int) -> None:
        """Makes the steps that follow belong to `channel`: an independent slice of the collective with queues of its own."""

    def input(self, rank: int, chunk: int | range) -> View:
        """Names a chunk, or a `range` of chunks, of a rank's input."""

    def output(self, rank: int, chunk: int | range) -> View:
        """Names a chunk, or a `range` of chunks, of a rank's output."""

    def scratch(self, rank: int, chunk: int | range, *, layer: int = 0) -> View:
        """Names a chunk, or a `range` of chunks, of a rank's scratch: memory for intermediate values, in layers as long as the data."""

    def fold(self, *views: View | Sequence[View], into: View | Sequence[View], at: str | None = None) -> View:
        """Folds views, in the order listed, into every view of `into`; returns the first of them.

        `at="switch"`: a fabric with the ability does the step in the switch."""

    def copy(self, view: View, into: View | Sequence[View], *, at: str | None = None) -> View:
        """Copies a view into every view of `into`; returns the first of them. `at` as in `fold`."""

    def push(self, view: View, into: View | Sequence[View]) -> View:
        """Copies a view into every view of `into`, executed by the rank that has it; returns the first of `into`."""

    def groups(self, per_group: int | None = None, *, stride: int | None = None) -> list[list[int]]:
        """The groups of `per_group` neighbouring ranks, or of the ranks that are `stride` apart."""

    def reduce_scatter(
        self, views: Sequence[View], *, over: Sequence[Sequence[int]], algorithm: Any = "auto"
    ) -> list[View]:
        """Reduces each group's views and leaves member i the i-th share; returns the shares, by rank."""

    def all_reduce(
        self, views: Sequence[View], *, over: Sequence[Sequence[int]], algorithm: Any = "auto"
    ) -> list[View]:
        """Reduces each group's views and leaves every member the whole; returns it, by rank."""

    def all_gather(
        self, views: Sequence[View], *, into: Sequence[View], over: Sequence[Sequence[int]], algorithm: Any = "auto"
    ) -> list[View]:
        """Collects each group's shares into `into` on every member; returns it, by rank."""

    def finish(self, name: str) -> Schedule:
        """Derives queues and dependencies and returns the mapped schedule; its name is a word of the text form."""

    def fail_at(self, step: int, message: str) -> None:
        """Makes the call that records this step raise BuildError: what `finish` found wrong with it, at its line."""

def schedule(
    collective: str,
    algorithm: Any,
    *,
    world_size: int,
    root: int | None = None,
    path: _Path | str = "mapped",
    in_place: bool | None = None,
) -> Schedule:
    """Builds the schedule of an algorithm, by name or written in Python, lowered to `path`.

    `in_place=True`, as in `Node.all_reduce` without `out`, lets an algorithm use that input and output are one memory; it is
    the default where the collective can be in place. A schedule runs only calls of its own kind."""

def verify(schedule: Schedule) -> Proof:
    """Proves that a schedule gives the promised result, without race or deadlock, for any count.

    Raises:
        Refuted: it does not; `places` names the steps that meet, `missing` what would have to be added, or None."""

def why(schedules: Sequence[Schedule]) -> str:
    """Explains in one line what each schedule moves, and how long its chain of waits is."""

def cost_model() -> CostModel:
    """Returns the model by which `auto` chooses."""

def auto_candidates(collective: str) -> list[str]:
    """The algorithms that `auto` chooses from, the default first."""

MAX_WORLD_SIZE: int
MAX_RUNNING_RANKS: int

def algorithms() -> list[AlgorithmRow]:
    """Returns all registered algorithms."""

def algorithm_parameters(collective: str, name: str) -> list[ParameterRow]:
    """Returns the parameters of a registered algorithm."""

def collectives() -> list[CollectiveRow]:
    """Returns all collectives."""

def parse_size(text: str) -> int:
    """Returns the bytes that a size names: `64K`, `16MiB`, `140GB`.

    Raises:
        InvalidArgument: the text is no size, or more than any machine has."""

def bus_factor(collective: str, world_size: int) -> float:
    """Returns busbw / algbw of a collective among `world_size` ranks, as nccl-tests defines it."""

def dtypes() -> list[DtypeRow]:
    """Returns all dtypes."""

def ops() -> list[OpRow]:
    """Returns all ops."""

def machine() -> dict[str, Any]:
    """What this machine offers."""

def roofline(arrays: Any, threads: int, *, non_temporal: bool = False) -> float:
    """Sums float32 arrays in place by the hand-written loop of `threads` threads; returns seconds."""

@final
class Fabric:
    """A machine, or several with a network between them: devices, links, and what they are able to do.

    Made by :func:`fabric`, :meth:`from_text`, :meth:`from_file` and :func:`cluster`. Ranks are its GPUs. Rates are decimal GB/s, one direction."""

    @staticmethod
    def from_text(text: str, *, gpu: str | None = None) -> Fabric:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument.
        To declare a static method, use this idiom:

             class C:
                 @staticmethod
                 def f(arg1, arg2, argN):
                     ...

        It can be called either on the class (e.g. C.f()) or on an instance
        (e.g. C().f()). Both the class and the instance are ignored, and
        neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++.
        For a more advanced concept, see the classmethod builtin."""

    @staticmethod
    def from_file(path: str | PathLike[str], *, gpu: str | None = None) -> Fabric:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument.
        To declare a static method, use this idiom:

             class C:
                 @staticmethod
                 def f(arg1, arg2, argN):
                     ...

        It can be called either on the class (e.g. C.f()) or on an instance
        (e.g. C().f()). Both the class and the instance are ignored, and
        neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++.
        For a more advanced concept, see the classmethod builtin."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def title(self) -> str:
        """What it is, in a few words."""

    @property
    def gpu(self) -> str:
        """The model of its GPUs."""

    @property
    def world_size(self) -> int:
        """The number of GPUs."""

    @property
    def nodes(self) -> int:
        """The number of nodes."""

    @property
    def trust(self) -> str:
        """How its predictions of all_reduce are known, at the sizes of which most is: `validated on k systems` or `not validated`."""

    @property
    def sources(self) -> list[str]:
        """Where its numbers are from."""

    @property
    def abilities(self) -> list[str]:
        """What it can do: `peer_access`, `multicast`, `switch_folds`, `gpu_direct`."""

    @property
    def devices(self) -> list[tuple[str, str, int | None, int]]:
        """Its devices: (name, kind, node or None, chips)."""

    @property
    def links(self) -> list[tuple[str, str, str, int, float, float]]:
        """Its links, each of one direction: (from, to, medium, lanes, GB/s at line rate, GB/s that a long transfer reaches)."""

    def matrix(self, *, first: int | None = None) -> list[list[str]]:
        """The matrix of ``nvidia-smi topo -m``: how each pair of GPUs is joined.

        Args:
            first: int or None; rows and columns of the first GPUs only, of all if None.

        Raises:
            InvalidArgument: `first` is no whole number, or negative."""

    def route(self, source: int, target: int) -> tuple[list[str], str]:
        """The devices that a transfer from one rank to another passes, and how it goes."""

    def alone(self, *, first: int | None = None) -> list[list[float]]:
        """GB/s of each pair when nothing else moves; row `from`, column `to`, NaN on the diagonal.

        Args:
            first: int or None; rows and columns of the first GPUs only, of all if None.

        Raises:
            InvalidArgument: `first` is no whole number, or negative."""

    def at_once(self, *, first: int | None = None) -> list[list[float]]:
        """GB/s of each pair when every pair of all GPUs sends, both ways; row `from`, column `to`, NaN on the diagonal.

        Args:
            first: int or None; rows and columns of the first GPUs only, of all if None.

        Raises:
            InvalidArgument: `first` is no whole number, or negative."""

    def port_rates(self) -> tuple[float, float | None]:
        """GB/s at line rate, one way: of the links from the first GPU to the others of its node (to the host if NVLink does not
        join all of them), and of its share of the node's network cards, or None on one node."""

    def cut(self, ranks: Sequence[int]) -> float:
        """GB/s that can leave these ranks for the others, one way.

        Raises:
            InvalidArgument: no rank is named, one does not exist, or one is named twice."""

    @overload
    def floor(self, collective: str, nbytes: _Size) -> float:
        """The least time in microseconds of a collective of `nbytes` (as nccl-tests counts them), whatever the schedule.

        Args:
            collective: as all_reduce.
            nbytes: bytes, or a size such as `"64K"` or `"1G"`; or any number of them: then a list is returned.

        Raises:
            InvalidArgument: no collective is called so, or it has no floor."""

    @overload
    def floor(self, collective: str, nbytes: _Sizes) -> list[float]: ...
    @overload
    def nccl(self, collective: str, nbytes: _Size, *, version: str | None = None) -> NcclEstimate:
        """Returns what NCCL's tuning model selects for a collective among all GPUs, and its estimate.

        It is a port of the public source. It answers *what would NCCL do*, not *how long will it take*: the model has no
        term for launching a call nor for filling a pipeline. Where it is known to be off stands in the Rust module `nvcoll_fabric::nccl`. The model is
        made once for all sizes, without the GIL.

        Args:
            collective: all_reduce, all_gather, reduce_scatter, broadcast or reduce: NCCL has no model of others.
            nbytes: bytes, or a size such as `"1G"`, or any number of them; as nccl-tests counts them: of all ranks together for all_gather
                and reduce_scatter.
            version: of NCCL, as ``2.27.7`` or ``2.27``; the newest whose constants are known if None. A version has the
                constants of the newest known one that is not newer.

        Returns:
            An `NcclEstimate`; for a sequence, a list of them in its order.

        Raises:
            InvalidArgument: no collective is called so, or NCCL has no model of it; a size or version that cannot be;
                GPUs or links that NCCL does not know.

        Source: github.com/NVIDIA/nccl, src/graph/tuning.cc and search.cc, at the tags of ``versions.toml``."""

    @overload
    def nccl(self, collective: str, nbytes: _Sizes, *, version: str | None = None) -> list[NcclEstimate]: ...
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
    ) -> Prediction:
        """Predicts how long a collective of NCCL takes among all GPUs.

        NCCL's tuning model selects the algorithm; closed forms over physical constants give the time. The constants and
        their accuracy are in ``docs/predictions.md``.

        Args:
            collective: all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter; or sendrecv,
                nccl-tests' own.
            nbytes: bytes, or a size such as `"1G"`, or any number of them; as nccl-tests counts them: of all ranks together for all_gather
                and reduce_scatter.
            launch: ``process_per_gpu``; ``single_process``: one for all GPUs of a node; ``framework``: from torch or its like.
            algorithm: of NCCL, as ``Ring``; what its formula takes if None.
            protocol: of NCCL, as ``LL``; the fastest if None.
            version: of NCCL, as ``2.27.7``; the newest whose constants are known if None.

        Returns:
            A `Prediction`; for a sequence, a list of them in its order. A fabric remembers what does not depend on the size.

        Raises:
            InvalidArgument: no collective, launch, algorithm, protocol or version is called so; what is forced is not
                possible there; the fabric has one GPU, or nodes that are not alike."""

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
    ) -> list[Prediction]: ...
    @overload
    def simulate(
        self,
        schedule: Schedule | Algorithm | str,
        nbytes: _Size,
        *,
        collective: str | None = None,
        dtype: str = "float32",
        protocol: str = "simple",
        slice_bytes: int | None = None,
        spans: bool = False,
        sharing: str = "max_min",
        at_switch: str = "refuse",
        launch: str | None = None,
        starts: Sequence[float] | Mapping[int, float] | None = None,
        slowdowns: Sequence[float] | Mapping[int, float] | None = None,
        damage: Mapping[tuple[str, str], float] | None = None,
    ) -> Timeline:
        """Runs a schedule in virtual time: any schedule, moving no bytes. The first GPUs are its ranks. It proves nothing:
        a schedule that :func:`verify` refutes has a time too.

        Time is whole picoseconds inside: the same input gives the same output on every machine. It runs without the GIL
        and ends on Ctrl-C. Without `launch`, what a step costs besides its bytes are the constants of the protocol, which are
        NCCL's latencies and not fitted: it compares schedules, and does not say what a call would take.
        For several sizes routes are found once, unless `launch` is given.

        Args:
            schedule: a `Schedule` for as many ranks as the fabric has GPUs, or fewer; an algorithm for all of its GPUs:
                one written in Python, or the name of one of `collective`.
            nbytes: bytes, or a size such as `"1M"`, or any number of them; of a rank's longer buffer, as nccl-tests counts them; multiples of
                the dtype's bytes.
            collective: of which collective an algorithm is that is a name; None for others.
            dtype: name of the dtype of the elements.
            protocol: ``ideal`` (links and nothing else), ``ll``, ``ll128`` or ``simple``.
            slice_bytes: int; bytes of every chunk that one pass of the schedule moves; 1 MiB if None.
            spans: whether to keep every step in every tile.
            sharing: ``max_min`` (transfers share links fairly) or ``fifo`` (a link serves one after the other).
            at_switch: what becomes of steps that ask for a switch where none can do them: ``refuse``, or ``ignore`` (ranks
                do them point to point).
            launch: None, or how the program launches its calls, as of :meth:`predict`: then rates, latencies and what a call
                takes before its first step are the fitted constants of :meth:`predict`, and a ring takes what it predicts.
            starts: when ranks enter, in microseconds: a number for each rank, or a mapping from some ranks, the others enter
                at 0.
            slowdowns: how many times as long the steps of ranks take as they would alone, 1 or more: a number for each rank,
                or a mapping from some ranks.
            damage: what is left of links, from 1 to 0, which cuts them, so that routes go round: a mapping from pairs of
                names in `devices`, as ``{("gpu0", "nvswitch"): 0.5}``. It holds in both directions, unless the pair is
                there in the other order too.

        Returns:
            A `Timeline`; for a sequence, a list of them in its order.

        Raises:
            InvalidArgument: nothing is called so; a number that cannot be; fewer GPUs than ranks; a step at a switch where
                there is none; no path; more steps than can be kept.
            BuildError: the waits of the schedule make a circle, or an algorithm broke a rule of the builder."""

    @overload
    def simulate(
        self,
        schedule: Schedule | Algorithm | str,
        nbytes: _Sizes,
        *,
        collective: str | None = None,
        dtype: str = "float32",
        protocol: str = "simple",
        slice_bytes: int | None = None,
        spans: bool = False,
        sharing: str = "max_min",
        at_switch: str = "refuse",
        launch: str | None = None,
        starts: Sequence[float] | Mapping[int, float] | None = None,
        slowdowns: Sequence[float] | Mapping[int, float] | None = None,
        damage: Mapping[tuple[str, str], float] | None = None,
    ) -> list[Timeline]: ...
    def among(self, ranks: Sequence[int]) -> Fabric:
        """Some of its GPUs, which are the ranks in this order.

        Raises:
            InvalidArgument: no rank is named, one does not exist, or one is named twice."""

    def _repr_svg_(self) -> str | None: ...
    def __eq__(self, other: object, /) -> bool: ...

@final
class Prediction:
    """The predicted time of a call of one size. Made by :meth:`Fabric.predict`; `print` shows it in one line."""

    @property
    def fabric(self) -> str:
        """The name of the fabric."""

    @property
    def collective(self) -> str:
        """The name of the collective."""

    @property
    def nbytes(self) -> int:
        """The size, as nccl-tests counts it."""

    @property
    def launch(self) -> str:
        """How the call is launched, as of :meth:`Fabric.predict`."""

    @property
    def algorithm(self) -> str:
        """The algorithm as NCCL prints it: `Ring`, `Tree`, `NVLS`, `NVLSTree`; `SendRecv` for what it builds of sends and receives."""

    @property
    def protocol(self) -> str:
        """The protocol as NCCL prints it: `LL`, `LL128`, `Simple`."""

    @property
    def channels(self) -> int | None:
        """The most channels that NCCL gives the call; None if it does not know the machine, and for sends and receives."""

    @property
    def time_us(self) -> float:
        """The predicted time in microseconds; never less than the lower bound."""

    @property
    def low_us(self) -> float:
        """The lower end of the 90 % interval, in microseconds."""

    @property
    def high_us(self) -> float:
        """The upper end of the 90 % interval, in microseconds."""

    @property
    def algbw(self) -> float:
        """Bytes over the time, decimal GB/s."""

    @property
    def busbw(self) -> float:
        """algbw times nccl-tests' factor, decimal GB/s."""

    @property
    def floor_us(self) -> float:
        """The lower bound in microseconds: no schedule takes less."""

    @property
    def nccl_us(self) -> float | None:
        """The estimate of NCCL's own tuning model, in microseconds; None where it has no model or is at its last resort."""

    @property
    def bottleneck(self) -> str:
        """The part of the machine that takes most of the time, in words."""

    @property
    def parts(self) -> list[tuple[str, float]]:
        """The parts of the time: (name, microseconds). They add up to `time_us`."""

    @property
    def trust(self) -> str:
        """The accuracy of predictions of such sizes on such machines, as `validated on 9 systems` or `not validated`."""

    @property
    def choice(self) -> str:
        """What chooses the algorithm: NCCL's cost model, or rings, with the reason."""

@final
class Trial:
    """Predicts the same calls of one fabric for many sets of constants, for `tools/fit.py`. Not public.

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
    ) -> Trial: ...
    @property
    def fabric_class(self) -> str:
        """The class, in the table of measurements, to which the fabric belongs."""

    @property
    def nodes(self) -> int:
        """The number of nodes; GPUs that an NVSwitch joins are one node."""

    def limits(self) -> list[str]:
        """Returns, for each call, what joins the GPUs of a node and what takes most of the time."""

    def times(self, values: Mapping[str, float]) -> list[float]:
        """Predicts each call in microseconds with other values of constants, without lower bound and interval."""

def patterns() -> list[PatternRow]:
    """Returns the patterns that predictions know."""

def launch_named(name: str) -> str:
    """Returns the name of a launch; raises InvalidArgument if none is called so."""

def constants_of_predictions() -> list[ConstantRow]:
    """Returns the constants of predictions."""

@final
class NcclEstimate:
    """The algorithm that NCCL's tuning model selects for a call of one size, and its estimate. Made by :meth:`Fabric.nccl`."""

    @property
    def nbytes(self) -> int:
        """The size, as nccl-tests counts it."""

    @property
    def tag(self) -> str:
        """The tag of NCCL whose constants these are, as `v2.27.7-1`."""

    @property
    def is_last_resort(self) -> bool:
        """Whether NCCL found no ring here and runs one channel as a last resort: then its estimates mean nothing."""

    @property
    def candidates(self) -> list[NcclCandidate]:
        """The candidates: the selected one first, then the others by estimate, at last those that are not considered."""

    @property
    def chosen(self) -> NcclCandidate:
        """The candidate that NCCL selects: the first one."""

@final
class NcclCandidate:
    """An algorithm and a protocol that NCCL weighs for a call of one size."""

    @property
    def algorithm(self) -> str:
        """The algorithm as NCCL prints it: `Tree`, `Ring`, `NVLS`, `NVLSTree`, `PAT`."""

    @property
    def protocol(self) -> str:
        """The protocol as NCCL prints it: `LL`, `LL128`, `Simple`."""

    @property
    def channels(self) -> int:
        """The most channels that the call has; 0 if the pair is not considered."""

    @property
    def time_us(self) -> float | None:
        """NCCL's own estimate, in microseconds; None if the pair is not considered."""

    @property
    def algbw(self) -> float | None:
        """Bytes over the estimate, decimal GB/s; None if there is no estimate or it is 0."""

    @property
    def busbw(self) -> float | None:
        """algbw times nccl-tests' factor, decimal GB/s."""

    @property
    def why_disabled(self) -> str | None:
        """The reason why the pair is not considered; None if it is."""

@final
class Timeline:
    """A schedule in virtual time: when each rank left, what each link did, what the end was waiting for.

    Made by :meth:`Fabric.simulate`. Times are microseconds from 0, when the first rank enters unless `starts` says else."""

    @property
    def time_us(self) -> float:
        """The time at which the last rank left, in microseconds."""

    @property
    def end_us(self) -> list[float]:
        """The time at which each rank left, in microseconds."""

    @property
    def links(self) -> list[tuple[str, str, int, float]]:
        """For each link of one direction: (from, to, bytes that crossed it, the protocol's included, busy microseconds)."""

    @property
    def memory_bytes(self) -> list[int]:
        """For each rank, the bytes that its own steps read from and wrote to its memory."""

    @property
    def bottleneck(self) -> str:
        """The links and latencies on which the time is spent, the most first: `62 % of the time is gpu3 -> nvswitch, 21 % latency`."""

    @property
    def tiles(self) -> int:
        """The number of tiles: how often the schedule passed over the data."""

    @property
    def spans(self) -> list[tuple[int, int, int, int, float, float]] | None:
        """Every step in every tile by rank, queue and time: (rank, queue, step, tile, start and end in microseconds); None
        unless asked for."""

    @property
    def schedule(self) -> str:
        """The schedule, in words."""

    @property
    def fabric(self) -> str:
        """The name of the fabric."""

    @property
    def critical(self) -> list[CriticalPiece]:
        """The critical path: what the end was waiting for, in order of time; each piece begins where the one before ends."""

    @property
    def steps(self) -> list[Step]:
        """The steps of the schedule, in the author's order."""

    def _ways(self) -> tuple[list[int], list[tuple[float, list[int]]]]: ...
    def trace(self) -> dict[str, Any]:
        """Returns the timeline as Perfetto and Chrome (`chrome://tracing`) read it: a process for each rank, a thread for each queue.

        Returns:
            A dict that `json` can write. `traceEvents` has an event for every step in every tile, in microseconds, the
            critical path as a process of its own, and for each link a counter of the steps whose bytes are on it;
            `otherData` says what ran where, and what each link moved.

        Raises:
            InvalidArgument: spans were not kept."""

    def save_trace(self, path: str | PathLike[str]) -> None:
        """Writes :meth:`trace` to a file, which <https://ui.perfetto.dev> opens.

        Args:
            path: str or path; the file is made or replaced.

        Raises:
            InvalidArgument: spans were not kept.
            OSError: the file cannot be written."""

    def to_svg(self, *others: Timeline) -> str:
        """Draws the timeline, and others below it on the same clock.

        Args:
            others: any number of timelines.

        Returns:
            A self-contained SVG document: ranks as rows, a bar for each step on a line for each queue.

        Raises:
            InvalidArgument: spans were not kept."""

    def _repr_svg_(self) -> str | None: ...

@final
class CriticalPiece:
    """A piece of the critical path: who waits or works, when, and what passes the time."""

    @property
    def rank(self) -> int:
        """The rank that waits or works."""

    @property
    def queue(self) -> int | None:
        """The queue of that rank; None where the rank leaves the call."""

    @property
    def step(self) -> int | None:
        """The step in that queue; None where the rank leaves the call."""

    @property
    def tile(self) -> int:
        """The number of the tile."""

    @property
    def start_us(self) -> float:
        """The time at which the piece begins, in microseconds."""

    @property
    def end_us(self) -> float:
        """The time at which the piece ends, in microseconds."""

    @property
    def reason(self) -> str:
        """The reason why time passes: `starting` (the call, before ranks enter), `entering` (`other` has not entered), `signal` (that of `other` is on the way), `fixed` (what
        every step costs), `latency`, `link` (bytes over the narrowest), `shared_link`, `memory` (of `other`),
        `shared_memory`, or `moving` (link after link: sharing `fifo` does not tell them apart)."""

    @property
    def link(self) -> tuple[str, str] | None:
        """The link, as the names of its ends; None if it is no link."""

    @property
    def users(self) -> int | None:
        """The number of transfers that shared the link or the memory; None if it was not shared."""

    @property
    def other(self) -> int | None:
        """The rank that was waited for, or whose memory it is."""

    @property
    def words(self) -> str:
        """The piece as a sentence."""

def nccl_versions() -> list[str]:
    """Returns the versions of NCCL whose constants are known, from the oldest."""

def fabric(name: str) -> Fabric:
    """A machine by name: one that is shipped, some of its GPUs (`hgx-h100[0-3]`), or nodes and a network
    (`hgx-h100x4+ib-ndr-8`), as :func:`cluster` joins them.

    Raises:
        InvalidArgument: no machine is called so; the message has the nearest."""

def fabrics() -> list[Fabric]:
    """Every machine that is shipped."""

@final
class TextFormat:
    """A format of text that describes a machine. Made by :func:`text_formats`; :meth:`Fabric.from_text` reads them all."""

    @property
    def name(self) -> str:
        """The name of the format, as ``nvidia-smi topo -m``."""

    @property
    def ending(self) -> str:
        """The usual end of the names of such files, as ``.txt``."""

    @property
    def needs_gpu(self) -> bool:
        """Whether the caller has to say the model of the GPUs."""

def text_formats() -> list[TextFormat]:
    """Every format of text that describes a machine."""

def cluster(node: str | Fabric, *, nodes: int, network: str) -> Fabric:
    """`nodes` nodes of one kind with a network between them.

    Args:
        node: the name of a machine, or a `Fabric` of one node.
        nodes: how many.
        network: the name of a network, as `ib-ndr-8`: eight ports of InfiniBand NDR per node.

    Raises:
        InvalidArgument: a name that is unknown, or a node to which no NIC can be attached."""

def networks() -> list[NetworkRow]:
    """Returns every network that can lie between nodes."""

def media() -> list[MediumRow]:
    """Returns every medium of which links are made."""

def gpus() -> list[GpuRow]:
    """Returns every model of GPU."""
