"""Arrays that are not numpy arrays, as numpy arrays over the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from nvcoll._nvcoll import InvalidArgument, dtypes

SUPPORTED = [name for name, *_ in dtypes()]


def as_ndarray(obj: Any, name: str) -> tuple[np.ndarray[Any, Any], str]:
    """Returns a numpy array that shares the memory of ``obj``, and the name of its dtype.

    Anything on the CPU with DLPack or the buffer protocol will do. A dtype that numpy lacks (bfloat16 of torch) is seen
    through an integer view of the same width.

    Raises:
        InvalidArgument: ``obj`` is no array, is on another device, or belongs to an autograd graph.
    """
    if getattr(obj, "requires_grad", False):
        raise InvalidArgument(f"{name} requires grad, and autograd would not see the call: pass x.detach() or x.grad")
    if getattr(obj, "is_neg", bool)():
        raise InvalidArgument(f"{name} is a lazily negated view, whose memory holds other values: pass x.resolve_neg()")
    if hasattr(obj, "__dlpack__"):
        return _from_dlpack(obj, name)
    try:
        view = memoryview(obj)
    except TypeError:
        raise InvalidArgument(
            f"{name} is a {type(obj).__name__}: pass a numpy array, "
            "or anything on the CPU with DLPack or the buffer protocol"
        ) from None
    return _checked(np.asarray(view), name)


def _from_dlpack(obj: Any, name: str) -> tuple[np.ndarray[Any, Any], str]:
    device_type = int(obj.__dlpack_device__()[0])
    if device_type != 1:
        raise InvalidArgument(f"{name} is on DLPack device type {device_type}: pass an array in CPU memory (type 1)")
    dtype = str(getattr(obj, "dtype", "")).rpartition(".")[2]
    if dtype == "bfloat16" and hasattr(obj, "view"):
        import torch

        return np.from_dlpack(obj.view(torch.int16)), dtype
    try:
        return _checked(np.from_dlpack(obj), name)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidArgument(
            f"{name} cannot be read as an array ({error}): pass one of {', '.join(SUPPORTED)}"
        ) from error


def _checked(array: np.ndarray[Any, Any], name: str) -> tuple[np.ndarray[Any, Any], str]:
    if array.dtype.name not in SUPPORTED or not array.dtype.isnative:
        raise InvalidArgument(f"{name} has dtype {array.dtype}: convert it to one of {', '.join(SUPPORTED)}")
    return array, array.dtype.name
