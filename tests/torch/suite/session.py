"""A run of the suite: every case at some world sizes with one backend, in processes that have imported torch once.

this process      imports torch, and the module that registers the backend
 +- one process for each world size and shown name: imports the suite (``suite.py``)
     +- the ranks of one case after the other (``ranks.py``)
"""

import importlib
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection

import torch
from outcomes import Outcome, merge
from ranks import PROCESSES, adopt_orphans, run_case
from suite import BACKENDS, SHOWN, Suite

TORCH = torch.__version__.partition("+")[0]
"""The version of torch, without the name of its build."""


class Session:
    """The cases to run.

    Args:
        backend: the backend under test
        module: the module whose import registers it; None for those that torch has and those of `BACKENDS`
        names: the cases; all if there are none
        limit_s: how long a case may take
    """

    def __init__(self, backend: str, module: "str | None", names: list[str], limit_s: float):
        self.backend, self.names, self.limit_s = backend, names, limit_s
        module = module or BACKENDS.get(backend)
        if module:
            importlib.import_module(module)
        if not hasattr(torch.distributed.Backend, backend.upper()):
            sys.exit(f"torch knows no backend {backend}: install it, or --import the module that registers it")

    def run(self, world_size: int) -> list[Outcome]:
        """Runs the cases; what is skipped under one name is tried under the next."""
        found: dict[str, Outcome] = {}
        for shown in SHOWN:
            left = [case for case, one in found.items() if one.reason in ("world size", "backend name")]
            if found and not left:
                break
            for one in self.outcomes(shown, world_size, left or self.names):
                found[one.case] = merge(found[one.case], one) if one.case in found else one
                print(f"{world_size} ranks, {len(found)} cases: {one.case} {one.result}", file=sys.stderr, flush=True)
        return list(found.values())

    def outcomes(self, shown: str, world_size: int, names: list[str]) -> Iterator[Outcome]:
        """Runs cases in a process of their own; yields their outcomes."""
        ours, theirs = PROCESSES.Pipe()
        process = PROCESSES.Process(target=self.send_outcomes, args=(theirs, shown, world_size, names))
        process.start()
        theirs.close()
        try:
            while (one := ours.recv()) is not None:
                yield one
        except EOFError:
            sys.exit(f"the process that runs the cases under the name {shown} has ended")
        finally:
            process.join()

    def send_outcomes(self, pipe: Connection, shown: str, world_size: int, names: list[str]) -> None:
        """Runs in the new process: sends the outcome of each case, then None."""
        adopt_orphans()
        suite = Suite(self.backend, shown, world_size)
        unknown = set(names) - set(suite.names())
        if unknown:
            sys.exit(f"the suite has no case {', '.join(sorted(unknown))}")
        for case in names or suite.names():
            pipe.send(run_case(suite, case, self.limit_s))
        pipe.send(None)
