from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar, final, overload

from typing_extensions import disjoint_base

from nvcoll.algorithms import Algorithm

__version__: str

_ArraysT = TypeVar("_ArraysT")
_OutT = TypeVar("_OutT")
_Size: TypeAlias = int | float | str
_Sizes: TypeAlias = list[_Size] | tuple[_Size, ...] | Iterable[int | float]

class Error(Exception): ...
class InvalidArgument(Error, ValueError): ...
class BuildError(Error): ...

class Refuted(Error):
    places: tuple[str, ...]
    missing: str | None

class Mismatch(Error): ...
class Aborted(Error): ...
class Timeout(Error, TimeoutError): ...
class Busy(Error, RuntimeError): ...
class Closed(Error, RuntimeError): ...

class AlgorithmRow(NamedTuple):
    collective: str
    name: str
    order: str
    summary: str
    source: str

class ParameterRow(NamedTuple):
    name: str
    choices: str
    default: str
    summary: str

class CollectiveRow(NamedTuple):
    name: str
    summary: str
    has_root: bool
    can_be_in_place: bool
    folds: str

class DtypeRow(NamedTuple):
    name: str
    nbytes: int
    kind: str
    accumulator: str

class OpRow(NamedTuple):
    name: str
    dtypes: list[str]

class NetworkRow(NamedTuple):
    name: str
    title: str
    gbps: float
    source: str

class MediumRow(NamedTuple):
    name: str
    title: str
    family: str
    lane_gbps: float
    efficiency: float
    latency_ns: int
    source: str

class GpuRow(NamedTuple):
    name: str
    title: str
    nvlink: str | None
    nvlinks: int
    pcie: str
    pcie_lanes: int
    memory_gbps: float
    source: str

class ConstantRow(NamedTuple):
    name: str
    value: float
    unit: str
    kind: str
    low: float
    high: float
    source: str

class PatternRow(NamedTuple):
    name: str
    is_of_sends: bool

class CoefficientRow(NamedTuple):
    name: str
    per_second: float

class CostModel(NamedTuple):
    modes: list[str]
    coefficients: list[CoefficientRow]
    most_ranks: int

class CandidateRow(NamedTuple):
    algorithm: str
    moved_bytes: float
    waits: int
    steps: int
    terms: list[float]
    seconds: float

class AutoChoice(NamedTuple):
    algorithm: str
    why: str
    candidates: list[CandidateRow]

@final
class PremulSum: ...

def premul_sum(scalars: float | Sequence[float]) -> PremulSum: ...

@disjoint_base
class Node:
    def __new__(
        cls,
        world_size: int,
        *,
        workers: int | None = None,
        isa: str | None = None,
        tuning: str | PathLike[str] | None = None,
    ) -> Self: ...
    @property
    def world_size(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def tuning(self) -> dict[str, Any]: ...
    def estimates(
        self,
        collective: str,
        count: int,
        dtype: str = "float32",
        *,
        root: int | None = None,
        path: str = "mapped",
        in_place: bool = True,
        by_rank: bool = False,
    ) -> AutoChoice: ...
    def all_reduce(
        self,
        arrays: _ArraysT,
        op: str | PremulSum | None = None,
        *,
        algorithm: Any = None,
        out: Any = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT: ...
    @overload
    def reduce_scatter(
        self,
        arrays: Any,
        op: str | PremulSum | None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> list[Any]: ...
    @overload
    def reduce_scatter(
        self,
        arrays: Any,
        op: str | PremulSum | None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def all_gather(
        self,
        arrays: Any,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> list[Any]: ...
    @overload
    def all_gather(
        self,
        arrays: Any,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def broadcast(
        self,
        arrays: _ArraysT,
        *,
        root: int = 0,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT: ...
    @overload
    def broadcast(
        self,
        arrays: Any,
        *,
        root: int = 0,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def reduce(
        self,
        arrays: Any,
        op: str | PremulSum | None = None,
        *,
        root: int = 0,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    def reduce(
        self,
        arrays: Any,
        op: str | PremulSum | None = None,
        *,
        root: int = 0,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def gather(
        self,
        arrays: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    def gather(
        self,
        arrays: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def scatter(
        self,
        arrays: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> list[Any]: ...
    @overload
    def scatter(
        self,
        arrays: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def all_to_all(
        self,
        arrays: Any,
        *,
        counts: Sequence[Sequence[int]] | None = None,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> list[Any]: ...
    @overload
    def all_to_all(
        self,
        arrays: Any,
        *,
        counts: Sequence[Sequence[int]] | None = None,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def scan(
        self,
        arrays: _ArraysT,
        op: str | PremulSum | None = None,
        *,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT: ...
    @overload
    def scan(
        self,
        arrays: Any,
        op: str | PremulSum | None = None,
        *,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def exscan(
        self,
        arrays: _ArraysT,
        op: str | PremulSum | None = None,
        *,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT: ...
    @overload
    def exscan(
        self,
        arrays: Any,
        op: str | PremulSum | None = None,
        *,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    def barrier(self, *, timeout: float | None = None) -> None: ...
    def plan(
        self,
        collective: str,
        arrays: Any = None,
        op: str | PremulSum | None = None,
        *,
        root: int | None = None,
        counts: Sequence[int] | Sequence[Sequence[int]] | None = None,
        algorithm: Any = None,
        out: Any = None,
        path: str = "mapped",
    ) -> Plan: ...
    def group(self, *, timeout: float | None = None) -> Group: ...
    @property
    def tallies(self) -> Tallies: ...
    def team(self) -> Team: ...

@final
class Group:
    def __enter__(self) -> Group: ...
    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None, /
    ) -> Literal[False]: ...
    def __len__(self) -> int: ...
    def run(self, *, timeout: float | None = None) -> None: ...

@final
class Plan:
    @property
    def result(self) -> Any: ...
    @property
    def tiles(self) -> int: ...
    @property
    def algorithm(self) -> str: ...
    def run(self, *, timeout: float | None = None) -> None: ...

@final
class Tallies:
    @property
    def world_size(self) -> int: ...
    def calls(self) -> list[Calls]: ...
    @property
    def others(self) -> int: ...

@final
class Calls:
    @property
    def collective(self) -> str: ...
    @property
    def root(self) -> int | None: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def dtype(self) -> str | None: ...
    @property
    def op(self) -> str | None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def grouped(self) -> int: ...
    @property
    def ranks(self) -> tuple[int, ...]: ...
    @property
    def times(self) -> int: ...
    @property
    def schedule(self) -> Schedule: ...

@final
class Team:
    def communicator(self, rank: int, timeout: float | None) -> Communicator: ...
    def retire(self, comm: Communicator) -> None: ...
    def fail(self, comm: Communicator) -> None: ...
    def interrupt(self) -> None: ...
    def end(self) -> None: ...

@final
class Communicator:
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def ranks(self) -> tuple[int, ...]: ...
    def all_reduce(
        self,
        x: _ArraysT,
        op: str | PremulSum | None = None,
        *,
        algorithm: Any = None,
        out: Any = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT: ...
    @overload
    def reduce_scatter(
        self,
        x: _ArraysT,
        op: str | PremulSum | None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT: ...
    @overload
    def reduce_scatter(
        self,
        x: Any,
        op: str | PremulSum | None = None,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def all_gather(
        self,
        x: _ArraysT,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT: ...
    @overload
    def all_gather(
        self,
        x: Any,
        *,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def broadcast(
        self,
        x: _ArraysT,
        *,
        root: int = 0,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT: ...
    @overload
    def broadcast(
        self,
        x: Any,
        *,
        root: int = 0,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def reduce(
        self,
        x: _ArraysT,
        op: str | PremulSum | None = None,
        *,
        root: int = 0,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT | None: ...
    @overload
    def reduce(
        self,
        x: Any,
        op: str | PremulSum | None = None,
        *,
        root: int = 0,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT | None: ...
    @overload
    def gather(
        self,
        x: _ArraysT,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT | None: ...
    @overload
    def gather(
        self,
        x: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT | None: ...
    @overload
    def scatter(
        self,
        x: _ArraysT,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT: ...
    @overload
    def scatter(
        self,
        x: Any,
        *,
        root: int = 0,
        counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def all_to_all(
        self,
        x: _ArraysT,
        *,
        counts: Sequence[int] | Sequence[Sequence[int]] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT: ...
    @overload
    def all_to_all(
        self,
        x: Any,
        *,
        counts: Sequence[int] | Sequence[Sequence[int]] | None = None,
        recv_counts: Sequence[int] | None = None,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def scan(
        self,
        x: _ArraysT,
        op: str | PremulSum | None = None,
        *,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT: ...
    @overload
    def scan(
        self,
        x: Any,
        op: str | PremulSum | None = None,
        *,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    @overload
    def exscan(
        self,
        x: _ArraysT,
        op: str | PremulSum | None = None,
        *,
        algorithm: Any = None,
        out: None = None,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _ArraysT: ...
    @overload
    def exscan(
        self,
        x: Any,
        op: str | PremulSum | None = None,
        *,
        algorithm: Any = None,
        out: _OutT,
        path: str = "mapped",
        timeout: float | None = None,
    ) -> _OutT: ...
    def barrier(self, *, timeout: float | None = None) -> None: ...
    @overload
    def split(self, color: int, key: int | None = None, *, timeout: float | None = None) -> Communicator: ...
    @overload
    def split(self, color: None, key: int | None = None, *, timeout: float | None = None) -> None: ...
    @overload
    def split(
        self, color: int | None, key: int | None = None, *, timeout: float | None = None
    ) -> Communicator | None: ...
    def group(self, *, timeout: float | None = None) -> Group: ...
    def abort(self) -> None: ...

@final
class Schedule:
    @staticmethod
    def parse(text: str) -> Schedule: ...
    @property
    def collective(self) -> str: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def world_size(self) -> int: ...
    @property
    def root(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def in_place(self) -> bool: ...
    @property
    def chunks(self) -> int: ...
    @property
    def steps(self) -> list[Step]: ...
    @property
    def step_count(self) -> int: ...
    @property
    def slots(self) -> int: ...
    def lower(self, path: str, *, channels: int | None = None, slots: int | None = None) -> Schedule: ...
    def diff(self, other: Schedule) -> str: ...
    def cost(self) -> tuple[float, int]: ...
    def moved_by_busiest(self) -> float: ...
    def chunk_ranges(self, counts: int | Sequence[int]) -> list[tuple[int, int]]: ...
    def chunks_of(self, rank: int) -> tuple[list[int], list[int]]: ...
    def _repr_html_(self) -> str: ...
    def _repr_svg_(self) -> str | None: ...

@final
class Step:
    @property
    def rank(self) -> int: ...
    @property
    def queue(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def sources(self) -> list[tuple[int, str, int, int, int | None]]: ...
    @property
    def destinations(self) -> list[tuple[int, str, int, int]]: ...
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
    @property
    def schedule(self) -> Schedule: ...
    @property
    def seconds(self) -> float: ...
    @property
    def is_rank_order(self) -> bool: ...
    @property
    def order(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def cannot_run(self) -> str | None: ...
    def expression(self, chunk: int) -> str: ...
    def _repr_html_(self) -> str: ...

@final
class View:
    @property
    def rank(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...

@final
class Builder:
    def __new__(
        cls, collective: str, world_size: int, *, root: int | None = None, in_place: bool = False
    ) -> Builder: ...
    @property
    def root(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def in_place(self) -> bool: ...
    @property
    def inputs(self) -> list[View]: ...
    @property
    def outputs(self) -> list[View]: ...
    def chunks(self, per_part: int) -> list[int]: ...
    def channel(self, channel: int) -> None: ...
    def input(self, rank: int, chunk: int | range) -> View: ...
    def output(self, rank: int, chunk: int | range) -> View: ...
    def scratch(self, rank: int, chunk: int | range, *, layer: int = 0) -> View: ...
    def fold(self, *views: View | Sequence[View], into: View | Sequence[View], at: str | None = None) -> View: ...
    def copy(self, view: View, into: View | Sequence[View], *, at: str | None = None) -> View: ...
    def push(self, view: View, into: View | Sequence[View]) -> View: ...
    def groups(self, per_group: int | None = None, *, stride: int | None = None) -> list[list[int]]: ...
    def reduce_scatter(
        self, views: Sequence[View], *, over: Sequence[Sequence[int]], algorithm: Any = "auto"
    ) -> list[View]: ...
    def all_reduce(
        self, views: Sequence[View], *, over: Sequence[Sequence[int]], algorithm: Any = "auto"
    ) -> list[View]: ...
    def all_gather(
        self,
        views: Sequence[View],
        *,
        into: Sequence[View],
        over: Sequence[Sequence[int]],
        algorithm: Any = "auto",
    ) -> list[View]: ...
    def finish(self, name: str) -> Schedule: ...
    def fail_at(self, step: int, message: str) -> None: ...

def schedule(
    collective: str,
    algorithm: Any,
    *,
    world_size: int,
    root: int | None = None,
    path: str = "mapped",
    in_place: bool | None = None,
) -> Schedule: ...
def verify(schedule: Schedule) -> Proof: ...
def why(schedules: Sequence[Schedule]) -> str: ...
def cost_model() -> CostModel: ...
def auto_candidates(collective: str) -> list[str]: ...

MAX_WORLD_SIZE: int
MAX_RUNNING_RANKS: int

def algorithms() -> list[AlgorithmRow]: ...
def algorithm_parameters(collective: str, name: str) -> list[ParameterRow]: ...
def collectives() -> list[CollectiveRow]: ...
def parse_size(text: str) -> int: ...
def bus_factor(collective: str, world_size: int) -> float: ...
def dtypes() -> list[DtypeRow]: ...
def ops() -> list[OpRow]: ...
def machine() -> dict[str, Any]: ...
def roofline(arrays: Any, threads: int, *, non_temporal: bool = False) -> float: ...

@final
class Fabric:
    @staticmethod
    def from_text(text: str, *, gpu: str | None = None) -> Fabric: ...
    @staticmethod
    def from_file(path: str | PathLike[str], *, gpu: str | None = None) -> Fabric: ...
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def gpu(self) -> str: ...
    @property
    def world_size(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def trust(self) -> str: ...
    @property
    def sources(self) -> list[str]: ...
    @property
    def abilities(self) -> list[str]: ...
    @property
    def devices(self) -> list[tuple[str, str, int | None, int]]: ...
    @property
    def links(self) -> list[tuple[str, str, str, int, float, float]]: ...
    def matrix(self, *, first: int | None = None) -> list[list[str]]: ...
    def route(self, source: int, target: int) -> tuple[list[str], str]: ...
    def alone(self, *, first: int | None = None) -> list[list[float]]: ...
    def at_once(self, *, first: int | None = None) -> list[list[float]]: ...
    def cut(self, ranks: Sequence[int]) -> float: ...
    @overload
    def floor(self, collective: str, nbytes: _Size) -> float: ...
    @overload
    def floor(self, collective: str, nbytes: _Sizes) -> list[float]: ...
    @overload
    def nccl(self, collective: str, nbytes: _Size, *, version: str | None = None) -> NcclEstimate: ...
    @overload
    def nccl(self, collective: str, nbytes: _Sizes, *, version: str | None = None) -> list[NcclEstimate]: ...
    @overload
    def predict(
        self,
        collective: str,
        nbytes: _Size,
        *,
        launch: str = "process_per_gpu",
        algorithm: str | None = None,
        protocol: str | None = None,
        version: str | None = None,
    ) -> Prediction: ...
    @overload
    def predict(
        self,
        collective: str,
        nbytes: _Sizes,
        *,
        launch: str = "process_per_gpu",
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
    ) -> Timeline: ...
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
    def among(self, ranks: Sequence[int]) -> Fabric: ...
    def _repr_svg_(self) -> str | None: ...
    def __eq__(self, other: object, /) -> bool: ...

@final
class Prediction:
    @property
    def fabric(self) -> str: ...
    @property
    def collective(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def launch(self) -> str: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def channels(self) -> int | None: ...
    @property
    def microseconds(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def algbw(self) -> float: ...
    @property
    def busbw(self) -> float: ...
    @property
    def floor(self) -> float: ...
    @property
    def nccl(self) -> float | None: ...
    @property
    def bottleneck(self) -> str: ...
    @property
    def parts(self) -> list[tuple[str, float]]: ...
    @property
    def trust(self) -> str: ...
    @property
    def choice(self) -> str: ...

@final
class Trial:
    def __new__(
        cls,
        fabric: Fabric,
        collective: str,
        nbytes: Sequence[int],
        *,
        launch: str = "process_per_gpu",
        algorithm: str | None = None,
        protocol: str | None = None,
        version: str | None = None,
    ) -> Trial: ...
    @property
    def fabric_class(self) -> str: ...
    def times(self, values: Mapping[str, float]) -> list[float]: ...

def patterns() -> list[PatternRow]: ...
def launch_named(name: str) -> str: ...
def constants_of_predictions() -> list[ConstantRow]: ...

@final
class NcclEstimate:
    @property
    def nbytes(self) -> int: ...
    @property
    def tag(self) -> str: ...
    @property
    def is_last_resort(self) -> bool: ...
    @property
    def candidates(self) -> list[NcclCandidate]: ...
    @property
    def chosen(self) -> NcclCandidate: ...

@final
class NcclCandidate:
    @property
    def algorithm(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def channels(self) -> int: ...
    @property
    def microseconds(self) -> float | None: ...
    @property
    def algbw(self) -> float | None: ...
    @property
    def busbw(self) -> float | None: ...
    @property
    def why_disabled(self) -> str | None: ...

@final
class Timeline:
    @property
    def microseconds(self) -> float: ...
    @property
    def end(self) -> list[float]: ...
    @property
    def links(self) -> list[tuple[str, str, int, float]]: ...
    @property
    def memory_bytes(self) -> list[int]: ...
    @property
    def bottleneck(self) -> str: ...
    @property
    def tiles(self) -> int: ...
    @property
    def spans(self) -> list[tuple[int, int, int, int, float, float]] | None: ...
    @property
    def schedule(self) -> str: ...
    @property
    def fabric(self) -> str: ...
    @property
    def critical(self) -> list[CriticalPiece]: ...
    @property
    def steps(self) -> list[Step]: ...
    def _ways(self) -> tuple[list[int], list[tuple[float, list[int]]]]: ...
    def trace(self) -> dict[str, Any]: ...
    def save_trace(self, path: str | PathLike[str]) -> None: ...
    def to_svg(self, *others: Timeline) -> str: ...
    def _repr_svg_(self) -> str | None: ...

@final
class CriticalPiece:
    @property
    def rank(self) -> int: ...
    @property
    def queue(self) -> int | None: ...
    @property
    def step(self) -> int | None: ...
    @property
    def tile(self) -> int: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def reason(self) -> str: ...
    @property
    def link(self) -> tuple[str, str] | None: ...
    @property
    def users(self) -> int | None: ...
    @property
    def other(self) -> int | None: ...
    @property
    def words(self) -> str: ...

def nccl_versions() -> list[str]: ...
def fabric(name: str) -> Fabric: ...
def fabrics() -> list[Fabric]: ...

@final
class TextFormat:
    @property
    def name(self) -> str: ...
    @property
    def ending(self) -> str: ...
    @property
    def needs_gpu(self) -> bool: ...

def text_formats() -> list[TextFormat]: ...
def cluster(node: str | Fabric, *, nodes: int, network: str) -> Fabric: ...
def networks() -> list[NetworkRow]: ...
def media() -> list[MediumRow]: ...
def gpus() -> list[GpuRow]: ...
