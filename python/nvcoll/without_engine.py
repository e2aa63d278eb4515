"""Stand-ins for the names of the extension that a build without the engine lacks.

The engine runs collectives, and needs Linux. Elsewhere nvcoll plans, predicts, checks and verifies. There the extension
asks `stand_in` for a name that it lacks. So modules import as they do with the engine, and the first use of the name
raises `NoEngine`.
"""

from __future__ import annotations

from functools import cache
from typing import NoReturn

from nvcoll.errors import NoEngine


def refusal(name: str) -> NoEngine:
    """Returns the error of something that needs the engine."""
    return NoEngine(
        f"this build of nvcoll has no engine, which {name} needs: use nvcoll on Linux, in a container or in WSL; "
        "`nvcoll info` says what works here"
    )


def require(name: str) -> None:
    """Checks that this build has the engine.

    Raises:
        NoEngine: it has none; the message says that `name` needs it.
    """
    from nvcoll._nvcoll import HAS_ENGINE  # which imports this file while it loads

    if not HAS_ENGINE:
        raise refusal(name)


class _StandIn(type):
    """The type of stand-ins: a call of one raises."""

    def __call__(cls, *_: object, **__: object) -> NoReturn:
        raise refusal(f"`{cls.__name__}`")


@cache
def stand_in(name: str) -> type:
    """Returns the stand-in for a class or a function of the engine; the extension calls it as ``__getattr__``."""
    if name.startswith("__"):
        raise AttributeError(f"module 'nvcoll._nvcoll' has no attribute {name!r}")
    return _StandIn(name, (), {"__module__": "nvcoll._nvcoll"})
