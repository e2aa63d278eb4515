"""Why some objects are neither pickled nor copied. Those that describe something are: machines, schedules, prices.

Example:
    >>> import copy, nvcoll
    >>> copy.copy(nvcoll.Node(2))
    Traceback (most recent call last):
    TypeError: cannot pickle or copy a Node: it holds ranks and their memory: make it where it is used
"""

from __future__ import annotations

import copyreg
from typing import NoReturn

from nvcoll._nvcoll import (
    Builder,
    Communicator,
    CriticalPiece,
    Group,
    Message,
    NcclCandidate,
    NcclEstimate,
    Network,
    Plan,
    PremulSum,
    StepPricer,
    View,
    Work,
)
from nvcoll.ranks.node import Node

WHY: dict[type, str] = {
    **dict.fromkeys((Communicator, Group, Message, Node, Plan, Work), "it holds ranks and their memory"),
    **dict.fromkeys((Builder, View), "its schedule is being written: pass the Schedule"),
    **dict.fromkeys((NcclEstimate, NcclCandidate), "Fabric.nccl returns it for a machine: pass the Fabric"),
    CriticalPiece: "a Timeline has it: pass the Timeline",
    Network: "a machine has it: pass the Fabric",
    PremulSum: "nvcoll.premul_sum makes it: pass the scalars",
    StepPricer: "a Machine holds prices that it has learnt: pass its fabric",
}
"""The classes that refuse, and the reason."""


def _refuse(one: object) -> NoReturn:
    raise TypeError(f"cannot pickle or copy a {type(one).__name__}: {WHY[type(one)]}: make it where it is used")


for refused in WHY:
    copyreg.pickle(refused, _refuse)
