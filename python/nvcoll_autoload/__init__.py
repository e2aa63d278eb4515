"""Registers the backend ``nvcoll`` with torch.distributed. torch calls `register` itself, by two entry points.

| entry point | when torch calls it |
|---|---|
| ``torch.backends`` | at the end of ``import torch``; ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` turns it off |
| ``torch.distributed.backends`` | when a program first names the backend (torch 2.14 and later) |

An exception here would make every ``import torch`` on the machine fail. So this package stands beside ``nvcoll``,
imports nothing of it, and reports its own failures as warnings. nvcoll is loaded when the first process group is made.
"""

from __future__ import annotations

import inspect
import os
import warnings
from typing import Any

from nvcoll_autoload.replacing import REPLACE, VARIABLE, replaces_gloo


def register() -> None:
    """Registers the backend, if torch was built with torch.distributed. Never raises."""
    try:
        import torch.distributed as dist

        if dist.is_available():
            _register(dist)
    except Exception as error:
        _warn(f"nvcoll cannot be registered as a backend of torch.distributed: {type(error).__name__}: {error}")


def _register(dist: Any) -> None:
    if "NVCOLL" not in dist.Backend._plugins:
        dist.Backend.register_backend("nvcoll", _create, extended_api=True, devices=["cpu"])
    value = os.environ.get(VARIABLE, "")
    if replaces_gloo():
        _replace_gloo(dist)
    elif value:
        _warn(f"{VARIABLE}={value} has no effect: set it to {REPLACE}, or unset it")


def _create(options: Any, backend_options: Any) -> Any:
    """Makes a process group: torch calls this for ``init_process_group("nvcoll")`` and for each new group."""
    from nvcoll.without_engine import require

    require("the backend nvcoll of torch.distributed")
    from nvcoll.torch import groups

    return groups.create(options, backend_options)


def _replace_gloo(dist: Any) -> None:
    """Replaces gloo: a program that asks for gloo gets nvcoll.

    From torch 2.14 on the program sees the name gloo. Older torch makes groups of gloo without looking at the
    registered backends. So the name of the backend is changed, and the program sees the name nvcoll.
    """
    if hasattr(dist.Backend, "_ensure_backend_registered"):
        dist.Backend._plugins["GLOO"] = dist.Backend._plugins["NVCOLL"]
        return
    from torch.distributed import distributed_c10d

    made = distributed_c10d._new_process_group_helper
    if hasattr(made, "made"):
        return

    def make(*arguments: Any, **keywords: Any) -> Any:
        bound = inspect.signature(made).bind(*arguments, **keywords)
        if "gloo" in str(bound.arguments["backend"]).lower():
            bound.arguments["backend"] = "nvcoll"
        return made(*bound.args, **bound.kwargs)

    make.made = made  # type: ignore[attr-defined]
    distributed_c10d._new_process_group_helper = make


def _warn(message: str) -> None:
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    except Exception:  # the user has turned warnings into errors
        print(message)
