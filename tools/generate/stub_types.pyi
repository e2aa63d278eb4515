# ruff: noqa: F401
# Types that tools/generate/stub.py does not find in the extension. The imports are those of the stub.
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
"""A registered name, a name with parameters such as `"two_level(per_node=4)"`, or an algorithm of the user."""
_Sizes: TypeAlias = list[_Size] | tuple[_Size, ...] | Iterable[int | float]

class Error(Exception):
    ranks: tuple[int, ...]
    late: tuple[int, ...]
    stopped: tuple[int, ...]
    left: tuple[int, ...]
    host: str | None
    def __init__(self, *args: object, ranks: tuple[int, ...] = ()) -> None: ...

class InvalidArgument(Error, ValueError): ...

class BuildError(Error):
    step: int | None

class Refuted(Error):
    places: tuple[str, ...]
    missing: str | None

class Mismatch(Error): ...

class Aborted(Error):
    status: int | None

class PeerLost(Aborted):
    rank: int | None
    pid: int | None
    signal: int | None

class Timeout(Error, TimeoutError): ...
class Busy(Error, RuntimeError): ...
class Closed(Error, RuntimeError): ...
class NoEngine(Error, RuntimeError): ...

class Group:
    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None, /
    ) -> Literal[False]: ...

class Communicator:
    @property
    def hosts(self) -> tuple[tuple[int, ...], ...]: ...
    @overload
    def barrier(self, *, timeout: float | None = None, async_op: Literal[False] = False) -> None: ...
    @overload
    def barrier(self, *, timeout: float | None = None, async_op: Literal[True]) -> Work: ...
    @overload
    def split(self, color: int, key: int | None = None, *, timeout: float | None = None) -> Communicator: ...
    @overload
    def split(self, color: None, key: int | None = None, *, timeout: float | None = None) -> None: ...
    @overload
    def split(
        self, color: int | None, key: int | None = None, *, timeout: float | None = None
    ) -> Communicator | None: ...

class Work:
    def __await__(self) -> Generator[Any, None, Any]: ...

class Prediction:
    @property
    def launch(self) -> _Launch: ...

class StepPrediction:
    @property
    def fit(self) -> Literal["fits", "tight", "too_large"] | None: ...
    @property
    def flops_of(self) -> Literal["model", "recorded"]: ...
    @property
    def layout(self) -> PlanOptions: ...
    @property
    def request(self) -> dict[str, Any]: ...
