"""Predictions of NCCL's times in one line, for tools that need a cost model: `predict`.

One size gives a `Prediction` with all that is known. Several sizes give a numpy array with a row for each, which a tool
can store, interpolate or write to a file. Both ask `Fabric.predict`, which keeps the work that sizes share.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

from nvcoll._nvcoll import Fabric, Prediction, fabric
from nvcoll.cost.comparison import LAUNCH

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nvcoll._nvcoll import _Launch as Launch
    from nvcoll._nvcoll import _Server as Server
    from nvcoll._nvcoll import _Size as Size

    Sizes = list[int] | list[float] | list[str] | list[Size] | tuple[Size, ...] | range | NDArray[Any]

COLUMNS = [
    ("nbytes", "u8"),
    *((name, "f8") for name in ("time_us", "low_us", "high_us", "floor_us", "algbw", "busbw")),
    ("algorithm", "U16"),
    ("protocol", "U8"),
]
"""The columns of a table of predictions: attributes of `Prediction`."""


@overload
def predict(
    collective: str,
    nbytes: Size,
    *,
    on: str | PathLike[str] | Fabric,
    launch: Launch = ...,
    algorithm: str | None = ...,
    protocol: str | None = ...,
    version: str | None = ...,
    settings: Mapping[str, str | int] | None = ...,
    as_: Server | None = ...,
) -> Prediction: ...
@overload
def predict(
    collective: str,
    nbytes: Sizes,
    *,
    on: str | PathLike[str] | Fabric,
    launch: Launch = ...,
    algorithm: str | None = ...,
    protocol: str | None = ...,
    version: str | None = ...,
    settings: Mapping[str, str | int] | None = ...,
    as_: Server | None = ...,
) -> NDArray[np.void]: ...
def predict(
    collective: str,
    nbytes: Size | Sizes,
    *,
    on: str | PathLike[str] | Fabric,
    launch: Launch = LAUNCH,
    algorithm: str | None = None,
    protocol: str | None = None,
    version: str | None = None,
    settings: Mapping[str, str | int] | None = None,
    as_: Server | None = None,
) -> Prediction | NDArray[np.void]:
    """Predicts how long a collective of NCCL takes among all GPUs of a machine.

    Args:
        collective: a name, in the spelling of any tool: ``all_reduce``, ``alltoall``, ``ReduceScatter``.
        nbytes: bytes as nccl-tests counts them: a number, a text such as ``"1G"``, or an array of any shape.
        on: one machine: a name, a file, or a :class:`Fabric`, as in :func:`nvcoll.machines`.
        launch: how calls are launched, as in ``Fabric.predict``; so are ``algorithm``, ``protocol``, ``version``,
            ``settings`` and ``as_``.

    Returns:
        For one size a `Prediction`. For an array of sizes a structured array of the same shape, with the fields
        ``nbytes`` (bytes); ``time_us``, ``low_us``, ``high_us`` (the time and its 90 % interval) and ``floor_us`` (the
        lower bound), in microseconds; ``algbw`` and ``busbw``, in GB/s (10^9 bytes); ``algorithm`` and ``protocol``.

    Raises:
        InvalidArgument: as ``Fabric.predict``; no machine is called so.

    Example:
        >>> import nvcoll
        >>> table = nvcoll.predict("allreduce", [1 << 20, 1 << 30], on="hgx-h100")
        >>> table.shape, [str(name) for name in table["algorithm"]]
        ((2,), ['Ring', 'NVLS'])
    """
    import numpy as np  # a command that predicts does not wait for it

    machine = fabric(on)

    def asked(sizes: Any) -> Any:
        return machine.predict(
            collective,
            sizes,
            launch=launch,
            algorithm=algorithm,
            protocol=protocol,
            version=version,
            settings=settings,
            as_=as_,
        )

    if np.ndim(nbytes) == 0:
        one: Prediction = asked(nbytes if isinstance(nbytes, (int, float, str)) else np.asarray(nbytes).item())
        return one
    sizes = np.asarray(nbytes)
    rows = [tuple(getattr(row, name) for name, _ in COLUMNS) for row in asked(sizes.ravel().tolist())]
    return np.array(rows, COLUMNS).reshape(sizes.shape)
